//! Where in a stream the PDUs of cycles lie, until they are acknowledged and a little longer.
//!
//! Used to find when a cycle's last data byte was acknowledged, and whose bytes were retransmitted. Only offsets are
//! kept.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use crate::stream::near::{Near, lower};
use crate::tables::{CycleId, Cycles, NULL_NS};

/// Spans kept after their ACK, for retransmissions that crossed it.
const ACKNOWLEDGED_KEPT: usize = 64;
/// Maximum spans, if nothing is ever acknowledged (a capture of one direction).
const SPANS_MAX: usize = 1 << 16;
/// ACKs kept for data that is read after its ACK, because the tap saw it late.
const ACKS_KEPT: usize = 4096;
/// The same while the headers of PDUs are being assumed.
const ACKS_KEPT_WAITING: usize = 1 << 16;

/// A PDU whose last data byte was not acknowledged so far.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Span {
    start: i64,
    end: i64,
    cycle: CycleId,
    /// The end of its data, if it carries any, and when that passed the tap: padding and digest come after.
    data: Option<(i64, i64)>,
    /// When its status passed the tap; null if it has none.
    status_ns: i64,
}

impl Span {
    /// What has to be acknowledged of it.
    fn needed(&self) -> i64 {
        self.data.map_or(self.end, |(end, _)| end)
    }
}

/// What is kept of a PDU after its ACK: small, because a connection keeps up to 64 of these in each direction.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Acknowledged {
    start: u32,
    end: u32,
    cycle: CycleId,
}

/// The time of the ACK; null if it passed the tap before the data did: the capture has the packets in another order.
fn acked_after(last_ns: i64, acked_ns: i64) -> i64 {
    if acked_ns < last_ns { NULL_NS } else { acked_ns }
}

/// The spans of one direction.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Spans {
    /// In order of the stream: the latest that were acknowledged, and all after them.
    acknowledged: VecDeque<Acknowledged>,
    near: Near,
    waiting: VecDeque<Span>,
    /// The last ACKs with progress, from the first on that can cover the next PDU: offset and time, oldest first.
    acks: VecDeque<(i64, i64)>,
    /// What ACKs that are no longer kept covered.
    forgotten_acks: Option<i64>,
    /// When bytes of the direction were retransmitted most recently.
    resent_ns: Option<i64>,
    /// Whether acknowledged bytes may be assigned to a cycle much later.
    pub is_waiting: bool,
}

impl Spans {
    /// Adds a PDU of a cycle in [start, end) of the stream; `data` is the end of its data, if it carries any,
    /// and when that passed the tap.
    pub fn push(&mut self, range: (i64, i64), data: Option<(i64, i64)>, cycle: CycleId, cycles: &mut Cycles) {
        self.push_answer(range, data, NULL_NS, cycle, cycles);
    }

    /// The same of a PDU whose status passed the tap then; null if it has none.
    pub fn push_answer(
        &mut self,
        (start, end): (i64, i64),
        data: Option<(i64, i64)>,
        status_ns: i64,
        cycle: CycleId,
        cycles: &mut Cycles,
    ) {
        let span = Span { start, end, cycle, data, status_ns };
        let is_acknowledged = self.acks.back().is_some_and(|&(offset, _)| offset >= span.needed());
        if let Some((data_end, last_ns)) = data {
            let acked_ns = if is_acknowledged { self.first_covering(data_end) } else { NULL_NS };
            let row = cycles.row(cycle);
            cycles.data_acked_ns[row] = acked_after(last_ns, acked_ns);
        }
        if is_acknowledged && self.waiting.is_empty() {
            self.keep(span);
        } else {
            self.waiting.push_back(span);
        }
        if self.acknowledged.len() + self.waiting.len() > SPANS_MAX && self.acknowledged.pop_front().is_none() {
            self.waiting.pop_front();
        }
        // those that can cover no later PDU; the last says what is acknowledged
        while self.acks.len() > 1 && self.acks.front().is_some_and(|&(offset, _)| offset <= end) {
            self.forget_ack();
        }
    }

    fn forget_ack(&mut self) {
        if let Some((offset, _)) = self.acks.pop_front() {
            self.forgotten_acks = Some(offset);
        }
    }

    /// Prefetches what changes next.
    pub fn prefetch(&self) {
        iscsitrace_sys::prefetch_ends(&self.acks);
        iscsitrace_sys::prefetch_ends(&self.acknowledged);
        iscsitrace_sys::prefetch_ends(&self.waiting);
    }

    /// Drops everything: no PDU follows.
    pub fn clear(&mut self) {
        (self.acknowledged, self.waiting, self.acks) = Default::default();
    }

    /// The time of the first ACK that covers `end`; null if it is no longer kept.
    fn first_covering(&self, end: i64) -> i64 {
        if Some(end) <= self.forgotten_acks {
            return NULL_NS;
        }
        let place = self.acks.partition_point(|&(offset, _)| offset < end);
        self.acks.get(place).map_or(NULL_NS, |ack| ack.1)
    }

    /// Notes an ACK for all bytes below `offset`.
    #[inline]
    pub fn acknowledge(&mut self, offset: i64, time_ns: i64, cycles: &mut Cycles) {
        if self.acks.back().is_some_and(|&(last, _)| offset <= last) {
            return;
        }
        let kept = if self.is_waiting { ACKS_KEPT_WAITING } else { ACKS_KEPT };
        while self.acks.len() >= kept {
            self.forget_ack();
        }
        self.acks.push_back((offset, time_ns));
        while let Some(&span) = self.waiting.front()
            && span.needed() <= offset
        {
            if let Some((_, last_ns)) = span.data
                && let row = cycles.row(span.cycle)
                && let Some(acked_ns) = cycles.data_acked_ns.get_mut(row)
            {
                *acked_ns = acked_after(last_ns, time_ns);
            }
            if span.status_ns != NULL_NS
                && self.resent_ns.is_some_and(|resent_ns| (span.status_ns..time_ns).contains(&resent_ns))
            {
                let row = cycles.row(span.cycle);
                cycles.status_acked_ns.set(row, time_ns);
            }
            self.waiting.pop_front();
            self.keep(span);
        }
    }

    /// Keeps a span that was acknowledged.
    fn keep(&mut self, span: Span) {
        if self.acknowledged.len() == ACKNOWLEDGED_KEPT {
            self.acknowledged.pop_front();
        }
        if let Some(moved) = self.near.reach(span.end) {
            self.acknowledged.retain_mut(|span| lower(&mut span.start, moved) && lower(&mut span.end, moved));
        }
        let [start, end] = [span.start, span.end].map(|offset| self.near.of(offset));
        self.acknowledged.push_back(Acknowledged { start, end, cycle: span.cycle });
    }

    /// The cycles of bytes in [start, end).
    pub fn cycles_of(&self, start: i64, end: i64) -> impl Iterator<Item = CycleId> + '_ {
        // sorted by stream offset
        let [near_start, near_end] = [start, end].map(|offset| self.near.of(offset));
        let acknowledged = self.acknowledged.range(self.acknowledged.partition_point(|span| span.end <= near_start)..);
        let waiting = self.waiting.range(self.waiting.partition_point(|span| span.end <= start)..);
        acknowledged
            .take_while(move |span| span.start < near_end)
            .map(|span| span.cycle)
            .chain(waiting.take_while(move |span| span.start < end).map(|span| span.cycle))
    }

    /// Marks the cycles of bytes in [start, end) that were retransmitted then.
    pub fn mark_retransmitted(&mut self, start: i64, end: i64, time_ns: i64, cycles: &mut Cycles) {
        self.resent_ns = Some(time_ns);
        for cycle in self.cycles_of(start, end) {
            let row = cycles.row(cycle);
            if let Some(has_retransmission) = cycles.has_retransmission.get_mut(row) {
                *has_retransmission = true;
            }
        }
    }

    /// The cycles whose data waits for its ACK; none without any ACK so far.
    pub fn unacknowledged(&self) -> impl Iterator<Item = CycleId> + '_ {
        let has_acks = !self.acks.is_empty();
        self.waiting.iter().filter(move |span| has_acks && span.data.is_some()).map(|span| span.cycle)
    }

    /// All cycles that a retransmission could be of.
    pub fn cycles(&self) -> impl Iterator<Item = CycleId> + '_ {
        self.acknowledged.iter().map(|span| span.cycle).chain(self.waiting.iter().map(|span| span.cycle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::CycleRow;

    fn cycles() -> Cycles {
        let mut cycles = Cycles::default();
        cycles.push(CycleRow::default());
        cycles.push(CycleRow::default());
        cycles
    }

    #[test]
    fn the_ack_of_the_last_data_byte_counts() {
        let (mut spans, mut cycles) = (Spans::default(), cycles());
        spans.push((0, 10), Some((10, i64::MIN)), CycleId::new(0), &mut cycles);
        spans.acknowledge(10, 1, &mut cycles);
        assert_eq!(cycles.data_acked_ns[0], 1);
        spans.push((10, 20), Some((20, i64::MIN)), CycleId::new(0), &mut cycles);
        assert_eq!(cycles.data_acked_ns[0], NULL_NS);
        spans.push((20, 30), Some((30, i64::MIN)), CycleId::new(1), &mut cycles);
        spans.acknowledge(19, 2, &mut cycles);
        assert_eq!(cycles.data_acked_ns[0], NULL_NS);
        spans.acknowledge(25, 3, &mut cycles);
        spans.acknowledge(30, 4, &mut cycles);
        assert_eq!(cycles.data_acked_ns, [3, 4]);
    }

    #[test]
    fn data_seen_after_its_ack_has_the_time_of_that_ack() {
        let (mut spans, mut cycles) = (Spans::default(), cycles());
        spans.acknowledge(5, 1, &mut cycles);
        spans.acknowledge(12, 2, &mut cycles);
        spans.acknowledge(40, 3, &mut cycles);
        spans.push((0, 10), Some((10, i64::MIN)), CycleId::new(0), &mut cycles);
        spans.push((10, 20), Some((20, i64::MIN)), CycleId::new(1), &mut cycles);
        assert_eq!(cycles.data_acked_ns, [2, 3]);
    }

    #[test]
    fn an_ack_that_can_cover_no_later_pdu_is_forgotten() {
        let (mut spans, mut cycles) = (Spans::default(), cycles());
        (1..=3).for_each(|ack| spans.acknowledge(ack * 10, ack, &mut cycles));
        spans.push((0, 10), Some((10, i64::MIN)), CycleId::new(0), &mut cycles);
        assert_eq!(spans.acks, [(20, 2), (30, 3)]);
        spans.push((10, 19), Some((19, i64::MIN)), CycleId::new(1), &mut cycles);
        assert_eq!((cycles.data_acked_ns[0], cycles.data_acked_ns[1]), (1, 2));
        // the last says what is acknowledged
        spans.push((19, 40), Some((40, i64::MIN)), CycleId::new(1), &mut cycles);
        assert_eq!((&spans.acks, cycles.data_acked_ns[1]), (&[(30, 3)].into(), NULL_NS));
    }

    #[test]
    fn padding_and_digest_are_no_data() {
        let (mut spans, mut cycles) = (Spans::default(), cycles());
        spans.push((0, 12), Some((9, i64::MIN)), CycleId::new(0), &mut cycles);
        spans.acknowledge(8, 1, &mut cycles);
        assert_eq!(cycles.data_acked_ns[0], NULL_NS);
        spans.acknowledge(9, 2, &mut cycles);
        spans.acknowledge(12, 3, &mut cycles);
        spans.push((12, 24), Some((21, i64::MIN)), CycleId::new(1), &mut cycles);
        spans.acknowledge(24, 4, &mut cycles);
        assert_eq!(cycles.data_acked_ns, [2, 4]);
    }

    #[test]
    fn an_ack_of_before_the_data_is_not_that_of_the_data() {
        for (last_ns, acked_ns) in [(2, 2), (3, NULL_NS)] {
            let (mut spans, mut cycles) = (Spans::default(), cycles());
            spans.acknowledge(5, 1, &mut cycles);
            spans.acknowledge(12, 2, &mut cycles);
            spans.push((0, 10), Some((10, last_ns)), CycleId::new(0), &mut cycles);
            assert_eq!(cycles.data_acked_ns[0], acked_ns);
            // the same where the data was read before its ACK
            let mut spans = Spans::default();
            spans.push((0, 4), Some((4, 1)), CycleId::new(0), &mut cycles);
            spans.push((4, 10), Some((10, last_ns)), CycleId::new(0), &mut cycles);
            spans.acknowledge(12, 2, &mut cycles);
            assert_eq!(cycles.data_acked_ns[0], acked_ns);
        }
    }

    #[test]
    fn an_ack_is_kept_longer_while_bytes_wait_for_their_cycle() {
        let acknowledge_all = |spans: &mut Spans, cycles: &mut Cycles| {
            (1..=2 * ACKS_KEPT as i64).for_each(|place| spans.acknowledge(place * 10, place, cycles));
        };
        let (mut spans, mut cycles) = (Spans::default(), cycles());
        acknowledge_all(&mut spans, &mut cycles);
        spans.push((0, 20), Some((20, i64::MIN)), CycleId::new(0), &mut cycles);
        assert_eq!(cycles.data_acked_ns[0], NULL_NS);
        let mut spans = Spans { is_waiting: true, ..Spans::default() };
        acknowledge_all(&mut spans, &mut cycles);
        spans.push((0, 20), Some((20, i64::MIN)), CycleId::new(0), &mut cycles);
        assert_eq!(cycles.data_acked_ns[0], 2);
        spans.is_waiting = false;
        spans.acknowledge(i64::MAX, 0, &mut cycles);
        assert_eq!(spans.acks.len(), ACKS_KEPT);
    }

    #[test]
    fn bytes_belong_to_their_cycles_until_64_pdus_after_their_ack() {
        // 100 PDUs of 10 bytes, each of a cycle of its own; all but the last three are acknowledged
        let (mut spans, mut cycles) = (Spans::default(), Cycles::default());
        for cycle in 0..100_u32 {
            cycles.push(CycleRow::default());
            let start = i64::from(cycle) * 10;
            spans.push((start, start + 10), Some((start + 10, i64::MIN)), CycleId::new(cycle), &mut cycles);
            spans.acknowledge(start - 20, start, &mut cycles);
        }
        let of = |spans: &Spans, start, end| spans.cycles_of(start, end).map(CycleId::number).collect::<Vec<_>>();
        assert!(spans.cycles().map(CycleId::number).eq(33..100));
        assert!(spans.unacknowledged().map(CycleId::number).eq(97..100));
        assert_eq!(of(&spans, 0, 330), [0; 0]);
        assert_eq!((of(&spans, 329, 331), of(&spans, 335, 350)), (vec![33], vec![33, 34]));
        // over the border of what is acknowledged
        assert_eq!((of(&spans, 960, 980), of(&spans, 985, 5000)), (vec![96, 97], vec![98, 99]));
        // the ACK of one that left changes no row
        cycles.let_go(&(0..100).map(|row| row != 97).collect::<Vec<_>>());
        spans.acknowledge(990, 7, &mut cycles);
        assert_eq!(cycles.data_acked_ns[96..], [990, 7, NULL_NS]);
    }

    #[test]
    fn retransmitted_bytes_mark_their_cycles_even_after_the_ack() {
        let (mut spans, mut cycles) = (Spans::default(), cycles());
        spans.push((0, 10), None, CycleId::new(0), &mut cycles);
        spans.push((10, 20), Some((20, i64::MIN)), CycleId::new(1), &mut cycles);
        spans.acknowledge(20, 1, &mut cycles);
        spans.mark_retransmitted(8, 10, 1, &mut cycles);
        assert_eq!(cycles.has_retransmission, [true, false]);
    }

    #[test]
    fn the_ack_of_a_status_counts_after_a_retransmission() {
        let acked = |resent_ns: Option<i64>, data: Option<(i64, i64)>| {
            let (mut spans, mut cycles) = (Spans::default(), cycles());
            spans.push_answer((0, 10), data, 5, CycleId::new(0), &mut cycles);
            spans.push((10, 20), None, CycleId::new(1), &mut cycles);
            if let Some(resent_ns) = resent_ns {
                spans.mark_retransmitted(0, 4, resent_ns, &mut cycles);
            }
            spans.acknowledge(20, 9, &mut cycles);
            [0, 1].map(|row| cycles.status_acked_ns[row])
        };
        assert_eq!(acked(Some(7), None), [9, NULL_NS]);
        // in the last Data-In
        assert_eq!(acked(Some(7), Some((10, 5))), [9, NULL_NS]);
        // an ACK that was only late, and a retransmission before the status
        assert_eq!(acked(None, None), [NULL_NS; 2]);
        assert_eq!(acked(Some(4), None), [NULL_NS; 2]);
    }
}
