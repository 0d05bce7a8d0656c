//! What a live pass no longer needs: rows that were handed over, and what its pipeline forgets.

use rustc_hash::FxHashSet;

use super::Live;
use crate::connection::TcpConnection;
use crate::connection::content::Content;
use crate::reader::CaptureInfo;
use crate::tables::Connections;

/// Maximum inputs whose metadata is kept: a ring has new files for months.
const INPUTS_MAX: usize = 64;

impl Live {
    /// Removes old rows, and returns the rows of connections that are no longer kept.
    pub(super) fn forget(&mut self, until_ns: i64) -> Connections {
        self.pipeline.close_silent(until_ns);
        let before_ns = until_ns.saturating_sub(self.settings.keep_ns);
        self.settle_over(before_ns);
        let Self { pipeline, ledger, .. } = self;
        let awaited = pipeline.awaited();
        let open_sessions: FxHashSet<u32> = pipeline.connected_sessions().collect();
        ledger.drop_before(&mut pipeline.context, before_ns, until_ns, &awaited, &open_sessions);
        let forgotten = pipeline.forget(before_ns);
        forgotten.connection.iter().for_each(|&connection| ledger.forget_connection(connection));
        ledger.forget_sessions(|session| pipeline.has_session(session));
        forgotten
    }

    /// The metadata of inputs that is no longer kept.
    pub(super) fn forget_inputs(&mut self) -> Vec<CaptureInfo> {
        self.sequence.as_mut().map(|sequence| sequence.forget_infos(INPUTS_MAX)).unwrap_or_default()
    }

    /// Settles the connections of sessions that were over before this time: nothing is in flight on any of them. They wait
    /// for packets that come late, but are no longer current, so intervals do not grow with them.
    fn settle_over(&mut self, before_ns: i64) {
        let is_over = |connection: &TcpConnection| match &connection.content {
            Content::Iscsi(iscsi) => connection.is_over(before_ns) && !iscsi.connection.has_open_tasks(),
            _ => false,
        };
        let session = |connection: &TcpConnection| match &connection.content {
            Content::Iscsi(iscsi) => iscsi.connection.session,
            _ => None,
        };
        let current = self.pipeline.connections().filter(|connection| !connection.is_settled);
        let under_way: FxHashSet<u32> = current.filter(|connection| !is_over(connection)).filter_map(session).collect();
        for connection in self.pipeline.slots.iter_mut().flatten() {
            let goes_on = || session(connection).is_some_and(|session| under_way.contains(&session));
            if !connection.is_settled && is_over(connection) && !goes_on() {
                connection.settle(&mut self.pipeline.context);
            }
        }
    }

    /// Number of rows held.
    pub fn row_count(&self) -> usize {
        self.pipeline.row_count()
    }
}
