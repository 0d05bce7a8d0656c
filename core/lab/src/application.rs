//! The interface between a world and a program that communicates over stream connections.
//!
//! ```text
//!   world                                        application (initiator, target, bulk sender ...)
//!   opens what poll_connect requests        ->   connected
//!   a peer connects                         ->   accept
//!   bytes arrive                            ->   receive, or skip where they are unwanted
//!   the send buffer has room                ->   poll_transmit, one system call's worth each time
//!   the moment poll_timeout names has come  ->   handle_timeout
//!   either side closes                      ->   closed   |  poll_close
//! ```
//!
//! An application never sees a socket or a clock. After each call into it the world polls it again.

use std::net::SocketAddr;

/// Number of a connection: counted from 0, never reused.
pub type ConnectionNumber = usize;

/// A connection that an application wants to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dial {
    /// Its number, chosen by the application.
    pub connection: ConnectionNumber,
    /// Address of the peer.
    pub to: SocketAddr,
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// The peer closed its direction.
    ByPeer,
    /// It failed, or could not be opened, with the world's error message.
    Failed(String),
}

/// A program over stream connections, without I/O or a clock. Times are nanoseconds of the world's clock.
pub trait Application {
    /// The next connection to open.
    fn poll_connect(&mut self, _now_ns: i64) -> Option<Dial> {
        None
    }

    /// A peer connected, to the address `local` of this side: the number of the connection, or none to refuse it.
    fn accept(&mut self, _now_ns: i64, _peer: SocketAddr, _local: SocketAddr) -> Option<ConnectionNumber> {
        None
    }

    /// Whether it accepts connections now. A world that listens for it stops meanwhile, so that others are refused.
    fn is_accepting(&self, _now_ns: i64) -> bool {
        true
    }

    /// A connection from `poll_connect` is open.
    fn connected(&mut self, _now_ns: i64, _connection: ConnectionNumber) {}

    /// Bytes arrived.
    fn receive(&mut self, now_ns: i64, connection: ConnectionNumber, bytes: &[u8]);

    /// How many of the next bytes of a connection the application ignores. A world may drop them from the socket
    /// without copying them, and then calls [`Application::skip`] instead of [`Application::receive`].
    fn unwanted(&self, _connection: ConnectionNumber) -> usize {
        0
    }

    /// `count` unwanted bytes arrived and were dropped.
    fn skip(&mut self, _now_ns: i64, _connection: ConnectionNumber, _count: usize) {}

    /// The connection ended; its number is not used again.
    fn closed(&mut self, now_ns: i64, connection: ConnectionNumber, why: Closed);

    /// Appends to `out` the bytes of the next system call; nothing when there is nothing to send now. The world sends
    /// them with one call, and polls again only when all of them are in the send buffer.
    fn poll_transmit(&mut self, now_ns: i64, connection: ConnectionNumber, out: &mut Vec<u8>);

    /// The next connection to close once its pending bytes are sent; `closed` is not called for it.
    fn poll_close(&mut self) -> Option<ConnectionNumber>;

    /// When to call [`Application::handle_timeout`]; none without a timer.
    fn poll_timeout(&self) -> Option<i64> {
        None
    }

    /// The time of [`Application::poll_timeout`] has come.
    fn handle_timeout(&mut self, _now_ns: i64) {}

    /// Whether its workload has begun, from which the times of faults count.
    fn has_begun(&self) -> bool {
        false
    }

    /// Whether its work is done; a server's never is.
    fn is_finished(&self) -> bool {
        false
    }
}
