//! What becomes of packets on their way: a link of two directions, each composed of small impairments.
//!
//! ```text
//! settings  what a user sets, per direction
//! chain     impairments one behind the other
//! rate      a line of so many bits a second, and the queue before it (`queue`)
//! loss      packets lost at random, alone or in bursts
//! delay     a time that every packet takes
//! jitter    a time that differs from packet to packet
//! reorder   a share of the packets is held back and overtaken
//! log       what was carried, what was dropped and why, when the line was busy
//! direction a chain as it is set, with its log
//! in_order  packets that leave in the order of their coming
//! ```
//!
//! Time is an argument. When a packet leaves is computed from when it and those before it came, and never depends on when
//! someone asked for it. Nothing here looks into a packet: only its length counts.

pub mod chain;
pub mod delay;
pub mod direction;
mod in_order;
pub mod jitter;
pub mod log;
pub mod loss;
pub mod queue;
pub mod rate;
pub mod reorder;
pub mod settings;

#[cfg(test)]
mod tests;

use std::fmt::Debug;

pub use direction::Direction;
pub use log::{Fate, LineLog, LinkLog};
pub use settings::{DirectionSettings, LinkSettings, SettingsError};

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

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The queue had no room for it.
    QueueFull,
    /// It was lost at random, on its own.
    Loss,
    /// It was lost at random, by what loses packets in bursts.
    BurstLoss,
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

/// A link of two directions that know nothing of each other.
#[derive(Debug)]
pub struct Link<P> {
    /// From the initiator to the target.
    pub to_target: Direction<P>,
    /// From the target to the initiator.
    pub to_initiator: Direction<P>,
}

impl<P: Packet + Send + Debug + 'static> Link<P> {
    /// A link as it is set.
    ///
    /// # Errors
    /// The setting that makes no sense.
    pub fn new(settings: &LinkSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        // one seed for each direction, whatever the other one is set to
        let mut seeds = fastrand::Rng::with_seed(settings.seed);
        let (to_target, to_initiator) = (seeds.u64(..), seeds.u64(..));
        Ok(Self {
            to_target: Direction::new(&settings.to_target, to_target, settings.is_logging_packets),
            to_initiator: Direction::new(&settings.to_initiator, to_initiator, settings.is_logging_packets),
        })
    }

    /// When the next packet of either direction leaves.
    pub fn next_ready(&self) -> Option<i64> {
        let (to_target, to_initiator) = (self.to_target.next_ready(), self.to_initiator.next_ready());
        to_target.into_iter().chain(to_initiator).min()
    }

    /// What became of everything. Packets still on their way stay unaccounted for.
    pub fn into_log(self) -> LinkLog {
        LinkLog { to_target: self.to_target.into_log(), to_initiator: self.to_initiator.into_log() }
    }
}
