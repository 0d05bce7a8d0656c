//! The incidents of a run: what is set, and how far each is.

use serde::{Deserialize, Serialize};

use crate::occurrence::{Hits, Occurrence, When};

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum IncidentKind {
    /// No system call is started.
    Pause,
    /// LOGICAL UNIT RESET.
    LogicalUnitReset,
    /// UNMAP commands, one after another.
    Unmap {
        /// First logical block.
        lba: u64,
        /// Logical blocks of each.
        blocks: u32,
        /// Number of commands.
        count: u32,
    },
    /// SendTargets in a discovery session, and a login through each portal in the answer that the workload does not use.
    Rescan,
    /// Logins of a second initiator with the name and ISID of the first session.
    DuplicateLogin {
        /// From one to the next, if that has ended.
        every_ns: i64,
    },
}

/// An incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IncidentSettings {
    /// What happens.
    pub kind: IncidentKind,
    /// When.
    pub when: When,
}

/// UNMAP commands that are not done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unmapping {
    pub(super) lba: u64,
    pub(super) blocks: u32,
    pub(super) left: u32,
    /// Initiator Task Tag of the one in flight.
    pub(super) tag: Option<u32>,
}

/// The incidents of a run.
#[derive(Debug)]
pub(super) struct Incidents {
    pub(super) all: Vec<(IncidentKind, Occurrence)>,
    pub(super) unmapping: Option<Unmapping>,
    pub(super) is_paused: bool,
}

impl Incidents {
    pub(super) fn new(settings: &[IncidentSettings]) -> Self {
        let all = settings.iter().map(|incident| (incident.kind, Occurrence::new(incident.when))).collect();
        Self { all, unmapping: None, is_paused: false }
    }

    pub(super) fn hits(&self) -> impl Iterator<Item = Hits> {
        self.all.iter().map(|(_, occurrence)| occurrence.hits())
    }
}
