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

/// A function that was not answered yet.
#[derive(Debug, Clone)]
pub(super) struct Management {
    pub connection: ConnectionNumber,
    pub function: Function,
    pub lun: [u8; 8],
    pub cmd_sn: SerialNumber,
    pub initiator_task_tag: u32,
    pub credit: Credit,
    /// Target Transfer Tags of dropped tasks whose data is still expected.
    pub tags: Vec<u32>,
    /// Other nexuses with tasks that it ended.
    pub others: Vec<Nexus>,
    /// After it is carried out: the other connections of the session, with the ExpStatSN to be acknowledged on each.
    pub fence: Option<Vec<(ConnectionNumber, SerialNumber)>>,
    /// Deadline of its wait for data and commands, and then for acknowledgments.
    pub deadline_ns: i64,
}

impl Management {
    /// Whether the function applies to this logical unit.
    pub fn covers(&self, lun: [u8; 8]) -> bool {
        matches!(self.function, Function::TargetReset(_)) || self.lun == lun
    }
}
