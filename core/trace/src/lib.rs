//! Capture bytes -> packets -> TCP streams -> iSCSI PDUs -> cycles -> columns, in one pass.
//!
//! ```text
//! reader/    any byte source -> packets (pcap, pcapng, gzip, zstd, lz4; capture filters)
//! tcp/       packets -> connections, numbered as Wireshark's tcp.stream -> stream bytes in order
//! iscsi/     stream bytes -> PDUs -> sessions, tasks, cycles
//! dynamics/  packets -> how each sender behaved: outstanding data, losses, flights (on request)
//! content    between the two: is it iSCSI, and whose bytes are these?
//! queue      queue depth, after the pass
//! budget/    who owns each nanosecond, after the pass (on request)
//! tables     the columns that come out
//! counters   every oddity of the input, by name
//! pipeline   packets in, tables out
//! live       a pass that goes on: what was read since the last look, in bounded memory
//! pass       the input as one stream, filtered, through the pipeline
//! ```
//!
//! Data flows downwards only. Memory does not grow with packets.

pub mod budget;
pub mod content;
pub mod counters;
pub mod dynamics;
pub mod iscsi;
pub mod live;
pub mod pass;
pub mod pipeline;
pub mod queue;
pub mod reader;
pub mod tables;
pub mod tcp;
