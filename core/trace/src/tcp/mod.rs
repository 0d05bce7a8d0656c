//! Packets -> TCP connections, numbered as Wireshark's `tcp.stream` -> stream bytes in order.
//!
//! ```text
//! table        address and port pairs -> connection numbers
//! connection/  one connection: its packets through both halves to its content, and its row at the end
//! half         one direction: offsets, round-trip times, copies, retransmissions
//! send_order   which of two packets was sent first
//! near         offsets near the end of a stream, in 32 bits
//! reassembly   segments in any order -> bytes in order
//! ```
//!
//! Only `connection` knows that the bytes may be iSCSI.

pub(crate) mod connection;
pub mod half;
pub mod near;
pub mod reassembly;
pub mod send_order;
pub mod table;
#[cfg(test)]
pub(crate) mod test_segment;
