//! One sampled curve of one trace, drawn in parts: each part of the sample, cut by the hash of the pages, can be drawn
//! by another process; all of them together are the curve.

use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use refault::lab::curve::{Sampling, curve_of_samples, draw_part as draw};
use refault::trace::reuse::DistanceHistogram;
use refault::trace::shards::SampledCurve;
use serde_json::Value;
use std::time::Duration;

use crate::errors::lab_error;
use crate::lab::{check_sample, json_of_curves, parse_sizes, sizes_for};
use crate::traces::Trace;
use crate::work;

/// More parts than machines have processors are of no use.
const MAX_PARTS: u32 = 1 << 20;

/// Part number `part` of `parts`: accesses of the whole trace, first accesses to pages of the part, and how often each
/// reuse distance occurs, from 0 up.
#[pyfunction]
pub fn draw_part<'py>(
    py: Python<'py>,
    trace: PyRef<'_, Trace>,
    sample: f64,
    seed: u64,
    part: u32,
    parts: u32,
) -> PyResult<(u64, u64, Bound<'py, PyArray1<u64>>)> {
    check_sample(sample)?;
    if !(1..=MAX_PARTS).contains(&parts) || part >= parts {
        return Err(PyValueError::new_err(format!("parts are from 1 to {MAX_PARTS}, not {parts}")));
    }
    let source = trace.source.clone();
    let sampling = Sampling { rate: sample, seed };
    let (drawn, reading) = work::run(py, None, move |progress| draw(&source, sampling, part, parts, progress))?;
    trace.heard(&reading);
    let accesses = drawn.accesses();
    let histogram = drawn.into_histograms().pop().unwrap_or_default();
    let counts = histogram.counts();
    // The end of the table is room that was not used.
    let used = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    Ok((accesses, histogram.cold(), PyArray1::from_slice(py, &counts[..used])))
}

/// The curve of all parts, as `mrc` tells it.
#[pyfunction]
pub fn join_parts(
    py: Python<'_>,
    trace: String,
    sample: f64,
    seed: u64,
    parts: Vec<(u64, u64, PyReadonlyArray1<'_, u64>)>,
    memory: Vec<String>,
) -> PyResult<String> {
    check_sample(sample)?;
    let sizes = parse_sizes(&memory)?;
    let accesses = parts.first().map_or(0, |part| part.0);
    if parts.iter().any(|part| part.0 != accesses) {
        return Err(PyValueError::new_err(format!("{trace}: the parts are of different traces: it changed meanwhile")));
    }
    let histograms = parts
        .iter()
        .map(|(_, cold, counts)| Ok(DistanceHistogram::from_counts(counts.as_slice()?.to_vec(), *cold)))
        .collect::<PyResult<Vec<_>>>()?;
    let sampling = Sampling { rate: sample, seed };
    let found = py.detach(|| {
        let drawn = SampledCurve::new(sample / histograms.len().max(1) as f64, accesses, histograms);
        curve_of_samples(trace, sampling, &drawn, |footprint| sizes_for(&sizes, footprint), Duration::ZERO)
    });
    Ok(Value::Array(vec![json_of_curves(&found.map_err(lab_error)?)]).to_string())
}
