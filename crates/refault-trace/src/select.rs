//! A part of a trace: a number of accesses from some access on, or those of a span of time.
//!
//! Spans of time count from the trace's first access. Formats that say the time of each access are cut exactly; in
//! `.rft`, where a block has one span, a block belongs to the part if it begins in it. Cost: what lies before the part
//! is read and thrown away.
//!
//! ```
//! use refault_trace::{Part, Source};
//!
//! let part = Part { skip: 100, limit: Some(50), ..Part::default() };
//! let source = Source::workload("cyclic:pages=10,accesses=1000".parse()?).part(part);
//! let mut buffer = Vec::new();
//! assert_eq!(source.open()?.next_block(&mut buffer)?.len(), 50);
//! # Ok::<(), refault_trace::TraceError>(())
//! ```

use crate::error::TraceError;
use crate::reader::{Details, ObjectPages, TimeSpan, TraceReader, UNKNOWN_BYTES};
use crate::remark::Remark;
use crate::{BLOCK_ENTRIES, Entry};

/// Which accesses of a trace to take; the default takes all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Accesses to leave out at the start (of the span of time, if there is one).
    pub skip: u64,
    /// The most accesses to take.
    pub limit: Option<u64>,
    /// Take accesses from this time on, in nanoseconds after the trace's first access.
    pub from_ns: Option<u64>,
    /// Take accesses before this time, in nanoseconds after the trace's first access.
    pub to_ns: Option<u64>,
}

impl Part {
    /// Whether all accesses are taken.
    pub fn is_all(&self) -> bool {
        *self == Part::default()
    }

    fn has_times(&self) -> bool {
        self.from_ns.is_some() || self.to_ns.is_some()
    }
}

/// Reads a part of another reader's trace.
pub(crate) struct PartReader {
    name: String,
    inner: Box<dyn TraceReader>,
    part: Part,
    /// Time of the trace's first access.
    origin: Option<u64>,
    to_skip: u64,
    left: u64,
    any: bool,
    block: Vec<Entry>,
    bytes: Vec<u64>,
    times: Vec<u64>,
    time: Option<TimeSpan>,
    /// Accesses handed out, those of them without a size, and the bytes of the others.
    taken: u64,
    unsized_taken: u64,
    bytes_taken: Option<u64>,
}

impl PartReader {
    /// `name` stands for the trace in errors.
    pub(crate) fn new(name: String, inner: Box<dyn TraceReader>, part: Part) -> PartReader {
        PartReader {
            name,
            inner,
            part,
            origin: None,
            to_skip: part.skip,
            left: part.limit.unwrap_or(u64::MAX),
            any: false,
            block: Vec::new(),
            bytes: Vec::new(),
            times: Vec::new(),
            time: None,
            taken: 0,
            unsized_taken: 0,
            bytes_taken: None,
        }
    }

    /// Puts those of the inner reader's block that belong to the part into `out`. False if nothing can follow.
    fn take(&mut self, out: &mut Vec<Entry>) -> Result<bool, TraceError> {
        if self.left == 0 || self.inner.read_block(&mut self.block)? == 0 {
            return Ok(false);
        }
        self.time = self.inner.block_time();
        let (bytes, times) = (self.inner.block_bytes(), self.inner.block_times());
        let block_start = self.time.map(|time| time.first_ns);
        let first = times.and_then(|times| times.first().copied()).or(block_start);
        if self.part.has_times() && first.is_none() {
            let reason = "says no times, so there is no --from and no --to; name a part by --skip and --limit";
            return Err(TraceError::unsuitable(self.name.as_ref(), reason));
        }
        let origin = *self.origin.get_or_insert(first.unwrap_or(0));
        let (from, to) = (self.part.from_ns.unwrap_or(0), self.part.to_ns.unwrap_or(u64::MAX));
        let mut taken_times: Option<TimeSpan> = None;
        for (index, entry) in self.block.iter().enumerate() {
            let time = times.map(|times| times[index]).or(block_start);
            let since = time.map_or(0, |time| time.saturating_sub(origin));
            if since < from || (since >= to && self.part.to_ns.is_some()) {
                continue;
            }
            if self.to_skip > 0 {
                self.to_skip -= 1;
                continue;
            }
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            out.push(*entry);
            self.taken += 1;
            self.bytes.extend(bytes.map(|bytes| bytes[index]));
            match bytes.map_or(UNKNOWN_BYTES, |bytes| bytes[index]) {
                UNKNOWN_BYTES => self.unsized_taken += 1,
                bytes => self.bytes_taken = Some(self.bytes_taken.unwrap_or(0).saturating_add(bytes)),
            }
            if let Some(time) = times.map(|times| times[index]) {
                self.times.push(time);
                taken_times.get_or_insert(TimeSpan { first_ns: time, last_ns: time }).last_ns = time;
            }
        }
        self.time = taken_times.or(self.time);
        Ok(true)
    }
}

impl TraceReader for PartReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        self.bytes.clear();
        self.times.clear();
        while out.is_empty() && self.take(out)? {}
        debug_assert!(out.len() <= BLOCK_ENTRIES);
        self.any |= !out.is_empty();
        if !self.any {
            return Err(TraceError::unsuitable(self.name.as_ref(), "has no accesses in the part that was asked for"));
        }
        Ok(out.len())
    }

    fn total(&self) -> Option<u64> {
        if self.part.has_times() {
            return None;
        }
        let rest = self.inner.total()?.saturating_sub(self.part.skip);
        Some(rest.min(self.part.limit.unwrap_or(u64::MAX)))
    }

    fn progress(&self) -> Option<f64> {
        if self.left == 0 { Some(1.0) } else { self.inner.progress() }
    }

    fn block_time(&self) -> Option<TimeSpan> {
        self.time
    }

    fn block_bytes(&self) -> Option<&[u64]> {
        self.inner.block_bytes().map(|_| self.bytes.as_slice())
    }

    fn block_times(&self) -> Option<&[u64]> {
        self.inner.block_times().map(|_| self.times.as_slice())
    }

    fn details(&self) -> Details {
        self.inner.details()
    }

    /// Readers read ahead, and what lies before the part is read too.
    fn remarks(&self) -> Vec<Remark> {
        let of_all = |remark: Remark| {
            let text = format!("{remark} (of what was read for the part: all before its end, and some behind it)");
            Remark::with_text(remark.doubt, remark.count, text)
        };
        self.inner.remarks().into_iter().map(of_all).collect()
    }

    fn objects(&self) -> Option<ObjectPages> {
        let objects = self.inner.objects()?;
        Some(match objects.sized {
            // An object has several accesses here.
            true => ObjectPages { bytes: None, ..objects },
            false => ObjectPages {
                accesses: self.taken,
                unsized_accesses: self.unsized_taken,
                bytes: self.bytes_taken,
                ..objects
            },
        })
    }
}
