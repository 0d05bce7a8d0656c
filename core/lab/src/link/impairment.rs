//! A part of a link: it delays or drops packets.

use std::fmt::Debug;

use super::log::{Cause, LineLog};
use crate::occurrence::Hits;

/// A packet of a link.
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

/// A packet that an impairment dropped.
#[derive(Debug)]
pub struct Dropped<P> {
    /// The packet.
    pub packet: P,
    /// The cause.
    pub cause: Cause,
}

/// An impairment. Times of [`Impairment::enqueue`] never decrease.
pub trait Impairment<P>: Debug + Send {
    /// Takes a packet that arrives at `now_ns`.
    ///
    /// # Errors
    /// The packet and the cause, when it is dropped.
    fn enqueue(&mut self, now_ns: i64, packet: P) -> Result<(), Dropped<P>>;

    /// The next packet that has left by `now_ns`, with the time at which it left.
    fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)>;

    /// When the next packet leaves; none without packets.
    fn next_ready(&self) -> Option<i64>;

    /// Whether packets leave in the order of arrival. Then no later packet changes a departure time, and a packet may
    /// be passed on ahead of time.
    fn is_keeping_order(&self) -> bool {
        true
    }

    /// Busy times of its line, if it has one.
    fn line(&self) -> Option<&LineLog> {
        None
    }

    /// The workload begins, from which the times of faults count.
    fn workload_begins(&mut self, _now_ns: i64) {}

    /// What it hit, if it is a fault.
    fn hits(&self) -> Option<Hits> {
        None
    }
}
