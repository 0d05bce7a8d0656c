//! Tables -> NumPy arrays: each vector is moved, not copied. Their declarations -> plain data.

use iscsitrace_trace::tables::taps::TAP_DECLARATIONS;
use iscsitrace_trace::tables::{Column, Columns, Pdus, TableDeclaration, Tables, TextColumn, Wanted};
use iscsitrace_wire::bhs::{Field, field_end};
use iscsitrace_wire::opcode::Opcode;
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString};

/// What is declared of a column: name, dtype, meaning, unit, whether it is nullable, source.
type DeclaredColumn = (&'static str, &'static str, &'static str, &'static str, bool, &'static str);
/// What is declared of a table: name, meaning of a row, whether it is filled only on request, columns.
type DeclaredTable = (&'static str, &'static str, bool, Vec<DeclaredColumn>);

/// What is declared of every table of a pass.
#[pyfunction]
pub fn table_declarations() -> Vec<DeclaredTable> {
    declared(Tables::DECLARATIONS)
}

/// What is declared of every table about two taps.
#[pyfunction]
pub fn tap_table_declarations() -> Vec<DeclaredTable> {
    declared(TAP_DECLARATIONS)
}

fn declared(tables: &[TableDeclaration]) -> Vec<DeclaredTable> {
    let columns = |table: &TableDeclaration| {
        let columns = table.columns.iter();
        columns.map(|each| (each.name, each.dtype, each.meaning, each.unit, each.is_nullable, each.source)).collect()
    };
    let is_on_request = |table: &TableDeclaration| Wanted::NAMES.contains(&table.name);
    tables.iter().map(|table| (table.name, table.row, is_on_request(table), columns(table))).collect()
}

/// Columns as a dict of arrays; text as lists.
pub fn to_python<'py>(py: Python<'py>, columns: Vec<(&'static str, Column)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, column) in columns {
        dict.set_item(name, array(py, column)?)?;
    }
    Ok(dict)
}

/// A column as an array; text as a list.
pub fn array(py: Python<'_>, column: Column) -> PyResult<Bound<'_, PyAny>> {
    Ok(match column {
        Column::Bool(values) => values.into_pyarray(py).into_any(),
        Column::U8(values) => values.into_pyarray(py).into_any(),
        Column::U16(values) => values.into_pyarray(py).into_any(),
        Column::U32(values) => values.into_pyarray(py).into_any(),
        Column::U64(values) => values.into_pyarray(py).into_any(),
        Column::I64(values) => values.into_pyarray(py).into_any(),
        Column::Text(values) => texts(py, values)?.into_any(),
    })
}

/// A list of the texts of all rows; equal ones are one object.
fn texts<'py>(py: Python<'py>, column: TextColumn) -> PyResult<Bound<'py, PyList>> {
    let (distinct, numbers) = column.into_parts();
    let distinct: Vec<Bound<'py, PyString>> = distinct.iter().map(|text| PyString::new(py, text)).collect();
    PyList::new(py, numbers.iter().map(|&number| &distinct[number as usize]))
}

/// Header fields of `pdus` without a null value, and the BHS fields that they come from.
const MASKED: &[(&str, &[Field])] = &[
    ("initiator_task_tag", &[Field::InitiatorTaskTag]),
    ("target_transfer_tag", &[Field::TargetTransferTag]),
    ("cmd_sn", &[Field::CmdSn]),
    ("stat_sn", &[Field::StatSn]),
    ("exp_stat_sn", &[Field::ExpStatSn]),
    ("exp_cmd_sn", &[Field::ExpCmdSn]),
    ("max_cmd_sn", &[Field::MaxCmdSn]),
    ("data_sn", &[Field::DataSn]),
    ("buffer_offset", &[Field::BufferOffset]),
    ("expected_data_transfer_length", &[Field::ExpectedDataTransferLength, Field::DesiredDataTransferLength]),
];

/// Masks (true = null) of these columns only.
pub fn masks<'py>(py: Python<'py>, tables: &Tables, name: &str) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    if name == Pdus::DECLARATION.name {
        for &(column, fields) in MASKED {
            dict.set_item(column, mask(&tables.pdus, fields).into_pyarray(py))?;
        }
    }
    Ok(dict)
}

fn mask(pdus: &Pdus, fields: &[Field]) -> Vec<bool> {
    let is_stat_sn = fields.contains(&Field::StatSn);
    // by opcode: the header bytes that must be there
    let needed: Vec<u8> = (0..64)
        .map(|code| {
            let end = |opcode| fields.iter().find_map(|&field| field_end(opcode, field));
            Opcode::from_u8(code).and_then(end).unwrap_or(u8::MAX)
        })
        .collect();
    pdus.opcode
        .iter()
        .zip(&pdus.header_bytes)
        .zip(&pdus.has_status)
        .map(|((&opcode, &header_bytes), &has_status)| {
            // StatSN of a Data-In is valid only with its status (RFC 7143 section 11.7.3)
            header_bytes < needed.get(usize::from(opcode)).copied().unwrap_or(u8::MAX)
                || (is_stat_sn && opcode == Opcode::DataIn.as_u8() && !has_status)
        })
        .collect()
}
