//! `.u64`: entries of 8 bytes, little-endian, nothing else.

use std::path::Path;

use crate::error::{Place, TraceError};
use crate::input::Input;
use crate::mapped::{apply_kind, check_entries};
use crate::reader::{BLOCK_ENTRIES, TraceReader};
use crate::{Entry, Kind};

const ENTRY_BYTES: usize = size_of::<Entry>();

/// The copying reader: for compressed files, pipes, and machines that are not little-endian.
pub(crate) struct U64Reader {
    input: Input,
    kind: Option<Kind>,
}

impl U64Reader {
    pub(crate) fn new(input: Input, kind: Option<Kind>) -> U64Reader {
        U64Reader { input, kind: kind.filter(|kind| *kind != Kind::Anon) }
    }
}

impl TraceReader for U64Reader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        let start = self.input.offset();
        while out.len() < BLOCK_ENTRIES {
            let available = self.input.fill(ENTRY_BYTES)?;
            if available.len() < ENTRY_BYTES {
                if available.is_empty() {
                    break;
                }
                let left = available.len() as u64;
                let whole = self.input.offset();
                return Err(truncated(self.input.path(), whole, whole + left));
            }
            let (entries, _) = available.as_chunks::<ENTRY_BYTES>();
            let taken = entries.len().min(BLOCK_ENTRIES - out.len());
            out.extend(entries[..taken].iter().map(|bytes| Entry(u64::from_le_bytes(*bytes))));
            self.input.consume(taken * ENTRY_BYTES);
        }
        check_entries(out, self.input.path(), start)?;
        if let Some(kind) = self.kind {
            for entry in out.iter_mut() {
                *entry = apply_kind(*entry, kind);
            }
        }
        Ok(out.len())
    }

    fn total(&self) -> Option<u64> {
        Some(self.input.data_bytes()? / ENTRY_BYTES as u64)
    }

    fn progress(&self) -> Option<f64> {
        self.input.progress()
    }
}

/// The data ends inside an entry that starts at `whole`.
pub(crate) fn truncated(path: &Path, whole: u64, end: u64) -> TraceError {
    let reason = format!(
        "truncated: {} bytes are left of an entry of {ENTRY_BYTES}; is this an uncompressed .u64 trace?",
        end - whole
    );
    TraceError::malformed(path, Place::Offset(whole), reason)
}
