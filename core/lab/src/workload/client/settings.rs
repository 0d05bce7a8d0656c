//! The settings of a run of the reference initiator.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::incident_state::IncidentSettings;
use crate::protocol::breach::BreachSettings;
use crate::protocol::initiator::{InitiatorRule, Timeouts};
use crate::protocol::login::{InitiatorLoginSettings, InvalidSettings, SessionType};
use crate::workload::settings::{InvalidWorkload, WorkloadSettings};
use crate::workload::slices::Slices;

/// The mode of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The workload.
    #[default]
    Run,
    /// SendTargets.
    Discover,
    /// NOP-Out pings.
    Ping,
}

/// Which redirections of a login are followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FollowRedirects {
    /// Those to an address in the network of the target: its first 24 bits of IPv4, 64 of IPv6.
    #[default]
    SameNetwork,
    /// All.
    Any,
    /// None.
    None,
}

impl FollowRedirects {
    /// Whether a session with a target at `from` may go to `to`.
    #[must_use]
    pub fn allows(self, from: IpAddr, to: IpAddr) -> bool {
        match (self, from.to_canonical(), to.to_canonical()) {
            (Self::Any, ..) => true,
            (Self::None, ..) => false,
            (Self::SameNetwork, IpAddr::V4(from), IpAddr::V4(to)) => from.octets()[..3] == to.octets()[..3],
            (Self::SameNetwork, IpAddr::V6(from), IpAddr::V6(to)) => from.segments()[..4] == to.segments()[..4],
            (Self::SameNetwork, ..) => false,
        }
    }
}

/// A logical unit of a target at an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSettings {
    /// Address.
    pub address: SocketAddr,
    /// TargetName; a discovery session needs none.
    #[serde(default)]
    pub name: Option<String>,
    /// Logical unit, 0 to 16383.
    #[serde(default)]
    pub lun: u16,
}

/// Pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PingSettings {
    /// Number per session.
    pub count: u64,
    /// Pause from an answer to the next ping.
    pub interval_ns: i64,
    /// Bytes of ping data.
    pub bytes: u32,
}

impl Default for PingSettings {
    fn default() -> Self {
        Self { count: 10, interval_ns: 100_000_000, bytes: 64 }
    }
}

/// A run of the reference initiator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSettings {
    /// The mode.
    pub mode: Mode,
    /// The targets.
    pub targets: Vec<TargetSettings>,
    /// Names, keys and credentials, except the TargetName.
    pub login: InitiatorLoginSettings,
    /// Seed of ISIDs; runs at the same time need different ones.
    pub isid_seed: u64,
    /// Seed of CHAP challenges: random in the real world.
    pub challenge_seed: u64,
    /// CmdSN of each session's login.
    pub initial_cmd_sn: u32,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// The workload.
    pub workload: WorkloadSettings,
    /// The pings.
    pub ping: PingSettings,
    /// Length of the slices of throughput over time.
    pub slice_ns: i64,
    /// Whether commands are logged.
    pub task_log: bool,
    /// Which redirections are followed.
    pub follow_redirects: FollowRedirects,
    /// How lost sessions are recovered; without it, a lost session is an error of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoverySettings>,
    /// Faults at the initiator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incidents: Vec<IncidentSettings>,
    /// Rules of RFC 7143 that it breaks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub breaks: Vec<BreachSettings<InitiatorRule>>,
    /// Whether PDUs are logged.
    pub pdu_log: bool,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            mode: Mode::Run,
            targets: Vec::new(),
            login: InitiatorLoginSettings::default(),
            isid_seed: 1,
            challenge_seed: 1,
            initial_cmd_sn: 1,
            timeouts: Timeouts::default(),
            workload: WorkloadSettings::default(),
            ping: PingSettings::default(),
            slice_ns: Slices::default().slice_ns,
            task_log: false,
            follow_redirects: FollowRedirects::default(),
            recovery: None,
            incidents: Vec::new(),
            breaks: Vec::new(),
            pdu_log: false,
        }
    }
}

/// Settings that are not valid.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum InvalidClient {
    /// No target.
    #[error("no target is named")]
    NoTarget,
    /// A LUN out of range.
    #[error("LUN {0} is not from 0 to 16383")]
    Lun(u16),
    /// Tuning with recovery.
    #[error("a search for the number of connections cannot recover a session")]
    Recovery,
    /// Tuning with more than one session.
    #[error("the number of connections can be tuned for one session of one target only, not for {0} sessions")]
    Tuning(usize),
    /// The login.
    #[error(transparent)]
    Login(#[from] InvalidSettings),
    /// The workload.
    #[error(transparent)]
    Workload(#[from] InvalidWorkload),
}

impl ClientSettings {
    /// Names and keys of the sessions of one target.
    #[must_use]
    pub fn login_to(&self, target: &TargetSettings) -> InitiatorLoginSettings {
        let mut login = self.login.clone();
        login.target_name.clone_from(&target.name);
        login.session_type = if self.mode == Mode::Discover { SessionType::Discovery } else { SessionType::Normal };
        if self.mode == Mode::Discover {
            login.target_name = None;
        } else {
            let tuned = self.workload.tuning.as_ref().map(|tuning| tuning.most_connections);
            let wanted = u32::from(tuned.unwrap_or(self.workload.connections));
            login.offers.max_connections = login.offers.max_connections.map(|offered| offered.max(wanted));
        }
        login
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// The first setting that is not valid.
    pub fn validate(&self) -> Result<(), InvalidClient> {
        if self.targets.is_empty() {
            return Err(InvalidClient::NoTarget);
        }
        if self.mode == Mode::Run && self.workload.operation.is_socket() {
            return Err(InvalidWorkload::Operation("read, write or mixed").into());
        }
        for target in &self.targets {
            if target.lun >= 16_384 {
                return Err(InvalidClient::Lun(target.lun));
            }
            self.login_to(target).validate()?;
        }
        if self.mode == Mode::Run {
            self.workload.validate()?;
            let sessions = self.targets.len() * usize::from(self.workload.sessions);
            if self.workload.tuning.is_some() && self.recovery.is_some() {
                return Err(InvalidClient::Recovery);
            }
            if self.workload.tuning.is_some() && sessions != 1 {
                return Err(InvalidClient::Tuning(sessions));
            }
        }
        Ok(())
    }
}

/// How an initiator recovers lost sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecoverySettings {
    /// From the loss of a connection, or a failed login, to the next connection: DefaultTime2Wait.
    pub wait_ns: i64,
    /// From the loss of a session until its commands fail: open-iscsi's replacement_timeout.
    pub replacement_ns: i64,
}

impl Default for RecoverySettings {
    fn default() -> Self {
        Self { wait_ns: 2_000_000_000, replacement_ns: 120_000_000_000 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_stay_in_the_network_of_the_target() {
        let allows =
            |follow: FollowRedirects, from: &str, to: &str| follow.allows(from.parse().unwrap(), to.parse().unwrap());
        for (from, to, is_same) in [
            ("192.0.2.1", "192.0.2.254", true),
            ("192.0.2.1", "192.0.3.1", false),
            ("192.0.2.1", "127.0.0.1", false),
            ("2001:db8::1", "2001:db8::2:3:4:5", true),
            ("2001:db8::1", "2001:db8:0:1::1", false),
            ("::ffff:192.0.2.1", "192.0.2.9", true),
            ("2001:db8::1", "192.0.2.1", false),
        ] {
            assert_eq!(allows(FollowRedirects::SameNetwork, from, to), is_same, "{from} {to}");
            assert!(allows(FollowRedirects::Any, from, to) && !allows(FollowRedirects::None, from, to));
        }
    }
}
