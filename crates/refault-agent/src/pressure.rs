//! Pressure as people read it: shares of the last 10, 60 and 300 seconds, and totals, for *some* and *full*
//! (spec: overview §7).
//!
//! *Some* is the pager's clock. *Full* is the part of it in which no thread of the program could run: at each look that
//! finds a thread waiting, the states of all threads are read; the share of looks that find none running, times some, is
//! added. Averages decay every two seconds as the kernel's.

use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(2);
const WINDOWS: [f64; 3] = [10.0, 60.0, 300.0];

pub(crate) struct Pressure {
    looks: u64,
    full_looks: u64,
    /// Some and full, µs, as of the last look at the totals.
    totals: [u64; 2],
    folded: [u64; 2],
    folded_at: Instant,
    averages: [[f64; 3]; 2],
}

impl Pressure {
    pub(crate) fn new() -> Pressure {
        Pressure {
            looks: 0,
            full_looks: 0,
            totals: [0; 2],
            folded: [0; 2],
            folded_at: Instant::now(),
            averages: [[0.0; 3]; 2],
        }
    }

    /// A look that found a thread waiting for memory.
    pub(crate) fn saw_stall(&mut self, nobody_runs: bool) {
        self.looks += 1;
        self.full_looks += u64::from(nobody_runs);
    }

    /// Takes the pager's clock over, and folds the averages when it is time.
    pub(crate) fn update(&mut self, some_us: u64, now: Instant) {
        let added = some_us.saturating_sub(self.totals[0]);
        self.totals[0] = some_us;
        self.totals[1] += (added * self.full_looks).checked_div(self.looks).unwrap_or(0);
        if added > 0 {
            (self.looks, self.full_looks) = (0, 0);
        }
        let period = now.saturating_duration_since(self.folded_at);
        if period < PERIOD {
            return;
        }
        self.folded_at = now;
        for kind in 0..2 {
            let waited = self.totals[kind] - self.folded[kind];
            self.folded[kind] = self.totals[kind];
            let percent = (waited as f64 / period.as_micros() as f64 * 100.0).min(100.0);
            for (average, window) in self.averages[kind].iter_mut().zip(WINDOWS) {
                let kept = (-period.as_secs_f64() / window).exp();
                *average = *average * kept + percent * (1.0 - kept);
            }
        }
    }

    /// `{"some":{"avg10":…,"avg60":…,"avg300":…,"total_us":…},"full":{…}}`.
    pub(crate) fn json(&self) -> String {
        let line = |kind: usize| {
            let [a, b, c] = self.averages[kind];
            format!("{{\"avg10\":{a:.2},\"avg60\":{b:.2},\"avg300\":{c:.2},\"total_us\":{}}}", self.totals[kind])
        };
        format!("{{\"some\":{},\"full\":{}}}", line(0), line(1))
    }
}

/// Whether no thread of the program is running or ready to. Threads of the agent do not count.
pub(crate) fn nobody_runs() -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    let state = |stat: &[u8]| {
        let open = stat.iter().position(|byte| *byte == b'(')?;
        let close = stat.iter().rposition(|byte| *byte == b')')?;
        (!stat[open + 1..close].starts_with(b"refault-")).then(|| stat.get(close + 2).copied()).flatten()
    };
    !tasks.flatten().any(|task| std::fs::read(task.path().join("stat")).is_ok_and(|stat| state(&stat) == Some(b'R')))
}
