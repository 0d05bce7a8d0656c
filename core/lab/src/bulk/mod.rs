//! A bulk transfer over bare TCP: what a socket carries where iSCSI would run.
//!
//! ```text
//! initiator                                        target
//!   request: which direction, how much    ->
//!   closes when all is there              <-         blocks, a system call each       socket_read
//!
//!   request, then blocks                  ->
//!   closes                                <-         report: what came, and how fast  socket_write
//! ```
//!
//! ```text
//! message    request and report, as bytes
//! blocks     what is sent, and what came of it and when
//! initiator  the end that asks            target     the end that is asked
//! results    what a run gave
//! ```
//!
//! Its bytes are told from iSCSI at first sight. It never does I/O and never reads a clock.

mod blocks;
mod initiator;
mod message;
pub mod results;
mod target;
#[cfg(test)]
mod tests;

pub use initiator::BulkInitiator;
pub use target::BulkTarget;
