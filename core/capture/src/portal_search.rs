//! Finds iSCSI portals on any port by the content of their connections, with periodic samples of all TCP traffic.
//!
//! A sample is short, reads only the first bytes of packets through its own handle, and excludes what is already
//! captured. Between samples it costs nothing. Memory is bounded.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use iscsitrace_trace::iscsi::detect::{Detector, Verdict};
use iscsitrace_trace::stream::chunk::Chunk;
use iscsitrace_trace::stream::table::Endpoint;
use iscsitrace_wire::frame::{LinkType, segment};
use rustc_hash::FxHashMap;

use crate::device::{ArrivedPacket, Device};
use crate::error::RecordingError;
use crate::portals::{self, Portal};
use crate::settings::{InterfaceSettings, LearnSettings};

/// Link, network and TCP headers with all options, and an iSCSI header with its digest.
const LOOKED_AT_BYTES: u32 = 256;
const BUFFER_BYTES: u32 = 2 << 20;
/// Maximum connections per sample.
const CONNECTIONS_MAX: usize = 2048;
/// A connection without iSCSI in this many packets with payload is not iSCSI for this sample.
const PAYLOADS_MAX: u32 = 64;
/// Maximum packets per sample.
const PACKETS_MAX: u64 = 200_000;
/// Maximum known portals.
const PORTALS_MAX: usize = 256;

struct Candidate {
    detector: Detector,
    client: Endpoint,
    payload_count: u32,
    is_decided: bool,
}

/// Detects iSCSI connections within one sample.
#[derive(Default)]
pub struct PortalFinder {
    connections: FxHashMap<(Endpoint, Endpoint), Candidate>,
    packet_count: u64,
}

impl PortalFinder {
    /// Processes a packet; returns the portal if its connection turns out to be iSCSI.
    pub fn take(&mut self, link_type: LinkType, packet: &ArrivedPacket<'_>) -> Option<Portal> {
        self.packet_count += 1;
        let segment = segment(link_type, packet.data, packet.original_length).ok()?;
        if segment.payload_length == 0 {
            return None;
        }
        let source = Endpoint { address: segment.source, port: segment.source_port };
        let destination = Endpoint { address: segment.destination, port: segment.destination_port };
        let key = (source.min(destination), source.max(destination));
        if self.connections.len() >= CONNECTIONS_MAX && !self.connections.contains_key(&key) {
            return None;
        }
        let candidate = self.connections.entry(key).or_insert_with(|| Candidate {
            detector: Detector::new([source.port, destination.port]),
            client: source,
            payload_count: 0,
            is_decided: false,
        });
        if candidate.is_decided {
            return None;
        }
        candidate.payload_count += 1;
        let direction = usize::from(candidate.client != source);
        let chunk = Chunk {
            offset: 0,
            length: segment.payload_length,
            captured: segment.payload,
            frame: self.packet_count,
            time_ns: packet.time_ns,
            is_late: false,
            is_segment_start: true,
        };
        match candidate.detector.chunk(direction, &chunk) {
            Verdict::Iscsi { is_client_initiator } => {
                candidate.is_decided = true;
                let target = if is_client_initiator == (direction == 0) { destination } else { source };
                Some(Portal { address: target.address.to_ip(), port: target.port })
            }
            Verdict::Other => {
                candidate.is_decided = true;
                None
            }
            Verdict::Undecided => {
                if candidate.payload_count >= PAYLOADS_MAX {
                    candidate.is_decided = true;
                    candidate.detector.take_events();
                }
                None
            }
        }
    }

    fn is_satisfied(&self) -> bool {
        self.packet_count >= PACKETS_MAX
    }
}

/// PortalSearch at an interface now and then.
pub struct PortalSearch {
    settings: LearnSettings,
    interface: InterfaceSettings,
    /// The current sample.
    look: Option<(Device, PortalFinder)>,
    changed: Instant,
    portals: BTreeSet<Portal>,
}

impl PortalSearch {
    /// Starts the first sample.
    ///
    /// # Errors
    /// The interface cannot be opened.
    pub fn begin(
        settings: LearnSettings,
        captured: &Device,
        interface: &InterfaceSettings,
    ) -> Result<Self, RecordingError> {
        let interface = InterfaceSettings {
            snaplen: LOOKED_AT_BYTES,
            buffer_bytes: BUFFER_BYTES,
            time_stamp_type: None,
            ..interface.clone()
        };
        let mut looks = Self { settings, interface, look: None, changed: Instant::now(), portals: BTreeSet::new() };
        looks.open(captured)?;
        Ok(looks)
    }

    fn open(&mut self, captured: &Device) -> Result<(), RecordingError> {
        let known: Vec<Portal> = self.portals.iter().copied().collect();
        // without VLAN tags: after the keyword vlan, an expression applies to tagged packets
        let captured_already = portals::filter(LinkType::RAW, &known);
        let others = format!("tcp and not ({captured_already})");
        self.interface.filter = Some(portals::with_tags(captured.link_type, &others));
        self.look = Some((Device::open(&self.interface)?, PortalFinder::default()));
        self.changed = Instant::now();
        Ok(())
    }

    /// The handle of the current sample, to wait for.
    pub fn device(&self) -> Option<&Device> {
        self.look.as_ref().map(|(device, _)| device)
    }

    /// Continues, starts or ends a sample; returns the capture filter with all portals, and the new ones.
    pub fn advance(&mut self, captured: &Device) -> Option<(String, Vec<Portal>)> {
        const BATCH: usize = 512;
        let Some((device, finder)) = &mut self.look else {
            if self.changed.elapsed() >= Duration::from_nanos(self.settings.every_ns) {
                // if it cannot be opened any more, the capture continues with the known portals
                let _ = self.open(captured);
                self.changed = Instant::now();
            }
            return None;
        };
        let link_type = device.link_type;
        let mut found = Vec::new();
        let result = device.dispatch(BATCH, |arrived| found.extend(finder.take(link_type, &arrived)));
        let is_over = self.changed.elapsed() >= Duration::from_nanos(self.settings.look_ns);
        if result.is_err() || is_over || finder.is_satisfied() {
            self.look = None;
            self.changed = Instant::now();
        }
        found.retain(|&portal| self.portals.len() < PORTALS_MAX && self.portals.insert(portal));
        if found.is_empty() {
            return None;
        }
        let portals: Vec<Portal> = self.portals.iter().copied().collect();
        Some((portals::filter(captured.link_type, &portals), found))
    }
}
