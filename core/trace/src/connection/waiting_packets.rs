//! The packets of a connection that wait for others, with copies of their bytes.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

use iscsitrace_wire::frame::Segment;

use crate::reader::Packet;

/// The packets that are awaited come within this time.
pub(crate) const AWAITED_NS: i64 = 1_000_000_000;

/// A packet that waits, with a copy of its bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub(super) direction: usize,
    pub(super) packet: Packet<'static>,
    pub(super) segment: Segment<'static>,
    /// Options and payload.
    pub(super) bytes: Box<[u8]>,
    pub(super) options_length: usize,
    /// Whether it was read before others, and only its ACK is left.
    pub(super) is_read: bool,
}

impl Waiting {
    pub(super) fn new(direction: usize, packet: &Packet<'_>, segment: &Segment<'_>) -> Self {
        let Packet { frame, time_ns, link_type, interface, original_length, data: _ } = *packet;
        Self {
            direction,
            packet: Packet { frame, time_ns, link_type, interface, original_length, data: &[] },
            segment: without_bytes(segment),
            bytes: [segment.options, segment.payload].concat().into(),
            options_length: segment.options.len(),
            is_read: false,
        }
    }

    pub(super) fn segment(&self) -> Segment<'_> {
        let (options, payload) = self.bytes.split_at(self.options_length);
        Segment { options, payload, ..self.segment }
    }
}

fn without_bytes(segment: &Segment<'_>) -> Segment<'static> {
    let Segment { source, destination, source_port, destination_port, sequence_number, acknowledgment_number, .. } =
        *segment;
    let Segment { flags, window, payload_length, identification, is_dont_fragment, is_ip_length_zero, .. } = *segment;
    let Segment { hop_limit, traffic_class, .. } = *segment;
    Segment {
        source,
        destination,
        source_port,
        destination_port,
        sequence_number,
        acknowledgment_number,
        flags,
        window,
        options: &[],
        payload: &[],
        payload_length,
        identification,
        is_dont_fragment,
        is_ip_length_zero,
        hop_limit,
        traffic_class,
    }
}

/// The packets of a connection that wait.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct CaptureOrder {
    pub(super) waiting: VecDeque<Waiting>,
}

impl CaptureOrder {
    /// The capture time of the first that waits.
    pub(crate) fn waiting_since_ns(&self) -> Option<i64> {
        self.waiting.front().map(|first| first.packet.time_ns)
    }
}
