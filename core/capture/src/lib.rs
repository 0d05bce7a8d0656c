//! Interfaces -> pcapng files: captures packets into files that are readable at any time.
//!
//! ```text
//! settings  report       the request as JSON; progress and result
//! drops                  reports of dropped packets
//! device    dumpcap      packets of an interface: from libpcap, or from dumpcap where only it has the permission
//! clock                  the time of the capture while no packet comes
//! portals   portal_search   capture filters for iSCSI; finding portals by content
//! trigger/  condition, history, observer: keeps only the time around slow commands
//! tcp_info               samples of the kernel's TCP_INFO of the captured sockets
//! output    files        bytes to a file, a pipe or a ring of files
//! ring      compressor   the finished files of a ring: which stay, and their compression
//! confinement            what a process gives up once its inputs are open
//! snaplen                how many bytes of a packet keep every header
//! recorder               the capture loop: packets of all interfaces into files
//! ```
//!
//! One thread copies packets from the kernel's buffer into files. Packets that it cannot keep up with are dropped and
//! counted by the kernel, and every count is reported. Nothing here prints.

mod clock;
mod compressor;
pub mod confinement;
pub mod device;
mod drops;
mod dumpcap;
pub mod error;
mod files;
mod output;
mod portal_search;
pub mod portals;
pub mod recorder;
pub mod report;
mod ring;
pub mod settings;
pub mod snaplen;
mod tcp_info;
pub mod trigger;
