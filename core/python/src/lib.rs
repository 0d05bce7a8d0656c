//! `iscsitrace._core`: the one place that knows Python. `iscsitrace/_core.pyi` says what it offers.
//!
//! ```text
//! source   what Python names as input -> inputs of the pass
//! columns  tables -> NumPy arrays, without a copy
//! vocabulary  SCSI commands and login keys as plain data
//! live_pass  a pass that goes on, looked at now and then
//! lab      traffic: settings as JSON -> results as JSON
//! capture  capturing: settings as JSON -> files, and outcomes as JSON
//! ```

mod capture;
mod columns;
mod lab;
mod live_pass;
mod source;
mod vocabulary;

use std::time::{Duration, Instant};

use iscsitrace_trace::pass::{self, Interrupted, Selection};
use iscsitrace_trace::tables::Wanted;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

create_exception!(_core, CaptureError, PyException, "The input cannot be read; str() is one line.");

/// Time between two reports of progress, and two looks for Ctrl-C.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// What one pass over the input left.
#[pyclass(module = "iscsitrace._core")]
struct Pass {
    outcome: pass::Outcome,
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
        columns::row_count(&self.outcome.tables, table).ok_or_else(|| PyKeyError::new_err(table.to_owned()))
    }

    fn columns<'py>(&mut self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        let Some(taken) = columns::take(&mut self.outcome.tables, table) else {
            return Err(PyKeyError::new_err(table.to_owned()));
        };
        columns::to_python(py, taken)
    }

    fn masks<'py>(&self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyDict>> {
        columns::masks(py, &self.outcome.tables, table)
    }
}

/// One pass over the sources as one stream.
#[pyfunction]
#[pyo3(signature = (sources, *, capture_filter, packet_limit, time_from_ns, time_to_ns, time_is_relative, tables, progress))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
fn read(
    py: Python<'_>,
    sources: Vec<Bound<'_, PyAny>>,
    capture_filter: Option<String>,
    packet_limit: Option<u64>,
    time_from_ns: Option<i64>,
    time_to_ns: Option<i64>,
    time_is_relative: bool,
    tables: Vec<String>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Pass> {
    let failure = source::Failure::default();
    let inputs = sources.iter().map(|source| source::input(source, &failure)).collect::<PyResult<Vec<_>>>()?;
    let selection = Selection { capture_filter, packet_limit, time_from_ns, time_to_ns, time_is_relative };
    let mut wanted = Wanted::default();
    tables.iter().for_each(|name| wanted.add(name));
    let outcome = py.detach(|| {
        let mut last = Instant::now();
        pass::run(inputs, &selection, wanted, |reached| {
            if let Some(error) = failure.take() {
                return Err(error);
            }
            if last.elapsed() < REPORT_EVERY {
                return Ok(());
            }
            last = Instant::now();
            Python::attach(|py| {
                py.check_signals()?;
                if let Some(progress) = &progress {
                    progress.call1(py, (reached.bytes_read(), reached.bytes_total))?;
                }
                Ok(())
            })
        })
    });
    if let Some(error) = failure.take() {
        return Err(error);
    }
    match outcome {
        Ok(outcome) => Ok(Pass { outcome }),
        Err(Interrupted::Caller(error)) => Err(error),
        Err(Interrupted::Capture(error)) => Err(CaptureError::new_err(error.to_string())),
    }
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("CaptureError", py.get_type::<CaptureError>())?;
    module.add_class::<Pass>()?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_class::<live_pass::Live>()?;
    vocabulary::add_to(module)?;
    lab::add_to(module)?;
    capture::add_to(module)?;
    Ok(())
}
