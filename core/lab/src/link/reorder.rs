//! Reordering: a share of the packets is held back for a fixed time, so that later ones overtake. Drops no packet.

use std::collections::VecDeque;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::impairment::{Dropped, Impairment};
use super::probability::Probability;
use crate::occurrence::{Hits, Occurrence, When};

/// Settings of reordering as a fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReorderingSettings {
    /// When it is there.
    pub when: When,
    /// Share of the packets that are held back.
    pub probability: f64,
    /// How long they are held back.
    pub by_ns: u64,
}

/// Holds some packets back.
#[derive(Debug)]
pub struct Reorder<P> {
    probability: Probability,
    by_ns: i64,
    random: Rng,
    /// When it is there; none for always.
    occurrence: Option<Occurrence>,
    arrived_count: u64,
    /// Both in the order of departure: departure time, arrival number, packet.
    passing: VecDeque<(i64, u64, P)>,
    held_back: VecDeque<(i64, u64, P)>,
}

impl<P> Reorder<P> {
    /// Holds packets back for `by_ns` with this probability.
    pub fn new(probability: f64, by_ns: u64, seed: u64) -> Self {
        Self {
            probability: Probability::new(probability),
            by_ns: i64::try_from(by_ns).unwrap_or(i64::MAX),
            random: Rng::with_seed(seed),
            occurrence: None,
            arrived_count: 0,
            passing: VecDeque::new(),
            held_back: VecDeque::new(),
        }
    }

    /// Holds packets back for a while.
    pub fn for_a_while(settings: ReorderingSettings, seed: u64) -> Self {
        let occurrence = Some(Occurrence::new(settings.when));
        Self { occurrence, ..Self::new(settings.probability, settings.by_ns, seed) }
    }

    /// Whether the next packet to leave was held back, and its departure time; at equal times the first to arrive
    /// leaves first.
    fn next(&self) -> Option<(bool, i64)> {
        let leaves =
            |packets: &VecDeque<(i64, u64, P)>| packets.front().map(|(ready_ns, number, _)| (*ready_ns, *number));
        match (leaves(&self.passing), leaves(&self.held_back)) {
            (Some(passing), Some(held_back)) => Some((held_back < passing, held_back.min(passing).0)),
            (None, Some(held_back)) => Some((true, held_back.0)),
            (passing, None) => Some((false, passing?.0)),
        }
    }
}

impl<P: std::fmt::Debug + Send> Impairment<P> for Reorder<P> {
    fn enqueue(&mut self, now_ns: i64, packet: P) -> Result<(), Dropped<P>> {
        let number = self.arrived_count;
        self.arrived_count += 1;
        let is_there = self.occurrence.is_none_or(|occurrence| occurrence.covers(now_ns));
        if is_there && self.probability.draw(&mut self.random) {
            if let Some(occurrence) = &mut self.occurrence {
                occurrence.hit(now_ns);
            }
            self.held_back.push_back((now_ns.saturating_add(self.by_ns), number, packet));
        } else {
            self.passing.push_back((now_ns, number, packet));
        }
        Ok(())
    }

    fn dequeue_ready(&mut self, now_ns: i64) -> Option<(i64, P)> {
        let (is_held_back, ready_ns) = self.next()?;
        if ready_ns > now_ns {
            return None;
        }
        let packets = if is_held_back { &mut self.held_back } else { &mut self.passing };
        packets.pop_front().map(|(ready_ns, _, packet)| (ready_ns, packet))
    }

    fn next_ready(&self) -> Option<i64> {
        self.next().map(|(_, ready_ns)| ready_ns)
    }

    fn is_keeping_order(&self) -> bool {
        false
    }

    fn workload_begins(&mut self, now_ns: i64) {
        if let Some(occurrence) = &mut self.occurrence {
            occurrence.workload_begins(now_ns);
        }
    }

    fn hits(&self) -> Option<Hits> {
        self.occurrence.as_ref().map(Occurrence::hits)
    }
}
