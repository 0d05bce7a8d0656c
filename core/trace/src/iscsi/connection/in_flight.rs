//! What is in flight on a connection, and since when nothing progresses.

use super::IscsiConnection;
use crate::context::Context;
use crate::stream::progress::OUTAGE_MIN_NS;
use crate::tables::NULL_NS;
use crate::tables::in_flight::{FLUSH, kind};

/// The commands in flight of a connection, or of all connections of a session.
///
/// A command whose status may be missing from the capture is none of them: whether it is in flight is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InFlight {
    /// Start of the oldest read, write or flush.
    pub oldest_io_ns: Option<i64>,
    /// The last progress of reads, writes and flushes, also of those that have ended.
    pub progress_ns: Option<i64>,
}

impl InFlight {
    /// Since when reads, writes or flushes are in flight and nothing progresses. Progress that is later than now was before
    /// the clock was set back.
    pub fn stalled_since_ns(&self, now_ns: i64) -> Option<i64> {
        let progress_ns = self.progress_ns.filter(|progress_ns| progress_ns.saturating_sub(now_ns) < OUTAGE_MIN_NS);
        self.oldest_io_ns.map(|oldest_ns| progress_ns.map_or(oldest_ns, |progress_ns| oldest_ns.max(progress_ns)))
    }

    /// The same of two connections of one session.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        let least = |one: Option<i64>, other: Option<i64>| one.into_iter().chain(other).min();
        Self {
            oldest_io_ns: least(self.oldest_io_ns, other.oldest_io_ns),
            progress_ns: self.progress_ns.max(other.progress_ns),
        }
    }
}

impl IscsiConnection {
    /// Notes new data, an R2T or a status of a read, a write or a flush.
    #[inline]
    pub(crate) fn note_progress(&mut self, time_ns: i64) {
        // a PDU behind a hole is read late; a time much earlier shows that the clock was set back
        if time_ns > self.progress_ns || self.progress_ns.saturating_sub(time_ns) >= OUTAGE_MIN_NS {
            self.progress_ns = time_ns;
        }
    }

    /// Its commands in flight.
    pub(crate) fn in_flight(&self, context: &Context) -> InFlight {
        let mut found = InFlight {
            progress_ns: Some(self.progress_ns).filter(|&progress_ns| progress_ns != NULL_NS),
            ..InFlight::default()
        };
        for (begun_ns, is_io) in self.begun_in_flight(context) {
            found = found.with(InFlight { oldest_io_ns: Some(begun_ns).filter(|_| is_io), progress_ns: None });
        }
        found
    }

    /// The start of each of its commands in flight, and whether it is a read, a write or a flush.
    pub(crate) fn begun_in_flight(&self, context: &Context) -> impl Iterator<Item = (i64, bool)> {
        let cycles = &context.tables.cycles;
        let rows = self.tasks.values().map(|task| task.cycle).filter(|&cycle| {
            cycles.is_in_flight(cycles.row(cycle)) && !(self.has_gap && self.may_lack_status(cycle, context))
        });
        rows.map(|cycle| cycles.row(cycle)).map(|row| (cycles.command_first_ns[row], kind(cycles, row) >= FLUSH))
    }
}
