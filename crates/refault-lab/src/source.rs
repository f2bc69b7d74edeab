//! Where accesses come from: whatever can be read from the beginning as often as needed.
//!
//! ```
//! use refault_lab::source::{Accesses, Source};
//!
//! let source = Source::workload("zipf:theta=1,pages=100,accesses=1000".parse().expect("a workload"));
//! let accesses: &dyn Accesses = &source;
//! let mut block = Vec::new();
//! assert!(accesses.open()?.read_block(&mut block)? > 0);
//! # Ok::<(), refault_lab::LabError>(())
//! ```

use std::sync::Arc;

use refault_trace::shards::PageSample;
use refault_trace::{BLOCK_ENTRIES, Entry, TraceError};
pub use refault_trace::{Source, TraceReader};

use crate::error::LabError;
use crate::progress::Progress;

/// Something that accesses can be read from, again and again.
pub trait Accesses: Sync {
    /// What to call it in a table.
    fn name(&self) -> String;
    /// Starts a pass from the beginning.
    fn open(&self) -> Result<Box<dyn TraceReader>, LabError>;
}

impl Accesses for Source {
    fn name(&self) -> String {
        Source::name(self)
    }

    fn open(&self) -> Result<Box<dyn TraceReader>, LabError> {
        Ok(Source::open(self)?)
    }
}

/// The accesses to a sample of a source's pages.
pub struct SampledSource {
    /// The whole.
    pub source: Source,
    /// Which pages are taken.
    pub sample: PageSample,
}

impl Accesses for SampledSource {
    fn name(&self) -> String {
        self.source.name()
    }

    fn open(&self) -> Result<Box<dyn TraceReader>, LabError> {
        let whole = self.source.open()?;
        Ok(Box::new(SampledReader { whole, sample: self.sample, buffer: Vec::new() }))
    }
}

/// The accesses to a sample of a source's pages, in memory.
pub struct KeptSample {
    name: String,
    entries: Arc<[Entry]>,
}

impl KeptSample {
    /// The accesses to each of several samples of a source's pages, by one pass; `None` if they take more than `most` bytes
    /// together.
    ///
    /// # Errors
    /// The source cannot be read, or it was cancelled.
    pub fn of(
        source: &dyn Accesses,
        samples: &[PageSample],
        most: u64,
        progress: &dyn Progress,
    ) -> Result<Option<Vec<KeptSample>>, LabError> {
        let mut kept: Vec<Vec<Entry>> = samples.iter().map(|_| Vec::new()).collect();
        let (mut reader, mut buffer) = (source.open()?, Vec::new());
        loop {
            let block = reader.next_block(&mut buffer)?;
            if block.is_empty() {
                break;
            }
            for (sample, kept) in samples.iter().zip(&mut kept) {
                kept.extend(block.iter().copied().filter(|entry| sample.contains(*entry)));
            }
            let entries: usize = kept.iter().map(Vec::capacity).sum();
            if (entries * size_of::<Entry>()) as u64 > most {
                return Ok(None);
            }
            if progress.is_cancelled() {
                return Err(LabError::Cancelled);
            }
        }
        Ok(Some(kept.into_iter().map(|kept| KeptSample { name: source.name(), entries: kept.into() }).collect()))
    }
}

impl Accesses for KeptSample {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn open(&self) -> Result<Box<dyn TraceReader>, LabError> {
        Ok(Box::new(KeptReader { entries: self.entries.clone(), at: 0 }))
    }
}

struct KeptReader {
    entries: Arc<[Entry]>,
    at: usize,
}

impl TraceReader for KeptReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        let left = &self.entries[self.at..];
        out.extend_from_slice(&left[..left.len().min(BLOCK_ENTRIES)]);
        self.at += out.len();
        Ok(out.len())
    }

    fn total(&self) -> Option<u64> {
        Some(self.entries.len() as u64)
    }
}

struct SampledReader {
    whole: Box<dyn TraceReader>,
    sample: PageSample,
    buffer: Vec<Entry>,
}

impl TraceReader for SampledReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        while out.is_empty() {
            let block = self.whole.next_block(&mut self.buffer)?;
            if block.is_empty() {
                break;
            }
            out.extend(block.iter().copied().filter(|entry| self.sample.contains(*entry)));
        }
        Ok(out.len())
    }

    fn progress(&self) -> Option<f64> {
        self.whole.progress()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_in_memory_are_those_that_are_read_and_their_memory_is_bounded() {
        let source = Source::workload("zipf:theta=1,pages=5000,accesses=60000".parse().expect("a workload"));
        let samples: Vec<PageSample> = (0..4).map(|index| PageSample::new(0.1, 7, index)).collect();
        let kept = KeptSample::of(&source, &samples, 1 << 20, &()).expect("read").expect("it fits");
        for (kept, sample) in kept.iter().zip(&samples) {
            let read = SampledSource { source: source.clone(), sample: *sample };
            let all = |of: &dyn Accesses| of.open().expect("opened").read_to_end().expect("read");
            assert_eq!(all(kept), all(&read));
            assert_eq!((kept.name(), all(kept).is_empty()), (read.name(), false));
        }
        assert!(KeptSample::of(&source, &samples, 1 << 10, &()).expect("read").is_none());
    }
}
