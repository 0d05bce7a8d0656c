//! Writing a basic header segment, for traffic and tests.
//!
//! The setters come from the same table as the view's accessors. Values are not checked, so that tests can build
//! illegal PDUs.

use super::layout::{FieldValue, LENGTH_BYTES, Layout, RESERVED_TAG};
use crate::opcode::Opcode;

/// A basic header segment under construction.
#[derive(Clone, Copy, Debug)]
pub struct BhsBuilder {
    bytes: [u8; LENGTH_BYTES],
}

impl BhsBuilder {
    /// A PDU of type `opcode`, all zero except what RFC 7143 fixes: the F bit of PDUs without sequences, the I bit of a
    /// Login Request, and the tags of an Asynchronous Message and a Reject.
    #[must_use]
    pub fn new(opcode: Opcode) -> BhsBuilder {
        let mut bytes = [0; LENGTH_BYTES];
        bytes[0] = opcode.as_u8();
        let builder = BhsBuilder { bytes };
        match opcode {
            Opcode::ScsiCommand | Opcode::TextRequest | Opcode::DataOut => builder,
            Opcode::TextResponse | Opcode::DataIn | Opcode::LoginResponse => builder,
            Opcode::LoginRequest => builder.is_immediate(true),
            Opcode::AsyncMessage | Opcode::Reject => builder.is_final(true).initiator_task_tag(RESERVED_TAG),
            _ => builder.is_final(true),
        }
    }

    /// I bit.
    #[must_use]
    pub fn is_immediate(mut self, value: bool) -> Self {
        self.bytes[0] = (self.bytes[0] & !0x40) | (u8::from(value) << 6);
        self
    }

    /// TotalAHSLength, in words of four bytes as on the wire.
    #[must_use]
    pub fn total_ahs_length_words(mut self, words: u8) -> Self {
        self.bytes[4] = words;
        self
    }

    /// DataSegmentLength, in bytes without padding; the low 24 bits of `length` are sent.
    #[must_use]
    pub fn data_segment_length(mut self, length: u32) -> Self {
        let [_, data_segment_length @ ..] = length.to_be_bytes();
        self.bytes[5..8].copy_from_slice(&data_segment_length);
        self
    }

    /// The header bytes.
    #[must_use]
    pub fn build(self) -> [u8; LENGTH_BYTES] {
        self.bytes
    }

    /// Writes a field. A field that the PDU type does not have is a mistake of the caller: caught in debug builds.
    pub(super) fn set<T: FieldValue>(mut self, layout: Layout, value: T) -> Self {
        debug_assert!(self.has_opcode_in(layout.opcodes), "{layout:?} in opcode 0x{:02x}", self.bytes[0] & 0x3f);
        value.write(&mut self.bytes[usize::from(layout.first)..usize::from(layout.end)]);
        self
    }

    /// Writes bits of byte 1; as [`BhsBuilder::set`].
    pub(super) fn set_flags(mut self, opcodes: u64, mask: u8, value: u8) -> Self {
        debug_assert!(self.has_opcode_in(opcodes), "bits {mask:#04x} in opcode 0x{:02x}", self.bytes[0] & 0x3f);
        self.bytes[1] = (self.bytes[1] & !mask) | (value & mask);
        self
    }

    fn has_opcode_in(self, opcodes: u64) -> bool {
        (opcodes >> (self.bytes[0] & 0x3f)) & 1 != 0
    }
}
