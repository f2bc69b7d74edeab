//! What came in and is not there any more was evicted, and counted: for every policy, pages that missed equal pages
//! that are resident and pages stolen. A compiler that loses one count is found out as well.

use refault_core::policy::registry::{BuildContext, Fact, FrontEnd, all};
use refault_core::textbook::NextUse;
use refault_sim::flat_memory::Swap;
use refault_sim::{LayoutBuilder, Limits, named};
use refault_trace::Source;

const MEMORY_PAGES: usize = 195;

#[test]
fn pages_that_missed_are_resident_or_stolen() {
    for kind in ["anon", "fd", "mapped"] {
        let spec = format!("zipf:theta=1,pages=2000,accesses=40000,kind={kind}");
        let mut reader = Source::workload(spec.parse().expect("a workload")).open().expect("generators open");
        let entries = reader.read_to_end().expect("generators do not fail");
        let mut builder = LayoutBuilder::new();
        builder.observe(&entries);
        let layout = builder.finish().expect("a small trace");
        let mut accesses = Vec::new();
        layout.translate(&entries, &mut accesses);
        let pages = accesses.iter().map(|access| access.page()).collect();
        let next_use = Some(NextUse::new(pages).expect("fewer than 2^32 accesses").into());
        for spec in all(FrontEnd::Replay) {
            let context = BuildContext { next_use: next_use.clone(), page_numbers: None };
            let limits = Limits { memory_pages: MEMORY_PAGES, swap: Swap::default() };
            let mut replay = named::replay(&spec, &context, &layout, limits);
            replay.run(&accesses);
            let outcome = replay.outcome();
            let counters = outcome.counters;
            // A page that came back from a free frame came in without a miss.
            let came_in = outcome.misses - counters.bypassed + counters.pages_reactivated;
            assert_eq!(came_in, outcome.resident as u64 + counters.pgsteal, "{} {kind}", spec.label);
            let by_type = counters.pgsteal_anon + counters.pgsteal_file;
            assert!(by_type == 0 || by_type == counters.pgsteal, "{} {kind}", spec.label);
            assert!(outcome.resident <= MEMORY_PAGES || spec.entry.is(Fact::OwnTargets), "{} {kind}", spec.label);
            assert!(counters.pgscan >= counters.pgsteal, "{} {kind}", spec.label);
        }
    }
}
