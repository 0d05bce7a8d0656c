//! Packets that may be needed later: the last ones, and the first ones of each connection, both in bounded memory.

use std::collections::VecDeque;

use iscsitrace_trace::reader::Packet;
use iscsitrace_trace::stream::table::Endpoint;
use iscsitrace_wire::frame::{LinkType, Segment};
use rustc_hash::FxHashMap;

/// Memory per packet beside its bytes.
const OVERHEAD_BYTES: usize = 96;
/// Packets kept of the start of a connection: handshake and login, and a few more.
const BEGINNING_PACKETS: usize = 48;
/// Maximum packets with payload among them: more than any login needs.
const BEGINNING_PAYLOADS: usize = 16;
/// Maximum connections whose start is kept.
const CONNECTIONS_MAX: usize = 4096;

/// In place of a link type: the bytes are a sample of TCP_INFO.
pub const TCP_INFO: LinkType = LinkType(u16::MAX);

/// A stored packet, or a sample of TCP_INFO.
#[derive(Debug, Clone)]
pub struct KeptPacket {
    /// Its number among all arrived packets.
    pub frame: u64,
    /// Capture time.
    pub time_ns: i64,
    /// Link type.
    pub link_type: LinkType,
    /// The interface.
    pub interface: u32,
    /// Bytes on the wire.
    pub original_length: u32,
    /// Captured bytes.
    pub data: Box<[u8]>,
}

impl KeptPacket {
    pub(super) fn new(packet: &Packet<'_>) -> Self {
        Self {
            frame: packet.frame,
            time_ns: packet.time_ns,
            link_type: packet.link_type,
            interface: packet.interface,
            original_length: packet.original_length,
            data: packet.data.into(),
        }
    }

    fn bytes(&self) -> usize {
        self.data.len() + OVERHEAD_BYTES
    }
}

/// The last packets.
#[derive(Debug)]
pub(super) struct History {
    packets: VecDeque<KeptPacket>,
    bytes: usize,
    bytes_max: usize,
    /// Time of the last packet removed for lack of memory.
    forgotten_ns: i64,
}

impl History {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { packets: VecDeque::new(), bytes: 0, bytes_max, forgotten_ns: i64::MIN }
    }

    pub(super) fn push(&mut self, kept: KeptPacket) {
        self.bytes += kept.bytes();
        self.packets.push_back(kept);
        while self.bytes > self.bytes_max && self.packets.len() > 1 {
            if let Some(oldest) = self.pop() {
                self.forgotten_ns = oldest.time_ns;
            }
        }
    }

    /// The oldest packet.
    pub(super) fn pop(&mut self) -> Option<KeptPacket> {
        let oldest = self.packets.pop_front()?;
        self.bytes -= oldest.bytes();
        Some(oldest)
    }

    /// Removes packets from before that time.
    pub(super) fn forget(&mut self, before_ns: i64) {
        while self.packets.front().is_some_and(|oldest| oldest.time_ns < before_ns) {
            self.pop();
        }
    }

    /// Whether packets from that time on were removed for lack of memory.
    pub(super) fn is_forgotten_from(&self, from_ns: i64) -> bool {
        self.forgotten_ns >= from_ns
    }

    /// Number of the newest packet.
    pub(super) fn last_frame(&self) -> Option<u64> {
        self.packets.iter().rev().find(|newest| newest.link_type != TCP_INFO).map(|newest| newest.frame)
    }

    /// Number of the oldest packet.
    pub(super) fn first_frame(&self) -> Option<u64> {
        self.packets.front().map(|oldest| oldest.frame)
    }
}

/// The first packets of each connection whose SYN was seen.
#[derive(Debug)]
pub(super) struct Beginnings {
    connections: FxHashMap<(Endpoint, Endpoint), Beginning>,
    /// In the order of their SYNs, which is that of their numbers.
    order: VecDeque<((Endpoint, Endpoint), u64)>,
    bytes: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Beginning {
    packets: Vec<KeptPacket>,
    payload_count: usize,
    bytes: usize,
}

impl Beginnings {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { connections: FxHashMap::default(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Processes a packet, which may belong to the start of its connection.
    pub(super) fn take(&mut self, kept: &KeptPacket, segment: &Segment<'_>) {
        let source = Endpoint { address: segment.source, port: segment.source_port };
        let destination = Endpoint { address: segment.destination, port: segment.destination_port };
        let key = (source.min(destination), source.max(destination));
        if segment.flags.is_syn() && !segment.flags.is_ack() {
            self.remove(key);
            self.connections.insert(key, Beginning::default());
            self.order.push_back((key, kept.frame));
        }
        let Some(beginning) = self.connections.get_mut(&key) else { return };
        if beginning.packets.len() >= BEGINNING_PACKETS || beginning.payload_count >= BEGINNING_PAYLOADS {
            return;
        }
        beginning.payload_count += usize::from(segment.payload_length > 0);
        beginning.bytes += kept.bytes();
        self.bytes += kept.bytes();
        beginning.packets.push(kept.clone());
        while self.bytes > self.bytes_max || self.connections.len() > CONNECTIONS_MAX {
            let Some((oldest, frame)) = self.order.pop_front() else { return };
            if self.connections.get(&oldest).is_some_and(|beginning| beginning.began_at(frame)) {
                self.remove(oldest);
            }
        }
    }

    fn remove(&mut self, key: (Endpoint, Endpoint)) {
        if let Some(removed) = self.connections.remove(&key) {
            self.bytes -= removed.bytes;
        }
        // an outdated entry in the order is skipped later; few are kept
        if self.order.len() > 2 * CONNECTIONS_MAX {
            let connections = &self.connections;
            self.order.retain(|&(key, frame)| connections.get(&key).is_some_and(|beginning| beginning.began_at(frame)));
        }
    }

    /// Returns the packets between two numbers, both excluded, in order.
    pub(super) fn release(&self, after: u64, before: u64, mut each: impl FnMut(&KeptPacket)) {
        let mut wanted: Vec<&KeptPacket> = self
            .connections
            .values()
            .flat_map(|beginning| &beginning.packets)
            .filter(|kept| kept.frame > after && kept.frame < before)
            .collect();
        wanted.sort_unstable_by_key(|kept| kept.frame);
        wanted.into_iter().for_each(&mut each);
    }
}

impl Beginning {
    fn began_at(&self, frame: u64) -> bool {
        self.packets.first().is_some_and(|first| first.frame == frame)
    }
}
