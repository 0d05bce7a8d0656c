//! The result of a pass, as a Python object.

use std::time::Duration;

use iscsitrace_trace::pass::Outcome;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::{columns, source};

/// Time between two progress reports, and two checks for Ctrl-C.
pub const REPORT_EVERY: Duration = Duration::from_millis(100);

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

    fn columns<'py>(&mut self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        let Some(taken) = self.outcome.tables.take_columns(table) else {
            return Err(PyKeyError::new_err(table.to_owned()));
        };
        columns::to_python(py, taken)
    }

    fn masks<'py>(&self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        columns::masks(py, &self.outcome.tables, table)
    }
}
