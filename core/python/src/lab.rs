//! Traffic for Python: settings and results as JSON, because they have many fields and little data.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iscsitrace_lab::application::Application;
use iscsitrace_lab::bulk::{BulkInitiator, BulkTarget};
use iscsitrace_lab::link::LinkSettings;
use iscsitrace_lab::occurrence::Hits;
use iscsitrace_lab::protocol::target::{ConnectionRecord, Portal, PortalCounters, PortalSettings};
use iscsitrace_lab::simulation::{self, Captures, Failure, Simulation};
use iscsitrace_lab::workload::client::Client;
use iscsitrace_lab::workload::client::results::{Progress, TaskRecord};
use iscsitrace_lab::workload::client::settings::{ClientSettings, TargetSettings};
use iscsitrace_lab::workload::url::Url;
use iscsitrace_lab::world::cpu::CpuTime;
use iscsitrace_lab::world::receiving::Receive;
use iscsitrace_lab::world::simulated::{self, SimulationError};
use iscsitrace_lab::world::sockets::{Descriptors, SocketSettings, Sockets};
use iscsitrace_lab::world::tap::{TapLink, TapSettings};
use iscsitrace_lab::world::threads::Threads;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

create_exception!(_core, LabError, PyException, "Traffic cannot be made; str() is one line.");

fn error(problem: impl ToString) -> PyErr {
    LabError::new_err(problem.to_string())
}

fn settings<'a, T: Deserialize<'a>>(json: &'a str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|problem| error(format!("settings: {problem}")))
}

fn document(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(error)
}

/// Asks Python, which may have received a signal, whether to stop.
struct Watcher {
    ask: Py<PyAny>,
    failure: Option<PyErr>,
}

impl Watcher {
    fn wants_stop(&mut self, progress: &impl Serialize, descriptors: &Descriptors) -> bool {
        let answer = Python::attach(|py| {
            py.check_signals()?;
            self.ask.call1(py, (document(progress)?, descriptors.clone()))?.is_truthy(py)
        });
        answer.unwrap_or_else(|failure| {
            self.failure = Some(failure);
            true
        })
    }

    fn finish<T>(self, value: T) -> PyResult<T> {
        self.failure.map_or(Ok(value), Err)
    }
}

/// A logical unit as the user names it, and where its host is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UrlTarget {
    url: String,
    address: SocketAddr,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct InitiatorRun {
    client: ClientSettings,
    /// Further targets of the client; keys and credentials of a URL hold for all.
    urls: Vec<UrlTarget>,
    sockets: SocketSettings,
    driver: Driver,
    receive: Receive,
    /// How long the run may continue after it was told to stop.
    grace_ns: i64,
}

/// The threads that drive the sockets of an initiator.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Driver {
    /// One thread that waits for all sockets.
    #[default]
    Events,
    /// Two threads per connection, which block.
    Threads,
}

impl Default for InitiatorRun {
    fn default() -> Self {
        Self {
            client: ClientSettings::default(),
            urls: Vec::new(),
            sockets: SocketSettings::default(),
            driver: Driver::default(),
            receive: Receive::default(),
            grace_ns: 2_000_000_000,
        }
    }
}

#[derive(Serialize)]
struct InitiatorOutcome<R> {
    results: Metered<R>,
    tasks: Vec<TaskRecord>,
    /// What the faults at the initiator hit.
    fault_hits: Vec<Hits>,
}

/// The result of a run, and the processor time of its threads.
#[derive(Serialize)]
struct Metered<R> {
    #[serde(flatten)]
    results: R,
    cpu: CpuTime,
}

/// A run that ends by itself, or when told to.
trait Run: Application + Send {
    fn progress(&self, now_ns: i64) -> Progress;
    fn stop(&mut self, now_ns: i64);
}

impl Run for Client {
    fn progress(&self, now_ns: i64) -> Progress {
        Self::progress(self, now_ns)
    }

    fn stop(&mut self, now_ns: i64) {
        Self::stop(self, now_ns);
    }
}

impl Run for BulkInitiator {
    fn progress(&self, now_ns: i64) -> Progress {
        Self::progress(self, now_ns)
    }

    fn stop(&mut self, now_ns: i64) {
        Self::stop(self, now_ns);
    }
}

/// How an initiator is run.
struct How {
    sockets: SocketSettings,
    driver: Driver,
    receive: Receive,
    grace_ns: i64,
    period: Duration,
}

/// Runs an initiator to its end, at most `grace_ns` after it was told to stop.
fn run_to_end<R: Run>(py: Python<'_>, initiator: &mut R, how: How, watcher: &mut Watcher) -> PyResult<CpuTime> {
    let How { sockets, driver, receive, grace_ns, period } = how;
    let mut stopped_ns = None;
    py.detach(|| {
        let watch = &mut |initiator: &mut R, now_ns, descriptors: &Descriptors| {
            if watcher.wants_stop(&initiator.progress(now_ns), descriptors) && stopped_ns.is_none() {
                initiator.stop(now_ns);
                stopped_ns = Some(now_ns);
            }
            let is_late = stopped_ns.is_some_and(|stopped_ns| now_ns - stopped_ns > grace_ns);
            if is_late || watcher.failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match driver {
            Driver::Events => Sockets::new(sockets)?.receiving(receive).run(initiator, period, watch),
            Driver::Threads => Threads::new(sockets, receive).run(initiator, period, watch),
        }
    })
    .map_err(error)
}

/// Runs the reference initiator over sockets, or bulk transfers, depending on the operation.
#[pyfunction]
pub fn run_initiator(py: Python<'_>, settings_json: &str, period_ns: u64, watch: Py<PyAny>) -> PyResult<String> {
    let mut run: InitiatorRun = settings(settings_json)?;
    for UrlTarget { url, address } in run.urls {
        let url = Url::parse(&url).map_err(error)?;
        url.apply(&mut run.client.login);
        run.client.targets.push(TargetSettings { address, name: url.target_name, lun: url.lun.unwrap_or(0) });
    }
    let mut watcher = Watcher { ask: watch, failure: None };
    let how = How {
        sockets: run.sockets,
        driver: run.driver,
        receive: run.receive,
        grace_ns: run.grace_ns,
        period: Duration::from_nanos(period_ns),
    };
    if run.client.workload.operation.is_socket() {
        let mut bulk = BulkInitiator::new(run.client).map_err(error)?;
        let cpu = run_to_end(py, &mut bulk, how, &mut watcher)?;
        let results = Metered { results: bulk.results(), cpu };
        return watcher.finish(document(&InitiatorOutcome { results, tasks: Vec::new(), fault_hits: Vec::new() })?);
    }
    let mut client = Client::new(run.client).map_err(error)?;
    let cpu = run_to_end(py, &mut client, how, &mut watcher)?;
    let tasks = client.take_task_log();
    let results = Metered { results: client.results(), cpu };
    watcher.finish(document(&InitiatorOutcome { results, tasks, fault_hits: client.fault_hits() })?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetRun {
    #[serde(default)]
    portal: PortalSettings,
    #[serde(default)]
    sockets: SocketSettings,
    listen: Vec<SocketAddr>,
    /// Bulk transfers instead of the portal.
    #[serde(default)]
    is_bulk: bool,
}

#[derive(Serialize)]
struct TargetProgress {
    session_count: usize,
    connection_count: usize,
}

#[derive(Default, Serialize)]
struct TargetOutcome<'a> {
    counters: PortalCounters,
    connections: &'a [ConnectionRecord],
    tasks: &'a [iscsitrace_lab::protocol::target::TaskRecord],
    cpu: CpuTime,
    /// What its faults hit.
    fault_hits: Vec<Hits>,
}

/// Runs a target portal over sockets until `watch` returns true; `ready` gets its listening addresses.
#[pyfunction]
pub fn run_target(
    py: Python<'_>,
    settings_json: &str,
    period_ns: u64,
    ready: Py<PyAny>,
    watch: Py<PyAny>,
) -> PyResult<String> {
    let mut run: TargetRun = settings(settings_json)?;
    let mut sockets = Sockets::new(run.sockets).map_err(error)?;
    let listening: Vec<SocketAddr> = run
        .listen
        .iter()
        .map(|&address| {
            sockets.listen(address).map_err(|problem| error(format!("cannot listen at {address}: {problem}")))
        })
        .collect::<PyResult<_>>()?;
    // all of the portal group's, unless a wildcard leaves them open
    if run.portal.addresses.is_empty() && !listening.iter().any(|address| address.ip().is_unspecified()) {
        run.portal.addresses.clone_from(&listening);
    }
    let listening: Vec<String> = listening.iter().map(ToString::to_string).collect();
    let mut watcher = Watcher { ask: watch, failure: None };
    if run.is_bulk {
        ready.call1(py, (listening,))?;
        let cpu = py
            .detach(|| {
                let mut target = BulkTarget::default();
                sockets.run(
                    &mut target,
                    Duration::from_nanos(period_ns),
                    &mut |target: &mut BulkTarget, _, descriptors| {
                        let connection_count = target.connection_count();
                        let progress = TargetProgress { session_count: connection_count, connection_count };
                        if watcher.wants_stop(&progress, descriptors) {
                            ControlFlow::Break(())
                        } else {
                            ControlFlow::Continue(())
                        }
                    },
                )
            })
            .map_err(error)?;
        return watcher.finish(document(&TargetOutcome { cpu, ..TargetOutcome::default() })?);
    }
    let mut portal = Portal::new(run.portal).map_err(error)?;
    ready.call1(py, (listening,))?;
    let cpu = py
        .detach(|| {
            sockets.run(&mut portal, Duration::from_nanos(period_ns), &mut |portal: &mut Portal, _, descriptors| {
                let progress = TargetProgress {
                    session_count: portal.session_count(),
                    connection_count: portal.connection_numbers().count(),
                };
                if watcher.wants_stop(&progress, descriptors) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
        })
        .map_err(error)?;
    let log = portal.log();
    let (connections, tasks, fault_hits) = (&log.connections[..], &log.tasks[..], portal.fault_hits());
    let outcome = TargetOutcome { counters: log.counters, connections, tasks, cpu, fault_hits };
    watcher.finish(document(&outcome)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkRun {
    initiator: TapSettings,
    target: TapSettings,
    #[serde(default)]
    link: LinkSettings,
}

/// Moves frames between two TAP devices until `watch`, called every `period_ns`, returns true. `begun` returns whether the
/// workload has begun, from which the times of faults count.
#[pyfunction]
pub fn run_link(
    py: Python<'_>,
    settings_json: &str,
    period_ns: u64,
    ready: Py<PyAny>,
    watch: Py<PyAny>,
    begun: Py<PyAny>,
) -> PyResult<String> {
    let run: LinkRun = settings(settings_json)?;
    run.link.check().map_err(error)?;
    let link = TapLink::open(&run.initiator, &run.target).map_err(error)?;
    ready.call0(py)?;
    let (stop, is_over, has_begun) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let mut watcher = Watcher { ask: watch, failure: None };
    let mut waiter = Watcher { ask: begun, failure: None };
    let log = py.detach(|| {
        std::thread::scope(|scope| {
            // the link has this thread, with its caller's priority
            let watching = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && !watcher.wants_stop(&(), &Vec::new()) {
                    if !has_begun.load(Ordering::Relaxed) && waiter.wants_stop(&(), &Vec::new()) {
                        has_begun.store(true, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_nanos(period_ns));
                }
                stop.store(true, Ordering::Relaxed);
            });
            let log = link.run(&run.link, &stop, &has_begun);
            is_over.store(true, Ordering::Relaxed);
            let _ = watching.join();
            log
        })
    });
    watcher.finish(document(&log.map_err(error)?)?)
}

/// Runs a simulation of iSCSI or of bulk transfers; captures go to the named files, the initiator's first.
#[pyfunction]
pub fn simulate(
    py: Python<'_>,
    settings_json: &str,
    captures: Vec<Option<PathBuf>>,
    watch: Py<PyAny>,
) -> PyResult<String> {
    let simulation: Simulation = settings(settings_json)?;
    let mut outs = captures
        .into_iter()
        .map(|path| {
            let Some(path) = path else { return Ok(None) };
            let file = File::create_new(&path)
                .map_err(|problem| error(format!("cannot write {}: {problem}", path.display())))?;
            Ok(Some(Box::new(BufWriter::with_capacity(1 << 20, file)) as Box<dyn Write + Send>))
        })
        .collect::<PyResult<Vec<_>>>()?
        .into_iter();
    let mut watcher = Watcher { ask: watch, failure: None };
    let truth = py.detach(|| {
        let widen = |out: Option<Box<dyn Write + Send>>| out.map(|out| out as Box<dyn Write>);
        let captures = Captures { initiator: widen(outs.next().flatten()), targets: outs.map(widen).collect() };
        let watch = &mut |progress: simulated::Progress| {
            let seen = (progress.elapsed_ns, progress.packet_count);
            if watcher.wants_stop(&seen, &Vec::new()) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        if simulation.client.workload.operation.is_socket() {
            simulation::run_bulk(simulation, captures, watch).map(|truth| document(&truth))
        } else {
            simulation::run(simulation, captures, watch).map(|truth| document(&truth))
        }
    });
    match truth {
        Ok(truth) => watcher.finish(truth?),
        Err(Failure::World(SimulationError::Interrupted)) => {
            Err(watcher.failure.unwrap_or_else(|| error("interrupted")))
        }
        Err(problem) => Err(error(problem)),
    }
}

#[derive(Serialize)]
struct UrlParts {
    host: String,
    port: u16,
    target_name: Option<String>,
    lun: Option<u16>,
}

/// Parses a URL; keys and secrets stay in it.
#[pyfunction]
pub fn parse_url(url: &str) -> PyResult<String> {
    let Url { host, port, target_name, lun, .. } = Url::parse(url).map_err(error)?;
    document(&UrlParts { host, port, target_name, lun })
}

/// Adds all of this to the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("LabError", module.py().get_type::<LabError>())?;
    module.add_function(wrap_pyfunction!(run_initiator, module)?)?;
    module.add_function(wrap_pyfunction!(run_target, module)?)?;
    module.add_function(wrap_pyfunction!(run_link, module)?)?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(parse_url, module)?)?;
    Ok(())
}
