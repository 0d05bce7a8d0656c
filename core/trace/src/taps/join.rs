//! Two captures in lockstep: the tap that is behind, by time corrected with the offset of the clocks, is read on.

use iscsitrace_wire::frame::segment;

use super::direction::Direction;
use super::header::Header;
use super::numbering::Numbering;
use super::output::Output;
use super::verdict::Verdict;
use crate::counters::{Counter, Counters};
use crate::pass::Interrupted;
use crate::pipeline::counter_rows;
use crate::reader::CaptureError;
use crate::reader::sequence::{Input, Progress, Sequence};
use crate::stream::table::Endpoint;
use crate::tables::taps::{Joined, Path, Paths};
use crate::tables::{NULL_NS, NULL_U8, NULL_U16};

/// A packet is judged when both taps have seen one that came so much later. Longer than any queue on a path.
const PATIENCE_NS: i64 = 2_000_000_000;
/// Time between two searches for packets to judge.
const EXPIRE_EVERY_NS: i64 = 500_000_000;
/// Packets between two calls of `report`.
const REPORT_EVERY_PACKETS: u64 = 1 << 14;

/// A connection of tap a, and the same of tap b.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Their numbers.
    pub connections: [u32; 2],
    /// Whether the client, as [`connections_seen`](super::connections_seen) has it, is the target.
    pub is_client_target: [bool; 2],
}

/// The next packet of a pair at one tap.
#[derive(Debug, Clone, Copy)]
struct Head {
    pair: u32,
    to_target: bool,
    header: Header,
}

/// One capture.
struct Tap {
    sequence: Sequence,
    counters: Counters,
    numbering: Numbering,
    /// By connection: its pair, and whether its client is the target.
    pairs: Vec<Option<(u32, bool)>>,
    head: Option<Head>,
    packet_count: u64,
}

impl Tap {
    fn open(inputs: Vec<Input>, pairs: &[Pair], tap: usize) -> Result<Self, CaptureError> {
        let mut counters = Counters::default();
        let sequence = Sequence::open(inputs, &mut counters)?;
        let greatest = pairs.iter().map(|pair| pair.connections[tap] as usize + 1).max().unwrap_or(0);
        let mut by_connection = vec![None; greatest];
        for (number, pair) in (0..).zip(pairs) {
            by_connection[pair.connections[tap] as usize] = Some((number, pair.is_client_target[tap]));
        }
        let numbering = Numbering::default();
        Ok(Self { sequence, counters, numbering, pairs: by_connection, head: None, packet_count: 0 })
    }

    /// Reads on to the next packet of a pair; notes when the capture begins and ends.
    fn advance(&mut self, tap: usize, output: &mut Output) -> Result<(), CaptureError> {
        self.head = None;
        while let Some(packet) = self.sequence.next_packet(&mut self.counters)? {
            self.packet_count += 1;
            let span = &mut output.spans[tap];
            span.first_ns = span.first_ns.min(packet.time_ns);
            span.last_ns = span.last_ns.max(packet.time_ns);
            let Ok(segment) = segment(packet.link_type, packet.data, packet.original_length) else { continue };
            let (connection, direction) = self.numbering.place(&segment);
            let Some(&Some((pair, is_client_target))) = self.pairs.get(connection as usize) else { continue };
            let to_target = (direction == 0) != is_client_target;
            self.head = Some(Head { pair, to_target, header: Header::new(&packet, &segment) });
            return Ok(());
        }
        output.spans[tap].is_ended = true;
        Ok(())
    }

    /// Initiator and target of a pair.
    fn ends(&self, pair: Pair, tap: usize) -> Option<[Endpoint; 2]> {
        let [client, server] = self.numbering.ends(pair.connections[tap])?;
        Some(if pair.is_client_target[tap] { [server, client] } else { [client, server] })
    }
}

/// The pairs of directions, and what they write to.
struct Join {
    /// By pair: to the target, to the initiator.
    directions: Vec<[Direction; 2]>,
    output: Output,
    expired_ns: [i64; 2],
}

impl Join {
    #[inline]
    fn take(&mut self, tap: usize, head: &Head) {
        let Some([to_target, to_initiator]) = self.directions.get_mut(head.pair as usize) else { return };
        let (direction, opposite) = if head.to_target { (to_target, to_initiator) } else { (to_initiator, to_target) };
        let header = &head.header;
        let side = opposite.side(tap);
        let acknowledged = if header.flags.is_ack() { opposite.acknowledge(side, header) } else { None };
        let side = direction.side(tap);
        direction.see(side, header, acknowledged, &mut self.output);
        let [a_ns, b_ns] = self.output.matched_ns;
        let is_due = |now_ns: i64, then_ns: i64| now_ns.saturating_sub(then_ns) > EXPIRE_EVERY_NS;
        if is_due(a_ns, self.expired_ns[0]) || is_due(b_ns, self.expired_ns[1]) {
            self.expired_ns = [a_ns, b_ns];
            self.expire([a_ns, b_ns].map(|now_ns| now_ns.saturating_sub(PATIENCE_NS)), false);
        }
    }

    fn expire(&mut self, limits_ns: [i64; 2], is_end: bool) {
        for direction in self.directions.iter_mut().flatten() {
            let limits_ns = if direction.to_target() { limits_ns } else { [limits_ns[1], limits_ns[0]] };
            direction.expire(limits_ns, is_end, &mut self.output);
        }
    }
}

/// Reads two captures; `offset_hint_ns` is clock of b less clock of a, to within some 100 ms.
///
/// # Errors
/// As [`crate::pass::run`], for either capture.
pub fn join<E>(
    inputs: [Vec<Input>; 2],
    pairs: &[Pair],
    offset_hint_ns: i64,
    mut report: impl FnMut([&Progress; 2]) -> Result<(), E>,
) -> Result<Joined, Interrupted<E>> {
    // passes in other threads have left memory that this one cannot use
    iscsitrace_sys::give_back();
    let [inputs_a, inputs_b] = inputs;
    let mut taps = [Tap::open(inputs_a, pairs, 0)?, Tap::open(inputs_b, pairs, 1)?];
    let progress = [taps[0].sequence.progress(), taps[1].sequence.progress()];
    let directions = (0..pairs.len() as u32).map(|pair| [Direction::new(pair, 0), Direction::new(pair, 1)]).collect();
    let mut join = Join { directions, output: Output::new(offset_hint_ns), expired_ns: [i64::MIN; 2] };
    for (tap, capture) in taps.iter_mut().enumerate() {
        capture.advance(tap, &mut join.output)?;
    }
    let mut until_report = REPORT_EVERY_PACKETS;
    loop {
        let tap = match [&taps[0].head, &taps[1].head] {
            [None, None] => break,
            [Some(_), None] => 0,
            [None, Some(_)] => 1,
            [Some(a), Some(b)] => {
                usize::from(b.header.time_ns.saturating_sub(join.output.offset.ns()) < a.header.time_ns)
            }
        };
        if let Some(head) = &taps[tap].head {
            join.take(tap, head);
        }
        taps[tap].advance(tap, &mut join.output)?;
        until_report -= 1;
        if until_report == 0 {
            until_report = REPORT_EVERY_PACKETS;
            report([&progress[0], &progress[1]]).map_err(Interrupted::Caller)?;
        }
    }
    join.expire([i64::MAX; 2], true);
    Ok(finish(join, &taps, pairs))
}

fn finish(join: Join, taps: &[Tap; 2], pairs: &[Pair]) -> Joined {
    let mut paths = Paths::default();
    for (directions, &pair) in join.directions.iter().zip(pairs) {
        let ends = [taps[0].ends(pair, 0), taps[1].ends(pair, 1)];
        let is_translated = matches!(ends, [Some(a), Some(b)] if a != b);
        for direction in directions {
            let unless_missed = join.output.health.unless_missed(1 - direction.sender);
            paths.push(path(direction, pair, is_translated, unless_missed));
        }
    }
    let mut counters = Counters::default();
    counters.add_many(Counter::JoinWaitingDropped, None, 0, join.output.waiting_dropped);
    counters.add_many(Counter::JoinLossesNotListed, None, 0, join.output.losses_not_listed);
    let counters = [counter_rows(&taps[0].counters), counter_rows(&taps[1].counters), counter_rows(&counters)];
    let (transits, envelope, path_losses, path_doubts) = join.output.finish();
    Joined { transits, envelope, path_losses, path_doubts, paths, counters }
}

/// A row of `paths`.
fn path(direction: &Direction, pair: Pair, is_translated: bool, unless_missed: Verdict) -> Path {
    let counts = &direction.counts;
    let receiver = 1 - direction.sender;
    let [packets_a, packets_b] = by_tap(direction, counts.packets);
    let mut copies = by_tap(direction, counts.copies);
    // a capture that holds its packets twice holds nearly all of them twice; the network duplicates a few
    let is_doubled = 2 * copies[receiver] > [packets_a, packets_b][receiver];
    let by_network = if is_doubled { 0 } else { copies[receiver].saturating_sub(copies[direction.sender]) };
    copies[receiver] -= by_network;
    let [mss_a_bytes, mss_b_bytes] = by_tap(direction, counts.mss_bytes.map(|mss| mss.unwrap_or(NULL_U16)));
    let [window_scale_a, window_scale_b] = by_tap(direction, counts.window_scale.map(|scale| scale.unwrap_or(NULL_U8)));
    let (least_ns, greatest_ns) = match counts.transit_ns {
        Some((least, greatest)) if direction.to_target() => (least, greatest),
        Some((least, greatest)) => (greatest.saturating_neg(), least.saturating_neg()),
        None => (NULL_NS, NULL_NS),
    };
    let hops = (0_u8..).zip(counts.hops).max_by_key(|&(_, packets)| packets);
    let (mut unmatched, mut unmatched_empty) = (counts.unmatched, counts.unmatched_empty);
    for counts in [&mut unmatched, &mut unmatched_empty] {
        let doubtful = std::mem::take(&mut counts[Verdict::LostUnlessMissed as usize]);
        counts[unless_missed as usize] += doubtful;
    }
    let unmatched = |verdict: Verdict| unmatched[verdict as usize];
    Path {
        pair: direction.pair,
        connection_a: pair.connections[0],
        connection_b: pair.connections[1],
        to_target: direction.to_target(),
        packets_a,
        packets_b,
        copies_a: copies[0],
        copies_b: copies[1],
        matched: counts.matched,
        lost: unmatched(Verdict::LostInNetwork),
        missing_at_a: unmatched(Verdict::MissingAtA),
        missing_at_b: unmatched(Verdict::MissingAtB),
        cannot_tell: unmatched(Verdict::CannotTell),
        cannot_tell_empty: unmatched_empty[Verdict::CannotTell as usize],
        outside: counts.outside,
        duplicated: counts.duplicated + by_network,
        reordered: counts.reordered,
        dscp_changed: counts.dscp_changed,
        ce_marked: counts.ce_marked,
        mss_a_bytes,
        mss_b_bytes,
        window_scale_a,
        window_scale_b,
        hops: hops.filter(|&(_, packets)| packets > 0).map_or(NULL_U8, |(hops, _)| hops),
        is_translated,
        is_terminated: direction.evidence.is_contradicted(),
        least_ns,
        greatest_ns,
    }
}

/// Values of the sender's and the receiver's tap, by tap.
fn by_tap<T: Copy>(direction: &Direction, [of_sender, of_receiver]: [T; 2]) -> [T; 2] {
    if direction.to_target() { [of_sender, of_receiver] } else { [of_receiver, of_sender] }
}
