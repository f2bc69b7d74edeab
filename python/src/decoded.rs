//! Traces that lie decoded in memory, and travel as bytes.
//!
//! Cost: 8 bytes per access, and 8 more if the trace says how many bytes each stands for.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use refault::lab::{LabError, Progress};
use refault::trace::{BLOCK_ENTRIES, Entry, OpenTrace, Reading, Source, TraceError, TraceReader};

/// What bytes of a version that is not this one would be misread as.
const LAYOUT: u8 = 1;

/// A whole trace.
#[derive(Debug)]
pub struct Decoded {
    name: String,
    entries: Vec<Entry>,
    /// What each access stands for; empty if the trace does not say.
    bytes: Vec<u64>,
}

impl Decoded {
    /// Reads a trace to its end. With it comes what was left out or assumed.
    pub fn read(source: &Source, progress: &dyn Progress) -> Result<(Decoded, Reading), LabError> {
        let mut reader = source.open()?;
        progress.add(reader.total().unwrap_or(0));
        let (mut entries, mut bytes, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let read = reader.read_block(&mut buffer)?;
            if read == 0 {
                break;
            }
            if progress.is_cancelled() {
                return Err(LabError::Cancelled);
            }
            entries.extend_from_slice(&buffer);
            bytes.extend_from_slice(reader.block_bytes().unwrap_or_default());
            progress.advance(read as u64);
        }
        if bytes.len() < entries.len() {
            bytes.clear();
        }
        Ok((Decoded { name: source.name(), entries, bytes }, Reading::of(&*reader)))
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        (self.entries.len() + self.bytes.len()) * size_of::<u64>()
    }

    /// All of it, to be sent to another process: a byte for the layout, the number of accesses, then numbers of 8
    /// bytes.
    pub fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, 9 + self.memory_bytes(), |out| {
            out[0] = LAYOUT;
            out[1..9].copy_from_slice(&(self.entries.len() as u64).to_le_bytes());
            let numbers = self.entries.iter().map(|entry| entry.0).chain(self.bytes.iter().copied());
            out[9..].chunks_exact_mut(8).zip(numbers).for_each(|(out, number)| {
                out.copy_from_slice(&number.to_le_bytes());
            });
            Ok(())
        })
    }

    /// What [`Decoded::to_bytes`] made.
    pub fn from_bytes(name: String, bytes: &[u8]) -> PyResult<Decoded> {
        let wrong = || PyValueError::new_err(format!("{name}: these bytes are not a decoded trace of this version"));
        let ([LAYOUT, count @ ..], rest) = bytes.split_first_chunk::<9>().ok_or_else(wrong)? else {
            return Err(wrong());
        };
        let count = usize::try_from(u64::from_le_bytes(*count)).map_err(|_| wrong())?;
        let (numbers, odd) = rest.as_chunks::<8>();
        if !odd.is_empty() || count == 0 || ![Some(count), count.checked_mul(2)].contains(&Some(numbers.len())) {
            return Err(wrong());
        }
        let numbers: Vec<u64> = numbers.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let entries: Vec<Entry> = numbers[..count].iter().map(|number| Entry(*number)).collect();
        if entries.iter().any(|entry| entry.kind().is_none()) {
            return Err(wrong());
        }
        Ok(Decoded { bytes: numbers[count..].to_vec(), name, entries })
    }
}

/// A trace that is shared by its readers.
#[derive(Debug)]
pub struct Shared(pub Arc<Decoded>);

impl OpenTrace for Shared {
    fn name(&self) -> String {
        self.0.name.clone()
    }

    fn open(&self) -> Result<Box<dyn TraceReader>, TraceError> {
        if self.0.entries.is_empty() {
            let reason = "is empty; a trace has at least one access".to_owned();
            return Err(TraceError::Unsuitable { file: PathBuf::from(&self.0.name), reason });
        }
        Ok(Box::new(Reader { trace: self.0.clone(), block: 0..0 }))
    }
}

struct Reader {
    trace: Arc<Decoded>,
    /// Handed out last.
    block: std::ops::Range<usize>,
}

impl Reader {
    fn advance(&mut self) -> &[Entry] {
        let end = self.trace.entries.len().min(self.block.end + BLOCK_ENTRIES);
        self.block = self.block.end..end;
        &self.trace.entries[self.block.clone()]
    }
}

impl TraceReader for Reader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        out.extend_from_slice(self.advance());
        Ok(out.len())
    }

    fn next_block<'a>(&'a mut self, _buffer: &'a mut Vec<Entry>) -> Result<&'a [Entry], TraceError> {
        Ok(self.advance())
    }

    fn total(&self) -> Option<u64> {
        Some(self.trace.entries.len() as u64)
    }

    fn block_bytes(&self) -> Option<&[u64]> {
        self.trace.bytes.get(self.block.clone()).filter(|_| !self.trace.bytes.is_empty())
    }
}
