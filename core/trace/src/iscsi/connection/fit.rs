//! How well a header fits a connection: its open tasks, and the numbers that come next.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::IscsiConnection;
use crate::iscsi::ranges::NEAR;
use crate::iscsi::synchroniser::Fit;
use crate::iscsi::task::Task;

impl IscsiConnection {
    /// How well a header from the initiator (`to_target`) or the target fits.
    #[inline]
    pub fn judge(&self, header: Bhs<'_>, to_target: bool) -> Fit {
        let Some(opcode) = header.opcode() else { return Fit::No };
        if opcode.is_initiator() != to_target || header.is_valid().is_err() {
            return Fit::No;
        }
        let task = header.initiator_task_tag().and_then(|tag| self.tasks.get(&tag));
        let fits_task = match (opcode, task) {
            (Opcode::DataIn, Some(task)) => task.is_read && fits_buffer(task, header, header.data_segment_length()),
            (Opcode::ReadyToTransfer, Some(task)) => {
                task.is_write && fits_buffer(task, header, header.desired_data_transfer_length())
            }
            (Opcode::DataOut, Some(task)) => task.is_write && fits_buffer(task, header, header.data_segment_length()),
            (Opcode::ScsiResponse, Some(_)) => true,
            _ => false,
        };
        // a side's own last number must fit, or what the other side said: a target may begin anywhere, and some
        // initiators do not maintain ExpStatSN
        let numbers: [(Option<SerialNumber>, Option<SerialNumber>, Option<SerialNumber>); 3] = if to_target {
            [
                (header.cmd_sn(), self.cmd_sn, self.exp_cmd_sn),
                (header.exp_stat_sn(), self.exp_stat_sn, self.stat_sn()),
                (None, None, None),
            ]
        } else {
            [
                (header.stat_sn(), self.stat_sn(), self.exp_stat_sn),
                (header.exp_cmd_sn(), self.exp_cmd_sn, self.cmd_sn),
                (header.max_cmd_sn(), self.max_cmd_sn, self.cmd_sn),
            ]
        };
        let is_near =
            |value: SerialNumber, expected: SerialNumber| value.distance(expected).unsigned_abs() < NEAR.unsigned_abs();
        // commands are sent in CmdSN order (RFC 7143 section 4.2.2.1), except retries
        let goes_back =
            to_target && header.cmd_sn().zip(self.cmd_sn).is_some_and(|(value, said)| value.distance(said) < 0);
        let (mut near, mut far) = (0, u32::from(goes_back));
        for (value, said, hinted) in numbers {
            let Some(value) = value else { continue };
            if [said, hinted].into_iter().flatten().any(|expected| is_near(value, expected)) {
                near += 1;
            } else {
                far += u32::from(said.is_some());
            }
        }
        match (fits_task, near, far) {
            (_, _, 1..) => Fit::Unlikely,
            // a Data-Out has only one number, and eleven reserved bytes
            (true, _, 0) | (false, 2.., 0) => Fit::Certain,
            (false, 1, 0) if opcode == Opcode::DataOut => Fit::Certain,
            _ => Fit::Possible,
        }
    }
}

fn fits_buffer(task: &Task, header: Bhs<'_>, length: Option<u32>) -> bool {
    match (header.buffer_offset(), length) {
        (Some(offset), Some(length)) => task.has_room_for(header.opcode() == Some(Opcode::DataIn), offset, length),
        _ => true,
    }
}
