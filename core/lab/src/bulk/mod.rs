//! Plain TCP transfers: the throughput of a socket without iSCSI.
//!
//! ```text
//! initiator                                        target
//!   request: which direction, how much    ->
//!   closes when all blocks arrived        <-         blocks, a system call each       socket_read
//!
//!   request, then blocks                  ->
//!   closes                                <-         report: bytes and times          socket_write
//! ```
//!
//! ```text
//! message    request and report, as bytes
//! blocks     the blocks at the sender and at the receiver
//! initiator  the end that sends requests  target     the end that serves them
//! results    the results of a run
//! ```
//!
//! Its bytes cannot be mistaken for iSCSI. It never does I/O and never reads a clock.

mod blocks;
mod initiator;
mod message;
pub mod results;
mod target;
#[cfg(test)]
mod tests;

pub use initiator::BulkInitiator;
pub use target::BulkTarget;
