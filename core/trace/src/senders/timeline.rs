//! Input of the time breakdown from one connection's TCP.

use super::deliveries::Deliveries;
use super::load::StandingQueue;
use super::silence::Silence;
use crate::stream::progress::Progress;
use iscsitrace_wire::frame::Address;
use serde::{Deserialize, Serialize};

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
    /// By how much the RTT of the path exceeded its least: windows, with their start, in order.
    pub excess: Vec<(i64, i64)>,
    /// When the line was busy with payload: per direction, ordered and disjoint.
    pub line_busy: [Vec<(i64, i64)>; 2],
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
