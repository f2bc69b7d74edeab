//! What a run came to so far: the one set of figures that its last line, `--summary`, `--stats`, `top`, `report`, `size`
//! and a pool show.
//!
//! Names and meanings are those of [`refault_core::statistics`]. Cost: a look at each slot that is in use, and some
//! thousand counts.

use std::sync::atomic::{AtomicI64, Ordering};

use refault_console::text::grouped;
use refault_core::statistics;
use refault_lab::size::bytes_text;
use refault_paging::figures::SizeCounts;
use refault_paging::{PAGE, Shared};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::advice::Advice;
use super::backend::{Backend, Missing};

/// Counts of the program and its children together, from the start.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq)]
#[serde(default)]
pub struct Totals {
    /// What keeps the budget.
    pub backend: Backend,
    /// Figures that it does not count.
    #[serde(skip_serializing_if = "Missing::is_none")]
    pub missing: Missing,
    /// What is allowed now, in bytes.
    pub budget_bytes: u64,
    /// The most that was used: resident, compressed and the tool's own memory.
    pub peak_bytes: u64,
    /// The most that would have been used if nothing had been stored.
    pub peak_with_stored_bytes: u64,
    /// Faults served.
    pub faults: u64,
    /// Pages touched for the first time.
    pub first_touches: u64,
    /// Pages that were on their way out and were touched before they were stored.
    pub rescued: u64,
    /// Pages stored.
    pub stored: u64,
    /// Pages brought back from the stores.
    pub refaults: u64,
    /// Pages brought in ahead of sequences of faults.
    pub prefetched: u64,
    /// Pages that could not leave memory when they were to: pinned or without rights. A page counts each time.
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
    /// What the refaults say of the budget.
    pub advice: Advice,
    /// The budget under which 99 of 100 of the refaults would not have happened; none where `advice` says why.
    pub would_stop_refaulting_at_bytes: Option<u64>,
    /// Refaults that the advice rests on.
    pub followed_refaults: u64,
}

/// The most that a tree would have used if nothing had been stored, in bytes.
pub(super) fn most_bytes(shared: &Shared) -> u64 {
    let bytes = |pages: &AtomicI64| pages.load(Ordering::Relaxed).max(0) as u64 * PAGE as u64;
    bytes(&shared.most).max(bytes(&shared.peak))
}

impl Totals {
    /// The totals now.
    pub fn of(shared: &Shared) -> Totals {
        let bytes = |pages: &AtomicI64| pages.load(Ordering::Relaxed).max(0) as u64 * PAGE as u64;
        let (counts, times, needed) = (shared.statistics(), shared.times(), shared.needed().counts());
        let totals = Totals {
            budget_bytes: shared.limit_bytes(),
            peak_bytes: bytes(&shared.peak),
            peak_with_stored_bytes: most_bytes(shared),
            faults: counts.faults,
            first_touches: counts.first_touches,
            rescued: counts.rescued,
            stored: counts.stored,
            refaults: counts.read_back,
            prefetched: counts.prefetched,
            unmovable: counts.unmovable,
            lost: counts.lost,
            waited_seconds: counts.waited as f64 / 1e9,
            fault_p50_ns: times.quantile(0.5),
            fault_p99_ns: times.quantile(0.99),
            fault_max_ns: times.most(),
            ..Totals::default()
        };
        totals.advised(counts.read_back, &needed)
    }

    /// The same with the advice by these refaults, of which some were followed.
    pub(super) fn advised(self, refaults: u64, needed: &SizeCounts) -> Totals {
        let (advice, bytes) = Advice::of(refaults, needed, self.peak_with_stored_bytes);
        Totals { advice, would_stop_refaulting_at_bytes: bytes, followed_refaults: needed.count(), ..self }
    }

    /// Peak, counts and waiting in one line; what is not counted is left out. The peak is beside the largest budget,
    /// because a grant or a budget that was lowered later says nothing of it.
    pub fn line(&self, largest_budget: u64) -> String {
        let (peak, largest) = (bytes_text(self.peak_bytes), bytes_text(largest_budget.max(self.budget_bytes)));
        let budget = match largest_budget > self.budget_bytes {
            true => format!("{largest}, {} at the end", bytes_text(self.budget_bytes)),
            false => largest,
        };
        let parts = [
            (statistics::PEAK, format!("{} {peak} of {budget}", statistics::PEAK.word)),
            (statistics::FAULTS, format!("{} {}", grouped(self.faults), statistics::FAULTS.word)),
            (statistics::STORED, format!("{} pages {}", grouped(self.stored), statistics::STORED.word)),
            (statistics::REFAULTS, format!("{} {}", grouped(self.refaults), statistics::REFAULTS.word)),
            (statistics::WAITED, format!("{:.2} s {}", self.waited_seconds, statistics::WAITED.word)),
        ];
        let counted = parts.into_iter().filter(|(statistic, _)| !self.missing.has(statistic.name));
        counted.map(|(_, words)| words).collect::<Vec<_>>().join(", ")
    }

    /// As JSON, without what is not counted.
    pub fn to_json(self) -> Value {
        let mut json = serde_json::json!(self);
        self.missing.leave_out(&mut json);
        json
    }

    /// The advice in words.
    pub fn advice_text(&self) -> String {
        self.advice.text(self.would_stop_refaulting_at_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_a_statistic_of_a_run() {
        let json = serde_json::to_value(Totals::default()).expect("JSON");
        for name in json.as_object().expect("an object").keys() {
            let scope = statistics::find(name).unwrap_or_else(|| panic!("{name} is no statistic")).scope;
            assert!(matches!(scope, statistics::Scope::Run | statistics::Scope::Both), "{name}");
        }
    }

    #[test]
    fn a_line_has_each_figure_with_its_word() {
        let totals = Totals {
            budget_bytes: 24 << 20,
            peak_bytes: 23 << 20,
            faults: 12_345,
            stored: 2_000,
            refaults: 1_500,
            waited_seconds: 0.125,
            ..Totals::default()
        };
        let line = "peak 23 MiB of 24 MiB, 12,345 faults, 2,000 pages stored, 1,500 refaults, 0.12 s waited";
        assert_eq!((totals.line(0).as_str(), totals.advice_text()), (line, "advice: the budget is enough".to_owned()));
        assert_eq!(totals.line(24 << 20), totals.line(0));
    }

    #[test]
    fn a_peak_is_beside_the_largest_budget_and_not_beside_the_last_one() {
        let totals = Totals { budget_bytes: 20 << 20, peak_bytes: 30 << 20, ..Totals::default() };
        let line = totals.line(40 << 20);
        assert!(line.starts_with("peak 30 MiB of 40 MiB, 20 MiB at the end, 0 faults"), "{line}");
    }
}
