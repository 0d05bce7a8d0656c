//! A complete run in virtual time: the reference initiator, its targets and their links; captures and their truth.
//! Plain TCP transfers run in the same world.
//!
//! The truth consists of columns, so that it stays small and loads directly into arrays.

use std::io::Write;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::application::Application;
use crate::bulk::results::BulkResults;
use crate::bulk::{BulkInitiator, BulkTarget};
use crate::link::LinkLog;
use crate::occurrence::Hits;
use crate::protocol::target::{InvalidPortal, Portal, PortalSettings};
use crate::truth::{Cycles, Tap, by_task};
use crate::workload::client::Client;
use crate::workload::client::results::Results;
use crate::workload::client::settings::{ClientSettings, InvalidClient, TargetSettings};
use crate::world::simulated::{
    self, EndLog, Outcome, Progress, SimulatedSettings, SimulationError, TapPoint, Taps, Unfinished, target_address,
};

/// The settings of a simulation. Without targets in its settings, the initiator uses the first logical unit of each
/// portal.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Simulation {
    /// The initiator and its workload.
    pub client: ClientSettings,
    /// The targets, one for each path of the world.
    pub portals: Vec<PortalSettings>,
    /// Hosts and links.
    pub world: SimulatedSettings,
}

/// The files of the captures; none for no capture.
#[derive(Default)]
pub struct Captures<'a> {
    /// At the initiator's tap.
    pub initiator: Option<Box<dyn Write + 'a>>,
    /// At each target's tap.
    pub targets: Vec<Option<Box<dyn Write + 'a>>>,
}

/// Why a simulation failed.
#[derive(Debug, Error)]
pub enum Failure {
    /// The initiator's settings.
    #[error(transparent)]
    Client(#[from] InvalidClient),
    /// A target's settings.
    #[error(transparent)]
    Portal(#[from] InvalidPortal),
    /// The world.
    #[error(transparent)]
    World(#[from] SimulationError),
}

/// What really happened; `R` is what the initiator measured.
#[derive(Debug, Serialize)]
pub struct Truth<R = Results> {
    /// The settings.
    pub settings: Simulation,
    /// When it began, in nanoseconds since 1970.
    pub started_ns: i64,
    /// When it ended.
    pub ended_ns: i64,
    /// Why it ended before the initiator was finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<Unfinished>,
    /// What the initiator measured.
    pub results: R,
    /// Every SCSI command, in the order of sending.
    pub cycles: Cycles,
    /// The shared link of all paths.
    pub access: Option<LinkLog>,
    /// The path to each target.
    pub paths: Vec<LinkLog>,
    /// The initiator's ends of the connections.
    pub initiator_ends: Vec<EndLog>,
    /// Each target's ends.
    pub target_ends: Vec<Vec<EndLog>>,
    /// Packets in the captures: the initiator's, and each target's.
    pub packet_counts: Vec<u64>,
    /// What the faults of hosts, targets and the initiator hit; links list their own.
    pub fault_hits: Vec<Hits>,
}

/// The result of a world, and the tables of its taps.
struct Played {
    outcome: Outcome,
    packet_counts: Vec<u64>,
    initiator_tap: Tap,
    target_taps: Vec<Tap>,
}

impl Played {
    fn truth<R>(self, settings: Simulation, results: R, cycles: Cycles, mut fault_hits: Vec<Hits>) -> Truth<R> {
        let Outcome { ended_ns, access, paths, initiator_ends, target_ends, host_faults, unfinished } = self.outcome;
        fault_hits.extend(host_faults);
        Truth {
            started_ns: settings.world.start_ns,
            ended_ns,
            unfinished,
            results,
            cycles,
            access,
            paths,
            initiator_ends,
            target_ends,
            packet_counts: self.packet_counts,
            fault_hits,
            settings,
        }
    }
}

/// Runs a simulation to its end.
///
/// # Errors
/// Settings that are not valid, captures that cannot be written, time that does not advance. Failures inside the
/// simulation (a refused login, a lost connection) are in the results; a run that does not end is cut off.
pub fn run(
    mut simulation: Simulation,
    captures: Captures<'_>,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Truth, Failure> {
    let client = &mut simulation.client;
    (client.pdu_log, client.task_log) = (!simulation.world.is_untapped, true);
    simulation.name_targets();
    let mut client = Client::new(simulation.client.clone())?;
    let mut portals =
        simulation.portals.iter().cloned().map(Portal::new).collect::<Result<Vec<Portal>, InvalidPortal>>()?;
    let played = play(&simulation.world, &mut client, &mut portals, captures, watch)?;
    let results = client.results();
    let fault_hits = portals.iter().flat_map(Portal::fault_hits).chain(client.fault_hits()).collect();
    let target_of = |connection: usize| {
        results
            .connections
            .iter()
            .find(|found| found.connection == connection)
            .map(|found| (found.session, found.target))
    };
    let (tasks, asked) = (by_task(&client.take_pdu_log()), client.take_task_log());
    if simulation.world.is_untapped {
        let cycles = Cycles::by_initiator(&asked, target_of);
        return Ok(played.truth(simulation, results, cycles, fault_hits));
    }
    let cycles = Cycles::new(&tasks, &asked, &played.initiator_tap, &played.target_taps, target_of);
    Ok(played.truth(simulation, results, cycles, fault_hits))
}

/// Runs a simulation of plain TCP transfers to its end: between the same hosts, one target for each portal of the
/// settings.
///
/// # Errors
/// As for [`run`].
pub fn run_bulk(
    mut simulation: Simulation,
    captures: Captures<'_>,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Truth<BulkResults>, Failure> {
    simulation.name_targets();
    let mut initiator = BulkInitiator::new(simulation.client.clone())?;
    let mut targets: Vec<BulkTarget> = simulation.portals.iter().map(|_| BulkTarget::default()).collect();
    let played = play(&simulation.world, &mut initiator, &mut targets, captures, watch)?;
    Ok(played.truth(simulation, initiator.results(), Cycles::default(), Vec::new()))
}

impl Simulation {
    /// Sets the initiator's targets if it has none.
    fn name_targets(&mut self) {
        if !self.client.targets.is_empty() {
            return;
        }
        let units = self.portals.iter().enumerate().filter_map(|(number, portal)| {
            let name = Some(portal.targets.first()?.target_name.clone());
            Some(TargetSettings { address: target_address(self.world.is_ipv6, number), name, lun: 0 })
        });
        self.client.targets = units.collect();
    }
}

/// Lets applications run in a world to their end.
fn play<T: Application>(
    world: &SimulatedSettings,
    initiator: &mut dyn Application,
    targets: &mut [T],
    captures: Captures<'_>,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Played, Failure> {
    let tap = |out, name: &str| match out {
        None if world.is_untapped => Ok(TapPoint::blind()),
        out => TapPoint::new(out, name, world.snaplen_bytes).map_err(SimulationError::from),
    };
    let mut outs = captures.targets;
    outs.resize_with(targets.len(), || None);
    let target_taps = outs
        .into_iter()
        .enumerate()
        .map(|(number, out)| tap(out, &format!("target {number}")))
        .collect::<Result<Vec<_>, _>>()?;
    let mut taps = Taps { initiator: tap(captures.initiator, "initiator")?, targets: target_taps };
    let mut targets: Vec<&mut dyn Application> =
        targets.iter_mut().map(|target| target as &mut dyn Application).collect();
    let outcome = simulated::run(world, initiator, &mut targets, &mut taps, watch)?;
    let packet_counts =
        [&taps.initiator].into_iter().chain(&taps.targets).map(|tap| tap.packet_count).collect::<Vec<u64>>();
    let finish = |tap: TapPoint<'_>| tap.finish().map_err(SimulationError::from);
    Ok(Played {
        outcome,
        packet_counts,
        initiator_tap: finish(taps.initiator)?,
        target_taps: taps.targets.into_iter().map(finish).collect::<Result<Vec<Tap>, _>>()?,
    })
}
