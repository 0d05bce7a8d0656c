//! The view of a basic header segment: the parts that every PDU type has. `fields` adds the others.

use super::layout::{LENGTH_BYTES, Layout};
use crate::opcode::Opcode;

/// The basic header segment, as far as it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bhs<'a> {
    bytes: &'a [u8],
}

impl<'a> Bhs<'a> {
    /// A view of the first 48 bytes of `captured`, or of all of them when there are fewer.
    #[inline]
    #[must_use]
    pub fn new(captured: &'a [u8]) -> Bhs<'a> {
        Bhs { bytes: captured.get(..LENGTH_BYTES).unwrap_or(captured) }
    }

    /// The captured bytes, at most 48.
    #[inline]
    #[must_use]
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The first byte: reserved bit, I bit and opcode.
    #[inline]
    #[must_use]
    pub fn opcode_byte(self) -> Option<u8> {
        self.bytes.first().copied()
    }

    /// The PDU type; `None` as well for reserved and vendor-specific opcodes.
    #[inline]
    #[must_use]
    pub fn opcode(self) -> Option<Opcode> {
        Opcode::from_u8(self.opcode_byte()?)
    }

    /// I bit: immediate delivery (section 4.2.2.1).
    #[inline]
    #[must_use]
    pub fn is_immediate(self) -> Option<bool> {
        Some(self.opcode_byte()? & 0x40 != 0)
    }

    /// Length of all additional header segments, in bytes, whatever the opcode.
    #[inline]
    #[must_use]
    pub fn total_ahs_length_bytes(self) -> Option<u32> {
        Some(u32::from(*self.bytes.get(4)?) * 4)
    }

    /// DataSegmentLength in bytes, without padding, whatever the opcode.
    #[inline]
    #[must_use]
    pub fn data_segment_length(self) -> Option<u32> {
        match *self.bytes.get(5..8)? {
            [high, middle, low] => Some(u32::from_be_bytes([0, high, middle, low])),
            _ => None,
        }
    }

    /// Bytes of the whole PDU: BHS, AHS, header digest, data padded to four bytes, and data digest if there is data.
    #[inline]
    #[must_use]
    pub fn total_length(self, has_header_digest: bool, has_data_digest: bool) -> Option<u64> {
        let header = LENGTH_BYTES as u64 + u64::from(self.total_ahs_length_bytes()?);
        let data = u64::from(self.data_segment_length()?).next_multiple_of(4);
        let header_digest = if has_header_digest { 4 } else { 0 };
        let data_digest = if has_data_digest && data > 0 { 4 } else { 0 };
        Some(header + header_digest + data + data_digest)
    }

    #[inline(always)]
    pub(super) fn has_opcode_in(self, opcodes: u64) -> bool {
        self.bytes.first().is_some_and(|byte| (opcodes >> (byte & 0x3f)) & 1 != 0)
    }

    #[inline(always)]
    pub(super) fn bytes_of(self, layout: Layout) -> Option<&'a [u8]> {
        self.bytes.get(usize::from(layout.first)..usize::from(layout.end))
    }

    #[inline]
    pub(super) fn flags_byte(self, opcodes: u64) -> Option<u8> {
        if self.has_opcode_in(opcodes) { self.bytes.get(1).copied() } else { None }
    }
}
