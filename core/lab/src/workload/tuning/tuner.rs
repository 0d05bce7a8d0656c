//! The search within its limits, and after it: the goodput of the number found is monitored, and the search restarts
//! when it changes for long.

use super::golden_section::GoldenSection;
use super::measured::Measured;
use super::predicted::Predicted;
use super::scatter::Scatter;
use super::search::Search;
use super::settings::{MOST_CONNECTIONS, TuningRule, TuningSettings};
use super::step::{Decision, Measurement, Step, count, rate};

/// Consecutive differing measurements that count as a change.
const LONG: u32 = 3;
/// Smallest relative difference that counts.
const CHANGE: f64 = 0.1;
/// Smallest difference that counts, in multiples of the scatter.
const SCATTERS: f64 = 3.0;
/// A restarted search starts with this fraction of the number in use: the model needs to see goodput add up.
const ANEW: u16 = 4;

/// After this many measurements with fewer connections than requested, their number is the limit.
const MOST_SHORTAGES: u32 = 3;

/// Decides the number of connections.
#[derive(Debug)]
pub struct Tuner {
    search: Box<dyn Search>,
    rule: TuningRule,
    start: u16,
    most: u16,
    scatter: Scatter,
    last: Option<Measurement>,
    /// The number found; none during a search.
    settled: Option<u16>,
    /// Its usual goodput.
    level: Option<f64>,
    changed_count: u32,
    asked: u16,
    shortages: u32,
}

impl Tuner {
    /// A tuner without measurements.
    #[must_use]
    pub fn new(settings: &TuningSettings) -> Self {
        let search: Box<dyn Search> = match settings.rule {
            TuningRule::GoldenSection => Box::new(GoldenSection::new(false)),
            TuningRule::PlainGoldenSection => Box::new(GoldenSection::new(true)),
            TuningRule::Measured => Box::new(Measured::new(settings.change_to, settings.change_after)),
            TuningRule::Predicted => Box::new(Predicted::new(settings.line_bytes_per_s)),
        };
        Self {
            search,
            rule: settings.rule,
            start: settings.start_connections,
            most: settings.most_connections.clamp(1, MOST_CONNECTIONS),
            scatter: Scatter::default(),
            last: None,
            settled: None,
            level: None,
            changed_count: 0,
            asked: 1,
            shortages: 0,
        }
    }

    /// The first step.
    pub fn begin(&mut self) -> Step {
        let from = if self.rule == TuningRule::Predicted { 1 } else { self.start };
        let step = self.search.begin(from, self.most);
        self.bounded(step)
    }

    /// Sets the limit of available connections.
    pub fn limit(&mut self, connections: u16) {
        self.most = self.most.min(connections.max(1));
    }

    /// The limit of connections.
    #[must_use]
    pub fn most(&self) -> u16 {
        self.most
    }

    /// The number found; none during a search.
    #[must_use]
    pub fn settled(&self) -> Option<u16> {
        self.settled
    }

    /// The next step after a measurement.
    pub fn next(&mut self, measured: Measurement) -> Step {
        let asked = self.asked.min(self.most);
        if measured.connections < asked {
            self.shortages += 1;
            if self.shortages <= MOST_SHORTAGES {
                let why = format!("only {} are available now; {asked} once more", count(measured.connections));
                return self.bounded(Step::repeat(asked, why));
            }
            self.limit(measured.connections);
        }
        if let Some(last) = self.last.filter(|_| !self.is_changed(measured)) {
            self.scatter.note(last, measured);
        }
        let step = match self.settled {
            Some(settled) => self.watch(settled, measured),
            None => self.search.next(measured, self.most, &self.scatter),
        };
        // the next measurement of the same number measures the scatter; not while the path changes
        self.last = (step.decision != Decision::Restart && self.changed_count == 0).then_some(measured);
        if step.decision == Decision::Settle {
            (self.settled, self.level, self.changed_count) = (Some(step.connections), None, 0);
        }
        self.bounded(step)
    }

    /// Whether it differs from the usual goodput of the number found.
    fn is_changed(&self, measured: Measurement) -> bool {
        let tolerance = CHANGE.max(SCATTERS * self.scatter.share());
        self.level.is_some_and(|level| (measured.goodput_bytes_per_s - level).abs() > tolerance * level)
    }

    fn watch(&mut self, settled: u16, measured: Measurement) -> Step {
        let gave = measured.goodput_bytes_per_s;
        let level = *self.level.get_or_insert(gave);
        if !self.is_changed(measured) {
            self.changed_count = 0;
            // slowly: the usual goodput may drift
            self.level = Some(level + (gave - level) / 8.0);
            let why = format!("{}, as before", measured.words());
            return Step { connections: settled, decision: Decision::Watch, why };
        }
        self.changed_count += 1;
        let words = format!("{}, before {}", measured.words(), rate(level));
        if self.changed_count < LONG {
            return Step { connections: settled, decision: Decision::Watch, why: format!("{words}; once more") };
        }
        (self.settled, self.level, self.changed_count) = (None, None, 0);
        let from = if self.rule == TuningRule::Predicted { (settled / ANEW).max(1) } else { settled };
        let step = self.search.begin(from, self.most);
        let why = format!("{words}, for long; restart from {}", count(step.connections));
        Step { connections: step.connections, decision: Decision::Restart, why }
    }

    fn bounded(&mut self, step: Step) -> Step {
        self.asked = step.connections.clamp(1, self.most);
        Step { connections: self.asked, ..step }
    }
}
