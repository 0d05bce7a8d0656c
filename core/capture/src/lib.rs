//! Interfaces -> pcapng files: packets are captured while they pass, and kept in files that are always readable.
//!
//! ```text
//! settings  report       what is wanted; what happens meanwhile, and how it ended
//! device    helper       packets of an interface: by libpcap, or by dumpcap where only that may capture
//! portals   learn        capture filters for iSCSI; finding portals by content
//! trigger/  condition, history, observer: keep only the time around slow commands
//! output    files        bytes to a file, a pipe or a ring of files
//! snaplen                how many bytes of a packet keep every header
//! capture                all of it together: the loop
//! ```
//!
//! One thread: it copies packets out of the kernel's buffer into files. What it cannot carry away in time the kernel
//! drops and counts, and every count is told. Nothing here prints.

pub mod device;
mod dumpcap;
pub mod error;
mod files;
mod output;
mod portal_search;
pub mod portals;
pub mod recorder;
pub mod report;
pub mod settings;
pub mod snaplen;
pub mod trigger;
