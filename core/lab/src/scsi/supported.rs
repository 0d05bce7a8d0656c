//! REPORT SUPPORTED OPERATION CODES: the table of commands as parameter data (SPC-4). Changes nothing.

use iscsitrace_wire::cdb::{self, COMMANDS, Command, DISK};

use super::field::number;
use super::logical_unit::LogicalUnit;
use super::sense::Sense;
use super::task::Work;

impl LogicalUnit {
    /// REPORT SUPPORTED OPERATION CODES.
    pub(super) fn report_supported_operation_codes(&self, cdb: &[u8; 16]) -> Result<Work, Sense> {
        let has_timeouts = cdb[2] & 0x80 != 0;
        let (code, service_action) = (cdb[3], number(cdb, 4, 2));
        let has_actions = self.commands().any(|row| row.code == code && row.service_action.is_some());
        let data_in = match cdb[2] & 0x07 {
            0 => self.all_commands(has_timeouts),
            1 if has_actions => return Err(Sense::cdb_bit(2, 2)),
            2 if !has_actions => return Err(Sense::cdb_bit(2, 2)),
            1 => self.one_command(&[code, 0], has_timeouts),
            2 | 3 => {
                // A service action too large for the field does not exist; a code without service actions requires 0
                // (REPORTING OPTIONS 011b).
                let largest = if has_actions { 0x1f } else { 0 };
                let cdb = [code, service_action as u8];
                self.one_command(if service_action <= largest { &cdb } else { &[] }, has_timeouts)
            }
            _ => return Err(Sense::cdb_bit(2, 2)),
        };
        Ok(Work::data_in(data_in, number(cdb, 6, 4)))
    }

    fn all_commands(&self, has_timeouts: bool) -> Vec<u8> {
        let mut descriptors = Vec::new();
        for command in self.commands() {
            // SERVACTV, CTDP
            let flags = u8::from(command.service_action.is_some()) | if has_timeouts { 0x02 } else { 0 };
            let [high, low] = command.service_action.unwrap_or(0).to_be_bytes();
            let length = command.length().unwrap_or(0) as u8;
            descriptors.extend_from_slice(&[command.code, 0, high, low, 0, flags, 0, length]);
            if has_timeouts {
                descriptors.extend_from_slice(&TIMEOUTS);
            }
        }
        let mut data_in = (descriptors.len() as u32).to_be_bytes().to_vec();
        data_in.extend_from_slice(&descriptors);
        data_in
    }

    /// The commands that this logical unit supports, in order.
    fn commands(&self) -> impl Iterator<Item = &'static Command> {
        COMMANDS.iter().filter(|command| self.is_supported(command))
    }

    /// The command whose CDB begins with these bytes.
    fn one_command(&self, cdb: &[u8], has_timeouts: bool) -> Vec<u8> {
        let command = cdb::command(cdb, Some(DISK)).filter(|command| self.is_supported(command));
        let Some(usage) = command.and_then(Command::usage) else {
            // SUPPORT 001b: not supported.
            return vec![0, 0x01, 0, 0];
        };
        // SUPPORT 011b: supported as in the standard; CTDP
        let flags = 0x03 | if has_timeouts { 0x80 } else { 0 };
        let mut data_in = vec![0, flags, 0, usage.len() as u8];
        data_in.extend_from_slice(&usage);
        if has_timeouts {
            data_in.extend_from_slice(&TIMEOUTS);
        }
        data_in
    }
}

/// A command timeouts descriptor without timeouts.
const TIMEOUTS: [u8; 12] = [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
