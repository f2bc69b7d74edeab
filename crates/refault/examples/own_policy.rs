//! A policy of one's own, from outside the crate: the page that came in last goes first.
//!
//! `cargo run --release --example own_policy` replays it beside `lru` over a loop that is larger than memory, where
//! keeping what is old is right.

use refault::lab::{
    own::replay,
    policies::parse_policies,
    sweep::{Sweep, sweep},
};
use refault::memory::Eviction;
use refault::policy::{Admission, HitReport, ReclaimRequest};
use refault::trace::Source;
use refault::{Counters, Memory, PageId, Policy, Shadow};

/// Evicts the youngest page.
#[derive(Default)]
struct Newest {
    pages: Vec<PageId>,
}

impl Policy for Newest {
    const HITS: HitReport = HitReport::Never;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.pages.push(page);
    }

    fn freed(&mut self, page: PageId) {
        self.pages.retain(|known| *known != page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        for at in (0..self.pages.len()).rev() {
            if freed < request.goal && matches!(memory.evict(self.pages[at], Shadow::NONE), Eviction::Freed { .. }) {
                self.pages.remove(at);
                freed += 1;
            }
        }
        freed
    }

    fn grow(&mut self, _pages: usize) {}

    fn counters(&self) -> Counters {
        Counters::default()
    }

    fn metadata_bytes(&self) -> usize {
        self.pages.capacity() * size_of::<PageId>()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Source::workload("cyclic:pages=1000,accesses=20000".parse()?);
    let plan = Sweep::new(parse_policies(&["lru".into()])?, vec!["50%".parse()?]);
    let lru = sweep(&source, &plan, &())?.runs[0].outcome.misses;
    let own = replay(&source, "50%".parse()?, Newest::default())?.misses;
    println!("lru misses {lru} times, newest {own} times");
    Ok(())
}
