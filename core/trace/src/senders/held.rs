//! When a sender was held, and by what: spans, each from the stop before a gap to the packet after it. Gaps with the same
//! cause in a row are one span, because what ACKs let out between them is no end of it.
//!
//! After the pass the spans of a sender are settled: disjoint, the strongest part first. The time breakdown takes them, and
//! the columns of `senders` are their sums, so both say the same to the nanosecond.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::gap::{Gap, Held};
use super::silence::Silence;
use super::timeline::{Limited, Timeline};
use super::window_scale::WindowScale;
use crate::tables::{Cycles, NULL_NS, NULL_U64, Senders, budget_part as part};

/// Parts that limit a sender, the strongest first. The last is a pause within a PDU, in which no R2T waits for the
/// initiator's service: the path has the time then.
pub const LIMITING_PARTS: [u8; 8] = [
    part::UNKNOWN,
    part::LOSS_RECOVERY,
    part::RECEIVE_WINDOW,
    part::CONGESTION_WINDOW,
    part::SEND_BUFFER,
    part::ACK_WAIT,
    part::PROPAGATION,
    part::INITIATOR_SERVICE,
];

/// What later packets may contradict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Assumed {
    Nothing,
    /// This window scale, which is inferred.
    Scale(u8),
    /// That the sender uses Nagle's algorithm; and what held it otherwise, if anything did.
    Nagle {
        otherwise: Option<u8>,
    },
}

/// A span, and what it depends on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Span {
    limited: Limited,
    assumed: Assumed,
}

/// The spans of one sender.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Spans {
    spans: Vec<Span>,
    /// Whether the last gap was held by what the last span is.
    is_going_on: bool,
}

impl Spans {
    /// Notes a gap. One without a cause that the line explains ends no span, nor is it one of the path.
    pub fn note(&mut self, gap: &Gap<'_>, held: Option<Held>, is_pause: bool) {
        let is_known = |held: &Held| is_pause || !matches!(held.part, part::PROPAGATION | part::SEND_BUFFER);
        let Some(Held { part, needs_queue }) = held.filter(is_known) else {
            self.is_going_on &= !is_pause;
            return;
        };
        let (to_ns, frame) = (gap.seen.time_ns, gap.seen.frame);
        let assumed = match (part, gap.stop.state.inferred_scale) {
            (part::RECEIVE_WINDOW, Some(shift)) => Assumed::Scale(shift),
            (part::ACK_WAIT, _) => Assumed::Nagle { otherwise: gap.without_nagle() },
            _ => Assumed::Nothing,
        };
        let is_same = |span: &Span| {
            needs_queue == span.limited.needs_queue && span.limited.part == part && span.assumed == assumed
        };
        match self.spans.last_mut() {
            Some(span) if self.is_going_on && is_same(span) => {
                (span.limited.to_ns, span.limited.frame) = (to_ns, frame);
            }
            _ => {
                let limited = Limited { from_ns: gap.stop.time_ns, to_ns, part, frame, needs_queue };
                self.spans.push(Span { limited, assumed });
            }
        }
        self.is_going_on = !needs_queue;
    }

    /// The spans. A window that seemed full was not if its inferred scale has grown since; it may not have been if nothing
    /// proves the scale. What depends on a queue, too, is then no wait. A sender that does not use Nagle's algorithm
    /// waited for another reason, or did not wait.
    pub fn iter<'a>(&'a self, scale: &'a WindowScale, has_nagle: bool) -> impl Iterator<Item = Limited> + 'a {
        let judged = move |span: &Span| match span.assumed {
            Assumed::Scale(shift) if shift != scale.inferred() => {
                Some(Limited { part: part::CONGESTION_WINDOW, ..span.limited })
            }
            Assumed::Scale(_) if !scale.is_proven() => Some(Limited { part: part::UNKNOWN, ..span.limited }),
            Assumed::Nagle { otherwise } if !has_nagle => otherwise.map(|part| Limited { part, ..span.limited }),
            _ => Some(span.limited),
        };
        let is_likely =
            |wait: &Limited| !wait.needs_queue || matches!(wait.part, part::RECEIVE_WINDOW | part::SEND_BUFFER);
        self.spans.iter().filter_map(judged).filter(is_likely)
    }

    /// Removes spans from before, except the last, which may go on.
    pub fn forget(&mut self, before_ns: i64) {
        let count = self.spans.iter().take_while(|span| span.limited.to_ns < before_ns).count();
        self.spans.drain(..count.min(self.spans.len().saturating_sub(1)));
    }
}

/// Time held by the receiver's window, the congestion window and the send buffer.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// By the receiver's window.
    pub window_ns: i64,
    /// By the congestion window.
    pub congestion_ns: i64,
    /// By the send buffer.
    pub buffer_ns: i64,
}

impl Times {
    /// Adds a span.
    fn add(&mut self, span: &Limited) {
        let sum = match span.part {
            part::RECEIVE_WINDOW => &mut self.window_ns,
            part::CONGESTION_WINDOW => &mut self.congestion_ns,
            part::SEND_BUFFER => &mut self.buffer_ns,
            _ => return,
        };
        *sum = sum.saturating_add(span.to_ns.saturating_sub(span.from_ns));
    }

    /// Adds the time of the spans that ended before, which are forgotten.
    pub fn add_before(&mut self, before_ns: i64, spans: &[Limited]) {
        disjoint(spans).iter().filter(|span| span.to_ns < before_ns).for_each(|span| self.add(span));
    }
}

/// Settles the spans of all senders: those that need a queue stay if data of a command from before came after them, and at
/// any time the strongest part counts. Their sums go to the rows of the senders.
pub fn settle(timelines: &mut [Timeline], cycles: &Cycles, senders: &mut Senders) {
    let queues = queues(timelines, cycles);
    let waits = waits(timelines, cycles);
    let mut sums: BTreeMap<(u32, bool), Times> = BTreeMap::new();
    for timeline in timelines {
        if let Some(waits) = waits.get(&timeline.connection) {
            let awaited = timeline.silences[1].iter().filter_map(|silence| awaited(waits, silence));
            timeline.limited[1].extend(awaited);
        }
        let queue = queues.get(&timeline.connection).map_or(&[][..], Vec::as_slice);
        for (direction, limited) in timeline.limited.iter_mut().enumerate() {
            limited.retain(|span| !span.needs_queue || has_more(queue, span));
            *limited = disjoint(limited);
            let times = sums.entry((timeline.connection, direction == 0)).or_default();
            limited.iter().for_each(|span| times.add(span));
        }
    }
    for row in 0..senders.connection.len() {
        let Some(times) = sums.get(&(senders.connection[row], senders.to_target[row])) else { continue };
        if senders.rwnd_limited_ns[row] != NULL_NS {
            senders.rwnd_limited_ns[row] += times.window_ns;
        }
        senders.cwnd_limited_ns[row] += times.congestion_ns;
        senders.sndbuf_limited_ns[row] += times.buffer_ns;
    }
}

/// From when on the senders of a connection knew of each command, in order, and the last instant of data of these commands
/// so far. Of connections with spans that ask for it.
fn queues(timelines: &[Timeline], cycles: &Cycles) -> BTreeMap<u32, Vec<(i64, i64)>> {
    let asks = |timeline: &&Timeline| timeline.limited.iter().flatten().any(|span| span.needs_queue);
    let asking: BTreeMap<u32, i64> = timelines
        .iter()
        .filter(asks)
        .map(|timeline| (timeline.connection, timeline.rtt_to_target_ns.unwrap_or(0)))
        .collect();
    let mut queues: BTreeMap<u32, Vec<(i64, i64)>> = BTreeMap::new();
    if asking.is_empty() {
        return queues;
    }
    for (row, connection) in
        cycles.connection.iter().enumerate().filter(|&(row, _)| cycles.data_last_ns[row] != NULL_NS)
    {
        if let Some(to_target_ns) = asking.get(connection) {
            let known_ns = cycles.command_first_ns[row].saturating_add(*to_target_ns);
            queues.entry(*connection).or_default().push((known_ns, cycles.data_last_ns[row]));
        }
    }
    for queue in queues.values_mut() {
        until_last(queue);
    }
    queues
}

/// Whether data of a command came after the span that the sender knew of before it.
fn has_more(queue: &[(i64, i64)], span: &Limited) -> bool {
    let known = queue.partition_point(|&(since_ns, _)| since_ns <= span.from_ns);
    known.checked_sub(1).and_then(|last| queue.get(last)).is_some_and(|&(_, last_ns)| last_ns >= span.to_ns)
}

/// When the commands of a connection began, in order, and the last end of these so far. Of connections whose target seemed
/// silent.
fn waits(timelines: &[Timeline], cycles: &Cycles) -> BTreeMap<u32, Vec<(i64, i64)>> {
    let silent = timelines.iter().filter(|timeline| !timeline.silences[1].is_empty());
    let mut waits: BTreeMap<u32, Vec<(i64, i64)>> = silent.map(|timeline| (timeline.connection, Vec::new())).collect();
    if waits.is_empty() {
        return waits;
    }
    for (row, connection) in cycles.connection.iter().enumerate() {
        if let Some(waits) = waits.get_mut(connection) {
            waits.push((cycles.command_first_ns[row], cycles.in_flight_until_ns(row)));
        }
    }
    for waits in waits.values_mut() {
        until_last(waits);
    }
    waits
}

/// What of a silence a command waited for: one that was in flight at its end.
fn awaited(waits: &[(i64, i64)], silence: &Silence) -> Option<Limited> {
    let &Silence { from_ns, to_ns, frame } = silence;
    let first = waits.partition_point(|&(_, last_ns)| last_ns < to_ns);
    let from_ns = waits.get(first).map(|&(since_ns, _)| since_ns.max(from_ns)).filter(|&from_ns| from_ns < to_ns)?;
    Some(Limited { from_ns, to_ns, part: part::LOSS_RECOVERY, frame, needs_queue: false })
}

/// Orders pairs by their start, each with the last end so far.
fn until_last(pairs: &mut [(i64, i64)]) {
    pairs.sort_unstable();
    let mut last_ns = NULL_NS;
    for (_, end_ns) in pairs {
        last_ns = last_ns.max(*end_ns);
        *end_ns = last_ns;
    }
}

/// The same time in spans that do not overlap: at any time the strongest part counts. A span keeps its frame where it ends
/// as it did.
fn disjoint(spans: &[Limited]) -> Vec<Limited> {
    let strength = |part: u8| LIMITING_PARTS.iter().position(|&limiting| limiting == part);
    let mut events: Vec<(i64, bool, usize, u64)> = Vec::with_capacity(2 * spans.len());
    for span in spans.iter().filter(|span| span.from_ns < span.to_ns) {
        let Some(strength) = strength(span.part) else { continue };
        events.push((span.from_ns, true, strength, NULL_U64));
        events.push((span.to_ns, false, strength, span.frame));
    }
    events.sort_unstable();
    let mut counts = [0_u32; LIMITING_PARTS.len()];
    let mut found: Vec<Limited> = Vec::with_capacity(spans.len());
    let mut open: Option<(usize, i64)> = None;
    let mut rest = events.as_slice();
    while let Some(&(now_ns, ..)) = rest.first() {
        let (changes, later) = rest.split_at(rest.partition_point(|&(time_ns, ..)| time_ns <= now_ns));
        rest = later;
        let ended = open;
        for &(_, begins, strength, _) in changes {
            if let Some(count) = counts.get_mut(strength) {
                *count = if begins { *count + 1 } else { count.saturating_sub(1) };
            }
        }
        let strongest = counts.iter().position(|&count| count > 0);
        if ended.map(|(strength, _)| strength) == strongest {
            continue;
        }
        if let Some((strength, from_ns)) = ended
            && let Some(&part) = LIMITING_PARTS.get(strength)
        {
            let is_end = |&&(_, begins, of, _): &&(i64, bool, usize, u64)| !begins && of == strength;
            let frame = changes.iter().filter(is_end).map(|&(.., frame)| frame).max().unwrap_or(NULL_U64);
            found.push(Limited { from_ns, to_ns: now_ns, part, frame, needs_queue: false });
        }
        open = strongest.map(|strength| (strength, now_ns));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(from_ns: i64, to_ns: i64, part: u8) -> Limited {
        Limited { from_ns, to_ns, part, frame: to_ns as u64, needs_queue: false }
    }

    #[test]
    fn the_strongest_part_counts_and_a_span_keeps_the_frame_of_its_end() {
        let found = disjoint(&[
            span(10, 50, part::CONGESTION_WINDOW),
            span(20, 30, part::LOSS_RECOVERY),
            span(45, 60, part::ACK_WAIT),
            span(60, 60, part::UNKNOWN),
        ]);
        let end = |from_ns, to_ns, part, frame| Limited { frame, ..span(from_ns, to_ns, part) };
        assert_eq!(
            found,
            [
                end(10, 20, part::CONGESTION_WINDOW, NULL_U64),
                end(20, 30, part::LOSS_RECOVERY, 30),
                end(30, 50, part::CONGESTION_WINDOW, 50),
                end(50, 60, part::ACK_WAIT, 60),
            ]
        );
    }

    #[test]
    fn a_span_that_needs_a_queue_stays_if_data_known_before_it_came_after() {
        // known from 100 and 200 on; data until 400 and 300
        let queue = [(100, 400), (200, 400)];
        let held = |from_ns, to_ns| has_more(&queue, &span(from_ns, to_ns, part::RECEIVE_WINDOW));
        assert_eq!([held(99, 100), held(100, 400), held(100, 401), held(250, 350)], [false, true, false, true]);
    }

    #[test]
    fn of_a_silence_counts_what_a_command_waited_for() {
        let mut waits = [(300, 700), (0, 100), (200, 250)];
        until_last(&mut waits);
        let of = |from_ns, to_ns| {
            let silence = Silence { from_ns, to_ns, frame: 0 };
            awaited(&waits, &silence).map(|span| (span.from_ns, span.to_ns))
        };
        assert_eq!(of(50, 240), Some((200, 240)));
        assert_eq!(of(260, 290), None, "nothing is in flight");
        assert_eq!(of(350, 600), Some((350, 600)));
        assert_eq!(of(600, 800), None);
    }

    proptest! {
        /// Compared with every nanosecond.
        #[test]
        fn any_spans_become_disjoint_ones(
            spans in prop::collection::vec((0..60_i64, 0..30_i64, 0..LIMITING_PARTS.len()), 0..8),
        ) {
            let spans: Vec<_> =
                spans.into_iter().map(|(from, length, of)| span(from, from + length, LIMITING_PARTS[of])).collect();
            let found = disjoint(&spans);
            let of = |spans: &[Limited], now_ns: i64| {
                let at = |part: &&u8| {
                    spans.iter().any(|span| span.part == **part && (span.from_ns..span.to_ns).contains(&now_ns))
                };
                LIMITING_PARTS.iter().find(at).copied()
            };
            for now_ns in 0..100 {
                prop_assert_eq!(of(&found, now_ns), of(&spans, now_ns));
            }
            prop_assert!(found.windows(2).all(|pair| pair[0].to_ns <= pair[1].from_ns));
        }
    }
}
