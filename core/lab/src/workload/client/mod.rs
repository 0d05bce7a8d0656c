//! The reference initiator: an application that opens sessions, learns what the logical units are, runs a workload, or
//! discovers, or pings, and logs out.
//!
//! ```text
//! settings -> Client -> sessions: connect, log in -> probe -> run (run.rs) -> log out -> results
//! ```
//!
//! It never does I/O and never reads a clock. It never opens a session again: what ends early is an error of the run.

mod application;
mod driven;
pub mod probe;
pub mod results;
mod run;
pub mod sense;
pub mod settings;
#[cfg(test)]
mod tests;
mod tuned;
pub mod volume;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::net::SocketAddr;

use crate::application::ConnectionNumber;
use crate::protocol::initiator::{
    Completion, DiscoveredTarget, Event, Outcome, Session, SessionError, SessionSettings,
};
use crate::protocol::pdu_log::PduRecord;
use crate::workload::dealing::Dealer;
use crate::workload::latency::Latencies;
use crate::workload::pattern::Mismatch;
use driven::{Driven, Stage};
use probe::{Next, Probe};
use results::{ConnectionResults, OperationResults, Progress, Results, TargetResults, TaskRecord, TuningProgress};
use run::Run;
use settings::{ClientSettings, InvalidClient, Mode, TargetSettings};
use tuned::Tuned;
use volume::Volume;

/// Errors that are kept as text.
const MOST_ERRORS: usize = 100;
/// How often a target may send a session elsewhere.
const MOST_HOPS: u32 = 4;

/// What a moment is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    /// A pause between calls is over.
    Lane(usize),
    /// The next ping of a session.
    Ping(usize),
    /// A command that was refused for now.
    Retry(usize),
    /// The end of a measurement of the tuning.
    Measured(u64),
}

/// The reference initiator.
#[derive(Debug)]
pub struct Client {
    settings: ClientSettings,
    sessions: Vec<Driven>,
    /// Session and connection in it, by the world's number; none when it is closed.
    places: Vec<Option<(usize, usize)>>,
    closing: VecDeque<ConnectionNumber>,
    /// Moments, with a number that keeps equal ones in order.
    wakes: BinaryHeap<Reverse<(i64, u64, Wake)>>,
    wake_count: u64,
    /// Sessions that still open connections.
    connecting_count: usize,
    /// Connections that are added to sessions and are not there yet.
    joining_count: usize,
    run: Run,
    tuned: Option<Tuned>,
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
    /// Settings with which there is nothing to run.
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
            tuned: settings.workload.tuning.as_ref().filter(|_| settings.mode == Mode::Run).map(Tuned::new),
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
                let number = client.sessions.len();
                let settings = client.session_settings(number, &client.settings.targets[target]);
                let driven = Driven {
                    dealer: Dealer::new(client.settings.workload.dealing, usize::from(settings.connections)),
                    numbers: Vec::new(),
                    counts: vec![(0, 0); usize::from(settings.connections)],
                    spans: Vec::new(),
                    session: Session::new(settings),
                    target,
                    address: client.settings.targets[target].address,
                    hop_count: 0,
                    volume: Volume::new(client.settings.workload.pattern()),
                    stage: Stage::Connecting,
                    commands: Vec::new(),
                    unit: None,
                    pings_left: client.settings.ping.count,
                    ping_connection: 0,
                    ping_sent_ns: 0,
                };
                client.sessions.push(driven);
            }
        }
        Ok(client)
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
        }
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self, now_ns: i64) -> Progress {
        let mut progress = self.run.progress(now_ns);
        if self.settings.mode == Mode::Ping {
            progress.calls = self.pings.summary().count;
        }
        progress.tuning = self.tuned.as_ref().map(|tuned| {
            let latest = tuned.latest();
            TuningProgress {
                connections: tuned.connection_count() as u16,
                step_count: latest.map_or(0, |(_, count)| count),
                step: latest.map(|(step, _)| step.clone()),
            }
        });
        progress
    }

    /// What it gave, so far.
    #[must_use]
    pub fn results(&self) -> Results {
        let run = &self.run;
        let connections = self.sessions.iter().enumerate().flat_map(|(session, driven)| {
            driven.numbers.iter().enumerate().map(move |(index, connection)| ConnectionResults {
                session,
                target: driven.target,
                connection: *connection,
                cid: index as u16,
                parameters: driven.session.parameters(index).cloned(),
                joined_ns: driven.spans.get(index).and_then(|span| span.0),
                left_ns: driven.spans.get(index).and_then(|span| span.1),
                commands: driven.counts.get(index).map_or(0, |counts| counts.0),
                bytes: driven.counts.get(index).map_or(0, |counts| counts.1),
            })
        });
        let targets = self.settings.targets.iter().enumerate().map(|(index, target)| TargetResults {
            address: target.address,
            name: target.name.clone(),
            lun: target.lun,
            unit: self.sessions.iter().find(|driven| driven.target == index).and_then(|driven| driven.unit.clone()),
        });
        let sessions = self.sessions.iter().map(|driven| &driven.session);
        let operation = |count: &run::Count| OperationResults {
            commands: count.commands,
            bytes: count.bytes,
            latency_ns: count.latencies.summary(),
        };
        Results {
            mode: self.settings.mode,
            elapsed_ns: run.elapsed_ns(),
            started_ns: run.started_ns,
            bytes: run.bytes,
            calls: run.calls_done,
            call_latency_ns: run.call_latencies.summary(),
            read: operation(&run.read),
            write: operation(&run.write),
            ping_ns: self.pings.summary(),
            slices: run.slices.clone(),
            connections: connections.collect(),
            targets: targets.collect(),
            discovered: self.discovered.clone(),
            error_count: self.error_count,
            errors: self.errors.clone(),
            retry_count: run.retry_count,
            data_digest_error_count: sessions.clone().map(Session::data_digest_error_count).sum(),
            verify_error_count: run.verify_error_count,
            first_mismatch: run.first_mismatch,
            tuning: self.tuned.as_ref().map(|tuned| tuned.results(run.started_ns)),
            remarks: self.remarks.iter().chain(sessions.flat_map(|session| session.remarks())).cloned().collect(),
        }
    }

    /// The tasks logged so far, when the settings ask for it; they are not kept here then.
    pub fn take_task_log(&mut self) -> Vec<TaskRecord> {
        std::mem::take(&mut self.run.task_log)
    }

    /// The PDUs logged so far, when the settings ask for it; they are not kept here then.
    pub fn take_pdu_log(&mut self) -> Vec<PduRecord> {
        (0..self.sessions.len()).for_each(|index| self.collect_pdu_log(index));
        std::mem::take(&mut self.pdu_log)
    }

    fn collect_pdu_log(&mut self, index: usize) {
        let driven = &mut self.sessions[index];
        for mut record in driven.session.take_pdu_log() {
            record.connection = driven.numbers.get(record.connection).copied().unwrap_or(record.connection);
            self.pdu_log.push(record);
        }
    }

    /// Ends the run as soon as what is under way has ended.
    pub fn stop(&mut self, now_ns: i64) {
        self.run.is_stopping = true;
        self.proceed(now_ns);
    }

    /// Something went wrong.
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
        let driven = &self.sessions[session];
        match self.settings.targets.get(driven.target).and_then(|target| target.name.as_ref()) {
            Some(name) => format!("{name} at {}", driven.address),
            None => driven.address.to_string(),
        }
    }

    /// Looks at what a session has to tell.
    fn pump(&mut self, now_ns: i64, index: usize) {
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
                    self.discovered.extend(targets);
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
        let driven = &mut self.sessions[index];
        match self.settings.mode {
            Mode::Discover => {
                driven.stage = Stage::Ready;
                driven.session.send_targets(now_ns);
            }
            Mode::Ping => {
                driven.stage = Stage::Ready;
                self.ping(now_ns, index);
            }
            Mode::Run => {
                let (probe, command) = Probe::new(self.settings.targets[driven.target].lun);
                driven.stage = Stage::Probing(Box::new(probe));
                driven.ask(now_ns, command);
            }
        }
    }

    fn ping(&mut self, now_ns: i64, index: usize) {
        let driven = &mut self.sessions[index];
        if driven.pings_left == 0 || self.run.is_stopping {
            driven.session.logout(now_ns);
            return;
        }
        let Some(connection) = driven.usable_connection(driven.ping_connection) else { return };
        driven.pings_left -= 1;
        driven.ping_sent_ns = now_ns;
        driven.ping_connection = connection + 1;
        driven.session.ping(now_ns, connection, self.settings.ping.bytes);
    }

    fn done(&mut self, now_ns: i64, index: usize, completion: &Completion) {
        let driven = &mut self.sessions[index];
        match &mut driven.stage {
            Stage::Probing(probe) => match probe.take(completion, driven.volume.answer()) {
                Next::Ask(command) => driven.ask(now_ns, command),
                Next::Known(unit) => {
                    driven.unit = Some(unit);
                    driven.stage = Stage::Ready;
                    if self.sessions.iter().all(|driven| driven.unit.is_some()) && !self.run.is_stopping {
                        self.begin_run(now_ns);
                    }
                }
                Next::Failed(text) => {
                    driven.stage = Stage::Ready;
                    let lun = self.settings.targets[driven.target].lun;
                    let text = format!("{}, LUN {lun}: {text}", self.target_name(index));
                    self.problem(text);
                    self.run.is_stopping = true;
                }
            },
            Stage::Ready if self.settings.mode == Mode::Ping => {
                if completion.outcome == Outcome::Answered(0) {
                    self.pings.record(now_ns - driven.ping_sent_ns);
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
        let was_connecting = matches!(self.sessions[index].stage, Stage::Connecting);
        if let Err(SessionError::Redirected { address }) = &result
            && self.redirect(index, address)
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

    /// Begins a session anew where the target says it is (RFC 7143 section 11.13.5).
    fn redirect(&mut self, index: usize, address: &str) -> bool {
        let address = address.split(',').next().unwrap_or(address);
        let parsed = address.parse::<SocketAddr>().ok().or_else(|| {
            let host = address.trim_start_matches('[').trim_end_matches(']');
            host.parse().ok().map(|host| SocketAddr::new(host, 3260))
        });
        let Some(address) = parsed.filter(|_| self.sessions[index].hop_count < MOST_HOPS) else { return false };
        self.collect_pdu_log(index);
        let settings = self.session_settings(index, &self.settings.targets[self.sessions[index].target]);
        let driven = &mut self.sessions[index];
        driven.session = Session::new(settings);
        driven.address = address;
        driven.hop_count += 1;
        driven.numbers.clear();
        driven.dealer = Dealer::new(self.settings.workload.dealing, driven.counts.len());
        true
    }

    /// Does what is due now that something ended.
    fn proceed(&mut self, now_ns: i64) {
        let is_idle = self.run.is_idle(now_ns);
        let is_done = match self.settings.mode {
            Mode::Run => is_idle && (self.run.started_ns.is_some() || self.run.is_stopping),
            Mode::Discover | Mode::Ping => self.run.is_stopping,
        };
        if !is_done || self.is_leaving {
            return;
        }
        self.is_leaving = true;
        for index in 0..self.sessions.len() {
            self.sessions[index].session.logout(now_ns);
            self.pump(now_ns, index);
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
