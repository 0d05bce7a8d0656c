//! A SCSI command in progress: its data, and its completion. Never accesses the medium.

use iscsitrace_wire::cdb::{self, DISK, Operation};
use iscsitrace_wire::status::Status;

use super::nexus::Nexus;
use super::sense::Sense;

/// The completion of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Its status.
    pub status: Status,
    /// Sense data, empty unless the status is CHECK CONDITION, without the length that precedes it in a SCSI Response.
    pub sense: Vec<u8>,
}

impl Completion {
    /// Without sense data.
    #[must_use]
    pub const fn new(status: Status) -> Completion {
        Completion { status, sense: Vec::new() }
    }
}

/// Why a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// CHECK CONDITION.
    Check(Sense),
    /// RESERVATION CONFLICT.
    Conflict,
}

impl From<Sense> for Refused {
    fn from(sense: Sense) -> Refused {
        Refused::Check(sense)
    }
}

/// The data transfer of an accepted command.
#[derive(Debug)]
pub(super) enum Work {
    /// Executed; there may be data to fetch.
    Done { status: Status, data_in: Vec<u8> },
    /// Blocks to read, from this byte of the medium.
    Read { first_byte: u64, length: u64 },
    /// Blocks to write, from this byte of the medium.
    Write { first_byte: u64, length: u64 },
    /// Blocks to compare with those from this byte of the medium; the first difference, as an offset.
    Verify { first_byte: u64, length: u64, miscompare: Option<u64> },
    /// Blocks to OR into those from this byte of the medium.
    Or { first_byte: u64, length: u64 },
    /// A parameter list, or data that is needed as a whole: evaluated when the command is finished.
    Collect { cdb: [u8; 16], bytes: Vec<u8> },
}

impl Work {
    /// Executed, without data.
    pub(super) const GOOD: Work = Work::Done { status: Status::Good, data_in: Vec::new() };

    /// Executed, with data to fetch, truncated to the allocation length.
    pub(super) fn data_in(mut data_in: Vec<u8>, allocation_length: u64) -> Work {
        data_in.truncate(usize::try_from(allocation_length).unwrap_or(usize::MAX));
        Work::Done { status: Status::Good, data_in }
    }
}

/// A SCSI command in progress. The target keeps it, and drops it to abort it.
#[derive(Debug)]
pub struct Task {
    /// Index of the logical unit in the device; none if it does not exist.
    pub(super) unit: Option<usize>,
    pub(super) nexus: Nexus,
    pub(super) work: Work,
    /// Bytes of data out received.
    pub(super) received: u64,
    /// An error during the transfer.
    pub(super) refused: Option<Refused>,
    pub(super) completion: Option<Completion>,
}

impl Task {
    /// Length of the command's data in, whatever the initiator expects.
    #[must_use]
    pub fn data_in_length(&self) -> u64 {
        match &self.work {
            Work::Done { data_in, .. } => data_in.len() as u64,
            Work::Read { length, .. } => *length,
            _ => 0,
        }
    }

    /// Length of the command's data out, whatever the initiator expects.
    #[must_use]
    pub fn data_out_length(&self) -> u64 {
        match &self.work {
            Work::Write { length, .. } | Work::Verify { length, .. } | Work::Or { length, .. } => *length,
            Work::Collect { bytes, .. } => bytes.len() as u64,
            _ => 0,
        }
    }

    /// Sets the Expected Data Transfer Length of a write, right after `execute`. COMPARE AND WRITE and WRITE SAME are
    /// refused when it differs from their data length.
    pub fn expect_data_out(&mut self, length: u64) {
        let Work::Collect { cdb, bytes } = &self.work else { return };
        let field = match cdb::decode(cdb, Some(DISK)).operation {
            Operation::CompareAndWrite => 13,
            Operation::WriteSame => 0,
            _ => return,
        };
        if length != bytes.len() as u64 {
            self.refused = Some(Sense::cdb_field(field).into());
            self.work = Work::GOOD;
        }
    }
}
