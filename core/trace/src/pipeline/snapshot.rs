//! The standing state of a pass under way: connections, sessions, senders and counters so far, and a part of the time with its
//! time breakdown. Nothing changes, and nothing leaves.

use std::borrow::Cow;

use rustc_hash::FxHashSet;

use super::{Pipeline, counter_rows, turn};
use crate::budget::{self, Between};
use crate::context::Context;
use crate::iscsi::connection::in_flight::InFlight;
use crate::iscsi::session::succession::{self, Succession};
use crate::senders::snapshot::SenderSnapshot;
use crate::senders::timeline::Timeline;
use crate::senders::{held, line};
use crate::tables::{Columns, CycleId, NULL_NS, NULL_U32, Sessions, Tables, session_type};

/// Maximum rows of connections whose SYN has no answer.
const UNOPENED_ROWS_MAX: usize = 1024;

/// A part of the time.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Its start.
    pub from_ns: i64,
    /// Its end.
    pub to_ns: i64,
    /// Commands that ended before this hardly affect its time breakdown.
    pub warm_ns: i64,
    /// Whether it is what is held of the past: with its rows, and with outages that began before it.
    pub is_past: bool,
}

/// The standing state.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// `connections`, `sessions`, `logical_units`, `alua_states`, `icmp_errors`, `host_questions`, `counters`; `senders`, `recoveries`,
    /// `retransmissions` and the `budget` of the span, if they are wanted. Of the past also commands and other exchanges.
    pub tables: Tables,
    /// The current iSCSI connections: those that are open, or were a moment ago.
    pub now: Vec<ConnectionNow>,
}

/// The current state of a connection.
#[derive(Debug, Clone, Default)]
pub struct ConnectionNow {
    /// Connection number.
    pub connection: u32,
    /// Session number.
    pub session: Option<u32>,
    /// Commands in flight.
    pub open_task_count: usize,
    /// The oldest read, write or flush of them, and the last progress; nothing once another session took the place of its
    /// own.
    pub in_flight: InFlight,
    /// The start of each command in flight; none in that case.
    pub begun_ns: Vec<i64>,
    /// Its senders, to the target first; none if they are not analysed.
    pub senders: Option<[SenderSnapshot; 2]>,
}

impl Pipeline {
    /// The standing state, and a part of the time.
    pub fn snapshot(&self, span: &Span) -> Snapshot {
        let mut tables = Tables::default();
        self.add_standing(&mut tables);
        if self.context.tables.wanted.budget {
            self.add_budget(span, &mut tables);
        }
        if span.is_past {
            self.add_rows(&mut tables);
        }
        let now = self.connections_now(&tables.sessions);
        Snapshot { tables, now }
    }

    /// Sets the connections, sessions and counters so far. Of other connections than iSCSI: those that ended or never opened.
    pub(crate) fn add_standing(&self, tables: &mut Tables) {
        let mut rows = self.rows.clone();
        self.iscsi().for_each(|(connection, _)| {
            rows.push(connection.row());
        });
        // newest last; a scan of ports leaves many
        let mut unopened: Vec<_> = self.connections().filter(|connection| connection.is_unopened()).collect();
        unopened.sort_unstable_by_key(|connection| connection.number);
        let newest = unopened.len().saturating_sub(UNOPENED_ROWS_MAX);
        unopened.drain(newest..).for_each(|connection| {
            rows.push(connection.row());
        });
        rows.sort_by_connection();
        tables.connections = rows;
        tables.sessions = self.context.sessions.rows.clone();
        (tables.logical_units, tables.alua_states) = self.context.sessions.logical_units();
        tables.icmp_errors = self.context.tables.icmp_errors.clone();
        tables.host_questions = self.context.tables.host_questions.clone();
        // those of closed connections were turned at their end
        for connection in self.connections().filter(|each| each.has_icmp_errors && each.is_flipped()) {
            turn(&mut tables.icmp_errors, connection.number);
        }
        succession::fill(&mut tables.sessions, &tables.connections);
        tables.counters = counter_rows(&self.context.counters);
    }

    /// Adds the rows that are held: commands with and without an end, other exchanges, keys.
    fn add_rows(&self, tables: &mut Tables) {
        let held = &self.context.tables;
        held.copy_exchanges(tables);
        tables.cycles = held.cycles.clone();
        tables.rounds = held.rounds.clone();
        tables.parameters = held.parameters.clone();
        for (connection, iscsi) in self.iscsi().filter(|(connection, _)| !connection.is_settled) {
            let Some(session) = iscsi.connection.session else { continue };
            let sessions = &self.context.sessions;
            let is_discovery = sessions.rows.session_type.get(sessions.row(session)) == Some(&session_type::DISCOVERY);
            iscsi.connection.login.parameters(connection.number, session, is_discovery, &mut tables.parameters);
        }
        tables.number_cycles_anew();
    }

    /// Adds the senders so far and the time breakdown of a span to the standing tables.
    fn add_budget(&self, span: &Span, tables: &mut Tables) {
        let Context { tables: held, sessions, .. } = &self.context;
        let Span { from_ns, to_ns, warm_ns, is_past } = *span;
        let timelines = self.iscsi().filter_map(|(connection, _)| {
            let timeline = connection.analysis.here()?.copy_to(!connection.is_flipped(), tables);
            Some(Timeline { hosts: Some(connection.hosts()), ..timeline })
        });
        let mut timelines: Vec<Timeline> = timelines.collect();
        line::fill(&mut tables.senders, &mut timelines);
        held::settle(&mut timelines, &held.cycles, &mut tables.senders);
        let succession = Succession::of(&tables.sessions, &sessions.states);
        let cycles = &held.cycles;
        let cycle_end_ns = |row: usize| match cycles.end_ns[row] {
            NULL_NS => succession.data_ns(cycles.session[row]).unwrap_or(i64::MAX),
            end_ns => end_ns,
        };
        let is_part = |row: usize| cycle_end_ns(row) >= warm_ns && cycles.command_first_ns[row] < to_ns;
        let is_part: Vec<bool> = (0..cycles.row_count()).map(is_part).collect();
        let rows: Vec<usize> = (0..is_part.len()).filter(|&row| is_part[row]).collect();
        let mut part = Tables::default();
        part.cycles.copy_rows(cycles, &rows);
        let is_of_part = |&round: &usize| is_part[cycles.row(CycleId::new(held.rounds.cycle[round]))];
        part.rounds.copy_rows(&held.rounds, &(0..held.rounds.row_count()).filter(is_of_part).collect::<Vec<_>>());
        part.number_cycles_anew();
        part.sessions = sessions.rows.clone();
        let goes_on = |session: u32| succession.data_ns(session).is_none_or(|time_ns| time_ns > from_ns);
        let mut begun = Cow::Borrowed(&self.ledger.begun);
        if !begun.values().all(|&session| goes_on(session)) {
            begun.to_mut().retain(|_, session| goes_on(*session));
        }
        let between = Between { from_ns, to_ns, begun: &begun, has_whole_outages: is_past };
        budget::fill_between(&mut part, &timelines, &succession, &between);
        for cycle in part.budget.cycle.iter_mut().filter(|cycle| **cycle != NULL_U32) {
            *cycle = rows.get(*cycle as usize).map_or(NULL_U32, |&row| cycles.cycle[row]);
        }
        tables.budget = part.budget;
    }

    fn connections_now(&self, sessions: &Sessions) -> Vec<ConnectionNow> {
        let context = &self.context;
        let replaced: FxHashSet<u32> = sessions.replaces.iter().copied().filter(|&number| number != NULL_U32).collect();
        let current = self.iscsi().filter(|(connection, _)| !connection.is_settled);
        let now = current.map(|(connection, iscsi)| {
            let session = iscsi.connection.session;
            let is_replaced = session.is_some_and(|session| replaced.contains(&session));
            let begun = (!is_replaced).then(|| iscsi.connection.begun_in_flight(context));
            ConnectionNow {
                connection: connection.number,
                session,
                open_task_count: iscsi.connection.open_task_count(),
                in_flight: if is_replaced { InFlight::default() } else { iscsi.connection.in_flight(context) },
                begun_ns: begun.into_iter().flatten().map(|(begun_ns, _)| begun_ns).collect(),
                senders: connection.analysis.here().map(|senders| senders.snapshots(!connection.is_flipped())),
            }
        });
        let mut now: Vec<ConnectionNow> = now.collect();
        now.sort_unstable_by_key(|now| now.connection);
        now
    }
}
