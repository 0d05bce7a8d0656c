//! Events of the sessions: a login, an answer, an end. Each leads to the next step of the run.

use std::net::SocketAddr;

use super::client_session::Stage;
use super::probe::{Next, Probe};
use super::settings::Mode;
use super::{Client, Wake, sense};
use crate::protocol::initiator::{Completion, Event, Outcome, Session, SessionError};
use crate::workload::dealing::Dealer;

/// Most redirections of a session.
const MOST_HOPS: u32 = 4;

impl Client {
    /// Handles the events of a session.
    pub(super) fn pump(&mut self, now_ns: i64, index: usize) {
        while let Some(event) = self.sessions[index].session.poll_event() {
            match event {
                Event::Done(completion) => self.done(now_ns, index, &completion),
                Event::Ready => self.ready(now_ns, index),
                Event::Joined(connection) => {
                    self.sessions[index].span(connection).0 = Some(now_ns);
                    self.joined(now_ns, connection);
                }
                Event::Refused { reason, .. } => self.refused(now_ns, reason),
                Event::Targets(targets) => {
                    match self.sessions[index].further {
                        Some(further) => self.log_in_to_others(now_ns, further, &targets),
                        None => self.discovered.extend(targets),
                    }
                    self.sessions[index].session.logout(now_ns);
                }
                Event::Close(connection) => {
                    self.sessions[index].dealer.retire(connection);
                    self.sessions[index].span(connection).1 = Some(now_ns);
                    self.forget_connection(now_ns, connection);
                    if let Some(number) = self.sessions[index].numbers.get(connection).copied() {
                        self.places[number] = None;
                        self.closing.push_back(number);
                    }
                }
                Event::Reject { words, .. } => {
                    let name = self.target_name(index);
                    self.problem(format!("{name}: a PDU was rejected: {words} (RFC 7143 section 11.17.1)"));
                }
                Event::AsyncMessage { event, vcode } => {
                    let name = self.target_name(index);
                    let words = "RFC 7143 section 11.9.1";
                    self.remarks.push(format!("{name}: Asynchronous Message, event {event}, code {vcode} ({words})"));
                }
                Event::Ended(result) => self.ended(now_ns, index, result),
            }
        }
    }

    fn ready(&mut self, now_ns: i64, index: usize) {
        self.connecting_count = self.connecting_count.saturating_sub(1);
        for connection in 0..self.sessions[index].session.connection_count() {
            self.sessions[index].span(connection).0 = Some(now_ns);
        }
        if self.is_leaving {
            self.sessions[index].session.logout(now_ns);
            return;
        }
        if let Some(further) = self.sessions[index].further {
            self.further_ready(now_ns, index, further);
            return;
        }
        if self.sessions[index].unit.is_some() {
            self.go_on(now_ns, index);
            return;
        }
        let client_session = &mut self.sessions[index];
        match self.settings.mode {
            Mode::Discover => {
                client_session.stage = Stage::Ready;
                client_session.session.send_targets(now_ns);
            }
            Mode::Ping => {
                client_session.stage = Stage::Ready;
                self.ping(now_ns, index);
            }
            Mode::Run => {
                let (probe, command) = Probe::new(self.settings.targets[client_session.target].lun);
                client_session.stage = Stage::Probing(Box::new(probe));
                client_session.ask(now_ns, command);
            }
        }
    }

    pub(super) fn ping(&mut self, now_ns: i64, index: usize) {
        let client_session = &mut self.sessions[index];
        if client_session.pings_left == 0 || self.run.is_stopping {
            client_session.session.logout(now_ns);
            return;
        }
        let Some(connection) = client_session.usable_connection(client_session.ping_connection) else { return };
        client_session.pings_left -= 1;
        client_session.ping_sent_ns = now_ns;
        client_session.ping_connection = connection + 1;
        client_session.session.ping(now_ns, connection, self.settings.ping.bytes);
    }

    fn done(&mut self, now_ns: i64, index: usize, completion: &Completion) {
        let client_session = &mut self.sessions[index];
        match &mut client_session.stage {
            Stage::Probing(probe) => match probe.take(completion, client_session.volume.answer()) {
                Next::Ask(command) => client_session.ask(now_ns, command),
                Next::Known(unit) => {
                    client_session.unit = Some(unit);
                    client_session.stage = Stage::Ready;
                    if self.sessions.iter().all(|client_session| client_session.unit.is_some()) && !self.run.is_stopping
                    {
                        self.begin_run(now_ns);
                    }
                }
                Next::Failed(text) => {
                    client_session.stage = Stage::Ready;
                    let lun = self.settings.targets[client_session.target].lun;
                    let text = format!("{}, LUN {lun}: {text}", self.target_name(index));
                    self.problem(text);
                    self.run.is_stopping = true;
                }
            },
            Stage::Ready if self.settings.mode == Mode::Ping => {
                if completion.outcome == Outcome::Answered(0) {
                    self.pings.record(now_ns - client_session.ping_sent_ns);
                } else {
                    let text = format!("{}: NOP-Out: {}", self.target_name(index), sense::describe(completion));
                    self.problem(text);
                }
                self.wake_at(now_ns.saturating_add(self.settings.ping.interval_ns.max(0)), Wake::Ping(index));
            }
            _ => self.end_command(now_ns, index, completion),
        }
    }

    fn ended(&mut self, now_ns: i64, index: usize, result: Result<(), SessionError>) {
        if self.sessions[index].further.is_some() {
            self.further_ended(index, result);
            return;
        }
        let was_connecting = matches!(self.sessions[index].stage, Stage::Connecting);
        if let Err(SessionError::Redirected { address }) = &result
            && self.redirect(index, address)
        {
            return;
        }
        if let Err(error) = &result
            && self.recover(now_ns, index, error)
        {
            return;
        }
        if was_connecting {
            self.connecting_count = self.connecting_count.saturating_sub(1);
        }
        self.sessions[index].stage = Stage::Over;
        if let Err(error) = result {
            let text = format!("{}: {error}", self.target_name(index));
            self.problem(text);
            self.run.is_stopping = true;
        } else if !self.is_leaving && self.settings.mode == Mode::Run {
            self.run.is_stopping = true;
        }
        self.drop_commands(now_ns, index);
    }

    /// Restarts a session at the address of a redirection (RFC 7143 section 11.13.5), if it may be followed.
    fn redirect(&mut self, index: usize, address: &str) -> bool {
        let address = address.split(',').next().unwrap_or(address);
        let parsed = address.parse::<SocketAddr>().ok().or_else(|| {
            let host = address.trim_start_matches('[').trim_end_matches(']');
            host.parse().ok().map(|host| SocketAddr::new(host, 3260))
        });
        let named = self.settings.targets[self.sessions[index].target].address;
        let is_allowed = |to: &SocketAddr| self.settings.follow_redirects.allows(named.ip(), to.ip());
        let has_hops = self.sessions[index].hop_count < MOST_HOPS;
        let Some(address) = parsed.filter(|to| has_hops && is_allowed(to)) else { return false };
        self.collect_pdu_log(index);
        let settings = self.session_settings(index, &self.settings.targets[self.sessions[index].target]);
        let client_session = &mut self.sessions[index];
        client_session.session = Session::new(settings);
        client_session.address = address;
        client_session.hop_count += 1;
        client_session.numbers.clear();
        client_session.dealer = Dealer::new(self.settings.workload.dealing, client_session.counts.len());
        true
    }

    /// Logs out if the run is done.
    pub(super) fn proceed(&mut self, now_ns: i64) {
        let is_idle = self.run.is_idle(now_ns);
        let is_done = match self.settings.mode {
            Mode::Run => is_idle && (self.run.started_ns.is_some() || self.run.is_stopping),
            Mode::Discover | Mode::Ping => self.run.is_stopping,
        };
        if !is_done || self.is_leaving || self.is_unmapping() && !self.run.is_stopping {
            return;
        }
        self.is_leaving = true;
        for client_session in &mut self.sessions {
            if matches!(client_session.stage, Stage::Recovering) {
                client_session.stage = Stage::Over;
            }
        }
        for index in 0..self.sessions.len() {
            self.sessions[index].session.logout(now_ns);
            self.pump(now_ns, index);
        }
    }
}
