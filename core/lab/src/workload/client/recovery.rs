//! Recovery of a lost session: a new login with the same ISID (session reinstatement, RFC 7143 section 6.3.5), and the
//! commands that the lost session had in flight again.
//!
//! ```text
//! ended -> wait -> connect, log in -> ready: commands again
//!            ^-- failed, before the time is over
//! ```

use super::client_session::{Pending, Stage};
use super::results::ConnectionResults;
use super::settings::Mode;
use super::{Client, Wake};
use crate::protocol::initiator::{Session, SessionError};
use crate::workload::dealing::Dealer;

impl Client {
    /// Begins to recover a session that ended; false for one that is not recovered.
    pub(super) fn recover(&mut self, now_ns: i64, index: usize, error: &SessionError) -> bool {
        let Some(recovery) = self.settings.recovery.filter(|_| self.settings.mode == Mode::Run) else { return false };
        let client_session = &mut self.sessions[index];
        if client_session.unit.is_none() || self.is_leaving {
            return false;
        }
        if let SessionError::LoginRefused(status) = error
            && status.codes().0 == 2
        {
            return false;
        }
        let lost_ns = *client_session.lost_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(lost_ns) >= recovery.replacement_ns {
            return false;
        }
        if matches!(client_session.stage, Stage::Connecting) {
            self.connecting_count = self.connecting_count.saturating_sub(1);
        }
        let in_flight: Vec<Pending> = client_session.commands.drain(..).flatten().collect();
        client_session.lost_commands.extend(in_flight);
        client_session.stage = Stage::Recovering;
        self.end_unmap(index);
        let name = self.target_name(index);
        self.remarks.push(format!("{name}: the session is recovered after: {error}"));
        self.wake_at(now_ns.saturating_add(recovery.wait_ns), Wake::Recovery(index));
        true
    }

    /// Opens the connections of a session that is recovered.
    pub(super) fn reopen(&mut self, index: usize) {
        if self.is_leaving {
            self.sessions[index].stage = Stage::Over;
            return;
        }
        self.collect_pdu_log(index);
        let past: Vec<ConnectionResults> = self.connection_results(index).collect();
        let address = self.settings.targets[self.sessions[index].target].address;
        let settings = self.session_settings(index, &self.settings.targets[self.sessions[index].target]);
        let client_session = &mut self.sessions[index];
        client_session.past.extend(past);
        client_session.counts.iter_mut().for_each(|counts| *counts = (0, 0));
        client_session.spans.clear();
        client_session.numbers.clear();
        client_session.session = Session::new(settings);
        (client_session.address, client_session.hop_count) = (address, 0);
        client_session.dealer = Dealer::new(self.settings.workload.dealing, client_session.counts.len());
        client_session.stage = Stage::Connecting;
        self.connecting_count += 1;
    }

    /// A recovered session is ready: its commands are submitted again.
    pub(super) fn go_on(&mut self, now_ns: i64, index: usize) {
        let client_session = &mut self.sessions[index];
        client_session.stage = Stage::Ready;
        client_session.lost_ns = None;
        for pending in std::mem::take(&mut client_session.lost_commands) {
            self.submit_again(now_ns, index, pending);
        }
        self.begin_unmap(now_ns);
    }
}
