//! The formats a trace may come in, and how one is told from another.
//!
//! A format is found by extension (before that of what packed it, which is found by its mark) and otherwise by the
//! first 4 KiB. All but `.u64` and `.rft` describe requests: each becomes the 4 KiB pages it touches, in ascending
//! order.

mod blkparse;
mod csv;
mod csv_columns;
mod csv_fields;
mod damo;
mod iolog;
mod keys;
mod lackey;
mod lcs;
mod lis;
mod memory;
mod msr;
mod numbers;
mod object;
mod oracle_general;
mod order;
mod perf;
mod preset;
mod ranges;
mod redis;
mod request;
mod text;
mod twitter;
mod u64;
mod vscsi;

use std::path::Path;

use crate::TraceError;
use crate::input::Input;
use crate::reader::{ObjectsAs, Options, TraceReader};
use request::{LineFormat, Lines, RequestReader, Requests};

pub use csv_columns::CsvColumns;
pub use csv_fields::TimeUnit;
pub(crate) use oracle_general::RECORD_BYTES as ORACLE_RECORD_BYTES;
pub(crate) use u64::apply_kinds;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;

use crate::facts::Format;

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
    if let Some(bytes) = options.block_bytes
        && !(1..=PAGE_BYTES as u32).contains(&bytes)
    {
        let reason = format!("the unit of block numbers must be from 1 to {PAGE_BYTES} bytes, not {bytes}");
        return Err(TraceError::unsuitable(input.path(), reason));
    }
    if options.block_bytes.is_some() && options.objects == ObjectsAs::Sized && format == Format::OracleGeneral {
        let reason = "its objects are either blocks (--block-bytes) or have sizes (--objects-have-sizes), not both";
        return Err(TraceError::unsuitable(input.path(), reason));
    }
    let mut lines = Open { input, options };
    Ok(match format {
        Format::U64 => u64::reader(lines.input, options.kind)?,
        Format::Rft => Box::new(lines.input.into_rft(options.kind)?),
        Format::OracleGeneral => lines.requests(oracle_general::OracleGeneral::new(options)),
        Format::Lcs => lines.requests(lcs::Lcs::new(options)),
        Format::Vscsi => lines.requests(vscsi::Vscsi::new(options)),
        Format::Damo => lines.requests(damo::Damo::new(options)),
        Format::Blkparse => lines.requests(blkparse::Blkparse::new(options)),
        Format::Redis => lines.requests(redis::Redis::new(options)),
        Format::Csv => {
            let csv = csv::Csv::new(options).with_head(lines.input.head()?);
            lines.lines(csv)
        }
        Format::Alibaba => lines.lines(csv::Csv::preset(&preset::ALIBABA, options)),
        Format::Tencent => lines.lines(csv::Csv::preset(&preset::TENCENT, options)),
        Format::Spc => lines.lines(csv::Csv::preset(&preset::SPC, options)),
        Format::Tr => lines.lines(csv::Csv::preset(&preset::TR, options)),
        Format::Ibm => lines.lines(csv::Csv::preset(&preset::IBM, options)),
        Format::Lackey => lines.lines(lackey::Lackey::new(options)),
        Format::Dinero => lines.lines(memory::Memory::new(memory::Tool::Dinero, options)),
        Format::Pin => lines.lines(memory::Memory::new(memory::Tool::Pin, options)),
        Format::Text => lines.lines(text::Text::new(options)),
        Format::Keys => lines.lines(keys::Keys::new(options)),
        Format::Lis => lines.lines(lis::Lis::new(options)),
        Format::Msr => lines.lines(msr::Msr::new(options)),
        Format::Iolog => lines.lines(iolog::Iolog::new(options)),
        Format::Perf => lines.lines(perf::Perf::new(options)),
        Format::Twitter => lines.lines(twitter::Twitter::new(options)),
    })
}

/// An input to be read by some format.
struct Open<'a> {
    input: Input,
    options: &'a Options,
}

impl Open<'_> {
    fn requests<R: Requests + 'static>(self, requests: R) -> Box<dyn TraceReader> {
        Box::new(RequestReader::new(self.input, requests, self.options))
    }

    fn lines<F: LineFormat + 'static>(self, format: F) -> Box<dyn TraceReader> {
        self.requests(Lines::new(format))
    }
}

/// Finds the format of an input.
pub(crate) fn detect(input: &mut Input, path: &Path, options: &Options) -> Result<(Format, FoundBy), TraceError> {
    let said = options.format.or(Format::of_name(path));
    let binary = [Format::U64, Format::Rft, Format::OracleGeneral, Format::Lcs, Format::Vscsi];
    let is_text = said.is_none_or(|format| !binary.contains(&format));
    if let Some(what) = foreign(input.head()?, is_text) {
        return Err(TraceError::unsuitable(input.path(), what));
    }
    let head = input.head()?;
    // Keys may look like it.
    if said.is_none_or(|format| format == Format::Csv) && is_json(head) && !damo::is_json(head) {
        let reason = "is JSON, but not damo's: write its values as CSV, as by `jq -r '[.time, .key, .size] | @csv'`";
        return Err(TraceError::unsuitable(input.path(), reason));
    }
    if said == Some(Format::OracleGeneral) && head.iter().all(u8::is_ascii) && !head.contains(&0) {
        let reason = "is text, not records of oracleGeneral: rename it, or name its format by --trace-format";
        return Err(TraceError::unsuitable(input.path(), reason));
    }
    if let Some(format) = options.format {
        return Ok((format, FoundBy::Asked));
    }
    let named = Format::of_name(path);
    if named == Some(Format::OracleGeneral) {
        return Ok((Format::OracleGeneral, FoundBy::Name));
    }
    let head = input.head()?;
    let marked = [(Format::Rft, head.starts_with(&crate::rft::MAGIC)), (Format::Lcs, lcs::is_head(head))];
    if let Some((format, _)) = marked.into_iter().find(|(_, is)| *is) {
        return Ok((format, FoundBy::Contents));
    }
    // Columns that were named are those of CSV.
    let columns_given = options.columns != CsvColumns::default();
    let sniffed = sniff(head);
    match named {
        Some(Format::Csv) if columns_given => return Ok((Format::Csv, FoundBy::Name)),
        Some(Format::Csv) if !sniffed.is_some_and(Format::may_be_called_csv) => {
            return Ok((Format::Csv, FoundBy::Name));
        }
        Some(Format::Csv) | None => {}
        // DAMON's events are perf's, and many call them so.
        Some(Format::Perf) if sniffed == Some(Format::Damo) => {}
        Some(named) => return Ok((named, FoundBy::Name)),
    }
    let has_columns =
        |format: Format| matches!(format, Format::Csv | Format::Text | Format::Lis) || format.may_be_called_csv();
    if columns_given && sniffed.is_none_or(has_columns) {
        return Ok((Format::Csv, FoundBy::Contents));
    }
    let format = sniffed.ok_or_else(|| {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        let reason =
            format!("cannot tell its format from name or contents; name one by --trace-format: {}", names.join(", "));
        TraceError::unsuitable(input.path(), reason)
    })?;
    Ok((format, FoundBy::Contents))
}

/// What a file of no format here is, and what makes one of it.
fn foreign(head: &[u8], is_text: bool) -> Option<&'static str> {
    if is_text && (head.starts_with(b"\xFF\xFE") || head.starts_with(b"\xFE\xFF")) {
        return Some("is text in UTF-16: make it UTF-8, as by `iconv -f UTF-16 -t UTF-8`");
    }
    const MARKS: [(&[u8], &str); 16] = [
        (&[0x07, b't', b'a', b'e'], "is blktrace's binary: print it with `blkparse -i FILE`"),
        (b"eat\x07", "is blktrace's binary: print it with `blkparse -i FILE`"),
        (
            b"PERFILE2",
            "is perf's binary: print it with `perf script -i FILE -F comm,pid,time,event,addr`, or, if damo recorded \
             it, with `perf script -i FILE`",
        ),
        (b"\x17\x08Dtracing", "is trace-cmd's binary: print it with `trace-cmd report -i FILE`"),
        (b"damon_recfmt_ver", "is an old record of damo: convert it with `damo convert_record_format`"),
        (b"PAR1", "is a Parquet file: write its columns as CSV, such as by DuckDB or pandas"),
        (b"ARROW1", "is an Arrow file: write its columns as CSV, such as by DuckDB or pandas"),
        (b"FEA1", "is a Feather file: write its columns as CSV, such as by DuckDB or pandas"),
        (b"\x93NUMPY", "is an array of NumPy: give it to `refault.Trace` in Python, or write it as CSV"),
        (b"SQLite format 3\0", "is a database of SQLite: write a table as CSV, as by `sqlite3 -csv -header`"),
        (b"BZh", "is packed by bzip2: unpack it, as by `bzip2 -dc FILE | refault … -`"),
        (&[0x1F, 0x9D], "is packed by compress: unpack it, as by `gzip -dc FILE | refault … -`"),
        (b"\x89LZO\0\r\n", "is packed by lzop: unpack it, as by `lzop -dc FILE | refault … -`"),
        (&[0x5D, 0, 0], "is packed by lzma: unpack it, as by `xz -dc FILE | refault … -`"),
        (b"7z\xBC\xAF\x27\x1C", "is a 7z archive: unpack it first"),
        (b"PK\x03\x04", "is a ZIP archive: unpack it first"),
    ];
    if head.get(TAR_MARK_AT..).is_some_and(|rest| rest.starts_with(b"ustar")) {
        return Some("is a tar archive: unpack it, as by `tar -xOf FILE | refault … -` if it holds one file");
    }
    let is_of = |mark: &[u8]| head.starts_with(mark) && (is_text || mark.len() > 3);
    MARKS.iter().find(|(mark, _)| is_of(mark)).map(|(_, what)| *what)
}

/// Where a tar archive says that it is one.
const TAR_MARK_AT: usize = 257;

/// Whether a text begins as objects of JSON, in a list or one per line.
fn is_json(head: &[u8]) -> bool {
    let text = head.trim_ascii_start();
    let text = text.strip_prefix(b"[").unwrap_or(text).trim_ascii_start();
    text.strip_prefix(b"{").is_some_and(|rest| matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')))
}

/// Whether a line is of a format.
type IsLine = fn(&[u8]) -> bool;

/// Tells text formats apart by their first lines. Of the binary ones only some have a mark.
fn sniff(head: &[u8]) -> Option<Format> {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..);
    if !head.iter().all(is_text) {
        return vscsi::is_head(head).then_some(Format::Vscsi);
    }
    if damo::is_json(head) {
        return Some(Format::Damo);
    }
    let ends = memchr::memrchr(b'\n', head).map_or(head.len(), |end| end + 1);
    // A line that was cut is no line, unless it is all there is.
    let lines = || {
        let lines = head[..ends].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"))
    };
    let comments = head.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"#"));
    if comments.map(<[u8]>::trim_ascii_end).next().is_some_and(perf::is_line) {
        return Some(Format::Perf);
    }
    let line = lines().find(|line| !perf::is_record(line))?;
    // Its offsets count sectors, which the names of its columns do not say.
    if preset::TENCENT.is_likely(lines()) {
        return Some(Format::Tencent);
    }
    let by_line: [(Format, IsLine); 10] = [
        (Format::Iolog, iolog::is_line),
        (Format::Lackey, lackey::is_line),
        (Format::Damo, damo::is_line),
        (Format::Redis, redis::is_line),
        (Format::Pin, memory::is_pin_line),
        (Format::Blkparse, blkparse::is_line),
        (Format::Perf, perf::is_line),
        (Format::Msr, msr::is_header),
        (Format::Csv, csv::is_header),
        (Format::Twitter, twitter::is_line),
    ];
    if let Some((format, _)) = by_line.iter().find(|(_, is_line)| is_line(line)) {
        return Some(*format);
    }
    if msr::is_line(line) {
        return Some(Format::Msr);
    }
    let by_lines = [(Format::Alibaba, &preset::ALIBABA), (Format::Spc, &preset::SPC), (Format::Ibm, &preset::IBM)];
    if let Some((format, _)) = by_lines.iter().find(|(_, preset)| preset.is_likely(lines())) {
        return Some(*format);
    }
    if line.contains(&b',') {
        return Some(Format::Csv);
    }
    let one_number = |line: &[u8]| numbers::number(line, "").is_ok();
    match () {
        () if one_number(line) => Some(Format::Text),
        () if lis::are_lines(lines()) => Some(Format::Lis),
        () if preset::TR.is_likely(lines()) => Some(Format::Tr),
        () => None,
    }
}

/// The file's name without compression and format extensions.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    let name = strip_compression(&name);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    if stem.is_empty() { name.to_owned() } else { stem.to_owned() }
}

/// A file's name without the extension of what packed it.
pub(crate) fn strip_compression(name: &str) -> &str {
    let lower = name.to_ascii_lowercase();
    let suffixes = [".zst", ".gz", ".xz", ".lz4"];
    let cut = suffixes.iter().find(|suffix| lower.ends_with(**suffix)).map_or(0, |suffix| suffix.len());
    &name[..name.len() - cut]
}
