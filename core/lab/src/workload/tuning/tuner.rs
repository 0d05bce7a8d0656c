//! The search within its bounds, and what follows it: the number that was found is watched, and when it gives something
//! else for long the search begins anew.

use super::golden_section::GoldenSection;
use super::predicted::Predicted;
use super::scatter::Scatter;
use super::search::Search;
use super::settings::{MOST_CONNECTIONS, TuningRule, TuningSettings};
use super::step::{Decision, Measurement, Step, count, rate};

/// So many measurements in a row that differ are a change, not chance.
const LONG: u32 = 3;
/// What differs by less is no change.
const CHANGE: f64 = 0.1;
/// And by how many times what the same number scatters.
const SCATTERS: f64 = 3.0;
/// A search that begins anew begins with this part of what is in use: the model needs to see connections add up.
const ANEW: u16 = 4;

/// So often there may be fewer connections than asked for without a word: then there are no more to be had.
const MOST_SHORTAGES: u32 = 3;

/// Says how many connections there should be.
#[derive(Debug)]
pub struct Tuner {
    search: Box<dyn Search>,
    rule: TuningRule,
    start: u16,
    most: u16,
    scatter: Scatter,
    last: Option<Measurement>,
    /// The number that was found; none during a search.
    settled: Option<u16>,
    /// What it gave at first.
    level: Option<f64>,
    changed_count: u32,
    asked: u16,
    shortages: u32,
}

impl Tuner {
    /// One that has seen nothing.
    #[must_use]
    pub fn new(settings: &TuningSettings) -> Self {
        let search: Box<dyn Search> = match settings.rule {
            TuningRule::GoldenSection => Box::new(GoldenSection::new()),
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

    /// There are no more connections to be had than so many.
    pub fn limit(&mut self, connections: u16) {
        self.most = self.most.min(connections.max(1));
    }

    /// The most connections that there may be.
    #[must_use]
    pub fn most(&self) -> u16 {
        self.most
    }

    /// The number that was found; none during a search.
    #[must_use]
    pub fn settled(&self) -> Option<u16> {
        self.settled
    }

    /// The next step after what the last one gave.
    pub fn next(&mut self, measured: Measurement) -> Step {
        let asked = self.asked.min(self.most);
        if measured.connections < asked {
            self.shortages += 1;
            if self.shortages <= MOST_SHORTAGES {
                let why = format!("{} were to be had for now: again {asked}", count(measured.connections));
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
        // what comes next with the same number tells what that scatters; not while the path changes
        self.last = (step.decision != Decision::Restart && self.changed_count == 0).then_some(measured);
        if step.decision == Decision::Settle {
            (self.settled, self.level, self.changed_count) = (Some(step.connections), None, 0);
        }
        self.bounded(step)
    }

    /// Whether it differs from what the number that was found gave.
    fn is_changed(&self, measured: Measurement) -> bool {
        let tolerance = CHANGE.max(SCATTERS * self.scatter.share());
        self.level.is_some_and(|level| (measured.goodput_bytes_per_s - level).abs() > tolerance * level)
    }

    fn watch(&mut self, settled: u16, measured: Measurement) -> Step {
        let gave = measured.goodput_bytes_per_s;
        let level = *self.level.get_or_insert(gave);
        if !self.is_changed(measured) {
            self.changed_count = 0;
            // slowly: what is normal may drift
            self.level = Some(level + (gave - level) / 8.0);
            let why = format!("{}, as before", measured.words());
            return Step { connections: settled, decision: Decision::Watch, why };
        }
        self.changed_count += 1;
        let words = format!("{} where they gave {}", measured.words(), rate(level));
        if self.changed_count < LONG {
            return Step { connections: settled, decision: Decision::Watch, why: format!("{words}: by chance?") };
        }
        (self.settled, self.level, self.changed_count) = (None, None, 0);
        let from = if self.rule == TuningRule::Predicted { (settled / ANEW).max(1) } else { settled };
        let step = self.search.begin(from, self.most);
        let why = format!("{words} for long: again from {}", count(step.connections));
        Step { connections: step.connections, decision: Decision::Restart, why }
    }

    fn bounded(&mut self, step: Step) -> Step {
        self.asked = step.connections.clamp(1, self.most);
        Step { connections: self.asked, ..step }
    }
}
