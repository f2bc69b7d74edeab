//! What happened in a run: the line at its end, and `--summary FILE`.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use refault_paging::Shared;
use serde::{Deserialize, Serialize};

use super::advice::Advice;
use super::child::End;
use super::escaped::Escaped;
use super::totals::Totals;
use super::unmanaged::{self, UnmanagedProgram};

/// One run. Counts are of the program and its children together, over the whole run.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Its exit code; none if a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// From its start to its end.
    pub seconds: f64,
    /// Processor time of it and of the children that it waited for, in the program.
    pub user_seconds: f64,
    /// The same in the kernel.
    pub system_seconds: f64,
    /// What it came to.
    #[serde(flatten)]
    pub totals: Totals,
    /// The largest budget, or grant, that it had.
    #[serde(default)]
    pub largest_budget_bytes: u64,
    /// Why this backend, if `refault run` has chosen it.
    #[serde(default)]
    pub backend_reason: String,
    /// Processes of the tree that go on after the program's end.
    pub left_running: u64,
    /// Programs that ran in the tree without being managed.
    #[serde(default)]
    pub unmanaged_programs: Vec<UnmanagedProgram>,
    /// How often programs were executed of which there were too many to name them.
    #[serde(default)]
    pub unmanaged_others: u32,
    /// Bytes, and the pages that would have come back with them, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<[u64; 2]>,
    /// What the budget did not bound.
    #[serde(default, flatten)]
    pub escaped: Escaped,
}

impl Summary {
    /// Of a program that has ended. What its processes counted is in the segment.
    pub(super) fn of(
        program: &[std::ffi::OsString],
        end: &End,
        ran: Duration,
        shared: &Shared,
        totals: Totals,
        escaped: Escaped,
    ) -> Summary {
        let (unmanaged_programs, unmanaged_others) = unmanaged::all(shared);
        let left_running = shared.living().count() as u64;
        let ended = Summary::ended(program, end, ran, totals);
        Summary { left_running, unmanaged_programs, unmanaged_others, escaped, ..ended }
    }

    /// Of a program that has ended, of which no more is known than these totals.
    pub(super) fn ended(program: &[std::ffi::OsString], end: &End, ran: Duration, totals: Totals) -> Summary {
        Summary {
            program: program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_code: end.status.code(),
            signal: end.status.signal(),
            seconds: ran.as_secs_f64(),
            user_seconds: end.user.as_secs_f64(),
            system_seconds: end.system.as_secs_f64(),
            largest_budget_bytes: totals.budget_bytes,
            totals,
            ..Summary::default()
        }
    }

    /// The lines that name what was not managed or not bounded.
    pub(super) fn warnings(&self) -> Vec<String> {
        let programs = unmanaged::line(&self.unmanaged_programs, self.unmanaged_others);
        let backend = (!self.backend_reason.is_empty()).then(|| self.backend_line());
        backend.into_iter().chain(programs).chain(self.escaped.lines(self.totals.budget_bytes)).collect()
    }

    /// What keeps the budget, and why; what it does not count.
    fn backend_line(&self) -> String {
        let missing = self.totals.missing.words();
        let missing = if missing.is_empty() { missing } else { format!("; not counted: {missing}") };
        format!("{} backend: {}{missing}", self.totals.backend.name(), self.backend_reason)
    }

    /// As JSON, without what the backend does not count.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!(self);
        self.totals.missing.leave_out(&mut json);
        json
    }

    /// In one line.
    pub fn line(&self) -> String {
        let left = match self.left_running {
            0 => String::new(),
            1 => "; one of its processes goes on".to_owned(),
            many => format!("; {many} of its processes go on"),
        };
        let advice = match self.totals.advice {
            Advice::Enough => String::new(),
            Advice::CannotBeTold | Advice::More => format!("; {}", self.totals.advice_text()),
        };
        format!("{}{advice}{left}", self.totals.line(self.largest_budget_bytes))
    }
}
