//! Comparisons and curves, with the figures of the command line: the same code makes them.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use refault::lab::LabError;
use refault::lab::curve::{CurvePlan, Sampling, TraceCurves, curves, default_sizes};
use refault::lab::policies::{all_policies, parse_policies};
use refault::lab::results::{read_json, write_json};
use refault::lab::size::{Bytes, Size};
use refault::lab::sweep::{SAMPLES, Sweep, WarmUp, jobs, memory_budget, run_all};
use refault::lab::verdict::judge;
use refault::policy::FrontEnd;
use refault::policy::registry::POLICIES;
use refault::trace::Reading;
use serde_json::{Value, json};

use crate::errors::lab_error;
use crate::traces::Trace;
use crate::work;

/// Every policy as JSON: names, parameters, bytes per page, and where it runs.
#[pyfunction]
pub fn policies(py: Python<'_>) -> String {
    let all = py.detach(|| {
        let entry = |entry: &'static refault::policy::registry::PolicyEntry| {
            let parameters: Vec<Value> = entry
                .all_parameters()
                .map(|parameter| {
                    json!({
                        "name": parameter.name,
                        "default": parameter.default,
                        "values": parameter.values,
                        "description": parameter.meaning,
                    })
                })
                .collect();
            let refusals: Vec<Value> = FrontEnd::ALL
                .iter()
                .map(|front_end| json!({ "front_end": front_end.name(), "refusal": entry.refusal(*front_end) }))
                .collect();
            json!({
                "name": entry.name,
                "aliases": entry.aliases,
                "family": entry.family.name(),
                "description": entry.description,
                "variant": entry.variant,
                "parameters": parameters,
                "metadata_bytes_per_page": entry.metadata_bytes_per_page(),
                "runs": refusals,
            })
        };
        Value::Array(POLICIES.iter().map(entry).collect())
    });
    all.to_string()
}

/// Bytes of a size such as `64M` or `4096p`.
#[pyfunction]
pub fn parse_size(text: &str) -> PyResult<u64> {
    text.parse::<Bytes>().map(|bytes| bytes.0).map_err(PyValueError::new_err)
}

/// Policies at sizes over traces: the JSON of `refault compare --format json`.
#[pyfunction]
#[pyo3(signature = (traces, policies, memory, swap, warm_up, baseline, jobs_asked, timing, progress))]
#[allow(clippy::too_many_arguments)]
pub fn compare(
    py: Python<'_>,
    traces: Vec<PyRef<'_, Trace>>,
    policies: Vec<String>,
    memory: Vec<String>,
    swap: Option<String>,
    warm_up: f64,
    baseline: String,
    jobs_asked: Option<u16>,
    timing: bool,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let policies = if policies.is_empty() { all_policies() } else { parse_policies(&policies).map_err(lab_error)? };
    parse_policies(std::slice::from_ref(&baseline)).map_err(lab_error)?;
    let sizes = parse_sizes(&memory)?;
    let mut plan = Sweep { jobs: jobs(jobs_asked), samples: SAMPLES, ..Sweep::new(policies, sizes) };
    match swap.as_deref() {
        None => {}
        Some("none") => plan.swap = None,
        Some(text) => plan.swap = Some(text.parse().map_err(PyValueError::new_err)?),
    }
    plan.warm_up = warm_up_of(warm_up)?;
    let sources: Vec<_> = traces.iter().map(|trace| trace.source.clone()).collect();
    let (text, readings) = work::run(py, progress.as_ref(), move |progress| {
        let results = run_all(&sources, &plan, progress)?;
        let verdict = judge(&results, &baseline);
        let mut text = Vec::new();
        write_json(&mut text, &results, &verdict.to_json(), timing)
            .map_err(|error| LabError::failed("cannot write the results", "memory", error))?;
        let readings: Vec<Reading> = results.into_iter().map(|trace| trace.reading).collect();
        Ok((String::from_utf8_lossy(&text).into_owned(), readings))
    })?;
    traces.iter().zip(&readings).for_each(|(trace, reading)| trace.heard(reading));
    Ok(text)
}

/// Miss-ratio curves as JSON.
#[pyfunction]
#[pyo3(signature = (traces, policies, memory, sample, seed, jobs_asked, progress))]
#[allow(clippy::too_many_arguments)]
pub fn mrc(
    py: Python<'_>,
    traces: Vec<PyRef<'_, Trace>>,
    policies: Vec<String>,
    memory: Vec<String>,
    sample: Option<f64>,
    seed: u64,
    jobs_asked: Option<u16>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    sample.map_or(Ok(()), check_sample)?;
    let sizes = parse_sizes(&memory)?;
    let plan = CurvePlan {
        policies: parse_policies(&policies).map_err(lab_error)?,
        sampling: sample.map(|rate| Sampling { rate, seed }),
        jobs: jobs(jobs_asked),
        memory_budget: memory_budget(),
    };
    let sources: Vec<_> = traces.iter().map(|trace| trace.source.clone()).collect();
    let found = work::run(py, progress.as_ref(), move |progress| {
        let drawn =
            sources.iter().map(|source| curves(source, &plan, |footprint| sizes_for(&sizes, footprint), progress));
        drawn.collect::<Result<Vec<TraceCurves>, LabError>>()
    })?;
    traces.iter().zip(&found).for_each(|(trace, found)| trace.heard(&found.reading));
    Ok(Value::Array(found.iter().map(json_of_curves).collect()).to_string())
}

/// What [`mrc`] tells of a trace.
pub fn json_of_curves(found: &TraceCurves) -> Value {
    let first_touches = found.first_touches();
    let drawn: Vec<Value> = found
        .curves
        .iter()
        .map(|curve| {
            json!({
                "policy": curve.policy,
                "exact": curve.complete,
                "knee_pages": curve.knee(found.distinct_pages, first_touches).map(|point| point.memory_pages),
                "memory_pages": curve.points.iter().map(|point| point.memory_pages).collect::<Vec<_>>(),
                "miss_ratio": curve.points.iter().map(|point| point.miss_ratio).collect::<Vec<_>>(),
                "standard_error": curve.points.iter().map(|point| point.standard_error).collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "trace": found.trace,
        "accesses": found.accesses,
        "distinct_pages": found.distinct_pages,
        "sampled": found.sampling.map(|sampling| sampling.rate),
        "curves": drawn,
    })
}

/// The verdict over runs that were made elsewhere, both as [`compare`] tells them.
#[pyfunction]
pub fn judge_runs(py: Python<'_>, runs: &str, baseline: &str) -> PyResult<String> {
    parse_policies(&[baseline.to_owned()]).map_err(lab_error)?;
    let results = py.detach(|| read_json(runs.as_bytes(), 0)).map_err(PyValueError::new_err)?;
    Ok(judge(&results, baseline).to_json().to_string())
}

/// The sizes of a curve for a footprint in pages, ascending: those that were asked for, or the usual ones.
pub fn sizes_for(sizes: &[Size], footprint: u64) -> Vec<u64> {
    if sizes.is_empty() {
        return default_sizes(footprint);
    }
    let mut pages: Vec<u64> = sizes.iter().map(|size| size.pages(footprint)).collect();
    pages.sort_unstable();
    pages.dedup();
    pages
}

/// A share of the pages that can be sampled.
pub fn check_sample(rate: f64) -> PyResult<()> {
    if rate > 0.0 && rate <= 1.0 {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("sample is a share of the pages above 0, at most 1; not {rate}")))
}

/// Sizes of memory as on the command line.
pub fn parse_sizes(memory: &[String]) -> PyResult<Vec<Size>> {
    memory.iter().map(|text| text.parse().map_err(PyValueError::new_err)).collect()
}

/// A share below 1, or a whole number of accesses.
fn warm_up_of(warm_up: f64) -> PyResult<WarmUp> {
    match warm_up {
        share if (0.0..1.0).contains(&share) && share > 0.0 => Ok(WarmUp::Share(share)),
        accesses if accesses >= 0.0 && accesses.fract() == 0.0 && accesses < 9e15 => {
            Ok(WarmUp::Accesses(accesses as u64))
        }
        other => Err(PyValueError::new_err(format!(
            "warm_up is a share of the accesses below 1, or a whole number of accesses; not {other}"
        ))),
    }
}
