//! `iscsitrace._core`: the only crate that knows Python. `iscsitrace/_core.pyi` declares its interface.
//!
//! ```text
//! source   inputs from Python -> inputs of the pass
//! pass     what a pass left: its inputs and tables
//! columns  tables -> NumPy arrays, without a copy; their declarations -> plain data
//! vocabulary  SCSI commands and login keys as plain data
//! live_pass  a live pass
//! lab      traffic: settings as JSON -> results as JSON
//! taps     two captures of the same traffic -> dicts of arrays
//! capture  capturing: settings as JSON -> files, and outcomes as JSON
//! ```

mod capture;
mod columns;
mod errors;
mod lab;
mod live_pass;
mod pass;
mod source;
mod taps;
mod vocabulary;

use std::time::Instant;

use iscsitrace_trace::pass::{Interrupted, Selection, run};
use iscsitrace_trace::tables::Wanted;
use pyo3::prelude::*;

use errors::CaptureError;
use pass::{Pass, REPORT_EVERY};

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
        run(inputs, &selection, wanted, |reached| {
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
    module.add_function(wrap_pyfunction!(columns::table_declarations, module)?)?;
    module.add_class::<live_pass::Live>()?;
    vocabulary::add_to(module)?;
    lab::add_to(module)?;
    capture::add_to(module)?;
    taps::add_to(module)?;
    Ok(())
}
