//! Stream bytes -> PDUs -> sessions, commands, cycles. Upper modules use lower ones only.
//!
//! ```text
//! detect      is this connection iSCSI, and who is the initiator?
//! connection  PDUs of one connection -> the modules below
//! framer      stream bytes of one direction -> PDUs
//! login keys session    who talks to whom, with which parameters
//! task        commands, data and statuses -> cycles (rows: cycle_row, pdu_row)
//! by_unit     which open tasks a reset ends
//! ranges      which numbers and bytes came, and which are missing between them
//! data_numbers     which DataSN and R2TSN a task skipped
//! exchange    everything that is not a SCSI command
//! lost_statuses    whose statuses are missing from the capture
//! missing_pdus     how many PDUs are missing, by numbers and by bytes
//! synchroniser     where in a stream PDUs begin
//! spans       which cycle a byte of the stream belongs to
//! noted       what a pass notes for whoever rewrites the streams
//! pdu digest_use continued_text    what these modules share
//! ```

pub mod by_unit;
pub mod connection;
pub mod continued_text;
mod cycle_row;
mod data_numbers;
pub mod detect;
pub mod digest_use;
pub mod exchange;
pub mod framer;
pub mod keys;
pub mod login;
pub mod lost_statuses;
pub mod missing_pdus;
pub mod noted;
pub mod pdu;
mod pdu_row;
pub mod ranges;
pub mod session;
pub mod spans;
pub mod synchroniser;
pub mod task;

#[cfg(test)]
mod tests;
