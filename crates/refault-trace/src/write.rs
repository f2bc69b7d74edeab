//! Writing traces: `.rft`, `.u64`, CSV and oracleGeneral, the last three plain or compressed.
//!
//! What a format has no place for is lost. `.u64` has no times, `.rft` no times within a block. oracleGeneral has
//! neither kinds nor writes nor parts of a second. Only CSV and oracleGeneral keep the sizes of accesses.
//!
//! ```
//! use refault_trace::write::OutputFormat;
//!
//! assert_eq!(OutputFormat::of_path("a/trace.rft".as_ref()), Some(OutputFormat::Rft));
//! assert_eq!(OutputFormat::of_path("a/trace".as_ref()), None);
//! ```

mod csv;
mod oracle_general;
mod packed;
mod u64;

use std::fs::File;
use std::path::Path;

pub use csv::CsvWriter;
pub use oracle_general::OracleGeneralWriter;
pub use packed::Compression;
pub use u64::U64Writer;

use crate::error::TraceError;
use crate::reader::{TimeSpan, TraceReader};
use crate::rft::RftWriter;
use crate::{Entry, Format};

/// The formats that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// Compact and seekable, with spans of time.
    Rft,
    /// Entries of 8 bytes.
    U64,
    /// A line per access: page, kind, write, and size and time if known.
    Csv,
    /// libCacheSim's records.
    OracleGeneral,
}

impl OutputFormat {
    /// By the name of a file: `.rft`, `.u64`, `.csv` or `.oracleGeneral`, the last three also with `.zst` or `.gz`.
    pub fn of_path(path: &Path) -> Option<OutputFormat> {
        Some(match Format::of_name(path)? {
            Format::Rft if Compression::of_path(path) == Compression::None => OutputFormat::Rft,
            Format::U64 => OutputFormat::U64,
            Format::Csv => OutputFormat::Csv,
            Format::OracleGeneral => OutputFormat::OracleGeneral,
            _ => return None,
        })
    }
}

/// A block of accesses with what is known of them.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The accesses.
    pub entries: &'a [Entry],
    /// The bytes each stands for, as many as entries; [`crate::UNKNOWN_BYTES`] where that is not said.
    pub bytes: Option<&'a [u64]>,
    /// Whether a page is an object of a cache, of as many bytes as the access stands for.
    pub objects: bool,
    /// When each happened, in nanoseconds, as many as entries.
    pub times: Option<&'a [u64]>,
    /// When all of them happened.
    pub time: Option<TimeSpan>,
}

impl<'a> Block<'a> {
    /// The block that a reader has put into `entries`.
    pub fn of(reader: &'a dyn TraceReader, entries: &'a [Entry]) -> Block<'a> {
        let (bytes, times, time) = (reader.block_bytes(), reader.block_times(), reader.block_time());
        let objects = bytes.is_some() && reader.objects().is_some_and(|objects| !objects.sized);
        Block { entries, bytes, objects, times, time }
    }
}

/// Writes a trace in any format. Nothing is whole until [`TraceWriter::finish`].
pub enum TraceWriter {
    /// `.rft`.
    Rft(Box<RftWriter>),
    /// `.u64`.
    U64(U64Writer),
    /// CSV.
    Csv(CsvWriter),
    /// oracleGeneral.
    OracleGeneral(Box<OracleGeneralWriter>),
}

impl TraceWriter {
    /// Writes to a file that is open and empty; `path` says the compression and stands for the file in errors.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(file: File, path: &Path, format: OutputFormat) -> Result<TraceWriter, TraceError> {
        let compression = Compression::of_path(path);
        Ok(match format {
            OutputFormat::Rft => TraceWriter::Rft(Box::new(RftWriter::new(file, path)?)),
            OutputFormat::U64 => TraceWriter::U64(U64Writer::new(file, path, compression)?),
            OutputFormat::Csv => TraceWriter::Csv(CsvWriter::new(file, path, compression)?),
            OutputFormat::OracleGeneral => {
                TraceWriter::OracleGeneral(Box::new(OracleGeneralWriter::new(file, path, compression)?))
            }
        })
    }

    /// Says something about the trace, where the format has a place for it.
    pub fn add_metadata(&mut self, key: &str, value: &str) {
        if let TraceWriter::Rft(writer) = self {
            writer.add_metadata(key, value);
        }
    }

    /// Appends a block.
    ///
    /// # Errors
    /// The device is full or failed.
    pub fn write(&mut self, block: Block<'_>) -> Result<(), TraceError> {
        match self {
            TraceWriter::Rft(writer) => match block.time {
                Some(time) => writer.write_timed(block.entries, time),
                None => writer.write(block.entries),
            },
            TraceWriter::U64(writer) => writer.write(block.entries),
            TraceWriter::Csv(writer) => writer.write(block),
            TraceWriter::OracleGeneral(writer) => writer.write(block),
        }
    }

    /// Ends the file and returns the number of accesses written.
    ///
    /// # Errors
    /// As [`TraceWriter::write`].
    pub fn finish(self) -> Result<u64, TraceError> {
        match self {
            TraceWriter::Rft(writer) => writer.finish(),
            TraceWriter::U64(writer) => writer.finish(),
            TraceWriter::Csv(writer) => writer.finish(),
            TraceWriter::OracleGeneral(writer) => writer.finish(),
        }
    }
}
