//! Faults of simulated hosts: connections that are reset, a network card that is down.

use serde::{Deserialize, Serialize};

use crate::occurrence::{Hits, Occurrence, When};

/// What happens to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostFaultKind {
    /// It resets its connections when the fault begins.
    Reset,
    /// Its network card is down: nothing leaves, nothing arrives, and a capture there shows neither.
    CardDown,
}

/// A fault of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFaultSettings {
    /// What happens.
    pub kind: HostFaultKind,
    /// The target by its number; none for the initiator.
    #[serde(default)]
    pub target: Option<usize>,
    /// When it is there.
    pub when: When,
}

/// The faults of all hosts.
#[derive(Debug)]
pub(super) struct HostFaults {
    faults: Vec<(HostFaultSettings, Occurrence)>,
}

impl HostFaults {
    pub fn new(settings: &[HostFaultSettings]) -> Self {
        Self { faults: settings.iter().map(|fault| (*fault, Occurrence::new(fault.when))).collect() }
    }

    pub fn workload_begins(&mut self, now_ns: i64) {
        self.faults.iter_mut().for_each(|(_, occurrence)| occurrence.workload_begins(now_ns));
    }

    /// When the next reset is due.
    pub fn next_ns(&self) -> Option<i64> {
        self.resets().filter_map(|(_, occurrence)| occurrence.began_ns()).min()
    }

    fn resets(&self) -> impl Iterator<Item = &(HostFaultSettings, Occurrence)> {
        self.faults
            .iter()
            .filter(|(fault, occurrence)| fault.kind == HostFaultKind::Reset && occurrence.hits().count == 0)
    }

    /// The next host whose connections are to be reset by now: a target by its number, or the initiator.
    pub fn poll_reset(&mut self, now_ns: i64) -> Option<Option<usize>> {
        let is_due = |(fault, occurrence): &&mut (HostFaultSettings, Occurrence)| {
            let is_new = fault.kind == HostFaultKind::Reset && occurrence.hits().count == 0;
            is_new && occurrence.began_ns().is_some_and(|began_ns| began_ns <= now_ns)
        };
        let (fault, occurrence) = self.faults.iter_mut().find(is_due)?;
        occurrence.hit(now_ns);
        Some(fault.target)
    }

    /// Whether a packet of a host is lost because its card is down.
    pub fn drops(&mut self, now_ns: i64, target: Option<usize>) -> bool {
        let is_meant = |fault: &HostFaultSettings| fault.kind == HostFaultKind::CardDown && fault.target == target;
        let down = self.faults.iter_mut().find(|(fault, occurrence)| is_meant(fault) && occurrence.covers(now_ns));
        down.is_some_and(|(_, occurrence)| {
            occurrence.hit(now_ns);
            true
        })
    }

    pub fn hits(&self) -> impl Iterator<Item = Hits> {
        self.faults.iter().map(|(_, occurrence)| occurrence.hits())
    }
}
