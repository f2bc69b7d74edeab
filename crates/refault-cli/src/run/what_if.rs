//! `refault run --what-if`: what other policies and sizes would miss, asked of the program while it runs.
//!
//! The agents look at a sample of the pages ([`super::looks`]), and *ghosts* replay its accesses in as small a part of
//! the memory ([`refault_core::miniature`]): some policies, each with half, once and twice the budget. Their answers are
//! those of a replay of the program's recording with the same time between two looks, and share its limits: a page
//! counts once per look, however often it is accessed between two, and accesses of what cannot be set aside are not
//! seen.
//!
//! Only policies are asked whose miniatures were measured to be within a point (docs/reference/statistics.md): those that work in
//! batches, or look for ranges, do not do the same in a memory that is smaller.
//!
//! Invariant: pages that are known are bounded; when there are more, all is counted anew, which is said. Cost: looks of at most
//! [`MAX_CPU`] of a processor, as far as agents can measure them (felt as 7 to 11 %); here nine replays, some hundreds of bytes per page of the sample, which the budget bears.

use std::collections::HashMap;

use refault_console::Failure;
use refault_core::PageId;
use refault_core::miniature::{Estimate, Miniatures, shift_for};
use refault_paging::PAGE;
use serde_json::{Map, Value, json};

use super::looks::{Looks, Sample};
use crate::launch::Launch;

/// Milliseconds between two looks, as `refault record` has them, and the share of one processor that they may cost.
const INTERVAL_MS: u64 = 200;
const MAX_CPU: f64 = 0.02;
/// See the module.
const POLICIES: [&str; 3] = ["lru", "clock", "s3fifo"];
/// At most one page in two: if all were looked at, faults would bring in nothing along with what was touched.
const MIN_SHIFT: u32 = 1;
/// Pages of the sample that are known before all is counted anew.
const MAX_KNOWN: usize = 1 << 18;

/// See the module.
pub(super) struct WhatIf {
    looks: Looks,
    ghosts: Ghosts,
}

impl WhatIf {
    /// Has the agents look, in a program that may use `budget_bytes`.
    ///
    /// # Errors
    /// A file cannot be had.
    pub(super) fn of(launch: &mut Launch, budget_bytes: u64) -> Result<WhatIf, Failure> {
        let ghosts = Ghosts::new(budget_bytes / PAGE as u64);
        let sample = Sample { shift: ghosts.shift, interval_ms: INTERVAL_MS, most_cpu: MAX_CPU };
        Ok(WhatIf { looks: Looks::of(launch, sample)?, ghosts })
    }

    /// Takes up what agents have said since the last call.
    pub(super) fn look(&mut self) {
        let ghosts = &mut self.ghosts;
        self.looks.take(|piece| {
            ghosts.begin_look(piece.end.saturating_sub(piece.begin));
            for (page, write) in piece.touches() {
                ghosts.accessed((piece.pid, piece.birth, page), write);
            }
        });
    }

    /// Adds the answers so far to a line of the statistics.
    pub(super) fn append(&self, line: &mut Map<String, Value>) {
        line.insert("would_miss".to_owned(), self.ghosts.answers());
        line.insert("sampled_one_page_in".to_owned(), (1u64 << self.ghosts.shift).into());
        line.insert("look_ms".to_owned(), self.ghosts.look_ms().into());
        line.insert("would_miss_restarts".to_owned(), self.ghosts.restarts.into());
    }
}

/// The replays, and the pages that they know.
struct Ghosts {
    memory_pages: [u64; 3],
    shift: u32,
    replays: Option<Miniatures>,
    /// By process, its birth and the page's number.
    known: HashMap<(u64, u64, u64), Known>,
    /// Looks so far, and the nanoseconds between them.
    looks: u64,
    looks_ns: u64,
    /// How often all was counted anew.
    restarts: u64,
}

struct Known {
    id: PageId,
    /// The look that saw it last.
    look: u64,
}

impl Ghosts {
    fn new(budget_pages: u64) -> Ghosts {
        let memory_pages = [budget_pages / 2, budget_pages, budget_pages * 2];
        let shift = shift_for(budget_pages).max(MIN_SHIFT);
        let known = HashMap::new();
        let mut ghosts = Ghosts { memory_pages, shift, replays: None, known, looks: 0, looks_ns: 0, restarts: 0 };
        ghosts.begin_anew();
        ghosts
    }

    fn begin_anew(&mut self) {
        self.known.clear();
        let pages = self.memory_pages.map(|pages| pages >> self.shift);
        // The sample is drawn already, so that of the miniatures is all of it.
        self.replays = Miniatures::of_mappings(&POLICIES, &pages, 0).ok();
    }

    /// What comes next was seen by one look, which lasted for `nanoseconds`.
    fn begin_look(&mut self, nanoseconds: u64) {
        self.looks += 1;
        self.looks_ns += nanoseconds;
    }

    /// Mean milliseconds between two looks.
    fn look_ms(&self) -> u64 {
        self.looks_ns.checked_div(self.looks).unwrap_or(0) / 1_000_000
    }

    fn accessed(&mut self, page: (u64, u64, u64), write: bool) {
        if self.known.len() >= MAX_KNOWN && !self.known.contains_key(&page) {
            self.begin_anew();
            self.restarts += 1;
        }
        let next = self.known.len() as PageId;
        let known = self.known.entry(page).or_insert(Known { id: next, look: 0 });
        // A page that went and came back between two looks is in there twice; a recording has it once.
        if std::mem::replace(&mut known.look, self.looks) == self.looks {
            return;
        }
        if let Some(replays) = &mut self.replays {
            replays.accessed(known.id, write);
        }
    }

    /// Policies first; pages of the sample stand for all.
    fn answers(&self) -> Value {
        let sizes = self.memory_pages.iter().cycle();
        let estimates = self.replays.iter().flat_map(Miniatures::estimates);
        let answer = |(estimate, pages): (Estimate<'_>, &u64)| {
            json!({
                "policy": estimate.policy,
                "memory_bytes": pages * PAGE as u64,
                "accesses": estimate.accesses << self.shift,
                "misses": estimate.misses << self.shift,
            })
        };
        estimates.zip(sizes).map(answer).collect::<Vec<_>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ghosts: &Ghosts, policy: &str, size: usize) -> [u64; 3] {
        let answers = ghosts.answers();
        let of = |answer: &&Value| answer["policy"] == policy;
        let answer = answers.as_array().expect("a list").iter().filter(of).nth(size).expect("a size");
        ["memory_bytes", "accesses", "misses"].map(|key| answer[key].as_u64().expect("a number"))
    }

    #[test]
    fn a_page_counts_once_a_look_and_stands_for_its_share() {
        // Half of 2 MiB, one page in two: 128 pages of the sample.
        let mut ghosts = Ghosts::new(512);
        assert_eq!((ghosts.shift, ghosts.look_ms()), (1, 0));
        for look in 0..3 {
            ghosts.begin_look(200_000_000 + look * 3_000_000);
            for page in (0..200).chain(0..200) {
                ghosts.accessed((7, 1, page), false);
            }
        }
        assert_eq!(ghosts.look_ms(), 203);
        // 200 pages in turn fit in 256 of the sample, and not in 128.
        assert_eq!(answer(&ghosts, "lru", 0), [1 << 20, 1200, 1200]);
        assert_eq!(answer(&ghosts, "lru", 1), [2 << 20, 1200, 400]);
        assert_eq!(answer(&ghosts, "s3fifo", 2), [4 << 20, 1200, 400]);
        // Another process has pages of its own.
        ghosts.accessed((8, 1, 0), false);
        assert_eq!(answer(&ghosts, "lru", 2), [4 << 20, 1202, 402]);
    }

    #[test]
    fn one_page_in_32_is_enough_for_a_large_budget() {
        assert_eq!([1 << 9, 1 << 14, 1 << 17, 1 << 24].map(|pages| Ghosts::new(pages).shift), [1, 2, 5, 5]);
    }
}
