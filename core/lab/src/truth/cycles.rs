//! Every command of a run as columns: what the workload record for, and its instants.

use std::collections::{BTreeMap, VecDeque};

use iscsitrace_wire::cdb;
use serde::Serialize;

use super::instants::{Instants, READY_TO_TRANSFER, TaskPdus, is_data};
use super::tap::Tap;
use crate::workload::client::results::TaskRecord;

macro_rules! instant_columns {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Instants of all commands at one tap, in nanoseconds, as columns.
        #[derive(Debug, Default, Serialize)]
        #[allow(missing_docs, reason = "those of Instants")]
        pub struct InstantColumns { $(pub $name: Vec<Option<i64>>,)* }

        impl InstantColumns {
            fn push(&mut self, instants: Instants) {
                $(self.$name.push(instants.$name);)*
            }
        }
    };
}

instant_columns! { command_first_ns command_last_ns r2t_first_ns data_first_ns data_last_ns data_acked_ns status_ns }

/// Every SCSI command of a run, as columns; those outside the workload (INQUIRY and the like) have no operation.
#[derive(Debug, Default, Serialize)]
pub struct Cycles {
    /// Session number of the initiator.
    pub session: Vec<Option<usize>>,
    /// Connection number of the initiator.
    pub connection: Vec<usize>,
    /// Target, by its place in the settings.
    pub target: Vec<Option<usize>>,
    /// Initiator Task Tag.
    pub initiator_task_tag: Vec<u32>,
    /// `read` or `write`.
    pub operation: Vec<Option<&'static str>>,
    /// First logical block.
    pub lba: Vec<Option<u64>>,
    /// Logical blocks.
    pub block_count: Vec<Option<u32>>,
    /// Bytes of data in its PDUs.
    pub bytes: Vec<u64>,
    /// SCSI status; for commands of the workload only.
    pub status: Vec<Option<u8>>,
    /// Data-In and Data-Out PDUs with data.
    pub data_pdu_count: Vec<usize>,
    /// R2Ts.
    pub r2t_count: Vec<usize>,
    /// Instants at the initiator's tap.
    pub initiator: InstantColumns,
    /// Instants at the tap of the target.
    pub at_target: InstantColumns,
    /// Instants at the initiator itself, without taps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_initiator: Option<InitiatorColumns>,
}

/// Instants of commands at the initiator itself, in nanoseconds, as columns.
#[derive(Debug, Default, Serialize)]
#[allow(clippy::struct_field_names, reason = "the names of TaskRecord")]
pub struct InitiatorColumns {
    /// When it was submitted.
    pub submitted_ns: Vec<i64>,
    /// When its SCSI Command PDU was passed to the transport.
    pub sent_ns: Vec<Option<i64>>,
    /// When the first Data-In, or the first R2T, arrived.
    pub first_data_ns: Vec<Option<i64>>,
    /// When its status arrived.
    pub completed_ns: Vec<i64>,
}

impl Cycles {
    /// The commands of the workload with the initiator's instants, in the order of completion.
    pub fn by_initiator(record: &[TaskRecord], place_of: impl Fn(usize) -> Option<(usize, usize)>) -> Self {
        let mut cycles = Self::default();
        let mut instants = InitiatorColumns::default();
        for record in record {
            let place = place_of(record.connection);
            cycles.session.push(place.map(|place| place.0));
            cycles.connection.push(record.connection);
            cycles.target.push(place.map(|place| place.1));
            cycles.initiator_task_tag.push(record.initiator_task_tag);
            cycles.operation.push(Some(if record.is_read { "read" } else { "write" }));
            cycles.lba.push(Some(record.lba));
            cycles.block_count.push(Some(record.blocks));
            cycles.bytes.push(u64::from(record.bytes));
            cycles.status.push(record.status);
            instants.submitted_ns.push(record.submitted_ns);
            instants.sent_ns.push(record.sent_ns);
            instants.first_data_ns.push(record.first_data_ns);
            instants.completed_ns.push(record.completed_ns);
        }
        cycles.by_initiator = Some(instants);
        cycles
    }

    /// The commands `tasks` with the instants at the taps; `place_of` returns session and target of a connection.
    pub fn new(
        tasks: &[TaskPdus],
        record: &[TaskRecord],
        initiator_tap: &Tap,
        target_taps: &[Tap],
        place_of: impl Fn(usize) -> Option<(usize, usize)>,
    ) -> Self {
        let mut cycles = Self::default();
        // with one tag on one connection, commands are in the same order in both logs
        let mut records = BTreeMap::<_, VecDeque<&TaskRecord>>::new();
        for record in record {
            records.entry((record.connection, record.initiator_task_tag)).or_default().push_back(record);
        }
        for task in tasks {
            let place = place_of(task.connection);
            let at_initiator = task.instants(initiator_tap);
            // commands that only identify the logical unit are not of the workload
            let record = records
                .get_mut(&(task.connection, task.initiator_task_tag))
                .filter(|_| task.pdus.first().and_then(|command| command.operation_code).is_some_and(moves_blocks))
                // nor has a command that never completed a record
                .filter(|queue| {
                    queue.front().is_some_and(|next| {
                        next.sent_ns <= at_initiator.command_first_ns
                            && Some(next.completed_ns) >= at_initiator.command_first_ns
                    })
                })
                .and_then(VecDeque::pop_front);
            cycles.session.push(place.map(|place| place.0));
            cycles.connection.push(task.connection);
            cycles.target.push(place.map(|place| place.1));
            cycles.initiator_task_tag.push(task.initiator_task_tag);
            cycles.operation.push(record.map(|record| if record.is_read { "read" } else { "write" }));
            cycles.lba.push(record.map(|record| record.lba));
            cycles.block_count.push(record.map(|record| record.blocks));
            cycles.bytes.push(task.data_bytes());
            cycles.status.push(record.and_then(|record| record.status));
            cycles.data_pdu_count.push(task.pdus.iter().filter(is_data).count());
            cycles.r2t_count.push(task.pdus.iter().filter(|pdu| pdu.opcode == READY_TO_TRANSFER).count());
            cycles.initiator.push(at_initiator);
            let at_target = place.and_then(|place| target_taps.get(place.1)).map(|tap| task.instants(tap));
            cycles.at_target.push(at_target.unwrap_or_default());
        }
        cycles
    }
}

/// READ and WRITE of 6, 10, 12 and 16 bytes.
fn moves_blocks(operation_code: u8) -> bool {
    cdb::decode(&[operation_code], None).operation.moves_blocks()
}

#[cfg(test)]
mod tests {
    use super::super::instants::tests::pdu;
    use super::super::instants::{DATA_IN, SCSI_COMMAND, SCSI_RESPONSE, by_task};
    use super::*;
    use crate::protocol::pdu_log::PduRecord;

    #[test]
    fn sense_data_and_empty_pdus_are_no_data() {
        let log = [
            pdu(true, 0, SCSI_COMMAND, 30),
            pdu(false, 0, DATA_IN, 100),
            pdu(false, 148, DATA_IN, 0),
            pdu(false, 196, SCSI_RESPONSE, 20),
        ];
        let record = [];
        let tasks = by_task(&log);
        assert_eq!(tasks[0].data_bytes(), 130);
        let cycles = Cycles::new(&tasks, &record, &Tap::default(), &[], |_| None);
        assert_eq!((cycles.bytes[0], cycles.data_pdu_count[0], cycles.r2t_count[0]), (130, 1, 0));
    }

    fn record(sent_ns: i64, completed_ns: i64, lba: u64) -> TaskRecord {
        TaskRecord {
            session: 0,
            connection: 0,
            initiator_task_tag: 5,
            is_read: true,
            lba,
            blocks: 1,
            bytes: 512,
            submitted_ns: sent_ns,
            sent_ns: Some(sent_ns),
            first_data_ns: None,
            completed_ns,
            status: Some(0),
        }
    }

    /// Two commands with the same tag, at 10 and 20 ns: INQUIRY has no record, nor has a read that never completed.
    #[test]
    fn a_record_belongs_to_the_command_within_its_time() {
        let command = |offset, operation_code| PduRecord {
            operation_code: Some(operation_code),
            ..pdu(true, offset, SCSI_COMMAND, 0)
        };
        let mut tap = Tap::default();
        tap.stream(0, true).record(0, 48, 10);
        tap.stream(0, true).record(48, 96, 20);
        let lba = |codes: [u8; 2], records: &[TaskRecord]| {
            let log = [command(0, codes[0]), command(48, codes[1])];
            Cycles::new(&by_task(&log), records, &tap, &[], |_| None).lba
        };
        assert_eq!(lba([0x28, 0xa8], &[record(10, 15, 1), record(20, 25, 2)]), [Some(1), Some(2)]);
        assert_eq!(lba([0x12, 0x88], &[record(20, 25, 2)]), [None, Some(2)], "INQUIRY");
        assert_eq!(lba([0x28, 0x2a], &[record(20, 25, 2)]), [None, Some(2)], "never completed");
        assert_eq!(lba([0x28, 0x2a], &[record(10, 15, 1)]), [Some(1), None], "completed before");
        assert_eq!(lba([0x28, 0x2a], &[record(5, 8, 1)]), [None, None], "another command's");
    }
}
