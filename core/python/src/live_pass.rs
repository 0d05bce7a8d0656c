//! A live pass for Python: the caller sets how long it may wait, and it returns what to do.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iscsitrace_trace::live::follow::Change;
use iscsitrace_trace::live::view::View;
use iscsitrace_trace::live::{self, Origin, Settings, Step};
use iscsitrace_trace::pass::Outcome;
use iscsitrace_trace::reader::sequence::Input;
use iscsitrace_trace::senders::snapshot::SenderSnapshot;
use iscsitrace_trace::tables::Tables;
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::errors::CaptureError;
use crate::pass::Pass;
use crate::source::{self, Failure};

/// A live pass.
#[pyclass(module = "iscsitrace._core")]
pub struct Live {
    live: Mutex<live::Live>,
    failure: Failure,
}

impl Live {
    fn lock(&self) -> MutexGuard<'_, live::Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nanoseconds(time_ns: u64) -> Duration {
    Duration::from_nanos(time_ns)
}

#[pymethods]
impl Live {
    #[new]
    #[pyo3(signature = (source, *, name, interval_ns, settle_ns, keep_ns, capture_filter, packet_limit, has_dynamics, clock_after_ns, buffer_bytes, lag_max_ns))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
    fn new(
        source: &Bound<'_, PyAny>,
        name: Option<String>,
        interval_ns: i64,
        settle_ns: i64,
        keep_ns: i64,
        capture_filter: Option<String>,
        packet_limit: Option<u64>,
        has_dynamics: bool,
        clock_after_ns: Option<u64>,
        buffer_bytes: usize,
        lag_max_ns: Option<u64>,
    ) -> PyResult<Self> {
        let failure = Failure::default();
        let origin = if source.extract::<&str>().is_ok_and(|source| source == "-") {
            // its own descriptor: the terminal may replace the first one
            let input = std::io::stdin().as_fd().try_clone_to_owned()?;
            Origin::Reader("standard input".to_owned(), Box::new(File::from(input)))
        } else {
            match source::input(source, &failure)? {
                Input::Path(path) => Origin::File(name.unwrap_or_else(|| path.display().to_string()), path),
                Input::Reader { name: own, reader } | Input::Decompressed { name: own, reader, .. } => {
                    Origin::Reader(name.unwrap_or(own), reader)
                }
            }
        };
        let settings = Settings {
            interval_ns,
            settle_ns,
            keep_ns,
            capture_filter,
            packet_limit,
            has_dynamics,
            clock_after: clock_after_ns.map(nanoseconds),
            buffer_bytes,
            lag_max: lag_max_ns.map(nanoseconds),
        };
        let live = live::Live::start(origin, settings).map_err(|error| CaptureError::new_err(error.to_string()))?;
        Ok(Self { live: Mutex::new(live), failure })
    }

    /// Continues reading for at most that long: `look`, `nothing` or `end`.
    fn advance(&self, py: Python<'_>, patience_ns: u64) -> PyResult<&'static str> {
        let step = py.detach(|| self.lock().advance(nanoseconds(patience_ns)));
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        match step {
            Ok(Step::Look) => Ok("look"),
            Ok(Step::Nothing) => Ok("nothing"),
            Ok(Step::End) => Ok("end"),
            Err(error) => Err(CaptureError::new_err(error.to_string())),
        }
    }

    fn look<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let view = py.detach(|| self.lock().look());
        to_python(py, view)
    }

    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let view = py.detach(|| self.lock().finish());
        to_python(py, view)
    }

    fn recent(&self, py: Python<'_>) -> Pass {
        Pass { outcome: py.detach(|| self.lock().recent()) }
    }

    fn stop(&self, py: Python<'_>, is_abrupt: bool) {
        py.detach(|| if is_abrupt { self.lock().abandon() } else { self.lock().stop() });
    }

    #[getter]
    fn pace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let pace = py.detach(|| self.lock().pace());
        let dict = PyDict::new(py);
        dict.set_item("lag_ns", pace.lag.as_nanos() as u64)?;
        dict.set_item("waiting_bytes", pace.waiting_bytes)?;
        dict.set_item("is_reduced", pace.is_reduced)?;
        dict.set_item("is_leaving_out", pace.is_leaving_out)?;
        dict.set_item("left_out_packets", pace.left_out_packets)?;
        Ok(dict)
    }

    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let infos = py.detach(|| self.lock().infos());
        let inputs = PyList::empty(py);
        for info in &infos {
            inputs.append(source::describe(py, info)?)?;
        }
        Ok(inputs)
    }

    #[getter]
    fn change(&self, py: Python<'_>) -> Option<&'static str> {
        py.detach(|| match self.lock().change() {
            Some(Change::CutShort) => Some("cut short"),
            Some(Change::Replaced) => Some("replaced"),
            Some(Change::Next(_)) | None => None,
        })
    }

    #[getter]
    fn row_count(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().row_count())
    }
}

fn to_python<'py>(py: Python<'py>, view: View) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("from_ns", view.from_ns)?;
    dict.set_item("to_ns", view.to_ns)?;
    let forgotten = Outcome {
        tables: Tables { connections: view.forgotten, ..Tables::default() },
        inputs: view.forgotten_inputs,
        packet_count: 0,
        first_packet: None,
        tcp_packet_count: 0,
    };
    dict.set_item("pass", Pass { outcome: view.outcome })?;
    dict.set_item("forgotten", Pass { outcome: forgotten })?;
    let (operations, times): (Vec<u8>, Vec<i64>) = view.turnarounds.into_iter().unzip();
    dict.set_item("turnaround_operation", operations.into_pyarray(py))?;
    dict.set_item("turnaround_ns", times.into_pyarray(py))?;
    dict.set_item("late_count", view.late_count)?;
    dict.set_item("settled_ns", view.settled_ns)?;
    let now = PyList::empty(py);
    for each in view.now {
        let row = PyDict::new(py);
        row.set_item("connection", each.connection)?;
        row.set_item("session", each.session)?;
        row.set_item("open_task_count", each.open_task_count)?;
        row.set_item("begun_ns", each.begun_ns.into_pyarray(py))?;
        row.set_item("oldest_io_ns", each.in_flight.oldest_io_ns)?;
        row.set_item("progress_ns", each.in_flight.progress_ns)?;
        for (direction, sender) in ["to_target", "to_initiator"].into_iter().zip(each.senders.iter().flatten()) {
            row.set_item(direction, moment(py, sender)?)?;
        }
        now.append(row)?;
    }
    dict.set_item("now", now)?;
    Ok(dict)
}

fn moment<'py>(py: Python<'py>, moment: &SenderSnapshot) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("owin_bytes", moment.owin_bytes)?;
    dict.set_item("owin_peak_bytes", moment.owin_peak_bytes)?;
    dict.set_item("rwnd_bytes", moment.rwnd_bytes)?;
    dict.set_item("rtt_smoothed_ns", moment.rtt_smoothed_ns)?;
    Ok(dict)
}
