//! The formats a trace may come in, and how one is told from another.
//!
//! A format is found by extension (before `.zst` or `.gz`, which are found by magic) and otherwise by the first 4 KiB.
//! All but `.u64` and `.rft` describe requests: each becomes the 4 KiB pages it touches, in ascending order.

mod csv;
mod lackey;
mod lis;
mod msr;
mod numbers;
mod oracle_general;
mod request;
mod text;
mod u64;

use std::path::Path;

use crate::TraceError;
use crate::input::Input;
use crate::reader::{Options, TraceReader};
use request::{Lines, RequestReader};

pub use csv::CsvColumns;
pub(crate) use u64::truncated as truncated_u64;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// How a trace file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Little-endian 64-bit entries, as [`crate::Entry`] lays them out.
    U64,
    /// refault's own, described in `docs/format-rft.md`.
    Rft,
    /// libCacheSim's 24-byte records: u32 time in seconds, u64 object, u32 size, i64 next access.
    OracleGeneral,
    /// Comma-separated values with named columns.
    Csv,
    /// What `valgrind --tool=lackey --trace-mem=yes` prints.
    Lackey,
    /// One page number per line, decimal or `0x` hexadecimal.
    Text,
    /// The block traces of the ARC paper: start, count, ignored, request number.
    Lis,
    /// The MSR Cambridge block traces: timestamp, host, disk, type, offset, size, latency.
    Msr,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 8] = [
        Format::U64,
        Format::Rft,
        Format::OracleGeneral,
        Format::Csv,
        Format::Lackey,
        Format::Text,
        Format::Lis,
        Format::Msr,
    ];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Format::U64 => "u64",
            Format::Rft => "rft",
            Format::OracleGeneral => "oracleGeneral",
            Format::Csv => "csv",
            Format::Lackey => "lackey",
            Format::Text => "text",
            Format::Lis => "lis",
            Format::Msr => "msr",
        }
    }

    /// The format with a name of the command line, whatever its case.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
    }
}

/// A reader for an input of a format.
pub(crate) fn reader(format: Format, input: Input, options: &Options) -> Result<Box<dyn TraceReader>, TraceError> {
    if let Some(bytes) = options.block_bytes
        && !(1..=PAGE_BYTES as u32).contains(&bytes)
    {
        let reason = format!("the unit of block numbers must be from 1 to {PAGE_BYTES} bytes, not {bytes}");
        return Err(TraceError::unsuitable(input.path(), reason));
    }
    Ok(match format {
        Format::U64 => Box::new(u64::U64Reader::new(input, options.kind)),
        Format::Rft => Box::new(input.into_rft(options.kind)?),
        Format::OracleGeneral => {
            Box::new(RequestReader::new(input, oracle_general::OracleGeneral::new(options), options))
        }
        Format::Csv => Box::new(RequestReader::new(input, Lines::new(csv::Csv::new(options)), options)),
        Format::Lackey => Box::new(RequestReader::new(input, Lines::new(lackey::Lackey::new(options)), options)),
        Format::Text => Box::new(RequestReader::new(input, Lines::new(text::Text::new(options)), options)),
        Format::Lis => Box::new(RequestReader::new(input, Lines::new(lis::Lis::new(options)), options)),
        Format::Msr => Box::new(RequestReader::new(input, Lines::new(msr::Msr::new(options)), options)),
    })
}

/// Finds the format of an input.
pub(crate) fn detect(input: &mut Input) -> Result<Format, TraceError> {
    let name = input.path().file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let name = strip_compression(&name);
    if name.contains(".oraclegeneral") {
        return Ok(Format::OracleGeneral);
    }
    let extension = name.rsplit_once('.').and_then(|(_, extension)| Format::from_name(extension));
    if input.head()?.starts_with(&crate::rft::layout::MAGIC) {
        return Ok(Format::Rft);
    }
    if let Some(format) = extension
        && format != Format::Csv
    {
        return Ok(format);
    }
    let sniffed = sniff(input.head()?);
    if extension == Some(Format::Csv) && sniffed != Some(Format::Msr) {
        return Ok(Format::Csv);
    }
    sniffed.ok_or_else(|| {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        let reason = format!("cannot tell its format from name or contents; name one of {}", names.join(", "));
        TraceError::unsuitable(input.path(), reason)
    })
}

/// Tells text formats apart by their first lines. Binary ones have no mark of their own.
fn sniff(head: &[u8]) -> Option<Format> {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    if !head.iter().all(is_text) {
        return None;
    }
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with(b"#"))?;
    if lackey::is_line(line) {
        return Some(Format::Lackey);
    }
    if line.contains(&b',') {
        return Some(if msr::is_line(line) { Format::Msr } else { Format::Csv });
    }
    let fields: Vec<_> = numbers::words(line).collect();
    let all_numbers = fields.iter().all(|field| numbers::number(field, "").is_ok());
    match fields.len() {
        1 if all_numbers => Some(Format::Text),
        1 if csv::is_header(line) => Some(Format::Csv),
        2..=4 if all_numbers => Some(Format::Lis),
        _ => None,
    }
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
