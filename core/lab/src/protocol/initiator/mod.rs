//! The initiator's side of a session: 1 to 64 connections, ErrorRecoveryLevel 0 (RFC 7143).
//!
//! ```text
//!               submit, ping, abort_task, send_targets, add_connection, remove_connection, logout
//!                                 |
//!   poll_connect, opened  ->   Session   ->  poll_event: Ready, Joined, Done, Targets, Close, Ended ...
//!   receive, closed       ->      |
//!   handle_timeout        ->      +---- window   CmdSN, ExpCmdSN, MaxCmdSN of the session
//!   poll_transmit         <-      +---- task     commands in flight, by Initiator Task Tag
//!                                 +---- connection   login, StatSN, queues
//!
//!   receive     PDUs from the target: validation and dispatch         transmit   PDUs to the target
//!   transfer    Data-In, R2T and status of commands                   requests   NOP, task management, text, logout
//!   login       of each connection                                    violation  protocol violations of the target
//!   breach      rules that it breaks on purpose
//! ```
//!
//! It never does I/O and never reads a clock. It never retries: at ErrorRecoveryLevel 0 a lost connection or a digest
//! error ends the session. Data is never kept: it is exchanged with [`TaskData`] piece by piece.

mod breach;
mod connection;
mod data;
mod event;
mod login;
mod ranges;
mod receive;
mod requests;
mod session;
mod settings;
mod task;
#[cfg(test)]
mod tests;
mod transfer;
mod transmit;
mod violation;
mod window;

pub use breach::InitiatorRule;
pub use data::{NoData, TaskData};
pub use event::{Completion, DiscoveredTarget, Event, Outcome};
pub use session::Session;
pub use settings::{SessionSettings, Timeouts};
pub use task::{Command, Direction};
pub use violation::{SessionError, Violation};
pub use window::CommandWindow;
