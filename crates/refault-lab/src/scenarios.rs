//! Scenarios: a simulated machine described in TOML, run under policies, at sizes of memory, with seeds.
//!
//! [`Request::new`] reads what is asked for and refuses what cannot be run; [`run`] runs it. [`json`] is what programs
//! read of it and [`charts`] are its pictures. Every front-end shows these.
//!
//! Invariant: results do not depend on the clock or on the number of threads; a run uses one.
//!
//! ```
//! use refault_lab::scenarios::{self, Request};
//!
//! let request = Request::new(scenarios::EXAMPLE, "example.toml", &["classic".into(), "mglru".into()], &[], 1)?;
//! assert_eq!(request.policies.len(), 2);
//! # Ok::<(), refault_lab::LabError>(())
//! ```

mod charts;
mod json;

use refault_core::policy::registry::{FrontEnd, PolicySpec};
use refault_sim::machine::End;
use refault_sim::machine::Machine;
use refault_sim::machine::config::MachineConfig;
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;
use refault_sim::named;

use crate::error::LabError;
use crate::policies::parse_policies_for;
use crate::progress::Progress;
use crate::size::{PAGE_BYTES, Size, bytes_text};

pub use charts::charts;
pub use json::json;

/// A scenario to begin with, with comments.
pub const EXAMPLE: &str = include_str!("scenarios/example.toml");

/// A scenario, and what it is to be run with.
#[derive(Debug)]
pub struct Request {
    /// What the file says.
    pub scenario: Scenario,
    /// What errors call it.
    pub file: String,
    /// The policies asked for, the file's, or the multi-gen LRU.
    pub policies: Vec<PolicySpec>,
    /// Sizes of memory in pages, all nodes together: those asked for, or the file's.
    pub sizes: Vec<u64>,
    /// Runs of each policy at each size, the first with the file's own seeds.
    pub seeds: u32,
}

impl Request {
    /// Reads a scenario's text, which errors call `file`. Without `policies` or `memory` the file's hold.
    ///
    /// # Errors
    /// The text, a policy or a size cannot be used, or seeds would change nothing.
    pub fn new(text: &str, file: &str, policies: &[String], memory: &[Size], seeds: u32) -> Result<Request, LabError> {
        let scenario = Scenario::parse(text, file).map_err(|error| {
            LabError::request(
                "scenario",
                error,
                "correct it and run again; 'refault scenario init' writes one to begin with",
            )
        })?;
        let policies = match (policies, &scenario.policy) {
            ([], Some((named, line))) => parse_policies_for(std::slice::from_ref(named), FrontEnd::Machine)
                .map_err(|failure| LabError::request("scenario", format!("{file}:{line}: policy"), failure))?,
            ([], None) => parse_policies_for(&["mglru".to_string()], FrontEnd::Machine)?,
            (asked, _) => parse_policies_for(asked, FrontEnd::Machine)?,
        };
        let sizes = sizes(memory, &scenario)?;
        if seeds > 1 && !scenario.config.is_random() {
            let remedy = "leave it out: traces hold no random numbers";
            return Err(LabError::request("an option without effect", "--seeds", remedy));
        }
        Ok(Request { scenario, file: file.to_string(), policies, sizes, seeds: seeds.max(1) })
    }

    /// Builds the machine under each policy at each size, and runs none.
    ///
    /// # Errors
    /// One of them cannot be built: the memory is too small, or the policy cannot do what the file asks for.
    pub fn check(&self) -> Result<(), LabError> {
        for (spec, pages) in self.pairs() {
            self.machine(self.scenario.config.clone().with_memory(pages), spec)?;
        }
        Ok(())
    }

    fn pairs(&self) -> impl Iterator<Item = (&PolicySpec, u64)> {
        self.policies.iter().flat_map(|spec| self.sizes.iter().map(move |pages| (spec, *pages)))
    }

    fn machine(&self, config: MachineConfig, spec: &PolicySpec) -> Result<Machine, LabError> {
        named::machine(spec, config).map_err(|reason| LabError::request("cannot build the machine", &self.file, reason))
    }
}

/// The sizes asked for, or the scenario's own.
fn sizes(asked: &[Size], scenario: &Scenario) -> Result<Vec<u64>, LabError> {
    let own: u64 = scenario.config.nodes.iter().sum();
    if asked.is_empty() {
        return Ok(vec![own]);
    }
    let mut sizes: Vec<u64> = Vec::new();
    for size in asked {
        let pages = size.pages(own);
        if sizes.contains(&pages) {
            return Err(LabError::request("a size is named twice", format!("--memory {size}"), "name it once"));
        }
        sizes.push(pages);
    }
    Ok(sizes)
}

/// A policy at a size of memory.
#[derive(Debug)]
pub struct Case {
    /// The policy as asked for.
    pub policy: String,
    /// Memory of the machine, all nodes together.
    pub memory_pages: u64,
    /// What came out, a report for each seed; the first is of the file's own seeds.
    pub runs: Vec<Report>,
}

impl Case {
    /// Its memory in words.
    pub fn memory(&self) -> String {
        bytes_text(self.memory_pages * PAGE_BYTES)
    }

    /// Its policy and memory in words.
    pub fn name(&self) -> String {
        format!("{}, {}", self.policy, self.memory())
    }

    /// The report of the file's own seeds.
    pub fn first(&self) -> &Report {
        &self.runs[0]
    }

    /// Mean and standard deviation (none of one run) of a figure over the seeds.
    pub fn over_seeds(&self, figure: impl Fn(&Report) -> f64) -> (f64, Option<f64>) {
        let values: Vec<f64> = self.runs.iter().map(figure).collect();
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (mean, (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt()))
    }
}

/// All runs with their cases and their numbers among those that differ by their seeds, from 0.
pub fn runs(cases: &[Case]) -> impl Iterator<Item = (&Case, usize, &Report)> {
    cases.iter().flat_map(|case| case.runs.iter().enumerate().map(move |(index, run)| (case, index, run)))
}

/// Runs every policy at every size with every seed. Progress counts [`PARTS`] parts of each run.
///
/// # Errors
/// As [`Request::check`]; a trace that the scenario names cannot be read; it was cancelled.
pub fn run(request: &Request, progress: &dyn Progress) -> Result<Vec<Case>, LabError> {
    let all = request.policies.len() as u64 * request.sizes.len() as u64 * u64::from(request.seeds);
    progress.add(all * PARTS);
    let mut cases = Vec::new();
    for (spec, memory_pages) in request.pairs() {
        let mut runs = Vec::new();
        for seed in 0..request.seeds {
            let config = request.scenario.config.clone().with_memory(memory_pages).with_seed_of_run(seed);
            let report = (request.machine(config, spec)?)
                .run_while(&|| !progress.is_cancelled())
                .map_err(|error| LabError::request("cannot read a trace", error, "check the scenario's traces"))?;
            runs.push(report.ok_or(LabError::Cancelled)?);
            progress.advance(PARTS);
        }
        cases.push(Case { policy: spec.label.clone(), memory_pages, runs });
    }
    Ok(cases)
}

/// What a whole run counts for in progress.
pub const PARTS: u64 = 1000;

/// Why a run ended, as JSON has it.
pub fn end_name(end: End) -> &'static str {
    match end {
        End::Finished => "finished",
        End::Duration => "duration",
        End::OutOfMemory => "out_of_memory",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Impatient(AtomicU64);

    impl Progress for Impatient {
        fn is_cancelled(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) >= 3
        }
    }

    #[test]
    fn the_example_runs_and_can_be_stopped() {
        let request = Request::new(EXAMPLE, "example.toml", &["classic,mglru".into()], &["50%".parse().unwrap()], 1);
        let request = request.unwrap();
        request.check().unwrap();
        assert!(matches!(run(&request, &Impatient::default()), Err(LabError::Cancelled)));
        let cases = run(&request, &()).unwrap();
        let found = json(&cases);
        assert_eq!(found["runs"].as_array().map(Vec::len), Some(2));
        assert_eq!(found["runs"][1]["policy"], "mglru");
        assert!(!charts(cases[0].first()).is_empty());
    }

    #[test]
    fn what_cannot_be_run_is_refused_in_words() {
        let refused = |text: &str, policies: &[&str], memory: &[&str]| {
            let policies: Vec<String> = policies.iter().map(|name| name.to_string()).collect();
            let memory: Vec<Size> = memory.iter().map(|size| size.parse().unwrap()).collect();
            let request = Request::new(text, "m.toml", &policies, &memory, 1);
            request.and_then(|request| request.check()).unwrap_err().to_string()
        };
        assert!(refused("[machine", &[], &[]).contains("m.toml:1"));
        assert!(refused(EXAMPLE, &["mrglu"], &[]).contains("did you mean 'mglru'"));
        assert!(refused(EXAMPLE, &[], &["64M", "64M"]).contains("named twice"));
    }
}
