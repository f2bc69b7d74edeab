//! What a comparison comes to: at each memory size the policy with the fewest misses that does not know the future, and how
//! much fewer they are than a baseline's; over several traces each policy's mean reduction, its worst case and its mean
//! rank.
//!
//! A reduction is the part of the baseline's misses that a policy saves: 0.4 is 40 % fewer, −0.1 is 10 % more. Policies with
//! equally few misses share the mean of their ranks, and all of them are best.
//!
//! ```
//! use refault_lab::policies::parse_policies;
//! use refault_lab::sweep::{Sweep, sweep};
//! use refault_lab::verdict::judge;
//! use refault_trace::Source;
//!
//! let source = Source::workload("zipf:theta=1,pages=500,accesses=10000".parse().unwrap());
//! let plan = Sweep::new(parse_policies(&["fifo,lru,opt".into()])?, vec!["20%".parse().unwrap()]);
//! let verdict = judge(&[sweep(&source, &plan, &())?], "fifo");
//! assert!(!verdict.to_json().to_string().contains("opt")); // it knows the future
//! # Ok::<(), refault_lab::LabError>(())
//! ```

use serde_json::{Value, json};

use crate::results::{policies_of, sizes_of};
use crate::sweep::{Run, TraceRuns};

/// The best policies on a trace at a size.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The trace.
    pub trace: String,
    /// The size in pages.
    pub memory_pages: u64,
    /// The policies with the fewest misses, in the order asked for.
    pub policies: Vec<String>,
    /// Their misses.
    pub misses: u64,
    /// The part of the baseline's misses that they save; `None` if the baseline was not run, or does not miss.
    pub reduction: Option<f64>,
}

/// A policy over all traces and sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    /// The policy.
    pub policy: String,
    /// Mean of its reductions.
    pub mean_reduction: f64,
    /// Its smallest reduction, and where: trace and pages.
    pub worst: (f64, String, u64),
    /// Mean of its ranks, from 1.
    pub mean_rank: f64,
}

/// What a comparison comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The policy that others are compared with.
    pub baseline: String,
    /// For each trace and size, in their order.
    pub best: Vec<Best>,
    /// For each policy but the baseline, the best mean reduction first; empty for a single trace.
    pub overall: Vec<Overall>,
}

/// Judges a comparison. Policies that need the future are left out.
pub fn judge(results: &[TraceRuns], baseline: &str) -> Verdict {
    let mut best = Vec::new();
    for trace in results {
        for memory_pages in sizes_of(trace) {
            let misses = fair(trace, memory_pages).map(|run| run.outcome.misses).min();
            let Some(misses) = misses else { continue };
            let winners = fair(trace, memory_pages).filter(|run| run.outcome.misses == misses);
            best.push(Best {
                trace: trace.trace.clone(),
                memory_pages,
                policies: winners.map(|run| run.policy.clone()).collect(),
                misses,
                reduction: reduction(trace, memory_pages, baseline, misses),
            });
        }
    }
    let mut overall = if results.len() > 1 { over_traces(results, baseline) } else { Vec::new() };
    overall.sort_by(|a, b| b.mean_reduction.total_cmp(&a.mean_reduction));
    Verdict { baseline: baseline.to_owned(), best, overall }
}

/// The runs at a size that could have been had without knowing the future.
fn fair(trace: &TraceRuns, memory_pages: u64) -> impl Iterator<Item = &Run> {
    trace.runs.iter().filter(move |run| run.memory_pages == memory_pages && !run.needs_future)
}

fn reduction(trace: &TraceRuns, memory_pages: u64, baseline: &str, misses: u64) -> Option<f64> {
    let base = fair(trace, memory_pages).find(|run| run.policy == baseline)?.outcome.misses;
    (base > 0).then(|| 1.0 - misses as f64 / base as f64)
}

fn over_traces(results: &[TraceRuns], baseline: &str) -> Vec<Overall> {
    let policies = results.first().map(policies_of).unwrap_or_default();
    let others = policies.into_iter().filter(|policy| *policy != baseline);
    others.filter_map(|policy| overall(results, policy, baseline)).collect()
}

fn overall(results: &[TraceRuns], policy: &str, baseline: &str) -> Option<Overall> {
    let (mut reductions, mut ranks, mut worst) = (Vec::new(), Vec::new(), None::<(f64, String, u64)>);
    for trace in results {
        for memory_pages in sizes_of(trace) {
            let Some(run) = fair(trace, memory_pages).find(|run| run.policy == policy) else { continue };
            ranks.push(rank(trace, run));
            let Some(saved) = reduction(trace, memory_pages, baseline, run.outcome.misses) else { continue };
            reductions.push(saved);
            if worst.as_ref().is_none_or(|(least, ..)| saved < *least) {
                worst = Some((saved, trace.trace.clone(), memory_pages));
            }
        }
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    Some(Overall {
        policy: policy.to_owned(),
        mean_reduction: mean(&reductions),
        worst: worst?,
        mean_rank: mean(&ranks),
    })
}

/// One more than the policies with fewer misses, and half of those with as many.
fn rank(trace: &TraceRuns, run: &Run) -> f64 {
    let others = fair(trace, run.memory_pages).filter(|other| other.policy != run.policy);
    let (mut fewer, mut equal) = (0, 0);
    for other in others {
        fewer += u32::from(other.outcome.misses < run.outcome.misses);
        equal += u32::from(other.outcome.misses == run.outcome.misses);
    }
    1.0 + f64::from(fewer) + f64::from(equal) / 2.0
}

impl Verdict {
    /// As an object.
    pub fn to_json(&self) -> Value {
        let best: Vec<Value> = self
            .best
            .iter()
            .map(|best| {
                json!({
                    "trace": best.trace,
                    "memory_pages": best.memory_pages,
                    "policies": best.policies,
                    "misses": best.misses,
                    "reduction": best.reduction,
                })
            })
            .collect();
        let overall: Vec<Value> = self
            .overall
            .iter()
            .map(|overall| {
                json!({
                    "policy": overall.policy,
                    "mean_reduction": overall.mean_reduction,
                    "worst_reduction": overall.worst.0,
                    "worst_trace": overall.worst.1,
                    "worst_memory_pages": overall.worst.2,
                    "mean_rank": overall.mean_rank,
                })
            })
            .collect();
        json!({ "baseline": self.baseline, "best": best, "overall": overall })
    }
}
