//! Errors of the crates as Python's.

use std::io;

use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use refault::lab::LabError;
use refault::trace::TraceError;

/// `OSError` with its number where the system says no, `ValueError` where the request or the trace is wrong.
pub fn lab_error(error: LabError) -> PyErr {
    match error {
        LabError::Trace(error) => trace_error(error),
        LabError::Cancelled => PyKeyboardInterrupt::new_err(()),
        LabError::Failed { .. } => PyRuntimeError::new_err(error.to_string()),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// The same for traces.
pub fn trace_error(error: TraceError) -> PyErr {
    match &error {
        TraceError::Open { source, .. } | TraceError::Io { source, .. } => os_error(source, error.to_string()),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// `OSError(errno, sentence)`, which Python makes `FileNotFoundError` and its kin; without a number
/// `OSError(sentence)`.
pub fn os_error(source: &io::Error, sentence: String) -> PyErr {
    match source.raw_os_error() {
        Some(number) => PyOSError::new_err((number, sentence)),
        None => PyOSError::new_err(sentence),
    }
}

/// `OSError` with the number and as the consequence of what Python raised; that itself if it is no error but the wish to
/// end (`KeyboardInterrupt`, `SystemExit`).
pub fn os_error_from(py: Python<'_>, cause: &PyErr, sentence: String) -> PyErr {
    if !cause.is_instance_of::<PyException>(py) {
        return cause.clone_ref(py);
    }
    let number = cause.value(py).getattr("errno").and_then(|number| number.extract::<i32>()).ok();
    let error = match number {
        Some(number) => PyOSError::new_err((number, sentence)),
        None => PyOSError::new_err(sentence),
    };
    error.set_cause(py, Some(cause.clone_ref(py)));
    error
}
