//! Traffic with known truth: an initiator, a target and a link, in a real or a simulated world.
//!
//! ```text
//! protocol   iSCSI: initiator and target as state machines
//! scsi       execution of SCSI commands: a disk in memory
//! workload   which commands an initiator sends, and when
//! bulk       plain TCP transfers, without iSCSI
//! link       impairments of packets: rate, queue, delay, loss, reordering
//! tcp        TCP as a state machine, for the simulated world
//! world      transport of the bytes: virtual time, or sockets and TAP devices
//! occurrence  when a fault is there, and what it hit
//! latency    quantiles of durations
//! application  the interface between worlds and programs
//! simulation  a whole run in virtual time
//! truth      what really happened: the reference for the analyzer
//! ```
//!
//! Only `world` reads clocks and does I/O. Everything else takes the time as an argument, in nanoseconds, and is
//! deterministic.

pub mod application;
pub mod bulk;
pub mod latency;
pub mod link;
pub mod occurrence;
pub mod protocol;
pub mod scsi;
pub mod simulation;
pub mod tcp;
pub mod truth;
pub mod workload;
pub mod world;
