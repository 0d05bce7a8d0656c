//! The ring's time in periods, each with the tables that a diagnosis needs.
//!
//! A period ends at a full hour (UTC), or after so many commands or packets: by what passes the tap, never by where a capture ends.
//! Its tables are those of a pass that ends there, as far as they are of this period: commands that had not ended before it,
//! exchanges that began in it, connections and sessions with packets in it. Counts are those of the period. What TCP shows of the
//! path and the hosts, such as RTTs and windows, is what is known until then.
//!
//! The tables are those of a pass that ends there (`Pipeline::ended`); the pipeline goes on.

use serde::{Deserialize, Serialize};

use super::rows;
use super::totals::Totals;
use crate::context::Context;
use crate::counters::Counters;
use crate::pipeline::Pipeline;
use crate::tables::{CycleId, NULL_U32, Pdus, Starts, Tables, Wanted};

const HOUR_NS: i64 = 3_600_000_000_000;
/// A period has no more commands: with rows of some 250 bytes they, and their copy, take 20 MB.
const COMMANDS_MAX: u32 = 1 << 15;
/// A period has no more packets: what is kept of them for the time breakdown takes some 20 MB.
const PACKETS_MAX: u32 = 1 << 22;

/// A period that is over.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Period {
    /// What ended before is of an earlier period; the earliest time of all in the first one.
    pub from_ns: i64,
    /// Time of its last packet.
    pub last_ns: i64,
    /// Its tables.
    pub tables: Tables,
    /// The number in the ring of each row of `cycles`; null where that is not known yet.
    pub cycle_numbers: Vec<u32>,
}

/// The periods of a ring.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Periods {
    /// Those that are over, until they are taken.
    closed: Vec<Period>,
    /// The current one has what ended since then.
    from_ns: i64,
    /// It ends then.
    to_ns: i64,
    last_ns: i64,
    packet_count: u32,
    /// Its first rows, where rows stay in order; of `connections` that of the first that was closed in it.
    starts: Starts,
    totals: Totals,
    /// What was counted before it.
    counters: Counters,
}

impl Default for Periods {
    fn default() -> Self {
        Self {
            closed: Vec::new(),
            from_ns: i64::MIN,
            to_ns: i64::MAX,
            last_ns: i64::MIN,
            packet_count: 0,
            starts: Starts::default(),
            totals: Totals::default(),
            counters: Counters::default(),
        }
    }
}

impl Periods {
    /// The tables on request that a diagnosis needs.
    pub(super) const WANTED: Wanted = Wanted {
        write_starts: true,
        retransmissions: true,
        recoveries: true,
        senders: true,
        budget: true,
        violations: true,
        ..Wanted::NONE
    };

    /// The last instant before the current period.
    pub(super) fn before_ns(&self) -> i64 {
        self.from_ns.saturating_sub(1)
    }

    /// Rows from there on are of the current period.
    pub(super) fn starts(&self) -> &Starts {
        &self.starts
    }

    /// Ends the periods: gives the counters back, and what is only made for periods is made no more.
    pub(super) fn leave(self, pipeline: &mut Pipeline) {
        let context = &mut pipeline.context;
        let later = std::mem::replace(&mut context.counters, self.counters);
        context.counters.append(later);
        context.tables.wanted = Wanted { pdus: context.tables.wanted.pdus, ..Wanted::NONE };
        context.timelines.clear();
    }

    /// The next period begins with what ends from then on.
    fn begin(&mut self, from_ns: i64, totals: Totals, pipeline: &mut Pipeline) {
        self.counters.append(std::mem::take(&mut pipeline.context.counters));
        pipeline.forget_senders(from_ns);
        let tables = &pipeline.context.tables;
        *self = Self {
            closed: std::mem::take(&mut self.closed),
            counters: std::mem::take(&mut self.counters),
            from_ns,
            starts: Starts { connections: pipeline.rows.next_id(), ..Starts::of(tables) },
            totals,
            ..Self::default()
        };
    }
}

impl Periods {
    /// Whether a packet of that time, before the `next` command, is of the next period.
    #[inline]
    pub(super) fn is_over(&self, time_ns: i64, next: CycleId) -> bool {
        self.packet_count > 0
            && (time_ns >= self.to_ns
                || self.packet_count >= PACKETS_MAX
                || next.number().saturating_sub(self.starts.cycles.number()) >= COMMANDS_MAX)
    }

    /// Notes a packet of the current period.
    #[inline]
    pub(super) fn note_packet(&mut self, time_ns: i64) {
        if self.packet_count == 0 {
            self.to_ns = time_ns.div_euclid(HOUR_NS).saturating_mul(HOUR_NS).saturating_add(HOUR_NS);
        }
        self.packet_count += 1;
        self.last_ns = self.last_ns.max(time_ns);
    }

    /// Ends the current period before a packet of that time.
    #[cold]
    pub(super) fn end(&mut self, time_ns: i64, pipeline: &mut Pipeline) {
        if let Some((period, totals)) = self.made(pipeline, false) {
            self.closed.push(period);
            let from_ns = if time_ns >= self.to_ns { self.to_ns } else { self.last_ns.saturating_add(1) };
            self.begin(from_ns, totals, pipeline);
        }
    }

    /// Those that ended since the last call, each once.
    pub(super) fn take(&mut self) -> Vec<Period> {
        std::mem::take(&mut self.closed)
    }

    /// The current period, as if it ended now; none without packets.
    pub(super) fn current(&self, pipeline: &mut Pipeline) -> Option<Period> {
        self.made(pipeline, true).map(|(period, _)| period)
    }

    /// The period so far, and the totals at its end. If it is the last, the commands that only an end makes known are numbered
    /// as the end of the ring numbers them.
    fn made(&self, pipeline: &mut Pipeline, is_last: bool) -> Option<(Period, Totals)> {
        if self.packet_count == 0 {
            return None;
        }
        let mut ended = pipeline.ended(self.starts.connections);
        let parameters = &mut ended.context.tables.parameters;
        parameters.drop_first(parameters.row(self.starts.parameters));
        let next = pipeline.cycles().next_id();
        let mut cycle_numbers = Vec::new();
        let let_go = |context: &mut Context| cycle_numbers = rows::keep_since(context, self.from_ns, &self.starts);
        let mut totals = Totals::default();
        let mut tables = ended.finish_after(let_go, |tables| totals = self.totals.take_from(tables));
        self.totals.take_missing(&mut totals, &mut tables.counters);
        rows::keep_active(&mut tables, self.from_ns);
        // those that the end of the copy made known; all others leave beside the periods
        tables.pdus = Pdus::default();
        if !is_last {
            // the pipeline goes on, and may find others before them
            let unknown = cycle_numbers.iter_mut().filter(|number| **number >= next.number());
            unknown.for_each(|number| *number = NULL_U32);
        }
        let (from_ns, last_ns) = (self.from_ns, self.last_ns);
        Some((Period { from_ns, last_ns, tables, cycle_numbers }, totals))
    }
}
