//! Lists of policies, as they are named on the command line: `lru,mglru{tiers=1}`. The names themselves are the core's
//! ([`refault_core::policy::registry`]).
//!
//! ```
//! use refault_lab::policies::parse_policies;
//!
//! let policies = parse_policies(&["lru,mglru{tiers=1}".into()])?;
//! assert_eq!(policies[1].label, "mglru{tiers=1}");
//! # Ok::<(), refault_lab::LabError>(())
//! ```

use refault_core::parameter::{ParameterError, split_list};
use refault_core::policy::registry::{self, Family, FrontEnd, POLICIES, PolicyError, PolicySpec};
use refault_trace::similar::most_similar;

use crate::error::LabError;

/// Reads lists of policies for a front-end; a policy that is named twice runs once.
///
/// # Errors
/// The first policy that cannot be read or that the front-end cannot run, or that there is none.
pub fn parse_policies_for(lists: &[String], front_end: FrontEnd) -> Result<Vec<PolicySpec>, LabError> {
    let mut specs: Vec<PolicySpec> = Vec::new();
    for text in lists.iter().flat_map(|list| split_list(list)) {
        // A machine or a program has one policy, or some that are named.
        let named = match group(text, front_end).filter(|_| front_end == FrontEnd::Replay) {
            Some(group) => group,
            None => vec![PolicySpec::parse_for(&known_name(text, front_end)?, front_end).map_err(told)?],
        };
        for spec in named {
            if specs.iter().all(|other| other.label != spec.label) {
                specs.push(spec);
            }
        }
    }
    if specs.is_empty() {
        let names = registry::names(front_end);
        return Err(LabError::request("no policy named", "--policy", format!("name some of {names}")));
    }
    Ok(specs)
}

/// The policies that a word stands for: `all`, `kernel` (those of kernels), `best` (all: which are best is known only
/// when all have run; see [`names_best`]).
fn group(word: &str, front_end: FrontEnd) -> Option<Vec<PolicySpec>> {
    match word.trim().to_ascii_lowercase().as_str() {
        "all" | "best" => Some(registry::all(front_end).collect()),
        "kernel" => Some(registry::all(front_end).filter(|spec| spec.entry.family == Family::Kernel).collect()),
        _ => None,
    }
}

/// Whether a list names `best`: run all policies, and show those that miss least at some size.
pub fn names_best(lists: &[String]) -> bool {
    lists.iter().flat_map(|list| split_list(list)).any(|word| word.trim().eq_ignore_ascii_case("best"))
}

/// The policy with its name in lower case.
///
/// # Errors
/// There is none of this name; the most similar one is suggested.
fn known_name(text: &str, front_end: FrontEnd) -> Result<String, LabError> {
    let end = text.find('{').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let name = name.trim().to_ascii_lowercase();
    let known = || POLICIES.iter().flat_map(|entry| entry.aliases.iter().copied().chain([entry.name]));
    if name.is_empty() || known().any(|other| other == name) {
        return Ok(format!("{name}{rest}"));
    }
    let groups: &[&str] = if front_end == FrontEnd::Replay { &["all", "best", "kernel"] } else { &[] };
    let remedy = match most_similar(&name, known().chain(groups.iter().copied())) {
        Some(similar) => format!("did you mean '{similar}'? 'refault policies' lists them"),
        None => {
            let names = registry::names(front_end);
            format!("choose from {}", groups.iter().copied().chain([names.as_str()]).collect::<Vec<_>>().join(", "))
        }
    };
    Err(LabError::request("unknown policy", format!("'{name}'"), remedy))
}

/// What is wrong with a policy; a parameter that is not known is met with the one that was meant.
fn told(error: PolicyError) -> LabError {
    if let PolicyError::BadParameter(call, ParameterError::Unknown { name, known }) = &error
        && let Some(similar) = most_similar(name, known.iter().map(|parameter| parameter.name))
    {
        let remedy = format!("did you mean '{similar}'? 'refault policies' lists all");
        return LabError::request("bad parameter", format!("'{call}': no parameter '{name}'"), remedy);
    }
    error.into()
}

/// The same for replays, which can run every policy.
///
/// # Errors
/// As [`parse_policies_for`].
pub fn parse_policies(lists: &[String]) -> Result<Vec<PolicySpec>, LabError> {
    parse_policies_for(lists, FrontEnd::Replay)
}

/// All policies with their defaults.
pub fn all_policies() -> Vec<PolicySpec> {
    registry::all(FrontEnd::Replay).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_list_the_known() {
        let line = parse_policies(&["nope".into()]).unwrap_err().to_string();
        assert!(line.contains("'nope'") && line.contains("fifo"), "{line}");
    }

    #[test]
    fn a_wrong_name_is_met_with_the_one_that_was_meant() {
        for (wrong, meant) in [("mrglu", "'mglru'"), ("s3fio", "'s3fifo'"), ("kernels", "'kernel'")] {
            let line = parse_policies(&[wrong.into()]).unwrap_err().to_string();
            assert!(line.contains(&format!("did you mean {meant}?")), "{line}");
        }
        // One machine has one policy: no word that stands for several is suggested.
        let line = parse_policies_for(&["all".into()], FrontEnd::Machine).unwrap_err().to_string();
        assert!(line.contains("unknown policy: 'all'") && !line.contains("did you mean 'all'"), "{line}");
        let line = parse_policies(&["mglru{tier=1}".into()]).unwrap_err().to_string();
        assert!(line.contains("no parameter 'tier'") && line.contains("did you mean 'tiers'?"), "{line}");
        assert_eq!(parse_policies(&["LRU,lru".into()]).expect("known").len(), 1);
        let kernels = parse_policies(&["kernel".into()]).expect("known");
        assert!(kernels.iter().any(|spec| spec.label == "mglru") && kernels.iter().all(|spec| spec.label != "lru"));
        assert_eq!(parse_policies(&["all".into()]).expect("known").len(), all_policies().len());
    }

    #[test]
    fn a_policy_named_twice_runs_once() {
        assert_eq!(parse_policies(&["fifo,fifo".into(), "fifo{}".into()]).expect("known").len(), 1);
        assert_eq!(parse_policies(&["clock,second-chance".into()]).expect("known").len(), 1);
    }

    #[test]
    fn a_front_end_refuses_with_the_reason_of_the_table() {
        let line = parse_policies_for(&["opt".into()], FrontEnd::Machine).unwrap_err().to_string();
        assert!(line.contains("all accesses to come"), "{line}");
    }
}
