//! Packets that neither tap saw: their sender's capture skips identifications that never pass the receiver's tap either.
//!
//! The capture of the sender's tap lacks such a packet, and the network lost it, or the other capture lacks it, too. Its
//! bytes come again in packets that look like the first ones with these bytes: when they were sent, nobody can tell.
//!
//! Linux numbers the packets of a connection one by one (`ip_select_ident_segs`), an offloaded one by its segments.
//! Where numbers are random, or shared with other traffic, too many are skipped: then nothing is noted.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::passage::Passage;

/// More packets in a row than that: another numbering, or so many that the bytes show it.
const SKIPPED_MAX: u16 = 1 << 10;
/// Steps by the number of segments for one that is greater: fewer, and the numbers say nothing.
const EXPECTED_PER_SKIP: u64 = 2;
/// Skips that wait for packets of either tap.
const WAITING_MAX: usize = 1 << 12;
/// Ethernet's, where the capture lacks the handshake.
const MSS_BYTES: u16 = 1460;
/// NOP, NOP and timestamps (RFC 7323, appendix A).
const TIMESTAMPS_BYTES: u16 = 12;

/// A packet with bytes that a skipped one may have had before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doubtful {
    pub(super) time_ns: i64,
    pub(super) frame: u64,
}

/// Packets that the capture skips, and those in which their bytes would come again.
#[derive(Debug)]
struct Skip {
    first: u16,
    count: u16,
    /// Its number among all skips.
    serial: u64,
    /// Segments of new data that are still to follow: as many as it skips.
    due: u16,
    followed: Vec<Doubtful>,
}

/// The numbers that one direction skips at its sender's tap.
#[derive(Debug, Default)]
pub(super) struct Skips {
    next: Option<u16>,
    expected: u64,
    count: u64,
    /// Those that wait for new data.
    open: Vec<Skip>,
    /// Those that wait for the receiver's tap, in order of the packet that ended them.
    ended: VecDeque<(i64, Skip)>,
    /// Serial of the skip of each skipped packet that the other tap has not seen.
    unseen: FxHashMap<u16, u64>,
    /// Of skips for which there was no room.
    dropped: Vec<Doubtful>,
}

impl Skips {
    /// Notes a packet at the sender's tap; `is_new`: with bytes that it had not shown before.
    #[inline]
    pub(super) fn sent(&mut self, passage: &Passage, is_new: bool, mss_bytes: Option<u16>) {
        let number = passage.identification;
        // none, unless the numbers wrap
        if number == 0 && self.next != Some(0) {
            return;
        }
        let segments = segments(passage, mss_bytes);
        let ahead = self.next.map_or(0, |next| number.wrapping_sub(next));
        // a packet that another one overtook within the host is behind
        if ahead.cast_signed() >= 0 {
            self.next = Some(number.wrapping_add(segments));
            self.expected += u64::from(ahead == 0);
            if ahead > 0 {
                self.skip(number.wrapping_sub(ahead), ahead);
            }
        }
        if is_new && !self.open.is_empty() {
            self.follow(Doubtful { time_ns: passage.time_ns, frame: passage.frame }, segments);
        }
    }

    #[cold]
    fn skip(&mut self, first: u16, count: u16) {
        let serial = self.count;
        self.count += 1;
        if count > SKIPPED_MAX || !self.is_numbered() {
            return;
        }
        if self.open.len() >= WAITING_MAX {
            let unseen = &self.unseen;
            self.open.retain(|each| is_unseen(each, unseen));
        }
        if self.open.len() < WAITING_MAX {
            self.unseen.extend((0..count).map(|place| (first.wrapping_add(place), serial)));
            self.open.push(Skip { first, count, serial, due: count, followed: Vec::new() });
        }
    }

    #[cold]
    fn follow(&mut self, new: Doubtful, segments: u16) {
        for each in &mut self.open {
            each.due = each.due.saturating_sub(segments);
            each.followed.push(new);
        }
        self.ended.extend(self.open.extract_if(.., |each| each.due == 0).map(|each| (new.time_ns, each)));
        while self.ended.len() > WAITING_MAX
            && let Some((_, oldest)) = self.ended.pop_front()
        {
            if is_unseen(&oldest, &self.unseen) {
                self.dropped.extend_from_slice(&oldest.followed);
            }
        }
    }

    /// Notes a packet that the receiver's tap alone saw.
    pub(super) fn received(&mut self, passage: &Passage, mss_bytes: Option<u16>) {
        if !self.unseen.is_empty() {
            for place in 0..segments(passage, mss_bytes) {
                self.unseen.remove(&passage.identification.wrapping_add(place));
            }
        }
    }

    /// The packets in doubt of skips that ended before `limit_ns`; at the end of the input of all.
    pub(super) fn expire(&mut self, limit_ns: i64, is_end: bool) -> Vec<Doubtful> {
        let mut found = std::mem::take(&mut self.dropped);
        if is_end {
            self.ended.extend(self.open.drain(..).map(|each| (limit_ns, each)));
        }
        while self.ended.front().is_some_and(|&(time_ns, _)| is_end || time_ns < limit_ns)
            && let Some((_, oldest)) = self.ended.pop_front()
        {
            if self.is_numbered() && is_unseen(&oldest, &self.unseen) {
                found.extend_from_slice(&oldest.followed);
            }
            for number in numbers(&oldest) {
                if self.unseen.get(&number) == Some(&oldest.serial) {
                    self.unseen.remove(&number);
                }
            }
        }
        // packets without bytes may follow each other for long
        let unseen = &self.unseen;
        self.open.retain(|each| is_unseen(each, unseen));
        found.sort_unstable_by_key(|each| each.frame);
        found.dedup();
        found
    }

    fn is_numbered(&self) -> bool {
        self.expected >= self.count.saturating_mul(EXPECTED_PER_SKIP)
    }
}

fn numbers(skip: &Skip) -> impl Iterator<Item = u16> {
    let first = skip.first;
    (0..skip.count).map(move |place| first.wrapping_add(place))
}

/// Whether the receiver's tap has not seen one of its packets either; if a later packet has its number, it may not have.
fn is_unseen(skip: &Skip, unseen: &FxHashMap<u16, u64>) -> bool {
    numbers(skip).any(|number| unseen.get(&number).is_some_and(|&serial| serial >= skip.serial))
}

/// Segments of a packet: more than one if it is to be cut, or was merged.
#[inline]
fn segments(passage: &Passage, mss_bytes: Option<u16>) -> u16 {
    let bytes = passage.packet_end - passage.packet_start;
    let options = if passage.timestamps.is_some() { TIMESTAMPS_BYTES } else { 0 };
    let each = i64::from(mss_bytes.unwrap_or(MSS_BYTES).saturating_sub(options).max(1));
    if bytes <= each { 1 } else { u16::try_from((bytes + each - 1) / each).unwrap_or(u16::MAX) }
}
