//! A pass over the captures of a ring for Python: captures one by one, its state as bytes between them.

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;

use iscsitrace_trace::pass::Outcome;
use iscsitrace_trace::ring::{self, Period, StateError};
use iscsitrace_trace::tables::{Tables, Wanted};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::pass::{Pass, Reporter, read_through};
use crate::source::{self, Failure};

/// The pass.
#[pyclass(module = "iscsitrace._core")]
pub struct Ring {
    /// None once it is finished.
    ring: Option<ring::Ring>,
}

fn invalid(error: &StateError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Start and last time of a period, its tables, and the numbers of its commands.
type PeriodParts<'py> = (i64, i64, Pass, Bound<'py, PyArray1<u32>>);

fn parts<'py>(py: Python<'py>, period: Period) -> PeriodParts<'py> {
    (period.from_ns, period.last_ns, result(period.tables), period.cycle_numbers.into_pyarray(py))
}

fn result(tables: Tables) -> Pass {
    let outcome = Outcome { tables, inputs: Vec::new(), packet_count: 0, tcp_packet_count: 0, first_packet: None };
    Pass { outcome }
}

impl Ring {
    fn get(&mut self) -> PyResult<&mut ring::Ring> {
        self.ring.as_mut().ok_or_else(|| PyValueError::new_err("the pass is finished"))
    }
}

#[pymethods]
impl Ring {
    /// A new pass. With periods there are no tables on request but `pdus`.
    #[new]
    #[pyo3(signature = (*, tables, has_periods = false))]
    fn new(tables: Vec<String>, has_periods: bool) -> Self {
        let mut wanted = Wanted::default();
        tables.iter().for_each(|name| wanted.add(name));
        let ring = if has_periods { ring::Ring::with_periods(wanted.pdus) } else { ring::Ring::new(wanted) };
        Self { ring: Some(ring) }
    }

    #[staticmethod]
    fn from_state(py: Python<'_>, state: &[u8]) -> PyResult<Self> {
        let ring = py.detach(|| ring::Ring::from_state(state)).map_err(|error| invalid(&error))?;
        Ok(Self { ring: Some(ring) })
    }

    fn state<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let ring = self.get()?;
        let mut state = Vec::new();
        py.detach(|| ring.write_state(&mut state))?;
        Ok(PyBytes::new(py, &state))
    }

    /// The same in a file.
    fn write_state(&mut self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let ring = self.get()?;
        let write = || ring.write_state(BufWriter::new(File::create(path)?));
        py.detach(write).map_err(|error| PyOSError::new_err((error.raw_os_error(), error.to_string())))
    }

    /// Reads one capture: the number of its first frame, and its metadata.
    #[pyo3(signature = (capture, *, progress))]
    fn read<'py>(
        &mut self,
        capture: &Bound<'py, PyAny>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(u64, Bound<'py, PyDict>)> {
        let py = capture.py();
        let failure = Failure::default();
        let input = source::input(capture, &failure)?;
        let ring = self.get()?;
        let mut reporter = Reporter::new(&failure, progress);
        let read = py.detach(|| ring.read(input, |reached| reporter.report(&[reached])));
        let (first_frame, info) = read_through(&failure, read)?;
        Ok((first_frame, source::describe(py, &info)?))
    }

    /// The rows that can no longer change.
    fn take(&mut self) -> PyResult<Pass> {
        Ok(result(self.get()?.take()))
    }

    /// The periods that ended since the last call.
    fn take_periods<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<PeriodParts<'py>>> {
        Ok(self.get()?.take_periods().into_iter().map(|period| parts(py, period)).collect())
    }

    /// The period that has not ended yet; None without packets.
    fn open_period<'py>(&mut self, py: Python<'py>) -> PyResult<Option<PeriodParts<'py>>> {
        let ring = self.get()?;
        let period = py.detach(|| ring.open_period());
        Ok(period.map(|period| parts(py, period)))
    }

    /// All other rows; the pass is over.
    fn finish(&mut self, py: Python<'_>) -> PyResult<Pass> {
        self.get()?;
        let ring = self.ring.take();
        Ok(result(py.detach(|| ring.map(ring::Ring::finish).unwrap_or_default())))
    }
}
