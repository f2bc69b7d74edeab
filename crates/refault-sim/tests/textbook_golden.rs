//! Miss counts of the textbook policies on generated workloads, pinned. They need no files and run everywhere.
//!
//! The counts of the default variants were equal to libCacheSim 0.3.5's on the same sequences when they were pinned;
//! those of the paper's variants, of `lrfu`, which remembers evicted pages by their shadow entries, and of `adaptive`
//! are our own.

use refault_core::textbook::{
    Arc, Clock, Fifo, Lirs, LirsParams, LirsVariant, Lrfu, Lru, NextUse, Opt, S3Fifo, S3FifoParams, S3FifoVariant,
    Sieve, TwoQueue, WTinyLfu, WTinyLfuParams, WTinyLfuVariant,
};
use refault_core::{Adaptive, AdaptiveMapped, Policy};
use refault_sim::flat_memory::Swap;
use refault_sim::{Access, Layout, LayoutBuilder, Limits, Replay};
use refault_trace::Source;

/// A workload and its memory in pages; then misses in the order of [`POLICIES`].
const GOLDEN: &[(&str, usize, [u64; 16])] = &[
    (
        "zipf:theta=1.0,pages=4096,accesses=100000",
        400,
        [
            40799, 34739, 35918, 30964, 30181, 30035, 29284, 28923, 28899, 20758, 30015, 29306, 29269, 29626, 27924,
            27881,
        ],
    ),
    (
        "scanhot:pages=4096,hot=512,accesses=100000",
        1000,
        [
            41985, 27075, 29362, 26237, 25707, 22785, 23391, 25707, 23181, 22672, 22785, 25782, 24024, 25878, 23275,
            23383,
        ],
    ),
    (
        "hotcold:pages=4096,hot=512,phases=8,accesses=100000",
        700,
        [
            42961, 31446, 34221, 30837, 27194, 27999, 29672, 51498, 45574, 18539, 27999, 29709, 33983, 33997, 28481,
            28470,
        ],
    ),
    (
        "cyclic:pages=1000,accesses=50000",
        900,
        [50000, 50000, 50000, 10562, 50000, 6341, 18046, 50000, 10161, 5900, 6341, 11310, 11680, 50000, 6520, 9211],
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
    fn run<P: Policy>(policy: P, layout: &Layout, accesses: &[Access], memory_pages: usize) -> u64 {
        let mut replay = Replay::new(layout, policy, Limits { memory_pages, swap: Swap::default() });
        replay.run(accesses);
        replay.outcome().misses
    }
    macro_rules! run {
        ($policy:expr) => {
            run($policy, layout, accesses, memory_pages)
        };
    }
    match policy {
        "fifo" => run!(Fifo::default()),
        "clock" => run!(Clock::default()),
        "lru" => run!(Lru::default()),
        "2q" => run!(TwoQueue::default()),
        "arc" => run!(Arc::default()),
        "lirs" => run!(Lirs::default()),
        "s3fifo" => run!(S3Fifo::default()),
        "sieve" => run!(Sieve::default()),
        "lrfu" => run!(Lrfu::default()),
        "adaptive" => run!(Adaptive::<false>::default()),
        "adaptive-mapped" => run!(AdaptiveMapped::default()),
        "wtinylfu" => run!(WTinyLfu::default().with_keys(layout.page_numbers().into())),
        "opt" => {
            let pages = accesses.iter().map(|access| access.page()).collect();
            run!(Opt::new(std::sync::Arc::new(NextUse::new(pages).expect("a short sequence"))))
        }
        "lirs{variant=paper}" => run!(Lirs::new(LirsParams { variant: LirsVariant::Paper, ..LirsParams::default() })),
        "s3fifo{variant=paper}" => {
            run!(S3Fifo::new(S3FifoParams { variant: S3FifoVariant::Paper, ..S3FifoParams::default() }))
        }
        "wtinylfu{variant=paper}" => {
            let params = WTinyLfuParams { variant: WTinyLfuVariant::Paper, ..WTinyLfuParams::default() };
            run!(WTinyLfu::new(params).with_keys(layout.page_numbers().into()))
        }
        _ => unreachable!("one of POLICIES"),
    }
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
