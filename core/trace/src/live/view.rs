//! The result of a look at a live pass: what became complete since the last look, and the current state.

use super::Live;
use crate::ledger::Turnaround;
use crate::pass::Outcome;
use crate::pipeline::drain::{Drained, Horizon};
use crate::pipeline::snapshot::{ConnectionNow, Snapshot, Span};
use crate::reader::CaptureInfo;
use crate::tables::{Connections, Tables};

/// Bytes behind a hole hold a session back no longer than this, and a command waits no longer for the ACK of its last data.
const PATIENCE_NS: i64 = 10_000_000_000;
/// Maximum inputs whose metadata is kept: a ring has new files for months.
const INPUTS_MAX: usize = 64;

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
        let Snapshot { mut tables, now } = self.snapshot(from_ns, to_ns, self.now_ns);
        let horizon = Horizon {
            until_ns: to_ns,
            patience_ns: PATIENCE_NS,
            keep_ns: self.settings.keep_ns,
            is_endless: true,
            stay: None,
        };
        let mut drained = self.pipeline.drain_final(&horizon);
        // with what they count of the commands that are handed over
        drained.sessions.replaces = std::mem::take(&mut tables.sessions.replaces);
        tables.sessions = std::mem::take(&mut drained.sessions);
        let mut view = self.view((from_ns, to_ns), tables, now, drained);
        view.forgotten_inputs =
            self.sequence.as_mut().map(|sequence| sequence.forget_infos(INPUTS_MAX)).unwrap_or_default();
        self.turn_clock();
        self.recover();
        view
    }

    /// At the end of the input: everything not handed over yet, and the final tables.
    pub fn finish(&mut self) -> View {
        let (from_ns, to_ns) = self.close_interval(true);
        let Snapshot { mut tables, now } = self.snapshot(from_ns, to_ns, i64::MAX);
        let drained = self.pipeline.drain_end();
        self.pipeline.add_standing(&mut tables);
        tables.parameters = std::mem::take(&mut self.pipeline.context.tables.parameters);
        self.view((from_ns, to_ns), tables, now, drained)
    }

    /// Everything of the recent past: commands with and without status, rounds, the time breakdown, and what a
    /// diagnosis needs.
    pub fn recent(&self) -> Outcome {
        let to_ns = self.interval.map_or(0, |(from_ns, _)| from_ns);
        let span = self.span(to_ns.saturating_sub(self.settings.keep_ns), to_ns);
        self.outcome(self.pipeline.snapshot(&Span { is_past: true, ..span }).tables)
    }

    fn span(&self, from_ns: i64, to_ns: i64) -> Span {
        Span { from_ns, to_ns, warm_ns: from_ns.saturating_sub(self.settings.interval_ns), is_past: false }
    }

    /// The standing state, once what waited for other packets until then was read.
    fn snapshot(&mut self, from_ns: i64, to_ns: i64, now_ns: i64) -> Snapshot {
        self.pipeline.read_waiting(now_ns);
        self.pipeline.snapshot(&self.span(from_ns, to_ns))
    }

    fn view(&self, span: (i64, i64), tables: Tables, now: Vec<ConnectionNow>, drained: Drained) -> View {
        View {
            from_ns: span.0,
            to_ns: span.1,
            outcome: self.outcome(Tables { cycles: drained.cycles, ..tables }),
            forgotten: drained.left.connections,
            forgotten_inputs: Vec::new(),
            turnarounds: drained.turnarounds,
            now,
            late_count: self.pipeline.ledger.late_count,
            settled_ns: drained.settled_ns,
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
}
