//! The state that all connections of a pass share.

use crate::counters::Counters;
use crate::dynamics::apart::Apart;
use crate::dynamics::timeline::Timeline;
use crate::iscsi::noted::Note;
use crate::iscsi::session::SessionTable;
use crate::tables::{CycleId, Tables};
use serde::{Deserialize, Serialize};

/// Tables, counters and sessions of a pass.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Context {
    /// The tables.
    pub tables: Tables,
    /// The counters.
    pub counters: Counters,
    /// The sessions.
    pub sessions: SessionTable,
    /// When each cycle ended, for the queue depth; `i64::MAX` while it is open.
    pub cycle_ends_ns: Vec<i64>,
    /// Input of the time breakdown from each connection's TCP, if wanted.
    pub timelines: Vec<Timeline>,
    /// The thread that analyses the senders, if there is one.
    #[serde(skip)]
    pub apart: Apart,
    /// Cycles that ended since the last look, with a status or without; none if they are not collected.
    pub ended: Option<Vec<CycleId>>,
    /// Notes since the last look; none if they are not collected.
    #[serde(skip)]
    pub notes: Option<Vec<Note>>,
}

impl Context {
    /// Ends a cycle by its status, or because its command was aborted, or its connection closed.
    #[inline]
    pub(crate) fn end_cycle(&mut self, cycle: CycleId, time_ns: i64) {
        if let Some(end_ns) = self.cycle_ends_ns.get_mut(self.tables.cycles.row(cycle)) {
            *end_ns = time_ns;
        }
        if let Some(ended) = &mut self.ended {
            ended.push(cycle);
        }
    }

    /// Notes something of a stream, if notes are collected.
    #[inline]
    pub(crate) fn note(&mut self, note: impl FnOnce() -> Note) {
        if let Some(notes) = &mut self.notes {
            notes.push(note());
        }
    }
}
