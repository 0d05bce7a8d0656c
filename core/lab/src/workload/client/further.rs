//! Sessions beside those of the workload, as faults of a run: a discovery, logins through the other portals that it lists,
//! and logins of a second initiator that has the name and ISID of the first.
//!
//! They move no data and are not recovered, and their failures are no errors of the run.

use std::net::SocketAddr;

use super::client_session::{ClientSession, Further, FurtherPurpose, Stage};
use super::settings::TargetSettings;
use super::{Client, Wake};
use crate::protocol::initiator::{DiscoveredTarget, SessionError, SessionSettings};
use crate::protocol::login::SessionType;

/// The target of the workload that they are about.
const TARGET: usize = 0;

impl Client {
    /// Discovers the targets again.
    pub(super) fn rescan(&mut self, incident: usize) {
        let target = &self.settings.targets[TARGET];
        let (address, mut settings) = (target.address, self.session_settings(self.sessions.len(), target));
        (settings.login.session_type, settings.login.target_name) = (SessionType::Discovery, None);
        self.open_further(Further { purpose: FurtherPurpose::Discovery, incident }, settings, address);
    }

    /// The second initiator logs in, unless its session is still there, and again after a while.
    pub(super) fn log_in_again(&mut self, now_ns: i64, incident: usize, every_ns: i64) {
        let occurrence = &mut self.incidents.all[incident].1;
        if !occurrence.covers(now_ns) || self.is_leaving {
            return;
        }
        let is_of_this = |session: &ClientSession| session.further.is_some_and(|further| further.incident == incident);
        if self.sessions.iter().all(|session| !is_of_this(session) || matches!(session.stage, Stage::Over)) {
            occurrence.hit(now_ns);
            // the number of a session is part of its ISID
            let target = &self.settings.targets[TARGET];
            let (address, settings) = (target.address, self.session_settings(0, target));
            self.open_further(Further { purpose: FurtherPurpose::Login, incident }, settings, address);
        }
        self.wake_at(now_ns.saturating_add(every_ns.max(1)), Wake::Incident(incident));
    }

    fn open_further(&mut self, further: Further, mut settings: SessionSettings, address: SocketAddr) {
        settings.connections = 1;
        let session = self.client_session(TARGET, settings);
        self.sessions.push(ClientSession { address, further: Some(further), ..session });
        self.connecting_count += 1;
    }

    /// A further session is in the full feature phase.
    pub(super) fn further_ready(&mut self, now_ns: i64, index: usize, further: Further) {
        self.sessions[index].stage = Stage::Ready;
        if further.purpose == FurtherPurpose::Discovery {
            self.sessions[index].session.send_targets(now_ns);
        }
    }

    /// Logs in through the portals of a discovery that the workload does not use.
    pub(super) fn log_in_to_others(&mut self, now_ns: i64, further: Further, targets: &[DiscoveredTarget]) {
        for found in targets {
            let addresses = found.addresses.iter().filter_map(|address| address.split(',').next()?.parse().ok());
            for address in addresses.collect::<Vec<SocketAddr>>() {
                let target = TargetSettings { address, name: Some(found.name.clone()), lun: 0 };
                if self.is_leaving || self.settings.targets.iter().any(|used| used.address == address) {
                    continue;
                }
                self.incidents.all[further.incident].1.hit(now_ns);
                let settings = self.session_settings(self.sessions.len(), &target);
                self.open_further(Further { purpose: FurtherPurpose::Login, ..further }, settings, address);
            }
        }
    }

    /// A further session ended.
    pub(super) fn further_ended(&mut self, index: usize, result: Result<(), SessionError>) {
        let address = self.sessions[index].address;
        if matches!(std::mem::replace(&mut self.sessions[index].stage, Stage::Over), Stage::Connecting) {
            self.connecting_count = self.connecting_count.saturating_sub(1);
        }
        if let Err(error) = result {
            self.remarks.push(format!("{address}: a further session ended: {error}"));
        }
    }
}
