//! A task management function that waits to be carried out or answered. Never carries it out.

use iscsitrace_wire::serial::SerialNumber;

use super::output::Credit;
use crate::application::ConnectionNumber;
use crate::scsi::{Nexus, Reset};

/// Functions (RFC 7143 section 11.5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    AbortTask,
    AbortTaskSet,
    ClearTaskSet,
    LogicalUnitReset,
    TargetReset(Reset),
}

/// A function that is not answered yet.
#[derive(Debug, Clone)]
pub(super) struct Management {
    pub connection: ConnectionNumber,
    pub function: Function,
    pub lun: [u8; 8],
    pub cmd_sn: SerialNumber,
    pub initiator_task_tag: u32,
    pub credit: Credit,
    /// Target Transfer Tags of dropped tasks, for which data is on its way.
    pub tags: Vec<u32>,
    /// Other nexuses that it ended tasks of.
    pub others: Vec<Nexus>,
    /// Once it is carried out: other connections of the session, and the ExpStatSN that clears the fence there.
    pub fence: Option<Vec<(ConnectionNumber, SerialNumber)>>,
    /// Until when it waits for data and commands, and then for the fence.
    pub deadline_ns: i64,
}

impl Management {
    /// Whether the function is about this logical unit.
    pub fn covers(&self, lun: [u8; 8]) -> bool {
        matches!(self.function, Function::TargetReset(_)) || self.lun == lun
    }
}
