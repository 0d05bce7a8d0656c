//! Any byte source -> packets with a time, a link type and a frame number.
//!
//! ```text
//! sequence    several captures as one stream      filter  libpcap's filter expressions
//! compressed  gzip, zstd, lz4
//! source      a window over a reader or file      capture one capture of any format
//! pcap        | pcapng        bytes -> records
//! ```
//!
//! A packet is a slice of one reused buffer: memory use does not grow with packets. Damage is counted and ends a file,
//! never the analysis. Nothing here looks into a packet.

mod capture;
mod compressed;
mod error;
pub mod filter;
mod info;
mod pcap;
mod pcapng;
mod record;
pub mod sequence;
mod source;
#[cfg(test)]
mod tests;

pub use capture::Capture;
pub(crate) use compressed::decompress;
pub use error::CaptureError;
pub use filter::Filter;
pub use info::{ByteOrder, CaptureInfo, InterfaceInfo, TimeResolution};
pub use record::Packet;
pub use sequence::{Input, Sequence};
