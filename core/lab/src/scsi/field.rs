//! A field of a CDB, or of a parameter list.

use iscsitrace_wire::cdb;

/// A big-endian number of at most 8 bytes; 0 when the bytes are too short.
pub(super) fn number(bytes: &[u8], first: usize, length: usize) -> u64 {
    cdb::number(bytes, first, length).unwrap_or(0)
}
