//! A capture without names: settings from Python -> a file, and what was written as a dict.

use std::fs::OpenOptions;
use std::io::BufWriter;
use std::path::PathBuf;

use iscsitrace_anonymise::{Failure, KEY_BYTES, Settings, anonymise};
use iscsitrace_trace::reader::sequence::Input;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::CaptureError;
use crate::pass::Reporter;
use crate::source;

/// Buffer of the output.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes the captures, which are read twice, to a file that is there.
#[pyfunction]
#[pyo3(name = "anonymise", signature = (sources, path, *, key, keeps_models, drops_others, application, progress))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python function")]
fn anonymise_to<'py>(
    py: Python<'py>,
    sources: Vec<PathBuf>,
    path: PathBuf,
    key: Vec<u8>,
    keeps_models: bool,
    drops_others: bool,
    application: String,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let key: [u8; KEY_BYTES] =
        key.try_into().map_err(|_| PyValueError::new_err(format!("a key has {KEY_BYTES} bytes")))?;
    let settings = Settings { key, keeps_models, drops_others, application };
    let failure = source::Failure::default();
    let mut reporter = Reporter::new(&failure, progress);
    let written = py.detach(|| {
        let file = OpenOptions::new().write(true).truncate(true).open(&path)?;
        let inputs = || sources.iter().cloned().map(Input::Path).collect();
        let out = BufWriter::with_capacity(BUFFER_BYTES, file);
        anonymise(inputs, out, &settings, |reached| reporter.report(&[reached]))
    });
    let outcome = written.map_err(|failed| match failed {
        Failure::Capture(error) => CaptureError::new_err(error.to_string()),
        Failure::Output(error) => PyOSError::new_err((error.raw_os_error(), error.to_string())),
        Failure::Caller(error) => error,
    })?;
    let dict = PyDict::new(py);
    dict.set_item("packets", outcome.packet_count)?;
    dict.set_item("connections", outcome.connection_count)?;
    dict.set_item("other_tcp_packets", outcome.other_tcp_count)?;
    dict.set_item("packets_without_tcp", outcome.not_tcp_count)?;
    Ok(dict)
}

/// Adds the function to the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(anonymise_to, module)?)
}
