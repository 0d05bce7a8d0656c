//! The number by a model: goodput adds up until the path is full, so the number needed is path / one connection.
//!
//! ```text
//! one       goodput of one connection: its window per RTT, or its commands one after another
//! grow      times 4, until goodput no longer grows in proportion: then the path is full;
//!           skipped if the rate of the path is known
//! confirm   the model's number, and a neighbour: the better of them
//! ```
//!
//! Commands of unequal length leave the path idle at times, even if the number fills it on average. So the number is
//! multiplied by [`MARGIN`].

use super::scatter::Scatter;
use super::search::Search;
use super::step::{Measurement, Step, count, rate};

/// Factor over the number that fills the path on average.
const MARGIN: f64 = 1.15;
/// Share of proportional goodput below which the path is full.
const IN_PROPORTION: f64 = 0.85;
const GROWTH: u16 = 4;
/// Factor of a neighbour.
const NEIGHBOUR: f64 = 1.25;
/// Share of the path's highest goodput that counts as full.
const FULL: f64 = 0.98;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    One,
    Grow,
    Confirm,
    Neighbour,
    Settled,
}

/// The search.
#[derive(Debug)]
pub(super) struct Predicted {
    phase: Phase,
    line_bytes_per_s: Option<f64>,
    /// Goodput per connection beside others.
    each_bytes_per_s: f64,
    /// Highest goodput of the path.
    path_bytes_per_s: f64,
    measured: Vec<Measurement>,
}

impl Predicted {
    pub(super) fn new(line_bytes_per_s: Option<f64>) -> Self {
        Self { phase: Phase::One, line_bytes_per_s, each_bytes_per_s: 0.0, path_bytes_per_s: 0.0, measured: Vec::new() }
    }

    /// The model's number.
    fn number(&self, most: u16) -> u16 {
        let needed = (MARGIN * self.path_bytes_per_s / self.each_bytes_per_s).ceil();
        if needed.is_finite() { (needed as u16).clamp(1, most) } else { most }
    }

    /// Measures the model's number, or ends when it was measured already.
    fn confirm(&mut self, most: u16, scatter: &Scatter, why: &str) -> Step {
        let number = self.number(most);
        let why = format!("{why}; the model predicts {}", count(number));
        self.phase = Phase::Confirm;
        match self.of(number) {
            Some(known) => self.neighbour(known, most, scatter),
            None => Step::probe(number, why),
        }
    }

    /// More if the path is not full, else fewer.
    fn neighbour(&mut self, known: Measurement, most: u16, scatter: &Scatter) -> Step {
        self.phase = Phase::Neighbour;
        let now = f64::from(known.connections);
        let full = self.path_bytes_per_s.max(self.line_bytes_per_s.unwrap_or(0.0));
        let is_full = known.goodput_bytes_per_s >= FULL * full;
        let next = if is_full { now / NEIGHBOUR } else { now * NEIGHBOUR }.round() as u16;
        let next = next.clamp(1, most);
        if self.of(next).is_some() {
            return self.settle(scatter);
        }
        let what = if is_full { "fewer may be enough" } else { "a few more may be faster" };
        Step::probe(next, format!("{}; {what}", known.words()))
    }

    fn settle(&mut self, scatter: &Scatter) -> Step {
        self.phase = Phase::Settled;
        let best = self.measured.iter().map(|measured| measured.goodput_bytes_per_s).fold(0.0, f64::max);
        let is_best = |measured: &&Measurement| !scatter.is_more(best, measured.goodput_bytes_per_s);
        let fewest = self.measured.iter().filter(is_best).min_by_key(|measured| measured.connections);
        let Some(found) = fewest.copied() else { return Step::settle(1, "nothing was measured".to_owned()) };
        let share = 100.0 * scatter.share();
        Step::settle(found.connections, format!("{}; none was {share:.1} % faster", found.words()))
    }

    fn of(&self, connections: u16) -> Option<Measurement> {
        self.measured.iter().find(|measured| measured.connections == connections).copied()
    }

    fn note(&mut self, measured: Measurement) {
        self.measured.retain(|known| known.connections != measured.connections);
        self.measured.push(measured);
        self.path_bytes_per_s = self.path_bytes_per_s.max(measured.goodput_bytes_per_s);
    }
}

impl Search for Predicted {
    fn begin(&mut self, from: u16, most: u16) -> Step {
        *self = Self::new(self.line_bytes_per_s);
        let first = from.clamp(1, most);
        Step::probe(first, format!("{}, to measure the goodput of each", count(first)))
    }

    fn next(&mut self, measured: Measurement, most: u16, scatter: &Scatter) -> Step {
        let now = measured.connections;
        self.note(measured);
        let each = measured.goodput_bytes_per_s / f64::from(now.max(1));
        match self.phase {
            Phase::One | Phase::Grow => {
                let is_first = self.phase == Phase::One;
                if is_first {
                    self.each_bytes_per_s = each;
                }
                if let Some(line) = self.line_bytes_per_s.filter(|_| is_first) {
                    self.path_bytes_per_s = line;
                    return self.confirm(
                        most,
                        scatter,
                        &format!("{}; the rate of the path is {}", measured.words(), rate(line)),
                    );
                }
                if each < IN_PROPORTION * self.each_bytes_per_s {
                    let alone = rate(self.each_bytes_per_s);
                    let why = format!("{}; less than {alone} each", measured.words());
                    return self.confirm(most, scatter, &why);
                }
                self.each_bytes_per_s = each;
                if now >= most {
                    self.phase = Phase::Settled;
                    let why = format!("{}, {} each; this is the limit of connections", measured.words(), rate(each));
                    return Step::settle(now, why);
                }
                self.phase = Phase::Grow;
                let next = now.saturating_mul(GROWTH).min(most);
                Step::probe(next, format!("{}, {} each; more connections add up", measured.words(), rate(each)))
            }
            Phase::Confirm => self.neighbour(measured, most, scatter),
            Phase::Neighbour | Phase::Settled => self.settle(scatter),
        }
    }
}
