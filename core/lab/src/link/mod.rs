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
//! impairment  what a part of a link does to packets
//! in_order  packets that leave in the order of their coming
//! ```
//!
//! Time is an argument. When a packet leaves is computed from when it and those before it came, and never depends on when
//! someone asked for it. Nothing here looks into a packet: only its length counts.

pub mod chain;
pub mod delay;
pub mod direction;
pub mod impairment;
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
pub use impairment::{Dropped, Impairment, Packet};
pub use log::{Cause, Fate, LineLog, LinkLog};
pub use settings::{DirectionSettings, LinkSettings, SettingsError};

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
