//! The formats a trace may come in, and how one is told from another.
//!
//! A format is found by extension (before `.zst` or `.gz`, which are found by magic) and otherwise by the first 4 KiB.

mod u64;

use std::path::Path;

use crate::TraceError;
use crate::input::Input;
use crate::reader::{Options, TraceReader};

pub(crate) use u64::truncated as truncated_u64;

/// Names of the columns of a CSV file; `None` looks for the usual ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvColumns {}

/// How a trace file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Little-endian 64-bit entries, as [`crate::Entry`] lays them out.
    U64,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 1] = [Format::U64];

    /// The name used on the command line, which is also the file extension.
    pub const fn name(self) -> &'static str {
        match self {
            Format::U64 => "u64",
        }
    }
}

/// Finds the format of an input.
pub(crate) fn detect(input: &mut Input) -> Result<Format, TraceError> {
    let _ = input.head()?;
    Ok(Format::U64)
}

/// A reader for an input of a format.
pub(crate) fn reader(format: Format, input: Input, options: &Options) -> Result<Box<dyn TraceReader>, TraceError> {
    Ok(match format {
        Format::U64 => Box::new(u64::U64Reader::new(input, options.kind)),
    })
}

/// The file's name without compression and format extensions.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = strip_compression(&name);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    if stem.is_empty() { name.to_owned() } else { stem.to_owned() }
}

fn strip_compression(name: &str) -> &str {
    let lower = name.to_ascii_lowercase();
    let cut = [".zst", ".gz"].iter().find(|suffix| lower.ends_with(**suffix)).map_or(0, |suffix| suffix.len());
    &name[..name.len() - cut]
}
