//! Settings of a target portal.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::delay::{ServiceDelay, ServiceOrder};
use super::fault::FaultSettings;
use super::rule::TargetRule;
use crate::protocol::breach::BreachSettings;
use crate::protocol::keys::{Digest, Offers};
use crate::protocol::login::Authentication;
use crate::scsi::DeviceSettings;

/// How the status of a read is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusDelivery {
    /// In the last Data-In, where RFC 7143 section 11.7.3 allows it.
    #[default]
    InData,
    /// In a SCSI Response that follows the last Data-In in the same system call.
    Apart,
    /// In a SCSI Response with a separate system call, so that Nagle holds it until the data is acknowledged.
    ApartHeld,
}

/// The order of R2Ts of a write. Orders other than the first require DataSequenceInOrder=No.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum R2tOrder {
    /// By Buffer Offset.
    #[default]
    InOrder,
    /// In reverse.
    Reverse,
    /// Shuffled, by the seed.
    Shuffled,
}

/// Limits of what peers can make a portal keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Connections, in any phase.
    pub connection_count: usize,
    /// Connections that have not logged in yet.
    pub half_open_count: usize,
    /// Sessions.
    pub session_count: usize,
    /// Timeout of a login; also of the last bytes of a connection that is to be closed.
    pub login_timeout_ns: i64,
    /// Unanswered immediate commands of a connection.
    pub immediate_count: usize,
    /// Pending Rejects and other PDUs of a connection that no window bounds; one more ends it.
    pub waiting_pdu_count: usize,
    /// Data of a session that arrived before its commands' turn; more ends the connection.
    pub early_data_bytes: usize,
    /// Bytes of all connections together that wait to be sent; beyond it a Data-In has no more data than one system
    /// call. Also bytes of all sessions that arrived before their commands' turn; more ends the connection.
    pub waiting_bytes: usize,
    /// Longest wait of a task management function for requested Data-Out, and for earlier commands.
    pub task_management_wait_ns: i64,
    /// Bytes of one system call, exceeded by at most one PDU.
    pub transmit_bytes: usize,
    /// Commands in the log.
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
            waiting_bytes: 256 << 20,
            task_management_wait_ns: 200_000_000,
            transmit_bytes: 256 << 10,
            logged_task_count: 4 << 20,
            logged_connection_count: 16 << 10,
            logged_pdu_count: 16 << 20,
        }
    }
}

/// A target portal.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PortalSettings {
    /// Its targets.
    pub targets: Vec<DeviceSettings>,
    /// TargetAddress values of SendTargets; without any, the address that the initiator connected to.
    pub addresses: Vec<SocketAddr>,
    /// Its offers of operational keys.
    pub keys: Offers,
    /// CHAP; without it, every initiator may log in.
    pub chap: Option<Authentication>,
    /// Command window: the most commands of a session at a time.
    pub command_window_count: u32,
    /// How the status of reads is sent.
    pub status: StatusDelivery,
    /// The order of R2Ts of a write.
    pub r2t_order: R2tOrder,
    /// Service time from the delivery of a read to its first data.
    pub read_delay: ServiceDelay,
    /// Service time from the last data of a write to its status.
    pub write_delay: ServiceDelay,
    /// The order of service.
    pub service_order: ServiceOrder,
    /// Injected faults. A command that is delivered has the first one that hits it.
    pub faults: Vec<FaultSettings>,
    /// Rules of RFC 7143 that it breaks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub breaks: Vec<BreachSettings<TargetRule>>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Idle time before a NOP-In ping; 0 for never.
    pub nop_in_interval_ns: i64,
    /// Timeout of a ping, after which the connection is closed.
    pub nop_in_timeout_ns: i64,
    /// Whether every PDU is logged.
    pub has_pdu_log: bool,
    /// Limits.
    pub limits: Limits,
}

impl Default for PortalSettings {
    fn default() -> Self {
        Self {
            targets: vec![DeviceSettings::default()],
            addresses: Vec::new(),
            // whatever current initiators offer
            keys: Offers {
                header_digest: Some(vec![Digest::None, Digest::Crc32c]),
                data_digest: Some(vec![Digest::None, Digest::Crc32c]),
                max_connections: Some(64),
                ..Offers::usual()
            },
            chap: None,
            command_window_count: 128,
            status: StatusDelivery::default(),
            r2t_order: R2tOrder::default(),
            read_delay: ServiceDelay::default(),
            write_delay: ServiceDelay::default(),
            service_order: ServiceOrder::default(),
            faults: Vec::new(),
            breaks: Vec::new(),
            seed: 0,
            nop_in_interval_ns: 0,
            nop_in_timeout_ns: 5_000_000_000,
            has_pdu_log: false,
            limits: Limits::default(),
        }
    }
}
