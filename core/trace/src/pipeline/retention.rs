//! What a pass without an end forgets: old exchanges, closed connections, sessions without either. Rows of commands leave
//! before, when those who want them have them.

use rustc_hash::FxHashSet;

use super::Pipeline;
use crate::connection::content::Content;
use crate::counters::Counter;
use crate::tables::{Columns, Connections, Id, Tables, old_rows};

/// A closed connection is kept for this time.
const CLOSED_NS: i64 = 120_000_000_000;
/// A quiet connection is closed after this time,
const QUIET_NS: i64 = 600_000_000_000;
/// and a quiet iSCSI connection after this.
const QUIET_ISCSI_NS: i64 = 86_400_000_000_000;
/// Maximum rows of closed connections.
const CLOSED_ROWS_MAX: usize = 1024;
/// Maximum runs of command numbers per session.
const RUNS_MAX: usize = 1 << 12;

impl Pipeline {
    /// Forgets exchanges from before `before_ns`, and the first rows of closed connections, which are returned.
    pub fn forget(&mut self, before_ns: i64) -> Connections {
        let Self { context, slots, .. } = self;
        let tables = &mut context.tables;
        tables.take_exchanges(before_ns, None, &mut Tables::default());
        tables.icmp_errors.drop_first(old_rows(&tables.icmp_errors.time_ns, before_ns));
        // rows of closed connections
        tables.clear_senders();
        context.timelines.clear();
        context.sessions.states.iter_mut().for_each(|state| state.commands.forget(RUNS_MAX));
        for connection in slots.iter_mut().flatten() {
            if let Some(senders) = connection.analysis.here_mut() {
                senders.forget(before_ns);
            }
        }
        self.forget_left();
        self.forget_closed()
    }

    /// Forgets the commands that have ended, and whose task has.
    pub fn forget_ended(&mut self) {
        let cycles = &self.context.tables.cycles;
        let mut is_kept: Vec<bool> = (0..cycles.row_count()).map(|row| cycles.is_in_flight(row)).collect();
        for connection in self.connections() {
            let Content::Iscsi(iscsi) = &connection.content else { continue };
            iscsi.connection.task_cycles().for_each(|cycle| is_kept[cycles.row(cycle)] = true);
        }
        self.context.let_go(&is_kept);
        self.forget_left();
    }

    /// Rows left the tables: what is under way of them is dropped.
    pub(crate) fn forget_left(&mut self) {
        let Self { context, slots, .. } = self;
        for connection in slots.iter_mut().flatten() {
            if let Content::Iscsi(iscsi) = &mut connection.content {
                iscsi.connection.forget(&context.tables);
            }
        }
    }

    /// Closes connections that ended, or have been quiet for long: before the rows of their commands leave.
    pub fn close_silent(&mut self, until_ns: i64) {
        let silent: Vec<u32> = (0..)
            .zip(&self.slots)
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
        silent.into_iter().for_each(|slot| self.close(slot));
    }

    /// The oldest rows of closed connections beyond the limit.
    fn forget_closed(&mut self) -> Connections {
        let mut forgotten = Connections::default();
        let count = self.rows.row_count().saturating_sub(CLOSED_ROWS_MAX);
        forgotten.copy_rows(&self.rows, &(0..count).collect::<Vec<_>>());
        self.rows.drop_first(count);
        // there is room for others
        self.other_rows = [0; 2];
        if count > 0 {
            let open = self.connections().map(|connection| connection.number);
            let kept: FxHashSet<u32> = open.chain(self.rows.connection.iter().copied()).collect();
            self.context.counters.forget_connections(|connection| kept.contains(&connection));
            // in order of connections
            let numbers: FxHashSet<u32> = forgotten.connection.iter().copied().collect();
            let parameters = &mut self.context.tables.parameters;
            let is_kept: Vec<bool> =
                parameters.connection.iter().map(|connection| !numbers.contains(connection)).collect();
            parameters.retain(&is_kept);
            self.forget_sessions(&mut forgotten);
        }
        forgotten
    }

    /// Removes sessions without connections or rows, and counts their missing commands.
    fn forget_sessions(&mut self, forgotten: &mut Connections) {
        let sessions = &self.context.sessions;
        let mut is_kept = vec![false; sessions.states.len()];
        let of_rows = self.rows.session.iter().chain(&self.context.tables.cycles.session).copied();
        for session in self.connected_sessions().chain(of_rows) {
            if let Some(is_kept) = is_kept.get_mut(sessions.row(session)) {
                *is_kept = true;
            }
        }
        if is_kept.iter().all(|&is_kept| is_kept) {
            return;
        }
        let context = &mut self.context;
        for (state, _) in context.sessions.states.iter().zip(&is_kept).filter(|(_, is_kept)| !**is_kept) {
            let commands = state.commands.missing();
            let pdus = state.totals.missing_with_commands(commands);
            context.counters.add_many(Counter::CommandMissing, None, 0, commands);
            if let Some(row) = forgotten.connection.iter().position(|&number| number == state.first_connection) {
                forgotten.missing_pdu_count_to_target[row] += commands + pdus[0];
                forgotten.missing_pdu_count_to_initiator[row] += pdus[1];
            }
        }
        context.sessions.let_go(&is_kept);
    }

    /// Whether a session is known.
    pub(crate) fn has_session(&self, session: u32) -> bool {
        self.context.sessions.rows.has(Id::new(session))
    }

    /// Number of rows held.
    pub fn row_count(&self) -> usize {
        let tables = &self.context.tables;
        let rows = tables.cycles.row_count() + tables.rounds.row_count() + self.rows.row_count();
        let senders = self.connections().filter_map(|connection| Some(connection.analysis.here()?.row_count()));
        rows + tables.exchange_count() + senders.sum::<usize>()
    }
}
