//! What the opposite direction shows of the packets of one: ACKs, SACK and D-SACK blocks, and echoed timestamps.

use iscsitrace_wire::serial::SerialNumber;

use super::Direction;
use crate::taps::header::Header;
use crate::taps::passage::{Fate, Passage, Waiting};
use crate::taps::stream::{RECEIVER, SENDER};

impl Direction {
    /// A packet of the opposite direction at the receiver's tap: it echoes the latest timestamp that the receiver had
    /// (RFC 7323, section 4.3). One that never passed the tap arrived in a packet that the capture missed.
    #[inline]
    fn note_echo(&mut self, header: &Header) {
        let Some((_, echo)) = header.timestamps else { return };
        if self.latest_timestamp.is_some_and(|latest| SerialNumber(echo).is_after(SerialNumber(latest))) {
            self.latest_timestamp = Some(echo);
            let [data, _] = &mut self.data;
            let [empty, _] = &mut self.empty;
            Waiting::note_echo([data, empty], echo);
        }
        if self.latest_echo.is_none_or(|latest| SerialNumber(echo).is_after(SerialNumber(latest))) {
            self.latest_echo = Some(echo);
            let since_ns = self.furthest_ns.saturating_sub(self.overtaken_ns.saturating_mul(2));
            self.data[SENDER].note_stale(echo, since_ns);
        }
    }

    /// An acknowledgment of this direction's bytes, seen at one side.
    #[inline]
    pub(in crate::taps) fn acknowledge(&mut self, side: usize, header: &Header) -> Option<i64> {
        if side == RECEIVER {
            self.note_echo(header);
        }
        self.has_sack |= header.settles_sack();
        let offset = self.stream.offset(side, header.acknowledgment_number)?;
        if side == RECEIVER {
            self.latest_ack = Some((header.time_ns, offset));
        }
        if offset > self.acknowledged[side] {
            self.mark_acknowledged(side, self.acknowledged[side], offset);
            self.acknowledged[side] = offset;
            self.advanced_ns = if side == RECEIVER { header.time_ns } else { self.advanced_ns };
        }
        if header.sack_count > 0 {
            self.selectively_acknowledge(side, header, offset);
        }
        Some(offset)
    }

    /// Bytes that the receiver acknowledged before another copy came. At the sender's tap that is certain only if none had
    /// been sent by then: what has passed the receiver's tap may not be read yet.
    #[inline]
    fn mark_acknowledged(&mut self, side: usize, from: i64, to: i64) {
        if self.data[SENDER].len() > 0 {
            let is_open = |each: &Passage| {
                let Fate { refills, is_acknowledged, is_resent, .. } = each.fate;
                refills == 0 && !is_acknowledged && (side == RECEIVER || !is_resent)
            };
            self.data[SENDER].mark(from, to, is_open, |fate| fate.is_acknowledged = true);
        }
    }

    /// A D-SACK of these bytes.
    fn note_report(&mut self, side: usize, left: i64, right: i64) {
        self.data[SENDER].mark(left, right, |_| true, |fate| fate.reports[side] = fate.reports[side].saturating_add(1));
    }

    #[cold]
    fn selectively_acknowledge(&mut self, side: usize, header: &Header, acknowledged: i64) {
        self.has_sack = true;
        let mut first: Option<(i64, i64)> = None;
        let mut highest = None;
        for (index, &(left, right)) in header.sack.iter().take(usize::from(header.sack_count)).enumerate() {
            let (Some(left), Some(right)) = (self.stream.offset(side, left), self.stream.offset(side, right)) else {
                continue;
            };
            // RFC 2883: bytes that were acknowledged, or that the second block has, too
            let is_twice = |first: (i64, i64)| left <= first.0 && first.1 <= right;
            if index == 1
                && let Some(first) = first.filter(|&first| is_twice(first))
            {
                self.note_report(side, first.0, first.1);
            }
            if index == 0 && right <= acknowledged {
                self.note_report(side, left, right);
            } else {
                self.mark_acknowledged(side, left, right);
                highest = highest.max(Some(left));
                self.reported = self.reported.max(right);
            }
            if index == 0 {
                first = Some((left, right));
            }
        }
        if let Some(highest) = highest {
            let is_lacking = |each: &Passage| {
                let Fate { is_repeat, is_acknowledged, is_overtaken, .. } = each.fate;
                !is_repeat && !is_acknowledged && !is_overtaken
            };
            self.data[SENDER].mark(acknowledged, highest, is_lacking, |fate| fate.is_overtaken = true);
        }
    }
}
