//! A policy of the caller's own, replayed beside those of the registry.
//!
//! A policy needs no entry in the registry to be tried: [`replay`] compiles the replay for its type. The same policy can be
//! driven over live memory through [`refault_core::DynPolicy`], which every [`Policy`] is.
//!
//! Cost: two passes over the trace, as for a sweep, on one thread.

use refault_core::Policy;
use refault_sim::flat_memory::Swap;
use refault_sim::{Limits, Outcome, Replay};

use crate::LabError;
use crate::size::Size;
use crate::source::Accesses;
use crate::sweep::{Block, Decoder, layout_of};

/// What a policy makes of a trace with this much memory (a share is of the trace's distinct pages).
///
/// ```
/// use refault_core::textbook::Fifo;
/// use refault_lab::own::replay;
/// use refault_trace::Source;
///
/// let source = Source::workload("zipf:theta=1,pages=1000,accesses=20000".parse().unwrap());
/// let outcome = replay(&source, "10%".parse().unwrap(), Fifo::default())?;
/// assert_eq!(outcome.hits + outcome.misses, 20_000);
/// # Ok::<(), refault_lab::LabError>(())
/// ```
///
/// # Errors
/// The trace cannot be read, is empty, or changes between the passes.
pub fn replay<P: Policy>(source: &dyn Accesses, memory: Size, policy: P) -> Result<Outcome, LabError> {
    let layout = layout_of(source)?;
    let distinct = layout.distinct_pages();
    let memory_pages = usize::try_from(memory.pages(distinct)).unwrap_or(usize::MAX);
    let swap = Swap { pages: distinct, synchronous: true };
    let mut replay = Replay::new(&layout, policy, Limits { memory_pages, swap });
    let mut decoder = Decoder::new(source)?;
    let mut block = Block::default();
    loop {
        decoder.fill(&layout, &mut block)?;
        if block.accesses.is_empty() {
            return Ok(replay.outcome());
        }
        replay.run(&block.accesses);
    }
}
