//! What happened in a run: the line at its end, and `--summary FILE`.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use refault_console::text::grouped;
use refault_lab::size::bytes_text;
use refault_paging::Shared;
use serde::{Deserialize, Serialize};

use super::advice::would_stop_refaulting_at;
use super::child::End;
use super::escaped::Escaped;
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
    /// What was allowed at the end.
    pub budget_bytes: u64,
    /// The most that was used: resident, compressed and the tool's own memory.
    pub peak_bytes: u64,
    /// Faults served.
    pub faults: u64,
    /// Pages touched for the first time.
    pub first_touches: u64,
    /// Pages that were on their way out and were touched before they were stored.
    pub rescued: u64,
    /// Pages stored.
    pub stored: u64,
    /// Pages brought back from the stores.
    pub read_back: u64,
    /// Pages brought in ahead of sequences of faults.
    pub prefetched: u64,
    /// Pages that could not leave memory when they were to: pinned or read-only. A page counts each time.
    pub unmovable: u64,
    /// Pages whose contents could not be brought back. Never but by a failing device.
    pub lost: u64,
    /// Seconds that threads waited for pages.
    pub waited_seconds: f64,
    /// Half of the faults took no longer, in nanoseconds.
    pub fault_p50_ns: u64,
    /// 99 of 100 faults took no longer.
    pub fault_p99_ns: u64,
    /// The longest.
    pub fault_max_ns: u64,
    /// The budget under which 99 of 100 of the run's refaults would not have happened; none where hardly any did.
    #[serde(default)]
    pub would_stop_refaulting_at_bytes: Option<u64>,
    /// Processes of the tree that go on after the program's end.
    pub left_running: u64,
    /// Programs that ran in the tree without being managed.
    #[serde(default)]
    pub unmanaged_programs: Vec<UnmanagedProgram>,
    /// How often programs were executed of which there were too many to name them.
    #[serde(default)]
    pub unmanaged_others: u32,
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
        escaped: Escaped,
    ) -> Summary {
        let load = |word: &std::sync::atomic::AtomicI64| {
            word.load(std::sync::atomic::Ordering::Relaxed).max(0) as u64 * refault_paging::PAGE as u64
        };
        let statistics = shared.statistics();
        let times = shared.times();
        let (unmanaged_programs, unmanaged_others) = unmanaged::all(shared);
        Summary {
            program: program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_code: end.status.code(),
            signal: end.status.signal(),
            seconds: ran.as_secs_f64(),
            user_seconds: end.user.as_secs_f64(),
            system_seconds: end.system.as_secs_f64(),
            budget_bytes: shared.limit_bytes(),
            peak_bytes: load(&shared.peak),
            faults: statistics.faults,
            first_touches: statistics.first_touches,
            rescued: statistics.rescued,
            stored: statistics.stored,
            read_back: statistics.read_back,
            prefetched: statistics.prefetched,
            unmovable: statistics.unmovable,
            lost: statistics.lost,
            waited_seconds: statistics.waited as f64 / 1e9,
            fault_p50_ns: times.quantile(0.5),
            fault_p99_ns: times.quantile(0.99),
            fault_max_ns: times.most(),
            would_stop_refaulting_at_bytes: would_stop_refaulting_at(
                shared.limit_bytes(),
                statistics.first_touches * refault_paging::PAGE as u64,
                &shared.distances().counts(),
            ),
            left_running: shared.living().count() as u64,
            unmanaged_programs,
            unmanaged_others,
            escaped,
        }
    }

    /// The lines that name what was not managed or not bounded.
    pub(super) fn warnings(&self) -> Vec<String> {
        let programs = unmanaged::line(&self.unmanaged_programs, self.unmanaged_others);
        programs.into_iter().chain(self.escaped.lines(self.budget_bytes)).collect()
    }

    /// In one line.
    pub fn line(&self) -> String {
        let left = match self.left_running {
            0 => String::new(),
            1 => "; one of its processes goes on".to_owned(),
            many => format!("; {many} of its processes go on"),
        };
        let advice = self
            .would_stop_refaulting_at_bytes
            .map_or(String::new(), |bytes| format!("; hardly any would have come back with {}", bytes_text(bytes)));
        format!(
            "peak {} of {}, {} faults, {} pages stored and {} brought back, {:.2} s waited{advice}{left}",
            bytes_text(self.peak_bytes),
            bytes_text(self.budget_bytes),
            grouped(self.faults),
            grouped(self.stored),
            grouped(self.read_back),
            self.waited_seconds
        )
    }
}
