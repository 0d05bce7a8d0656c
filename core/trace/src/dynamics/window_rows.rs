//! The rows of the table `window`, and in which of them an estimate of the congestion window holds.
//!
//! An estimate is made at the end of a burst, and confirmed by the next one: a sender that then sends more than the ACKs
//! let out had paused, and was not held by the congestion window.

use std::ops::Range;

use super::send_buffer::Span;
use crate::tables::{Columns, NULL_NS, Window, Windows};

/// How far the window of an estimate is constant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// At the last packet of the burst: far from the sender, which packet answered which ACK is not known.
    AtStop,
    /// From the first packet of the burst to the last: an ACK changes the window, in slow start and during a recovery.
    ToStop,
    /// To the first packet of the next burst.
    ToNext,
}

/// An estimate that the next burst may contradict: its rows, and the pipe and what was acknowledged at its stop.
#[derive(Debug)]
struct Pending {
    estimate: i64,
    epoch: u32,
    rows: Range<usize>,
    pipe: i64,
    una: i64,
}

/// The rows of one sender.
#[derive(Debug, Default)]
pub struct WindowRows {
    rows: Windows,
    /// Rows at the start of the burst, and after its last packet; and what was acknowledged then.
    burst: usize,
    stop: usize,
    una: i64,
    pending: Option<Pending>,
}

impl WindowRows {
    /// The number of rows.
    pub fn count(&self) -> usize {
        self.rows.row_count()
    }

    /// The window of the last row.
    pub fn last_rwnd(&self) -> Option<i64> {
        self.rows.rwnd_bytes.last().copied()
    }

    /// Adds a row; times never decrease.
    #[inline]
    pub fn push(&mut self, row: Window) {
        let time_ns = self.rows.time_ns.last().map_or(row.time_ns, |&last_ns| last_ns.max(row.time_ns));
        self.rows.push(Window { time_ns, ..row });
    }

    /// All windows were larger.
    pub fn widen(&mut self, shift: u8) {
        for window in self.rows.rwnd_bytes.iter_mut().filter(|window| **window != NULL_NS) {
            *window <<= shift;
        }
    }

    /// A packet was sent, the last one of its burst so far.
    #[inline]
    pub fn stop(&mut self, una: i64) {
        (self.stop, self.una) = (self.count(), una);
    }

    /// A burst begins.
    pub fn begin_burst(&mut self) {
        self.burst = self.count();
    }

    /// An estimate of the burst that ended with `pipe`: to be confirmed, or during a recovery at once.
    pub fn estimate(&mut self, estimate: i64, epoch: u32, pipe: i64, holds: Holds, is_in_recovery: bool) {
        let rows = match holds {
            Holds::AtStop => self.stop.saturating_sub(1)..self.stop,
            Holds::ToStop => self.burst..self.stop,
            Holds::ToNext => self.burst..self.count(),
        };
        if is_in_recovery {
            self.show(Some(estimate), rows);
        } else {
            self.pending = Some(Pending { estimate, epoch, rows, pipe, una: self.una });
        }
    }

    /// A burst ended with `pipe`: the estimate of the one before and its epoch, if nothing contradicts it.
    pub fn confirm(&mut self, pipe: i64, segment: i64) -> Option<(i64, u32)> {
        let pending = self.pending.take()?;
        // in slow start as much again as was acknowledged
        if pipe > pending.pipe + (self.una - pending.una).max(0) + segment {
            return None;
        }
        self.show(Some(pending.estimate), pending.rows);
        Some((pending.estimate, pending.epoch))
    }

    /// Moves the rows to a table, without estimates while the send buffer was full.
    pub fn finish(&mut self, full: &[Span], table: &mut Windows) {
        for span in full {
            let until = span.until.map_or(usize::MAX, |until| until.row);
            self.show(None, span.from.row..until.min(self.count()));
        }
        table.append(&mut self.rows);
    }

    fn show(&mut self, estimate: Option<i64>, rows: Range<usize>) {
        for row in rows {
            if let (Some(cwnd), Some(is_valid)) =
                (self.rows.cwnd_estimate_bytes.get_mut(row), self.rows.is_valid.get_mut(row))
            {
                (*cwnd, *is_valid) = (estimate.unwrap_or(NULL_NS), estimate.is_some());
            }
        }
    }
}
