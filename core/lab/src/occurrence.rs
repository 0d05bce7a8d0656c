//! When a fault is there, counted from the begin of the workload, and what it hit. Decides nothing.

use serde::{Deserialize, Serialize};

/// When a fault is there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct When {
    /// Number of the fault in the settings of the run; several parts of a world may make one fault.
    pub fault: usize,
    /// From the begin of the workload to that of the fault; none for a fault that is there from the start.
    pub at_ns: Option<i64>,
    /// How long it lasts; none for the rest of the run.
    pub for_ns: Option<i64>,
}

/// What a fault did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Hits {
    /// Number of the fault.
    pub fault: usize,
    /// When it began; none if it did not.
    pub began_ns: Option<i64>,
    /// When it was to end; none if it lasts for the rest of the run.
    pub ended_ns: Option<i64>,
    /// Packets, commands, logins or connections that it hit.
    pub count: u64,
    /// When it hit the first.
    pub from_ns: Option<i64>,
    /// When it hit the last.
    pub to_ns: Option<i64>,
}

/// A fault over time.
#[derive(Debug, Clone, Copy)]
pub struct Occurrence {
    when: When,
    hits: Hits,
}

impl Occurrence {
    /// A fault that has not hit anything.
    #[must_use]
    pub fn new(when: When) -> Self {
        let hits = Hits { fault: when.fault, began_ns: None, ended_ns: None, count: 0, from_ns: None, to_ns: None };
        Self { when, hits }
    }

    /// The workload begins; only the first call counts.
    pub fn workload_begins(&mut self, now_ns: i64) {
        if let (Some(at_ns), None) = (self.when.at_ns, self.hits.began_ns) {
            let began_ns = now_ns.saturating_add(at_ns);
            self.hits.began_ns = Some(began_ns);
            self.hits.ended_ns = self.when.for_ns.map(|for_ns| began_ns.saturating_add(for_ns));
        }
    }

    /// Whether it is there.
    #[must_use]
    pub fn covers(&self, now_ns: i64) -> bool {
        let has_begun = self.when.at_ns.is_none() || self.hits.began_ns.is_some_and(|began_ns| began_ns <= now_ns);
        has_begun && self.hits.ended_ns.is_none_or(|ended_ns| now_ns < ended_ns)
    }

    /// When it begins, once the workload has begun.
    #[must_use]
    pub fn began_ns(&self) -> Option<i64> {
        self.hits.began_ns
    }

    /// When it ends.
    #[must_use]
    pub fn ended_ns(&self) -> Option<i64> {
        self.hits.ended_ns
    }

    /// It hits something.
    pub fn hit(&mut self, now_ns: i64) {
        self.hits.count += 1;
        self.hits.from_ns.get_or_insert(now_ns);
        self.hits.to_ns = Some(now_ns);
    }

    /// What it has hit so far.
    #[must_use]
    pub fn hits(&self) -> Hits {
        self.hits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timed_fault_waits_for_the_workload_and_ends() {
        let mut fault = Occurrence::new(When { fault: 3, at_ns: Some(10), for_ns: Some(5) });
        assert!(!fault.covers(i64::MAX), "the workload has not begun");
        fault.workload_begins(100);
        fault.workload_begins(500);
        assert_eq!([109, 110, 114, 115].map(|now_ns| fault.covers(now_ns)), [false, true, true, false]);
        fault.hit(111);
        fault.hit(113);
        let hits = fault.hits();
        assert_eq!((hits.fault, hits.began_ns, hits.ended_ns), (3, Some(110), Some(115)));
        assert_eq!((hits.count, hits.from_ns, hits.to_ns), (2, Some(111), Some(113)));
    }

    #[test]
    fn a_fault_without_times_is_always_there() {
        let mut fault = Occurrence::new(When::default());
        assert!(fault.covers(i64::MIN) && fault.covers(i64::MAX));
        fault.workload_begins(7);
        assert_eq!((fault.began_ns(), fault.hits().count), (None, 0));
        let mut late = Occurrence::new(When { at_ns: Some(i64::MAX), for_ns: Some(1), ..When::default() });
        late.workload_begins(i64::MAX - 1);
        assert!(!late.covers(i64::MAX), "a time at the end of its type has no room for a fault");
    }
}
