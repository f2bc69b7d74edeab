//! The host's groups as `refault serve --host` shows them: looked at in the background of the pools, with the last hour
//! of their usage.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use refault_host::host::{AGES, Host, Report};
use refault_pool::serve::metrics::GroupFigures;
use serde_json::json;

/// Between two reports.
const EVERY: Duration = Duration::from_secs(10);
/// Reports whose usage is kept: an hour.
const KEPT: usize = 360;

/// See the module.
pub struct Watched(Mutex<State>);

struct State {
    host: Host,
    latest: Report,
    next: Instant,
    usage: HashMap<String, VecDeque<u64>>,
}

impl Watched {
    /// Begins to look.
    ///
    /// # Errors
    /// There are no memory cgroups.
    pub fn begin() -> io::Result<Watched> {
        let mut host = Host::open(&AGES)?;
        let latest = host.report();
        let state = State { host, latest, next: Instant::now(), usage: HashMap::new() };
        Ok(Watched(Mutex::new(state)))
    }

    /// Does what is due.
    pub fn tick(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.host.due() <= Instant::now() {
            // Without the right to look at processes there are figures all the same.
            let _ = state.host.step();
        }
        if state.next > Instant::now() {
            return;
        }
        state.next = Instant::now() + EVERY;
        let report = state.host.report();
        state.usage.retain(|path, _| report.groups.iter().any(|group| group.path == *path));
        for group in &report.groups {
            let usage = state.usage.entry(group.path.clone()).or_default();
            usage.push_back(group.figures.usage_bytes);
            if usage.len() > KEPT {
                usage.pop_front();
            }
        }
        state.latest = report;
    }

    /// The report and the last hour, as the page reads them.
    pub fn json(&self) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        json!({"report": state.latest, "usage": state.usage}).to_string()
    }

    /// The groups' figures for Prometheus.
    pub fn figures(&self) -> Vec<GroupFigures> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = |row: &refault_host::host::Row| GroupFigures {
            group: row.path.clone(),
            usage_bytes: row.figures.usage_bytes,
            working_set_bytes: row.working_sets.iter().rev().flatten().next().map(|set| set.bytes),
            high_bytes: row.proposal.map(|proposal| proposal.high_bytes),
            refaults: row.figures.stat.refaults,
            pressure: row.pressure,
        };
        state.latest.groups.iter().map(one).collect()
    }
}
