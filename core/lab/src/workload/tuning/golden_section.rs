//! Golden section search: increases the number of connections until goodput no longer grows, then narrows the interval
//! around the peak.
//!
//! ```text
//! goodput            x   x                 begin   twice, to measure the scatter
//!              x       .    x              climb   times 1.618, or down where that is not better
//!         x    |       |    |              narrow  two numbers within, at the golden section; the interval beyond
//!      x       low          high                   the worse of them is dropped
//! ```
//!
//! Differences below the scatter do not count: of equal results the fewer connections win. Once more connections were
//! better, fewer are never tried again.
//!
//! The plain search has neither rule, as in textbooks: it measures the first number once, doubles it, and the larger of
//! two measurements wins, however small the difference.

use std::collections::BTreeMap;

use super::scatter::Scatter;
use super::search::Search;
use super::step::{Measurement, Step, count, rate};

/// Factor of a step up or down.
const RATIO: f64 = 1.618_033_988_749_895;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// First measurement of the first number.
    Begin,
    /// Second measurement of the first number.
    Again,
    Up,
    Down,
    /// Between `low`, which was worse than a larger number, and `high`.
    Narrow,
    Settled,
}

/// The search.
#[derive(Debug)]
pub(super) struct GoldenSection {
    is_plain: bool,
    phase: Phase,
    start: u16,
    low: u16,
    high: u16,
    /// Goodput of each number; the mean of several measurements.
    known: BTreeMap<u16, (f64, u32)>,
}

impl GoldenSection {
    pub(super) fn new(is_plain: bool) -> Self {
        Self { is_plain, phase: Phase::Begin, start: 1, low: 1, high: 1, known: BTreeMap::new() }
    }

    /// Whether the first goodput counts as larger.
    fn is_more(&self, scatter: &Scatter, first: f64, second: f64) -> bool {
        if self.is_plain { first > second } else { scatter.is_more(first, second) }
    }

    fn of(&self, connections: u16) -> f64 {
        self.known.get(&connections).map_or(0.0, |known| known.0)
    }

    fn note(&mut self, measured: Measurement) {
        let known = self.known.entry(measured.connections).or_insert((0.0, 0));
        known.1 += 1;
        known.0 += (measured.goodput_bytes_per_s - known.0) / f64::from(known.1);
    }

    /// The measured number right below another.
    fn below(&self, connections: u16) -> Option<u16> {
        self.known.range(..connections).next_back().map(|(below, _)| *below)
    }

    /// The measured number right above another.
    fn above(&self, connections: u16) -> Option<u16> {
        self.known.range(connections + 1..).next().map(|(above, _)| *above)
    }

    fn climb(&mut self, now: u16, most: u16, scatter: &Scatter) -> Step {
        let before = self.below(now);
        if let Some(before) = before
            && !self.is_more(scatter, self.of(now), self.of(before))
        {
            if before == self.start && self.start > 1 {
                self.phase = Phase::Down;
                self.high = now;
                let next = down(before);
                let why = format!("{}; fewer may be enough", self.no_more(now, before, scatter));
                return Step::probe(next, why);
            }
            self.low = self.below(before).unwrap_or(before);
            self.high = now;
            let (low, high) = (self.low, self.high);
            let why = format!("{}; the best number is between {low} and {high}", self.no_more(now, before, scatter));
            return self.narrow(most, scatter, &why);
        }
        if now >= most && before.is_none() && now > 1 {
            self.phase = Phase::Down;
            self.high = now;
            return Step::probe(down(now), format!("{} is the limit; fewer may be enough", count(now)));
        }
        if now >= most {
            self.low = before.unwrap_or(now);
            self.high = now;
            let why = format!("{} is the limit", count(now));
            return self.narrow(most, scatter, &why);
        }
        let next = if self.is_plain { now.saturating_mul(2).min(most) } else { up(now, most) };
        let why = match before {
            Some(before) => {
                format!("{now}: {}, {before}: {}; more may be faster", self.rate(now), self.rate(before))
            }
            None => format!("{}: {}; more may be faster", count(now), self.rate(now)),
        };
        self.phase = Phase::Up;
        Step::probe(next, why)
    }

    fn descend(&mut self, now: u16, most: u16, scatter: &Scatter) -> Step {
        let above = self.above(now).unwrap_or(now);
        if self.is_more(scatter, self.of(above), self.of(now)) {
            self.low = now;
            let (low, high) = (self.low, self.high);
            let gave = self.rate(now);
            let why = format!("{} is slower, {gave}; the best number is between {low} and {high}", count(now));
            return self.narrow(most, scatter, &why);
        }
        self.high = above;
        if now == 1 {
            self.low = 1;
            let why = format!("1 connection is as fast: {}", self.rate(1));
            return self.narrow(most, scatter, &why);
        }
        let why = format!("{} is as fast: {}; fewer may be enough", count(now), self.rate(now));
        Step::probe(down(now), why)
    }

    /// The next number within, or the best one when none is left between.
    fn narrow(&mut self, most: u16, scatter: &Scatter, why: &str) -> Step {
        self.phase = Phase::Narrow;
        self.high = self.high.min(most);
        self.low = self.low.min(self.high);
        loop {
            let (low, high) = (self.low, self.high);
            // goodput of neighbouring numbers differs by less than the scatter
            if high - low <= 2.max(high / 16) {
                return self.settle(scatter);
            }
            let width = f64::from(high - low) / RATIO;
            let (first, second) = (high - width.round() as u16, low + width.round() as u16);
            let (first, second) = (first.clamp(low + 1, high - 2), second.clamp(low + 2, high - 1));
            let second = second.max(first + 1);
            for next in [first, second] {
                if !self.known.contains_key(&next) {
                    return Step::probe(next, why.to_owned());
                }
            }
            if self.is_more(scatter, self.of(second), self.of(first)) {
                self.low = first;
            } else {
                self.high = second;
            }
        }
    }

    fn settle(&mut self, scatter: &Scatter) -> Step {
        self.phase = Phase::Settled;
        let within = || self.known.range(self.low..=self.high);
        let best = within().map(|(_, known)| known.0).fold(0.0, f64::max);
        let fewest =
            within().find(|(_, known)| !self.is_more(scatter, best, known.0)).map_or(self.high, |(found, _)| *found);
        let share = if self.is_plain { 0.0 } else { 100.0 * scatter.share() };
        let why = format!("{}: {}; none was {share:.1} % faster", count(fewest), self.rate(fewest));
        Step::settle(fewest, why)
    }

    fn rate(&self, connections: u16) -> String {
        rate(self.of(connections))
    }

    fn no_more(&self, now: u16, before: u16, scatter: &Scatter) -> String {
        let share = if self.is_plain { 0.0 } else { 100.0 * scatter.share() };
        let (gave, others) = (self.rate(now), self.rate(before));
        format!("{now}: {gave}, {before}: {others}; the difference is within the scatter ({share:.1} %)")
    }
}

impl Search for GoldenSection {
    fn begin(&mut self, from: u16, most: u16) -> Step {
        *self = Self::new(self.is_plain);
        self.start = from.clamp(1, most);
        Step::probe(self.start, format!("start with {}", count(self.start)))
    }

    fn next(&mut self, measured: Measurement, most: u16, scatter: &Scatter) -> Step {
        let now = measured.connections;
        self.note(measured);
        match self.phase {
            Phase::Begin if self.is_plain => {
                self.start = now;
                self.climb(now, most, scatter)
            }
            Phase::Begin => {
                self.phase = Phase::Again;
                self.start = now;
                Step::repeat(now, format!("{}; once more, to measure the scatter", measured.words()))
            }
            Phase::Again | Phase::Up => self.climb(now, most, scatter),
            Phase::Down => self.descend(now, most, scatter),
            Phase::Narrow => {
                let why = format!("{}; the best number is between {} and {}", measured.words(), self.low, self.high);
                self.narrow(most, scatter, &why)
            }
            Phase::Settled => self.settle(scatter),
        }
    }
}

fn up(connections: u16, most: u16) -> u16 {
    ((f64::from(connections) * RATIO).round() as u16).max(connections + 1).min(most)
}

fn down(connections: u16) -> u16 {
    ((f64::from(connections) / RATIO).round() as u16).min(connections - 1).max(1)
}
