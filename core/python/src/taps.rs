//! Two captures of the same traffic: their connections, and the join of their packets, as dicts of arrays.

use std::time::Instant;

use iscsitrace_trace::pass::Interrupted;
use iscsitrace_trace::reader::sequence::Progress;
use iscsitrace_trace::tables::taps::{NamedColumns, named};
use iscsitrace_trace::taps::{self, Pair};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::columns::to_python;
use crate::errors::CaptureError;
use crate::pass::REPORT_EVERY;
use crate::source::{self, Failure};

/// A connection of each tap, and whether its client is the target.
type PairOfConnections = (u32, u32, bool, bool);

/// Checks for Ctrl-C, and calls `progress` with bytes read and bytes in all.
struct Reporter<'a> {
    failure: &'a Failure,
    progress: Option<Py<PyAny>>,
    last: Instant,
}

impl Reporter<'_> {
    fn report(&mut self, reached: &[&Progress]) -> PyResult<()> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if self.last.elapsed() < REPORT_EVERY {
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

fn outcome<T>(outcome: Result<T, Interrupted<PyErr>>, failure: &Failure) -> PyResult<T> {
    match (failure.take(), outcome) {
        (Some(error), _) | (None, Err(Interrupted::Caller(error))) => Err(error),
        (None, Err(Interrupted::Capture(error))) => Err(CaptureError::new_err(error.to_string())),
        (None, Ok(outcome)) => Ok(outcome),
    }
}

fn to_dict(py: Python<'_>, tables: Vec<NamedColumns>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, columns) in tables {
        dict.set_item(name, to_python(py, columns)?)?;
    }
    Ok(dict)
}

/// The connections of a capture by headers alone.
#[pyfunction]
#[pyo3(signature = (sources, *, packet_limit, progress))]
fn connections_seen<'py>(
    py: Python<'py>,
    sources: Vec<Bound<'py, PyAny>>,
    packet_limit: Option<u64>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let failure = Failure::default();
    let inputs = sources.iter().map(|each| source::input(each, &failure)).collect::<PyResult<Vec<_>>>()?;
    let seen = py.detach(|| {
        let mut reporter = Reporter { failure: &failure, progress, last: Instant::now() };
        taps::connections_seen(inputs, packet_limit, |reached| reporter.report(&[reached]))
    });
    let seen = outcome(seen, &failure)?;
    to_dict(py, vec![named(seen.connections), named(seen.landmarks)])
}

/// The packets of two captures, joined.
#[pyfunction]
#[pyo3(signature = (sources_a, sources_b, pairs, offset_hint_ns, *, progress))]
fn join_taps<'py>(
    py: Python<'py>,
    sources_a: Vec<Bound<'py, PyAny>>,
    sources_b: Vec<Bound<'py, PyAny>>,
    pairs: Vec<PairOfConnections>,
    offset_hint_ns: i64,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let failure = Failure::default();
    let inputs = |sources: &[Bound<'py, PyAny>]| {
        sources.iter().map(|each| source::input(each, &failure)).collect::<PyResult<Vec<_>>>()
    };
    let inputs = [inputs(&sources_a)?, inputs(&sources_b)?];
    let pair = |&(a, b, is_a, is_b): &PairOfConnections| Pair { connections: [a, b], is_client_target: [is_a, is_b] };
    let pairs: Vec<Pair> = pairs.iter().map(pair).collect();
    for tap in 0..2 {
        let mut numbers: Vec<u32> = pairs.iter().map(|pair| pair.connections[tap]).collect();
        numbers.sort_unstable();
        if numbers.windows(2).any(|two| two[0] == two[1]) {
            return Err(PyValueError::new_err("a connection is in two pairs"));
        }
    }
    let joined = py.detach(|| {
        let mut reporter = Reporter { failure: &failure, progress, last: Instant::now() };
        taps::join(inputs, &pairs, offset_hint_ns, |reached| reporter.report(&reached))
    });
    let joined = outcome(joined, &failure)?;
    let tables = vec![
        named(joined.transits),
        named(joined.envelope),
        named(joined.path_losses),
        named(joined.path_doubts),
        named(joined.paths),
    ];
    let dict = to_dict(py, tables)?;
    for (name, counters) in ["counters_a", "counters_b", "counters"].into_iter().zip(joined.counters) {
        dict.set_item(name, to_python(py, named(counters).1)?)?;
    }
    Ok(dict)
}

/// Adds the functions to the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(connections_seen, module)?)?;
    module.add_function(wrap_pyfunction!(join_taps, module)?)?;
    module.add_function(wrap_pyfunction!(crate::columns::tap_table_declarations, module)?)?;
    Ok(())
}
