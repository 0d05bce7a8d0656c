//! A PDU as the framer hands it over, and the packets that brought it.

use iscsitrace_wire::bhs::Bhs;

/// Data kept for the session's eyes (login text, sense data, rejected headers, ...).
pub const KEPT_DATA_MAX: usize = 64 << 10;

/// A packet, by number and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Frame number.
    pub frame: u64,
    /// Capture time.
    pub time_ns: i64,
}

/// A PDU whose header was read, as far as it was captured.
#[derive(Debug)]
pub struct Pdu<'a> {
    /// Its basic header segment, cut where the capture cut it.
    pub header: &'a [u8],
    /// Its data segment from the first byte on, as far as it is kept.
    pub data: &'a [u8],
    /// Stream offset of its first byte.
    pub offset: i64,
    /// One past its last byte.
    pub end: i64,
    /// The packet that brought its first byte.
    pub first: Stamp,
    /// The packet that completed it; none when its end was not captured.
    pub last: Option<Stamp>,
    /// Whether bytes of it were never captured.
    pub has_capture_gap: bool,
    /// Whether bytes of it came late, or again.
    pub is_late: bool,
    /// Whether its header digest matches; none without digest or bytes to tell.
    pub header_digest_ok: Option<bool>,
    /// Whether its data digest matches; none without digest or bytes to tell.
    pub data_digest_ok: Option<bool>,
}

impl Pdu<'_> {
    /// The view over its header.
    #[inline]
    pub fn bhs(&self) -> Bhs<'_> {
        Bhs::new(self.header)
    }

    /// The packet that completed it, or that began it when its end was not captured.
    pub fn completion(&self) -> Stamp {
        self.last.unwrap_or(self.first)
    }
}
