//! The formats a trace may come in, and how one is told from another.
//!
//! A format is found by extension (before `.zst` or `.gz`, which are found by magic) and otherwise by the first 4 KiB.
//! All but `.u64` and `.rft` describe requests: each becomes the 4 KiB pages it touches, in ascending order.

mod blkparse;
mod csv;
mod csv_columns;
mod damo;
mod lackey;
mod lis;
mod msr;
mod numbers;
mod object;
mod oracle_general;
mod perf;
mod ranges;
mod request;
mod text;
mod twitter;
mod u64;
mod vscsi;

use std::path::Path;

use crate::TraceError;
use crate::input::Input;
use crate::reader::{Options, TraceReader};
use request::{LineFormat, Lines, RequestReader};

pub use csv_columns::CsvColumns;
pub(crate) use oracle_general::RECORD_BYTES as ORACLE_RECORD_BYTES;
pub(crate) use u64::apply_kinds;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

/// How a trace file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Little-endian 64-bit entries, as [`crate::Entry`] lays them out.
    U64,
    /// refault's own, described in `docs/reference/rft.md`.
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
    /// What `blkparse` prints.
    Blkparse,
    /// What `perf script` and `perf mem report -D` print of memory accesses.
    Perf,
    /// Twitter's public traces of cache clusters.
    Twitter,
    /// VMware's `vscsiStats` traces, as CloudPhysics published them; both versions.
    Vscsi,
    /// What damo records of DAMON.
    Damo,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 13] = [
        Format::U64,
        Format::Rft,
        Format::OracleGeneral,
        Format::Csv,
        Format::Lackey,
        Format::Text,
        Format::Lis,
        Format::Msr,
        Format::Blkparse,
        Format::Perf,
        Format::Twitter,
        Format::Vscsi,
        Format::Damo,
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
            Format::Blkparse => "blkparse",
            Format::Perf => "perf",
            Format::Twitter => "twitter",
            Format::Vscsi => "vscsi",
            Format::Damo => "damo",
        }
    }

    /// The format with a name of the command line, whatever its case.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// The format that a file's name says by its extension, before `.zst` or `.gz`; whatever its case.
    pub fn of_name(path: &Path) -> Option<Format> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let name = strip_compression(&name);
        if name.contains(".oraclegeneral") {
            return Some(Format::OracleGeneral);
        }
        name.rsplit_once('.').and_then(|(_, extension)| Format::from_name(extension))
    }
}

/// How the format of a trace was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// It was asked for.
    Asked,
    /// The file's name says it.
    Name,
    /// The first bytes look like it.
    Contents,
}

impl FoundBy {
    /// In words: `as asked for`, `by its name`, `by its contents`.
    pub const fn words(self) -> &'static str {
        match self {
            FoundBy::Asked => "as asked for",
            FoundBy::Name => "by its name",
            FoundBy::Contents => "by its contents",
        }
    }
}

/// A reader for an input of a format.
pub(crate) fn reader(format: Format, input: Input, options: &Options) -> Result<Box<dyn TraceReader>, TraceError> {
    fn lines<F: LineFormat + 'static>(input: Input, format: F) -> Box<dyn TraceReader> {
        Box::new(RequestReader::new(input, Lines::new(format)))
    }
    if let Some(bytes) = options.block_bytes
        && !(1..=PAGE_BYTES as u32).contains(&bytes)
    {
        let reason = format!("the unit of block numbers must be from 1 to {PAGE_BYTES} bytes, not {bytes}");
        return Err(TraceError::unsuitable(input.path(), reason));
    }
    if options.block_bytes.is_some() && options.objects_have_sizes && format == Format::OracleGeneral {
        let reason = "its objects are either blocks (--block-bytes) or have sizes (--objects-have-sizes), not both";
        return Err(TraceError::unsuitable(input.path(), reason));
    }
    Ok(match format {
        Format::U64 => u64::reader(input, options.kind)?,
        Format::Rft => Box::new(input.into_rft(options.kind)?),
        Format::OracleGeneral => Box::new(RequestReader::new(input, oracle_general::OracleGeneral::new(options))),
        Format::Vscsi => Box::new(RequestReader::new(input, vscsi::Vscsi::new(options))),
        Format::Damo => Box::new(RequestReader::new(input, damo::Damo::new(options))),
        Format::Csv => lines(input, csv::Csv::new(options)),
        Format::Lackey => lines(input, lackey::Lackey::new(options)),
        Format::Text => lines(input, text::Text::new(options)),
        Format::Lis => lines(input, lis::Lis::new(options)),
        Format::Msr => lines(input, msr::Msr::new(options)),
        Format::Blkparse => lines(input, blkparse::Blkparse::new(options)),
        Format::Perf => lines(input, perf::Perf::new(options)),
        Format::Twitter => lines(input, twitter::Twitter::new(options)),
    })
}

/// Finds the format of an input.
pub(crate) fn detect(input: &mut Input, path: &Path, asked: Option<Format>) -> Result<(Format, FoundBy), TraceError> {
    if let Some(format) = asked {
        return Ok((format, FoundBy::Asked));
    }
    let named = Format::of_name(path);
    if named == Some(Format::OracleGeneral) {
        return Ok((Format::OracleGeneral, FoundBy::Name));
    }
    if input.head()?.starts_with(&crate::rft::MAGIC) {
        return Ok((Format::Rft, FoundBy::Contents));
    }
    if let Some(format) = named
        && format != Format::Csv
    {
        return Ok((format, FoundBy::Name));
    }
    let sniffed = sniff(input.head()?);
    if named == Some(Format::Csv) && !matches!(sniffed, Some(Format::Msr | Format::Twitter)) {
        return Ok((Format::Csv, FoundBy::Name));
    }
    let format = sniffed.ok_or_else(|| {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        let reason =
            format!("cannot tell its format from name or contents; name one by --trace-format: {}", names.join(", "));
        TraceError::unsuitable(input.path(), reason)
    })?;
    Ok((format, FoundBy::Contents))
}

/// Tells text formats apart by their first lines. Of the binary ones only some have a mark.
fn sniff(head: &[u8]) -> Option<Format> {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..);
    if !head.iter().all(is_text) {
        return vscsi::is_head(head).then_some(Format::Vscsi);
    }
    if damo::is_json(head) {
        return Some(Format::Damo);
    }
    let mut lines = head.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end).filter(|line| !line.is_empty());
    let line = lines.clone().find(|line| !line.starts_with(b"#"));
    if lines.find(|line| line.starts_with(b"#")).is_some_and(perf::is_line) {
        return Some(Format::Perf);
    }
    let line = line?;
    if lackey::is_line(line) {
        return Some(Format::Lackey);
    }
    if damo::is_line(line) {
        return Some(Format::Damo);
    }
    if blkparse::is_line(line) {
        return Some(Format::Blkparse);
    }
    if perf::is_line(line) {
        return Some(Format::Perf);
    }
    if csv::is_header(line) {
        return Some(Format::Csv);
    }
    if twitter::is_line(line) {
        return Some(Format::Twitter);
    }
    if line.contains(&b',') {
        return Some(if msr::is_line(line) { Format::Msr } else { Format::Csv });
    }
    let fields: Vec<_> = numbers::words(line).collect();
    let all_numbers = fields.iter().all(|field| numbers::number(field, "").is_ok());
    match fields.len() {
        1 if all_numbers => Some(Format::Text),
        // Fewer numbers could be anything; --trace-format lis takes them.
        4 if all_numbers => Some(Format::Lis),
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
