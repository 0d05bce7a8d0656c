//! What a join writes while it runs: transits and their envelope, losses, and the clocks as far as the order of reading
//! needs them.

use super::clock::Offset;
use super::envelope::Envelope;
use super::health::Health;
use super::passage::Passage;
use super::skipped::Doubtful;
use super::verdict::Verdict;
use crate::tables::taps::{Envelopes, PathDoubt, PathDoubts, PathLoss, PathLosses, Transit, Transits};

/// Rows of `transits` of one direction; above twice as many every other one is dropped.
const TRANSITS_MAX: usize = 200_000;
/// Rows of `path_losses`, and of `path_doubts`.
const LOSSES_MAX: usize = 1 << 18;

/// Something that both taps have seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Matched {
    pub(super) pair: u32,
    /// Tap of the sender.
    pub(super) sender: usize,
    pub(super) sent_ns: i64,
    pub(super) received_ns: i64,
    pub(super) bytes: u32,
}

/// Every so manieth row of a direction.
#[derive(Debug, Default)]
struct Decimated {
    rows: Transits,
    step: u64,
    seen: u64,
}

impl Decimated {
    #[inline]
    fn push(&mut self, row: Transit) {
        let is_kept = self.seen.is_multiple_of(self.step.max(1));
        self.seen += 1;
        if is_kept {
            self.rows.push(row);
            if self.rows.pair.len() >= 2 * TRANSITS_MAX {
                let is_even: Vec<bool> = (0..self.rows.pair.len()).map(|row| row.is_multiple_of(2)).collect();
                self.rows.retain(&is_even);
                self.step = 2 * self.step.max(1);
            }
        }
    }
}

/// The first and the last capture time of an input, as far as it was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) first_ns: i64,
    pub(super) last_ns: i64,
    pub(super) is_ended: bool,
}

/// What a join writes.
#[derive(Debug)]
pub(super) struct Output {
    transits: [Decimated; 2],
    envelopes: [Envelope; 2],
    losses: PathLosses,
    doubts: PathDoubts,
    pub(super) losses_not_listed: u64,
    pub(super) waiting_dropped: u64,
    pub(super) spans: [Span; 2],
    pub(super) offset: Offset,
    pub(super) health: Health,
    /// By tap: capture time of the latest packet that both have seen.
    pub(super) matched_ns: [i64; 2],
    /// By sender and tap: the first and the last capture time of packets that both have seen.
    matched_spans: [[(i64, i64); 2]; 2],
}

impl Output {
    pub(super) fn new(offset_hint_ns: i64) -> Self {
        Self {
            transits: Default::default(),
            envelopes: Default::default(),
            losses: PathLosses::default(),
            doubts: PathDoubts::default(),
            losses_not_listed: 0,
            waiting_dropped: 0,
            spans: [Span { first_ns: i64::MAX, last_ns: i64::MIN, is_ended: false }; 2],
            offset: Offset::new(offset_hint_ns),
            health: Health::default(),
            matched_ns: [i64::MIN; 2],
            matched_spans: [[(i64::MAX, i64::MIN); 2]; 2],
        }
    }

    #[inline]
    pub(super) fn matched(&mut self, matched: &Matched) {
        let to_target = matched.sender == 0;
        let Matched { pair, sender, sent_ns, received_ns, bytes } = *matched;
        let (time_a_ns, time_b_ns) = if to_target { (sent_ns, received_ns) } else { (received_ns, sent_ns) };
        let transit_ns = time_b_ns.saturating_sub(time_a_ns);
        self.matched_ns[0] = self.matched_ns[0].max(time_a_ns);
        self.matched_ns[1] = self.matched_ns[1].max(time_b_ns);
        for (span, time_ns) in self.matched_spans[sender].iter_mut().zip([time_a_ns, time_b_ns]) {
            *span = (span.0.min(time_ns), span.1.max(time_ns));
        }
        self.health.note_matched(bytes > 0);
        self.offset.note(to_target, time_a_ns, transit_ns);
        self.envelopes[sender].note(time_a_ns, transit_ns);
        self.transits[sender].push(Transit { pair, to_target, time_a_ns, transit_ns, payload_bytes: bytes });
    }

    /// Clock of the tap that does not send less that of the one that does.
    pub(super) fn offset_ns(&self, sender: usize) -> i64 {
        if sender == 0 { self.offset.ns() } else { self.offset.ns().saturating_neg() }
    }

    /// Whether a packet at one tap passed between two packets of its direction that both taps saw, with this margin: the
    /// other capture was running. No clock is compared with another.
    pub(super) fn is_between(&self, sender: usize, tap: usize, time_ns: i64, margin_ns: i64) -> bool {
        let (first_ns, last_ns) = self.matched_spans[sender][tap];
        time_ns.saturating_sub(margin_ns) > first_ns && time_ns.saturating_add(margin_ns) < last_ns
    }

    /// Whether a packet of `time_ns` at one tap may have passed `tap` before its capture began or after it ended. The
    /// packets that both taps saw had transits within these bounds; this one may lie a little outside.
    pub(super) fn is_outside(&self, tap: usize, time_ns: i64, (least_ns, greatest_ns): (i64, i64)) -> bool {
        let span = self.spans[tap];
        let margin_ns = greatest_ns.saturating_sub(least_ns) / 4;
        time_ns.saturating_add(least_ns).saturating_sub(margin_ns) <= span.first_ns
            || (span.is_ended && time_ns.saturating_add(greatest_ns).saturating_add(margin_ns) >= span.last_ns)
    }

    pub(super) fn lose(&mut self, pair: u32, sender: usize, tap: usize, passage: &Passage, verdict: Verdict) {
        self.health.note_unmatched(tap, verdict);
        if self.losses.pair.len() >= LOSSES_MAX {
            self.losses_not_listed += 1;
            return;
        }
        let is_empty = passage.start == passage.end;
        let (first, last) =
            if is_empty { (passage.packet_start, passage.packet_start) } else { (passage.start, passage.end) };
        self.losses.push(PathLoss {
            pair,
            to_target: sender == 0,
            is_seen_at_a: tap == 0,
            time_ns: passage.time_ns,
            frame: passage.frame,
            sequence_number: passage.sequence_number.wrapping_add((first - passage.packet_start) as u32),
            first_offset_bytes: first,
            last_offset_bytes: last,
            flags: passage.flags,
            verdict: verdict as u8,
            is_overtaken: passage.fate.is_overtaken,
        });
    }

    /// Notes a packet whose bytes one that neither tap saw may have had before.
    pub(super) fn doubt(&mut self, pair: u32, sender: usize, doubtful: Doubtful) {
        if self.doubts.pair.len() >= LOSSES_MAX {
            self.losses_not_listed += 1;
            return;
        }
        let Doubtful { time_ns, frame } = doubtful;
        self.doubts.push(PathDoubt { pair, to_target: sender == 0, time_ns, frame });
    }

    /// The tables, to the target first; losses in order of their frames at each tap.
    pub(super) fn finish(self) -> (Transits, Envelopes, PathLosses, PathDoubts) {
        let [mut transits, mut back] = self.transits.map(|each| each.rows);
        transits.append(&mut back);
        let mut envelopes = Envelopes::default();
        for (to_target, each) in [true, false].into_iter().zip(&self.envelopes) {
            each.write(to_target, &mut envelopes);
        }
        let mut losses = self.losses;
        for (verdict, is_seen_at_a) in losses.verdict.iter_mut().zip(&losses.is_seen_at_a) {
            if *verdict == Verdict::LostUnlessMissed as u8 {
                *verdict = self.health.unless_missed(usize::from(*is_seen_at_a)) as u8;
            }
        }
        let mut rows: Vec<usize> = (0..losses.pair.len()).collect();
        rows.sort_by_key(|&row| (!losses.is_seen_at_a[row], losses.frame[row], losses.first_offset_bytes[row]));
        let mut sorted = PathLosses::default();
        sorted.copy_rows(&losses, &rows);
        (transits, envelopes, sorted, self.doubts)
    }
}
