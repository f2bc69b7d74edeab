//! The second pass over a trace: its accesses, block by block, by the ids of a layout.
//!
//! Invariant: all accesses of the first pass come, in order, or the trace is said to have changed. Cost: one pass, and a
//! block in memory.

use refault_sim::{Access, Layout};
use refault_trace::UNKNOWN_BYTES;

use crate::error::LabError;
use crate::source::{Accesses, TraceReader};

/// Accesses that the simulations get at a time: 2 MiB, a part of the last-level cache, so that the simulations after
/// the first do not read it from memory.
const BLOCK_ACCESSES: usize = 1 << 18;

/// Accesses that the simulations get at a time.
#[derive(Default)]
pub(crate) struct Block {
    pub(crate) accesses: Vec<Access>,
    /// What each stands for, or [`UNKNOWN_BYTES`]; empty as long as the trace says nothing.
    pub(crate) bytes: Vec<u64>,
}

impl Block {
    /// Accesses that say no size count for no bytes.
    pub(super) fn leave_out_unknown(&mut self) {
        self.bytes.iter_mut().filter(|bytes| **bytes == UNKNOWN_BYTES).for_each(|bytes| *bytes = 0);
    }
}

/// The second pass: entries as accesses to the ids of a layout.
pub(crate) struct Decoder {
    pub(crate) reader: Box<dyn TraceReader>,
    buffer: Vec<refault_trace::Entry>,
    /// Handed out so far.
    accesses: u64,
}

impl Decoder {
    pub(crate) fn new(source: &dyn Accesses) -> Result<Decoder, LabError> {
        Ok(Decoder { reader: source.open()?, buffer: Vec::new(), accesses: 0 })
    }

    /// Replaces `block` by the next accesses; empty at the end.
    pub(crate) fn fill(&mut self, layout: &Layout, block: &mut Block) -> Result<(), LabError> {
        block.accesses.clear();
        block.bytes.clear();
        while block.accesses.len() < BLOCK_ACCESSES {
            let read = self.reader.read_block(&mut self.buffer)?;
            self.accesses += read as u64;
            if (read == 0 && self.accesses != layout.accesses()) || self.accesses > layout.accesses() {
                return Err(changed());
            }
            if read == 0 {
                break;
            }
            layout.try_translate(&self.buffer, &mut block.accesses).map_err(|_| changed())?;
            match self.reader.block_bytes() {
                Some(bytes) => {
                    // Accesses before the first that says a size.
                    block.bytes.resize(block.accesses.len() - read, UNKNOWN_BYTES);
                    block.bytes.extend_from_slice(bytes);
                }
                None if block.bytes.is_empty() => {}
                None => block.bytes.resize(block.accesses.len(), UNKNOWN_BYTES),
            }
        }
        Ok(())
    }
}

/// Pages that the first pass has not seen have no ids.
fn changed() -> LabError {
    LabError::request("a trace has changed", "while it was read", "leave it alone meanwhile, or compare a copy")
}
