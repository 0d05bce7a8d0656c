//! Two captures of the same traffic: their connections, and the join of their packets, as dicts of arrays.

use iscsitrace_trace::tables::taps::{NamedColumns, named};
use iscsitrace_trace::taps::{self, Pair};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::columns::to_python;
use crate::pass::{Reporter, read_through};
use crate::source::{self, Failure};

/// A connection of each tap, and whether its client is the target.
type PairOfConnections = (u32, u32, bool, bool);

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
        let mut reporter = Reporter::new(&failure, progress);
        taps::connections_seen(inputs, packet_limit, |reached| reporter.report(&[reached]))
    });
    let seen = read_through(&failure, seen)?;
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
        let mut reporter = Reporter::new(&failure, progress);
        taps::join(inputs, &pairs, offset_hint_ns, |reached| reporter.report(&reached))
    });
    let joined = read_through(&failure, joined)?;
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
