//! The budget while the program runs: a small file that holds its bytes, looked at ten times a second.

use std::path::Path;
use std::time::Duration;

use refault_pager::Budget;

use crate::Agent;

/// How long the budget may take to become true before that is said.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(crate) struct Control {
    last: Option<u64>,
}

impl Control {
    /// Takes the budget over if it has changed. What is no number is ignored: somebody may be writing. So is what is too little.
    pub(crate) fn look(&mut self, agent: &Agent, path: &Path) {
        let Some(bytes) = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok()) else {
            return;
        };
        if self.last.replace(bytes) == Some(bytes) || bytes < Budget::LEAST_OF_A_PROGRAM {
            return;
        }
        if let Err(error) = agent.pager.resize(bytes, PATIENCE) {
            crate::forks::say(&format!("the new budget is not reached yet: {error}"));
        }
    }
}
