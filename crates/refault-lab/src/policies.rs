//! Lists of policies, as they are named on the command line: `lru,mglru{tiers=1}`. The names themselves are the core's
//! ([`refault_core::policy::registry`]).

use refault_core::parameter::split_list;
use refault_core::policy::registry::{self, FrontEnd, PolicySpec};

use crate::error::LabError;

/// Reads lists of policies for a front-end; a policy that is named twice runs once.
///
/// # Errors
/// The first policy that cannot be read or that the front-end cannot run, or that there is none.
pub fn parse_policies_for(lists: &[String], front_end: FrontEnd) -> Result<Vec<PolicySpec>, LabError> {
    let mut specs: Vec<PolicySpec> = Vec::new();
    for text in lists.iter().flat_map(|list| split_list(list)) {
        let spec = PolicySpec::parse_for(text, front_end)?;
        if specs.iter().all(|other| other.label != spec.label) {
            specs.push(spec);
        }
    }
    if specs.is_empty() {
        let names = registry::names(front_end);
        return Err(LabError::request("no policy named", "--policy", format!("name some of {names}")));
    }
    Ok(specs)
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
