//! The truth of a run: the instants at which the bytes of every command passed a tap.
//!
//! ```text
//!   PDU log of the initiator (stream offsets)  +  bytes past a tap over time (stream offsets)  ->  instants per command
//! ```
//!
//! Definitions are those of docs/method.md, section 3. It is made from logs and never parses a packet, so it is an
//! independent reference for the reader of captures.

use iscsitrace_wire::cdb;
use serde::Serialize;

use crate::protocol::pdu_log::PduRecord;
use crate::workload::client::results::TaskRecord;

const SCSI_COMMAND: u8 = 0x01;
const DATA_OUT: u8 = 0x05;
const SCSI_RESPONSE: u8 = 0x21;
const DATA_IN: u8 = 0x25;
const READY_TO_TRANSFER: u8 = 0x31;

/// Bytes of a stream that passed the tap first in one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Brought {
    start: u64,
    end: u64,
    time_ns: i64,
}

/// One direction of a connection, at a tap.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// In the order of the stream, without overlaps.
    brought: Vec<Brought>,
    /// Acknowledgment numbers that advanced, as stream offsets, in the order of time.
    acknowledged: Vec<(u64, i64)>,
}

impl Stream {
    /// A packet with the bytes from `start` to `end` passed; for bytes that passed before, the first time counts.
    pub fn bring(&mut self, start: u64, end: u64, time_ns: i64) {
        let mut place = self.brought.partition_point(|brought| brought.end <= start);
        let mut from = start;
        while from < end {
            let next = self.brought.get(place).map_or(end, |brought| brought.start.min(end));
            if from < next {
                self.brought.insert(place, Brought { start: from, end: next, time_ns });
                place += 1;
            }
            let Some(known) = self.brought.get(place) else { return };
            from = known.end;
            place += 1;
        }
    }

    /// An acknowledgment of all bytes below `offset` passed.
    pub fn acknowledge(&mut self, offset: u64, time_ns: i64) {
        if self.acknowledged.last().is_none_or(|&(last, _)| last < offset) {
            self.acknowledged.push((offset, time_ns));
        }
    }

    /// When the byte at `offset` passed first.
    fn first(&self, offset: u64) -> Option<i64> {
        let place = self.brought.partition_point(|brought| brought.end <= offset);
        self.brought.get(place).filter(|brought| brought.start <= offset).map(|brought| brought.time_ns)
    }

    /// When the last of the bytes from `start` to `end` passed; none when one never did.
    fn last(&self, start: u64, end: u64) -> Option<i64> {
        let place = self.brought.partition_point(|brought| brought.end <= start);
        let (mut from, mut time_ns) = (start, None);
        for brought in self.brought.get(place..)?.iter().take_while(|brought| brought.start < end) {
            if brought.start > from {
                return None;
            }
            from = brought.end;
            time_ns = time_ns.max(Some(brought.time_ns));
        }
        time_ns.filter(|_| from >= end)
    }

    /// When an acknowledgment of all bytes below `offset` passed first.
    fn acknowledged(&self, offset: u64) -> Option<i64> {
        let place = self.acknowledged.partition_point(|&(acknowledged, _)| acknowledged < offset);
        self.acknowledged.get(place).map(|&(_, time_ns)| time_ns)
    }
}

/// The packets of a tap: per connection both directions, to the target first.
#[derive(Debug, Clone, Default)]
pub struct Tap {
    connections: Vec<[Stream; 2]>,
}

impl Tap {
    /// A direction of a connection.
    pub fn stream(&mut self, connection: usize, to_target: bool) -> &mut Stream {
        if self.connections.len() <= connection {
            self.connections.resize_with(connection + 1, Default::default);
        }
        &mut self.connections[connection][usize::from(!to_target)]
    }
}

/// The instants of one command at one tap, in nanoseconds; none where the bytes never passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_field_names, reason = "the names of the columns of the table of cycles")]
pub struct Instants {
    /// The first byte of the command.
    pub command_first_ns: Option<i64>,
    /// Its last byte.
    pub command_last_ns: Option<i64>,
    /// The last byte of the first R2T.
    pub r2t_first_ns: Option<i64>,
    /// The first byte of the first data PDU.
    pub data_first_ns: Option<i64>,
    /// The last byte of the last data PDU.
    pub data_last_ns: Option<i64>,
    /// The first acknowledgment of the last data PDU.
    pub data_acked_ns: Option<i64>,
    /// The last byte of the SCSI Response, or of the Data-In that carried the status.
    pub status_ns: Option<i64>,
}

/// The PDUs of one command, in the order in which the initiator sent and received them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPdus {
    /// Connection, as in the log.
    pub connection: usize,
    /// Initiator Task Tag.
    pub initiator_task_tag: u32,
    /// Its PDUs, the SCSI Command first.
    pub pdus: Vec<PduRecord>,
}

/// Groups a log by command: each SCSI Command PDU begins a new one. The result is in the order of these PDUs.
#[must_use]
pub fn by_task(log: &[PduRecord]) -> Vec<TaskPdus> {
    let mut tasks: Vec<TaskPdus> = Vec::new();
    let mut open = std::collections::BTreeMap::new();
    for pdu in log {
        let key = (pdu.connection, pdu.initiator_task_tag);
        match pdu.opcode {
            SCSI_COMMAND => {
                open.insert(key, tasks.len());
                let (connection, initiator_task_tag) = key;
                tasks.push(TaskPdus { connection, initiator_task_tag, pdus: vec![*pdu] });
            }
            DATA_OUT | SCSI_RESPONSE | DATA_IN | READY_TO_TRANSFER => {
                if let Some(task) = open.get(&key).and_then(|&place| tasks.get_mut(place)) {
                    task.pdus.push(*pdu);
                }
            }
            _ => {}
        }
    }
    tasks
}

impl TaskPdus {
    /// Its instants at a tap.
    #[must_use]
    pub fn instants(&self, tap: &Tap) -> Instants {
        let Some([to_target, to_initiator]) = tap.connections.get(self.connection) else { return Instants::default() };
        let stream = |pdu: &PduRecord| if pdu.to_target { to_target } else { to_initiator };
        let last = |pdu: &PduRecord| stream(pdu).last(pdu.stream_offset, pdu.stream_offset + pdu.length);
        let of = |opcode: u8| self.pdus.iter().filter(move |pdu| pdu.opcode == opcode);
        let data = || self.pdus.iter().filter(is_data);
        let command = of(SCSI_COMMAND).next();
        // without a SCSI Response the last Data-In carried the status
        let status = of(SCSI_RESPONSE).next().or_else(|| of(DATA_IN).next_back());
        Instants {
            command_first_ns: command.and_then(|pdu| to_target.first(pdu.stream_offset)),
            command_last_ns: command.and_then(last),
            r2t_first_ns: of(READY_TO_TRANSFER).next().and_then(last),
            data_first_ns: data().filter_map(|pdu| stream(pdu).first(pdu.stream_offset)).min(),
            data_last_ns: data().map(last).max().flatten(),
            data_acked_ns: data().next_back().and_then(|pdu| stream(pdu).acknowledged(pdu.stream_offset + pdu.length)),
            status_ns: status.and_then(last),
        }
    }

    /// Bytes of data in its Data-In and Data-Out PDUs, and immediate data.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.pdus.iter().filter(|pdu| pdu.opcode != SCSI_RESPONSE).map(|pdu| u64::from(pdu.data_segment_length)).sum()
    }
}

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
    pub fn by_initiator(asked: &[TaskRecord], place_of: impl Fn(usize) -> Option<(usize, usize)>) -> Self {
        let mut cycles = Self::default();
        let mut instants = InitiatorColumns::default();
        for record in asked {
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
        asked: &[TaskRecord],
        initiator_tap: &Tap,
        target_taps: &[Tap],
        place_of: impl Fn(usize) -> Option<(usize, usize)>,
    ) -> Self {
        let mut cycles = Self::default();
        // with one tag on one connection, commands are in the same order in both logs
        let mut records = std::collections::BTreeMap::<_, std::collections::VecDeque<&TaskRecord>>::new();
        for record in asked {
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
                .and_then(std::collections::VecDeque::pop_front);
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

fn is_data(pdu: &&PduRecord) -> bool {
    matches!(pdu.opcode, DATA_IN | DATA_OUT) && pdu.data_segment_length > 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_stream_is_what_a_byte_by_byte_model_says(
            packets in prop::collection::vec((0u64..40, 1u64..12), 1..30),
            ranges in prop::collection::vec((0u64..45, 1u64..12), 10),
        ) {
            let mut stream = Stream::default();
            let mut times = [None; 64];
            for (time_ns, &(start, length)) in (0i64..).zip(&packets) {
                stream.bring(start, start + length, time_ns);
                for time in &mut times[start as usize..(start + length) as usize] {
                    time.get_or_insert(time_ns);
                }
            }
            for (start, length) in ranges {
                let bytes = &times[start as usize..(start + length) as usize];
                prop_assert_eq!(stream.first(start), bytes[0]);
                let last = bytes.iter().copied().collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
                prop_assert_eq!(stream.last(start, start + length), last);
            }
        }
    }

    fn pdu(to_target: bool, stream_offset: u64, opcode: u8, data: u32) -> PduRecord {
        PduRecord {
            connection: 0,
            to_target,
            stream_offset,
            length: 48 + u64::from(data),
            opcode,
            initiator_task_tag: 5,
            data_segment_length: data,
            operation_code: (opcode == SCSI_COMMAND).then_some(0x28),
        }
    }

    #[test]
    fn sense_data_and_empty_pdus_are_no_data() {
        let log = [
            pdu(true, 0, SCSI_COMMAND, 30),
            pdu(false, 0, DATA_IN, 100),
            pdu(false, 148, DATA_IN, 0),
            pdu(false, 196, SCSI_RESPONSE, 20),
        ];
        let asked = [];
        let tasks = by_task(&log);
        assert_eq!(tasks[0].data_bytes(), 130);
        let cycles = Cycles::new(&tasks, &asked, &Tap::default(), &[], |_| None);
        assert_eq!((cycles.bytes[0], cycles.data_pdu_count[0], cycles.r2t_count[0]), (130, 1, 0));
    }

    #[test]
    fn the_first_r2t_counts_from_its_last_byte() {
        let log =
            [pdu(true, 0, SCSI_COMMAND, 0), pdu(false, 0, READY_TO_TRANSFER, 0), pdu(false, 48, READY_TO_TRANSFER, 0)];
        let mut tap = Tap::default();
        tap.stream(0, true).bring(0, 48, 1);
        tap.stream(0, false).bring(0, 20, 2);
        tap.stream(0, false).bring(20, 48, 3);
        tap.stream(0, false).bring(48, 96, 4);
        assert_eq!(by_task(&log)[0].instants(&tap).r2t_first_ns, Some(3));
    }

    fn asked(sent_ns: i64, completed_ns: i64, lba: u64) -> TaskRecord {
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
    fn a_record_belongs_to_the_command_that_it_encloses() {
        let command = |offset, operation_code| PduRecord {
            operation_code: Some(operation_code),
            ..pdu(true, offset, SCSI_COMMAND, 0)
        };
        let mut tap = Tap::default();
        tap.stream(0, true).bring(0, 48, 10);
        tap.stream(0, true).bring(48, 96, 20);
        let lba = |codes: [u8; 2], records: &[TaskRecord]| {
            let log = [command(0, codes[0]), command(48, codes[1])];
            Cycles::new(&by_task(&log), records, &tap, &[], |_| None).lba
        };
        assert_eq!(lba([0x28, 0xa8], &[asked(10, 15, 1), asked(20, 25, 2)]), [Some(1), Some(2)]);
        assert_eq!(lba([0x12, 0x88], &[asked(20, 25, 2)]), [None, Some(2)], "INQUIRY");
        assert_eq!(lba([0x28, 0x2a], &[asked(20, 25, 2)]), [None, Some(2)], "never completed");
        assert_eq!(lba([0x28, 0x2a], &[asked(10, 15, 1)]), [Some(1), None], "completed before");
    }

    #[test]
    fn a_read_and_a_write_with_the_same_tag() {
        let log = [
            pdu(true, 0, SCSI_COMMAND, 0),
            pdu(false, 0, DATA_IN, 100),
            pdu(false, 148, DATA_IN, 52),
            pdu(true, 48, SCSI_COMMAND, 0),
            pdu(false, 248, READY_TO_TRANSFER, 0),
            pdu(true, 96, DATA_OUT, 52),
            pdu(false, 296, SCSI_RESPONSE, 0),
        ];
        let mut tap = Tap::default();
        // the command in two packets; the second Data-In before the first is whole
        tap.stream(0, true).bring(0, 20, 1);
        tap.stream(0, true).bring(20, 48, 2);
        tap.stream(0, false).bring(0, 100, 10);
        tap.stream(0, false).bring(148, 248, 11);
        tap.stream(0, false).bring(100, 148, 12);
        tap.stream(0, false).acknowledge(100, 13);
        tap.stream(0, false).acknowledge(248, 14);
        tap.stream(0, true).bring(48, 96, 20);
        tap.stream(0, false).bring(248, 296, 21);
        tap.stream(0, true).bring(96, 196, 22);
        tap.stream(0, true).acknowledge(196, 23);
        tap.stream(0, false).bring(296, 340, 24);
        let tasks = by_task(&log);
        assert_eq!(tasks.iter().map(TaskPdus::data_bytes).collect::<Vec<_>>(), [152, 52]);
        let read = Instants {
            command_first_ns: Some(1),
            command_last_ns: Some(2),
            r2t_first_ns: None,
            data_first_ns: Some(10),
            data_last_ns: Some(12),
            data_acked_ns: Some(14),
            status_ns: Some(11),
        };
        assert_eq!(tasks[0].instants(&tap), read);
        let write = Instants {
            command_first_ns: Some(20),
            command_last_ns: Some(20),
            r2t_first_ns: Some(21),
            data_first_ns: Some(22),
            data_last_ns: Some(22),
            data_acked_ns: Some(23),
            // its last four bytes never passed
            status_ns: None,
        };
        assert_eq!(tasks[1].instants(&tap), write);
    }
}
