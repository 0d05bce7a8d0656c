//! How far a pass has read each session, and which rows may still change.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Pipeline;
use crate::connection::content::Content;
use crate::tables::CycleId;

impl Pipeline {
    /// The time up to which each session was read, if before `until_ns`. Bytes behind a hole, or an
    /// incomplete PDU, hold a session back no longer than the horizon.
    pub(crate) fn reached(&self, until_ns: i64, horizon_ns: i64) -> FxHashMap<u32, i64> {
        let mut reached = FxHashMap::default();
        for connection in self.connections() {
            let Content::Iscsi(iscsi) = &connection.content else { continue };
            let Some(session) = iscsi.connection.session else { continue };
            let held = connection.halves.iter().filter_map(|half| half.reassembly.held_since_ns());
            let unread = iscsi.framers.iter().filter_map(|framer| framer.unread_since_ns());
            let waiting = connection.capture_order.waiting_since_ns();
            if let Some(since_ns) = held.chain(unread).chain(waiting).min().filter(|&since_ns| since_ns <= until_ns) {
                let so_far_ns = since_ns.saturating_sub(1).max(until_ns.saturating_sub(horizon_ns));
                let least_ns = reached.entry(session).or_insert(so_far_ns);
                *least_ns = so_far_ns.min(*least_ns);
            }
        }
        reached
    }

    /// Commands whose rows may still change.
    pub(crate) fn awaited(&self) -> FxHashSet<CycleId> {
        let connections = self.connections().filter_map(|connection| match &connection.content {
            Content::Iscsi(iscsi) => Some(&iscsi.connection),
            _ => None,
        });
        connections.flat_map(|connection| connection.awaited_cycles()).collect()
    }

    /// The sessions of the open connections.
    pub(crate) fn connected_sessions(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections().filter_map(|connection| match &connection.content {
            Content::Iscsi(iscsi) => iscsi.connection.session,
            _ => None,
        })
    }
}
