//! The result of a look at a live pass: what became complete since the last look, and the current state.

use std::borrow::Cow;

use rustc_hash::FxHashSet;

use super::Live;
use crate::budget::{self, Between};
use crate::connection::content::Content;
use crate::iscsi::connection::in_flight::InFlight;
use crate::iscsi::session::succession::{self, Succession};
use crate::ledger::Turnaround;
use crate::pass::Outcome;
use crate::pipeline::drain::Horizon;
use crate::pipeline::{counter_rows, turn};
use crate::reader::CaptureInfo;
use crate::senders::snapshot::SenderSnapshot;
use crate::senders::timeline::Timeline;
use crate::senders::{held, line};
use crate::tables::{Columns, Connections, CycleId, NULL_NS, NULL_U32, Sessions, Tables, session_type};

/// Bytes behind a hole hold a session back no longer than this, and a command waits no longer for the ACK of its last data.
const PATIENCE_NS: i64 = 10_000_000_000;
/// Maximum inputs whose metadata is kept: a ring has new files for months.
const INPUTS_MAX: usize = 64;
/// Maximum rows of connections whose SYN has no answer.
const UNOPENED_ROWS_MAX: usize = 1024;

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

/// The result of a look.
#[derive(Debug)]
pub struct View {
    /// Start of the interval.
    pub from_ns: i64,
    /// End of the interval.
    pub to_ns: i64,
    /// `cycles`: those that became complete since the last look, each once. `budget`: of the interval. `connections`,
    /// `sessions`, `logical_units`, `alua_states`, `icmp_errors`, `senders`, `counters`: current state.
    pub outcome: Outcome,
    /// Connections whose rows were removed, each once.
    pub forgotten: Connections,
    /// Inputs whose metadata was removed, each once.
    pub forgotten_inputs: Vec<CaptureInfo>,
    /// Times from a status to the next command, of cycles handed over now or before.
    pub turnarounds: Vec<Turnaround>,
    /// The current iSCSI connections: those that are open, or were a moment ago.
    pub now: Vec<ConnectionNow>,
    /// Commands so far that were read too late for their queue depth.
    pub late_count: u64,
    /// Cycles that are handed over later begin after this.
    pub settled_ns: i64,
}

impl Live {
    /// Everything that became complete since the last look, and the current state. Starts the next interval.
    pub fn look(&mut self) -> View {
        let (from_ns, to_ns) = self.close_interval(false);
        self.pipeline.read_waiting(self.now_ns);
        self.note_times();
        let mut tables = Tables::default();
        self.add_standing(&mut tables);
        self.add_interval(from_ns, to_ns, &mut tables);
        let now = self.connections_now(&tables.sessions);
        let horizon = Horizon {
            until_ns: to_ns,
            patience_ns: PATIENCE_NS,
            keep_ns: self.settings.keep_ns,
            is_endless: true,
            stay: None,
        };
        let drained = self.pipeline.drain_final(&horizon);
        tables.cycles = drained.cycles;
        // with what they count of these
        let replaces = std::mem::replace(&mut tables.sessions, drained.sessions).replaces;
        tables.sessions.replaces = replaces;
        let outcome = self.outcome(tables);
        self.turn_clock();
        self.recover();
        View {
            from_ns,
            to_ns,
            outcome,
            forgotten: drained.left.connections,
            forgotten_inputs: self.forget_inputs(),
            turnarounds: drained.turnarounds,
            now,
            late_count: self.pipeline.ledger.late_count,
            settled_ns: drained.settled_ns,
        }
    }

    /// The metadata of inputs that is no longer kept.
    fn forget_inputs(&mut self) -> Vec<CaptureInfo> {
        self.sequence.as_mut().map(|sequence| sequence.forget_infos(INPUTS_MAX)).unwrap_or_default()
    }

    /// At the end of the input: everything not handed over yet, and the final tables.
    pub fn finish(&mut self) -> View {
        let (from_ns, to_ns) = self.close_interval(true);
        self.pipeline.read_waiting(i64::MAX);
        self.note_times();
        let mut tables = Tables::default();
        self.add_standing(&mut tables);
        self.add_interval(from_ns, to_ns, &mut tables);
        let now = self.connections_now(&tables.sessions);
        let drained = self.pipeline.drain_end();
        tables.cycles = drained.cycles;
        self.add_standing(&mut tables);
        tables.parameters = std::mem::take(&mut self.pipeline.context.tables.parameters);
        View {
            from_ns,
            to_ns,
            outcome: self.outcome(tables),
            forgotten: Connections::default(),
            forgotten_inputs: Vec::new(),
            turnarounds: drained.turnarounds,
            now,
            late_count: self.pipeline.ledger.late_count,
            settled_ns: drained.settled_ns,
        }
    }

    /// Everything of the recent past: commands with and without status, rounds, the time breakdown, and what a
    /// diagnosis needs.
    pub fn recent(&self) -> Outcome {
        let kept = &self.pipeline.context.tables;
        let mut tables = kept.exchanges();
        self.add_standing(&mut tables);
        tables.cycles = kept.cycles.clone();
        tables.rounds = kept.rounds.clone();
        tables.parameters = kept.parameters.clone();
        for connection in self.pipeline.connections().filter(|connection| !connection.is_settled) {
            let Content::Iscsi(iscsi) = &connection.content else { continue };
            let Some(session) = iscsi.connection.session else { continue };
            let kind =
                self.pipeline.context.sessions.rows.session_type.get(self.pipeline.context.sessions.row(session));
            let is_discovery = kind == Some(&session_type::DISCOVERY);
            iscsi.connection.login.parameters(connection.number, session, is_discovery, &mut tables.parameters);
        }
        let to_ns = self.interval.map_or(0, |(from_ns, _)| from_ns);
        if kept.wanted.budget {
            let from_ns = to_ns.saturating_sub(self.settings.keep_ns);
            tables.budget = self.budget_between(from_ns, to_ns, true, &mut tables);
        }
        tables.number_cycles_anew();
        self.outcome(tables)
    }

    /// Sessions last as long as their connections, as far as these were read.
    fn note_times(&mut self) {
        let sessions = &mut self.pipeline.context.sessions;
        for connection in self.pipeline.slots.iter().flatten() {
            if let Content::Iscsi(iscsi) = &connection.content
                && let Some(session) = iscsi.connection.session
            {
                sessions.note_time(session, connection.time_first_ns, connection.time_last_ns);
            }
        }
    }

    /// The tables as they are handed over.
    fn outcome(&self, mut tables: Tables) -> Outcome {
        tables.wanted = self.pipeline.context.tables.wanted;
        Outcome {
            tables,
            inputs: self.infos(),
            packet_count: self.packet_count,
            first_packet: None,
            tcp_packet_count: self.pipeline.tcp_packet_count,
        }
    }

    /// Adds the time breakdown of an interval, and the senders so far with their recoveries and retransmissions, to the standing
    /// tables.
    fn add_interval(&self, from_ns: i64, to_ns: i64, tables: &mut Tables) {
        if self.pipeline.context.tables.wanted.budget {
            tables.budget = self.budget_between(from_ns, to_ns, false, tables);
        }
    }

    /// Sets the current connections, sessions and counters. Of other connections than iSCSI: those that ended or never
    /// opened.
    fn add_standing(&self, tables: &mut Tables) {
        let pipeline = &self.pipeline;
        let mut rows = pipeline.rows.clone();
        let live = pipeline.connections().filter(|connection| matches!(connection.content, Content::Iscsi(_)));
        live.for_each(|connection| {
            rows.push(connection.row());
        });
        // newest last; a scan of ports leaves many
        let mut unopened: Vec<_> = pipeline.connections().filter(|connection| connection.is_unopened()).collect();
        unopened.sort_unstable_by_key(|connection| connection.number);
        let newest = unopened.len().saturating_sub(UNOPENED_ROWS_MAX);
        unopened.drain(newest..).for_each(|connection| {
            rows.push(connection.row());
        });
        rows.sort_by_connection();
        tables.connections = rows;
        tables.sessions = pipeline.context.sessions.rows.clone();
        (tables.logical_units, tables.alua_states) = pipeline.context.sessions.logical_units();
        tables.icmp_errors = pipeline.context.tables.icmp_errors.clone();
        // those of closed connections were turned at their end
        for connection in pipeline.connections().filter(|each| each.has_icmp_errors && each.is_flipped()) {
            turn(&mut tables.icmp_errors, connection.number);
        }
        succession::fill(&mut tables.sessions, &tables.connections);
        tables.counters = counter_rows(&pipeline.context.counters);
    }

    /// The time breakdown of a part of the time; fills `senders`, `recoveries` and `retransmissions`, too, and needs the standing
    /// tables. An outage may have begun before that time.
    fn budget_between(
        &self,
        from_ns: i64,
        to_ns: i64,
        has_whole_outages: bool,
        tables: &mut Tables,
    ) -> crate::tables::Budget {
        (tables.senders, tables.recoveries, tables.retransmissions) = Default::default();
        let mut timelines: Vec<Timeline> = self
            .pipeline
            .connections()
            .filter(|connection| matches!(connection.content, Content::Iscsi(_)))
            .filter_map(|connection| {
                let timeline = connection.analysis.here()?.copy_to(!connection.is_flipped(), tables);
                Some(Timeline { hosts: Some(connection.hosts()), ..timeline })
            })
            .collect();
        line::fill(&mut tables.senders, &mut timelines);
        let context = &self.pipeline.context;
        held::settle(&mut timelines, &context.tables.cycles, &mut tables.senders);
        let succession = Succession::of(&tables.sessions, &context.sessions.states);
        let cycles = &context.tables.cycles;
        let cycle_end_ns = |row: usize| match cycles.end_ns[row] {
            NULL_NS => succession.data_ns(cycles.session[row]).unwrap_or(i64::MAX),
            end_ns => end_ns,
        };
        // commands that ended earlier hardly affect the breakdown
        let warm_ns = from_ns.saturating_sub(self.settings.interval_ns);
        let rows: Vec<usize> = (0..context.tables.cycles.row_count())
            .filter(|&row| cycle_end_ns(row) >= warm_ns && context.tables.cycles.command_first_ns[row] < to_ns)
            .collect();
        let mut is_part = vec![false; context.tables.cycles.row_count()];
        rows.iter().for_each(|&row| is_part[row] = true);
        let mut part = Tables::default();
        part.cycles.copy_rows(&context.tables.cycles, &rows);
        let rounds = &context.tables.rounds;
        let is_of_part = |&round: &usize| is_part[context.tables.cycles.row(CycleId::new(rounds.cycle[round]))];
        part.rounds.copy_rows(rounds, &(0..rounds.row_count()).filter(is_of_part).collect::<Vec<_>>());
        part.number_cycles_anew();
        part.sessions = context.sessions.rows.clone();
        let goes_on = |session: u32| succession.data_ns(session).is_none_or(|time_ns| time_ns > from_ns);
        let mut begun = Cow::Borrowed(&self.pipeline.ledger.begun);
        if !begun.values().all(|&session| goes_on(session)) {
            begun.to_mut().retain(|_, session| goes_on(*session));
        }
        let between = Between { from_ns, to_ns, begun: &begun, has_whole_outages };
        budget::fill_between(&mut part, &timelines, &succession, &between);
        for cycle in part.budget.cycle.iter_mut().filter(|cycle| **cycle != NULL_U32) {
            *cycle = rows.get(*cycle as usize).map_or(NULL_U32, |&row| context.tables.cycles.cycle[row]);
        }
        part.budget
    }

    fn connections_now(&mut self, sessions: &Sessions) -> Vec<ConnectionNow> {
        let context = &self.pipeline.context;
        let replaced: FxHashSet<u32> = sessions.replaces.iter().copied().filter(|&number| number != NULL_U32).collect();
        let slots = self.pipeline.slots.iter_mut().flatten().filter(|connection| !connection.is_settled);
        let mut now: Vec<ConnectionNow> = slots
            .filter_map(|connection| {
                let is_client_initiator = !connection.is_flipped();
                let Content::Iscsi(iscsi) = &connection.content else { return None };
                let session = iscsi.connection.session;
                let is_replaced = session.is_some_and(|session| replaced.contains(&session));
                let begun = (!is_replaced).then(|| iscsi.connection.begun_in_flight(context));
                let begun_ns = begun.into_iter().flatten().map(|(begun_ns, _)| begun_ns).collect();
                Some(ConnectionNow {
                    connection: connection.number,
                    session,
                    open_task_count: iscsi.connection.open_task_count(),
                    in_flight: if is_replaced { InFlight::default() } else { iscsi.connection.in_flight(context) },
                    begun_ns,
                    senders: connection.analysis.here_mut().map(|senders| senders.snapshots(is_client_initiator)),
                })
            })
            .collect();
        now.sort_unstable_by_key(|now| now.connection);
        now
    }
}
