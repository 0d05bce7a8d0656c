//! Packets of a TCP stream -> its bytes in order. A leaf: it knows neither iSCSI nor who reads the bytes.
//!
//! ```text
//! table        address and port pairs -> connection numbers
//! half         one direction: offsets, round-trip times, copies, retransmissions
//! send_order   which of two packets was sent first
//! reassembly   segments in any order -> bytes in order
//! chunk class stamp    bytes in order, what a packet is to its stream, when it passed the tap
//! near         offsets near the end of a stream, in 32 bits
//! closing      how a connection was closed
//! progress     when new data passed, which an outage interrupts
//! ```

pub mod chunk;
pub mod class;
pub mod closing;
pub mod half;
pub mod near;
pub mod progress;
pub mod reassembly;
pub mod send_order;
pub mod stamp;
pub mod table;
