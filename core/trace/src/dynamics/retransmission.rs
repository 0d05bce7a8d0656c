//! Why a packet was sent again, and whether it was needed.
//!
//! It never decides what is a retransmission: `SegmentClass` does.

use std::collections::VecDeque;

use super::observation::Observation;
use crate::tables::{Retransmission, Retransmissions};

/// What made a sender send again; codes as in `CATEGORIES["retransmission_cause"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// Duplicate or selective ACKs told of a loss.
    Fast = 0,
    /// Nothing was heard for a retransmission timeout.
    Timeout = 1,
    /// A tail loss probe.
    TailProbe = 2,
    /// Nothing that was seen explains it.
    Unknown = 3,
}

/// Retransmissions of which a receiver may still tell that they came twice.
const REMEMBERED_MAX: usize = 1024;
/// Least retransmission timeout in use (FreeBSD; Linux has 200 ms).
const TIMEOUT_MIN_NS: i64 = 30_000_000;
/// Shares of the usual least timeout of 200 ms, and of two smoothed round trips, that a probe or timeout waits at least:
/// the smoothed round trip is the sender's, which differs a little from the one seen here.
const WAIT_NUMERATOR: i64 = 7;
const WAIT_DENOMINATOR: i64 = 8;

/// What the sender knew when it sent again.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// The first byte that is not acknowledged.
    pub una: i64,
    /// One past the highest byte sent.
    pub sent: i64,
    /// Bytes that were selectively acknowledged, or told of by duplicate ACKs.
    pub sacked_bytes: i64,
    /// Cause of the repair under way.
    pub recovery: Option<Cause>,
    /// Whether the last ACK ended a repair: what it delivered may show that more was lost (RFC 8985, section 6.2).
    pub has_just_recovered: bool,
    /// Bytes below were outstanding at the last timeout.
    pub timeout_point: i64,
    /// Time since the sender last sent, or heard of progress.
    pub quiet_ns: i64,
    /// Smoothed round trip of the whole path.
    pub round_trip_ns: i64,
    /// Whether the last segment was probed already and nothing was heard since.
    pub is_probed: bool,
    /// Whether SACK is in use, without which there are no tail probes (RFC 8985, section 7.1); none when that is not known.
    pub has_sack: Option<bool>,
}

/// What made the sender send `offset..end` again; and whether a timer did so just now.
pub fn cause(offset: i64, end: i64, with: &Circumstances) -> (Cause, bool) {
    let waits_ns = |least_ns: i64| least_ns * WAIT_NUMERATOR / WAIT_DENOMINATOR;
    let is_head = offset <= with.una;
    let is_tail = end >= with.sent;
    let timeout_ns = waits_ns((2 * with.round_trip_ns).max(TIMEOUT_MIN_NS));
    let is_quiet = with.quiet_ns >= timeout_ns;
    let may_probe =
        with.has_sack != Some(false) && !with.is_probed && with.recovery.is_none() && with.sacked_bytes == 0;
    if is_tail && may_probe && with.quiet_ns >= waits_ns(2 * with.round_trip_ns) && with.quiet_ns > 0 {
        return (Cause::TailProbe, true);
    }
    if is_head && is_quiet {
        return (Cause::Timeout, true);
    }
    if with.recovery == Some(Cause::Timeout) && offset < with.timeout_point {
        return (Cause::Timeout, false);
    }
    if with.recovery == Some(Cause::Fast) || with.sacked_bytes > 0 || with.has_just_recovered {
        return (Cause::Fast, false);
    }
    if offset < with.timeout_point {
        return (Cause::Timeout, false);
    }
    (Cause::Unknown, false)
}

/// One retransmission that was seen.
#[derive(Debug, Clone, Copy)]
struct Sent {
    start: i64,
    end: i64,
    row: Option<usize>,
    /// Its timestamp, if it was the first byte not acknowledged: the ACK that it causes echoes it.
    timestamp: Option<u32>,
    is_spurious: bool,
    is_acknowledged: bool,
}

/// The latest retransmissions of one direction.
#[derive(Debug, Default)]
pub struct Remembered {
    sent: VecDeque<Sent>,
    spurious_count: u32,
}

impl Remembered {
    /// Remembers one.
    pub fn push(&mut self, seen: &Observation, is_head: bool, row: Option<usize>) {
        if self.sent.len() >= REMEMBERED_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(Sent {
            start: seen.offset,
            end: seen.end(),
            row,
            timestamp: seen.timestamps.filter(|_| is_head).map(|(value, _)| value),
            is_spurious: false,
            is_acknowledged: false,
        });
    }

    /// A D-SACK (RFC 2883): these bytes came twice; true when they had been sent again.
    pub fn duplicate_arrived(&mut self, left: i64, right: i64, rows: &mut Retransmissions) -> bool {
        let found = self.sent.iter_mut().rev().find(|sent| !sent.is_spurious && sent.start < right && left < sent.end);
        let Some(sent) = found else {
            return self.sent.iter().any(|sent| sent.start < right && left < sent.end);
        };
        self.spurious_count += 1;
        mark(sent, rows);
        true
    }

    /// The Eifel algorithm (RFC 3522): an ACK of the first byte that echoes a timestamp older than the retransmission's
    /// was caused by the original.
    pub fn acknowledge(&mut self, una: i64, echo: Option<u32>, rows: &mut Retransmissions) {
        for sent in self.sent.iter_mut().rev().take_while(|sent| !sent.is_acknowledged) {
            if sent.end > una {
                continue;
            }
            sent.is_acknowledged = true;
            let is_older = |timestamp: u32| echo.is_some_and(|echo| (echo.wrapping_sub(timestamp) as i32) < 0);
            if sent.timestamp.is_some_and(is_older) && !sent.is_spurious {
                self.spurious_count += 1;
                mark(sent, rows);
            }
        }
    }

    /// The first rows of the table were dropped.
    pub fn forget_rows(&mut self, count: usize) {
        self.sent.iter_mut().for_each(|sent| sent.row = sent.row.and_then(|row| row.checked_sub(count)));
    }

    /// Retransmissions that were not needed.
    pub fn spurious_count(&self) -> u32 {
        self.spurious_count
    }
}

fn mark(sent: &mut Sent, rows: &mut Retransmissions) {
    sent.is_spurious = true;
    if let Some(is_spurious) = sent.row.and_then(|row| rows.is_spurious.get_mut(row)) {
        *is_spurious = true;
    }
}

/// A row for a packet that was sent again.
pub fn row(
    seen: &Observation,
    connection: u32,
    is_from_client: bool,
    cause: Cause,
    original: Option<(u64, i64)>,
) -> Retransmission {
    let mut row = Retransmission {
        connection,
        to_target: is_from_client,
        frame: seen.frame,
        time_ns: seen.time_ns,
        stream_offset_bytes: seen.offset,
        payload_bytes: seen.length,
        cause: cause as u8,
        ..Retransmission::default()
    };
    if let Some((frame, time_ns)) = original {
        (row.original_frame, row.original_ns) = (frame, time_ns);
    }
    row
}
