//! What happened at a portal: tasks, closed connections, PDUs, counters; the truth that an analyzer is held against.
//!
//! It keeps the first so many of each and counts the rest, and never decides anything.

use std::net::SocketAddr;

use serde::Serialize;

use super::ending::Ending;
use super::fault::Fault;
use super::settings::Limits;
use crate::application::ConnectionNumber;
use crate::protocol::pdu_log::PduRecord;

/// How a task ended at the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// It has not yet.
    Open,
    /// Its status was handed out.
    Answered,
    /// It was rejected.
    Rejected,
    /// A task management function, or a command of another nexus, ended it.
    Aborted,
    /// Its connection or session ended before.
    ConnectionLost,
}

/// A SCSI command, from its arrival to its status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskRecord {
    /// Place of its target in the settings.
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
    /// First logical block, of commands that have one.
    pub lba: Option<u64>,
    /// Blocks, of commands that have them.
    pub block_count: Option<u32>,
    /// Expected Data Transfer Length.
    pub expected_data_transfer_length: u32,
    /// Bytes that went over: Data-In handed out, or data out that came.
    pub transferred_bytes: u64,
    /// R2Ts handed out.
    pub r2t_count: u32,
    /// When the command was there with its immediate data.
    pub received_ns: i64,
    /// When it was its turn by CmdSN.
    pub delivered_ns: Option<i64>,
    /// When its data was there and its service began.
    pub service_begin_ns: Option<i64>,
    /// When its service was over.
    pub service_end_ns: Option<i64>,
    /// When its first Data-In or R2T was handed out.
    pub first_answer_ns: Option<i64>,
    /// When its status was handed out.
    pub status_ns: Option<i64>,
    /// Its status.
    pub status: Option<u8>,
    /// What went wrong on demand.
    pub fault: Option<Fault>,
    /// How it ended.
    pub end: TaskEnd,
}

/// A connection that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionRecord {
    /// Its number.
    pub connection: ConnectionNumber,
    /// Its peer.
    pub peer: SocketAddr,
    /// InitiatorName, once it logged in.
    pub initiator_name: Option<String>,
    /// TSIH and CID, once it logged in.
    pub session: Option<(u16, u16)>,
    /// When it was accepted.
    pub opened_ns: i64,
    /// When it ended.
    pub ended_ns: i64,
    /// Stream bytes that came.
    pub received_bytes: u64,
    /// Stream bytes handed out.
    pub sent_bytes: u64,
    /// Why it ended.
    pub ending: Ending,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// How often what happened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub struct PortalCounters { $($(#[$doc])* pub $name: u64,)* }
    };
}

counters! {
    /// Connections accepted.
    connections
    /// Connections refused: there are too many.
    refused_connections
    /// Logins that reached the full feature phase.
    logins
    /// Logins refused.
    refused_logins
    /// Sessions opened.
    sessions
    /// PDUs that came.
    pdus_received
    /// PDUs handed out.
    pdus_sent
    /// SCSI commands that came.
    commands
    /// Bytes of Data-In handed out.
    data_in_bytes
    /// Bytes of data out that came, immediate or not.
    data_out_bytes
    /// R2Ts handed out.
    r2ts
    /// Rejects handed out.
    rejects
    /// Commands passed over for their CmdSN: outside the window, or there already (RFC 7143 section 4.2.2.1).
    ignored_cmd_sns
    /// PDUs with a wrong data digest.
    data_digest_errors
    /// Data-Out of tasks that were aborted.
    stray_data_outs
    /// Data-Out that did not fit what was asked for.
    wrong_data_outs
    /// ExpStatSN that acknowledged what was never sent.
    wrong_exp_stat_sns
    /// Pings sent.
    pings
    /// Faults on demand.
    faults
    /// Tasks that found no place in the log.
    unlogged_tasks
    /// Closed connections that found no place in the log.
    unlogged_connections
    /// PDUs that found no place in the log.
    unlogged_pdus
}

/// The log of a portal.
#[derive(Debug, Default)]
pub struct PortalLog {
    /// SCSI commands, in the order of their arrival.
    pub tasks: Vec<TaskRecord>,
    /// Connections that are over, in the order of their end.
    pub connections: Vec<ConnectionRecord>,
    /// PDUs of both directions, when they are asked for.
    pub pdus: Vec<PduRecord>,
    /// Counts, of everything.
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

    /// Begins the record of a task: its place.
    pub(super) fn begin_task(&mut self, record: impl FnOnce() -> TaskRecord) -> Option<usize> {
        if self.tasks.len() >= self.task_limit {
            self.counters.unlogged_tasks += 1;
            return None;
        }
        self.tasks.push(record());
        Some(self.tasks.len() - 1)
    }

    /// The record of a task, to write on.
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
