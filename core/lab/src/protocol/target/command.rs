//! A SCSI command at the target, from its arrival to its status; `deliver` processes it.

use std::sync::Arc;

use iscsitrace_wire::bhs::{Bhs, BhsBuilder, LENGTH_BYTES};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::serial::SerialNumber;

use super::data_out::DataOut;
use super::fault::{Fault, FaultSettings};
use super::output::{Credit, Damage, Outgoing, Then};
use crate::application::ConnectionNumber;
use crate::scsi::{self, Status};

/// What a command waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its turn in the order of CmdSN.
    #[default]
    Held,
    /// Data out.
    Receiving,
    /// The time of a delayed R2T.
    LateR2t,
    /// The end of its service.
    Service,
    /// Room to send its Data-In.
    Sending,
    /// The time of a delayed status.
    LateStatus,
    /// Nothing: it is never answered.
    Swallowed,
}

/// Identifies a command; a reused slot has another serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Handle {
    pub slot: u16,
    pub serial: u32,
}

/// A SCSI command. Slots are reused and keep their memory.
#[derive(Debug)]
pub(super) struct Command {
    pub serial: u32,
    pub is_open: bool,
    pub connection: ConnectionNumber,
    pub header: [u8; LENGTH_BYTES],
    /// The CDB, when it is longer than 16 bytes.
    pub extended_cdb: Vec<u8>,
    pub stage: Stage,
    pub task: Option<scsi::Task>,
    /// Its status, from the target itself or the device.
    pub completion: Option<scsi::Completion>,
    pub data_out: DataOut,
    /// Data that arrived before its turn, from offset 0 on.
    pub early: Vec<u8>,
    /// Data-In: bytes to send, bytes sent, and bytes of the current sequence.
    pub data_in_length: u32,
    pub data_in_sent: u32,
    pub burst_sent: u32,
    /// Whether the last Data-In had the place of the next one.
    pub is_exchanged: bool,
    pub data_sn: u32,
    /// The device's data length, for the residual.
    pub available: u64,
    pub fault: Option<Arc<FaultSettings>>,
    pub damage: Option<Damage>,
    pub wake_ns: Option<i64>,
    pub record: Option<usize>,
}

impl Command {
    pub fn new() -> Self {
        Self {
            serial: 0,
            is_open: false,
            connection: 0,
            header: [0; LENGTH_BYTES],
            extended_cdb: Vec::new(),
            stage: Stage::Held,
            task: None,
            completion: None,
            data_out: DataOut::default(),
            early: Vec::new(),
            data_in_length: 0,
            data_in_sent: 0,
            burst_sent: 0,
            is_exchanged: false,
            data_sn: 0,
            available: 0,
            fault: None,
            damage: None,
            wake_ns: None,
            record: None,
        }
    }

    /// A command arrived on `connection`.
    pub fn open(&mut self, connection: ConnectionNumber, header: [u8; LENGTH_BYTES], record: Option<usize>) {
        (self.is_open, self.connection, self.header, self.record) = (true, connection, header, record);
        (self.stage, self.task, self.completion) = (Stage::Held, None, None);
        self.extended_cdb.clear();
        self.early.clear();
        (self.data_in_length, self.data_in_sent, self.burst_sent, self.data_sn) = (0, 0, 0, 0);
        (self.available, self.fault, self.damage, self.wake_ns) = (0, None, None, None);
        self.is_exchanged = false;
    }

    pub fn bhs(&self) -> Bhs<'_> {
        Bhs::new(&self.header)
    }

    pub fn initiator_task_tag(&self) -> u32 {
        self.bhs().initiator_task_tag().unwrap_or_default()
    }

    pub fn cmd_sn(&self) -> SerialNumber {
        self.bhs().cmd_sn().unwrap_or_default()
    }

    pub fn lun(&self) -> [u8; 8] {
        self.bhs().lun().unwrap_or_default()
    }

    pub fn is_read(&self) -> bool {
        self.bhs().is_read() == Some(true)
    }

    pub fn is_write(&self) -> bool {
        self.bhs().is_write() == Some(true)
    }

    pub fn is_immediate(&self) -> bool {
        self.bhs().is_immediate() == Some(true)
    }

    pub fn expected_data_transfer_length(&self) -> u32 {
        self.bhs().expected_data_transfer_length().unwrap_or_default()
    }

    pub fn cdb(&self) -> &[u8] {
        if self.extended_cdb.is_empty() { self.header.get(32..).unwrap_or_default() } else { &self.extended_cdb }
    }

    /// The injected fault, if it is this one.
    pub fn has_fault(&self, fault: Fault) -> Option<&FaultSettings> {
        self.fault.as_deref().filter(|settings| settings.fault == fault)
    }

    /// The credit that its end returns.
    pub fn credit(&self) -> Credit {
        if self.is_immediate() { Credit::Immediate } else { Credit::Window }
    }

    pub fn status(&self) -> Status {
        self.completion.as_ref().map_or(Status::Good, |completion| completion.status)
    }

    /// Residual Count with the O and U bits (RFC 7143 sections 11.4.5.1 and 11.4.5.2).
    pub fn residual(&self) -> Residual {
        let expected = u64::from(self.expected_data_transfer_length());
        let count = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        match self.available.cmp(&expected) {
            std::cmp::Ordering::Less => {
                Residual { is_underflow: true, is_overflow: false, count: count(expected - self.available) }
            }
            std::cmp::Ordering::Equal => Residual::default(),
            std::cmp::Ordering::Greater => {
                Residual { is_underflow: false, is_overflow: true, count: count(self.available - expected) }
            }
        }
    }

    /// The SCSI Response (RFC 7143 section 11.4).
    pub fn response(&mut self) -> Outgoing {
        let completion = self.completion.take().unwrap_or(scsi::Completion::new(Status::Good));
        let residual = self.residual();
        let mut data = Vec::new();
        if !completion.sense.is_empty() {
            // RFC 7143 section 11.4.7: SenseLength comes first
            let length = u16::try_from(completion.sense.len()).unwrap_or(u16::MAX);
            data.extend_from_slice(&length.to_be_bytes());
            data.extend_from_slice(&completion.sense);
        }
        let header = BhsBuilder::new(Opcode::ScsiResponse)
            .initiator_task_tag(self.initiator_task_tag())
            .status(completion.status as u8)
            .is_underflow(residual.is_underflow)
            .is_overflow(residual.is_overflow)
            .residual_count(residual.count)
            .exp_data_sn(SerialNumber(self.data_sn));
        let then = Then::Completed { record: self.record, status: completion.status as u8 };
        Outgoing { damage: self.damage, ..Outgoing::status(header, data, self.credit(), then) }
    }
}

/// Bytes that were not transferred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Residual {
    pub is_underflow: bool,
    pub is_overflow: bool,
    pub count: u32,
}
