//! Input of the time breakdown from one connection's TCP.

use super::deliveries::Deliveries;
use super::load::{Excess, StandingQueue};
use super::silence::Silence;
use crate::stream::progress::Progress;
use iscsitrace_wire::frame::Address;
use serde::{Deserialize, Serialize};
use std::iter;
use std::sync::Arc;

/// A span in which a sender was limited, or whose cause is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    /// Start.
    pub from_ns: i64,
    /// End.
    pub to_ns: i64,
    /// The cause: a code of `budget.part`.
    pub part: u8,
    /// The frame that ended it.
    pub frame: u64,
    /// It is one only if the sender had more to send: data of a command from before came after.
    pub needs_queue: bool,
}

/// Two hosts; each end of a connection is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hosts {
    /// The initiator's address.
    pub initiator: Address,
    /// The target's address.
    pub target: Address,
}

/// One connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Timeline {
    /// Connection number.
    pub connection: u32,
    /// Its two ends, if known.
    pub hosts: Option<Hosts>,
    /// Minimum RTT between the tap and the target.
    pub rtt_to_target_ns: Option<i64>,
    /// Minimum RTT between the tap and the initiator.
    pub rtt_to_initiator_ns: Option<i64>,
    /// By how much the RTT of the path exceeded its least: windows, in order.
    pub excess: Vec<Excess>,
    /// When the line was busy with payload, as this connection alone shows: per direction, ordered and disjoint.
    pub line_busy: [Vec<(i64, i64)>; 2],
    /// The same, as the line shows that it shares with others.
    #[serde(skip)]
    pub queued: [Queued; 2],
    /// The queue that stood before the data of a direction.
    pub standing: [Option<StandingQueue>; 2],
    /// What the line delivered: per direction.
    pub deliveries: [Deliveries; 2],
    /// When the sender of a direction was limited: disjoint, once they are settled (`held`).
    pub limited: [Vec<Limited>; 2],
    /// When a sender repeated the same data without an answer.
    pub stalls: Vec<(i64, i64)>,
    /// When new data of commands passed.
    pub progress: Progress,
    /// When the sender of a direction seemed silent, and its packets were lost before the tap.
    pub silences: [Vec<Silence>; 2],
}

impl Timeline {
    /// When the line was busy with payload of a direction: all such spans that end after an instant, ordered and disjoint.
    pub fn busy(&self, direction: usize, after_ns: i64) -> impl Iterator<Item = (i64, i64)> {
        let own = &self.line_busy[direction];
        let mut own = own[own.partition_point(|&(_, to_ns)| to_ns <= after_ns)..].iter().copied().peekable();
        let mut queued = self.queued[direction].after(after_ns).peekable();
        let mut take = move || match (own.peek(), queued.peek()) {
            (Some(one), Some(other)) if other < one => queued.next(),
            (None, _) => queued.next(),
            _ => own.next(),
        };
        let mut next = take();
        iter::from_fn(move || {
            let (from_ns, mut to_ns) = next?;
            loop {
                next = take();
                match next {
                    Some((start_ns, end_ns)) if start_ns <= to_ns => to_ns = to_ns.max(end_ns),
                    _ => return Some((from_ns, to_ns)),
                }
            }
        })
    }
}

/// When data waited in the queue of a line, and the line was busy.
///
/// Each of many connections waits while the line sends the data of all others. So the spans are computed when they are
/// asked for, and only for that time.
#[derive(Debug, Clone, Default)]
pub struct Queued {
    /// When data waited: ordered and disjoint.
    waits: Vec<(i64, i64)>,
    /// When the line was busy, likewise.
    line: Arc<[(i64, i64)]>,
    /// The line sent them so much earlier than these times say.
    earlier_ns: i64,
}

impl Queued {
    /// Of waits in any order.
    pub fn new(mut waits: Vec<(i64, i64)>, line: Arc<[(i64, i64)]>, earlier_ns: i64) -> Self {
        join(&mut waits);
        waits.retain(|&wait| within(&line, wait).next().is_some());
        waits.shrink_to_fit();
        Self { waits, line, earlier_ns }
    }

    /// The part of these spans after an instant: ordered and disjoint.
    fn after(&self, after_ns: i64) -> impl Iterator<Item = (i64, i64)> {
        let earlier_ns = self.earlier_ns;
        let after_ns = after_ns.saturating_add(earlier_ns);
        let waits = &self.waits[self.waits.partition_point(|&(_, to_ns)| to_ns <= after_ns)..];
        let spans = waits.iter().flat_map(move |&(from_ns, to_ns)| within(&self.line, (from_ns.max(after_ns), to_ns)));
        spans.map(move |(from_ns, to_ns)| (from_ns.saturating_sub(earlier_ns), to_ns.saturating_sub(earlier_ns)))
    }
}

/// The part of spans within a time.
fn within(spans: &[(i64, i64)], (from_ns, to_ns): (i64, i64)) -> impl Iterator<Item = (i64, i64)> {
    let spans = &spans[spans.partition_point(|&(_, end_ns)| end_ns <= from_ns)..];
    let spans = spans.iter().take_while(move |&&(start_ns, _)| start_ns < to_ns);
    spans.map(move |&(start_ns, end_ns)| (from_ns.max(start_ns), to_ns.min(end_ns)))
}

/// Orders spans, and joins those that overlap or touch.
pub fn join(spans: &mut Vec<(i64, i64)>) {
    spans.sort_unstable();
    spans.dedup_by(|next, last| {
        let is_one = next.0 <= last.1;
        if is_one {
            last.1 = last.1.max(next.1);
        }
        is_one
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spans() -> impl Strategy<Value = Vec<(i64, i64)>> {
        prop::collection::vec(
            (0..80_i64, 1..15_i64).prop_map(|(from_ns, lasted_ns)| (from_ns, from_ns + lasted_ns)),
            0..9,
        )
    }

    proptest! {
        #[test]
        fn the_line_is_busy_where_the_connection_shows_it_and_where_its_data_wait_for_a_busy_line(
            mut own in spans(), waits in spans(), mut line in spans(), earlier_ns in 0..20_i64, after_ns in -30..100_i64
        ) {
            join(&mut own);
            join(&mut line);
            let is_in = |spans: &[(i64, i64)], now_ns: i64| spans.iter().any(|&(from, to)| from <= now_ns && now_ns < to);
            let is_queued = |now_ns: i64| is_in(&waits, now_ns) && is_in(&line, now_ns);
            let is_expected = |now_ns: i64| is_in(&own, now_ns) || is_queued(now_ns + earlier_ns);
            let queued = Queued::new(waits.clone(), line.clone().into(), earlier_ns);
            let timeline = Timeline {
                connection: 0,
                hosts: None,
                rtt_to_target_ns: None,
                rtt_to_initiator_ns: None,
                excess: Vec::new(),
                line_busy: [own.clone(), Vec::new()],
                queued: [queued, Queued::default()],
                standing: [None, None],
                deliveries: Default::default(),
                limited: Default::default(),
                stalls: Vec::new(),
                progress: Progress::default(),
                silences: Default::default(),
            };
            let found: Vec<_> = timeline.busy(0, after_ns).collect();
            prop_assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].0), "{found:?}");
            for now_ns in after_ns..120 {
                prop_assert_eq!(is_in(&found, now_ns), is_expected(now_ns), "{} in {:?}", now_ns, &found);
            }
            // an instant before the first leaves them all
            let whole: Vec<_> = timeline.busy(0, i64::MIN).collect();
            prop_assert!((-30..120).all(|now_ns| is_in(&whole, now_ns) == is_expected(now_ns)), "{whole:?}");
            prop_assert_eq!(timeline.busy(1, i64::MIN).count(), 0);
        }
    }
}
