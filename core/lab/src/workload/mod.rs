//! The workload of an initiator.
//!
//! ```text
//! settings   the workload            pattern    self-describing data
//! sequence   the addresses of system calls      split   a system call -> commands
//! dealing    which connection carries the next command
//! tuning     the number of connections
//! slices     throughput over time
//! client     the reference initiator: sessions, logical units, the run, its results
//! url        libiscsi's URLs -> settings
//! ```
//!
//! It never does I/O and never reads a clock.

pub mod client;
pub mod dealing;
pub mod pattern;
pub mod sequence;
pub mod settings;
pub mod slices;
pub mod split;
pub mod tuning;
pub mod url;
