//! The position of a field in the header, and how its value is read and written.

use crate::opcode::Opcode;
use crate::serial::SerialNumber;

/// Length of the basic header segment.
pub const LENGTH_BYTES: usize = 48;

/// The value of an Initiator or Target Transfer Tag that means "none".
pub const RESERVED_TAG: u32 = 0xffff_ffff;

/// The position of a field, and the PDU types that have it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    pub(super) first: u8,
    pub(super) end: u8,
    /// Bit n stands for opcode n.
    pub(super) opcodes: u64,
}

pub(super) const fn opcodes(list: &[Opcode]) -> u64 {
    let mut set = 0;
    let mut index = 0;
    while index < list.len() {
        set |= 1 << list[index].as_u8();
        index += 1;
    }
    set
}

/// A value of a field: big-endian on the wire.
pub(super) trait FieldValue: Sized {
    fn read(bytes: &[u8]) -> Option<Self>;
    fn write(self, bytes: &mut [u8]);
}

macro_rules! big_endian {
    ($($type:ty)*) => {$(
        impl FieldValue for $type {
            #[inline]
            fn read(bytes: &[u8]) -> Option<Self> {
                Some(<$type>::from_be_bytes(bytes.try_into().ok()?))
            }
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}
big_endian!(u8 u16 u32);

impl FieldValue for SerialNumber {
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        u32::read(bytes).map(SerialNumber)
    }
    fn write(self, bytes: &mut [u8]) {
        self.0.write(bytes);
    }
}

impl<const LENGTH: usize> FieldValue for [u8; LENGTH] {
    #[inline]
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
    fn write(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self);
    }
}
