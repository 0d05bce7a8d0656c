//! The tables of core/wire for Python: SCSI commands, statuses, sense codes and login keys as plain data.

use iscsitrace_trace::conformance::rules::Rule;
use iscsitrace_trace::counters::DEFINITIONS;
use iscsitrace_wire::cdb::{COMMANDS, Operation, Purpose};
use iscsitrace_wire::key::{KEYS, OperationalKey, Scope, Use, Value};
use iscsitrace_wire::opcode::Opcode;
use iscsitrace_wire::sense::{SenseKey, additional_sense_codes};
use iscsitrace_wire::status::Status;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

/// Every row of the table of SCSI commands, in its order.
#[pyfunction]
fn scsi_commands(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = PyList::empty(py);
    for command in COMMANDS {
        let row = PyDict::new(py);
        row.set_item("operation_code", command.code)?;
        row.set_item("service_action", command.service_action)?;
        row.set_item("device_type", command.device_type)?;
        row.set_item("operation", command.operation.as_str())?;
        row.set_item("name", command.name)?;
        let kind = if command.operation.moves_blocks() { command.operation.as_str() } else { "other" };
        row.set_item("kind", kind)?;
        let purpose = match command.operation.purpose() {
            Purpose::Data => "data",
            Purpose::Flush => "flush",
            Purpose::Control | Purpose::Unknown => "other",
        };
        row.set_item("purpose", purpose)?;
        row.set_item("lba", command.lba_field())?;
        row.set_item("block_count", command.block_count_field())?;
        rows.append(row)?;
    }
    Ok(rows)
}

/// Additional sense code, qualifier and words of every row of T10's list.
#[pyfunction]
fn sense_codes() -> Vec<(u8, u8, &'static str)> {
    additional_sense_codes().collect()
}

/// Every row of the table of login and text keys, in its order.
#[pyfunction]
fn login_keys(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = PyList::empty(py);
    for key in KEYS {
        let row = PyDict::new(py);
        row.set_item("name", key.name)?;
        row.set_item("section", key.section)?;
        row.set_item("setting", OperationalKey::from_name(key.name).map(OperationalKey::setting))?;
        let (kind, bounds) = match key.value {
            Value::Number(low, high) => ("number", Some((low, high))),
            Value::Boolean => ("boolean", None),
            Value::List => ("list", None),
            Value::Text => ("text", None),
        };
        row.set_item("kind", kind)?;
        row.set_item("bounds", bounds)?;
        row.set_item("default", key.default)?;
        row.set_item("is_leading_only", key.usage == Use::LeadingOnly)?;
        row.set_item("is_of_connection", key.scope == Scope::Connection)?;
        row.set_item("is_irrelevant_in_discovery", key.is_irrelevant_in_discovery)?;
        row.set_item("is_secret", key.is_secret)?;
        rows.append(row)?;
    }
    Ok(rows)
}

/// Name, severity, meaning and advice of every counter, in the order of the table `counters`.
#[pyfunction]
fn counters() -> Vec<(&'static str, u8, &'static str, &'static str)> {
    DEFINITIONS.iter().map(|each| (each.name, each.severity as u8, each.meaning, each.advice)).collect()
}

/// Every rule of RFC 7143 that is judged, in the order of its codes.
#[pyfunction]
fn conformance_rules(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let rows = PyList::empty(py);
    for rule in Rule::ALL {
        let declared = rule.declaration();
        let row = PyDict::new(py);
        row.set_item("rule", declared.id)?;
        row.set_item("section", declared.sections)?;
        row.set_item("sides", PyTuple::new(py, declared.sides.iter().map(|side| side.name()))?)?;
        row.set_item("severity", declared.severity.name())?;
        row.set_item("sentence", declared.sentence)?;
        row.set_item("broken", declared.broken)?;
        rows.append(row)?;
    }
    Ok(rows)
}

/// Adds the tables to the module.
pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let secrets = KEYS.iter().filter(|key| key.is_secret).map(|key| key.name);
    module.add("OPERATIONS", PyTuple::new(py, Operation::ALL.iter().map(|operation| operation.as_str()))?)?;
    module.add("SECRET_KEYS", PyTuple::new(py, secrets.collect::<Vec<_>>())?)?;
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    let statuses = PyDict::new(py);
    for status in Status::ALL {
        statuses.set_item(*status as u8, status.name())?;
    }
    module.add("STATUSES", statuses)?;
    let pdu_types = PyDict::new(py);
    for opcode in Opcode::ALL {
        pdu_types.set_item(opcode.as_u8(), opcode.name())?;
    }
    module.add("PDU_TYPES", pdu_types)?;
    module.add("SENSE_KEYS", PyTuple::new(py, SenseKey::ALL.map(SenseKey::words))?)?;
    module.add_function(wrap_pyfunction!(scsi_commands, module)?)?;
    module.add_function(wrap_pyfunction!(sense_codes, module)?)?;
    module.add_function(wrap_pyfunction!(conformance_rules, module)?)?;
    module.add_function(wrap_pyfunction!(counters, module)?)?;
    module.add_function(wrap_pyfunction!(login_keys, module)?)
}
