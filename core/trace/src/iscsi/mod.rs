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

pub mod assume;
pub mod connection;
pub mod detect;
pub mod exchange;
pub mod framer;
pub mod keys;
pub mod login;
pub mod session;
pub mod spans;
pub mod task;
