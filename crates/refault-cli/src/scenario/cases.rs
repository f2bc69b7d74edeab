//! The runs of a scenario: every policy at every size of memory, with as many seeds as were asked for.

use std::path::Path;

use refault_console::{Failure, Progress};
use refault_core::policy::registry::PolicySpec;
use refault_lab::size::{PAGE_BYTES, Size, bytes_text};
use refault_sim::machine::End;
use refault_sim::machine::config::MachineConfig;
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;
use refault_sim::named::{self, DynMachine};

/// A policy at a size of memory.
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

/// Why a run ended, as JSON has it.
pub fn end_name(end: End) -> &'static str {
    match end {
        End::Finished => "finished",
        End::Duration => "duration",
        End::OutOfMemory => "out_of_memory",
    }
}

/// The sizes that a scenario is run with: those asked for, or its own.
///
/// # Errors
/// Two of them are the same number of pages for this machine.
pub fn sizes(asked: &[Size], scenario: &Scenario) -> Result<Vec<u64>, Failure> {
    let own: u64 = scenario.config.nodes.iter().sum();
    if asked.is_empty() {
        return Ok(vec![own]);
    }
    let mut sizes: Vec<u64> = Vec::new();
    for size in asked {
        let pages = size.pages(own);
        if sizes.contains(&pages) {
            return Err(Failure::usage("a size is named twice", format!("--memory {size}"), "name it once"));
        }
        sizes.push(pages);
    }
    Ok(sizes)
}

/// The machine of a scenario under a policy.
///
/// # Errors
/// It cannot be built: the memory is too small, or the policy cannot do what the file asks for.
pub fn machine(config: MachineConfig, file: &Path, spec: &PolicySpec) -> Result<Box<dyn DynMachine>, Failure> {
    named::machine(spec, config).map_err(|reason| Failure::usage("cannot build the machine", file.display(), reason))
}

/// Runs every policy at every size with so many seeds.
///
/// # Errors
/// As [`machine`], or a trace that the scenario names cannot be read.
pub fn run(
    scenario: &Scenario,
    file: &Path,
    policies: &[PolicySpec],
    sizes: &[u64],
    seeds: u32,
) -> Result<Vec<Case>, Failure> {
    let progress = Progress::part("simulating");
    let all = (policies.len() * sizes.len() * seeds as usize) as f64;
    let (mut cases, mut done) = (Vec::new(), 0);
    for spec in policies {
        for &memory_pages in sizes {
            let mut runs = Vec::new();
            for seed in 0..seeds {
                let config = scenario.config.clone().with_memory(memory_pages).with_seed_of_run(seed);
                let report = machine(config, file, spec)?
                    .run()
                    .map_err(|error| Failure::usage("cannot read a trace", error, "check the scenario's traces"))?;
                runs.push(report);
                done += 1;
                progress.set(f64::from(done) / all);
            }
            cases.push(Case { policy: spec.label.clone(), memory_pages, runs });
        }
    }
    Ok(cases)
}
