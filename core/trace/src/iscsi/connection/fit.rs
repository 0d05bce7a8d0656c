//! How well a header fits a connection: its open tasks, and the numbers that come next.

use iscsitrace_wire::bhs::Bhs;
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::IscsiConnection;
use crate::iscsi::context::Context;
use crate::iscsi::framer::listener::Fit;
use crate::iscsi::lost_statuses::NEAR;
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
                (header.exp_stat_sn(), self.exp_stat_sn, self.stat_sn),
                (None, None, None),
            ]
        } else {
            [
                (header.stat_sn(), self.stat_sn, self.exp_stat_sn),
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

/// Statuses that a target sends before the first of them is acknowledged: no queue is longer.
const UNACKNOWLEDGED_MAX: u32 = 1024;

impl IscsiConnection {
    /// Whether a header is older than what was read: payload can hold PDUs of its own session, such as a capture of it that
    /// is written to the target. They were sent before the PDU around them, so their numbers are behind, their data was
    /// transferred, or their command is done.
    ///
    /// Only where a header is searched: a retransmitted command or status is behind, too.
    pub fn is_past(&self, header: Bhs<'_>, to_target: bool, context: &Context) -> bool {
        self.goes_back(header, to_target)
            || self.is_of_the_past_task(header, to_target)
            || to_target && self.has_command(header, context)
    }

    /// Whether the session had a command with this CmdSN, on any of its connections.
    fn has_command(&self, header: Bhs<'_>, context: &Context) -> bool {
        // an immediate command has the number of the next one
        let Some(cmd_sn) = header.cmd_sn().filter(|_| header.is_immediate() == Some(false)) else { return false };
        let session = self.session.and_then(|session| context.sessions.states.get(session as usize));
        self.tasks_opened > 0 && session.is_some_and(|state| state.commands.has_all(cmd_sn, cmd_sn.next()))
    }

    /// Whether a number is behind one that its sender said before: CmdSN, ExpStatSN, StatSN and ExpCmdSN only grow.
    ///
    /// What was said counts only as far as the other side may have reached it: it may itself be of a false header.
    fn goes_back(&self, header: Bhs<'_>, to_target: bool) -> bool {
        let is_behind = |value: Option<SerialNumber>, said: Option<SerialNumber>, reached: Option<SerialNumber>| {
            let (Some(value), Some(said)) = (value, said) else { return false };
            value.is_before(said) && reached.is_none_or(|reached| !said.is_after(reached))
        };
        if to_target {
            return is_behind(header.exp_stat_sn(), self.exp_stat_sn, self.stat_sn);
        }
        let reached = self.exp_stat_sn.map(|acknowledged| acknowledged + UNACKNOWLEDGED_MAX);
        is_behind(header.stat_sn(), self.stat_sn, reached)
            || is_behind(header.exp_cmd_sn(), self.exp_cmd_sn, self.cmd_sn.map(SerialNumber::next))
    }

    /// Whether the header is of a task before the one with its tag, or of one that is done. A task whose command is missing
    /// from the capture shows by an ExpCmdSN that was not said before.
    fn is_of_the_past_task(&self, header: Bhs<'_>, to_target: bool) -> bool {
        let is_of_task = matches!(
            header.opcode(),
            Some(Opcode::DataIn | Opcode::ReadyToTransfer | Opcode::ScsiResponse | Opcode::DataOut)
        );
        // without any command there is nothing to go by
        if !is_of_task || self.tasks_opened == 0 {
            return false;
        }
        let task = header.initiator_task_tag().and_then(|tag| self.tasks.get(&tag));
        match task {
            Some(task) => !task.is_known_to(header) || task.has_number(header),
            None if to_target => true,
            None => match (header.exp_cmd_sn(), self.exp_cmd_sn) {
                (Some(value), Some(said)) => !value.is_after(said),
                _ => false,
            },
        }
    }
}

fn fits_buffer(task: &Task, header: Bhs<'_>, length: Option<u32>) -> bool {
    match (header.buffer_offset(), length) {
        (Some(offset), Some(length)) => task.has_room_for(header.opcode() == Some(Opcode::DataIn), offset, length),
        _ => true,
    }
}
