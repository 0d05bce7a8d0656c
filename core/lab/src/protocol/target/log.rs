//! The log of a portal: commands, closed connections, PDUs, counters; a reference for the analyzer.
//!
//! It keeps a limited number of each and counts the rest. Decides nothing.

use std::net::SocketAddr;

use serde::Serialize;

use super::ending::Ending;
use super::fault::Fault;
use super::settings::Limits;
use crate::application::ConnectionNumber;
use crate::protocol::pdu_log::PduRecord;

/// How a command ended at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// It has not ended yet.
    Open,
    /// Its status was sent.
    Answered,
    /// It was rejected.
    Rejected,
    /// It was aborted by a task management function or a command of another nexus.
    Aborted,
    /// Its connection or session ended first.
    ConnectionLost,
}

/// A SCSI command, from its arrival to its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskRecord {
    /// Index of its target in the settings.
    pub target: usize,
    /// TSIH of its session.
    pub session: u16,
    /// Its connection.
    pub connection: ConnectionNumber,
    /// LUN, as in the header.
    pub lun: [u8; 8],
    /// Initiator Task Tag.
    pub initiator_task_tag: u32,
    /// CmdSN.
    pub cmd_sn: u32,
    /// T10's name of the command.
    pub command: &'static str,
    /// First logical block, if the command has one.
    pub lba: Option<u64>,
    /// Number of blocks, if the command has one.
    pub block_count: Option<u32>,
    /// Expected Data Transfer Length.
    pub expected_data_transfer_length: u32,
    /// Bytes transferred: Data-In sent, or data out received.
    pub transferred_bytes: u64,
    /// R2Ts sent.
    pub r2t_count: u32,
    /// When the command had arrived with its immediate data.
    pub received_ns: i64,
    /// When it was delivered in the order of CmdSN.
    pub delivered_ns: Option<i64>,
    /// When its data had arrived and its service started.
    pub service_begin_ns: Option<i64>,
    /// When its service ended.
    pub service_end_ns: Option<i64>,
    /// When its first Data-In or R2T was sent.
    pub first_answer_ns: Option<i64>,
    /// When its status was sent.
    pub status_ns: Option<i64>,
    /// Its status.
    pub status: Option<u8>,
    /// The injected fault.
    pub fault: Option<Fault>,
    /// How it ended.
    pub end: TaskEnd,
}

/// A closed connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionRecord {
    /// Its number.
    pub connection: ConnectionNumber,
    /// Its peer.
    pub peer: SocketAddr,
    /// InitiatorName, after its login.
    pub initiator_name: Option<String>,
    /// TSIH and CID, after its login.
    pub session: Option<(u16, u16)>,
    /// When it was accepted.
    pub opened_ns: i64,
    /// When it ended.
    pub ended_ns: i64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Why it ended.
    pub ending: Ending,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Counters.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub struct PortalCounters { $($(#[$doc])* pub $name: u64,)* }
    };
}

counters! {
    /// Connections accepted.
    connections
    /// Connections refused because there are too many.
    refused_connections
    /// Logins that reached the full feature phase.
    logins
    /// Logins refused.
    refused_logins
    /// Sessions opened.
    sessions
    /// PDUs received.
    pdus_received
    /// PDUs sent.
    pdus_sent
    /// SCSI commands received.
    commands
    /// Bytes of Data-In sent.
    data_in_bytes
    /// Bytes of data out received, immediate or not.
    data_out_bytes
    /// R2Ts sent.
    r2ts
    /// Rejects sent.
    rejects
    /// Commands ignored for their CmdSN: outside the window, or duplicates (RFC 7143 section 4.2.2.1).
    ignored_cmd_sns
    /// PDUs with a wrong data digest.
    data_digest_errors
    /// Data-Out of aborted tasks.
    stray_data_outs
    /// Invalid Data-Out.
    wrong_data_outs
    /// ExpStatSN that acknowledged a status that was not sent.
    wrong_exp_stat_sns
    /// Pings sent.
    pings
    /// Injected faults.
    faults
    /// Commands beyond the limit of the log.
    unlogged_tasks
    /// Closed connections beyond the limit of the log.
    unlogged_connections
    /// PDUs beyond the limit of the log.
    unlogged_pdus
}

/// The log of a portal.
#[derive(Debug, Default)]
pub struct PortalLog {
    /// SCSI commands, in the order of their arrival.
    pub tasks: Vec<TaskRecord>,
    /// Closed connections, in the order of their end.
    pub connections: Vec<ConnectionRecord>,
    /// PDUs of both directions, if they are logged.
    pub pdus: Vec<PduRecord>,
    /// Counters.
    pub counters: PortalCounters,
    task_limit: usize,
    connection_limit: usize,
    pdu_limit: usize,
}

impl PortalLog {
    pub(super) fn new(limits: &Limits, has_pdus: bool) -> Self {
        Self {
            task_limit: limits.logged_task_count,
            connection_limit: limits.logged_connection_count,
            pdu_limit: if has_pdus { limits.logged_pdu_count } else { 0 },
            ..Self::default()
        }
    }

    /// Starts the record of a command; returns its index.
    pub(super) fn begin_task(&mut self, record: impl FnOnce() -> TaskRecord) -> Option<usize> {
        if self.tasks.len() >= self.task_limit {
            self.counters.unlogged_tasks += 1;
            return None;
        }
        self.tasks.push(record());
        Some(self.tasks.len() - 1)
    }

    /// The record of a command, for updates.
    pub(super) fn task(&mut self, place: Option<usize>) -> Option<&mut TaskRecord> {
        self.tasks.get_mut(place?)
    }

    pub(super) fn end_connection(&mut self, record: ConnectionRecord) {
        if self.connections.len() < self.connection_limit {
            self.connections.push(record);
        } else {
            self.counters.unlogged_connections += 1;
        }
    }

    pub(super) fn pdu(&mut self, record: impl FnOnce() -> PduRecord) {
        if self.pdus.len() < self.pdu_limit {
            self.pdus.push(record());
        } else if self.pdu_limit > 0 {
            self.counters.unlogged_pdus += 1;
        }
    }
}
