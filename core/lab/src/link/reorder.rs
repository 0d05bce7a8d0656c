//! Reordering: a share of the packets is held back for a fixed time, so that later ones overtake. Drops no packet.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::impairment::Impairment;
use super::log::Fate;
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
pub struct Reorder {
    probability: Probability,
    by_ns: i64,
    random: Rng,
    /// When it is there; none for always.
    occurrence: Option<Occurrence>,
}

impl Reorder {
    /// Holds packets back for `by_ns` with this probability.
    pub fn new(probability: f64, by_ns: u64, seed: u64) -> Self {
        Self {
            probability: Probability::new(probability),
            by_ns: i64::try_from(by_ns).unwrap_or(i64::MAX),
            random: Rng::with_seed(seed),
            occurrence: None,
        }
    }

    /// Holds packets back for a while.
    pub fn for_a_while(settings: ReorderingSettings, seed: u64) -> Self {
        let occurrence = Some(Occurrence::new(settings.when));
        Self { occurrence, ..Self::new(settings.probability, settings.by_ns, seed) }
    }
}

impl Impairment for Reorder {
    fn departure_ns(&mut self, now_ns: i64, _frame_bytes: usize) -> Result<i64, Fate> {
        let is_there = self.occurrence.is_none_or(|occurrence| occurrence.covers(now_ns));
        if !is_there || !self.probability.draw(&mut self.random) {
            return Ok(now_ns);
        }
        if let Some(occurrence) = &mut self.occurrence {
            occurrence.hit(now_ns);
        }
        Ok(now_ns.saturating_add(self.by_ns))
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
