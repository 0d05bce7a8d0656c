//! The connections of one capture by headers alone: what shows that two captures saw the same traffic.

use std::hash::Hasher;

use iscsitrace_wire::frame::{Segment, segment};
use iscsitrace_wire::serial::SerialNumber;
use rustc_hash::FxHasher;

use super::numbering::Numbering;
use crate::counters::Counters;
use crate::pass::Interrupted;
use crate::reader::sequence::{Input, Progress, Sequence};
use crate::reader::{CaptureInfo, Packet};
use crate::tables::taps::{ConnectionSeen, ConnectionsSeen, Landmark, Landmarks};
use crate::tables::{NULL_NS, NULL_U64};

/// Landmarks of a direction; when there are more, every other is dropped.
const LANDMARKS_MAX: usize = 64;
/// Bytes between landmarks, at first.
const SPACING_BYTES: u32 = 1 << 14;
/// Bytes of payload that are hashed.
const HASHED_BYTES: usize = 16;
/// Packets between two calls of `report`.
const REPORT_EVERY_PACKETS: u64 = 1 << 14;

/// The connections of a capture.
#[derive(Debug)]
pub struct Seen {
    /// One row per connection.
    pub connections: ConnectionsSeen,
    /// Places of their streams.
    pub landmarks: Landmarks,
    /// Metadata of the captures.
    pub inputs: Vec<CaptureInfo>,
}

#[derive(Debug, Default)]
struct Half {
    packets: u64,
    bytes: u64,
    initial: Option<u32>,
    first: Option<u32>,
    /// Sequence number after the highest byte.
    highest: Option<u32>,
    has_payload: bool,
    spacing_bits: u32,
    landmarks: Vec<Landmark>,
}

impl Half {
    fn take(&mut self, packet: &Packet<'_>, segment: &Segment<'_>) {
        let flags = segment.flags;
        let start = segment.sequence_number;
        self.packets += 1;
        self.bytes += u64::from(segment.payload_length);
        self.first.get_or_insert(start);
        if flags.is_syn() {
            self.initial = Some(start);
        }
        let data = start.wrapping_add(u32::from(flags.is_syn()));
        let end = data.wrapping_add(segment.payload_length).wrapping_add(u32::from(flags.is_fin()));
        let new = match self.highest {
            Some(highest) if SerialNumber(end).distance(SerialNumber(highest)) <= 0 => return,
            Some(highest) if SerialNumber(highest).is_after(SerialNumber(data)) => highest,
            _ => data,
        };
        self.highest = Some(end);
        if segment.payload_length == 0 {
            return;
        }
        if !self.has_payload {
            self.has_payload = true;
            self.note(packet, segment, data, data);
        }
        let spacing = SPACING_BYTES << self.spacing_bits;
        let mut place = new.wrapping_add(spacing - 1) & !(spacing - 1);
        let payload_end = data.wrapping_add(segment.payload_length);
        while SerialNumber(place).is_before(SerialNumber(payload_end)) {
            self.note(packet, segment, data, place);
            place = place.wrapping_add(spacing);
        }
        if self.landmarks.len() > LANDMARKS_MAX && self.spacing_bits < 16 {
            self.spacing_bits += 1;
            let mask = (SPACING_BYTES << self.spacing_bits) - 1;
            let mut is_first = true;
            // the first byte of payload stays
            self.landmarks.retain(|each| std::mem::take(&mut is_first) || each.sequence_number & mask == 0);
        }
    }

    fn note(&mut self, packet: &Packet<'_>, segment: &Segment<'_>, data: u32, place: u32) {
        let at = place.wrapping_sub(data) as usize;
        let hashed = at.checked_add(HASHED_BYTES).and_then(|end| segment.payload.get(at..end));
        let hash = |bytes: &[u8]| {
            let mut hasher = FxHasher::default();
            hasher.write(bytes);
            hasher.finish() >> 1
        };
        self.landmarks.push(Landmark {
            sequence_number: place,
            time_ns: packet.time_ns,
            frame: packet.frame,
            payload_hash: hashed.map_or(NULL_U64, hash),
            ..Landmark::default()
        });
    }
}

#[derive(Debug)]
struct Facts {
    halves: [Half; 2],
    time_first_ns: i64,
    time_last_ns: i64,
    syn_ns: i64,
    syn_ack_ns: i64,
    handshake_ack_ns: i64,
}

impl Facts {
    fn new(time_ns: i64) -> Self {
        Self {
            halves: <[Half; 2]>::default(),
            time_first_ns: time_ns,
            time_last_ns: time_ns,
            syn_ns: NULL_NS,
            syn_ack_ns: NULL_NS,
            handshake_ack_ns: NULL_NS,
        }
    }

    #[inline]
    fn take(&mut self, direction: usize, packet: &Packet<'_>, segment: &Segment<'_>) {
        let time_ns = packet.time_ns;
        self.time_first_ns = self.time_first_ns.min(time_ns);
        self.time_last_ns = self.time_last_ns.max(time_ns);
        let flags = segment.flags;
        let first = match (flags.is_syn(), flags.is_ack()) {
            (true, false) => Some(&mut self.syn_ns),
            (true, true) => Some(&mut self.syn_ack_ns),
            (false, _) if direction == 0 && self.syn_ack_ns != NULL_NS => Some(&mut self.handshake_ack_ns),
            _ => None,
        };
        if let Some(first) = first
            && *first == NULL_NS
        {
            *first = time_ns;
        }
        self.halves[direction].take(packet, segment);
    }
}

/// Reads the headers of the inputs, or of their first packets up to a limit.
///
/// # Errors
/// As [`crate::pass::run`].
pub fn connections_seen<E>(
    inputs: Vec<Input>,
    packet_limit: Option<u64>,
    mut report: impl FnMut(&Progress) -> Result<(), E>,
) -> Result<Seen, Interrupted<E>> {
    let mut counters = Counters::default();
    let mut sequence = Sequence::open(inputs, &mut counters)?;
    let progress = sequence.progress();
    let mut numbering = Numbering::default();
    let mut facts: Vec<Facts> = Vec::new();
    let mut packet_count = 0;
    while packet_limit.is_none_or(|limit| packet_count < limit) {
        let Some(packet) = sequence.next_packet(&mut counters)? else { break };
        packet_count += 1;
        if packet_count % REPORT_EVERY_PACKETS == 0 {
            report(&progress).map_err(Interrupted::Caller)?;
        }
        let Ok(segment) = segment(packet.link_type, packet.data, packet.original_length) else { continue };
        let (number, direction) = numbering.place(&segment);
        if number as usize == facts.len() {
            facts.push(Facts::new(packet.time_ns));
        }
        if let Some(facts) = facts.get_mut(number as usize) {
            facts.take(direction, &packet, &segment);
        }
    }
    let (mut connections, mut landmarks) = (ConnectionsSeen::default(), Landmarks::default());
    for (connection, facts) in (0..).zip(facts) {
        let Some([client_end, server_end]) = numbering.ends(connection) else { continue };
        let [client, server] = facts.halves;
        let number = |number: Option<u32>| number.map_or(NULL_NS, i64::from);
        connections.push(ConnectionSeen {
            connection,
            client_address: client_end.address.to_string(),
            client_port: client_end.port,
            server_address: server_end.address.to_string(),
            server_port: server_end.port,
            time_first_ns: facts.time_first_ns,
            time_last_ns: facts.time_last_ns,
            syn_ns: facts.syn_ns,
            syn_ack_ns: facts.syn_ack_ns,
            handshake_ack_ns: facts.handshake_ack_ns,
            client_initial_sequence_number: number(client.initial),
            server_initial_sequence_number: number(server.initial),
            client_first_sequence_number: number(client.first),
            server_first_sequence_number: number(server.first),
            client_last_sequence_number: number(client.highest),
            server_last_sequence_number: number(server.highest),
            client_packets: client.packets,
            server_packets: server.packets,
            client_bytes: client.bytes,
            server_bytes: server.bytes,
        });
        for (is_from_client, half) in [(true, client), (false, server)] {
            for landmark in half.landmarks {
                landmarks.push(Landmark { connection, is_from_client, ..landmark });
            }
        }
    }
    Ok(Seen { connections, landmarks, inputs: sequence.infos().cloned().collect() })
}
