//! The result of a pass, as a Python object.

use std::time::{Duration, Instant};

use iscsitrace_trace::pass::{Interrupted, Outcome};
use iscsitrace_trace::reader::sequence::Progress;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::columns;
use crate::errors::CaptureError;
use crate::source::{self, Failure};

/// Time between two checks for Ctrl-C: each waits for Python, where that imports modules meanwhile.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// Time between two progress reports. They hold the limit of memory, of which fast input takes a MiB in a millisecond.
const REPORT_EVERY: Duration = Duration::from_millis(2);

/// Called by a pass now and then: tells `progress` how far it is, and ends the pass at Ctrl-C, or if a source in Python failed.
pub struct Reporter {
    failure: Failure,
    progress: Option<Py<PyAny>>,
    last: Instant,
}

impl Reporter {
    pub fn new(failure: &Failure, progress: Option<Py<PyAny>>) -> Self {
        Self { failure: failure.clone(), progress, last: Instant::now() }
    }

    /// The progress of all inputs that are read at the same time.
    pub fn report(&mut self, reached: &[&Progress]) -> PyResult<()> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if self.last.elapsed() < if self.progress.is_some() { REPORT_EVERY } else { CHECK_EVERY } {
            return Ok(());
        }
        self.last = Instant::now();
        let bytes_read: u64 = reached.iter().map(|each| each.bytes_read()).sum();
        let bytes_total: Option<u64> = reached.iter().map(|each| each.bytes_total).sum();
        Python::attach(|py| {
            py.check_signals()?;
            if let Some(progress) = &self.progress {
                progress.call1(py, (bytes_read, bytes_total))?;
            }
            Ok(())
        })
    }
}

/// What a pass returned, or the exception of what ended it.
pub fn read_through<T>(failure: &Failure, outcome: Result<T, Interrupted<PyErr>>) -> PyResult<T> {
    if let Some(error) = failure.take() {
        return Err(error);
    }
    outcome.map_err(|interrupted| match interrupted {
        Interrupted::Caller(error) => error,
        Interrupted::Capture(error) => CaptureError::new_err(error.to_string()),
    })
}

/// The result of a pass.
#[pyclass(module = "iscsitrace._core")]
pub struct Pass {
    pub outcome: Outcome,
}

#[pymethods]
impl Pass {
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let inputs = PyList::empty(py);
        for info in &self.outcome.inputs {
            inputs.append(source::describe(py, info)?)?;
        }
        Ok(inputs)
    }

    #[getter]
    fn packet_count(&self) -> u64 {
        self.outcome.packet_count
    }

    #[getter]
    fn tcp_packet_count(&self) -> u64 {
        self.outcome.tcp_packet_count
    }

    #[getter]
    fn first_packet(&self) -> Option<(i64, u32)> {
        self.outcome.first_packet.map(|first| (first.time_ns, first.original_length))
    }

    fn row_count(&self, table: &str) -> PyResult<usize> {
        self.outcome.tables.row_count(table).ok_or_else(|| PyKeyError::new_err(table.to_owned()))
    }

    fn column<'py>(&mut self, py: Python<'py>, table: &str, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let taken = self.outcome.tables.take_column(table, name);
        columns::array(py, taken.ok_or_else(|| PyKeyError::new_err(format!("{table}.{name}")))?)
    }

    fn masks<'py>(&self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        columns::masks(py, &self.outcome.tables, table)
    }
}
