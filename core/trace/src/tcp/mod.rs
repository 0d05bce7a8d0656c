//! Packets -> TCP connections, numbered as Wireshark's `tcp.stream` -> stream bytes in order.
//!
//! ```text
//! table       address and port pairs -> connection numbers
//! half        one direction: offsets, round-trip times, copies, retransmissions
//! reassembly  segments in any order -> bytes in order
//! ```
//!
//! Nothing here knows iSCSI.

pub mod half;
pub mod reassembly;
pub mod table;
