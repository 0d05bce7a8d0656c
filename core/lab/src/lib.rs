//! Traffic whose truth is known: an initiator, a target and a link, in a real or a simulated world.
//!
//! ```text
//! protocol   iSCSI: initiator and target as state machines
//! scsi       what a target does with a command: a disk in memory
//! workload   what an initiator asks for, and when
//! bulk       bytes over a bare socket, without iSCSI
//! link       what becomes of packets on their way: rate, delay, queue, loss, order
//! tcp        TCP as a state machine, for the simulated world
//! world      who moves the bytes: virtual time, or sockets and TAP devices
//! application  what worlds and programs know of each other
//! simulation  a whole run in virtual time
//! truth      what really happened, for the analyzer to be held against
//! ```
//!
//! Only `world` reads clocks and does I/O. Everything else is told the time, in nanoseconds, and gives the same answers
//! to the same calls.

pub mod application;
pub mod bulk;
pub mod link;
pub mod protocol;
pub mod scsi;
pub mod simulation;
pub mod tcp;
pub mod truth;
pub mod workload;
pub mod world;
