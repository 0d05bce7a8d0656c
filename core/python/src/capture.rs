//! Capturing for Python: settings and outcomes as JSON; the caller is a Python object.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use iscsitrace_capture::confinement::Confinement;
use iscsitrace_capture::device::{self, Device};
use iscsitrace_capture::error::RecordingError;
use iscsitrace_capture::recorder::{self, ReplayError};
use iscsitrace_capture::report::{Caller, Outcome, Progress};
use iscsitrace_capture::settings::{CaptureSettings, InterfaceSettings};
use iscsitrace_capture::snaplen::{Adviser, PACKETS_MAX};
use iscsitrace_capture::trigger::Condition;
use iscsitrace_trace::counters::Counters;
use iscsitrace_trace::reader::{CaptureError as Unreadable, Filter, Packet, Sequence};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::errors::{CaptureError, LiveCaptureError};
use crate::source;

/// Time between two checks for Ctrl-C.
const PERIOD: Duration = Duration::from_millis(50);

fn refusal(error: &RecordingError) -> PyErr {
    LiveCaptureError::new_err((error.kind(), error.to_string()))
}

fn settings<'a, T: Deserialize<'a>>(json: &'a str) -> PyResult<T> {
    serde_json::from_str(json)
        .map_err(|problem| LiveCaptureError::new_err(("settings", format!("settings: {problem}"))))
}

fn document(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|problem| LiveCaptureError::new_err(("settings", problem.to_string())))
}

/// A Python object with the methods `watch` and `next_path`.
struct PythonCaller {
    object: Py<PyAny>,
    failure: Option<PyErr>,
}

impl PythonCaller {
    fn finish(self, outcome: Result<Outcome, RecordingError>) -> PyResult<String> {
        match (self.failure, outcome) {
            (Some(failure), _) => Err(failure),
            (None, Ok(outcome)) => document(&outcome),
            (None, Err(error)) => Err(refusal(&error)),
        }
    }
}

impl Caller for PythonCaller {
    fn watch(&mut self, progress: &Progress) -> bool {
        let answer = Python::attach(|py| {
            py.check_signals()?;
            self.object.call_method1(py, "watch", (document(progress)?,))?.is_truthy(py)
        });
        answer.unwrap_or_else(|failure| {
            self.failure = Some(failure);
            true
        })
    }

    fn next_path(&mut self, number: u64) -> Option<PathBuf> {
        let answer = Python::attach(|py| self.object.call_method1(py, "next_path", (number,))?.extract(py));
        answer.map_err(|failure| self.failure = Some(failure)).ok()
    }
}

/// Captures until `caller.watch` returns true, or a limit is reached.
#[pyfunction]
pub fn run_capture(py: Python<'_>, settings_json: &str, caller: Py<PyAny>) -> PyResult<String> {
    let settings: CaptureSettings = settings(settings_json)?;
    let mut caller = PythonCaller { object: caller, failure: None };
    let outcome = py.detach(|| recorder::run(&settings, &mut caller));
    caller.finish(outcome)
}

/// The same with packets of captures instead of interfaces.
#[pyfunction]
pub fn replay_capture(
    py: Python<'_>,
    sources: Vec<Bound<'_, PyAny>>,
    settings_json: &str,
    caller: Py<PyAny>,
) -> PyResult<String> {
    let settings: CaptureSettings = settings(settings_json)?;
    let failure = source::Failure::default();
    let inputs = sources.iter().map(|source| source::input(source, &failure)).collect::<PyResult<Vec<_>>>()?;
    let mut caller = PythonCaller { object: caller, failure: None };
    let outcome = py.detach(|| recorder::replay(inputs, &settings, &mut caller));
    if let Some(error) = failure.take() {
        return Err(error);
    }
    match outcome {
        Ok(outcome) => caller.finish(Ok(outcome)),
        Err(ReplayError::Live(error)) => caller.finish(Err(error)),
        Err(ReplayError::Input(error)) => Err(CaptureError::new_err(error.to_string())),
    }
}

/// Measures on an interface, for that long, which snaplen keeps every header.
#[pyfunction]
pub fn advise_snaplen(py: Python<'_>, interface_json: &str, duration_ns: u64, watch: Py<PyAny>) -> PyResult<String> {
    let interface: InterfaceSettings = settings(interface_json)?;
    let advice = py.detach(|| -> PyResult<_> {
        let mut device = Device::open(&interface).map_err(|error| refusal(&error))?;
        let link_type = device.link_type;
        let mut adviser = Adviser::default();
        let (begun, mut looked, mut frame) = (Instant::now(), Instant::now(), 0);
        while begun.elapsed() < Duration::from_nanos(duration_ns) && frame < PACKETS_MAX {
            let count = device.dispatch(1024, |arrived| {
                frame += 1;
                let (time_ns, original_length, data) = (arrived.time_ns, arrived.original_length, arrived.data);
                adviser.take(&Packet { frame, time_ns, link_type, interface: 0, original_length, data });
            });
            let message = |message| refusal(&RecordingError::Interface { interface: interface.name.clone(), message });
            let count = count.map_err(message)?;
            if looked.elapsed() >= PERIOD {
                looked = Instant::now();
                let is_stopped = Python::attach(|py| {
                    py.check_signals()?;
                    watch.call1(py, (frame,))?.is_truthy(py)
                })?;
                if is_stopped {
                    break;
                }
            }
            if count == 0 {
                device::wait(std::iter::once(&device), PERIOD);
            }
        }
        Ok((adviser.finish(), device.count()))
    });
    let (advice, counts) = advice?;
    document(&(advice, counts.dropped + counts.dropped_by_interface))
}

/// Measures on captures which snaplen keeps every header.
#[pyfunction]
pub fn advise_snaplen_of(
    py: Python<'_>,
    sources: Vec<Bound<'_, PyAny>>,
    capture_filter: Option<String>,
    watch: Py<PyAny>,
) -> PyResult<String> {
    let failure = source::Failure::default();
    let inputs = sources.iter().map(|source| source::input(source, &failure)).collect::<PyResult<Vec<_>>>()?;
    let unreadable = |error: Unreadable| CaptureError::new_err(error.to_string());
    let advice = py.detach(|| -> PyResult<_> {
        let mut filter = capture_filter.as_deref().map(Filter::new).transpose().map_err(unreadable)?;
        let mut counters = Counters::default();
        let mut sequence = Sequence::open(inputs, &mut counters).map_err(unreadable)?;
        let mut adviser = Adviser::default();
        let (mut looked, mut frame) = (Instant::now(), 0);
        while frame < PACKETS_MAX {
            let Some(packet) = sequence.next_packet(&mut counters).map_err(unreadable)? else { break };
            if filter.as_mut().is_some_and(|filter| !filter.matches(packet.link_type, packet.data)) {
                continue;
            }
            frame += 1;
            adviser.take(&Packet { frame, ..packet });
            if looked.elapsed() >= PERIOD {
                looked = Instant::now();
                Python::attach(|py| {
                    py.check_signals()?;
                    watch.call1(py, (frame,)).map(|_| ())
                })?;
            }
        }
        Ok(adviser.finish())
    });
    if let Some(error) = failure.take() {
        return Err(error);
    }
    document(&(advice?, 0))
}

/// libpcap's error message for a capture filter; none if it is valid.
#[pyfunction]
pub fn check_filter(expression: &str) -> Option<String> {
    match Filter::new(expression) {
        Ok(_) => None,
        Err(Unreadable::Filter { message, .. }) => Some(message),
        Err(error) => Some(error.to_string()),
    }
}

/// The position of an error in a trigger's condition, in characters from 0, and the message; none if it is valid.
#[pyfunction]
pub fn check_trigger(condition: &str) -> Option<(usize, String)> {
    Condition::parse(condition).err()
}

/// Gives up what a reader does not need, for this thread and all that it starts later; returns what the kernel refused.
#[pyfunction]
pub fn confine(written: Vec<PathBuf>, ports: Vec<u16>, children: Vec<i32>) -> Vec<String> {
    Confinement { has_interfaces: false, has_files_of_others: true, written, ports, children }.begin()
}

#[derive(Serialize)]
struct Listed {
    name: String,
    description: String,
    addresses: Vec<String>,
    is_up: bool,
    is_running: bool,
    is_loopback: bool,
}

/// The devices that libpcap can capture on, as JSON.
#[pyfunction]
pub fn list_interfaces() -> PyResult<String> {
    let listed = device::list().map_err(|message| LiveCaptureError::new_err(("interface", message)))?;
    let listed: Vec<Listed> = listed
        .into_iter()
        .map(|each| Listed {
            name: each.name,
            description: each.desc.unwrap_or_default(),
            addresses: each.addresses.iter().map(|address| address.addr.to_string()).collect(),
            is_up: each.flags.if_flags.contains(device::IfFlags::UP),
            is_running: each.flags.if_flags.contains(device::IfFlags::RUNNING),
            is_loopback: each.flags.if_flags.contains(device::IfFlags::LOOPBACK),
        })
        .collect();
    document(&listed)
}

/// Opens an interface for a moment: returns its LINKTYPE_ values, or raises if it may not be opened.
#[pyfunction]
pub fn probe_interface(name: &str) -> PyResult<Vec<u16>> {
    device::link_types(name).map_err(|error| refusal(&error))
}

/// Adds all of this to the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("LiveCaptureError", module.py().get_type::<LiveCaptureError>())?;
    module.add_function(wrap_pyfunction!(run_capture, module)?)?;
    module.add_function(wrap_pyfunction!(replay_capture, module)?)?;
    module.add_function(wrap_pyfunction!(advise_snaplen, module)?)?;
    module.add_function(wrap_pyfunction!(advise_snaplen_of, module)?)?;
    module.add_function(wrap_pyfunction!(check_filter, module)?)?;
    module.add_function(wrap_pyfunction!(check_trigger, module)?)?;
    module.add_function(wrap_pyfunction!(confine, module)?)?;
    module.add_function(wrap_pyfunction!(list_interfaces, module)?)?;
    module.add_function(wrap_pyfunction!(probe_interface, module)?)?;
    Ok(())
}
