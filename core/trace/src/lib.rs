//! Capture bytes -> packets -> TCP streams -> iSCSI PDUs -> cycles -> columns, in one pass.
//!
//! ```text
//! reader/    any byte source -> packets (pcap, pcapng, gzip, zstd, lz4; capture filters)
//! stream/    packets -> connections, numbered as Wireshark's tcp.stream -> stream bytes in order
//! iscsi/     stream bytes -> PDUs -> sessions, tasks, cycles
//! conformance/  PDUs -> who breaks RFC 7143 (on request)
//! senders/  packets -> how each sender behaved: bytes in flight, losses, flights (on request)
//! connection/  one connection: its packets through both halves to its content (is it iSCSI, and which direction is whose?)
//! ledger     queue depths and totals of sessions, and which commands were handed over before the end
//! tcp_info   samples of the kernel's TCP_INFO, in captures or files -> rows of their connections
//! budget/    the time breakdown, after the pass (on request)
//! tables/    the columns that come out, each declared once
//! counters   every oddity of the input, by name
//! settling   which connections are over, so that they hold little
//! pipeline   packets in, tables out
//! live/      a pass over input that has no end yet, in bounded memory
//! taps/      two captures of the same traffic: which connections they share, and a join of their packets
//! pass       one pass over all input: filter, time window, pipeline
//! ring       a pass that is left between two captures, and continued from its state elsewhere
//! ```
//!
//! Data flows downwards only. Memory use does not grow with the number of packets.

pub mod budget;
pub mod conformance;
pub mod connection;
pub mod context;
pub mod counters;
pub mod iscsi;
mod ledger;
pub mod live;
pub mod pass;
pub mod pipeline;
pub mod reader;
pub mod ring;
pub mod senders;
mod settling;
pub mod stream;
pub mod tables;
pub mod taps;
pub mod tcp_info;
