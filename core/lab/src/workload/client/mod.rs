//! The reference initiator: an application that opens sessions, identifies the logical units, runs a workload, or
//! discovers targets, or pings, and logs out.
//!
//! ```text
//! settings -> Client -> sessions: connect, log in -> probe -> workload -> log out -> results
//!
//! application   connections and bytes, between the world and the sessions (state: client_session)
//! events        what a session reports, and the next step of the run
//! lanes, calls  the workload, dealt over the sessions (state: run)
//! connections   the number of connections while it is tuned (state: tuning_state)
//! recovery      a session that is lost is opened again
//! incidents     pauses, resets, UNMAP commands and logins, as faults of a run (further: their sessions)
//! outcome       progress, results, logs
//! ```
//!
//! It never does I/O and never reads a clock. It reopens a session that ends early only where its settings say so (`recovery`);
//! else that is an error of the run.

mod application;
mod calls;
mod client_session;
mod connections;
mod events;
mod further;
pub mod incident_state;
pub mod incidents;
mod lanes;
mod outcome;
pub mod probe;
pub mod recovery;
pub mod results;
mod run;
pub mod sense;
pub mod settings;
#[cfg(test)]
mod tests;
mod tuning_state;
pub mod volume;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::application::ConnectionNumber;
use crate::latency::Latencies;
use crate::protocol::breach::Breaches;
use crate::protocol::initiator::{DiscoveredTarget, InitiatorRule, Session, SessionSettings};
use crate::protocol::pdu_log::PduRecord;
use crate::workload::dealing::Dealer;
use crate::workload::pattern::Mismatch;
use client_session::{ClientSession, Stage};
use incident_state::Incidents;
use run::Run;
use settings::{ClientSettings, InvalidClient, Mode, TargetSettings};
use tuning_state::TuningState;
use volume::Volume;

/// Errors that are kept as text.
const MOST_ERRORS: usize = 100;
/// The purpose of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    /// The pause between two calls ends.
    Lane(usize),
    /// The next ping of a session.
    Ping(usize),
    /// The retry of a command.
    Retry(usize),
    /// The end of a measurement of the tuning.
    Measured(u64),
    /// The next connection of a lost session.
    Recovery(usize),
    /// An incident.
    Incident(usize),
}

/// The reference initiator.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    sessions: Vec<ClientSession>,
    /// Session and its connection, by the number in the world; none when it is closed.
    places: Vec<Option<(usize, usize)>>,
    closing: VecDeque<ConnectionNumber>,
    /// Timers, with a number that orders equal times.
    wakes: BinaryHeap<Reverse<(i64, u64, Wake)>>,
    wake_count: u64,
    /// Sessions that are still connecting.
    connecting_count: usize,
    /// Connections that were added and are not open yet.
    joining_count: usize,
    run: Run,
    tuning: Option<TuningState>,
    incidents: Incidents,
    breaches: Breaches<InitiatorRule>,
    is_leaving: bool,
    discovered: Vec<DiscoveredTarget>,
    pings: Latencies,
    errors: Vec<String>,
    error_count: u64,
    remarks: Vec<String>,
    pdu_log: Vec<PduRecord>,
}

impl Client {
    /// A run that begins with the first call into it.
    ///
    /// # Errors
    /// Settings that are not valid.
    pub fn new(settings: ClientSettings) -> Result<Self, InvalidClient> {
        settings.validate()?;
        let per_target = if settings.mode == Mode::Discover { 1 } else { usize::from(settings.workload.sessions) };
        let mut client = Self {
            sessions: Vec::new(),
            places: Vec::new(),
            closing: VecDeque::new(),
            wakes: BinaryHeap::new(),
            wake_count: 0,
            connecting_count: settings.targets.len() * per_target,
            joining_count: 0,
            run: Run::new(&settings),
            tuning: settings.workload.tuning.as_ref().filter(|_| settings.mode == Mode::Run).map(TuningState::new),
            incidents: Incidents::new(&settings.incidents),
            breaches: Breaches::new(&settings.breaks),
            is_leaving: false,
            discovered: Vec::new(),
            pings: Latencies::default(),
            errors: Vec::new(),
            error_count: 0,
            remarks: Vec::new(),
            pdu_log: Vec::new(),
            settings,
        };
        for target in 0..client.settings.targets.len() {
            for _ in 0..per_target {
                let settings = client.session_settings(client.sessions.len(), &client.settings.targets[target]);
                let client_session = client.client_session(target, settings);
                client.sessions.push(client_session);
            }
        }
        Ok(client)
    }

    /// A session that connects.
    fn client_session(&self, target: usize, settings: SessionSettings) -> ClientSession {
        let workload = &self.settings.workload;
        ClientSession {
            dealer: Dealer::new(workload.dealing, usize::from(settings.connections)),
            numbers: Vec::new(),
            counts: vec![(0, 0); usize::from(settings.connections)],
            spans: Vec::new(),
            session: Session::new(settings),
            target,
            address: self.settings.targets[target].address,
            hop_count: 0,
            volume: Volume::new(workload.pattern(target)),
            stage: Stage::Connecting,
            commands: Vec::new(),
            unit: None,
            pings_left: self.settings.ping.count,
            ping_connection: 0,
            ping_sent_ns: 0,
            lost_ns: None,
            lost_commands: Vec::new(),
            past: Vec::new(),
            further: None,
        }
    }

    fn session_settings(&self, number: usize, target: &TargetSettings) -> SessionSettings {
        let settings = &self.settings;
        let mut random = fastrand::Rng::with_seed(settings.isid_seed);
        let [high, low] = (number as u16).to_be_bytes();
        SessionSettings {
            login: settings.login_to(target),
            // Section 11.12.5: type 10b, random, with a qualifier.
            isid: [0x80, random.u8(..), random.u8(..), random.u8(..), high, low],
            connections: if settings.mode == Mode::Discover { 1 } else { settings.workload.connections },
            timeouts: settings.timeouts,
            initial_cmd_sn: settings.initial_cmd_sn,
            challenge_seed: settings.challenge_seed.wrapping_add((number as u64) << 16),
            is_pdu_log_wanted: settings.pdu_log,
            breaches: self.breaches.clone(),
        }
    }

    /// Ends the run as soon as the commands in flight have ended.
    pub fn stop(&mut self, now_ns: i64) {
        self.run.is_stopping = true;
        self.proceed(now_ns);
    }

    /// Records an error of the run.
    fn problem(&mut self, text: String) {
        self.error_count += 1;
        if self.errors.len() < MOST_ERRORS {
            self.errors.push(text);
        }
        if self.error_count > self.settings.workload.errors_allowed {
            self.run.is_stopping = true;
        }
    }

    fn wake_at(&mut self, at_ns: i64, wake: Wake) {
        self.wake_count += 1;
        self.wakes.push(Reverse((at_ns, self.wake_count, wake)));
    }

    fn target_name(&self, session: usize) -> String {
        let client_session = &self.sessions[session];
        match self.settings.targets.get(client_session.target).and_then(|target| target.name.as_ref()) {
            Some(name) => format!("{name} at {}", client_session.address),
            None => client_session.address.to_string(),
        }
    }

    fn mismatch(&mut self, session: usize, found: Mismatch) {
        self.run.verify_error_count += 1;
        self.run.first_mismatch.get_or_insert(found);
        let text = format!("{}: {found}", self.target_name(session));
        self.problem(text);
    }

    fn place(&self, connection: ConnectionNumber) -> Option<(usize, usize)> {
        self.places.get(connection).copied().flatten()
    }
}
