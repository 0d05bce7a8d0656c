//! The rows of `violations`: the first violations of each rule on a connection, and how many more there were.

use serde::{Deserialize, Serialize};

use super::rules::{Rule, Side};
use crate::counters::{Counter, Counters};
use crate::stream::stamp::Stamp;
use crate::tables::{Columns, CycleId, Id, NULL_U32, NULL_U64, Violation, Violations};

/// Rows of one rule and side on a connection; further violations are counted in the last one.
const ROWS_MAX: u32 = 16;
/// Rows of all connections; further violations are counted where their connection has a row.
const ALL_ROWS_MAX: usize = 1 << 18;

/// A violation.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The rule.
    pub rule: Rule,
    /// Who broke it.
    pub side: Side,
    /// The packet that shows it.
    pub at: Stamp,
    /// Its command.
    pub task: Option<(u32, CycleId)>,
    /// What was expected.
    pub expected: Option<u64>,
    /// What was seen.
    pub seen: Option<u64>,
}

impl Found {
    /// One without more details.
    pub fn new(rule: Rule, side: Side, at: Stamp) -> Self {
        Self { rule, side, at, task: None, expected: None, seen: None }
    }

    /// What was seen, and what was expected.
    pub fn seen(self, seen: impl Into<u64>, expected: impl Into<u64>) -> Self {
        Self { seen: Some(seen.into()), expected: Some(expected.into()), ..self }
    }

    /// What was seen.
    pub fn only_seen(self, seen: impl Into<u64>) -> Self {
        Self { seen: Some(seen.into()), ..self }
    }

    /// Of a command.
    pub fn of(self, tag: u32, cycle: CycleId) -> Self {
        Self { task: Some((tag, cycle)), ..self }
    }
}

/// What a connection reported of one rule and side.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Reported {
    rule: Rule,
    side: Side,
    rows: u32,
    last: Id<Violations>,
}

/// What a connection reported.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Report {
    reported: Vec<Reported>,
}

impl Report {
    /// Whether a side broke any rule.
    pub fn has_accused(&self, side: Side) -> bool {
        self.reported.iter().any(|reported| reported.side == side)
    }

    /// Adds a violation.
    #[cold]
    pub fn add(&mut self, found: Found, connection: u32, violations: &mut Violations, counters: &mut Counters) {
        let Found { rule, side, at, task, expected, seen } = found;
        let is_full = violations.row_count() >= ALL_ROWS_MAX;
        let same = self.reported.iter_mut().find(|reported| (reported.rule, reported.side) == (rule, side));
        if let Some(reported) = &same
            && (is_full || reported.rows >= ROWS_MAX)
            && violations.has(reported.last)
        {
            let row = violations.row(reported.last);
            violations.count[row] += 1;
            // out of order, a packet may be read after later ones
            if at.frame >= violations.last_frame[row] {
                (violations.last_frame[row], violations.last_time_ns[row]) = (at.frame, at.time_ns);
            }
            return;
        }
        if is_full {
            counters.add(Counter::ViolationsNotListed, Some(connection), at.frame);
            return;
        }
        let last = violations.next_id();
        match same {
            Some(reported) => (reported.rows, reported.last) = (reported.rows + 1, last),
            None => self.reported.push(Reported { rule, side, rows: 1, last }),
        }
        let (initiator_task_tag, cycle) = task.map_or((NULL_U32, NULL_U32), |(tag, cycle)| (tag, cycle.number()));
        violations.push(Violation {
            rule: rule as u8,
            side: side as u8,
            connection,
            cycle,
            initiator_task_tag,
            time_ns: at.time_ns,
            frame: at.frame,
            last_time_ns: at.time_ns,
            last_frame: at.frame,
            expected: expected.unwrap_or(NULL_U64),
            seen: seen.unwrap_or(NULL_U64),
            count: 1,
        });
    }
}
