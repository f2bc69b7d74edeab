//! Miss counts of the textbook policies on generated workloads, pinned. They need no files and run everywhere.
//!
//! The counts of the default variants were equal to libCacheSim 0.3.5's on the same sequences when they were pinned;
//! those of the paper's variants, of `lrfu`, which remembers evicted pages by their shadow entries, and of `adaptive`
//! are our own. Those of `adaptive` were pinned anew when its reuse distance became the longer of two.

use std::sync::Arc;

use refault_core::policy::registry::{BuildContext, PolicySpec};
use refault_core::textbook::NextUse;
use refault_sim::flat_memory::Swap;
use refault_sim::{Access, Layout, LayoutBuilder, Limits, named};
use refault_trace::Source;

/// A workload and its memory in pages; then misses in the order of [`POLICIES`].
const GOLDEN: &[(&str, usize, [u64; 16])] = &[
    (
        "zipf:theta=1.0,pages=4096,accesses=100000",
        400,
        [
            40799, 34739, 35918, 30964, 30181, 30035, 29284, 28923, 28899, 20758, 30015, 29306, 29269, 29626, 28004,
            27915,
        ],
    ),
    (
        "scanhot:pages=4096,hot=512,accesses=100000",
        1000,
        [
            41985, 27075, 29362, 26237, 25707, 22785, 23391, 25707, 23181, 22672, 22785, 25782, 24024, 25878, 23293,
            23423,
        ],
    ),
    (
        "hotcold:pages=4096,hot=512,phases=8,accesses=100000",
        700,
        [
            42961, 31446, 34221, 30837, 27194, 27999, 29672, 51498, 45574, 18539, 27999, 29709, 33983, 33997, 30464,
            30246,
        ],
    ),
    (
        "cyclic:pages=1000,accesses=50000",
        900,
        [50000, 50000, 50000, 10562, 50000, 6341, 18046, 50000, 10161, 5900, 6341, 11310, 11680, 50000, 6506, 7603],
    ),
];

const POLICIES: [&str; 16] = [
    "fifo",
    "clock",
    "lru",
    "2q",
    "arc",
    "lirs",
    "s3fifo",
    "sieve",
    "wtinylfu",
    "opt",
    "lirs{variant=paper}",
    "s3fifo{variant=paper}",
    "wtinylfu{variant=paper}",
    "lrfu",
    "adaptive",
    "adaptive-mapped",
];

#[test]
fn misses_are_as_pinned() {
    let measured = GOLDEN.iter().map(|(workload, memory_pages, _)| {
        let (layout, accesses) = generate(workload);
        let misses = |index: usize| misses(POLICIES[index], &layout, &accesses, *memory_pages);
        (*workload, *memory_pages, std::array::from_fn(misses))
    });
    assert_eq!(measured.collect::<Vec<_>>(), GOLDEN, "{POLICIES:?}");
}

fn misses(policy: &str, layout: &Layout, accesses: &[Access], memory_pages: usize) -> u64 {
    let pages = accesses.iter().map(|access| access.page()).collect();
    let context = BuildContext {
        next_use: Some(Arc::new(NextUse::new(pages).expect("a short sequence"))),
        page_numbers: Some(layout.page_numbers().into()),
    };
    let spec = PolicySpec::parse(policy).expect("one of the registry");
    let mut replay = named::replay(&spec, &context, layout, Limits { memory_pages, swap: Swap::default() });
    replay.run(accesses);
    replay.outcome().misses
}

fn generate(workload: &str) -> (Layout, Vec<Access>) {
    let mut reader = Source::workload(workload.parse().expect("a valid workload")).open().expect("no file is read");
    let (mut entries, mut buffer) = (Vec::new(), Vec::new());
    loop {
        let block = reader.next_block(&mut buffer).expect("generating cannot fail");
        if block.is_empty() {
            break;
        }
        entries.extend_from_slice(block);
    }
    let mut builder = LayoutBuilder::new();
    builder.observe(&entries);
    let layout = builder.finish().expect("few pages");
    let mut accesses = Vec::new();
    layout.translate(&entries, &mut accesses);
    (layout, accesses)
}
