//! ACKs that the network lost, and no data: a timer retransmits bytes that had arrived.
//!
//! ```text
//!   before the tap   data ..(ACK lost).. retransmission -> the first ACK of the bytes reports the copy (D-SACK)
//!   beyond the tap   data -> ACK ..(lost).. retransmission -> what the sender echoes next is newer than that ACK
//! ```
//!
//! An ACK that was only late is none: before the tap it comes before the D-SACK, beyond it the sender echoes its timestamp.
//! It never judges whether a retransmission was spurious (`retransmission` does).

use iscsitrace_wire::serial::SerialNumber;
use serde::{Deserialize, Serialize};

use super::observation::Observation;
use super::retransmission::Cause;

/// A receiver has to acknowledge two full segments at once (RFC 9293, section 3.8.6.3).
const ACKNOWLEDGED_AT_ONCE: i64 = 2;
/// No host sends so many packets between two of a connection.
const MISSING_MAX: u32 = 1024;

/// What a retransmission shows.
#[derive(Debug, Clone, Copy)]
pub struct Again {
    /// Its cause.
    pub cause: Cause,
    /// Whether a timer fired just now.
    pub is_timer: bool,
    /// Whether bytes beyond the first hole are SACKed.
    pub has_sacks: bool,
    /// What the ACKs that passed the tap an RTT before acknowledge.
    pub passed: i64,
}

/// Retransmissions since the receiver's last packet, begun by a timer.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Silence {
    count: u32,
    /// Bytes of the last.
    start: i64,
    end: i64,
}

/// Retransmissions of bytes whose ACK had passed the tap.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Unheard {
    count: u32,
    /// What the sender echoed, and the newest timestamp of its receiver, at the first of them.
    echo: u32,
    newest: u32,
    /// The first timestamp of its receiver after that.
    answer: Option<u32>,
}

/// The ACKs to one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct LostAcks {
    /// What the ACKs at the tap acknowledge, and the end of the receiver's own stream.
    una: Option<i64>,
    receiver_sent: i64,
    /// What the receiver's packets with data acknowledge.
    data_una: Option<i64>,
    /// The newest timestamp of the receiver.
    newest: Option<u32>,
    silence: Option<Silence>,
    /// Whether the first retransmission since the receiver's last packet was no timer's.
    is_spoiled: bool,
    numbers: Numbers,
    unheard: Option<Unheard>,
}

impl LostAcks {
    /// The sender retransmits.
    pub fn retransmit(&mut self, seen: &Observation, again: Again) {
        let is_timer = again.is_timer && matches!(again.cause, Cause::Timeout | Cause::TailProbe);
        match &mut self.silence {
            Some(silence) => {
                *silence = Silence { count: silence.count + 1, start: seen.offset, end: seen.end() };
            }
            None if is_timer && !again.has_sacks && !self.is_spoiled && self.una < Some(seen.end()) => {
                self.silence = Some(Silence { count: 1, start: seen.offset, end: seen.end() });
            }
            None => self.is_spoiled = true,
        }
        let has_passed = again.passed >= seen.end();
        self.unheard = match (self.unheard, seen.timestamps, self.newest) {
            (Some(unheard), Some(_), _) if has_passed => Some(Unheard { count: unheard.count + 1, ..unheard }),
            // data of the receiver that carried the ACK was lost with it
            (None, Some((_, echo)), Some(newest)) if has_passed && is_timer && self.data_una < Some(seen.end()) => {
                Some(Unheard { count: 1, echo, newest, answer: None })
            }
            _ => None,
        };
    }

    /// The sender sends data: how many of its latest retransmissions followed ACKs that were lost beyond the tap, and the
    /// timestamp of the first ACK that was not.
    #[inline]
    pub fn send(&mut self, seen: &Observation) -> Option<(u32, u32)> {
        let unheard = self.unheard?;
        let echo = seen.timestamps.map(|(_, echo)| echo);
        if echo == Some(unheard.echo) {
            return None;
        }
        self.unheard = None;
        let echo = echo.filter(|&echo| unheard.answer.is_some_and(|answer| !is_after(answer, echo)))?;
        Some((unheard.count, echo))
    }

    /// A packet of the receiver passes the tap, with the payload of a full segment of the sender: how many of the sender's
    /// latest retransmissions followed ACKs that were lost before the tap.
    #[inline]
    pub fn acknowledge(&mut self, seen: &Observation, acknowledged: i64, segment: i64) -> Option<u32> {
        let missing = self.numbers.missing_before(seen);
        // data of the receiver that was lost, too, carried ACKs
        let has_lost_data = seen.offset > self.receiver_sent;
        self.receiver_sent = self.receiver_sent.max(seen.end());
        if let Some((value, _)) = seen.timestamps {
            if let Some(unheard) = &mut self.unheard
                && is_after(value, unheard.newest)
            {
                unheard.answer.get_or_insert(value);
            }
            if self.newest.is_none_or(|newest| is_after(value, newest)) {
                self.newest = Some(value);
            }
        }
        if seen.length > 0 {
            self.data_una = self.data_una.max(Some(acknowledged));
        }
        let before = self.una.replace(self.una.map_or(acknowledged, |una| una.max(acknowledged)));
        self.is_spoiled = false;
        let (silence, before) = self.silence.take().zip(before)?;
        let reports_last =
            seen.duplicate(acknowledged).is_some_and(|(left, right)| left < silence.end && silence.start < right);
        let is_first_of_bytes = before < silence.end && silence.end <= acknowledged;
        let has_lost = match missing {
            // one for each retransmission but the last, and one before them
            Some(missing) => missing >= silence.count,
            // a second copy may have been needed: it cannot be told
            None => silence.count == 1 && acknowledged - before >= ACKNOWLEDGED_AT_ONCE * segment,
        };
        (reports_last && is_first_of_bytes && !has_lost_data && has_lost).then_some(silence.count)
    }
}

/// How many packets of a sender never passed the tap, by their IP identifications.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Numbers {
    /// Identifications that the last packet takes: super-segments are several packets.
    last: Option<u32>,
    /// Packets that followed the one before, and others: hosts that number all packets alike skip those to others.
    next: u32,
    others: u32,
}

impl Numbers {
    fn missing_before(&mut self, seen: &Observation) -> Option<u32> {
        let full = u32::from(seen.segment_max.unwrap_or(u16::MAX)).max(1);
        let taken = self.last.replace(seen.length.div_ceil(full).max(1))?;
        let missing = u32::from(seen.steps?).checked_sub(taken).filter(|missing| *missing < MISSING_MAX);
        if missing == Some(0) {
            self.next += 1;
        } else {
            self.others += 1;
        }
        missing.filter(|_| self.next > self.others)
    }
}

fn is_after(later: u32, earlier: u32) -> bool {
    SerialNumber(later).is_after(SerialNumber(earlier))
}
