//! Stream bytes -> PDUs -> sessions, tasks, cycles.
//!
//! ```text
//! detect      is this connection iSCSI, and who is the initiator?
//! framer      stream bytes of one direction -> PDUs
//! connection  PDUs -> the modules below
//! login keys session    who talks to whom, and on which terms
//! task        commands, data and statuses -> cycles
//! exchange    everything that is not a SCSI task
//! assume      what must come next, when its header was cut away
//! spans       which cycle a byte of the stream belongs to
//! ```

pub mod assumption;
pub mod connection;
pub mod context;
pub mod continued_text;
mod cycle_row;
pub mod detect;
pub mod digest_use;
pub mod exchange;
pub mod framer;
pub mod keys;
pub mod login;
pub mod pdu;
mod pdu_row;
pub mod session;
pub mod spans;
pub mod task;
