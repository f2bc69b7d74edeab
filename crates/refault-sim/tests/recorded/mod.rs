//! What the tests against recordings of real kernels share: which counters are compared, and the accesses that the
//! kernels saw.

mod counters;

use std::ops::Range;

use refault_core::PageType;
use refault_sim::{Access, Layout, LayoutBuilder};
use refault_trace::{Source, WorkloadSpec};

pub use counters::compared;

/// The accesses of a workload as the kernels' tables write it, and a layout in which at least `covered` is mapped.
pub fn accesses(arguments: &str, covered: &[(PageType, Range<u64>)]) -> (Layout, Vec<Access>) {
    let rest = arguments.strip_prefix("kind=").expect("the kind comes first");
    let spec: WorkloadSpec =
        rest.replacen(' ', ":", 1).replace(' ', ",").parse().expect("our generators have its name");
    let mut reader = Source::workload(spec).open().expect("generators open");
    let entries = reader.read_to_end().expect("generators do not fail");
    let mut builder = LayoutBuilder::new();
    builder.observe(&entries);
    for (page_type, pages) in covered {
        builder.covers(*page_type, pages.clone());
    }
    let layout = builder.finish().expect("a small trace");
    let mut accesses = Vec::new();
    layout.translate(&entries, &mut accesses);
    (layout, accesses)
}
