//! A policy as users write it, and what happens to it: any text is a policy or a named problem. A policy with any
//! parameters that are accepted evicts what is in memory, once, whatever is accessed, freed and forgotten.
#![no_main]

use refault_core::memory::{Eviction, References};
use refault_core::policy::registry::{PolicySpec, build};
use refault_core::policy::room::{MAX_FRUITLESS_CALLS, make_room};
use refault_core::policy::{Admission, DynPolicy, FrontEnd, HitReport, ReclaimRequest};
use refault_core::{Memory, PageId, PageType, Shadow};

const PAGES: usize = 512;

struct Pool {
    accessed: [bool; PAGES],
    resident: [bool; PAGES],
    residents: usize,
    shadows: [Option<Shadow>; PAGES],
}

impl Memory for Pool {
    fn take_references(&mut self, page: PageId) -> References {
        let accessed = std::mem::take(&mut self.accessed[page as usize]);
        References { mappings: u32::from(accessed), ..References::default() }
    }

    fn evict(&mut self, page: PageId, shadow: Shadow) -> Eviction {
        assert!(std::mem::take(&mut self.resident[page as usize]), "page {page} is evicted and was not there");
        self.residents -= 1;
        self.shadows[page as usize] = Some(shadow);
        Eviction::Freed { pages_written: 0 }
    }

    fn is_resident(&self, page: PageId) -> bool {
        self.resident[page as usize]
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.splitn(2, |byte| *byte == b'\n');
    let Some(Ok(text)) = lines.next().map(std::str::from_utf8) else { return };
    match PolicySpec::parse(text) {
        Ok(spec) => {
            let again = PolicySpec::parse(&spec.label).expect("what is accepted is written so that it is again");
            assert_eq!((again.label, again.call), (spec.label, spec.call));
        }
        Err(problem) => assert!(!problem.to_string().is_empty()),
    }
    if let Ok(mut policy) = build::<Pool>(text, FrontEnd::PageCache) {
        play(&mut *policy, lines.next().unwrap_or_default());
    }
});

/// The first byte is a capacity, each two bytes after it a page and what happens to it.
fn play(policy: &mut dyn DynPolicy<Pool>, bytes: &[u8]) {
    let Some((&first, events)) = bytes.split_first() else { return };
    let mut capacity = usize::from(first) + 1;
    let mut pool = Pool { accessed: [false; PAGES], resident: [false; PAGES], residents: 0, shadows: [None; PAGES] };
    policy.grow(PAGES);
    policy.set_capacity(capacity);
    for event in events.chunks_exact(2) {
        let page = PageId::from(event[0]) + PageId::from(event[1] & 1) * 256;
        let at = page as usize;
        match event[1] >> 1 {
            0 if pool.resident[at] => {
                policy.freed(page);
                (pool.resident[at], pool.accessed[at]) = (false, false);
                pool.residents -= 1;
            }
            1 if !pool.resident[at] => {
                policy.forgotten(page);
                pool.shadows[at] = None;
            }
            2 => {
                capacity = usize::from(event[0]) + 1;
                policy.set_capacity(capacity);
            }
            kind => access(page, if kind & 1 == 0 { PageType::Anon } else { PageType::File }, capacity, policy, &mut pool),
        }
    }
}

fn access(page: PageId, kind: PageType, capacity: usize, policy: &mut dyn DynPolicy<Pool>, pool: &mut Pool) {
    let at = page as usize;
    let missed = !pool.resident[at];
    if missed {
        if pool.residents >= capacity {
            let request = ReclaimRequest { target: 0, goal: policy.reclaim_batch(), incoming: Some(page) };
            let room = make_room(policy, &request, pool, MAX_FRUITLESS_CALLS, |pool| pool.residents < capacity);
            if !room.made {
                return;
            }
        }
        let shadow = pool.shadows[at].take();
        policy.admit(page, &Admission::read(kind).with_shadow(shadow), pool);
        pool.resident[at] = true;
        pool.residents += 1;
    }
    pool.accessed[at] = policy.hits() == HitReport::AccessedBit;
    if policy.hits() == HitReport::Kernel || (policy.hits() == HitReport::EachAccess && !missed) {
        policy.accessed(page, pool);
    }
}
