//! Random loss, independent or in bursts. Adds no delay.

use fastrand::Rng;

use super::impairment::{Dropped, Impairment};
use super::in_order::InOrder;
use super::log::Cause;
use super::probability::Probability;
use super::settings::BurstLossSettings;

/// Independent loss.
#[derive(Debug)]
pub struct Loss<P> {
    probability: Probability,
    random: Rng,
    passed: InOrder<P>,
}

impl<P> Loss<P> {
    /// Loss with this probability.
    pub fn new(probability: f64, seed: u64) -> Self {
        Self { probability: Probability::new(probability), random: Rng::with_seed(seed), passed: InOrder::new() }
    }
}

impl<P: std::fmt::Debug + Send> Impairment<P> for Loss<P> {
    fn enqueue(&mut self, now_ns: i64, packet: P) -> Result<(), Dropped<P>> {
        if self.probability.draw(&mut self.random) {
            return Err(Dropped { packet, cause: Cause::Loss });
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
}

/// Burst loss: the Gilbert-Elliott model.
#[derive(Debug)]
pub struct BurstLoss<P> {
    enter: Probability,
    leave: Probability,
    loss_in_good: Probability,
    loss_in_bad: Probability,
    is_bad: bool,
    random: Rng,
    passed: InOrder<P>,
}

impl<P> BurstLoss<P> {
    /// Starts in the good state.
    pub fn new(settings: BurstLossSettings, seed: u64) -> Self {
        Self {
            enter: Probability::new(settings.enter_probability),
            leave: Probability::new(settings.leave_probability),
            loss_in_good: Probability::new(settings.loss_in_good_probability),
            loss_in_bad: Probability::new(settings.loss_in_bad_probability),
            is_bad: false,
            random: Rng::with_seed(seed),
            passed: InOrder::new(),
        }
    }
}

impl<P: std::fmt::Debug + Send> Impairment<P> for BurstLoss<P> {
    fn enqueue(&mut self, now_ns: i64, packet: P) -> Result<(), Dropped<P>> {
        // the present state decides about the packet, then the state may change
        let (loss, change) = if self.is_bad { (self.loss_in_bad, self.leave) } else { (self.loss_in_good, self.enter) };
        let is_lost = loss.draw(&mut self.random);
        self.is_bad ^= change.draw(&mut self.random);
        if is_lost {
            return Err(Dropped { packet, cause: Cause::BurstLoss });
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
}
