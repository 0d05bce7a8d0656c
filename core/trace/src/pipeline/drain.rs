//! How a pass under way forgets: it hands out the rows that are final before a horizon, each once.
//!
//! A command is final when its status and the ACK of its data were read, and everything before its command, which its queue
//! depth counts. Where an end follows, as in a ring, rows leave when nothing that is kept names them, and connections and
//! sessions stay to the end. A pass without an end forgets these, too, a while after they are over.

use rustc_hash::FxHashSet;

use super::Pipeline;
use crate::connection::TcpConnection;
use crate::connection::content::Content;
use crate::counters::Counter;
use crate::ledger::{News, Reach, Turnaround};
use crate::tables::{Columns, Connections, CycleId, Cycles, Id, Sessions, Starts, Tables, old_rows};

/// A connection that was closed, or whose session is over, is kept for this time.
const CLOSED_NS: i64 = 120_000_000_000;
/// A quiet connection is closed after this time,
const QUIET_NS: i64 = 600_000_000_000;
/// and a quiet iSCSI connection after this.
const QUIET_ISCSI_NS: i64 = 86_400_000_000_000;
/// Maximum rows of closed connections.
const CLOSED_ROWS_MAX: usize = 1024;
/// Ranges of command numbers that are kept of each session.
const RANGES_MAX: usize = 1 << 12;

/// Which rows are final, and which of them leave.
#[derive(Debug, Clone, Copy)]
pub struct Horizon<'a> {
    /// Rows until then, as far as their sessions were read.
    pub until_ns: i64,
    /// A row waits that long for what may still change it: an ACK, bytes behind a hole, a response.
    pub patience_ns: i64,
    /// Final rows stay for this time.
    pub keep_ns: i64,
    /// Whether no end follows.
    pub is_endless: bool,
    /// Requests and messages from there on stay.
    pub stay: Option<&'a Starts>,
}

/// What was handed out.
#[derive(Debug, Default)]
pub struct Drained {
    /// In a pass without an end: the commands that became final.
    pub cycles: Cycles,
    /// Times from a status to the next command, of commands that are or were final.
    pub turnarounds: Vec<Turnaround>,
    /// Commands that become final later begin after this.
    pub settled_ns: i64,
    /// All sessions, with what they count of final commands.
    pub sessions: Sessions,
    /// PDUs and other exchanges that left, with the commands if an end follows, with closed connections if none does.
    pub left: Tables,
}

impl Pipeline {
    /// Hands out what became final, and forgets what the horizon lets go.
    pub fn drain_final(&mut self, horizon: &Horizon<'_>) -> Drained {
        let Horizon { until_ns, keep_ns, patience_ns, is_endless, stay } = *horizon;
        let before_ns = until_ns.saturating_sub(keep_ns);
        let tables = &mut self.context.tables;
        let mut left = Tables { pdus: std::mem::take(&mut tables.pdus), ..Tables::default() };
        // these name commands
        tables.take_exchanges(until_ns.saturating_sub(keep_ns.max(patience_ns)), stay, &mut left);
        if left.exchange_count() > 0 {
            self.forget_left();
        }
        let mut reach = self.reach(horizon);
        let drained = self.hand_out(&reach, is_endless);
        if is_endless {
            self.close_silent(until_ns);
            self.settle_over(before_ns);
            reach.awaited = self.awaited(is_endless);
        }
        let open_sessions: FxHashSet<u32> = self.connected_sessions().collect();
        let left_commands = (!is_endless).then_some(&mut left);
        self.ledger.let_go(&mut self.context, before_ns, &reach, &open_sessions, left_commands);
        self.forget_left();
        if is_endless {
            self.forget_senders(before_ns);
            let Self { context, .. } = self;
            context.tables.icmp_errors.drop_first(old_rows(&context.tables.icmp_errors.time_ns, before_ns));
            let commands = context.sessions.states.iter_mut().filter_map(|state| state.commands.as_mut());
            commands.for_each(|commands| commands.forget(RANGES_MAX));
            left.connections = self.forget_closed();
        }
        Drained { left, ..drained }
    }

    /// At the end of the input: hands out all commands, and forgets nothing.
    pub(crate) fn drain_end(&mut self) -> Drained {
        self.close_all();
        self.add_missing_commands();
        self.hand_out(&Reach::default(), true)
    }

    /// Commands that are final, if no end follows that hands them out.
    fn hand_out(&mut self, reach: &Reach, is_endless: bool) -> Drained {
        let Self { context, ledger, .. } = self;
        if !is_endless {
            ledger.take(context, reach, None);
            return Drained::default();
        }
        let mut news = News::default();
        ledger.take(context, reach, Some(&mut news));
        let mut cycles = Cycles::default();
        cycles.copy_rows(&context.tables.cycles, &news.rows);
        Drained {
            cycles,
            turnarounds: news.turnarounds,
            settled_ns: news.settled_ns,
            sessions: context.sessions.rows.clone(),
            left: Tables::default(),
        }
    }

    /// How far each session was read. Bytes behind a hole, or an incomplete PDU, hold a session back no longer than the
    /// patience. Where an end follows, commands that a connection leaves open end with its last packet at the latest, so they
    /// hold back what comes after it.
    fn reach(&mut self, horizon: &Horizon<'_>) -> Reach {
        let Horizon { until_ns, patience_ns, is_endless, .. } = *horizon;
        let quiet_ns = until_ns.saturating_sub(patience_ns);
        let mut reach = Reach::until(until_ns, patience_ns);
        for (connection, iscsi) in self.iscsi() {
            let Some(session) = iscsi.connection.session else { continue };
            let held = connection.halves.iter().filter_map(|half| half.reassembly.held_since_ns());
            let unread = iscsi.framers.iter().filter_map(|framer| framer.unread_since_ns());
            let waiting = connection.capture_order.waiting_since_ns();
            if let Some(since_ns) = held.chain(unread).chain(waiting).min().filter(|&since_ns| since_ns <= until_ns) {
                reach.hold_back(session, since_ns.saturating_sub(1).max(quiet_ns));
            }
        }
        if !is_endless {
            let Self { slots, context, .. } = self;
            for connection in slots.iter().flatten() {
                let Content::Iscsi(iscsi) = &connection.content else { continue };
                let (Some(session), true) = (iscsi.connection.session, iscsi.connection.has_open_tasks()) else {
                    continue;
                };
                let closing = connection.closing();
                if closing.last_ns < quiet_ns {
                    iscsi.connection.end_in_flight(&closing, true, context);
                    continue;
                }
                let end_ns = iscsi.connection.may_have_ended_ns(&closing, context);
                if end_ns <= until_ns {
                    reach.hold_back(session, end_ns.saturating_sub(1));
                }
            }
        }
        reach.awaited = self.awaited(is_endless);
        reach
    }

    /// Commands whose rows may still change; where an end follows, also those that rows name, or bytes read from now on were
    /// they the latest that TCP allows.
    fn awaited(&self, is_endless: bool) -> FxHashSet<CycleId> {
        if is_endless {
            return self.iscsi().flat_map(|(_, iscsi)| iscsi.connection.awaited_cycles()).collect();
        }
        let referenced = &self.context.tables.task_management.referenced_cycle;
        let named = self.iscsi().flat_map(|(_, iscsi)| iscsi.connection.named_cycles());
        referenced.iter().copied().map(CycleId::new).chain(named).collect()
    }

    /// The sessions of the open connections.
    fn connected_sessions(&self) -> impl Iterator<Item = u32> + '_ {
        self.connections().filter_map(TcpConnection::session)
    }

    /// Closes connections that ended, whose session another one replaced, or that have been quiet for long: before the rows of
    /// their commands leave.
    fn close_silent(&mut self, until_ns: i64) {
        let sessions = &self.context.sessions;
        let is_replaced = |connection: &TcpConnection| connection.session().is_some_and(|it| sessions.is_replaced(it));
        let silent: Vec<u32> = (0..)
            .zip(&self.slots)
            .filter_map(|(slot, connection)| connection.as_ref().map(|connection| (slot, connection)))
            .filter(|(_, connection)| {
                let patience_ns = match connection.content {
                    _ if connection.has_fin() || connection.has_rst() || is_replaced(connection) => CLOSED_NS,
                    Content::Iscsi(_) => QUIET_ISCSI_NS,
                    _ => QUIET_NS,
                };
                connection.time_last_ns < until_ns.saturating_sub(patience_ns)
            })
            .map(|(slot, _)| slot)
            .collect();
        silent.into_iter().for_each(|slot| self.close(slot));
    }

    /// Settles the connections of sessions that were over before this time: nothing is in flight on any of them. They wait
    /// for packets that come late, but are no longer current, so intervals do not grow with them.
    fn settle_over(&mut self, before_ns: i64) {
        let is_over = |connection: &TcpConnection| match &connection.content {
            Content::Iscsi(iscsi) => connection.is_over(before_ns) && !iscsi.connection.has_open_tasks(),
            _ => false,
        };
        let current = self.iscsi().filter(|(connection, _)| !connection.is_settled && !is_over(connection));
        let under_way: FxHashSet<u32> = current.filter_map(|(connection, _)| connection.session()).collect();
        let Self { slots, context, .. } = self;
        for connection in slots.iter_mut().flatten() {
            let goes_on = connection.session().is_some_and(|session| under_way.contains(&session));
            if !connection.is_settled && !goes_on && is_over(connection) {
                connection.settle(context);
            }
        }
    }

    /// Forgets what the senders did before that time, and those of closed connections.
    pub(crate) fn forget_senders(&mut self, before_ns: i64) {
        let Self { context, slots, .. } = self;
        context.tables.clear_senders();
        context.timelines.clear();
        for senders in slots.iter_mut().flatten().filter_map(|connection| connection.analysis.here_mut()) {
            senders.forget(before_ns);
        }
    }

    /// Rows left the tables: what is under way of them is dropped.
    fn forget_left(&mut self) {
        let Self { context, slots, .. } = self;
        for connection in slots.iter_mut().flatten() {
            if let Content::Iscsi(iscsi) = &mut connection.content {
                iscsi.connection.forget(&context.tables);
            }
        }
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
        let Self { ledger, context, .. } = self;
        ledger.forget(&forgotten.connection, |session| context.sessions.rows.has(Id::new(session)));
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
            let commands = state.missing_commands();
            let pdus = state.totals.missing_with_commands(commands);
            context.counters.add_many(Counter::CommandMissing, None, 0, commands);
            if let Some(row) = forgotten.connection.iter().position(|&number| number == state.first_connection) {
                forgotten.missing_pdu_count_to_target[row] += commands + pdus[0];
                forgotten.missing_pdu_count_to_initiator[row] += pdus[1];
            }
        }
        context.sessions.let_go(&is_kept);
    }

    /// Number of rows held.
    pub fn row_count(&self) -> usize {
        let tables = &self.context.tables;
        let rows = tables.cycles.row_count() + tables.rounds.row_count() + self.rows.row_count();
        let senders = self.connections().filter_map(|connection| Some(connection.analysis.here()?.row_count()));
        rows + tables.exchange_count() + senders.sum::<usize>()
    }
}
