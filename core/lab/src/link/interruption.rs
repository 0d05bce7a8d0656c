//! An interruption: for a while, packets of some lengths are dropped. A black-out drops all, an MTU black hole the large
//! ones, a loss of ACKs the small ones. Adds no delay.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::impairment::{Dropped, Impairment, Packet};
use super::in_order::InOrder;
use super::log::Cause;
use super::probability::Probability;
use crate::occurrence::{Hits, Occurrence, When};

/// Settings of an interruption.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InterruptionSettings {
    /// When it is there.
    pub when: When,
    /// It drops frames with more bytes than this only.
    pub more_than_bytes: u32,
    /// It drops frames of at most so many bytes only: a TCP segment without data is shorter than one with a PDU.
    pub at_most_bytes: Option<u32>,
    /// Share of these frames that it drops.
    pub probability: f64,
}

impl Default for InterruptionSettings {
    fn default() -> Self {
        Self { when: When::default(), more_than_bytes: 0, at_most_bytes: None, probability: 1.0 }
    }
}

/// An interruption.
#[derive(Debug)]
pub struct Interruption<P> {
    settings: InterruptionSettings,
    occurrence: Occurrence,
    probability: Probability,
    random: Rng,
    passed: InOrder<P>,
}

impl<P> Interruption<P> {
    /// An interruption that has dropped nothing.
    pub fn new(settings: InterruptionSettings, seed: u64) -> Self {
        Self {
            settings,
            occurrence: Occurrence::new(settings.when),
            probability: Probability::new(settings.probability),
            random: Rng::with_seed(seed),
            passed: InOrder::new(),
        }
    }

    fn is_meant(&self, frame_bytes: usize) -> bool {
        let InterruptionSettings { more_than_bytes, at_most_bytes, .. } = self.settings;
        frame_bytes > more_than_bytes as usize && at_most_bytes.is_none_or(|most| frame_bytes <= most as usize)
    }
}

impl<P: Packet + std::fmt::Debug + Send> Impairment<P> for Interruption<P> {
    fn enqueue(&mut self, now_ns: i64, packet: P) -> Result<(), Dropped<P>> {
        if self.occurrence.covers(now_ns)
            && self.is_meant(packet.frame_bytes())
            && self.probability.draw(&mut self.random)
        {
            self.occurrence.hit(now_ns);
            return Err(Dropped { packet, cause: Cause::Interruption });
        }
        self.passed.push(now_ns, packet);
        Ok(())
    }

    fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        self.passed.pop_ready(now_ns)
    }

    fn next_ready(&self) -> Option<i64> {
        self.passed.next_ready()
    }

    fn workload_begins(&mut self, now_ns: i64) {
        self.occurrence.workload_begins(now_ns);
    }

    fn hits(&self) -> Option<Hits> {
        Some(self.occurrence.hits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(settings: InterruptionSettings, frames: &[(i64, usize)]) -> Vec<i64> {
        let mut part = Interruption::new(settings, 1);
        part.workload_begins(1_000);
        let is_dropped = |&(now_ns, bytes): &(i64, usize)| part.enqueue(now_ns, vec![0; bytes]).is_err();
        frames.iter().copied().filter(is_dropped).map(|frame| frame.0).collect()
    }

    const TIMED: When = When { fault: 0, at_ns: Some(10), for_ns: Some(5) };

    #[test]
    fn a_black_out_drops_everything_for_its_time() {
        let settings = InterruptionSettings { when: TIMED, ..Default::default() };
        let frames = [(5, 60), (1_009, 60), (1_010, 60), (1_014, 9_000), (1_015, 60)];
        assert_eq!(dropped(settings, &frames), [1_010, 1_014]);
    }

    #[test]
    fn lengths_decide_exactly() {
        let frames = [(1, 66), (2, 94), (3, 95), (4, 1_414), (5, 1_415)];
        let hole = InterruptionSettings { more_than_bytes: 1_414, ..Default::default() };
        assert_eq!(dropped(hole, &frames), [5]);
        let acks = InterruptionSettings { at_most_bytes: Some(94), ..Default::default() };
        assert_eq!(dropped(acks, &frames), [1, 2]);
        let none = InterruptionSettings { probability: 0.0, ..Default::default() };
        assert!(dropped(none, &frames).is_empty());
    }
}
