//! The execution of a command by its logical unit: checks, and dispatch to the file of the command.

use iscsitrace_wire::cdb::{self, Access, COMMANDS, Command, DISK, Needs, Operation, Support};

use super::field::number;
use super::logical_unit::{LogicalUnit, MEDIUM_CHANGED, MODE_PARAMETERS_CHANGED};
use super::nexus::{Nexus, Nexuses};
use super::sense::Sense;
use super::task::{Refused, Work};

impl LogicalUnit {
    /// Executes a command, or returns the data that it needs.
    pub(super) fn execute(&mut self, nexus: Nexus, nexuses: &Nexuses, cdb: &[u8; 16]) -> Result<Work, Refused> {
        let operation = cdb::decode(cdb, Some(DISK)).operation;
        // SAM-5: INQUIRY, REPORT LUNS and REQUEST SENSE do not report a unit attention by their status.
        if !matches!(operation, Operation::Inquiry | Operation::RequestSense)
            && let Some(attention) = self.take_attention(nexus)
        {
            return Err(attention.into());
        }
        let (command, support) = self.supported(cdb)?;
        self.check_control(command, cdb)?;
        self.check_reservations(nexus, operation, support.access, cdb)?;
        self.check_medium(support.needs)?;
        match operation {
            Operation::TestUnitReady => Ok(Work::GOOD),
            Operation::RequestSense => Ok(self.request_sense(nexus, cdb)),
            Operation::Inquiry => Ok(self.inquiry(cdb)?),
            Operation::ModeSense => Ok(self.mode_sense(cdb)?),
            Operation::Reserve => Ok(self.reserve(nexus, cdb)?),
            Operation::Release => Ok(self.release(nexus)),
            Operation::StartStopUnit => Ok(self.start_stop(nexus, nexuses, cdb)?),
            Operation::PreventAllowMediumRemoval => Ok(self.prevent_allow(nexus, cdb)?),
            Operation::SendDiagnostic => Ok(send_diagnostic(cdb)?),
            Operation::ReadCapacity => Ok(self.read_capacity(cdb)?),
            Operation::GetLbaStatus => Ok(self.get_lba_status(cdb)?),
            Operation::ReadDefectData => Ok(super::capacity::read_defect_data(cdb)),
            Operation::PersistentReserveIn => Ok(self.persistent_reserve_in(nexuses, cdb)),
            Operation::ReportSupportedOpcodes => Ok(self.report_supported_operation_codes(cdb)?),
            Operation::ReportTargetPortGroups => Ok(super::inquiry::report_target_port_groups(cdb)),
            Operation::WriteSame => Ok(self.write_same(cdb)?),
            Operation::Unmap | Operation::ModeSelect | Operation::PersistentReserveOut => Ok(collect_parameters(cdb)?),
            _ => Ok(self.block_command(operation, cdb)?),
        }
    }

    /// Finishes a command whose collected data is complete.
    pub(super) fn finish(
        &mut self,
        nexus: Nexus,
        nexuses: &Nexuses,
        cdb: &[u8; 16],
        bytes: &[u8],
    ) -> Result<(), Refused> {
        match cdb::decode(cdb, Some(DISK)).operation {
            Operation::ModeSelect => {
                if self.mode_select(cdb, bytes)? {
                    self.raise(nexuses, Some(nexus), MODE_PARAMETERS_CHANGED);
                }
                Ok(())
            }
            Operation::PersistentReserveOut => self.persistent_reserve_out(nexus, nexuses, cdb, bytes),
            Operation::Unmap => Ok(self.finish_unmap(bytes)?),
            Operation::WriteSame => Ok(self.finish_write_same(cdb, bytes)?),
            Operation::CompareAndWrite => Ok(self.finish_compare_and_write(cdb, bytes)?),
            _ => Ok(()),
        }
    }

    fn supported(&self, cdb: &[u8; 16]) -> Result<(&'static Command, Support), Sense> {
        let command = cdb::command(cdb, Some(DISK)).filter(|command| self.is_supported(command));
        // SPC-4: an unknown service action of a supported operation code is an invalid field.
        let is_code_known = || COMMANDS.iter().any(|row| row.code == cdb[0] && self.is_supported(row));
        let refused = || if is_code_known() { Sense::cdb_bit(1, 4) } else { Sense::OPERATION_CODE };
        command.and_then(|command| Some((command, command.support?))).ok_or_else(refused)
    }

    /// The CONTROL byte ends the CDB; auto contingent allegiance is not supported (SAM-5).
    fn check_control(&self, command: &Command, cdb: &[u8; 16]) -> Result<(), Sense> {
        let Some(last) = command.length().map(|length| length - 1) else { return Ok(()) };
        let has_naca = cdb.get(last).is_some_and(|control| control & 0x04 != 0);
        if has_naca { Err(Sense::cdb_bit(last as u16, 2)) } else { Ok(()) }
    }

    fn check_medium(&self, needs: Needs) -> Result<(), Sense> {
        if needs == Needs::Nothing {
            return Ok(());
        }
        if self.is_ejected {
            return Err(Sense::EJECTED);
        }
        if needs == Needs::Writable {
            if self.settings.is_write_protected {
                return Err(Sense::WRITE_PROTECTED);
            }
            if self.mode.is_software_write_protected() {
                return Err(Sense::SOFTWARE_WRITE_PROTECTED);
            }
        }
        Ok(())
    }

    fn check_reservations(
        &self,
        nexus: Nexus,
        operation: Operation,
        access: Access,
        cdb: &[u8; 16],
    ) -> Result<(), Refused> {
        let is_persistent = matches!(operation, Operation::PersistentReserveIn | Operation::PersistentReserveOut);
        let is_spc_2 = matches!(operation, Operation::Reserve | Operation::Release);
        if let Some(holder) = self.reserved_by {
            // SPC-2; such a reservation conflicts with persistent reservation commands of every nexus.
            let is_always_allowed = matches!(operation, Operation::Inquiry | Operation::RequestSense)
                || operation == Operation::Release
                || (operation == Operation::PreventAllowMediumRemoval && cdb[4] & 0x03 == 0);
            if is_persistent || (holder != nexus && !is_always_allowed) {
                return Err(Refused::Conflict);
            }
        }
        // SPC-4: with any registration, RESERVE and RELEASE conflict.
        if is_spc_2 && self.persistent.has_registrations() {
            return Err(Refused::Conflict);
        }
        let access = match operation {
            // SBC-3: every nexus may start the unit, and allow removal.
            Operation::StartStopUnit if cdb[4] & 0xf1 == 0x01 => Access::Free,
            Operation::PreventAllowMediumRemoval if cdb[4] & 0x03 == 0 => Access::Free,
            _ => access,
        };
        if self.persistent.is_conflict(nexus, access) { Err(Refused::Conflict) } else { Ok(()) }
    }

    fn request_sense(&mut self, nexus: Nexus, cdb: &[u8; 16]) -> Work {
        let ejected = self.is_ejected.then_some(Sense::EJECTED);
        let sense = self.take_attention(nexus).or(ejected).unwrap_or(Sense::NONE);
        // DESC: the initiator chooses the format (SPC-4).
        Work::data_in(sense.encode(cdb[1] & 0x01 != 0), u64::from(cdb[4]))
    }

    fn start_stop(&mut self, nexus: Nexus, nexuses: &Nexuses, cdb: &[u8; 16]) -> Result<Work, Sense> {
        // Memory has no motor: power conditions and stopping have no effect.
        if cdb[4] >> 4 != 0 {
            return Ok(Work::GOOD);
        }
        let (loads_or_ejects, starts) = (cdb[4] & 0x02 != 0, cdb[4] & 0x01 != 0);
        if loads_or_ejects {
            if !self.settings.is_removable {
                return Err(Sense::cdb_bit(4, 1));
            }
            if !self.preventing.is_empty() {
                return Err(Sense::REMOVAL_PREVENTED);
            }
            if self.is_ejected && starts {
                self.raise(nexuses, Some(nexus), MEDIUM_CHANGED);
            }
            self.is_ejected = !starts;
        }
        Ok(Work::GOOD)
    }

    fn prevent_allow(&mut self, nexus: Nexus, cdb: &[u8; 16]) -> Result<Work, Sense> {
        match cdb[4] & 0x03 {
            0 => self.preventing.remove(&nexus),
            1 => self.preventing.insert(nexus),
            _ => return Err(Sense::cdb_bit(4, 1)),
        };
        Ok(Work::GOOD)
    }
}

/// Only the default self-test is supported; it passes.
fn send_diagnostic(cdb: &[u8; 16]) -> Result<Work, Sense> {
    if cdb[1] >> 5 != 0 {
        return Err(Sense::cdb_bit(1, 7));
    }
    if number(cdb, 3, 2) != 0 { Err(Sense::cdb_field(3)) } else { Ok(Work::GOOD) }
}

/// A parameter list of the length in the CDB.
fn collect_parameters(cdb: &[u8; 16]) -> Result<Work, Sense> {
    let length = match cdb[0] {
        0x15 => u64::from(cdb[4]),
        // PERSISTENT RESERVE OUT: its list has a fixed length, because SPEC_I_PT is not supported (SPC-4).
        0x5f if number(cdb, 5, 4) != 24 => return Err(Sense::PARAMETER_LIST_LENGTH),
        0x5f => 24,
        _ => number(cdb, 7, 2),
    };
    Ok(Work::Collect { cdb: *cdb, bytes: vec![0; length as usize] })
}
