//! What a user sets of a target portal; never what becomes of it.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::delay::{ServiceDelay, ServiceOrder};
use super::fault::FaultRule;
use crate::protocol::chap::{Algorithm, Credentials};
use crate::protocol::keys::{Digest, Offers};
use crate::scsi::DeviceSettings;

/// How the status of a read is handed out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusDelivery {
    /// In the last Data-In, where RFC 7143 section 11.7.3 allows it.
    #[default]
    InData,
    /// In a SCSI Response that follows the last Data-In in the same system call.
    Apart,
    /// In a SCSI Response with a system call of its own, so that Nagle holds it until the data is acknowledged.
    ApartHeld,
}

/// In which order the parts of a write are asked for. Another order than the first needs DataSequenceInOrder=No in force.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum R2tOrder {
    /// By Buffer Offset.
    #[default]
    InOrder,
    /// The last part first.
    Reverse,
    /// Shuffled, by the seed.
    Shuffled,
}

/// Bounds of what peers can make a portal keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections, in whatever phase.
    pub connection_count: usize,
    /// Connections that have not logged in yet.
    pub half_open_count: usize,
    /// Sessions.
    pub session_count: usize,
    /// From the connection to the full feature phase; as well for the last bytes of a connection that is to be closed.
    pub login_timeout_ns: i64,
    /// Immediate commands of a connection that wait for their answer.
    pub immediate_count: usize,
    /// Rejects and other PDUs that no window bounds, and that wait on a connection to be sent; one more ends it.
    pub waiting_pdu_count: usize,
    /// Data of a session that came before its command could be executed; more ends the connection.
    pub early_data_bytes: usize,
    /// How long a task management function waits for Data-Out that was asked for, and for commands before it.
    pub task_management_wait_ns: i64,
    /// What one system call sends, at most one PDU more.
    pub transmit_bytes: usize,
    /// Tasks in the log.
    pub logged_task_count: usize,
    /// Closed connections in the log.
    pub logged_connection_count: usize,
    /// PDUs in the log.
    pub logged_pdu_count: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connection_count: 4096,
            half_open_count: 256,
            session_count: 1024,
            login_timeout_ns: 15_000_000_000,
            immediate_count: 64,
            waiting_pdu_count: 4096,
            early_data_bytes: 64 << 20,
            task_management_wait_ns: 200_000_000,
            transmit_bytes: 256 << 10,
            logged_task_count: 4 << 20,
            logged_connection_count: 16 << 10,
            logged_pdu_count: 16 << 20,
        }
    }
}

/// Who may log in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChapSettings {
    /// Name and secret of each initiator.
    pub initiators: Vec<Credentials>,
    /// Name and secret of the target, for initiators that want to know who it is.
    #[serde(default)]
    pub target: Option<Credentials>,
    /// Algorithms that it takes.
    #[serde(default = "md5")]
    pub algorithms: Vec<Algorithm>,
}

fn md5() -> Vec<Algorithm> {
    vec![Algorithm::Md5]
}

/// A target portal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortalSettings {
    /// Its targets.
    pub targets: Vec<DeviceSettings>,
    /// What SendTargets names as TargetAddress; without any, the address that the initiator asked at.
    pub addresses: Vec<SocketAddr>,
    /// The operational keys that it wants.
    pub keys: Offers,
    /// Who may log in, by CHAP; without it, anyone.
    pub chap: Option<ChapSettings>,
    /// Commands of a session at a time: MaxCmdSN lies so far ahead when none is open.
    pub command_window_count: u32,
    /// How the status of reads is handed out.
    pub status: StatusDelivery,
    /// In which order the parts of a write are asked for.
    pub r2t_order: R2tOrder,
    /// From the delivery of a read to its first data.
    pub read_delay: ServiceDelay,
    /// From the last data of a write to its status.
    pub write_delay: ServiceDelay,
    /// Whether commands wait for each other.
    pub service_order: ServiceOrder,
    /// What goes wrong, and when.
    pub faults: Vec<FaultRule>,
    /// Of everything that is random.
    pub seed: u64,
    /// A NOP-In ping goes out when nothing came for so long; 0 for never.
    pub nop_in_interval_ns: i64,
    /// A connection is closed when a ping is not answered for so long.
    pub nop_in_timeout_ns: i64,
    /// Whether every PDU is logged.
    pub has_pdu_log: bool,
    /// Bounds.
    pub limits: Limits,
}

impl Default for PortalSettings {
    fn default() -> Self {
        Self {
            targets: vec![DeviceSettings::default()],
            addresses: Vec::new(),
            // whatever an initiator of today asks for
            keys: Offers {
                header_digest: Some(vec![Digest::None, Digest::Crc32c]),
                data_digest: Some(vec![Digest::None, Digest::Crc32c]),
                max_connections: Some(64),
                ..Offers::default()
            },
            chap: None,
            command_window_count: 128,
            status: StatusDelivery::default(),
            r2t_order: R2tOrder::default(),
            read_delay: ServiceDelay::default(),
            write_delay: ServiceDelay::default(),
            service_order: ServiceOrder::default(),
            faults: Vec::new(),
            seed: 0,
            nop_in_interval_ns: 0,
            nop_in_timeout_ns: 5_000_000_000,
            has_pdu_log: false,
            limits: Limits::default(),
        }
    }
}
