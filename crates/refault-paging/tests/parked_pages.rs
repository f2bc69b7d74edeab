//! Pages that wait in the staging area come back whole, whether they are moved or copied, and count while they are
//! there.

use refault_linux::sys;
use refault_linux::uffd::Uffd;
use refault_paging::stores::Stores;
use refault_paging::{Account, Attributes, Engine, EngineOptions, Outcome, PAGE, Shared};

const PAGES: usize = 2000;
const LIMIT: usize = 1200;

/// What was done to an engine: pages that came back from the staging area, and those that were read back.
fn work(several_threads: bool) -> Option<(u64, u64)> {
    let before = managed_pages();
    let uffd = Uffd::open().ok()?;
    // SAFETY: a fresh mapping of atomics, for which zeros are values; it is never given up.
    let shared: &Shared = unsafe { &*(sys::map(Shared::BYTES) as *const Shared) };
    shared.set_limit((LIMIT * PAGE) as u64);
    // SAFETY: the segment stays mapped.
    let account = unsafe { Account::join(shared, None) };
    let store = Stores::new(1 << 30, shared.limit_bytes(), None, 0).ok()?;
    let options = EngineOptions { policy: "fifo".into(), store, account, resident_only: false };
    let mut engine = Engine::new(uffd, options, || 0).ok()?;
    engine.threads(several_threads);
    let start = sys::map(PAGES * PAGE);
    assert!(engine.manage(start, PAGES * PAGE, Attributes { protection: 3, ..Attributes::default() }));
    let word = |page: usize| (start + page * PAGE + 8 * (page % 512)) as *mut usize;
    let mut versions = vec![0; PAGES];
    let mut state = 1_usize;
    for access in 0..40_000 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // Half of the accesses go to a tenth of the pages.
        let drawn = state >> 33;
        let page = if drawn.is_multiple_of(2) { drawn / 2 % (PAGES / 10) } else { drawn / 2 % PAGES };
        assert_eq!(engine.fault(word(page) as usize, true), Outcome::Served);
        // SAFETY: the page is there now, and only this test knows of it.
        unsafe {
            assert_eq!(*word(page), versions[page], "page {page} at access {access}");
            *word(page) = access;
        }
        versions[page] = access;
        assert!(engine.charge() <= LIMIT as u64, "{} pages at access {access}", engine.charge());
    }
    // What is counted is what there is: the program's pages and those of the staging area.
    let frames = engine.charge() as usize - engine.usage().pool_bytes as usize / PAGE;
    let there = managed_pages() - before;
    assert!(frames.abs_diff(there) <= 1, "{frames} counted, {there} there");
    Some((engine.statistics().rescued, engine.statistics().read_back))
}

/// Pages that there are in mappings that a userfaultfd watches.
fn managed_pages() -> usize {
    let mappings = std::fs::read_to_string("/proc/self/smaps").expect("reads");
    let mut resident = 0;
    let mut sum = 0;
    for line in mappings.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            resident = size.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024 / PAGE;
        } else if line.starts_with("VmFlags:") && line.contains(" um") {
            sum += resident;
        }
    }
    sum
}

#[test]
fn copied_and_moved_pages_come_back_the_same() {
    let (Some(moved), Some(copied)) = (work(false), work(true)) else {
        return refault_testing::skip_required("userfaultfd is refused");
    };
    assert!(moved.0 > 1000 && moved.1 > 1000, "{moved:?}");
    // Husks take the place of some pages, so the figures differ a little.
    assert!(copied.0 > 1000 && copied.1 > 1000, "{copied:?}");
}
