//! How traces are read: sources that can be opened again, readers that hand out blocks.
//!
//! Invariant: every entry a reader hands out is valid ([`Entry::kind`] is `Some`).
//!
//! ```
//! use refault_trace::{Format, Options, open_bytes};
//!
//! let bytes = [3_u64, 4, 3].map(u64::to_le_bytes).concat();
//! let options = Options { format: Some(Format::U64), ..Options::default() };
//! let mut reader = open_bytes("memory", bytes, &options)?;
//! let mut buffer = Vec::new();
//! let pages: Vec<u64> = reader.next_block(&mut buffer)?.iter().map(|entry| entry.page()).collect();
//! assert_eq!(pages, [3, 4, 3]);
//! # Ok::<(), refault_trace::TraceError>(())
//! ```

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::collapse::Collapsed;
use crate::error::printable;
use crate::facts::Format;
use crate::formats::{self, CsvColumns, FoundBy};
use crate::generate::{GeneratorReader, WorkloadSpec};
use crate::input::Input;
use crate::remark::Remark;
use crate::select::{Part, PartReader};
use crate::strict::{Guessed, Strict};
use crate::{Entry, Kind, TraceError};

/// Entries of a block, at most: half a MiB, which stays in a second-level cache between decoding and use.
pub const BLOCK_ENTRIES: usize = 1 << 16;

/// What [`TraceReader::block_bytes`] says of an access that says no size, though others of the trace do.
pub const UNKNOWN_BYTES: u64 = u64::MAX;

/// When the accesses of a block happened, in nanoseconds from an origin that is the trace's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    /// Time of the block's first access.
    pub first_ns: u64,
    /// Time of the block's last access.
    pub last_ns: u64,
}

/// How a trace was understood, beyond its format: what and how, for people, in the order to be shown.
pub type Details = Vec<(&'static str, String)>;

/// A trace being read, block by block, once.
pub trait TraceReader: Send {
    /// Replaces the contents of `out` by the next entries, at most [`BLOCK_ENTRIES`], and returns how many; 0 is the
    /// end. After an error the reader must not be used again.
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError>;

    /// The next entries, in `buffer` or, where the trace lies in memory as it is, without a copy. Empty is the end.
    fn next_block<'a>(&'a mut self, buffer: &'a mut Vec<Entry>) -> Result<&'a [Entry], TraceError> {
        self.read_block(buffer)?;
        Ok(buffer)
    }

    /// All entries that are left. Cost: 8 bytes for each, so for traces that are known to be short.
    ///
    /// # Errors
    /// As [`TraceReader::read_block`].
    fn read_to_end(&mut self) -> Result<Vec<Entry>, TraceError> {
        let (mut entries, mut buffer) = (Vec::new(), Vec::new());
        loop {
            match self.next_block(&mut buffer)? {
                [] => return Ok(entries),
                block => entries.extend_from_slice(block),
            }
        }
    }

    /// How many entries the whole trace has, if that is known without reading it.
    fn total(&self) -> Option<u64> {
        None
    }

    /// The part of the source consumed so far, 0 to 1, if known: what a progress bar shows.
    fn progress(&self) -> Option<f64> {
        None
    }

    /// When the block handed out last happened, if the trace says.
    fn block_time(&self) -> Option<TimeSpan> {
        None
    }

    /// The bytes that each access of the block handed out last stands for, if the trace says: the size of an object,
    /// or the part of a request that lies in the page. [`UNKNOWN_BYTES`] for an access that says none.
    fn block_bytes(&self) -> Option<&[u64]> {
        None
    }

    /// When each access of the block handed out last happened, in nanoseconds, if the trace says so exactly.
    fn block_times(&self) -> Option<&[u64]> {
        None
    }

    /// How the trace was understood; complete once the first block was handed out.
    fn details(&self) -> Details {
        Details::new()
    }

    /// What was left out, merged, reordered or assumed so far; complete at the end of the trace.
    fn remarks(&self) -> Vec<Remark> {
        Vec::new()
    }

    /// What objects were taken for, if the trace is of objects; complete at the end of the trace.
    fn objects(&self) -> Option<ObjectPages> {
        None
    }
}

/// Bounds against files that would grow without end. The defaults are far beyond honest traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes a compressed file may unpack to. Default 1 TiB.
    pub decompressed_bytes: u64,
    /// How many times its size a compressed file may unpack to once it is past 1 GiB. Default 20 000: a loop over few
    /// pages stays below, runs of one byte do not.
    pub expansion: u64,
    /// Bytes one request of a block trace, an object or a memory access may have. Default 4 GiB.
    pub request_bytes: u64,
    /// Bytes of a line of text. Default 64 KiB.
    pub line_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { decompressed_bytes: 1 << 40, expansion: 20_000, request_bytes: 4 << 30, line_bytes: 64 << 10 }
    }
}

/// What a file does not say about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The format; `None` finds it from the name and the first bytes.
    pub format: Option<Format>,
    /// The kind of accesses that do not say theirs: all of a format without kinds, those with clear kind bits of
    /// `.u64`. `None` is anonymous memory for memory traces (`.u64`, lackey, text, CSV of pages or addresses) and file
    /// pages by `read()` for block and object traces.
    pub kind: Option<Kind>,
    /// Names of the columns of a CSV file.
    pub columns: CsvColumns,
    /// Bytes of the unit in which `.lis`, oracleGeneral and a CSV column of block numbers count. `None` takes each
    /// block or object as one page (and sectors as 512 bytes); `Some(512)` folds 512-byte blocks into 4 KiB pages. From
    /// 1 to 4096.
    pub block_bytes: Option<u32>,
    /// How many pages an object of a cache has.
    pub objects: ObjectsAs,
    /// Leave out records of objects of size 0, as libCacheSim does.
    pub skip_size_zero: bool,
    /// Take the order of the file where its times go back, rather than sort or refuse.
    pub file_order: bool,
    /// End a pass with an error if anything was left out or assumed: if there are [`TraceReader::remarks`].
    pub strict: bool,
    /// What to call the trace in tables; `None` is the file's name without its extension.
    pub name: Option<String>,
    /// What stands for the file in errors; `None` is its path.
    pub shown_as: Option<PathBuf>,
    /// Skip the instruction fetches of a lackey trace.
    pub skip_instructions: bool,
    /// Hand out successive accesses to one page as one: a write if any of them is, at the time of the first, of as many
    /// bytes as the largest.
    pub collapse: bool,
    /// Bounds.
    pub limits: Limits,
}

/// How many pages an object of a cache has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectsAs {
    /// One, whatever its size.
    #[default]
    OnePageEach,
    /// As many of its own as its size needs; an object without a size is an error.
    Sized,
    /// As [`ObjectsAs::Sized`] if the trace says sizes, else one.
    SizedIfKnown,
}

/// What the objects of a trace were taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectPages {
    /// They have as many pages as their sizes need; otherwise one each.
    pub sized: bool,
    /// They come and go whole, by their bytes; then `sized` is true too.
    pub whole: bool,
    /// Accesses to objects, each of which may be to several pages.
    pub accesses: u64,
    /// Those of them of which no size is known.
    pub unsized_accesses: u64,
    /// The bytes of the objects accessed together, if the trace says sizes.
    pub bytes: Option<u64>,
}

impl ObjectPages {
    /// Mean bytes of an object, by accesses; `None` if the trace says no sizes.
    pub fn mean_bytes(&self) -> Option<f64> {
        Some(self.bytes? as f64 / self.accesses.saturating_sub(self.unsized_accesses).max(1) as f64)
    }
}

impl Options {
    /// What stands for a file in errors.
    pub(crate) fn shown<'a>(&'a self, path: &'a Path) -> &'a Path {
        self.shown_as.as_deref().unwrap_or(path)
    }
}

/// Opens a trace file for one pass.
///
/// # Errors
/// The file cannot be opened, is a directory or empty, or its format cannot be told.
pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Box<dyn TraceReader>, TraceError> {
    let input = Input::open(path.as_ref(), options)?;
    let name = options.shown(path.as_ref()).to_owned();
    Ok(finished(read(input, path.as_ref(), options)?, options.collapse, Some((name, options.strict))))
}

/// Opens a trace that lies in memory, in any format and compression; `name` stands for the file in errors and format
/// detection.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(
    name: impl AsRef<Path>,
    bytes: Vec<u8>,
    options: &Options,
) -> Result<Box<dyn TraceReader>, TraceError> {
    let input = Input::from_bytes(name.as_ref(), bytes, options)?;
    let shown = Some((name.as_ref().to_owned(), options.strict));
    Ok(finished(read(input, name.as_ref(), options)?, options.collapse, shown))
}

/// A reader of all accesses, as they stand in the trace.
fn read(mut input: Input, path: &Path, options: &Options) -> Result<Box<dyn TraceReader>, TraceError> {
    let (format, found_by) = formats::detect(&mut input, path, options)?;
    let reader = formats::reader(format, input, options)?;
    let guessed = found_by == FoundBy::Contents && !format.has_mark();
    Ok(if guessed { Box::new(Guessed { inner: reader, format }) } else { reader })
}

/// What is done to the accesses that are handed out; `strict` is the trace's name and whether remarks are errors.
fn finished(reader: Box<dyn TraceReader>, collapse: bool, strict: Option<(PathBuf, bool)>) -> Box<dyn TraceReader> {
    let reader: Box<dyn TraceReader> = if collapse { Box::new(Collapsed::new(reader)) } else { reader };
    match strict {
        Some((name, true)) => Box::new(Strict { inner: reader, name }),
        _ => reader,
    }
}

/// Accesses that are neither in a file nor generated, for [`Source::Custom`].
///
/// ```
/// use std::sync::Arc;
/// use refault_trace::{Entry, Kind, OpenTrace, Source, TraceError, TraceReader};
///
/// #[derive(Debug)]
/// struct Thrice(u64);
///
/// impl OpenTrace for Thrice {
///     fn name(&self) -> String {
///         "thrice".to_owned()
///     }
///     fn open(&self) -> Result<Box<dyn TraceReader>, TraceError> {
///         Ok(Box::new(Left { page: self.0, left: 3 }))
///     }
/// }
///
/// struct Left {
///     page: u64,
///     left: usize,
/// }
///
/// impl TraceReader for Left {
///     fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
///         out.clear();
///         out.resize(std::mem::take(&mut self.left), Entry::new(self.page, Kind::Anon, false));
///         Ok(out.len())
///     }
/// }
///
/// let source = Source::Custom(Arc::new(Thrice(7)));
/// assert_eq!(source.open()?.read_block(&mut Vec::new())?, 3);
/// # Ok::<(), TraceError>(())
/// ```
pub trait OpenTrace: fmt::Debug + Send + Sync {
    /// What to call it in a table.
    fn name(&self) -> String;

    /// Starts a pass from the beginning.
    ///
    /// # Errors
    /// The source's own.
    fn open(&self) -> Result<Box<dyn TraceReader>, TraceError>;
}

/// Where a trace comes from; can be opened any number of times, also from several threads.
#[allow(clippy::large_enum_variant)] // A command has a handful of sources.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file in any known format.
    File {
        /// Its path.
        path: PathBuf,
        /// What it does not say about itself.
        options: Options,
    },
    /// A generated workload.
    Workload(WorkloadSpec),
    /// Whatever else can be read from the beginning again and again: an array in memory, say.
    Custom(Arc<dyn OpenTrace>),
    /// A part of another source.
    Part {
        /// The whole.
        whole: Box<Source>,
        /// Which accesses of it, counted before they are collapsed.
        part: Part,
    },
}

impl Source {
    /// A file.
    pub fn file(path: impl Into<PathBuf>, options: Options) -> Source {
        Source::File { path: path.into(), options }
    }

    /// A generated workload.
    pub fn workload(spec: WorkloadSpec) -> Source {
        Source::Workload(spec)
    }

    /// Starts a pass from the beginning.
    ///
    /// # Errors
    /// As [`open`]; a workload fails if its tables would be too large.
    pub fn open(&self) -> Result<Box<dyn TraceReader>, TraceError> {
        match self {
            Source::File { path, options } => open(path, options),
            Source::Workload(spec) => Ok(Box::new(GeneratorReader::new(spec)?)),
            Source::Custom(custom) => custom.open(),
            Source::Part { whole, part } => {
                let (inner, collapse, strict) = whole.open_uncollapsed()?;
                Ok(finished(Box::new(PartReader::new(whole.name(), inner, *part)), collapse, strict))
            }
        }
    }

    /// A reader of the accesses as they stand in the trace, whether they are to be collapsed, and what [`finished`] is
    /// to be told.
    #[allow(clippy::type_complexity)] // It goes straight to `finished`.
    fn open_uncollapsed(&self) -> Result<(Box<dyn TraceReader>, bool, Option<(PathBuf, bool)>), TraceError> {
        match self {
            Source::File { path, options } => {
                let input = Input::open(path, options)?;
                let strict = Some((options.shown(path).to_owned(), options.strict));
                Ok((read(input, path, options)?, options.collapse, strict))
            }
            other => Ok((other.open()?, false, None)),
        }
    }

    /// The format of a file and how it was found; `None` for what is not a file. The file is opened to look at its
    /// first bytes, unless the format was asked for.
    ///
    /// # Errors
    /// As [`open`].
    pub fn format(&self) -> Result<Option<(Format, FoundBy)>, TraceError> {
        match self {
            Source::File { options: Options { format: Some(format), .. }, .. } => Ok(Some((*format, FoundBy::Asked))),
            Source::File { path, options } => {
                Ok(Some(formats::detect(&mut Input::open(path, options)?, path, options)?))
            }
            Source::Workload(_) | Source::Custom(_) => Ok(None),
            Source::Part { whole, .. } => whole.format(),
        }
    }

    /// The part of this source that is asked for; itself if that is all.
    pub fn part(self, part: Part) -> Source {
        if part.is_all() { self } else { Source::Part { whole: Box::new(self), part } }
    }

    /// What to call it in a table: the file's name without format and compression, or the specification; on one line.
    pub fn name(&self) -> String {
        match self {
            Source::File { path, options } => printable(&options.name.clone().unwrap_or_else(|| formats::stem(path))),
            Source::Workload(spec) => spec.to_string(),
            Source::Custom(custom) => custom.name(),
            Source::Part { whole, .. } => whole.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_called_what_its_file_is_called_on_one_line() {
        let name = |path: &str| Source::file(path, Options::default()).name();
        assert_eq!(name("traces/app.u64.zst"), "app");
        assert_eq!(name("a\x1b[31m\nb.rft"), "a\\u{1b}[31m\\nb");
        let called = Options { name: Some("one\ttwo".into()), ..Options::default() };
        assert_eq!(Source::file("x.rft", called).name(), "one\\ttwo");
    }
}
