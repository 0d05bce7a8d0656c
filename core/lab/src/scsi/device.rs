//! A SCSI target device: its logical units and nexuses, and the task router before them (SAM-5). The logical unit
//! executes commands.

use iscsitrace_wire::cdb::{self, DISK, Operation};
use iscsitrace_wire::lun;
use iscsitrace_wire::status::Status;

use super::field::number;
use super::identity::{self, Identity};
use super::inquiry;
use super::logical_unit::{COMMANDS_CLEARED, LOGICAL_UNIT_RESET, LogicalUnit, POWER_ON, TARGET_RESET};
use super::medium::{Medium, NoSpace};
use super::nexus::{InitiatorPort, Nexus, Nexuses};
use super::sense::Sense;
use super::settings::{DeviceSettings, SettingsError};
use super::task::{Completion, Refused, Task, Work};

/// Tasks that the target aborts without a response: those of a nexus at a logical unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// Nexus of the tasks.
    pub nexus: Nexus,
    /// Their LUN.
    pub lun: u16,
}

/// A reset of the target (RFC 7143, section 11.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reset {
    /// TARGET WARM RESET.
    Warm,
    /// TARGET COLD RESET: the target closes all connections as well.
    Cold,
}

/// A SCSI target device in memory.
#[derive(Debug)]
pub struct Device {
    units: Vec<LogicalUnit>,
    nexuses: Nexuses,
    has_power_on_unit_attention: bool,
}

impl Device {
    /// A device that was just powered on.
    ///
    /// # Errors
    /// Settings that are not valid, or not enough memory.
    pub fn new(settings: &DeviceSettings) -> Result<Device, SettingsError> {
        for (field, value, most) in [("vendor", &settings.vendor, 8), ("product", &settings.product, 16)] {
            if !identity::is_fit(value, most) {
                return Err(SettingsError::Text { field, value: value.clone(), most });
            }
        }
        let mut units: Vec<LogicalUnit> = Vec::new();
        for (place, unit) in settings.logical_units.iter().enumerate() {
            let lun = unit.lun.unwrap_or(u16::try_from(place).unwrap_or(u16::MAX));
            if lun >= MOST_LUNS || units.iter().any(|unit| unit.lun == lun) {
                return Err(SettingsError::Number { lun });
            }
            let (size_bytes, block_bytes) = (unit.size_bytes, unit.block_bytes);
            if ![512, 4096].contains(&block_bytes) {
                return Err(SettingsError::BlockLength { lun, block_bytes });
            }
            // Within i64, so that the sum of two valid addresses never overflows.
            if size_bytes == 0 || size_bytes > i64::MAX as u64 || size_bytes % u64::from(block_bytes) != 0 {
                return Err(SettingsError::Size { lun, size_bytes, block_bytes });
            }
            let medium = Medium::new(unit).ok_or(SettingsError::Memory { lun, size_bytes })?;
            let DeviceSettings { vendor, product, target_name, target_portal_group_tag, .. } = settings;
            let identity = Identity::new(vendor, product, target_name, *target_portal_group_tag, lun);
            let mut unit = LogicalUnit::new(lun, unit.clone(), identity, medium);
            unit.has_target_port_groups = settings.has_target_port_groups;
            units.push(unit);
        }
        units.sort_by_key(|unit| unit.lun);
        let has_power_on_unit_attention = settings.has_power_on_unit_attention;
        Ok(Device { units, nexuses: Nexuses::default(), has_power_on_unit_attention })
    }

    /// A session of this initiator port begins. Further connections of the session share its nexus.
    pub fn nexus_established(&mut self, port: InitiatorPort) -> Nexus {
        let nexus = self.nexuses.establish(port);
        if self.has_power_on_unit_attention {
            self.units.iter_mut().for_each(|unit| unit.raise_for(nexus, POWER_ON));
        }
        nexus
    }

    /// The session of this nexus ended. The target drops its tasks.
    pub fn nexus_lost(&mut self, nexus: Nexus) {
        self.nexuses.lose(nexus);
        self.units.iter_mut().for_each(|unit| unit.lose_nexus(nexus));
        self.nexuses.forget_unless(|nexus| self.units.iter().any(|unit| unit.persistent.is_registered(nexus)));
    }

    /// Whether there is such a logical unit, by the LUN of a header.
    #[must_use]
    pub fn has_logical_unit(&self, lun: [u8; 8]) -> bool {
        self.place(lun).is_some()
    }

    /// Executes a command: the returned task has its data length and direction, or the reason of its refusal.
    ///
    /// `cdb` is as long as the initiator sent it: 16 bytes, or more with an extended CDB.
    pub fn execute(&mut self, nexus: Nexus, lun: [u8; 8], cdb: &[u8]) -> Task {
        let mut fixed = [0; 16];
        fixed.iter_mut().zip(cdb).for_each(|(fixed, byte)| *fixed = *byte);
        let place = self.place(lun);
        let is_report_luns = cdb::decode(&fixed, Some(DISK)).operation == Operation::ReportLuns;
        let result = match place.and_then(|place| self.units.get_mut(place)) {
            _ if is_report_luns => self.report_luns(&fixed).map_err(Refused::from),
            Some(unit) => unit.execute(nexus, &self.nexuses, &fixed),
            None => execute_without_unit(&fixed).map_err(Refused::from),
        };
        let (work, refused) = match result {
            Ok(work) => (work, None),
            Err(refused) => (Work::GOOD, Some(refused)),
        };
        Task { unit: place, nexus, work, received: 0, refused, completion: None }
    }

    /// Appends this range of the command's data in to `out`; less when there is less.
    pub fn append_data_in(&self, task: &Task, offset: u64, length: usize, out: &mut Vec<u8>) {
        let available = task.data_in_length().saturating_sub(offset);
        let length = length.min(usize::try_from(available).unwrap_or(usize::MAX));
        match &task.work {
            Work::Done { data_in, .. } => {
                let range = usize::try_from(offset).ok().and_then(|first| data_in.get(first..)?.get(..length));
                out.extend_from_slice(range.unwrap_or(&[]));
            }
            Work::Read { first_byte, .. } => {
                if let Some(unit) = task.unit.and_then(|place| self.units.get(place)) {
                    unit.medium.append(first_byte + offset.min(task.data_in_length()), length, out);
                }
            }
            _ => {}
        }
    }

    /// Takes data out from this offset on; bytes beyond the data out length are dropped.
    pub fn write_data_out(&mut self, task: &mut Task, offset: u64, bytes: &[u8]) {
        let available = usize::try_from(task.data_out_length().saturating_sub(offset)).unwrap_or(usize::MAX);
        let bytes = bytes.get(..available).unwrap_or(bytes);
        let Some(unit) = task.unit.and_then(|place| self.units.get_mut(place)) else { return };
        if bytes.is_empty() || task.completion.is_some() {
            return;
        }
        task.received = task.received.saturating_add(bytes.len() as u64);
        let written = match &mut task.work {
            Work::Write { first_byte, .. } => unit.medium.write(*first_byte + offset, bytes),
            Work::Or { first_byte, .. } => unit.medium.or(*first_byte + offset, bytes),
            Work::Verify { first_byte, miscompare, .. } => {
                if let Some(place) = unit.medium.difference(*first_byte + offset, bytes) {
                    let found = offset + place as u64;
                    *miscompare = Some(miscompare.map_or(found, |first| first.min(found)));
                }
                Ok(())
            }
            Work::Collect { bytes: list, .. } => {
                let place = usize::try_from(offset).ok().and_then(|first| list.get_mut(first..));
                if let Some(place) = place.and_then(|place| place.get_mut(..bytes.len())) {
                    place.copy_from_slice(bytes);
                }
                Ok(())
            }
            Work::Done { .. } | Work::Read { .. } => Ok(()),
        };
        if written == Err(NoSpace) {
            task.refused = Some(Sense::NO_SPACE.into());
        }
    }

    /// Finishes the command once its data out is complete, or no more will arrive, and returns its completion. A second
    /// call has no effect and returns the same.
    pub fn finish(&mut self, task: &mut Task) -> Completion {
        if let Some(completion) = &task.completion {
            return completion.clone();
        }
        let completion = match self.finish_work(task) {
            Ok(status) => Completion::new(status),
            Err(Refused::Conflict) => Completion::new(Status::ReservationConflict),
            Err(Refused::Check(sense)) => self.check_condition_at(task.unit, sense),
        };
        task.completion = Some(completion.clone());
        completion
    }

    /// CHECK CONDITION for an error that the target found, in the sense format of the logical unit.
    #[must_use]
    pub fn check_condition(&self, lun: [u8; 8], sense: Sense) -> Completion {
        self.check_condition_at(self.place(lun), sense)
    }

    fn check_condition_at(&self, place: Option<usize>, sense: Sense) -> Completion {
        let unit = place.and_then(|place| self.units.get(place));
        let has_descriptors = unit.is_some_and(|unit| unit.mode.has_descriptor_sense());
        Completion { status: Status::CheckCondition, sense: sense.encode(has_descriptors) }
    }

    fn finish_work(&mut self, task: &Task) -> Result<Status, Refused> {
        if let Some(refused) = task.refused {
            return Err(refused);
        }
        match &task.work {
            Work::Done { status, .. } => return Ok(*status),
            Work::Verify { miscompare: Some(offset), .. } => return Err(Sense::miscompare(*offset).into()),
            Work::Collect { cdb, bytes } => {
                if task.received < bytes.len() as u64 {
                    return Err(Sense::PARAMETER_LIST_LENGTH.into());
                }
                if let Some(unit) = task.unit.and_then(|place| self.units.get_mut(place)) {
                    unit.finish(task.nexus, &self.nexuses, cdb, bytes)?;
                }
            }
            _ => {}
        }
        Ok(Status::Good)
    }

    /// LOGICAL UNIT RESET. The target drops all tasks at that logical unit.
    pub fn reset_logical_unit(&mut self, lun: [u8; 8]) {
        if let Some(unit) = self.place(lun).and_then(|place| self.units.get_mut(place)) {
            unit.reset(&self.nexuses, LOGICAL_UNIT_RESET);
        }
    }

    /// CLEAR TASK SET. The target drops all tasks at that logical unit; `others` are the other nexuses with dropped
    /// tasks: they get a unit attention (SAM-5).
    pub fn clear_task_set(&mut self, lun: [u8; 8], others: &[Nexus]) {
        let notified: Vec<Nexus> = self.nexuses.established().filter(|nexus| others.contains(nexus)).collect();
        if let Some(unit) = self.place(lun).and_then(|place| self.units.get_mut(place)) {
            notified.into_iter().for_each(|nexus| unit.raise_for(nexus, COMMANDS_CLEARED));
        }
    }

    /// TARGET WARM RESET or TARGET COLD RESET. The target drops all tasks.
    pub fn reset(&mut self, reset: Reset) {
        let attention = if reset == Reset::Cold { POWER_ON } else { TARGET_RESET };
        self.units.iter_mut().for_each(|unit| unit.reset(&self.nexuses, attention));
    }

    /// Tasks that a command of another nexus aborted (PREEMPT AND ABORT): poll after each `finish`.
    pub fn poll_abort(&mut self) -> Option<Abort> {
        self.units.iter_mut().find_map(|unit| unit.aborted.pop().map(|nexus| Abort { nexus, lun: unit.lun }))
    }

    fn place(&self, lun: [u8; 8]) -> Option<usize> {
        let lun = lun::single_level(lun)?;
        self.units.iter().position(|unit| unit.lun == lun)
    }

    /// REPORT LUNS, at any LUN (SPC-4).
    fn report_luns(&self, cdb: &[u8; 16]) -> Result<Work, Sense> {
        let allocation_length = number(cdb, 6, 4);
        if allocation_length < 16 {
            return Err(Sense::cdb_field(6));
        }
        let luns: Vec<u8> = match cdb[2] {
            0 | 2 => self.units.iter().flat_map(|unit| lun::encode(unit.lun)).collect(),
            // No well known logical units, and no subsidiary logical units.
            1 | 0x10..=0x12 => Vec::new(),
            _ => return Err(Sense::cdb_field(2)),
        };
        let mut data_in = (luns.len() as u32).to_be_bytes().to_vec();
        data_in.extend_from_slice(&[0; 4]);
        data_in.extend_from_slice(&luns);
        Ok(Work::data_in(data_in, allocation_length))
    }
}

/// Limit of the flat space addressing method.
const MOST_LUNS: u16 = 1 << 14;

/// A LUN without a logical unit supports two commands (SPC-4).
fn execute_without_unit(cdb: &[u8; 16]) -> Result<Work, Sense> {
    match cdb::decode(cdb, Some(DISK)).operation {
        Operation::Inquiry if cdb[1] & 0x01 != 0 => Err(Sense::cdb_bit(1, 0)),
        Operation::Inquiry => Ok(Work::data_in(inquiry::no_device(), number(cdb, 3, 2))),
        Operation::RequestSense => {
            Ok(Work::data_in(Sense::NO_LOGICAL_UNIT.encode(cdb[1] & 0x01 != 0), u64::from(cdb[4])))
        }
        _ => Err(Sense::NO_LOGICAL_UNIT),
    }
}
