//! What a comparison comes to: at each memory size the policy with the fewest misses that does not know the future, and
//! how much fewer they are than a baseline's; over several traces each policy's mean reduction and its worst case
//! against the baseline and against [`REFERENCES`], and its mean rank.
//!
//! A reduction is the part of the baseline's misses that a policy saves: 0.4 is 40 % fewer, −0.1 is 10 % more. Policies
//! with equally few misses share the mean of their ranks, and all of them are best.
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

use serde_json::{Map, Value, json};

use crate::results::{policies_of, sizes_of};
use crate::sweep::{Run, TraceRuns};

/// What everybody knows, and therefore what every policy is compared with besides the baseline, where it was run.
pub const REFERENCES: [&str; 2] = ["fifo", "lru"];

/// The best policies on a trace at a size.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// The trace.
    pub trace: String,
    /// The size in pages.
    pub memory_pages: u64,
    /// The policies with the fewest misses, in the order asked for.
    pub policies: Vec<String>,
    /// How many policies were compared; of one there is nothing to say.
    pub compared: usize,
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
    /// What it saves of the misses of the baseline, and of [`REFERENCES`] that were run, in this order.
    pub against: Vec<Saved>,
    /// Mean of its ranks, from 1.
    pub mean_rank: f64,
}

/// What a policy saves of another's misses, over all traces and sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The other policy.
    pub baseline: String,
    /// Mean of the reductions.
    pub mean_reduction: f64,
    /// The smallest reduction, and where: trace and pages.
    pub worst: (f64, String, u64),
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
                compared: fair(trace, memory_pages).count(),
                misses,
                reduction: reduction(trace, memory_pages, baseline, misses),
            });
        }
    }
    let mut overall = if results.len() > 1 { over_traces(results, baseline) } else { Vec::new() };
    overall.sort_by(|a, b| b.against[0].mean_reduction.total_cmp(&a.against[0].mean_reduction));
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
    let places = results.iter().flat_map(|trace| sizes_of(trace).into_iter().map(move |pages| (trace, pages)));
    let runs = places.filter_map(|(trace, pages)| Some((trace, fair(trace, pages).find(|run| run.policy == policy)?)));
    let ranks: Vec<f64> = runs.map(|(trace, run)| rank(trace, run)).collect();
    let references = REFERENCES.into_iter().filter(|name| *name != baseline && *name != policy);
    // A policy that the baseline says nothing about is left out; a reference that was not run is passed over.
    let first = saved(results, policy, baseline)?;
    let others = references.filter_map(|reference| saved(results, policy, reference));
    Some(Overall {
        policy: policy.to_owned(),
        against: std::iter::once(first).chain(others).collect(),
        mean_rank: mean(&ranks),
    })
}

fn saved(results: &[TraceRuns], policy: &str, baseline: &str) -> Option<Saved> {
    let (mut reductions, mut worst) = (Vec::new(), None::<(f64, String, u64)>);
    for trace in results {
        for memory_pages in sizes_of(trace) {
            let Some(run) = fair(trace, memory_pages).find(|run| run.policy == policy) else { continue };
            let Some(saved) = reduction(trace, memory_pages, baseline, run.outcome.misses) else { continue };
            reductions.push(saved);
            if worst.as_ref().is_none_or(|(least, ..)| saved < *least) {
                worst = Some((saved, trace.trace.clone(), memory_pages));
            }
        }
    }
    Some(Saved { baseline: baseline.to_owned(), mean_reduction: mean(&reductions), worst: worst? })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
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
                let mut row = saved_json(&overall.against[0]);
                row.insert("policy".into(), json!(overall.policy));
                row.insert("mean_rank".into(), json!(overall.mean_rank));
                let against: Map<String, Value> = (overall.against.iter())
                    .map(|saved| (saved.baseline.clone(), Value::Object(saved_json(saved))))
                    .collect();
                row.insert("against".into(), Value::Object(against));
                Value::Object(row)
            })
            .collect();
        json!({ "baseline": self.baseline, "best": best, "overall": overall })
    }
}

fn saved_json(saved: &Saved) -> Map<String, Value> {
    let (worst, trace, pages) = &saved.worst;
    let fields = [
        ("mean_reduction", json!(saved.mean_reduction)),
        ("worst_reduction", json!(worst)),
        ("worst_trace", json!(trace)),
        ("worst_memory_pages", json!(pages)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
