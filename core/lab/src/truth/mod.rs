//! The truth of a run: the instants at which the bytes of every command passed a tap.
//!
//! ```text
//!   PDU log of the initiator (stream offsets)  +  bytes past a tap over time (stream offsets)  ->  instants per command
//! ```
//!
//! Definitions are those of docs/method.md, section 3. It is made from logs and never parses a packet, so it is an
//! independent reference for the reader of captures.

mod cycles;
mod instants;
mod tap;

pub use cycles::{Cycles, InitiatorColumns, InstantColumns};
pub use instants::{Instants, TaskPdus, by_task};
pub use tap::{Stream, Tap};
