//! The rows of the table `window`, and in which of them an estimate of the congestion window holds.

use serde::{Deserialize, Serialize};
use std::ops::Range;

use super::send_buffer::Span;
use crate::tables::{Columns, NULL_NS, Rare, Window, Windows};

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

/// The rows of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct WindowRows {
    rows: Rare<Windows>,
    /// Rows at the start of the burst, and after its last packet.
    burst: usize,
    stop: usize,
    /// Rows of which the estimate depends on what was lost, and the number of the recovery.
    doubtful: Vec<(u32, Range<usize>)>,
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
        let windows = self.rows.made().into_iter().flat_map(|rows| &mut rows.rwnd_bytes);
        windows.filter(|window| **window != NULL_NS).for_each(|window| *window <<= shift);
    }

    /// A packet was sent, the last one of its burst so far.
    #[inline]
    pub fn stop(&mut self) {
        self.stop = self.count();
    }

    /// A burst begins.
    pub fn begin_burst(&mut self) {
        self.burst = self.count();
    }

    /// The rows of an estimate for the burst that ended.
    pub fn of_burst(&self, holds: Holds) -> Range<usize> {
        match holds {
            Holds::AtStop => self.stop.saturating_sub(1)..self.stop,
            Holds::ToStop => self.burst..self.stop,
            Holds::ToNext => self.burst..self.count(),
        }
    }

    /// The estimate in these rows depends on what was lost in the recovery of this number.
    pub fn doubt(&mut self, rows: Range<usize>, recovery: u32) {
        if rows.is_empty() {
            return;
        }
        match self.doubtful.last_mut() {
            Some((last, before)) if *last == recovery && before.end == rows.start => before.end = rows.end,
            _ => self.doubtful.push((recovery, rows)),
        }
    }

    /// Moves the rows to a table: without estimates while the send buffer was full, and in recoveries that retransmitted
    /// what had arrived. There the sender deemed other bytes lost than the tap.
    pub fn finish(&mut self, full: &[Span], is_spurious: impl Fn(u32) -> bool, table: &mut Rare<Windows>) {
        for (_, rows) in std::mem::take(&mut self.doubtful).into_iter().filter(|(number, _)| is_spurious(*number)) {
            self.show(None, rows);
        }
        for span in full {
            let until = span.until.map_or(usize::MAX, |until| until.row);
            self.show(None, span.from.row..until.min(self.count()));
        }
        if let Some(rows) = self.rows.made() {
            table.append(rows);
        }
    }

    /// Sets an estimate in rows, or none.
    pub fn show(&mut self, estimate: Option<i64>, rows: Range<usize>) {
        let Some(made) = self.rows.made() else { return };
        for row in rows {
            if let (Some(cwnd), Some(is_valid)) = (made.cwnd_estimate_bytes.get_mut(row), made.is_valid.get_mut(row)) {
                (*cwnd, *is_valid) = (estimate.unwrap_or(NULL_NS), estimate.is_some());
            }
        }
    }
}
