//! Errors of the crates as Python's.

use std::io::{self, ErrorKind};
use std::path::Path;

use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
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
        TraceError::Open { file, source } => os_error(source, words(source), Some(file)),
        TraceError::Io { file, place, source } => os_error(source, format!("{place}: {}", words(source)), Some(file)),
        _ => PyValueError::new_err(error.to_string()),
    }
}

/// The system's words for an error, as strerror has them.
pub fn words(error: &io::Error) -> String {
    without_number(error, error.to_string())
}

/// A sentence that an error stands in, without Rust's ` (os error 2)`: Python says the number itself.
fn without_number(error: &io::Error, sentence: String) -> String {
    match error.raw_os_error() {
        Some(number) => sentence.replace(&format!(" (os error {number})"), ""),
        None => sentence,
    }
}

/// `OSError(errno, sentence, path)`, which Python makes `FileNotFoundError` and its kin; without a number
/// `OSError(sentence)`. A path that the sentence begins with is not said twice.
pub fn os_error(source: &io::Error, sentence: String, path: Option<&Path>) -> PyErr {
    let number = source.raw_os_error().or(match source.kind() {
        ErrorKind::InvalidInput | ErrorKind::Unsupported if path.is_some() => Some(libc::EINVAL),
        _ => None,
    });
    let Some(number) = number else { return PyOSError::new_err(sentence) };
    refused(number, without_number(source, sentence), path)
}

/// The same where a number is known that the system did not say.
pub fn refused(number: i32, sentence: String, path: Option<&Path>) -> PyErr {
    let Some(path) = path else { return PyOSError::new_err((number, sentence)) };
    let sentence = sentence.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&sentence).to_owned();
    PyOSError::new_err((number, sentence, path.as_os_str().to_owned()))
}

/// What Python raised while something was done, as `OSError` with the number and the file that it has, and with it as the
/// cause; that itself if it is no error but the wish to end (`KeyboardInterrupt`, `SystemExit`).
pub fn os_error_from(py: Python<'_>, cause: &PyErr, what: &str) -> PyErr {
    if !cause.is_instance_of::<PyException>(py) {
        return cause.clone_ref(py);
    }
    let value = cause.value(py);
    let number = value.getattr("errno").and_then(|number| number.extract::<i32>()).ok();
    let error = match number {
        Some(number) => {
            let said = value.getattr("strerror").and_then(|said| said.extract::<String>());
            let sentence = format!("{what}: {}", said.unwrap_or_else(|_| words(&io::Error::from_raw_os_error(number))));
            match value.getattr("filename").ok().filter(|name| !name.is_none()) {
                Some(name) => PyOSError::new_err((number, sentence, name.unbind())),
                None => PyOSError::new_err((number, sentence)),
            }
        }
        None => {
            // `FileNotFoundError` and its kin stay what they are without a number, too.
            let kind = value.get_type();
            let is_built_in = kind.module().is_ok_and(|module| module == "builtins");
            match is_built_in && cause.is_instance_of::<PyOSError>(py) {
                true => PyErr::from_type(kind, format!("{what}: {cause}")),
                false => PyOSError::new_err(format!("{what}: {cause}")),
            }
        }
    };
    error.set_cause(py, Some(cause.clone_ref(py)));
    error
}

/// `io.UnsupportedOperation`: the file cannot do that, as it was opened or at all.
pub fn unsupported(py: Python<'_>, sentence: String) -> PyErr {
    static KIND: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    match KIND.import(py, "io", "UnsupportedOperation") {
        Ok(kind) => PyErr::from_type(kind.clone(), sentence),
        Err(error) => error,
    }
}
