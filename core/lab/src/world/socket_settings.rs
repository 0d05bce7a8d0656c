//! Socket options of an application, and how it waits for events.

use std::io;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

/// Options of every socket; none for the kernel's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SocketSettings {
    /// TCP_CONGESTION.
    pub congestion_control: Option<String>,
    /// SO_SNDBUF; the kernel doubles it for its own use.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF; the kernel doubles it for its own use.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_MAXSEG.
    pub mss_bytes: Option<u32>,
    /// Nagle's algorithm: TCP_NODELAY off.
    pub is_nagle: bool,
    /// The address to connect from.
    pub bind_address: Option<IpAddr>,
    /// Whether to sleep as soon as there is nothing to do, and leave the CPU to others; else it polls during short
    /// waits.
    pub sleeps_at_once: bool,
}

impl SocketSettings {
    /// A socket for an address, with all options, not bound.
    pub(super) fn socket(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_nodelay(!self.is_nagle)?;
        if let Some(name) = &self.congestion_control {
            socket.set_tcp_congestion(name.as_bytes())?;
        }
        if let Some(bytes) = self.send_buffer_bytes {
            socket.set_send_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let Some(bytes) = self.mss_bytes {
            socket.set_tcp_mss(bytes)?;
        }
        Ok(socket)
    }

    /// A socket to connect to an address.
    pub(super) fn to_connect(&self, to: SocketAddr) -> io::Result<Socket> {
        let socket = self.socket(to)?;
        if let Some(from) = self.bind_address {
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        Ok(socket)
    }
}
