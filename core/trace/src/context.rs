//! The state that all connections of a pass share.

use crate::conformance::digests;
use crate::counters::Counters;
use crate::iscsi::noted::Note;
use crate::iscsi::session::SessionTable;
use crate::senders::apart::Apart;
use crate::senders::timeline::Timeline;
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
    /// Wrong digests, by the names of initiator and target.
    pub digests: digests::Totals,
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
    /// Ends a cycle; `by` is a code of `cycles.ended_by`.
    #[inline]
    pub(crate) fn end_cycle(&mut self, cycle: CycleId, time_ns: i64, by: u8) {
        let row = self.tables.cycles.row(cycle);
        self.tables.cycles.end(row, time_ns, by);
        self.note_ended(cycle);
    }

    /// Notes that a cycle ended, if that is collected.
    #[inline]
    pub(crate) fn note_ended(&mut self, cycle: CycleId) {
        if let Some(ended) = &mut self.ended {
            ended.push(cycle);
        }
    }

    /// The commands leave whose flag is not set, with their R2Ts and the starts of their data.
    pub(crate) fn let_go(&mut self, is_kept: &[bool]) {
        let Tables { cycles, rounds, write_starts, .. } = &mut self.tables;
        let is_of_kept = |cycle: &u32| is_kept.get(cycles.row(CycleId::new(*cycle))) == Some(&true);
        let is_round_kept: Vec<bool> = rounds.cycle.iter().map(is_of_kept).collect();
        let is_start_kept: Vec<bool> = write_starts.cycle.iter().map(is_of_kept).collect();
        cycles.let_go(is_kept);
        rounds.let_go(&is_round_kept);
        write_starts.let_go(&is_start_kept);
    }

    /// Notes something of a stream, if notes are collected.
    #[inline]
    pub(crate) fn note(&mut self, note: impl FnOnce() -> Note) {
        if let Some(notes) = &mut self.notes {
            notes.push(note());
        }
    }
}
