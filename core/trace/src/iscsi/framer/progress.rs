//! The current PDU of a framer: its position, its known bytes, the positions of its parts.

use iscsitrace_wire::bhs::{Bhs, LENGTH_BYTES};
use serde::{Deserialize, Serialize};

use crate::iscsi::pdu::DataPackets;
use crate::stream::stamp::Stamp;

/// Minimum captured bytes of a header to skip its PDU: up to the DataSegmentLength.
pub(super) const HEADER_WALK_BYTES: usize = 8;
/// No packet yet.
pub(super) const NOWHERE: Stamp = Stamp { frame: 0, time_ns: 0 };

/// The current PDU.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct InProgress {
    pub(super) start: i64,
    pub(super) position: u64,
    #[serde(with = "serde_bytes")]
    pub(super) header: [u8; LENGTH_BYTES],
    pub(super) header_known: usize,
    /// Position of the end of the AHS, and so on.
    pub(super) ahs_end: u64,
    pub(super) data_start: u64,
    pub(super) data_end: u64,
    pub(super) digest_start: u64,
    /// 0 while the header is incomplete.
    pub(super) end: u64,
    pub(super) first: Stamp,
    pub(super) last: Option<Stamp>,
    /// Whether its last packet was not captured, or may come after it is handed over.
    pub(super) is_end_missing: bool,
    /// When its last captured byte of data passed the tap.
    pub(super) data_last_ns: i64,
    pub(super) data_packets: DataPackets,
    pub(super) has_capture_gap: bool,
    pub(super) is_late: bool,
    /// CRC of header and AHS, or of data, while all their bytes are known.
    pub(super) crc: Option<u32>,
    pub(super) wants_crc: bool,
    pub(super) digest: [u8; 4],
    pub(super) header_digest_ok: Option<bool>,
    pub(super) data_digest_ok: Option<bool>,
    pub(super) kept: Vec<u8>,
    pub(super) keep: usize,
}

impl Default for InProgress {
    fn default() -> Self {
        Self {
            start: 0,
            position: 0,
            header: [0; LENGTH_BYTES],
            header_known: 0,
            ahs_end: 0,
            data_start: 0,
            data_end: 0,
            digest_start: 0,
            end: 0,
            first: NOWHERE,
            last: None,
            is_end_missing: false,
            data_last_ns: i64::MIN,
            data_packets: DataPackets::default(),
            has_capture_gap: false,
            is_late: false,
            crc: None,
            wants_crc: false,
            digest: [0; 4],
            header_digest_ok: None,
            data_digest_ok: None,
            kept: Vec::new(),
            keep: 0,
        }
    }
}

impl InProgress {
    #[inline]
    pub(super) fn begin(&mut self, start: i64) {
        self.start = start;
        self.position = 0;
        self.header_known = 0;
        self.end = 0;
        self.last = None;
        self.is_end_missing = false;
        self.data_last_ns = i64::MIN;
        self.data_packets.count = 0;
        self.has_capture_gap = false;
        self.is_late = false;
        self.header_digest_ok = None;
        self.data_digest_ok = None;
        self.kept.clear();
        self.keep = 0;
    }

    /// Whether bytes of it were read, and others are still to come.
    #[inline]
    pub(super) fn is_under_way(&self) -> bool {
        self.position > 0 && (self.end == 0 || self.position < self.end)
    }

    #[inline]
    pub(super) fn note(&mut self, stamp: Stamp, is_late: bool) {
        if self.position == 0 {
            self.first = stamp;
        }
        self.last = self.last.max(Some(stamp));
        self.is_late |= is_late;
    }

    /// Computes the parts from the header (RFC 7143 section 11.2.1).
    pub(super) fn lay_out(&mut self, has_header_digest: bool, has_data_digest: bool) {
        let bhs = Bhs::new(&self.header[..self.header_known]);
        let ahs = u64::from(bhs.total_ahs_length_bytes().unwrap_or(0));
        let data = u64::from(bhs.data_segment_length().unwrap_or(0));
        self.ahs_end = LENGTH_BYTES as u64 + ahs;
        self.data_start = self.ahs_end + if has_header_digest { 4 } else { 0 };
        self.data_end = self.data_start + data;
        self.digest_start = self.data_start + data.next_multiple_of(4);
        self.end = self.digest_start + if has_data_digest && data > 0 { 4 } else { 0 };
    }
}
