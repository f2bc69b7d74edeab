//! Comma-separated values with named columns.
//!
//! Where an access lies is said by a column of page numbers, of byte addresses in memory or of byte offsets in a file;
//! a size in bytes, an operation, a kind and a time may stand beside it. The first line names the columns unless it is
//! data: then the columns must be given by number, or there is only one, of page numbers. Fields may be quoted; a line
//! is a record.

use super::PAGE_BYTES;
use super::numbers::{number, page, pages_touched};
use super::request::{LineFormat, Request};
use crate::Kind;
use crate::error::quote;
use crate::reader::Options;

/// Which columns of a CSV file to read: by name as in the first line, or by number from 1. `None` looks for the names
/// that each field says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvColumns {
    /// Page number: `page`, `page_number`, `pfn`, `vpn`.
    pub page: Option<String>,
    /// Byte address in memory: `address`, `addr`, `vaddr`.
    pub address: Option<String>,
    /// Byte offset in a file or device: `offset`, `byte_offset`.
    pub offset: Option<String>,
    /// Bytes accessed: `size`, `length`, `len`, `bytes`. Without it an access touches one page.
    pub size: Option<String>,
    /// Operation: `op`, `operation`, `type`, `write`, `rw`, `is_write`.
    pub operation: Option<String>,
    /// Kind: `kind`.
    pub kind: Option<String>,
    /// Time in seconds (`time`, `timestamp`), or in the unit of its name (`time_ms`, `time_us`, `time_ns`).
    pub time: Option<String>,
}

const PAGE_NAMES: &[&str] = &["page", "page_number", "pfn", "vpn"];
const ADDRESS_NAMES: &[&str] = &["address", "addr", "vaddr"];
const OFFSET_NAMES: &[&str] = &["offset", "byte_offset"];
const SIZE_NAMES: &[&str] = &["size", "length", "len", "bytes"];
const OPERATION_NAMES: &[&str] = &["op", "operation", "type", "write", "rw", "is_write"];
const KIND_NAMES: &[&str] = &["kind"];
const TIME_NAMES: &[&str] = &["time", "timestamp", "time_s", "time_ms", "time_us", "time_ns"];

/// Where an access lies: the column and what it counts.
#[derive(Clone, Copy)]
enum Position {
    Page(usize),
    Address(usize),
    Offset(usize),
}

/// Columns by index.
struct Layout {
    position: Position,
    size: Option<usize>,
    operation: Option<usize>,
    kind: Option<usize>,
    /// The column and the nanoseconds of its unit.
    time: Option<(usize, f64)>,
}

pub(crate) struct Csv {
    columns: CsvColumns,
    kind: Option<Kind>,
    limit: u64,
    layout: Option<Layout>,
}

/// Whether a line names a column this format knows as a position.
pub(crate) fn is_header(line: &[u8]) -> bool {
    let names = [PAGE_NAMES, ADDRESS_NAMES, OFFSET_NAMES].concat();
    fields(line).is_ok_and(|fields| fields.iter().any(|field| names.iter().any(|name| same_name(field, name))))
}

impl Csv {
    pub(crate) fn new(options: &Options) -> Csv {
        let (columns, limit) = (options.columns.clone(), options.limits.request_bytes);
        Csv { columns, kind: options.kind, limit, layout: None }
    }

    fn request(&self, layout: &Layout, fields: &[Field]) -> Result<Option<Request>, String> {
        let field = |index: usize, name: &str| {
            let missing = || format!("{name} is missing: the line has {} fields, not {}", fields.len(), index + 1);
            fields.get(index).map(AsRef::as_ref).ok_or_else(missing)
        };
        let size = layout.size.map(|index| number(field(index, "size")?, "size")).transpose()?;
        let (first_page, pages) = match layout.position {
            Position::Page(index) => {
                let first = page(number(field(index, "page")?, "page")?)?;
                let offset = first.checked_mul(PAGE_BYTES);
                match (size, offset) {
                    (None, _) => (first, 1),
                    (Some(size), Some(offset)) => pages_touched(offset, size, self.limit)?,
                    (Some(_), None) => return Err(format!("page {first} lies beyond 2^64 bytes")),
                }
            }
            Position::Address(index) => {
                pages_touched(number(field(index, "address")?, "address")?, size.unwrap_or(1), self.limit)?
            }
            Position::Offset(index) => {
                pages_touched(number(field(index, "offset")?, "offset")?, size.unwrap_or(1), self.limit)?
            }
        };
        let write = match layout.operation {
            Some(index) => is_write(field(index, "operation")?)?,
            None => false,
        };
        let default_kind = match layout.position {
            Position::Offset(_) => Kind::Fd,
            _ => Kind::Anon,
        };
        let kind = match layout.kind {
            Some(index) => kind_of(field(index, "kind")?)?,
            None => self.kind.unwrap_or(default_kind),
        };
        let time = match layout.time {
            Some((index, unit)) => Some(time_of(field(index, "time")?, unit)?),
            None => None,
        };
        Ok((pages > 0).then_some(Request { first_page, pages, kind, write, time }))
    }
}

impl LineFormat for Csv {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        let fields = fields(line)?;
        if self.layout.is_none() {
            let (layout, is_header) = self.columns.layout(&fields)?;
            self.layout = Some(layout);
            if is_header {
                return Ok(None);
            }
        }
        self.request(self.layout.as_ref().expect("invariant: the first line made it"), &fields)
    }
}

impl CsvColumns {
    /// The layout that the first line gives, and whether that line only names columns.
    fn layout(&self, first: &[Field]) -> Result<(Layout, bool), String> {
        let mut named = false;
        let mut find = |given: &Option<String>, usual: &[&str]| -> Result<Option<usize>, String> {
            let by_name = |name: &str| first.iter().position(|field| same_name(field, name));
            let found = match given {
                Some(name) => match (by_name(name), name.parse::<usize>()) {
                    (Some(index), _) => Some((index, true)),
                    (None, Ok(index)) if (1..=first.len()).contains(&index) => Some((index - 1, false)),
                    (None, Ok(index)) => {
                        return Err(format!("there is no column {index}: the line has {}", first.len()));
                    }
                    (None, Err(_)) => return Err(format!("no column is called '{}'", name.escape_debug())),
                },
                None => usual.iter().find_map(|name| by_name(name)).map(|index| (index, true)),
            };
            named |= found.is_some_and(|(_, by_name)| by_name);
            Ok(found.map(|(index, _)| index))
        };
        let positions = [
            find(&self.page, PAGE_NAMES)?.map(Position::Page),
            find(&self.address, ADDRESS_NAMES)?.map(Position::Address),
            find(&self.offset, OFFSET_NAMES)?.map(Position::Offset),
        ];
        let given = [&self.page, &self.address, &self.offset].map(Option::is_some);
        let (size, operation) = (find(&self.size, SIZE_NAMES)?, find(&self.operation, OPERATION_NAMES)?);
        let (kind, time) = (find(&self.kind, KIND_NAMES)?, find(&self.time, TIME_NAMES)?);
        let chosen = given.iter().position(|given| *given);
        let position = match chosen {
            Some(index) => positions[index],
            None => positions.into_iter().flatten().next(),
        };
        let lone_number = first.len() == 1 && number(&first[0], "page").is_ok();
        let position = position
            .or(lone_number.then_some(Position::Page(0)))
            .ok_or("no column is called page, address or offset; say which column is which, by name or by number")?;
        let index = match position {
            Position::Page(index) | Position::Address(index) | Position::Offset(index) => index,
        };
        let time = time.map(|index| (index, time_unit(&first[index])));
        let is_header = named || number(&first[index], "").is_err();
        Ok((Layout { position, size, operation, kind, time }, is_header))
    }
}

/// Nanoseconds of the unit that a column's name ends in; seconds if it says none.
fn time_unit(name: &[u8]) -> f64 {
    let name = name.to_ascii_lowercase();
    match () {
        () if name.ends_with(b"_ns") => 1.0,
        () if name.ends_with(b"_us") => 1e3,
        () if name.ends_with(b"_ms") => 1e6,
        () => 1e9,
    }
}

fn time_of(field: &[u8], unit: f64) -> Result<u64, String> {
    if let Ok(whole) = number(field, "time") {
        return Ok(whole.saturating_mul(unit as u64));
    }
    let value = std::str::from_utf8(field).ok().and_then(|text| text.trim().parse::<f64>().ok());
    match value {
        Some(value) if value >= 0.0 && value.is_finite() => Ok((value * unit) as u64),
        Some(_) => Err(format!("time {} is negative or not finite", quote(field))),
        None => Err(format!("time {} is not a number", quote(field))),
    }
}

fn is_write(field: &[u8]) -> Result<bool, String> {
    let word = field.trim_ascii().to_ascii_lowercase();
    match word.as_slice() {
        b"r" | b"read" | b"load" | b"get" | b"rs" | b"0" | b"false" => Ok(false),
        b"w" | b"write" | b"store" | b"modify" | b"set" | b"put" | b"ws" | b"1" | b"true" => Ok(true),
        _ => Err(format!("operation {} is neither a read (r, read, 0) nor a write (w, write, 1)", quote(field))),
    }
}

fn kind_of(field: &[u8]) -> Result<Kind, String> {
    match field.trim_ascii() {
        b"anon" | b"0" => Ok(Kind::Anon),
        b"fd" | b"1" => Ok(Kind::Fd),
        b"mapped" | b"2" => Ok(Kind::Mapped),
        _ => Err(format!("kind {} is not anon, fd or mapped", quote(field))),
    }
}

fn same_name(field: &[u8], name: &str) -> bool {
    field.trim_ascii().eq_ignore_ascii_case(name.as_bytes())
}

type Field<'a> = std::borrow::Cow<'a, [u8]>;

/// Splits a line at commas outside quotes; a doubled quote inside quotes is one.
fn fields(line: &[u8]) -> Result<Vec<Field<'_>>, String> {
    if !line.contains(&b'"') {
        return Ok(line.split(|byte| *byte == b',').map(Field::Borrowed).collect());
    }
    let (mut fields, mut field, mut quoted) = (Vec::new(), Vec::new(), false);
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' if quoted && bytes.peek() == Some(&b'"') => {
                bytes.next();
                field.push(b'"');
            }
            b'"' => quoted = !quoted,
            b',' if !quoted => fields.push(Field::Owned(std::mem::take(&mut field))),
            byte => field.push(byte),
        }
    }
    if quoted {
        return Err("a quote is not closed on its line".to_owned());
    }
    fields.push(Field::Owned(field));
    Ok(fields)
}
