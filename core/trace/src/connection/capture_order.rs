//! Packets that the capture has after the ACK of their bytes, as where it joins several queues: they are read before it.
//!
//! Such an ACK covers bytes that did not come: they would count as missing from the capture, and an answer would come
//! without its request. So behind such an ACK the next packets of the connection are awaited. Those that bring the bytes
//! are read first, with the times that they have; their own ACK counts in its place. Nothing is kept while no ACK is ahead
//! of its bytes.

use iscsitrace_wire::frame::Segment;

use super::waiting_packets::{AWAITED_NS, Waiting};
use super::{TcpConnection, payload_sequence_number};
use crate::connection::content::Content;
use crate::context::Context;
use crate::reader::Packet;
use crate::stream::reassembly::HoldBudget;

/// Packets of the connection that are awaited: as many as a network card hands over at once (NAPI).
const AWAITED_PACKETS: usize = 64;
/// What a packet shows to be missing so far: bytes of a direction below an offset.
#[derive(Debug, Clone, Copy)]
struct Lacking {
    direction: usize,
    below: i64,
}

impl TcpConnection {
    /// Takes the next of its packets.
    #[inline]
    pub(crate) fn take(
        &mut self,
        direction: usize,
        packet: &Packet<'_>,
        segment: &Segment<'_>,
        context: &mut Context,
        budget: &mut HoldBudget,
    ) {
        self.frame_last = packet.frame;
        self.time_last_ns = self.time_last_ns.max(packet.time_ns);
        if self.capture_order.waiting.is_empty() && self.lacking(direction, segment).is_none() {
            self.read(direction, packet, segment, false, context, budget);
        } else {
            self.wait(direction, packet, segment, context, budget);
        }
    }

    #[cold]
    fn wait(
        &mut self,
        direction: usize,
        packet: &Packet<'_>,
        segment: &Segment<'_>,
        context: &mut Context,
        budget: &mut HoldBudget,
    ) {
        self.read_waiting_before(packet.time_ns.saturating_sub(AWAITED_NS), context, budget);
        let waiting = Waiting::new(direction, packet, segment);
        if budget.held_bytes + waiting.bytes.len() > budget.limit_bytes || matches!(self.content, Content::Other) {
            self.read_waiting(context, budget);
            self.read(direction, packet, segment, false, context, budget);
            return;
        }
        budget.held_bytes += waiting.bytes.len();
        self.capture_order.waiting.push_back(waiting);
        while let Some(place) = self.next_place(self.capture_order.waiting.len() > AWAITED_PACKETS) {
            self.read_at(place, context, budget);
        }
    }

    /// Reads all packets that wait.
    pub(crate) fn read_waiting(&mut self, context: &mut Context, budget: &mut HoldBudget) {
        while let Some(place) = self.next_place(true) {
            self.read_at(place, context, budget);
        }
    }

    /// Reads packets until none waits that was captured before that time.
    pub(crate) fn read_waiting_before(&mut self, time_ns: i64, context: &mut Context, budget: &mut HoldBudget) {
        while self.capture_order.waiting_since_ns().is_some_and(|since_ns| since_ns < time_ns)
            && let Some(place) = self.next_place(true)
        {
            self.read_at(place, context, budget);
        }
    }

    /// The packet to read next: the first, or one behind it that brings what it lacks, or what that one lacks. None while
    /// such a packet is awaited, unless that is over.
    fn next_place(&self, is_over: bool) -> Option<usize> {
        let waiting = &self.capture_order.waiting;
        let mut place = 0;
        // longer only where packets lack each other's bytes
        for _ in 0..waiting.len() {
            let Some(lacking) = self.lacking(waiting[place].direction, &waiting[place].segment) else {
                return Some(place);
            };
            let behind = waiting.iter().enumerate().skip(1);
            let found = behind.filter_map(|(place, waiting)| Some((self.brings_from(lacking, waiting)?, place)));
            let Some((_, bringing)) = found.min() else { break };
            place = bringing;
        }
        (is_over && !waiting.is_empty()).then_some(place)
    }

    /// Where the payload of a packet starts, if it brings some of what is lacking.
    fn brings_from(&self, lacking: Lacking, waiting: &Waiting) -> Option<i64> {
        let half = &self.halves[lacking.direction];
        let from = half
            .offset(payload_sequence_number(&waiting.segment))
            .filter(|_| waiting.direction == lacking.direction)?;
        let to = (from + i64::from(waiting.segment.payload_length)).min(lacking.below);
        half.reassembly.has_hole_in(from, to).then_some(from)
    }

    fn read_at(&mut self, place: usize, context: &mut Context, budget: &mut HoldBudget) {
        let waiting = &mut self.capture_order.waiting;
        let Some(next) = waiting.remove(place) else { return };
        budget.held_bytes -= next.bytes.len();
        if next.is_read {
            if let Some(acknowledged) = self.acknowledged_offset(next.direction, &next.segment) {
                self.acknowledge(1 - next.direction, acknowledged, &next.packet, context, budget);
            }
            return;
        }
        if place > 0 {
            let segment = Segment { payload_length: 0, ..next.segment };
            let (bytes, options_length) = (Box::default(), 0);
            waiting.insert(place, Waiting { segment, bytes, options_length, is_read: true, ..next });
        }
        self.read(next.direction, &next.packet, &next.segment(), place > 0, context, budget);
    }

    /// The bytes that a packet shows to be missing: by its ACK; or by its payload, behind bytes that were acknowledged.
    #[inline]
    fn lacking(&self, direction: usize, segment: &Segment<'_>) -> Option<Lacking> {
        let [own, opposite] = [&self.halves[direction], &self.halves[1 - direction]];
        if let Some(below) = self.acknowledged_offset(direction, segment)
            && below > opposite.reassembly.acknowledged()
            && opposite.packets > 0
            && opposite.reassembly.lacks_before(below)
        {
            return Some(Lacking { direction: 1 - direction, below });
        }
        let acknowledged = own.reassembly.acknowledged();
        if acknowledged > own.reassembly.next() && segment.payload_length > 0 {
            let below = own.offset(payload_sequence_number(segment))?.min(acknowledged);
            return (below > own.reassembly.next()).then_some(Lacking { direction, below });
        }
        None
    }
}
