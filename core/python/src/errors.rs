//! The exceptions of the module.

use pyo3::create_exception;
use pyo3::exceptions::PyException;

create_exception!(_core, CaptureError, PyException, "The input cannot be read; str() is one line.");
create_exception!(_core, LiveCaptureError, PyException, "A capture cannot begin; args are its kind and one line.");
