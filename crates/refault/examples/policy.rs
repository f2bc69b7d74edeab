//! A buffer pool that asks a policy which page to give up.
//!
//! `cargo run --example policy -- 'lirs{variant=paper}'` compares the policy named with `lru` on the same accesses: a
//! loop over a few more pages than fit, beside some hot ones.

use refault::memory::{Eviction, References};
use refault::policy::registry::build;
use refault::policy::room::{MAX_FRUITLESS_CALLS, make_room};
use refault::policy::{Admission, FrontEnd, HitReport, PolicyError, ReclaimRequest};
use refault::{DynPolicy, Memory, PageId, PageType, Shadow};

/// Pages of the file.
const PAGES: u32 = 2000;
/// Frames of the pool.
const FRAMES: usize = 500;

/// What reclaim must know of the pool's pages.
struct Pool {
    accessed: Vec<bool>,
    resident: Vec<bool>,
    residents: usize,
    shadows: Vec<Option<Shadow>>,
}

impl Memory for Pool {
    fn take_references(&mut self, page: PageId) -> References {
        let accessed = std::mem::take(&mut self.accessed[page as usize]);
        References { mappings: u32::from(accessed), ..References::default() }
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        self.resident[page as usize] = false;
        self.residents -= 1;
        self.shadows[page as usize] = Some(shadow);
        Eviction::Freed { pages_written: 0 }
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.resident[page as usize]
    }
}

/// One read of a page of the pool: true if it had to be brought in.
fn read(page: PageId, pool: &mut Pool, policy: &mut dyn DynPolicy<Pool>) -> bool {
    let missed = !pool.is_resident(page);
    if missed {
        if pool.residents >= FRAMES {
            let request = ReclaimRequest { target: 0, goal: policy.reclaim_batch(), incoming: Some(page) };
            let has_room = |pool: &Pool| pool.residents < FRAMES;
            let room = make_room(policy, &request, pool, MAX_FRUITLESS_CALLS, has_room);
            assert!(room.made, "every page of this pool can be evicted");
        }
        let shadow = pool.shadows[page as usize].take();
        policy.admit(page, &Admission::read(PageType::File).with_shadow(shadow), pool);
        pool.resident[page as usize] = true;
        pool.residents += 1;
    }
    // A pool sees each hit, so it can run every policy: some want to hear of hits, others look at the accessed bit.
    pool.accessed[page as usize] = policy.hits() == HitReport::AccessedBit;
    if policy.hits() == HitReport::Kernel || (policy.hits() == HitReport::EachAccess && !missed) {
        policy.accessed(page, pool);
    }
    missed
}

/// The share of reads that miss under a policy.
fn miss_ratio(name: &str) -> Result<f64, PolicyError> {
    let pages = PAGES as usize;
    let mut pool =
        Pool { accessed: vec![false; pages], resident: vec![false; pages], residents: 0, shadows: vec![None; pages] };
    let mut policy = build::<Pool>(name, FrontEnd::PageCache)?;
    policy.grow(pages);
    policy.set_capacity(FRAMES);
    let (mut reads, mut misses) = (0, 0);
    for step in 0..200_000 {
        let page = if step % 2 == 0 { step / 2 % 600 } else { 600 + step * 7919 % 100 };
        reads += 1;
        misses += u32::from(read(page, &mut pool, &mut *policy));
    }
    Ok(f64::from(misses) / f64::from(reads))
}

fn main() -> Result<(), PolicyError> {
    let named = std::env::args().nth(1).unwrap_or_else(|| "lirs".into());
    for policy in ["lru", &named] {
        println!("{policy:24} {:6.2} % of reads miss", 100.0 * miss_ratio(policy)?);
    }
    Ok(())
}
