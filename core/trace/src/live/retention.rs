//! Removal of old rows from a live pass: rows that were handed over, exchanges, connections that are over or closed.

use rustc_hash::FxHashSet;

use super::Live;
use crate::connection::TcpConnection;
use crate::connection::content::Content;
use crate::counters::Counter;
use crate::reader::CaptureInfo;
use crate::tables::{Columns, Connections, NULL_NS, NULL_U32, Tables};

/// A closed connection is kept for this time.
const CLOSED_NS: i64 = 120_000_000_000;
/// A quiet connection is closed after this time,
const QUIET_NS: i64 = 600_000_000_000;
/// and a quiet iSCSI connection after this.
const QUIET_ISCSI_NS: i64 = 86_400_000_000_000;
/// Maximum rows of closed connections.
const CLOSED_ROWS_MAX: usize = 1024;
/// Maximum inputs whose metadata is kept: a ring has new files for months.
const INPUTS_MAX: usize = 64;
/// Maximum runs of command numbers per session.
const RUNS_MAX: usize = 1 << 12;

impl Live {
    /// Removes old rows, and returns the rows of connections that are no longer kept.
    pub(super) fn forget(&mut self, until_ns: i64) -> Connections {
        self.close_silent(until_ns);
        let before_ns = until_ns.saturating_sub(self.settings.keep_ns);
        self.settle_over(before_ns);
        let awaited = self.pipeline.awaited();
        let open_sessions: FxHashSet<u32> = self.pipeline.connected_sessions().collect();
        let context = &mut self.pipeline.context;
        self.ledger.drop_before(context, before_ns, until_ns, &awaited, &open_sessions);
        let tables = &mut context.tables;
        drop_old(&mut tables.task_management, before_ns, |table| &table.request_ns);
        drop_old(&mut tables.nops, before_ns, |table| &table.request_ns);
        drop_old(&mut tables.texts, before_ns, |table| &table.request_ns);
        drop_old(&mut tables.logouts, before_ns, |table| &table.request_ns);
        drop_old(&mut tables.logins, before_ns, |table| &table.request_ns);
        drop_old(&mut tables.rejects, before_ns, |table| &table.time_ns);
        drop_old(&mut tables.asyncs, before_ns, |table| &table.time_ns);
        drop_old(&mut tables.snacks, before_ns, |table| &table.time_ns);
        drop_old(&mut tables.icmp_errors, before_ns, |table| &table.time_ns);
        // rows of closed connections
        (tables.senders, tables.recoveries, tables.retransmissions) = Default::default();
        context.timelines.clear();
        context.sessions.states.iter_mut().for_each(|state| state.commands.forget(RUNS_MAX));
        for connection in self.pipeline.slots.iter_mut().flatten() {
            if let Some(dynamics) = connection.analysis.here_mut() {
                dynamics.forget(before_ns);
            }
            if let Content::Iscsi(iscsi) = &mut connection.content {
                iscsi.connection.forget(&self.pipeline.context.tables);
            }
        }
        self.forget_closed()
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

    /// Closes connections that ended, or have been quiet for long.
    fn close_silent(&mut self, until_ns: i64) {
        let silent: Vec<u32> = (0..)
            .zip(&self.pipeline.slots)
            .filter_map(|(slot, connection)| connection.as_ref().map(|connection| (slot, connection)))
            .filter(|(_, connection)| {
                let patience_ns = match connection.content {
                    _ if connection.has_fin() || connection.has_rst() => CLOSED_NS,
                    Content::Iscsi(_) => QUIET_ISCSI_NS,
                    _ => QUIET_NS,
                };
                connection.time_last_ns < until_ns.saturating_sub(patience_ns)
            })
            .map(|(slot, _)| slot)
            .collect();
        silent.into_iter().for_each(|slot| self.pipeline.close(slot));
    }

    /// The oldest rows of closed connections beyond the limit.
    fn forget_closed(&mut self) -> Connections {
        let mut forgotten = Connections::default();
        let count = self.pipeline.rows.row_count().saturating_sub(CLOSED_ROWS_MAX);
        forgotten.copy_rows(&self.pipeline.rows, &(0..count).collect::<Vec<_>>());
        self.pipeline.rows.drop_first(count);
        self.pipeline.forget_rows();
        forgotten.connection.iter().for_each(|&connection| self.ledger.forget_connection(connection));
        if count > 0 {
            let kept: FxHashSet<u32> = self
                .pipeline
                .connections()
                .map(|connection| connection.number)
                .chain(self.pipeline.rows.connection.iter().copied())
                .collect();
            self.pipeline.context.counters.forget_connections(|connection| kept.contains(&connection));
            // in order of connections
            let numbers: FxHashSet<u32> = forgotten.connection.iter().copied().collect();
            let parameters = &mut self.pipeline.context.tables.parameters;
            let is_kept: Vec<bool> =
                parameters.connection.iter().map(|connection| !numbers.contains(connection)).collect();
            parameters.retain(&is_kept);
            self.name_sessions(&mut forgotten.session);
            self.forget_sessions(&mut forgotten);
        }
        forgotten
    }

    /// Removes sessions without connections or rows, and counts their missing commands.
    fn forget_sessions(&mut self, forgotten: &mut Connections) {
        let mut is_kept = vec![false; self.pipeline.context.sessions.states.len()];
        let of_connections = self.pipeline.connected_sessions();
        let context = &self.pipeline.context;
        let of_rows = self.pipeline.rows.session.iter().copied();
        let used = of_connections.chain(of_rows).chain(context.tables.cycles.session.iter().copied());
        used.for_each(|session| {
            if let Some(is_kept) = is_kept.get_mut(session as usize) {
                *is_kept = true;
            }
        });
        if is_kept.iter().all(|&is_kept| is_kept) {
            return;
        }
        let context = &mut self.pipeline.context;
        for (state, _) in context.sessions.states.iter().zip(&is_kept).filter(|(_, is_kept)| !**is_kept) {
            let commands = state.commands.missing();
            let pdus = state.totals.missing_with_commands(commands);
            context.counters.add_many(Counter::CommandMissing, None, 0, commands);
            if let Some(row) = forgotten.connection.iter().position(|&number| number == state.first_connection) {
                forgotten.missing_pdu_count_to_target[row] += commands + pdus[0];
                forgotten.missing_pdu_count_to_initiator[row] += pdus[1];
            }
        }
        let places = context.sessions.retain(&is_kept);
        let place = |session: u32| places.get(session as usize).copied().flatten();
        let cycles = context.tables.cycles.session.iter_mut();
        let parameters = context.tables.parameters.session.iter_mut();
        let rows = self.pipeline.rows.session.iter_mut();
        for session in cycles.chain(parameters).chain(rows) {
            *session = place(*session).unwrap_or(NULL_U32);
        }
        for connection in self.pipeline.slots.iter_mut().flatten() {
            if let Content::Iscsi(iscsi) = &mut connection.content {
                iscsi.connection.session = iscsi.connection.session.and_then(place);
            }
        }
        self.ledger.place_sessions(place);
        let numbers: FxHashSet<u32> = self.pipeline.context.sessions.rows.session.iter().copied().collect();
        self.taken_over.retain(|number, _| numbers.contains(number));
    }

    /// Replaces session indexes by session numbers.
    pub(super) fn name_sessions(&self, places: &mut [u32]) {
        let numbers = &self.pipeline.context.sessions.rows.session;
        for place in places {
            *place = numbers.get(*place as usize).copied().unwrap_or(NULL_U32);
        }
    }

    /// Number of rows held.
    pub fn row_count(&self) -> usize {
        let Tables { cycles, rounds, nops, logins, task_management, texts, logouts, .. } =
            &self.pipeline.context.tables;
        let dynamics: usize =
            self.pipeline.connections().filter_map(|connection| Some(connection.analysis.here()?.row_count())).sum();
        cycles.row_count()
            + rounds.row_count()
            + nops.row_count()
            + logins.row_count()
            + task_management.row_count()
            + texts.row_count()
            + logouts.row_count()
            + self.pipeline.rows.row_count()
            + dynamics
    }
}

/// Removes the first rows of a table that are old or have no time.
fn drop_old<T: FirstRows>(table: &mut T, before_ns: i64, time_ns: impl Fn(&T) -> &Vec<i64>) {
    let is_old = |&&time_ns: &&i64| time_ns < before_ns || time_ns == NULL_NS;
    let count = time_ns(table).iter().take_while(is_old).count();
    table.drop_first_rows(count);
}

/// A table whose first rows can be removed.
trait FirstRows {
    fn drop_first_rows(&mut self, count: usize);
}

macro_rules! first_rows {
    ($($table:ident)*) => { $(
        impl FirstRows for crate::tables::$table {
            fn drop_first_rows(&mut self, count: usize) {
                self.drop_first(count);
            }
        }
    )* };
}
first_rows!(TaskManagements Nops Texts Logouts Logins Rejects Asyncs Snacks IcmpErrors);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::{Reject, Rejects};

    #[test]
    fn the_first_rows_that_are_old_or_have_no_time_are_removed() {
        let rows = [5, NULL_NS, 9, 10, 3].map(|time_ns| Reject { time_ns, ..Reject::default() });
        let mut table = Rejects::of(rows);
        for _ in 0..2 {
            drop_old(&mut table, 10, |table| &table.time_ns);
            assert_eq!(table.time_ns, [10, 3]);
        }
    }
}
