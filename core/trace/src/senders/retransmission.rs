//! The cause of a retransmission, and whether it was necessary.
//!
//! `SegmentClass` decides what is a retransmission.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use super::Rows;
use super::flight::Original;
use super::observation::Observation;
use crate::tables::{Empty, NULL_U8, Retransmission};

/// The cause of a retransmission; codes as in `CATEGORIES["retransmission_cause"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Cause {
    /// Duplicate or selective ACKs showed a loss.
    Fast = 0,
    /// Retransmission timeout.
    Timeout = 1,
    /// A tail loss probe.
    TailProbe = 2,
    /// No captured packet explains it.
    Unknown = 3,
}

/// Where the ACKs were lost; codes as in `CATEGORIES["ack_loss"]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub enum Place {
    /// Between the receiver and the tap.
    BeforeTap = 0,
    /// Between the tap and the sender.
    BeyondTap = 1,
}

/// Retransmissions that are kept for a later DSACK.
const REMEMBERED_MAX: usize = 1024;
/// The smallest retransmission timeout in use (FreeBSD; Linux has 200 ms).
const TIMEOUT_MIN_NS: i64 = 30_000_000;
/// A probe or timeout waits at least this share of the minimum timeout of 200 ms, or of two smoothed RTTs: the sender's
/// smoothed RTT differs a little from the one measured here.
const WAIT_NUMERATOR: i64 = 7;
const WAIT_DENOMINATOR: i64 = 8;

/// What a probe of the only segment in flight waits beyond two RTTs, for a delayed ACK (RFC 8985, section 7.2).
const PROBE_ACK_DELAY_NS: i64 = 200_000_000;

/// The sender's state at a retransmission.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances {
    /// The first unacknowledged byte.
    pub una: i64,
    /// The highest offset sent.
    pub sent: i64,
    /// SACKed bytes, or bytes of duplicate ACKs.
    pub sacked_bytes: i64,
    /// Cause of the recovery in progress.
    pub recovery: Option<Cause>,
    /// Whether the last ACK ended a recovery: it can show another loss (RFC 8985, section 6.2).
    pub has_just_recovered: bool,
    /// Bytes below this offset were in flight at the last timeout.
    pub timeout_point: i64,
    /// Time since the sender last sent or saw progress.
    pub quiet_ns: i64,
    /// Smoothed RTT of the whole path.
    pub round_trip_ns: i64,
    /// Whether a probe was sent already, without progress since.
    pub is_probed: bool,
    /// Whether SACK is in use; tail loss probes need it (RFC 8985, section 7.1). None if unknown.
    pub has_sack: Option<bool>,
    /// Whether the packet has TCP timestamps.
    pub has_timestamps: bool,
}

impl Circumstances {
    /// Whether a timer that retransmits the only segment in flight can be that of a probe. It looks like a timeout, so
    /// it takes a sender that is known to use SACK, and timestamps: stacks without probes (Windows before 2016) lack
    /// these unless configured. And it comes no later than a probe would.
    fn may_probe_alone(&self) -> bool {
        let latest_ns = (2 * self.round_trip_ns + PROBE_ACK_DELAY_NS) * 5 / 4;
        self.has_sack == Some(true) && self.has_timestamps && self.quiet_ns <= latest_ns
    }
}

/// The cause of the retransmission of `offset..end`; and whether a timer fired just now.
pub fn cause(offset: i64, end: i64, with: &Circumstances) -> (Cause, bool) {
    let waits_ns = |least_ns: i64| least_ns * WAIT_NUMERATOR / WAIT_DENOMINATOR;
    let is_head = offset <= with.una;
    let is_tail = end >= with.sent;
    let timeout_ns = waits_ns((2 * with.round_trip_ns).max(TIMEOUT_MIN_NS));
    let is_quiet = with.quiet_ns >= timeout_ns;
    let may_probe =
        with.has_sack != Some(false) && !with.is_probed && with.recovery.is_none() && with.sacked_bytes == 0;
    let is_probe_due = with.quiet_ns >= waits_ns(2 * with.round_trip_ns) && with.quiet_ns > 0;
    // a timeout retransmits the first segment in flight; only a probe begins with the last of several
    if is_tail && may_probe && is_probe_due && (!is_head || with.may_probe_alone()) {
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

/// One captured retransmission.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Sent {
    start: i64,
    end: i64,
    row: Option<usize>,
    /// The row of its recovery.
    recovery_row: Option<usize>,
    /// The number of its recovery.
    recovery: u32,
    /// Its timestamp, if it starts at the first unacknowledged byte: the next ACK echoes it.
    timestamp: Option<u32>,
    is_spurious: bool,
    /// Whether it followed lost ACKs.
    is_for_ack: bool,
    is_acknowledged: bool,
}

/// How many packets a recovery retransmitted, and how many of them were unnecessary.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Recovered {
    number: u32,
    packets: u32,
    spurious: u32,
    /// How many were spurious or followed lost ACKs, and where these were lost.
    explained: u32,
    ack_loss: Option<Place>,
}

impl Recovered {
    /// Whether no data was lost.
    fn is_needless(&self) -> bool {
        self.explained >= self.packets
    }

    /// Whether the sender undoes what it reduced: all of its retransmissions are known to be spurious (RFC 3522, RFC 3708;
    /// Linux's tcp_try_undo_recovery). One that is not may have replaced a loss. DSACKs may be among ACKs that were lost
    /// on their way to the sender.
    fn is_undone(&self) -> bool {
        self.spurious >= self.packets && self.ack_loss != Some(Place::BeyondTap)
    }

    /// Writes what it shows of lost ACKs to its row.
    fn show(&self, row: Option<usize>, rows: &mut Rows) {
        let ack_loss = self.ack_loss.filter(|_| self.is_needless()).map_or(NULL_U8, |place| place as u8);
        if let Some(known) = row.and_then(|row| rows.recoveries.ack_loss.get_mut(row)) {
            *known = ack_loss;
        }
    }
}

/// The latest retransmissions of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Remembered {
    sent: VecDeque<Sent>,
    spurious_count: u32,
    /// The recoveries of `sent`, in order.
    recoveries: VecDeque<Recovered>,
    /// Needless recoveries before these, and whether any before these reduced the window for good.
    needless: u32,
    has_reduced_before: bool,
}

impl Empty for Remembered {
    fn empty() -> &'static Self {
        static EMPTY: Remembered = Remembered {
            sent: VecDeque::new(),
            spurious_count: 0,
            recoveries: VecDeque::new(),
            needless: 0,
            has_reduced_before: false,
        };
        &EMPTY
    }
}

impl Remembered {
    /// Adds a retransmission with its row, in the recovery of this number and its row.
    pub fn push(
        &mut self,
        seen: &Observation,
        is_head: bool,
        row: Option<usize>,
        (recovery, recovery_row): (u32, Option<usize>),
        rows: &mut Rows,
    ) {
        if self.sent.len() >= REMEMBERED_MAX {
            self.sent.pop_front();
        }
        match self.recoveries.back_mut() {
            Some(last) if last.number == recovery => {
                last.packets += 1;
                last.show(recovery_row, rows);
            }
            _ => {
                let (packets, spurious, explained, ack_loss) = (1, 0, 0, None);
                self.recoveries.push_back(Recovered { number: recovery, packets, spurious, explained, ack_loss });
            }
        }
        if self.recoveries.len() > REMEMBERED_MAX {
            let first = self.recoveries.pop_front();
            self.needless += u32::from(first.is_some_and(|recovered| recovered.is_needless()));
            self.has_reduced_before |= first.is_some_and(|recovered| !recovered.is_undone());
        }
        self.sent.push_back(Sent {
            start: seen.offset,
            end: seen.end(),
            row,
            recovery_row,
            recovery,
            timestamp: seen.timestamps.filter(|_| is_head).map(|(value, _)| value),
            is_spurious: false,
            is_for_ack: false,
            is_acknowledged: false,
        });
    }

    /// The latest retransmissions, so many of them, followed ACKs that were lost there.
    #[cold]
    pub fn follow_lost_acks(&mut self, count: u32, place: Place, rows: &mut Rows) {
        for sent in self.sent.iter_mut().rev().take(count as usize) {
            let is_known = std::mem::replace(&mut sent.is_for_ack, true) || sent.is_spurious;
            if let Some(recovered) = of_number(&mut self.recoveries, sent.recovery) {
                recovered.explained += u32::from(!is_known);
                recovered.ack_loss = Some(place);
                recovered.show(sent.recovery_row, rows);
            }
        }
    }

    /// A DSACK (RFC 2883): these bytes arrived twice. True if they were retransmitted.
    pub fn duplicate_arrived(&mut self, left: i64, right: i64, rows: &mut Rows) -> bool {
        let found = self.sent.iter_mut().rev().find(|sent| !sent.is_spurious && sent.start < right && left < sent.end);
        let Some(sent) = found else {
            return self.sent.iter().any(|sent| sent.start < right && left < sent.end);
        };
        self.spurious_count += 1;
        mark(sent, &mut self.recoveries, rows);
        true
    }

    /// The Eifel algorithm (RFC 3522): if the ACK of the first byte echoes a timestamp older than the retransmission's,
    /// the original arrived.
    pub fn acknowledge(&mut self, una: i64, echo: Option<u32>, rows: &mut Rows) {
        for sent in self.sent.iter_mut().rev().take_while(|sent| !sent.is_acknowledged) {
            if sent.end > una {
                continue;
            }
            sent.is_acknowledged = true;
            let is_older = |timestamp: u32| echo.is_some_and(|echo| (echo.wrapping_sub(timestamp) as i32) < 0);
            if sent.timestamp.is_some_and(is_older) && !sent.is_spurious {
                self.spurious_count += 1;
                mark(sent, &mut self.recoveries, rows);
            }
        }
    }

    /// The first rows of the tables were dropped.
    pub fn forget_rows(&mut self, retransmissions: usize, recoveries: usize) {
        for sent in &mut self.sent {
            sent.row = sent.row.and_then(|row| row.checked_sub(retransmissions));
            sent.recovery_row = sent.recovery_row.and_then(|row| row.checked_sub(recoveries));
        }
    }

    /// The number of spurious retransmissions.
    pub fn spurious_count(&self) -> u32 {
        self.spurious_count
    }

    /// Whether a recovery reduced the congestion window for good.
    pub fn has_reduced(&self) -> bool {
        self.has_reduced_before || self.recoveries.iter().any(|recovered| !recovered.is_undone())
    }

    /// Whether a retransmission in the recovery of this number was spurious, as far as it is remembered.
    pub fn is_any_spurious(&self, recovery: u32) -> bool {
        let place = self.recoveries.binary_search_by_key(&recovery, |recovered| recovered.number);
        place.is_ok_and(|place| self.recoveries.get(place).is_some_and(|recovered| recovered.spurious > 0))
    }

    /// The number of recoveries in which no data was lost: all of their retransmissions were spurious, or followed lost
    /// ACKs.
    pub fn needless_count(&self) -> u32 {
        self.needless + self.recoveries.iter().filter(|recovered| recovered.is_needless()).count() as u32
    }
}

fn of_number(recoveries: &mut VecDeque<Recovered>, number: u32) -> Option<&mut Recovered> {
    let place = recoveries.binary_search_by_key(&number, |recovered| recovered.number).ok()?;
    recoveries.get_mut(place)
}

fn mark(sent: &mut Sent, recoveries: &mut VecDeque<Recovered>, rows: &mut Rows) {
    sent.is_spurious = true;
    if let Some(recovered) = of_number(recoveries, sent.recovery) {
        recovered.spurious += 1;
        recovered.explained += u32::from(!sent.is_for_ack);
        recovered.show(sent.recovery_row, rows);
    }
    if let Some(is_spurious) = sent.row.and_then(|row| rows.retransmissions.is_spurious.get_mut(row)) {
        *is_spurious = true;
    }
    if let Some(packets) = sent.recovery_row.and_then(|row| rows.recoveries.spurious_packets.get_mut(row)) {
        *packets += 1;
    }
}

/// The row of a retransmission.
pub fn row(
    seen: &Observation,
    connection: u32,
    is_from_client: bool,
    cause: Cause,
    original: Option<Original>,
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
    if let Some(original) = original {
        (row.original_frame, row.original_ns) = (original.frame, original.time_ns);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;
    /// Ten segments of 1000 bytes in flight with SACK over 20 ms.
    const QUIET: Circumstances = Circumstances {
        una: 0,
        sent: 10_000,
        sacked_bytes: 0,
        recovery: None,
        has_just_recovered: false,
        timeout_point: i64::MIN,
        quiet_ns: 0,
        round_trip_ns: 20 * MS,
        is_probed: false,
        has_sack: Some(true),
        has_timestamps: true,
    };
    /// Seven eighths of two RTTs.
    const WAIT_NS: i64 = 35 * MS;
    const TIMER_FIRED: (Cause, bool) = (Cause::Timeout, true);
    const AFTER_TIMEOUT: (Cause, bool) = (Cause::Timeout, false);
    const PROBE: (Cause, bool) = (Cause::TailProbe, true);
    const FAST: (Cause, bool) = (Cause::Fast, false);
    const UNKNOWN: (Cause, bool) = (Cause::Unknown, false);

    /// The cause of a retransmission of one segment.
    fn of(offset: i64, with: Circumstances) -> (Cause, bool) {
        cause(offset, offset + 1000, &with)
    }

    #[test]
    fn the_last_segment_after_two_rtts_of_silence_is_a_probe() {
        let waited = Circumstances { quiet_ns: WAIT_NS, ..QUIET };
        assert_eq!(of(9000, waited), PROBE);
        assert_eq!(of(9000, Circumstances { quiet_ns: WAIT_NS - 1, ..QUIET }), UNKNOWN);
        assert_eq!(of(8999, waited), UNKNOWN);
        assert_eq!(of(9000, Circumstances { has_sack: None, ..waited }), PROBE);
        assert_eq!(of(9000, Circumstances { has_sack: Some(false), ..waited }), UNKNOWN);
        assert_eq!(of(9000, Circumstances { is_probed: true, ..waited }), UNKNOWN);
        assert_eq!(of(9000, Circumstances { sacked_bytes: 1, ..waited }), FAST);
        assert_eq!(of(9000, Circumstances { recovery: Some(Cause::Fast), ..waited }), FAST);
        // with an RTT of zero there is still some silence
        assert_eq!(of(9000, Circumstances { round_trip_ns: 0, ..QUIET }), UNKNOWN);
        assert_eq!(of(9000, Circumstances { round_trip_ns: 0, quiet_ns: 1, ..QUIET }), PROBE);
    }

    #[test]
    fn the_only_segment_is_a_probe_if_its_sender_is_one_that_probes() {
        // 20 ms: two RTTs and 200 ms, with a quarter for the difference of both views
        let latest_ns = 300 * MS;
        let alone = Circumstances { sent: 1000, quiet_ns: latest_ns, ..QUIET };
        assert_eq!(of(0, alone), PROBE);
        assert_eq!(of(0, Circumstances { quiet_ns: latest_ns + 1, ..alone }), TIMER_FIRED);
        assert_eq!(of(0, Circumstances { has_timestamps: false, ..alone }), TIMER_FIRED);
        assert_eq!(of(0, Circumstances { has_sack: None, ..alone }), TIMER_FIRED);
        assert_eq!(of(0, Circumstances { has_sack: Some(false), ..alone }), TIMER_FIRED);
        // neither the wait of a probe nor that of a timeout
        let soon = Circumstances { quiet_ns: 5 * MS, round_trip_ns: MS, ..alone };
        assert_eq!((of(0, soon), of(0, Circumstances { has_timestamps: false, ..soon })), (PROBE, UNKNOWN));
    }

    #[test]
    fn the_first_segment_after_silence_is_a_timeout() {
        assert_eq!(of(0, Circumstances { quiet_ns: WAIT_NS, ..QUIET }), TIMER_FIRED);
        assert_eq!(of(0, Circumstances { quiet_ns: WAIT_NS - 1, ..QUIET }), UNKNOWN);
        assert_eq!(of(1, Circumstances { quiet_ns: WAIT_NS, ..QUIET }), UNKNOWN);
        // at least seven eighths of 30 ms
        let near = Circumstances { round_trip_ns: MS, ..QUIET };
        assert_eq!(of(0, Circumstances { quiet_ns: 26_250_000, ..near }), TIMER_FIRED);
        assert_eq!(of(0, Circumstances { quiet_ns: 26_249_999, ..near }), UNKNOWN);
    }

    #[test]
    fn what_was_in_flight_at_a_timeout_follows_it() {
        let within = Circumstances { recovery: Some(Cause::Timeout), timeout_point: 2000, ..QUIET };
        assert_eq!(of(1999, within), AFTER_TIMEOUT);
        assert_eq!(of(1999, Circumstances { sacked_bytes: 1, ..within }), AFTER_TIMEOUT);
        assert_eq!(of(2000, within), UNKNOWN);
        assert_eq!(of(2000, Circumstances { sacked_bytes: 1, ..within }), FAST);
        let later = Circumstances { recovery: None, ..within };
        assert_eq!(of(1999, later), AFTER_TIMEOUT);
        assert_eq!(of(2000, later), UNKNOWN);
        assert_eq!(of(1999, Circumstances { sacked_bytes: 1, ..later }), FAST);
    }

    #[test]
    fn duplicate_acks_and_a_recovery_make_it_fast() {
        assert_eq!(of(1000, QUIET), UNKNOWN);
        assert_eq!(of(1000, Circumstances { sacked_bytes: 1, ..QUIET }), FAST);
        assert_eq!(of(1000, Circumstances { recovery: Some(Cause::Fast), ..QUIET }), FAST);
        assert_eq!(of(1000, Circumstances { has_just_recovered: true, ..QUIET }), FAST);
        assert_eq!(of(1000, Circumstances { recovery: Some(Cause::TailProbe), ..QUIET }), UNKNOWN);
    }
}
