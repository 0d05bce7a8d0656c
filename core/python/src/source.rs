//! Inputs from Python: a path, `-`, bytes, or an object with `read(n)`.

use std::io::{self, Cursor, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use iscsitrace_trace::reader::sequence::Input;
use iscsitrace_trace::reader::{CaptureInfo, InterfaceInfo};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::errors::CaptureError;

/// The Python exception that ended a read, to be raised instead of the I/O error that stands for it.
#[derive(Clone, Default)]
pub struct Failure(Arc<Mutex<Option<PyErr>>>);

impl Failure {
    fn set(&self, error: PyErr) -> io::Error {
        let message = error.to_string();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        io::Error::other(message)
    }

    /// The exception; returned once.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// An input of the pass.
pub fn input(source: &Bound<'_, PyAny>, failure: &Failure) -> PyResult<Input> {
    if let Ok(path) = source.cast::<PyString>() {
        let path: PathBuf =
            path.extract().map_err(|error| CaptureError::new_err(format!("not a file name: {error}")))?;
        if path.as_os_str() == "-" {
            let reader = Box::new(Interruptible { reader: io::stdin(), failure: failure.clone() });
            return Ok(Input::Reader { name: "standard input".to_owned(), reader });
        }
        return Ok(Input::Path(path));
    }
    if let Ok(bytes) = source.cast::<PyBytes>() {
        let reader = Box::new(Cursor::new(bytes.as_bytes().to_vec()));
        return Ok(Input::Reader { name: "bytes".to_owned(), reader });
    }
    if source.hasattr("read")? {
        let name = source.getattr("name").map_or_else(|_| "stream".to_owned(), |name| name.to_string());
        let reader = Box::new(PythonReader { object: source.clone().unbind(), failure: failure.clone() });
        return Ok(Input::Reader { name, reader });
    }
    Err(PyTypeError::new_err(format!("a capture is a path, bytes or a binary file, not {}", source.get_type())))
}

/// A reader that Ctrl-C interrupts while it waits.
struct Interruptible<R> {
    reader: R,
    failure: Failure,
}

impl<R: Read> Read for Interruptible<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.reader.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    Python::attach(|py| py.check_signals()).map_err(|error| self.failure.set(error))?;
                }
                result => return result,
            }
        }
    }
}

/// A Python file object.
struct PythonReader {
    object: Py<PyAny>,
    failure: Failure,
}

impl Read for PythonReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| {
            let read = self.object.call_method1(py, "read", (buffer.len(),))?;
            let bytes = read.bind(py).cast::<PyBytes>()?;
            let bytes = bytes.as_bytes();
            let length = bytes.len().min(buffer.len());
            buffer[..length].copy_from_slice(&bytes[..length]);
            Ok(length)
        })
        .map_err(|error: PyErr| self.failure.set(error))
    }
}

/// The metadata of a capture, as a dict.
pub fn describe<'py>(py: Python<'py>, info: &CaptureInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &info.name)?;
    dict.set_item("format", info.format)?;
    dict.set_item("byte_order", info.byte_order.as_str())?;
    dict.set_item("compression", &info.compression)?;
    dict.set_item("link_types", &info.link_types)?;
    dict.set_item("snaplen", info.snaplen)?;
    dict.set_item("packet_count", info.packet_count)?;
    dict.set_item("byte_count", info.byte_count)?;
    dict.set_item("captured_byte_count", info.captured_byte_count)?;
    dict.set_item("time_first_ns", info.time_first_ns)?;
    dict.set_item("time_last_ns", info.time_last_ns)?;
    dict.set_item("comments", &info.comments)?;
    dict.set_item("hardware", &info.hardware)?;
    dict.set_item("os", &info.operating_system)?;
    dict.set_item("application", &info.application)?;
    dict.set_item("is_cut_short", info.is_cut_short)?;
    let interfaces = PyList::empty(py);
    for interface in &info.interfaces {
        interfaces.append(describe_interface(py, interface)?)?;
    }
    dict.set_item("interfaces", interfaces)?;
    Ok(dict)
}

fn describe_interface<'py>(py: Python<'py>, interface: &InterfaceInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("name", &interface.name)?;
    dict.set_item("description", &interface.description)?;
    dict.set_item("filter", &interface.filter)?;
    dict.set_item("link_type", interface.link_type)?;
    dict.set_item("snaplen", interface.snaplen)?;
    dict.set_item("time_resolution", interface.time_resolution.to_string())?;
    dict.set_item("received", interface.received_count)?;
    dict.set_item("dropped", interface.dropped_count)?;
    Ok(dict)
}
