//! Segments sent and not yet acknowledged: sacked, lost, retransmitted (RFC 6675, section 3).
//!
//! Counts are in segments, as in Linux. A segment never changes its bounds. Loss detection decides which segments are
//! lost.

use std::collections::VecDeque;

/// An unacknowledged segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// Its first place in the stream.
    pub start: i64,
    /// The place behind it.
    pub end: i64,
    /// Time of its last transmission.
    pub sent_ns: i64,
    /// The receiver sacked it.
    pub is_sacked: bool,
    /// It is marked lost; retransmitted since then if `is_retransmitted`.
    pub is_lost: bool,
    /// A retransmission is in flight.
    pub is_retransmitted: bool,
    /// It was retransmitted at some time: no RTT sample is taken from it (RFC 6298, section 3).
    pub was_retransmitted: bool,
}

/// All of them, in order.
#[derive(Debug, Default)]
pub struct Scoreboard {
    segments: VecDeque<Sent>,
    /// Transmissions in the order of time; stale ones are skipped.
    transmissions: VecDeque<(i64, i64)>,
    /// Selectively acknowledged segments; without SACK, duplicate ACKs.
    pub sacked_count: u32,
    /// Segments marked lost.
    pub lost_count: u32,
    /// Retransmissions in flight.
    pub retransmitted_count: u32,
    /// All segments ever marked lost.
    pub lost_total: u64,
    /// The place behind the highest sacked segment, while there is one.
    highest_sacked: i64,
    /// No lost segment without a retransmission starts before this.
    retransmit_from: i64,
}

impl Scoreboard {
    /// Segments sent and not cumulatively acknowledged.
    pub fn packets_out(&self) -> u32 {
        self.segments.len() as u32
    }

    /// Estimate of segments in flight: the pipe (RFC 6675, section 4).
    pub fn pipe(&self) -> u32 {
        (self.packets_out() + self.retransmitted_count).saturating_sub(self.sacked_count + self.lost_count)
    }

    /// The earliest segment.
    pub fn first(&self) -> Option<Sent> {
        self.segments.front().copied()
    }

    /// The latest segment.
    pub fn last(&self) -> Option<Sent> {
        self.segments.back().copied()
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Sent> {
        self.segments.iter()
    }

    /// The place behind the highest sacked segment; `otherwise` while there is none.
    pub fn highest_sacked(&self, otherwise: i64) -> i64 {
        if self.sacked_count > 0 { self.highest_sacked.max(otherwise) } else { otherwise }
    }

    /// Adds a new segment.
    pub fn push(&mut self, start: i64, end: i64, now_ns: i64) {
        self.segments.push_back(Sent {
            start,
            end,
            sent_ns: now_ns,
            is_sacked: false,
            is_lost: false,
            is_retransmitted: false,
            was_retransmitted: false,
        });
        self.transmissions.push_back((now_ns, start));
    }

    /// Removes the first segment if all of it is acknowledged. Duplicate ACKs, counted without SACK, stay.
    pub fn acknowledge(&mut self, place: i64) -> Option<Sent> {
        let sent = *self.segments.front()?;
        if sent.end > place {
            return None;
        }
        self.segments.pop_front();
        self.retransmitted_count -= u32::from(sent.is_retransmitted);
        self.sacked_count = self.sacked_count.saturating_sub(u32::from(sent.is_sacked));
        self.lost_count -= u32::from(sent.is_lost);
        while self.transmissions.front().is_some_and(|&(_, start)| start < sent.end) {
            self.transmissions.pop_front();
        }
        Some(sent)
    }

    /// Index of the segment that holds a place, or of the next one.
    fn index(&self, place: i64) -> usize {
        self.segments.partition_point(|sent| sent.end <= place)
    }

    /// The first segment that holds `from` or starts later.
    pub fn at(&self, from: i64) -> Option<Sent> {
        self.segments.get(self.index(from)).copied()
    }

    /// Sacks every segment that lies wholly in `start..end` and passes it, as it was, to `newly`.
    pub fn sack(&mut self, start: i64, end: i64, mut newly: impl FnMut(Sent, i64)) {
        let mut index = self.index(start);
        if self.segments.get(index).is_some_and(|sent| sent.start < start) {
            index += 1;
        }
        while let Some(sent) = self.segments.get_mut(index).filter(|sent| sent.end <= end) {
            index += 1;
            if sent.is_sacked {
                continue;
            }
            let highest = if self.sacked_count > 0 { self.highest_sacked } else { 0 };
            newly(*sent, highest);
            // A retransmission of a segment not marked lost counts as still in flight.
            if sent.is_lost {
                self.lost_count -= 1;
                self.retransmitted_count -= u32::from(sent.is_retransmitted);
                (sent.is_lost, sent.is_retransmitted) = (false, false);
            }
            sent.is_sacked = true;
            self.sacked_count += 1;
            self.highest_sacked = highest.max(sent.end);
        }
    }

    /// A duplicate of the segment that holds `place` arrived: its retransmission is no longer in flight.
    pub fn duplicate_arrived(&mut self, place: i64) {
        let index = self.index(place);
        if let Some(sent) = self.segments.get_mut(index)
            && sent.is_retransmitted
            && sent.is_sacked
        {
            sent.is_retransmitted = false;
            self.retransmitted_count -= 1;
        }
    }

    /// Marks the segment at `start` lost, and its retransmission if any.
    pub fn mark_lost(&mut self, start: i64) {
        let index = self.index(start);
        let Some(sent) = self.segments.get_mut(index).filter(|sent| !sent.is_sacked) else { return };
        if sent.is_lost {
            if !sent.is_retransmitted {
                return;
            }
            sent.is_retransmitted = false;
            self.retransmitted_count -= 1;
        } else {
            sent.is_lost = true;
            self.lost_count += 1;
        }
        self.lost_total += 1;
        self.retransmit_from = self.retransmit_from.min(sent.start);
    }

    /// Clears all loss marks.
    pub fn clear_lost(&mut self) {
        for sent in &mut self.segments {
            sent.is_lost = false;
        }
        self.lost_count = 0;
    }

    /// Clears all sacks: the receiver reneged (RFC 2018, section 8).
    pub fn clear_sacked(&mut self) {
        for sent in &mut self.segments {
            sent.is_sacked = false;
        }
        self.sacked_count = 0;
    }

    /// The next segment that is lost and not retransmitted.
    pub fn next_to_retransmit(&mut self) -> Option<Sent> {
        if self.lost_count == 0 {
            return None;
        }
        let mut index = self.index(self.retransmit_from);
        while let Some(sent) = self.segments.get(index) {
            if sent.is_lost && !sent.is_retransmitted && !sent.is_sacked {
                self.retransmit_from = sent.start;
                return Some(*sent);
            }
            index += 1;
        }
        self.retransmit_from = self.segments.back().map_or(self.retransmit_from, |sent| sent.end);
        None
    }

    /// The segment at `start` was retransmitted; a probe does not count as a retransmission in flight.
    pub fn retransmitted(&mut self, start: i64, now_ns: i64, is_probe: bool) {
        let index = self.index(start);
        let Some(sent) = self.segments.get_mut(index) else { return };
        sent.sent_ns = now_ns;
        sent.was_retransmitted = true;
        if !is_probe && !sent.is_retransmitted {
            sent.is_retransmitted = true;
            self.retransmitted_count += 1;
        }
        let start = sent.start;
        self.transmissions.push_back((now_ns, start));
    }

    /// Calls `judge` for each segment that is neither sacked nor awaiting retransmission, in the order of the last
    /// transmission, until it returns `Stop`; segments judged `Lost` are marked.
    pub fn judge_by_time(&mut self, mut judge: impl FnMut(&Sent) -> Judgement) {
        let mut position = 0;
        while let Some(&(sent_ns, start)) = self.transmissions.get(position) {
            let sent = self.segments.get(self.index(start)).copied();
            let current = sent.filter(|sent| sent.start == start && sent.sent_ns == sent_ns && !sent.is_sacked);
            let judgement = match &current {
                None => Judgement::Lost,
                Some(sent) if sent.is_lost && !sent.is_retransmitted => Judgement::NotYet,
                Some(sent) => judge(sent),
            };
            match judgement {
                Judgement::Stop => return,
                Judgement::NotYet => position += 1,
                Judgement::Lost => {
                    if current.is_some() {
                        self.mark_lost(start);
                    }
                    // Usually the front: everything older is acknowledged or lost.
                    self.transmissions.remove(position);
                }
            }
        }
    }
}

/// The judgement of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// It is lost.
    Lost,
    /// It may be lost later.
    NotYet,
    /// It, and everything sent later, cannot be judged yet.
    Stop,
}
