//! A loss and its repair: from the first sign of it to the ACK of all that was outstanding at the first retransmission.
//!
//! What was never sent again is no loss: a packet that came late, or one that the capture dropped.

use super::retransmission::Cause;
use crate::tables::{Recoveries, Recovery as Row};

/// The first sign of a loss.
#[derive(Debug, Clone, Copy)]
pub struct Sign {
    /// Its frame.
    pub frame: u64,
    /// Its capture time.
    pub time_ns: i64,
    /// The pipe then.
    pub pipe: i64,
    /// One past the highest byte sent then.
    pub sent: i64,
}

/// A repair under way.
#[derive(Debug)]
struct Open {
    cause: Cause,
    time_first_ns: i64,
    /// It is over when everything below is acknowledged.
    point: i64,
    row: Option<usize>,
}

/// The repairs of one direction.
#[derive(Debug, Default)]
pub struct Recovery {
    sign: Option<Sign>,
    open: Option<Open>,
    count: u32,
    time_ns: i64,
}

impl Recovery {
    /// Why the repair under way began.
    pub fn cause(&self) -> Option<Cause> {
        self.open.as_ref().map(|open| open.cause)
    }

    /// The first sign of a loss that is not repaired yet.
    pub fn first_sign(&self) -> Option<Sign> {
        self.sign
    }

    /// Something looks like a loss.
    pub fn note_sign(&mut self, sign: Sign) {
        if self.open.is_none() {
            self.sign.get_or_insert(sign);
        }
    }

    /// A packet was sent again: a repair begins, or goes on. True when it begins.
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

    /// An ACK; true when it ends the repair under way.
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

    /// The first rows of the table were dropped.
    pub fn forget_rows(&mut self, count: usize) {
        if let Some(open) = &mut self.open {
            open.row = open.row.and_then(|row| row.checked_sub(count));
        }
    }

    /// How many there were.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// How long those took that ended.
    pub fn time_ns(&self) -> i64 {
        self.time_ns
    }
}

/// Where the rows go.
#[derive(Debug)]
pub struct Rows<'a> {
    /// The table.
    pub table: &'a mut Recoveries,
    /// Whether anybody asked for it.
    pub wanted: bool,
    /// The connection.
    pub connection: u32,
    /// The direction.
    pub is_from_client: bool,
}
