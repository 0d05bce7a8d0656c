//! One header on the wire <-> one struct, stateless.
//!
//! ```text
//! frame   link, IP and TCP headers of one captured frame -> a TCP segment
//! serial  RFC 1982 numbers: TCP sequence numbers, CmdSN, StatSN, DataSN
//! opcode  the 18 PDU types of RFC 7143
//! bhs     the 48-byte basic header segment, view and builder
//! text    key=value pairs of Login and Text PDUs
//! cdb     SCSI command descriptor blocks
//! digest  CRC32C of headers and data
//! ```
//!
//! Nothing here keeps state, does I/O or allocates more than one header's worth.

pub mod bhs;
pub mod cdb;
pub mod digest;
pub mod frame;
pub mod opcode;
pub mod serial;
pub mod text;
