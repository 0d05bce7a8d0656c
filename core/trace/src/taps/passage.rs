//! Packets that one tap has seen and the other has not yet: in the order of their bytes, with what became of them.

use std::collections::{BTreeMap, VecDeque};

use iscsitrace_wire::serial::SerialNumber;

/// What the rest of the traffic says of a packet, or of a part of it, that only the sender's tap has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Fate {
    /// Its bytes begin below the highest that this tap had seen: most likely a retransmission.
    pub(super) is_repeat: bool,
    /// The receiver had acknowledged its bytes before it could arrive.
    pub(super) is_needless: bool,
    /// A later copy of its bytes passed the sender's tap before an ACK covered them.
    pub(super) is_resent: bool,
    /// The receiver acknowledged its bytes before any other copy of them passed the receiver's tap.
    pub(super) is_acknowledged: bool,
    /// Other copies of its bytes that passed the receiver's tap before an ACK covered them.
    pub(super) refills: u8,
    /// When a copy passed the receiver's tap, the receiver had acknowledged all bytes before these, and not these.
    pub(super) is_awaited: bool,
    /// The receiver still lacked its bytes when it must have answered them.
    pub(super) is_lacking: bool,
    /// The receiver may have discarded it as old: its ACKs echoed a later timestamp when it may have arrived (RFC 7323,
    /// section 5).
    pub(super) is_stale: bool,
    /// The opposite side echoed its timestamp, and no packet with that one had passed the receiver's tap.
    pub(super) is_echoed: bool,
    /// The receiver reported later bytes while it lacked these: it was overtaken, or another packet brought them.
    pub(super) is_overtaken: bool,
    /// D-SACKs that say that its bytes arrived once more, at the receiver's tap and at the sender's.
    pub(super) reports: [u8; 2],
    /// Other copies of its bytes that passed the receiver's tap when the receiver had them: each of them has such a report.
    pub(super) needless_refills: u8,
    /// It was looked at since another copy passed the receiver's tap: the answer to that has passed, too.
    pub(super) is_answered: bool,
}

impl Fate {
    /// Whether its bytes arrived once more than the receiver's tap shows.
    pub(super) fn is_reported_twice(&self) -> bool {
        self.reports.iter().any(|&reports| reports > self.needless_refills)
    }
}

/// One packet at one tap, or the part of it that the other tap has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passage {
    /// Offset of the first byte of the part; of a packet without bytes: the offset that it acknowledges.
    pub(super) start: i64,
    /// Offset after its last byte.
    pub(super) end: i64,
    /// Offset of the whole packet.
    pub(super) packet_start: i64,
    /// Offset after the whole packet.
    pub(super) packet_end: i64,
    pub(super) time_ns: i64,
    pub(super) frame: u64,
    /// Number among the packets of its direction at its tap.
    pub(super) serial: u64,
    /// Of its first byte, at its tap.
    pub(super) sequence_number: u32,
    pub(super) timestamps: Option<(u32, u32)>,
    pub(super) window: u16,
    pub(super) identification: u16,
    pub(super) flags: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    /// Hash of what identifies the packet.
    pub(super) fingerprint: u64,
    pub(super) fate: Fate,
}

impl Passage {
    /// Whether both are the whole of the same packet, as far as the sequence numbers tell.
    pub(super) fn has_same_bytes(&self, other: &Self) -> bool {
        (self.packet_start, self.packet_end) == (other.packet_start, other.packet_end)
    }
}

/// Where a passage waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Ahead(usize),
    Stray((i64, u64)),
}

/// The passages of one tap and direction that wait for the other tap.
#[derive(Debug)]
pub(super) struct Waiting {
    /// In order of their bytes, each beyond the one before: nearly always the first is the next that the other tap
    /// sees.
    ahead: VecDeque<Passage>,
    /// All others: copies, overtaken packets, and packets that others overtook. By first byte and serial number.
    strays: BTreeMap<(i64, u64), Passage>,
    /// Offset that a passage must reach to come behind those ahead.
    highest: i64,
    /// No stray is longer.
    longest: i64,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { ahead: VecDeque::new(), strays: BTreeMap::new(), highest: i64::MIN, longest: 0 }
    }
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.ahead.len() + self.strays.len()
    }

    #[inline]
    pub(super) fn push(&mut self, passage: Passage) {
        if passage.start >= self.highest {
            self.highest = passage.end;
            self.ahead.push_back(passage);
        } else {
            self.stray(passage);
        }
    }

    /// Adds a passage out of order.
    pub(super) fn stray(&mut self, passage: Passage) {
        self.longest = self.longest.max(passage.end - passage.start);
        self.strays.insert((passage.start, passage.serial), passage);
    }

    /// The one passage with at least one of these bytes, if it is the next and has exactly these: the common case.
    #[inline]
    pub(super) fn next_if(&self, start: i64, end: i64) -> Option<&Passage> {
        self.ahead.front().filter(|front| (front.start, front.end) == (start, end) && self.strays.is_empty())
    }

    /// The passages with at least one of these bytes; there is at least one.
    #[inline]
    pub(super) fn overlapping(&self, start: i64, end: i64) -> impl Iterator<Item = (Place, &Passage)> {
        let first = match self.ahead.front() {
            Some(front) if front.end <= start => self.ahead.partition_point(|each| each.end <= start),
            _ => 0,
        };
        let ahead = self.ahead.iter().enumerate().skip(first).take_while(move |(_, each)| each.start < end);
        let strays = self.strays.range((start.saturating_sub(self.longest), 0)..(end, 0));
        let strays = strays.filter(move |(_, each)| each.end > start);
        ahead
            .map(|(index, each)| (Place::Ahead(index), each))
            .chain(strays.map(|(key, each)| (Place::Stray(*key), each)))
    }

    /// The passages without bytes that acknowledge this offset.
    #[inline]
    pub(super) fn at(&self, offset: i64) -> impl Iterator<Item = (Place, &Passage)> {
        let first = match self.ahead.front() {
            Some(front) if front.start < offset => self.ahead.partition_point(|each| each.start < offset),
            _ => 0,
        };
        let ahead = self.ahead.iter().enumerate().skip(first).take_while(move |(_, each)| each.start == offset);
        let strays = self.strays.range((offset, 0)..=(offset, u64::MAX));
        ahead
            .map(|(index, each)| (Place::Ahead(index), each))
            .chain(strays.map(|(key, each)| (Place::Stray(*key), each)))
    }

    /// Takes these bytes of a passage out; the rest of it stays. Those ahead of it were overtaken and become strays.
    #[inline]
    pub(super) fn take(&mut self, place: Place, from: i64, to: i64) -> Option<Passage> {
        let taken = match place {
            Place::Ahead(index) => {
                self.overtake(index);
                let taken = self.ahead.pop_front()?;
                if to < taken.end {
                    self.ahead.push_front(Passage { start: to, ..taken });
                }
                taken
            }
            Place::Stray(key) => {
                let taken = self.strays.remove(&key)?;
                if to < taken.end {
                    self.stray(Passage { start: to, ..taken });
                }
                taken
            }
        };
        if taken.start < from {
            self.stray(Passage { end: from, ..taken });
        }
        Some(taken)
    }

    fn overtake(&mut self, count: usize) {
        for _ in 0..count {
            let Some(passage) = self.ahead.pop_front() else { break };
            self.stray(passage);
        }
    }

    /// Changes what is known of these bytes of the passages that `is_meant` selects. A SACK may have its edges the wrong
    /// way round: nothing is meant.
    pub(super) fn mark(&mut self, from: i64, to: i64, is_meant: impl Fn(&Passage) -> bool, change: impl Fn(&mut Fate)) {
        if from >= to {
            return;
        }
        let meant = |(place, passage): (Place, &Passage)| is_meant(passage).then_some(place);
        let places: Vec<Place> = self.overlapping(from, to).filter_map(meant).collect();
        let ahead =
            places.iter().filter_map(|place| if let Place::Ahead(index) = place { Some(index + 1) } else { None });
        let ahead: Vec<(i64, u64)> = match ahead.max() {
            Some(count) => {
                let keys = self.ahead.iter().take(count).map(|each| (each.start, each.serial)).collect();
                self.overtake(count);
                keys
            }
            None => Vec::new(),
        };
        let keys = places.into_iter().filter_map(|place| match place {
            Place::Ahead(index) => ahead.get(index).copied(),
            Place::Stray(key) => Some(key),
        });
        for key in keys {
            let Some(whole) = self.strays.remove(&key) else { continue };
            let (start, end) = (whole.start.max(from), whole.end.min(to));
            if whole.start < start {
                self.stray(Passage { end: start, ..whole });
            }
            if end < whole.end {
                self.stray(Passage { start: end, ..whole });
            }
            let mut marked = Passage { start, end, ..whole };
            change(&mut marked.fate);
            self.stray(marked);
        }
    }

    /// Takes out the passages before `limit_ns` that `is_settled` lets go.
    pub(super) fn expire(&mut self, limit_ns: i64, is_settled: impl Fn(&mut Passage) -> bool, out: &mut Vec<Passage>) {
        let late = self.ahead.iter().take_while(|each| each.time_ns < limit_ns).count();
        self.overtake(late);
        let mut gone = Vec::new();
        for (key, passage) in &mut self.strays {
            if passage.time_ns < limit_ns && is_settled(passage) {
                gone.push(*key);
            }
        }
        out.extend(gone.iter().filter_map(|key| self.strays.remove(key)));
    }

    /// Notes the echo of a timestamp if one packet alone sent it: that packet arrived.
    pub(super) fn note_echo(lists: [&mut Self; 2], timestamp: u32) {
        let sent = |each: &&mut Passage| each.timestamps.is_some_and(|(value, _)| value == timestamp);
        let mut found = lists.into_iter().flat_map(Self::all).filter(sent);
        if let (Some(only), None) = (found.next(), found.next()) {
            only.fate.is_echoed = true;
        }
    }

    /// Notes that the receiver discards what was sent before this timestamp; of passages since `since_ns`, which may
    /// arrive only now.
    pub(super) fn note_stale(&mut self, timestamp: u32, since_ns: i64) {
        let is_stale = |each: &Passage| {
            each.timestamps.is_some_and(|(value, _)| SerialNumber(value).is_before(SerialNumber(timestamp)))
        };
        // the timestamps of those ahead ascend
        let ahead = self.ahead.iter_mut().take_while(|each| is_stale(each));
        let strays = self.strays.values_mut().filter(|each| is_stale(each));
        for each in ahead.chain(strays).filter(|each| each.time_ns >= since_ns) {
            each.fate.is_stale = true;
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut Passage> {
        self.ahead.iter_mut().chain(self.strays.values_mut())
    }

    /// Takes out the one with the lowest bytes.
    pub(super) fn pop(&mut self) -> Option<Passage> {
        self.strays.pop_first().map(|(_, passage)| passage).or_else(|| self.ahead.pop_front())
    }
}
