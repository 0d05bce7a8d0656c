//! `iscsitrace._core`: the only crate that knows Python. `iscsitrace/_core.pyi` declares its interface.
//!
//! ```text
//! source   inputs from Python -> inputs of the pass
//! pass     what a pass left: its inputs and tables
//! columns  tables -> NumPy arrays, without a copy; their declarations -> plain data
//! vocabulary  SCSI commands and login keys as plain data
//! live_pass  a live pass
//! ring     a pass that is left between two captures, and continued from its state
//! lab      traffic: settings as JSON -> results as JSON
//! taps     two captures of the same traffic -> dicts of arrays
//! anonymise  a capture without names
//! capture  capturing: settings as JSON -> files, and outcomes as JSON
//! ```

mod anonymise;
mod capture;
mod columns;
mod errors;
mod lab;
mod live_pass;
mod pass;
mod ring;
mod source;
mod taps;
mod vocabulary;

use iscsitrace_trace::pass::{Selection, run};
use iscsitrace_trace::tables::Wanted;
use pyo3::prelude::*;

use pass::{Pass, Reporter, read_through};

/// One pass over the sources as one stream.
#[pyfunction]
#[pyo3(signature = (sources, *, capture_filter, packet_limit, time_from_ns, time_to_ns, time_is_relative, tables, tcp_info_files, progress))]
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
    tcp_info_files: Vec<(String, String)>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Pass> {
    let failure = source::Failure::default();
    let inputs = sources.iter().map(|source| source::input(source, &failure)).collect::<PyResult<Vec<_>>>()?;
    let selection =
        Selection { capture_filter, packet_limit, time_from_ns, time_to_ns, time_is_relative, tcp_info_files };
    let mut wanted = Wanted::default();
    tables.iter().for_each(|name| wanted.add(name));
    let mut reporter = Reporter::new(&failure, progress);
    let outcome = py.detach(|| run(inputs, &selection, wanted, |reached| reporter.report(&[reached])));
    read_through(&failure, outcome).map(|outcome| Pass { outcome })
}

/// Gives memory that was freed back to the system.
#[pyfunction]
fn give_back(py: Python<'_>) {
    py.detach(iscsitrace_sys::give_back);
}

/// Makes the allocator keep freed memory for what is allocated next.
#[pyfunction]
fn keep_freed() {
    iscsitrace_sys::keep_freed();
}

/// Makes all threads take memory from one heap.
#[pyfunction]
fn share_heap() {
    iscsitrace_sys::share_heap();
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("CaptureError", py.get_type::<errors::CaptureError>())?;
    module.add_class::<Pass>()?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(give_back, module)?)?;
    module.add_function(wrap_pyfunction!(keep_freed, module)?)?;
    module.add_function(wrap_pyfunction!(share_heap, module)?)?;
    module.add_function(wrap_pyfunction!(columns::table_declarations, module)?)?;
    module.add_class::<live_pass::Live>()?;
    module.add_class::<ring::Ring>()?;
    vocabulary::add_to(module)?;
    lab::add_to(module)?;
    capture::add_to(module)?;
    taps::add_to(module)?;
    anonymise::add_to(module)?;
    Ok(())
}
