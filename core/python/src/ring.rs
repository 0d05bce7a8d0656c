//! A pass over the captures of a ring for Python: captures one by one, its state as bytes between them.

use iscsitrace_trace::pass::Outcome;
use iscsitrace_trace::ring::{self, StateError};
use iscsitrace_trace::tables::{Tables, Wanted};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::pass::{Pass, read_through, reporter};
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
    /// A new pass.
    #[new]
    #[pyo3(signature = (*, tables))]
    fn new(tables: Vec<String>) -> Self {
        let mut wanted = Wanted::default();
        tables.iter().for_each(|name| wanted.add(name));
        Self { ring: Some(ring::Ring::new(wanted)) }
    }

    #[staticmethod]
    fn from_state(py: Python<'_>, state: &[u8]) -> PyResult<Self> {
        let ring = py.detach(|| ring::Ring::from_state(state)).map_err(|error| invalid(&error))?;
        Ok(Self { ring: Some(ring) })
    }

    fn state<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let ring = self.get()?;
        let state = py.detach(|| ring.state()).map_err(|error| invalid(&error))?;
        Ok(PyBytes::new(py, &state))
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
        let report = reporter(&failure, progress);
        let (first_frame, info) = read_through(&failure, py.detach(|| ring.read(input, report)))?;
        Ok((first_frame, source::describe(py, &info)?))
    }

    /// The rows that can no longer change.
    fn take(&mut self) -> PyResult<Pass> {
        Ok(result(self.get()?.take()))
    }

    /// All other rows; the pass is over.
    fn finish(&mut self, py: Python<'_>) -> PyResult<Pass> {
        self.get()?;
        let ring = self.ring.take();
        Ok(result(py.detach(|| ring.map(ring::Ring::finish).unwrap_or_default())))
    }
}
