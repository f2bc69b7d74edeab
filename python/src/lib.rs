//! The native half of the Python package `refault`.
//!
//! Everything here is thin: arguments come checked for their types, the work is that of the Rust crates, and results
//! leave as JSON text or as arrays. What users meet (names, defaults, docstrings, tables) is written in Python beside
//! it.
//!
//! Invariants: work on traces runs in a thread of its own without the interpreter's lock, and a signal ends the wait
//! for it at once; no panic crosses the border (PyO3 turns one into an exception); errors are Python's own kinds, with
//! the sentences of the command line.

mod buffers;
mod decoded;
mod ends;
mod errors;
mod estimate;
mod files;
mod foreign;
mod lab;
mod numpy_memory;
mod parts;
mod regions;
mod simulated;
mod stepper;
mod traces;
mod work;

use pyo3::prelude::*;

/// The module `refault._refault`.
#[pymodule]
fn _refault(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    ends::watch_forks().map_err(|error| errors::os_error(&error, format!("cannot watch forks: {error}"), None))?;
    module.add_class::<traces::Trace>()?;
    module.add_class::<stepper::Policy>()?;
    module.add_class::<estimate::Estimator>()?;
    module.add_class::<regions::Budget>()?;
    module.add_class::<regions::Memory>()?;
    module.add_class::<files::Cache>()?;
    module.add_class::<files::File>()?;
    module.add_class::<files::KeptPages>()?;
    module.add_function(wrap_pyfunction!(lab::policies, module)?)?;
    module.add_function(wrap_pyfunction!(lab::compare, module)?)?;
    module.add_function(wrap_pyfunction!(lab::mrc, module)?)?;
    module.add_function(wrap_pyfunction!(lab::judge_runs, module)?)?;
    module.add_function(wrap_pyfunction!(parts::draw_part, module)?)?;
    module.add_function(wrap_pyfunction!(parts::join_parts, module)?)?;
    module.add_class::<files::View>()?;
    module.add_function(wrap_pyfunction!(simulated::scenario, module)?)?;
    module.add_function(wrap_pyfunction!(simulated::example_scenario, module)?)?;
    module.add_function(wrap_pyfunction!(simulated::experiments, module)?)?;
    module.add_function(wrap_pyfunction!(simulated::reproduce, module)?)?;
    module.add_function(wrap_pyfunction!(lab::parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(numpy_memory::route_numpy, module)?)?;
    module.add_function(wrap_pyfunction!(numpy_memory::numpy_handler, module)?)?;
    module.add_function(wrap_pyfunction!(ends::end, module)?)?;
    Ok(())
}
