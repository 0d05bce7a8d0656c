//! The classic pcap format: a file header of 24 bytes, then records.
//!
//! ```text
//! record  seconds:4  fraction:4  captured_length:4  original_length:4  [Kuznetzov: 8 more]  bytes
//! ```
//!
//! Microseconds, nanoseconds and Kuznetzov's modified header, each in both byte orders, detected by the magic number.
//! The bytes of a packet are not checked.

use iscsitrace_wire::frame::LinkType;

use super::info::{ByteOrder, CaptureInfo, InterfaceInfo, TimeResolution};
use super::record::{End, PACKET_BYTES_AT_MOST, Record};
use super::source::Source;

pub(super) const FILE_HEADER_BYTES: usize = 24;

/// The format of the records, from the file header.
#[derive(Debug)]
pub(super) struct Pcap {
    byte_order: ByteOrder,
    nanoseconds_per_fraction: i64,
    record_header_bytes: usize,
    link_type: LinkType,
}

impl Pcap {
    /// Reads the file header, if these bytes are one.
    pub(super) fn from_file_header(header: &[u8; FILE_HEADER_BYTES], info: &mut CaptureInfo) -> Option<Self> {
        let (byte_order, nanoseconds_per_fraction, record_header_bytes) = match header {
            [0xa1, 0xb2, 0xc3, 0xd4, ..] => (ByteOrder::Big, 1000, 16),
            [0xd4, 0xc3, 0xb2, 0xa1, ..] => (ByteOrder::Little, 1000, 16),
            [0xa1, 0xb2, 0x3c, 0x4d, ..] => (ByteOrder::Big, 1, 16),
            [0x4d, 0x3c, 0xb2, 0xa1, ..] => (ByteOrder::Little, 1, 16),
            [0xa1, 0xb2, 0xcd, 0x34, ..] => (ByteOrder::Big, 1000, 24),
            [0x34, 0xcd, 0xb2, 0xa1, ..] => (ByteOrder::Little, 1000, 24),
            _ => return None,
        };
        let snaplen = byte_order.u32_at(header, 16);
        // The upper half says whether frames end with a frame check sequence, which IP lengths leave out anyway.
        let link_type = (byte_order.u32_at(header, 20) & 0xffff) as u16;
        info.format = "pcap";
        info.byte_order = byte_order;
        info.snaplen = snaplen;
        info.add_interface(InterfaceInfo {
            link_type,
            snaplen,
            time_resolution: TimeResolution::Decimal(if nanoseconds_per_fraction == 1 { 9 } else { 6 }),
            ..InterfaceInfo::default()
        });
        Some(Self { byte_order, nanoseconds_per_fraction, record_header_bytes, link_type: LinkType(link_type) })
    }

    /// The frame after the next one in these bytes; empty if they end before it.
    pub(super) fn after_next<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let captured_length = |at: usize| self.byte_order.u32_at(bytes, at.saturating_add(8)) as usize;
        let after = self.record_header_bytes.saturating_add(captured_length(0));
        let begin = after.saturating_add(self.record_header_bytes);
        bytes.get(begin..begin.saturating_add(captured_length(after))).unwrap_or_default()
    }

    /// The next complete record.
    #[inline]
    pub(super) fn next(&self, source: &mut Source) -> Result<Record, End> {
        if !source.has(self.record_header_bytes) {
            return Err(if source.available().is_empty() { End::Clean } else { End::CutShort });
        }
        let Some(header) = source.available().first_chunk::<16>() else { return Err(End::CutShort) };
        let [seconds, fraction, captured_length, original_length] =
            [0, 4, 8, 12].map(|at| self.byte_order.u32_at(header, at));
        if captured_length > PACKET_BYTES_AT_MOST {
            return Err(End::Invalid);
        }
        if !source.has(self.record_header_bytes + captured_length as usize) {
            return Err(End::CutShort);
        }
        source.consume(self.record_header_bytes);
        let range = source.consume(captured_length as usize);
        source.prefetch();
        Ok(Record {
            // Cannot overflow: both are below 2^32.
            time_ns: i64::from(seconds) * 1_000_000_000 + i64::from(fraction) * self.nanoseconds_per_fraction,
            link_type: self.link_type,
            interface: 0,
            original_length,
            range,
        })
    }
}
