//! Simulated machines and published experiments, with the figures of the command line.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;
use refault::lab::LabError;
use refault::lab::experiments::Size as Scale;
use refault::lab::experiments::published::{self, EXPERIMENTS};
use refault::lab::scenarios;
use serde_json::{Value, json};

use crate::errors::lab_error;
use crate::lab::parse_sizes;
use crate::work;

/// What all of an experiment counts for in progress.
const PARTS: u64 = 1000;

/// A scenario's text, which errors call `file`, as the JSON of `refault scenario --format json`, with the pictures.
#[pyfunction]
#[pyo3(signature = (text, file, policies, memory, seeds, progress))]
pub fn scenario(
    py: Python<'_>,
    text: &str,
    file: &str,
    policies: Vec<String>,
    memory: Vec<String>,
    seeds: u32,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let sizes = parse_sizes(&memory)?;
    let request = scenarios::Request::new(text, file, &policies, &sizes, seeds).map_err(lab_error)?;
    work::run(py, progress.as_ref(), move |progress| {
        let cases = scenarios::run(&request, progress)?;
        let mut found = scenarios::json(&cases);
        let sampled = request.scenario.config.sample_interval > 0;
        let pictures = cases.iter().filter(|_| sampled).map(
            |case| json!({ "policy": case.policy, "memory": case.memory(), "charts": scenarios::charts(case.first()) }),
        );
        found["pictures"] = pictures.collect();
        Ok(found.to_string())
    })
}

/// The text of a scenario to begin with.
#[pyfunction]
pub fn example_scenario() -> &'static str {
    scenarios::EXAMPLE
}

/// Name and description of every published experiment.
#[pyfunction]
pub fn experiments() -> Vec<(&'static str, &'static str)> {
    EXPERIMENTS.iter().map(|entry| (entry.name, entry.about)).collect()
}

/// A published experiment as the JSON of `refault reproduce --format json`, with verdict, remarks and pictures. `size`
/// is small, quick or full.
#[pyfunction]
#[pyo3(signature = (name, size, null, seed, progress))]
pub fn reproduce(
    py: Python<'_>,
    name: &str,
    size: &str,
    null: bool,
    seed: u64,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<String> {
    let entry = published::find(name).map_err(lab_error)?;
    let size = match size {
        "small" => Scale::Small,
        "quick" => Scale::Quick,
        "full" => Scale::Full,
        other => {
            let error = LabError::request("unknown size", format!("'{other}'"), "choose from small, quick, full");
            return Err(lab_error(error));
        }
    };
    work::run(py, progress.as_ref(), move |progress| {
        progress.add(PARTS);
        let told = AtomicU64::new(0);
        let experiment = entry.run(&published::Request { size, null, seed }, &|share| {
            let done = (share.clamp(0.0, 1.0) * PARTS as f64) as u64;
            let before = told.fetch_max(done, Ordering::Relaxed);
            progress.advance(done.saturating_sub(before));
        })?;
        let mut found = serde_json::to_value(&experiment)
            .map_err(|error| LabError::failed("cannot write the figures", entry.name, error))?;
        found["about"] = json!(entry.about);
        found["verdict"] = json!(experiment.verdict);
        found["remarks"] = json!(experiment.remarks);
        found["charts"] = json!(experiment.charts);
        Ok(Value::to_string(&found))
    })
}
