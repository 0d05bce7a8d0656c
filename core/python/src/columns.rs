//! Tables -> NumPy arrays: each vector is moved, not copied.

use iscsitrace_trace::tables::{Column, Columns, Pdus, Tables};
use iscsitrace_wire::bhs::{Field, field_end};
use iscsitrace_wire::opcode::Opcode;
use numpy::IntoPyArray;
use pyo3::prelude::*;
use pyo3::types::PyDict;

macro_rules! by_name {
    ($tables:expr, $name:expr, $visit:ident: $($field:ident)*) => {
        match $name {
            $(name if name == table_name(&$tables.$field) => Some($visit!($tables.$field)),)*
            _ => None,
        }
    };
}

fn table_name<T: Columns>(_: &T) -> &'static str {
    T::NAME
}

macro_rules! all_tables {
    ($tables:expr, $name:expr, $visit:ident) => {
        by_name!($tables, $name, $visit: connections sessions parameters pdus cycles rounds write_starts logins task_management
            nops texts logouts rejects asyncs snacks segments sacks window round_trips retransmissions recoveries flights senders
            budget counters)
    };
}

/// Number of rows of a table; none if there is no such table.
pub fn row_count(tables: &Tables, name: &str) -> Option<usize> {
    macro_rules! count {
        ($table:expr) => {
            $table.row_count()
        };
    }
    all_tables!(tables, name, count)
}

/// The columns of a table, which is empty afterwards; none if there is no such table.
pub fn take(tables: &mut Tables, name: &str) -> Option<Vec<(&'static str, Column)>> {
    macro_rules! take {
        ($table:expr) => {
            $table.take_columns()
        };
    }
    all_tables!(tables, name, take)
}

/// Columns as a dict of arrays; text as lists.
pub fn to_python<'py>(py: Python<'py>, columns: Vec<(&'static str, Column)>) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, column) in columns {
        match column {
            Column::Bool(values) => dict.set_item(name, values.into_pyarray(py))?,
            Column::U8(values) => dict.set_item(name, values.into_pyarray(py))?,
            Column::U16(values) => dict.set_item(name, values.into_pyarray(py))?,
            Column::U32(values) => dict.set_item(name, values.into_pyarray(py))?,
            Column::U64(values) => dict.set_item(name, values.into_pyarray(py))?,
            Column::I64(values) => dict.set_item(name, values.into_pyarray(py))?,
            Column::Text(values) => dict.set_item(name, values)?,
        }
    }
    Ok(dict)
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
    if name == Pdus::NAME {
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
