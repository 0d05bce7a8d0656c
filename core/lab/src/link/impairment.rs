//! A part of a link: it takes packets, and hands each on later or drops it.

use std::fmt::Debug;

use super::log::{Cause, LineLog};

/// What a link carries.
pub trait Packet {
    /// Bytes of the frame as a capture shows it: Ethernet header to the end of the payload, without preamble, check
    /// sequence and gap.
    fn frame_bytes(&self) -> usize;
}

impl Packet for Vec<u8> {
    fn frame_bytes(&self) -> usize {
        self.len()
    }
}

impl Packet for Box<[u8]> {
    fn frame_bytes(&self) -> usize {
        self.len()
    }
}

/// A packet that an impairment did not take.
#[derive(Debug)]
pub struct Dropped<P> {
    /// The packet.
    pub packet: P,
    /// Why.
    pub cause: Cause,
}

/// One thing that happens to packets. Times of [`Impairment::enqueue`] never go back.
pub trait Impairment<P>: Debug + Send {
    /// Takes a packet that arrives at `now_ns`.
    ///
    /// # Errors
    /// The packet and why, when it is dropped.
    fn enqueue(&mut self, now_ns: i64, packet: P) -> Result<(), Dropped<P>>;

    /// The next packet that has left by `now_ns`, with the time at which it left.
    fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)>;

    /// When the next packet leaves, of those that are here; none when there is none.
    fn next_ready(&self) -> Option<i64>;

    /// Whether packets leave in the order of their coming. Then nothing that comes later changes when a packet leaves, and
    /// it may be handed on before its time.
    fn is_keeping_order(&self) -> bool {
        true
    }

    /// When its line was busy, if it has one.
    fn line(&self) -> Option<&LineLog> {
        None
    }
}
