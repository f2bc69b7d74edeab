//! `refault run --pool NAME --observe`: which pages the program accesses, as far as a sample says.
//!
//! The agent sets a sample of the pages aside once per second and says which of them were touched ([`crate::record`]).
//! From that come *ghosts* and a heat map, by parts of the memory in the order of addresses. Ghosts are other policies
//! that run over the same accesses in as small a part of the memory ([`refault_core::miniature`]). They say how often
//! they would have missed for each miss of the program's own policy, run in the same way. That a page is accessed again
//! within a second is not seen by any of them.
//!
//! Invariant: what is kept is bounded. Cost: in the program 1 % of a processor, to which the agent keeps; here some
//! hundred bytes and a microsecond per page of the sample.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use refault_console::Failure;
use refault_core::PageId;
use refault_core::miniature::Miniatures;
use refault_core::policy::registry::{FrontEnd, PolicySpec};
use refault_pool::shared::ledger::MAX_PARTS;

use super::looks::{Looks, Sample};
use crate::launch::Launch;

/// Milliseconds between two looks of the agent, and the share of one processor that they may cost.
const INTERVAL_MS: u64 = 1000;
const MAX_CPU: f64 = 0.01;
/// Pages of the sample for each that the first grant has: the sample is about so large.
const SAMPLE_PAGES: u64 = 4096;
/// Policies that the program's own is compared with.
const OTHERS: [&str; 5] = ["lru", "clock", "classic", "mglru", "s3fifo"];
/// Misses within `WINDOW` are compared, at least `MIN_MISSES` of them.
const WINDOW: Duration = Duration::from_secs(60);
const MIN_MISSES: u64 = 50;
/// A page counts as accessed lately for this time after a look that lasted no longer than a second.
const LATELY_NS: u64 = 1_500_000_000;
/// A page that no thread touched for this time is no longer shown.
const FORGOTTEN_NS: u64 = 600_000_000_000;
/// Pages that are kept, and ids that are given out before all is begun anew.
const MAX_KNOWN: usize = 1 << 16;
const MAX_IDS: PageId = 1 << 18;

/// A page of the sample.
struct Seen {
    id: PageId,
    /// End of the interval in which it was touched last, monotonic nanoseconds.
    touched: u64,
}

/// See the module.
pub(super) struct Observed {
    looks: Looks,
    ghosts: Ghosts,
    /// By process, its birth and the page's number.
    known: BTreeMap<(u64, u64, u64), Seen>,
    /// End of the last interval that was heard of.
    now: u64,
}

impl Observed {
    /// Has the agents look, in a program that may use `grant_pages` at first.
    ///
    /// # Errors
    /// A file cannot be had.
    pub(super) fn of(launch: &mut Launch, policy: &str, grant_pages: u64) -> Result<Observed, Failure> {
        // At most one page in eight: the others are to cost nothing.
        let shift = (3..24).find(|shift| grant_pages >> shift <= SAMPLE_PAGES).unwrap_or(24);
        let looks = Looks::of(launch, Sample { shift, interval_ms: INTERVAL_MS, most_cpu: MAX_CPU })?;
        let (known, ghosts) = (BTreeMap::new(), Ghosts::new(policy, grant_pages, shift));
        Ok(Observed { looks, ghosts, known, now: 0 })
    }

    /// Takes up what agents have said since the last call. The program has `resident_pages` in memory.
    pub(super) fn look(&mut self, resident_pages: u64) {
        let Observed { looks, ghosts, known, now } = self;
        ghosts.set_memory(resident_pages);
        let came = looks.take(|piece| {
            *now = piece.end.max(*now);
            for (page, write) in piece.touches() {
                let key = (piece.pid, piece.birth, page);
                let seen = known.entry(key).or_insert_with(|| Seen { id: ghosts.new_id(), touched: 0 });
                seen.touched = piece.end;
                ghosts.accessed(seen.id, write);
            }
        });
        if came {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let since = self.now.saturating_sub(FORGOTTEN_NS);
        self.known.retain(|_, seen| seen.touched >= since);
        if self.known.len() > MAX_KNOWN || self.ghosts.ids > MAX_IDS {
            self.known.clear();
            self.ghosts.begin_anew();
        }
    }

    /// By parts of the memory that was accessed in the last minutes, in the order of addresses: how many of 100 pages
    /// were accessed lately.
    pub(super) fn heat(&self) -> Vec<u8> {
        let touched: Vec<u64> = self.known.values().map(|seen| seen.touched).collect();
        heat(&touched, self.now)
    }

    /// See [`Ghosts::compare`].
    pub(super) fn policies(&mut self) -> Vec<(String, f64)> {
        self.ghosts.compare(Instant::now())
    }
}

/// [`Observed::heat`] of pages in the order of addresses, by when they were touched.
fn heat(touched: &[u64], now: u64) -> Vec<u8> {
    let parts = touched.len().min(MAX_PARTS);
    (0..parts)
        .map(|part| {
            let pages = &touched[part * touched.len() / parts..(part + 1) * touched.len() / parts];
            let lately = pages.iter().filter(|touched| now - **touched < LATELY_NS).count();
            (lately * 100 / pages.len()) as u8
        })
        .collect()
}

/// Other policies over the same accesses.
struct Ghosts {
    /// The program's own policy first; none if it cannot be run so.
    miniatures: Option<Miniatures>,
    names: Vec<String>,
    shift: u32,
    /// Pages of the memory that the policies have, all pages counted.
    memory_pages: u64,
    ids: PageId,
    /// Misses of each policy at earlier moments, oldest first.
    earlier: VecDeque<(Instant, Vec<u64>)>,
}

impl Ghosts {
    fn new(policy: &str, memory_pages: u64, shift: u32) -> Ghosts {
        let can_run = |name: &&str| PolicySpec::parse_for(name, FrontEnd::PageCache).is_ok();
        let others = OTHERS.iter().copied().filter(|name| *name != policy).filter(can_run);
        let names: Vec<String> = std::iter::once(policy).filter(can_run).chain(others).map(str::to_owned).collect();
        let names = if names.first().is_some_and(|name| name == policy) { names } else { Vec::new() };
        let mut ghosts = Ghosts { miniatures: None, names, shift, memory_pages, ids: 0, earlier: VecDeque::new() };
        ghosts.begin_anew();
        ghosts
    }

    fn begin_anew(&mut self) {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        (self.ids, self.miniatures) = (0, None);
        self.earlier.clear();
        if !names.is_empty() {
            // The sample is drawn already, so that of the miniatures is all of it.
            self.miniatures = Miniatures::new(&names, &[(self.memory_pages >> self.shift).max(1)], 0).ok();
        }
    }

    fn new_id(&mut self) -> PageId {
        self.ids += 1;
        self.ids - 1
    }

    fn accessed(&mut self, id: PageId, write: bool) {
        if let Some(miniatures) = &mut self.miniatures {
            miniatures.accessed(id, write);
        }
    }

    /// They have what the program has, as it changes by more than a sixteenth.
    fn set_memory(&mut self, pages: u64) {
        if pages.abs_diff(self.memory_pages) > self.memory_pages / 16 {
            self.memory_pages = pages;
            if let Some(miniatures) = &mut self.miniatures {
                miniatures.set_memory((pages >> self.shift).max(1));
            }
        }
    }

    /// Other policies, and how often each would have missed in the last minute for each miss of the program's own.
    fn compare(&mut self, now: Instant) -> Vec<(String, f64)> {
        let Some(miniatures) = &self.miniatures else { return Vec::new() };
        let misses: Vec<u64> = miniatures.estimates().map(|estimate| estimate.misses).collect();
        while self.earlier.len() > 1 && now - self.earlier[1].0 >= WINDOW {
            self.earlier.pop_front();
        }
        if self.earlier.back().is_none_or(|(last, _)| now - *last >= WINDOW / 12) {
            self.earlier.push_back((now, misses.clone()));
        }
        let Some((_, before)) = self.earlier.front() else { return Vec::new() };
        let since: Vec<u64> = misses.iter().zip(before).map(|(now, before)| now - before).collect();
        if since[0] < MIN_MISSES {
            return Vec::new();
        }
        let times = |misses: u64| (misses as f64 / since[0] as f64 * 1000.0).round() / 1000.0;
        self.names.iter().zip(&since).skip(1).map(|(name, misses)| (name.clone(), times(*misses))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_is_the_share_of_pages_that_were_touched_lately() {
        assert!(heat(&[], 5).is_empty());
        assert_eq!(heat(&[10, 0], 10 + LATELY_NS - 1), [100, 0]);
        let touched: Vec<u64> =
            (0..4800).map(|page| if page < 2400 && page % 2 == 0 { LATELY_NS } else { 0 }).collect();
        let made = heat(&touched, LATELY_NS);
        assert_eq!((made.len(), made[0], made[23], made[24]), (MAX_PARTS, 50, 50, 0));
    }

    #[test]
    fn a_loop_that_is_larger_than_memory_is_worse_for_lru_than_for_one_that_keeps_what_it_has() {
        let mut ghosts = Ghosts::new("mglru", 4000, 1);
        let begun = Instant::now();
        assert!(ghosts.compare(begun).is_empty());
        let ids: Vec<PageId> = (0..2500).map(|_| ghosts.new_id()).collect();
        for _ in 0..20 {
            ids.iter().for_each(|id| ghosts.accessed(*id, false));
        }
        let compared = ghosts.compare(begun + WINDOW / 2);
        let names: Vec<&str> = compared.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["lru", "clock", "classic", "s3fifo"]);
        // LRU misses each time; none misses more often than that.
        let own = ghosts.miniatures.as_ref().expect("runs").estimates().next().expect("its own").misses;
        assert!((compared[0].1 - 50_000.0 / own as f64).abs() < 0.01, "{compared:?} of {own}");
        // Two minutes later all of that is long ago.
        ghosts.compare(begun + WINDOW * 2);
        assert!(ghosts.compare(begun + WINDOW * 4).is_empty());
        ghosts.set_memory(6000);
        ids.iter().chain(&ids).for_each(|id| ghosts.accessed(*id, false));
        ghosts.begin_anew();
        assert_eq!((ghosts.ids, ghosts.compare(begun + WINDOW * 4)), (0, Vec::new()));
    }
}
