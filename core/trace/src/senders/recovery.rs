//! Recovery from a loss: from its first sign to the ACK of everything that was in flight at the first retransmission.
//!
//! Far from the sender, that ACK may pass the tap before the last retransmissions do: the sender did not have it yet. The
//! recovery then ends with the last of them.
//!
//! Without a retransmission there is no loss: the packet was late, or is missing from the capture.

use super::retransmission::Cause;
use crate::tables::{Rare, Recoveries, Recovery as Row};
use serde::{Deserialize, Serialize};

/// A sign of a loss.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Open {
    cause: Cause,
    /// From when on its time counts: not what the recovery before it took.
    since_ns: i64,
    /// The recovery ends when everything below is acknowledged.
    point: i64,
    /// Time and frame of the last retransmission.
    last: (i64, u64),
    row: Option<usize>,
}

/// The recoveries of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Recovery {
    /// Both boxed: most connections have none.
    sign: Option<Box<Sign>>,
    open: Option<Box<Open>>,
    count: u32,
    time_ns: i64,
    /// Time and frame at which the last completed one ended.
    ended: (i64, u64),
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
        self.sign.as_deref().copied()
    }

    /// Notes a sign of a loss.
    pub fn note_sign(&mut self, sign: Sign) {
        if self.open.is_none() {
            self.sign.get_or_insert_with(|| Box::new(sign));
        }
    }

    /// Notes a retransmission. True if a recovery begins with it.
    pub fn retransmit(&mut self, cause: Cause, is_timeout: bool, sign: Sign, bytes: u32, rows: &mut Rows<'_>) -> bool {
        let begins = self.open.is_none();
        if begins {
            let first = self.sign.take().map_or(sign, |first| *first);
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
            // an ACK that was long on its way to the sender may show the next loss at the tap before the last recovery ends
            let is_before_end = first.frame <= self.ended.1;
            self.open = Some(Box::new(Open {
                cause,
                since_ns: if is_before_end { first.time_ns.max(self.ended.0) } else { first.time_ns },
                point: sign.sent,
                last: (first.time_ns, first.frame),
                row,
            }));
        }
        let Some(open) = &mut self.open else { return begins };
        if sign.time_ns > open.last.0 {
            open.last = (sign.time_ns, sign.frame);
        }
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
        if self.sign.as_ref().is_some_and(|sign| una >= sign.sent) {
            self.sign = None;
        }
        let Some(open) = self.open.take_if(|open| una >= open.point) else { return false };
        let (time_ns, frame) = if time_ns < open.last.0 { open.last } else { (time_ns, frame) };
        self.time_ns = self.time_ns.saturating_add(time_ns.saturating_sub(open.since_ns).max(0));
        self.ended = (time_ns, frame);
        if let Some(row) = open.row {
            let table = &mut **rows.table;
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
    pub table: &'a mut Rare<Recoveries>,
    /// Whether the table is wanted.
    pub wanted: bool,
    /// The connection.
    pub connection: u32,
    /// The direction.
    pub is_from_client: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First and last frame, and first and last time, of a recovery with retransmissions in frames 10 and 20 at 100 ns and
    /// 200 ns, ended by an ACK in that frame at that time.
    fn recovery(frame: u64, time_ns: i64) -> ([u64; 2], [i64; 2], i64) {
        let (mut recovery, mut table) = (Recovery::default(), Rare::default());
        let mut rows = Rows { table: &mut table, wanted: true, connection: 0, is_from_client: true };
        for (frame, time_ns) in [(10, 100), (20, 200)] {
            let sign = Sign { frame, time_ns, pipe: 1000, sent: 1000 };
            recovery.retransmit(Cause::TailProbe, false, sign, 1000, &mut rows);
        }
        assert!(!recovery.acknowledge(999, frame, time_ns, 1, &mut rows), "a byte is not acknowledged");
        assert!(recovery.acknowledge(1000, frame, time_ns, 0, &mut rows));
        let frames = [table.frame_first[0], table.frame_last[0]];
        (frames, [table.time_first_ns[0], table.time_last_ns[0]], recovery.time_ns())
    }

    #[test]
    fn it_ends_with_its_ack_but_not_before_its_last_retransmission() {
        assert_eq!(recovery(30, 300), ([10, 30], [100, 300], 200));
        // on its way when the sender retransmitted: the tap is far from it
        assert_eq!(recovery(9, 70), ([10, 20], [100, 200], 100));
        assert_eq!(recovery(15, 150), ([10, 20], [100, 200], 100));
    }

    #[test]
    fn no_time_of_two_recoveries_counts_twice() {
        // the ACK that shows the second loss passes the tap in frame 15, before the last retransmission of the first
        for (frame, time_ns, both_ns) in [(15, 150, 300), (25, 250, 250), (25, 50, 450)] {
            let (mut recovery, mut table) = (Recovery::default(), Rare::default());
            let mut rows = Rows { table: &mut table, wanted: true, connection: 0, is_from_client: true };
            let sign = |frame, time_ns, sent| Sign { frame, time_ns, pipe: 1000, sent };
            recovery.retransmit(Cause::Fast, false, sign(10, 100, 1000), 1000, &mut rows);
            recovery.retransmit(Cause::Fast, false, sign(20, 200, 1000), 1000, &mut rows);
            assert!(recovery.acknowledge(1000, 12, 120, 1000, &mut rows));
            recovery.note_sign(sign(frame, time_ns, 2000));
            recovery.retransmit(Cause::Fast, false, sign(30, 300, 2000), 1000, &mut rows);
            assert!(recovery.acknowledge(2000, 40, 400, 0, &mut rows));
            assert_eq!(recovery.time_ns(), both_ns);
        }
    }
}
