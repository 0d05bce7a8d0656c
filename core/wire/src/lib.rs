//! One header on the wire <-> one struct, stateless.
//!
//! ```text
//! frame   link, IP and TCP headers of one captured frame -> a TCP segment
//! serial  RFC 1982 numbers: TCP sequence numbers, CmdSN, StatSN, DataSN
//! opcode  the 18 PDU types of RFC 7143
//! bhs     the 48-byte basic header segment, view and builder
//! reject  the reasons of a Reject; login_status  the status of a Login Response
//! management  codes of task management and logouts that decide what ends
//! lun     the 8 bytes of a LUN <-> its number
//! text    key=value pairs of Login and Text PDUs; key: how their values are negotiated
//! cdb     SCSI command descriptor blocks; cdb::commands  what every operation code means
//! parameter_data  what a logical unit says of itself: INQUIRY, READ CAPACITY, REPORT TARGET PORT GROUPS
//! status  the status of a SCSI command, and T10's names; sense  sense data of a CHECK CONDITION, and T10's words
//! digest  CRC32C of headers and data
//! capture_writer  packets -> a pcapng or pcap file
//! tcp_info  a sample of the kernel's TCP_INFO <-> a line of ss
//! ```
//!
//! Nothing here keeps state, does I/O or allocates more than one header's worth, except the writer, which counts its
//! interfaces and writes to its output.

pub mod bhs;
pub mod capture_writer;
pub mod cdb;
pub mod digest;
pub mod frame;
pub mod key;
pub mod login_status;
pub mod lun;
pub mod management;
pub mod opcode;
pub mod parameter_data;
pub mod reject;
pub mod sense;
pub mod serial;
pub mod status;
pub mod tcp_info;
pub mod text;
