//! Random loss, independent or in bursts, and loss as a fault: for a while, and of packets of some lengths. A black-out
//! drops all, an MTU black hole the large ones, a loss of ACKs the small ones. Adds no delay.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::impairment::Impairment;
use super::log::Fate;
use super::probability::Probability;
use crate::occurrence::{Hits, Occurrence, When};

/// The Gilbert-Elliott model: a good and a bad state, each with a probability of loss. It starts in the good state. The
/// state changes after a packet, so the bad state lasts `1 / leave_probability` packets on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BurstLossSettings {
    /// Probability per packet that the good state ends.
    pub enter_probability: f64,
    /// Probability per packet that the bad state ends.
    pub leave_probability: f64,
    /// Probability of loss in the good state.
    pub loss_in_good_probability: f64,
    /// Probability of loss in the bad state.
    pub loss_in_bad_probability: f64,
}

impl Default for BurstLossSettings {
    fn default() -> Self {
        Self {
            enter_probability: 0.0,
            leave_probability: 1.0,
            loss_in_good_probability: 0.0,
            loss_in_bad_probability: 1.0,
        }
    }
}

/// Settings of loss as a fault.
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

impl InterruptionSettings {
    /// Whether it is about frames of this length.
    fn covers(&self, frame_bytes: usize) -> bool {
        frame_bytes > self.more_than_bytes as usize
            && self.at_most_bytes.is_none_or(|most| frame_bytes <= most as usize)
    }
}

/// Independent loss.
#[derive(Debug)]
pub struct Loss {
    probability: Probability,
    random: Rng,
    /// When it is there, and for which packets; none for always, and all.
    fault: Option<(InterruptionSettings, Occurrence)>,
}

impl Loss {
    /// Loss with this probability.
    pub fn new(probability: f64, seed: u64) -> Self {
        Self { probability: Probability::new(probability), random: Rng::with_seed(seed), fault: None }
    }

    /// Loss for a while, of packets of some lengths.
    pub fn for_a_while(settings: InterruptionSettings, seed: u64) -> Self {
        let fault = Some((settings, Occurrence::new(settings.when)));
        Self { fault, ..Self::new(settings.probability, seed) }
    }
}

impl Impairment for Loss {
    fn departure_ns(&mut self, now_ns: i64, frame_bytes: usize) -> Result<i64, Fate> {
        let is_meant = self
            .fault
            .as_ref()
            .is_none_or(|(settings, occurrence)| occurrence.covers(now_ns) && settings.covers(frame_bytes));
        // no draw for a packet that is not meant: the fates of the others do not depend on it
        if !is_meant || !self.probability.draw(&mut self.random) {
            return Ok(now_ns);
        }
        let Some((_, occurrence)) = &mut self.fault else { return Err(Fate::Lost) };
        occurrence.hit(now_ns);
        Err(Fate::Interrupted)
    }

    fn workload_begins(&mut self, now_ns: i64) {
        if let Some((_, occurrence)) = &mut self.fault {
            occurrence.workload_begins(now_ns);
        }
    }

    fn hits(&self) -> Option<Hits> {
        self.fault.as_ref().map(|(_, occurrence)| occurrence.hits())
    }
}

/// Burst loss: the Gilbert-Elliott model.
#[derive(Debug)]
pub struct BurstLoss {
    enter: Probability,
    leave: Probability,
    loss_in_good: Probability,
    loss_in_bad: Probability,
    is_bad: bool,
    random: Rng,
}

impl BurstLoss {
    /// Starts in the good state.
    pub fn new(settings: BurstLossSettings, seed: u64) -> Self {
        Self {
            enter: Probability::new(settings.enter_probability),
            leave: Probability::new(settings.leave_probability),
            loss_in_good: Probability::new(settings.loss_in_good_probability),
            loss_in_bad: Probability::new(settings.loss_in_bad_probability),
            is_bad: false,
            random: Rng::with_seed(seed),
        }
    }
}

impl Impairment for BurstLoss {
    fn departure_ns(&mut self, now_ns: i64, _frame_bytes: usize) -> Result<i64, Fate> {
        // the present state decides about the packet, then the state may change
        let (loss, change) = if self.is_bad { (self.loss_in_bad, self.leave) } else { (self.loss_in_good, self.enter) };
        let is_lost = loss.draw(&mut self.random);
        self.is_bad ^= change.draw(&mut self.random);
        if is_lost { Err(Fate::LostInBurst) } else { Ok(now_ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(settings: InterruptionSettings, frames: &[(i64, usize)]) -> Vec<i64> {
        let mut part = Loss::for_a_while(settings, 1);
        part.workload_begins(1_000);
        let is_dropped = |&(now_ns, bytes): &(i64, usize)| part.departure_ns(now_ns, bytes).is_err();
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
