//! The PDUs of each command, and the instants at which their bytes passed a tap.

use serde::Serialize;

use super::tap::Tap;
use crate::protocol::pdu_log::PduRecord;

pub(super) const SCSI_COMMAND: u8 = 0x01;
const DATA_OUT: u8 = 0x05;
pub(super) const SCSI_RESPONSE: u8 = 0x21;
pub(super) const DATA_IN: u8 = 0x25;
pub(super) const READY_TO_TRANSFER: u8 = 0x31;

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

/// Whether a PDU carries data of a command.
pub(super) fn is_data(pdu: &&PduRecord) -> bool {
    matches!(pdu.opcode, DATA_IN | DATA_OUT) && pdu.data_segment_length > 0
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn pdu(to_target: bool, stream_offset: u64, opcode: u8, data: u32) -> PduRecord {
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
    fn the_first_r2t_counts_from_its_last_byte() {
        let log =
            [pdu(true, 0, SCSI_COMMAND, 0), pdu(false, 0, READY_TO_TRANSFER, 0), pdu(false, 48, READY_TO_TRANSFER, 0)];
        let mut tap = Tap::default();
        tap.stream(0, true).record(0, 48, 1);
        tap.stream(0, false).record(0, 20, 2);
        tap.stream(0, false).record(20, 48, 3);
        tap.stream(0, false).record(48, 96, 4);
        assert_eq!(by_task(&log)[0].instants(&tap).r2t_first_ns, Some(3));
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
        tap.stream(0, true).record(0, 20, 1);
        tap.stream(0, true).record(20, 48, 2);
        tap.stream(0, false).record(0, 100, 10);
        tap.stream(0, false).record(148, 248, 11);
        tap.stream(0, false).record(100, 148, 12);
        tap.stream(0, false).acknowledge(148, 13);
        tap.stream(0, false).acknowledge(248, 14);
        tap.stream(0, true).record(48, 96, 20);
        tap.stream(0, false).record(248, 296, 21);
        tap.stream(0, true).record(96, 196, 22);
        tap.stream(0, true).acknowledge(196, 23);
        tap.stream(0, false).record(296, 340, 24);
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
