//! A part of a link: it delays or drops packets. The chain keeps them until they leave.

use std::fmt::Debug;

use super::log::{Fate, LineLog};
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

/// An impairment. Times of [`Impairment::departure_ns`] never decrease.
pub trait Impairment: Debug + Send {
    /// When a packet of this length that arrives at `now_ns` leaves.
    ///
    /// # Errors
    /// Its fate, when it is dropped.
    fn departure_ns(&mut self, now_ns: i64, frame_bytes: usize) -> Result<i64, Fate>;

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
