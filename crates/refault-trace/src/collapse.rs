//! Successive accesses to one page as one, which is a write if any of them is.
//!
//! It happens at the time of the first of them, and stands for as many bytes as the largest.

use crate::Entry;
use crate::error::TraceError;
use crate::reader::{Details, ObjectPages, TimeSpan, TraceReader, UNKNOWN_BYTES};
use crate::remark::Remark;

/// Collapses what another reader hands out.
pub(crate) struct Collapsed {
    inner: Box<dyn TraceReader>,
    block: Vec<Entry>,
    /// Held back to see whether the next access is to the same page.
    held: Option<Held>,
    /// Of those handed out, if the trace says; times as long as each has one.
    bytes: Vec<u64>,
    says_bytes: bool,
    times: Vec<u64>,
    handed_out: usize,
}

struct Held {
    entry: Entry,
    bytes: u64,
    time: Option<u64>,
}

impl Collapsed {
    pub(crate) fn new(inner: Box<dyn TraceReader>) -> Collapsed {
        Collapsed {
            inner,
            block: Vec::new(),
            held: None,
            bytes: Vec::new(),
            says_bytes: false,
            times: Vec::new(),
            handed_out: 0,
        }
    }
}

impl Held {
    fn hand_out(self, out: &mut Vec<Entry>, bytes: &mut Vec<u64>, times: &mut Vec<u64>) {
        out.push(self.entry);
        bytes.push(self.bytes);
        times.extend(self.time);
    }
}

/// The larger of two numbers of bytes, of which either may be unknown.
fn largest(one: u64, other: u64) -> u64 {
    match (one, other) {
        (UNKNOWN_BYTES, bytes) | (bytes, UNKNOWN_BYTES) => bytes,
        (one, other) => one.max(other),
    }
}

impl TraceReader for Collapsed {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        self.bytes.clear();
        self.times.clear();
        while out.is_empty() {
            if self.inner.read_block(&mut self.block)? == 0 {
                let last = self.held.take();
                last.into_iter().for_each(|held| held.hand_out(out, &mut self.bytes, &mut self.times));
                break;
            }
            let (bytes, times) = (self.inner.block_bytes(), self.inner.block_times());
            self.says_bytes |= bytes.is_some();
            for (index, entry) in self.block.iter().enumerate() {
                let bytes = bytes.map_or(UNKNOWN_BYTES, |bytes| bytes[index]);
                let time = times.map(|times| times[index]);
                match &mut self.held {
                    Some(held) if held.entry.0 | Entry::WRITE == entry.0 | Entry::WRITE => {
                        held.entry.0 |= entry.0;
                        held.bytes = largest(held.bytes, bytes);
                    }
                    held => {
                        let before = held.replace(Held { entry: *entry, bytes, time });
                        before.into_iter().for_each(|held| held.hand_out(out, &mut self.bytes, &mut self.times));
                    }
                }
            }
        }
        self.handed_out = out.len();
        Ok(out.len())
    }

    fn progress(&self) -> Option<f64> {
        self.inner.progress()
    }

    fn block_time(&self) -> Option<TimeSpan> {
        let exact = self.block_times().and_then(|times| times.first().zip(times.last()));
        let exact = exact.map(|(first, last)| TimeSpan { first_ns: *first, last_ns: *last });
        exact.or(self.inner.block_time())
    }

    fn block_bytes(&self) -> Option<&[u64]> {
        (self.says_bytes && self.handed_out > 0).then_some(&self.bytes)
    }

    fn block_times(&self) -> Option<&[u64]> {
        (self.times.len() == self.handed_out && self.handed_out > 0).then_some(&self.times)
    }

    fn details(&self) -> Details {
        self.inner.details()
    }

    fn remarks(&self) -> Vec<Remark> {
        self.inner.remarks()
    }

    fn objects(&self) -> Option<ObjectPages> {
        self.inner.objects()
    }
}
