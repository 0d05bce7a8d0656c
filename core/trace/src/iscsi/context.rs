//! What all connections of a pass share.

use super::session::SessionTable;
use crate::counters::Counters;
use crate::dynamics::timeline::Timeline;
use crate::tables::Tables;

/// What all connections share.
#[derive(Debug, Default)]
pub struct Context {
    /// The columns that come out.
    pub tables: Tables,
    /// The oddities.
    pub counters: Counters,
    /// The sessions.
    pub sessions: SessionTable,
    /// When each cycle ended, for the count of open tasks; `i64::MAX` while it has not.
    pub cycle_ends_ns: Vec<i64>,
    /// What the time budget has to know of each connection's TCP, when it is wanted.
    pub timelines: Vec<Timeline>,
    /// Cycles that ended since somebody looked, with status or aborted; none when nobody does.
    pub ended: Option<Vec<u32>>,
}

impl Context {
    /// A cycle ended by a status, or because its task was aborted.
    #[inline]
    pub(super) fn end_cycle(&mut self, cycle: u32, time_ns: i64) {
        if let Some(end_ns) = self.cycle_ends_ns.get_mut(cycle as usize) {
            *end_ns = time_ns;
        }
        if let Some(ended) = &mut self.ended {
            ended.push(cycle);
        }
    }
}
