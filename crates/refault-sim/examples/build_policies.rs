//! The build in a loop under every kernel policy: the table of `docs/policies/freebsd.md`.
//!
//! `cargo run --release -p refault-sim --example build_policies`

use refault_core::frames::FreePools;
use refault_sim::freepool::{Options, build_under};

const COLUMNS: [&str; 10] = [
    "policy",
    "evicted pages",
    "pages read",
    "swapped out",
    "examined",
    "reactivated",
    "stall, s",
    "elapsed, s",
    "free block, pages",
    "unusable, order 4",
];

fn main() {
    let options = Options::default();
    println!("| {} |\n{}|", COLUMNS.join(" | "), "|---".repeat(COLUMNS.len()));
    for policy in ["freebsd", "classic", "classic-shadow", "mglru", "mglru-refault"] {
        for (kept, pools) in [
            ("gone", None),
            ("findable, shared pools", Some(FreePools::TWO)),
            ("findable, own pool", Some(FreePools::THREE)),
        ] {
            let Some(f) = build_under(policy, pools, &options) else { continue };
            println!(
                "| `{policy}` | {kept} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {:.2} |",
                f.pages_read,
                f.swap_pages_out,
                f.examined,
                f.reactivated,
                f.stall,
                f.elapsed,
                f.free_block_mean,
                f.unusable_free_index
            );
        }
    }
}
