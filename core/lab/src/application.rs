//! What a world and a program that speaks over stream connections know of each other.
//!
//! ```text
//!   world                                        application (initiator, target, bulk sender ...)
//!   opens what poll_connect asks for        ->   connected
//!   a peer connects                         ->   accept
//!   bytes arrive                            ->   receive, or skip where they are unwanted
//!   the send buffer has room                ->   poll_transmit, one system call's worth each time
//!   the moment poll_timeout names has come  ->   handle_timeout
//!   either side closes                      ->   closed   |  poll_close
//! ```
//!
//! An application never sees a socket or a clock. After each call into it a world asks again what it wants.

use std::net::SocketAddr;

/// A connection of an application: counted from 0, never used again.
pub type ConnectionNumber = usize;

/// A connection that an application wants to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dial {
    /// Its number, chosen by the application.
    pub connection: ConnectionNumber,
    /// Where to.
    pub to: SocketAddr,
}

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closed {
    /// The peer sent all it had to.
    ByPeer,
    /// It failed, or could not be opened; the world's words for it.
    Failed(String),
}

/// A program over stream connections, without I/O and clock. Times are nanoseconds of the world's clock.
pub trait Application {
    /// The next connection to open.
    fn poll_connect(&mut self, now_ns: i64) -> Option<Dial>;

    /// A peer connected, to the address `local` of this side: the number of the connection, or none to refuse it.
    fn accept(&mut self, now_ns: i64, peer: SocketAddr, local: SocketAddr) -> Option<ConnectionNumber>;

    /// A connection that it asked for is open.
    fn connected(&mut self, now_ns: i64, connection: ConnectionNumber);

    /// Bytes came in.
    fn receive(&mut self, now_ns: i64, connection: ConnectionNumber, bytes: &[u8]);

    /// How many of the bytes that come next on a connection nobody looks at: a world may take them off the socket without
    /// copying them, and then calls [`Application::skip`] in place of [`Application::receive`].
    fn unwanted(&self, _connection: ConnectionNumber) -> usize {
        0
    }

    /// So many bytes came in, no more than were unwanted, and are gone.
    fn skip(&mut self, _now_ns: i64, _connection: ConnectionNumber, _count: usize) {}

    /// The connection is over; its number is not named again.
    fn closed(&mut self, now_ns: i64, connection: ConnectionNumber, why: Closed);

    /// Appends to `out` what the next system call sends; nothing when there is nothing to send now. The world sends it as
    /// one call, and asks again only when all of it is in the send buffer.
    fn poll_transmit(&mut self, now_ns: i64, connection: ConnectionNumber, out: &mut Vec<u8>);

    /// The next connection to close, once what was handed out is sent; `closed` does not follow.
    fn poll_close(&mut self) -> Option<ConnectionNumber>;

    /// When to call [`Application::handle_timeout`]; none when nothing is waited for.
    fn poll_timeout(&self) -> Option<i64>;

    /// The time that [`Application::poll_timeout`] named has come.
    fn handle_timeout(&mut self, now_ns: i64);

    /// Whether it has done all it had to do. A server never has.
    fn is_finished(&self) -> bool;
}
