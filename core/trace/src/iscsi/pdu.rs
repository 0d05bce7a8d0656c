//! A PDU as the framer hands it over, and the packets that brought it.

use crate::stream::stamp::Stamp;
use iscsitrace_wire::bhs::Bhs;
use serde::{Deserialize, Serialize};

/// Maximum data that is kept of a PDU (login text, sense data, rejected headers, ...).
pub const KEPT_DATA_MAX: usize = 64 << 10;

/// The packets that brought the data of a PDU, in order of the stream. One that fills several holes counts for each.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPackets {
    /// How many.
    pub count: u32,
    /// Frame of the first.
    pub first_frame: u64,
    /// Frame of the last.
    pub last_frame: u64,
}

impl DataPackets {
    /// Notes the packet with the next bytes of data.
    #[inline]
    pub fn note(&mut self, frame: u64) {
        if self.count == 0 {
            self.first_frame = frame;
        }
        self.count += 1;
        self.last_frame = frame;
    }
}

/// A PDU with a decoded header, as far as it was captured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pdu<'a> {
    /// The basic header segment, as far as it was captured.
    #[serde(skip)]
    pub header: &'a [u8],
    /// The data segment from its first byte, as far as it is kept.
    #[serde(skip)]
    pub data: &'a [u8],
    /// Stream offset of its first byte.
    pub offset: i64,
    /// Stream offset after its last byte.
    pub end: i64,
    /// Stream offset after its data segment: padding and digest come after.
    pub data_end: i64,
    /// When the last captured byte of its data passed the tap.
    pub data_last_ns: i64,
    /// The packets that brought its data.
    pub data_packets: DataPackets,
    /// The packet with its first byte.
    pub first: Stamp,
    /// The packet that completed it; none if its end was not captured.
    pub last: Option<Stamp>,
    /// The last packet of it that was captured.
    pub latest: Stamp,
    /// Whether some of its bytes are missing from the capture.
    pub has_capture_gap: bool,
    /// Whether its last bytes were neither captured nor acknowledged: it never arrived.
    pub is_unfinished: bool,
    /// Whether some of its bytes came late, or again.
    pub is_late: bool,
    /// Whether its header digest matches; none without a digest, or without the bytes to verify it.
    pub header_digest_ok: Option<bool>,
    /// Whether its data digest matches; none without a digest, or without the bytes to verify it.
    pub data_digest_ok: Option<bool>,
}

impl Pdu<'_> {
    /// The view over its header.
    #[inline]
    pub fn bhs(&self) -> Bhs<'_> {
        Bhs::new(self.header)
    }

    /// The packet that completed it, or the last that was captured.
    pub fn completion(&self) -> Stamp {
        self.last.unwrap_or(self.latest)
    }
}
