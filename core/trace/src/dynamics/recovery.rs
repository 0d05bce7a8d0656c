//! Recovery from a loss: from its first sign to the ACK of everything that was in flight at the first retransmission.
//!
//! Without a retransmission there is no loss: the packet was late, or is missing from the capture.

use super::retransmission::Cause;
use crate::tables::{Recoveries, Recovery as Row};

/// A sign of a loss.
#[derive(Debug, Clone, Copy)]
pub struct Sign {
    /// Frame number.
    pub frame: u64,
    /// Capture time.
    pub time_ns: i64,
    /// Pipe at that time.
    pub pipe: i64,
    /// Highest offset sent at that time.
    pub sent: i64,
}

/// A recovery in progress.
#[derive(Debug)]
struct Open {
    cause: Cause,
    time_first_ns: i64,
    /// The recovery ends when everything below is acknowledged.
    point: i64,
    row: Option<usize>,
}

/// The recoveries of one direction.
#[derive(Debug, Default)]
pub struct Recovery {
    sign: Option<Sign>,
    open: Option<Open>,
    count: u32,
    time_ns: i64,
}

impl Recovery {
    /// The cause of the recovery in progress.
    pub fn cause(&self) -> Option<Cause> {
        self.open.as_ref().map(|open| open.cause)
    }

    /// The row of the recovery in progress.
    pub fn row(&self) -> Option<usize> {
        self.open.as_ref().and_then(|open| open.row)
    }

    /// The first sign of a loss without recovery so far.
    pub fn first_sign(&self) -> Option<Sign> {
        self.sign
    }

    /// Notes a sign of a loss.
    pub fn note_sign(&mut self, sign: Sign) {
        if self.open.is_none() {
            self.sign.get_or_insert(sign);
        }
    }

    /// Notes a retransmission. True if a recovery begins with it.
    pub fn retransmit(&mut self, cause: Cause, is_timeout: bool, sign: Sign, bytes: u32, rows: &mut Rows<'_>) -> bool {
        let begins = self.open.is_none();
        if begins {
            let first = self.sign.take().unwrap_or(sign);
            let row = rows.wanted.then(|| {
                rows.table.push(Row {
                    connection: rows.connection,
                    to_target: rows.is_from_client,
                    cause: cause as u8,
                    time_first_ns: first.time_ns,
                    frame_first: first.frame,
                    pipe_before_bytes: first.pipe,
                    ..Row::default()
                })
            });
            self.count += 1;
            self.open = Some(Open { cause, time_first_ns: first.time_ns, point: sign.sent, row });
        }
        let Some(open) = &mut self.open else { return begins };
        if is_timeout {
            open.point = open.point.max(sign.sent);
        }
        if let Some(row) = open.row {
            if let Some(packets) = rows.table.retransmitted_packets.get_mut(row) {
                *packets += 1;
            }
            if let Some(known) = rows.table.retransmitted_bytes.get_mut(row) {
                *known += u64::from(bytes);
            }
        }
        begins
    }

    /// Notes an ACK. True if it ends the recovery in progress.
    pub fn acknowledge(&mut self, una: i64, frame: u64, time_ns: i64, pipe: i64, rows: &mut Rows<'_>) -> bool {
        if self.sign.is_some_and(|sign| una >= sign.sent) {
            self.sign = None;
        }
        let Some(open) = self.open.take_if(|open| una >= open.point) else { return false };
        self.time_ns = self.time_ns.saturating_add(time_ns.saturating_sub(open.time_first_ns).max(0));
        if let Some(row) = open.row {
            let table = &mut *rows.table;
            if let (Some(last_ns), Some(frame_last), Some(after)) =
                (table.time_last_ns.get_mut(row), table.frame_last.get_mut(row), table.pipe_after_bytes.get_mut(row))
            {
                (*last_ns, *frame_last, *after) = (time_ns, frame, pipe);
            }
        }
        true
    }

    /// The first rows of the table were removed.
    pub fn forget_rows(&mut self, count: usize) {
        if let Some(open) = &mut self.open {
            open.row = open.row.and_then(|row| row.checked_sub(count));
        }
    }

    /// The number of recoveries.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The total time of completed recoveries.
    pub fn time_ns(&self) -> i64 {
        self.time_ns
    }
}

/// Where rows are written.
#[derive(Debug)]
pub struct Rows<'a> {
    /// The table.
    pub table: &'a mut Recoveries,
    /// Whether the table is wanted.
    pub wanted: bool,
    /// The connection.
    pub connection: u32,
    /// The direction.
    pub is_from_client: bool,
}
