//! "A result on a trace carries over" for regions: the same accesses through the replay and through a live [`Region`]
//! make the same faults, victims and counters, access by access. This holds for every policy that both run.
//!
//! The region is the one that users have: userfaultfd, real pages, a compressed store, contents checked at each read.
//! Accesses are noted after each one ([`AccessSource::Exact`]), so that accessed bits are exact; faults are served in
//! the thread that makes the accesses, and nothing is evicted ahead or brought in along.

use std::sync::Mutex;

use refault::policy::registry::{self, BuildContext, FrontEnd, PolicySpec};
use refault::region::{AccessSource, Budget, FaultMode, Pager, PagerOptions};
use refault::sim::flat_memory::Swap;
use refault::sim::{LayoutBuilder, Limits, named};
use refault::trace::{Entry, Kind};
use refault_testing::Random;

const PAGE: usize = 4096;
/// Whole 2 MiB regions, so that windows and walks end where the replay's do.
const PAGES: usize = 2048;
const CAPACITY: usize = 700;

/// All pages once, in order, so that numbers are addresses; then hot pages, cold pages, phases and a scan that does not
/// fit, again and again.
fn accesses() -> Vec<(usize, bool)> {
    let mut random = Random::new(5);
    let mut random = |below| random.index(below);
    let mut accesses: Vec<(usize, bool)> = (0..PAGES).map(|page| (page, true)).collect();
    for phase in 0..2 {
        for _ in 0..3000 {
            let page = match random(4) {
                0 => random(PAGES),
                1 => phase * 500 + random(400),
                _ => phase * 900 + random(100),
            };
            accesses.push((page, random(3) == 0));
        }
        accesses.extend((0..5000).map(|n| (300 + n % 1000, false)));
    }
    accesses
}

/// Reads the first word of a page, or writes it.
fn access(at: *mut u64, write: Option<u64>) -> u64 {
    // SAFETY: a word of the region, which this thread alone uses; volatile, so that it is accessed once and here.
    unsafe {
        match write {
            Some(value) => at.write_volatile(value),
            None => return at.read_volatile(),
        }
    }
    write.expect("it was written")
}

/// A bit for each page of the region that is in memory.
fn resident(base: *mut u64) -> Vec<bool> {
    let mut pages = vec![0u8; PAGES];
    // SAFETY: asks about the region's own range and writes a byte per page.
    let error = unsafe { libc::mincore(base.cast(), PAGES * PAGE, pages.as_mut_ptr()) };
    assert_eq!(error, 0);
    pages.iter().map(|page| page & 1 != 0).collect()
}

fn follow(spec: &PolicySpec) {
    let accesses = accesses();
    let entries: Vec<Entry> =
        accesses.iter().map(|(page, write)| Entry::new(*page as u64, Kind::Anon, *write)).collect();
    let mut builder = LayoutBuilder::new();
    builder.observe(&entries);
    let layout = builder.finish().expect("few pages");
    let mut block = Vec::new();
    layout.translate(&entries, &mut block);
    let limits = Limits { memory_pages: CAPACITY, swap: Swap::default() };
    let mut replay = named::replay(spec, &BuildContext::default(), &layout, limits);

    let options = PagerOptions {
        policy: spec.label.clone(),
        address_space: 64 << 20,
        fault_mode: FaultMode::InThread,
        access_source: AccessSource::Exact,
        demote_after: None,
        bring_successors: false,
        ..PagerOptions::default()
    };
    let pager = Pager::new(Budget::new((CAPACITY * PAGE) as u64), options).expect("a pager");
    let mut region = pager.region(PAGES * PAGE).expect("a region");
    let base: *mut u64 = region.as_mut_ptr().cast();
    let mut written = vec![0; PAGES];
    let faults = |pager: &Pager| {
        let report = pager.report();
        report.zero_fills + report.counters.pswpin
    };
    let mut served = 0;
    for (number, (one, (page, write))) in block.iter().zip(&accesses).enumerate() {
        let what = format!("{} at access {number}, page {page}", spec.label);
        let misses = replay.outcome().misses;
        replay.run(std::slice::from_ref(one));
        let value = write.then_some(number as u64 + 1);
        written[*page] = value.unwrap_or(written[*page]);
        // SAFETY: a page of the region.
        let read = access(unsafe { base.add(page * PAGE / 8) }, value);
        pager.note_accesses();
        assert_eq!(read, written[*page], "contents: {what}");
        let missed = replay.outcome().misses - misses;
        let before = std::mem::replace(&mut served, faults(&pager));
        assert_eq!(served - before, missed, "a fault or none: {what}");
        if missed > 0 {
            let wanted: Vec<bool> = (0..PAGES as u32).map(|page| replay.memory().is_resident(page)).collect();
            let found = resident(base);
            let differ = || (0..PAGES).filter(|page| found[*page] != wanted[*page]).map(|page| (page, found[page]));
            assert!(
                found == wanted,
                "pages in memory: {what}; others than in the replay: {:?}",
                Vec::from_iter(differ())
            );
        }
    }
    let (outcome, report) = (replay.outcome(), pager.report());
    assert!(outcome.misses > 3000, "{}: the test must evict", spec.label);
    assert_eq!(report.direct_reclaims, outcome.counters.limit_hits, "{}", spec.label);
    let counted = refault::Counters { limit_hits: outcome.counters.limit_hits, ..report.counters };
    assert_eq!(counted, outcome.counters, "{}", spec.label);
}

#[test]
fn replay_and_region_agree_on_faults_victims_and_counters() {
    if let Err(error) = refault::region::probe::Capabilities::probe().userfaultfd {
        return refault_testing::skip_required(format_args!("no userfaultfd here: {error}"));
    }
    let defaults = registry::all(FrontEnd::Pager);
    let cyclic = ["mglru{cyclic=yes}", "fifo{cyclic=yes}", "lrfu{cyclic=yes}"];
    let cyclic = cyclic.map(|text| PolicySpec::parse_for(text, FrontEnd::Pager).expect("known"));
    // Two policies at a time, each with a pager, a region and a thread of its own.
    let specs = Mutex::new(defaults.chain(cyclic));
    let next = || specs.lock().expect("nothing fails under this lock").next();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| std::iter::from_fn(next).for_each(|spec| follow(&spec)));
        }
    });
}
