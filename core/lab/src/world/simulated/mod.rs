//! The simulated world: an initiator's host, the hosts of its targets, and the links between them, in virtual time.
//!
//! ```text
//!   initiator | tap | access link |---| path 0 | tap | target 0
//!                                 |---| path 1 | tap | target 1 ...
//! ```
//!
//! All times are computed, so the same settings produce the same packets, to the nanosecond. Hosts take no time for
//! processing unless their settings say so; other delays are settings of the applications (the target's service delay,
//! the initiator's think time).

mod end;
mod host;
mod host_fault;
mod tap;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::application::Application;
use crate::link::{Link, LinkLog, LinkSettings, Packet, SettingsError};
use crate::occurrence::Hits;
use crate::tcp::{self, Segment};

pub use end::{EndLog, TcpLog, Windows};
use host::Host;
pub use host::{FIRST_PORT, TARGET_PORT};
use host_fault::HostFaults;
pub use host_fault::{HostFaultKind, HostFaultSettings};
pub use tap::TapPoint;

/// Events between two calls of the caller's progress function.
const EVENTS_BETWEEN_WATCHES: u64 = 1 << 14;
/// Most events at one instant; more mean an endless loop.
const EVENTS_AT_ONCE: u64 = 50_000_000;

/// A simulated world.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulatedSettings {
    /// TCP of the initiator's host.
    pub initiator_tcp: tcp::Settings,
    /// TCP of every target's host.
    pub target_tcp: tcp::Settings,
    /// Delay from the arrival of bytes at the initiator's host until its application has read them: wake-up, system
    /// calls and copying on a real host. TCP itself answers immediately.
    pub initiator_host_delay_ns: u64,
    /// The same for every target's host.
    pub target_host_delay_ns: u64,
    /// The shared link, next to the initiator.
    pub access: Option<LinkSettings>,
    /// The path to each target.
    pub paths: Vec<LinkSettings>,
    /// IPv6 instead of IPv4.
    pub is_ipv6: bool,
    /// When it begins, in nanoseconds since 1970.
    pub start_ns: i64,
    /// Longest virtual time.
    pub limit_ns: i64,
    /// Snaplen of the captures; 0 for no limit.
    pub snaplen_bytes: u32,
    /// Whether taps and busy times are not recorded: for long runs without captures, in which only the initiator
    /// records its commands.
    pub is_untapped: bool,
    /// Which changes of their windows the ends log.
    pub tcp_log: TcpLog,
    /// Faults of hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<HostFaultSettings>,
    /// Seed of initial sequence numbers and other random values.
    pub seed: u64,
}

impl Default for SimulatedSettings {
    fn default() -> Self {
        Self {
            initiator_tcp: tcp::Settings::default(),
            target_tcp: tcp::Settings::default(),
            initiator_host_delay_ns: 0,
            target_host_delay_ns: 0,
            access: None,
            paths: vec![LinkSettings::default()],
            is_ipv6: false,
            start_ns: 1_700_000_000_000_000_000,
            limit_ns: 3_600_000_000_000,
            snaplen_bytes: 0,
            is_untapped: false,
            tcp_log: TcpLog::default(),
            faults: Vec::new(),
            seed: 1,
        }
    }
}

/// Why a simulation failed.
#[derive(Debug, Error)]
pub enum SimulationError {
    /// Link settings are not valid.
    #[error(transparent)]
    Link(#[from] SettingsError),
    /// TCP settings are not valid.
    #[error("TCP setting {0}")]
    Tcp(#[from] tcp::SettingsError),
    /// The number of paths is not that of targets.
    #[error("{paths} paths lead to {targets} targets")]
    Paths {
        /// Paths in the settings.
        paths: usize,
        /// Targets.
        targets: usize,
    },
    /// A capture cannot be written.
    #[error("cannot write a capture: {0}")]
    Capture(#[from] io::Error),
    /// Time does not advance.
    #[error("the simulation does not advance beyond {0} ns")]
    Circling(i64),
    /// The caller interrupted it.
    #[error("interrupted")]
    Interrupted,
}

/// The result of a simulation.
#[derive(Debug)]
pub struct Outcome {
    /// When it ended.
    pub ended_ns: i64,
    /// The shared link.
    pub access: Option<LinkLog>,
    /// The path to each target.
    pub paths: Vec<LinkLog>,
    /// The initiator's ends of its connections.
    pub initiator_ends: Vec<EndLog>,
    /// Each target's ends.
    pub target_ends: Vec<Vec<EndLog>>,
    /// What the faults of hosts hit.
    pub host_faults: Vec<Hits>,
    /// Why it ended before the initiator was finished.
    pub unfinished: Option<Unfinished>,
}

/// Why a simulation ended before its initiator was finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unfinished {
    /// No event is left: each side waits for the other, and nobody for a time-out.
    NothingLeft,
    /// The longest virtual time is over.
    TimeLimit,
}

/// Progress of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Virtual time since its start.
    pub elapsed_ns: i64,
    /// Packets that passed the initiator's tap.
    pub packet_count: u64,
}

/// The captures.
pub struct Taps<'a> {
    /// At the initiator's tap.
    pub initiator: TapPoint<'a>,
    /// At each target's tap.
    pub targets: Vec<TapPoint<'a>>,
}

/// The address of the initiator, of the ranges kept for tests (RFC 2544) and for examples (RFC 3849).
#[must_use]
pub fn initiator_address(is_ipv6: bool) -> IpAddr {
    address(is_ipv6, 1)
}

/// The address at which target number `target` listens.
#[must_use]
pub fn target_address(is_ipv6: bool, target: usize) -> SocketAddr {
    SocketAddr::new(address(is_ipv6, 10 + target as u16), TARGET_PORT)
}

fn address(is_ipv6: bool, host: u16) -> IpAddr {
    if is_ipv6 {
        return Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into();
    }
    let [high, low] = host.to_be_bytes();
    Ipv4Addr::new(198, 18, high, low).into()
}

fn host_delay_ns(delay_ns: u64) -> i64 {
    i64::try_from(delay_ns).unwrap_or(i64::MAX)
}

/// A packet in transit.
#[derive(Debug)]
struct Passing {
    segment: Segment,
    /// The target's number.
    target: usize,
}

impl Packet for Passing {
    fn frame_bytes(&self) -> usize {
        self.segment.frame_length()
    }
}

/// Runs until the initiator is finished and all connections are closed; or until the longest virtual time, or until
/// nothing is left that could happen.
///
/// # Errors
/// Settings that are not valid, captures that cannot be written, time that does not advance.
pub fn run(
    settings: &SimulatedSettings,
    initiator: &mut dyn Application,
    targets: &mut [&mut dyn Application],
    taps: &mut Taps<'_>,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Outcome, SimulationError> {
    settings.initiator_tcp.check()?;
    settings.target_tcp.check()?;
    if settings.paths.len() != targets.len() || taps.targets.len() != targets.len() {
        return Err(SimulationError::Paths { paths: settings.paths.len(), targets: targets.len() });
    }
    let target_count = targets.len();
    let mut world = World {
        now_ns: settings.start_ns,
        access: settings.access.as_ref().map(Link::new).transpose()?,
        paths: settings.paths.iter().map(Link::new).collect::<Result<_, _>>()?,
        initiator: Host::new(
            initiator,
            initiator_address(settings.is_ipv6),
            settings.initiator_tcp.clone(),
            host_delay_ns(settings.initiator_host_delay_ns),
            settings.seed,
            settings.tcp_log,
        ),
        targets: (0u64..)
            .zip(targets.iter_mut())
            .map(|(number, target)| {
                let address = target_address(settings.is_ipv6, number as usize).ip();
                let seed = settings.seed ^ (number + 1) << 32;
                let delay_ns = host_delay_ns(settings.target_host_delay_ns);
                Host::new(&mut **target, address, settings.target_tcp.clone(), delay_ns, seed, settings.tcp_log)
            })
            .collect(),
        due_ns: vec![i64::MAX; target_count],
        faults: HostFaults::new(&settings.faults),
        has_begun: false,
        numbers: (0..target_count).map(|target| (target_address(settings.is_ipv6, target).ip(), target)).collect(),
        taps,
    };
    (0..target_count).for_each(|target| world.note_due(target));
    let unfinished = world.run(settings, watch)?;
    let log = |link: Link<Passing>| {
        let mut log = link.into_log();
        if settings.is_untapped {
            log.forget_busy_times();
        }
        log
    };
    Ok(Outcome {
        ended_ns: world.now_ns,
        access: world.access.map(log),
        paths: world.paths.into_iter().map(log).collect(),
        initiator_ends: world.initiator.finish(),
        target_ends: world.targets.into_iter().map(Host::finish).collect(),
        host_faults: world.faults.hits().collect(),
        unfinished,
    })
}

struct World<'a, 'b> {
    now_ns: i64,
    access: Option<Link<Passing>>,
    paths: Vec<Link<Passing>>,
    initiator: Host<'a>,
    targets: Vec<Host<'a>>,
    /// Time of the next event on the path to each target, or at the target: few of many have one.
    due_ns: Vec<i64>,
    faults: HostFaults,
    /// Whether the workload has begun.
    has_begun: bool,
    /// The targets by their addresses.
    numbers: HashMap<IpAddr, usize>,
    taps: &'a mut Taps<'b>,
}

impl World<'_, '_> {
    fn run(
        &mut self,
        settings: &SimulatedSettings,
        watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Option<Unfinished>, SimulationError> {
        let (mut events, mut events_now) = (0u64, 0u64);
        self.run_initiator()?;
        while !self.initiator.is_finished() {
            let Some(next_ns) = self.next_ns() else { return Ok(Some(Unfinished::NothingLeft)) };
            if next_ns.saturating_sub(settings.start_ns) > settings.limit_ns {
                self.now_ns = settings.start_ns.saturating_add(settings.limit_ns);
                return Ok(Some(Unfinished::TimeLimit));
            }
            events_now = if next_ns > self.now_ns { 0 } else { events_now + 1 };
            self.now_ns = self.now_ns.max(next_ns);
            let elapsed_ns = self.now_ns - settings.start_ns;
            if events_now > EVENTS_AT_ONCE {
                return Err(SimulationError::Circling(self.now_ns));
            }
            events += 1;
            if events.is_multiple_of(EVENTS_BETWEEN_WATCHES)
                && watch(Progress { elapsed_ns, packet_count: self.taps.initiator.packet_count }).is_break()
            {
                return Err(SimulationError::Interrupted);
            }
            self.step()?;
        }
        Ok(None)
    }

    fn next_ns(&self) -> Option<i64> {
        let access_ns = self.access.as_ref().and_then(Link::next_ready);
        let others_ns = self.due_ns.iter().copied().min().filter(|&due_ns| due_ns < i64::MAX);
        [access_ns, others_ns, self.initiator.poll_timeout(), self.faults.next_ns()].into_iter().flatten().min()
    }

    /// Updates the next event of a target and its path.
    fn note_due(&mut self, target: usize) {
        let (link_ns, host_ns) = (self.paths[target].next_ready(), self.targets[target].poll_timeout());
        self.due_ns[target] = link_ns.into_iter().chain(host_ns).min().unwrap_or(i64::MAX);
    }

    fn enqueue_to_target(&mut self, passing: Passing) {
        let target = passing.target;
        self.paths[target].to_target.enqueue(self.now_ns, passing);
        self.note_due(target);
    }

    /// Handles all events that are due: packets move on, timers go off.
    fn step(&mut self) -> io::Result<()> {
        let now_ns = self.now_ns;
        self.reset_hosts()?;
        while let Some((_, passing)) = self.access.as_mut().and_then(|access| access.to_target.dequeue_ready(now_ns)) {
            self.enqueue_to_target(passing);
        }
        for target in 0..self.paths.len() {
            if self.due_ns[target] > now_ns {
                continue;
            }
            while let Some((_, passing)) = self.paths[target].to_target.dequeue_ready(now_ns) {
                if self.faults.drops(now_ns, Some(target)) {
                    continue;
                }
                self.pass_target(target, true, &passing.segment)?;
                self.targets[target].receive(now_ns, passing.segment);
                self.run_target(target)?;
            }
            while let Some((_, passing)) = self.paths[target].to_initiator.dequeue_ready(now_ns) {
                match &mut self.access {
                    Some(access) => access.to_initiator.enqueue(now_ns, passing),
                    None => self.reach_initiator(passing)?,
                }
            }
            if self.targets[target].poll_timeout().is_some_and(|timeout_ns| timeout_ns <= now_ns) {
                self.targets[target].handle_timeout(now_ns);
                self.run_target(target)?;
            }
            self.note_due(target);
        }
        while let Some((_, passing)) = self.access.as_mut().and_then(|access| access.to_initiator.dequeue_ready(now_ns))
        {
            self.reach_initiator(passing)?;
        }
        if self.initiator.poll_timeout().is_some_and(|timeout_ns| timeout_ns <= now_ns) {
            self.initiator.handle_timeout(now_ns);
            self.run_initiator()?;
        }
        Ok(())
    }

    /// Resets the connections of the hosts whose fault it is.
    fn reset_hosts(&mut self) -> io::Result<()> {
        while let Some(host) = self.faults.poll_reset(self.now_ns) {
            match host {
                Some(target) if target < self.targets.len() => {
                    self.targets[target].reset(self.now_ns);
                    self.run_target(target)?;
                    self.note_due(target);
                }
                Some(_) => {}
                None => {
                    self.initiator.reset(self.now_ns);
                    self.run_initiator()?;
                }
            }
        }
        Ok(())
    }

    fn reach_initiator(&mut self, passing: Passing) -> io::Result<()> {
        if self.faults.drops(self.now_ns, None) {
            return Ok(());
        }
        self.pass_initiator(passing.target, false, &passing.segment)?;
        self.initiator.receive(self.now_ns, passing.segment);
        self.run_initiator()
    }

    fn run_initiator(&mut self) -> io::Result<()> {
        self.initiator.run(self.now_ns);
        if !self.has_begun && self.initiator.has_begun() {
            self.has_begun = true;
            self.faults.workload_begins(self.now_ns);
            self.access.iter_mut().chain(&mut self.paths).for_each(|link| link.workload_begins(self.now_ns));
        }
        for segment in std::mem::take(&mut self.initiator.out) {
            if self.faults.drops(self.now_ns, None) {
                continue;
            }
            // a packet to an unknown host leaves, and is dropped
            let Some(&target) = self.numbers.get(&segment.destination.ip()) else {
                self.pass_initiator(0, true, &segment)?;
                continue;
            };
            self.pass_initiator(target, true, &segment)?;
            let passing = Passing { segment, target };
            match &mut self.access {
                Some(access) => access.to_target.enqueue(self.now_ns, passing),
                None => self.enqueue_to_target(passing),
            }
        }
        Ok(())
    }

    fn run_target(&mut self, target: usize) -> io::Result<()> {
        self.targets[target].run(self.now_ns);
        for segment in std::mem::take(&mut self.targets[target].out) {
            if self.faults.drops(self.now_ns, Some(target)) {
                continue;
            }
            self.pass_target(target, false, &segment)?;
            self.paths[target].to_initiator.enqueue(self.now_ns, Passing { segment, target });
        }
        Ok(())
    }

    fn pass_initiator(&mut self, target: usize, to_target: bool, segment: &Segment) -> io::Result<()> {
        self.taps.initiator.pass(self.now_ns, connection(to_target, segment), target, to_target, segment)
    }

    fn pass_target(&mut self, target: usize, to_target: bool, segment: &Segment) -> io::Result<()> {
        self.taps.targets[target].pass(self.now_ns, connection(to_target, segment), target, to_target, segment)
    }
}

/// The initiator's number of the connection that a segment belongs to.
fn connection(to_target: bool, segment: &Segment) -> usize {
    let port = if to_target { segment.source.port() } else { segment.destination.port() };
    usize::from(port.saturating_sub(FIRST_PORT))
}
