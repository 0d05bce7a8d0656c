//! A link of two directions, each a chain of small impairments.
//!
//! ```text
//! settings  settings per direction
//! chain     impairments in series, and the packets in them
//! rate      a line with a bit rate, and the queue before it (`queue`)
//! loss      random loss, independent or in bursts; for a while, of packets of some lengths
//! delay     a fixed delay
//! jitter    a random delay
//! reorder   a share of the packets is held back, and overtaken
//! log       counters, packet records, busy times of the line
//! direction one direction: a chain by its settings, and its log
//! impairment  the interface of the parts
//! ```
//!
//! Time is an argument. Departure times are computed from arrival times, and never depend on when the link is polled.
//! Nothing here looks into a packet: only its length counts.

pub mod chain;
pub mod delay;
pub mod direction;
pub mod impairment;
pub mod jitter;
pub mod log;
pub mod loss;
pub mod probability;
pub mod queue;
pub mod rate;
pub mod reorder;
pub mod settings;

#[cfg(test)]
mod tests;

pub use direction::Direction;
pub use impairment::{Impairment, Packet};
pub use log::{Fate, LineLog, LinkLog};
pub use settings::{DirectionSettings, LinkSettings, SettingsError};

/// A link of two independent directions.
#[derive(Debug)]
pub struct Link<P> {
    /// From the initiator to the target.
    pub to_target: Direction<P>,
    /// From the target to the initiator.
    pub to_initiator: Direction<P>,
}

impl<P: Packet> Link<P> {
    /// A link with these settings.
    ///
    /// # Errors
    /// The setting that is not valid.
    pub fn new(settings: &LinkSettings) -> Result<Self, SettingsError> {
        settings.check()?;
        // each direction has a seed that does not depend on the other direction's settings
        let mut seeds = fastrand::Rng::with_seed(settings.seed);
        let (to_target, to_initiator) = (seeds.u64(..), seeds.u64(..));
        Ok(Self {
            to_target: Direction::new(&settings.to_target, to_target, settings.is_logging_packets),
            to_initiator: Direction::new(&settings.to_initiator, to_initiator, settings.is_logging_packets),
        })
    }

    /// The workload begins, from which the times of faults count.
    pub fn workload_begins(&mut self, now_ns: i64) {
        self.to_target.workload_begins(now_ns);
        self.to_initiator.workload_begins(now_ns);
    }

    /// When the next packet of either direction leaves.
    pub fn next_ready(&self) -> Option<i64> {
        let (to_target, to_initiator) = (self.to_target.next_ready(), self.to_initiator.next_ready());
        to_target.into_iter().chain(to_initiator).min()
    }

    /// The log. Packets in transit stay in transit.
    pub fn into_log(self) -> LinkLog {
        LinkLog { to_target: self.to_target.into_log(), to_initiator: self.to_initiator.into_log() }
    }
}
