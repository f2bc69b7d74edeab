//! Values with named columns, separated by commas, semicolons, tabs or bars.
//!
//! Where an access lies is said by one column: a page number, a byte address in memory, a byte offset in a file or
//! device, a block number, or the name or number of an object. What a size beside it means depends on that: offsets and
//! addresses with sizes are split into the pages they touch, blocks into the pages of `size` bytes or `count` blocks,
//! while a page is one page, and so is an object unless objects have sizes ([`super::object`]); there a size only
//! weighs.
//!
//! The separator is the most frequent of the first line. That line names the columns unless it is data: then the
//! columns must be given by number, or there is only one, of page numbers. Fields may be quoted; a line is a record.

use super::PAGE_BYTES;
use super::csv_columns::{CsvColumns, Layout, Position};
use super::lis::block_detail;
use super::numbers::{number, page, pages_touched};
use super::object::{Objects, Pages, named};
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::Kind;
use crate::error::quote;
use crate::reader::{Details, Options};

const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

pub(crate) struct Csv {
    columns: CsvColumns,
    kind: Option<Kind>,
    block_bytes: Option<u64>,
    objects: Objects,
    limit: u64,
    layout: Option<Layout>,
    separator: u8,
}

/// Whether a line names a column this format knows as a position.
pub(crate) fn is_header(line: &[u8]) -> bool {
    fields(line, separator_of(line)).is_ok_and(|fields| CsvColumns::name_a_position(&fields))
}

/// The separator of a first line: the most frequent one outside quotes.
pub(crate) fn separator_of(line: &[u8]) -> u8 {
    let mut counts = [0usize; SEPARATORS.len()];
    let mut quoted = false;
    for byte in line {
        match SEPARATORS.iter().position(|separator| separator == byte) {
            Some(index) if !quoted => counts[index] += 1,
            _ => quoted ^= *byte == b'"',
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    SEPARATORS[counts.iter().position(|count| *count == most).unwrap_or(0)]
}

impl Csv {
    pub(crate) fn new(options: &Options) -> Csv {
        Csv {
            columns: options.columns.clone(),
            kind: options.kind,
            block_bytes: options.block_bytes.map(u64::from),
            objects: Objects::new(options.objects_have_sizes, options.limits.request_bytes),
            limit: options.limits.request_bytes,
            layout: None,
            separator: b',',
        }
    }

    fn request(&mut self, fields: &[Field]) -> Result<Option<Request>, String> {
        let Some(layout) = &self.layout else { return Ok(None) };
        let field = |index: usize, name: &str| {
            let missing = || format!("{name} is missing: the line has {} fields, not {}", fields.len(), index + 1);
            fields.get(index).map(AsRef::as_ref).ok_or_else(missing)
        };
        let write = match layout.operation {
            Some(index) => match is_write(field(index, "operation")?)? {
                Some(write) => write,
                None => return Ok(None),
            },
            None => false,
        };
        let size = layout.size.map(|index| number(field(index, "size")?, "size")).transpose()?;
        let count = layout.count.map(|index| number(field(index, "count")?, "count")).transpose()?;
        let (first_page, pages, weight): Pages = match layout.position {
            Position::Page(index) => {
                let first = page(number(field(index, "page")?, "page")?)?;
                let count = count.unwrap_or(1);
                if count.saturating_mul(PAGE_BYTES) > self.limit || first + count > 1 << 56 {
                    return Err(format!("{count} pages from page {first} are too many"));
                }
                (first, count, if count == 1 { size.map_or(Weight::Unknown, Weight::Page) } else { Weight::Unknown })
            }
            Position::Address(index) => {
                let address = number(field(index, "address")?, "address")?;
                let (first, pages) = pages_touched(address, size.unwrap_or(1), self.limit)?;
                (first, pages, Weight::Unknown)
            }
            Position::Offset(index) => {
                let offset = number(field(index, "offset")?, "offset")?;
                let (first, pages) = pages_touched(offset, size.unwrap_or(1), self.limit)?;
                (first, pages, size.map_or(Weight::Unknown, |size| Weight::range(offset, size)))
            }
            Position::Block(index, usual) => {
                let unit = self.block_bytes.unwrap_or(usual);
                let block = number(field(index, "block")?, "block")?;
                let offset = block.checked_mul(unit).ok_or_else(|| format!("block {block} lies beyond 2^64 bytes"))?;
                let counted = count.map(|count| count.saturating_mul(unit));
                let known = size.or(counted);
                let (first, pages) = pages_touched(offset, known.unwrap_or(unit), self.limit)?;
                (page(first)?, pages, Weight::range(offset, known.unwrap_or(unit)))
            }
            Position::Object(index) => self.objects.pages(named(field(index, "object")?.trim_ascii()), size)?,
        };
        let kind = match layout.kind {
            Some(index) => kind_of(field(index, "kind")?)?,
            None => self.kind.unwrap_or(layout.position.default_kind()),
        };
        let time = match layout.time {
            Some((index, unit)) => Some(time_of(field(index, "time")?, unit)?),
            None => None,
        };
        Ok((pages > 0).then_some(Request { first_page, pages, kind, write, time, weight }))
    }
}

impl LineFormat for Csv {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if line.trim_ascii().is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        if self.layout.is_none() {
            self.separator = separator_of(line);
            let fields = fields(line, self.separator)?;
            let (layout, is_header) = self.columns.layout(&fields)?;
            self.layout = Some(layout);
            if is_header {
                return Ok(None);
            }
        }
        let fields = fields(line, self.separator)?;
        self.request(&fields)
    }

    fn details(&self) -> Details {
        let Some(layout) = &self.layout else { return Details::new() };
        let separator = match self.separator {
            b',' => "comma",
            b';' => "semicolon",
            b'\t' => "tab",
            _ => "bar",
        };
        let mut details = vec![("separator", separator.to_owned()), ("columns", layout.described.join(", "))];
        match layout.position {
            Position::Object(_) => details.push(("objects", self.objects.described())),
            Position::Block(_, usual) => details.push(block_detail(self.block_bytes.unwrap_or(usual))),
            _ => {}
        }
        details.push(match layout.kind {
            Some(_) => ("kind", "as its column says".to_owned()),
            None => kind_detail(self.kind.unwrap_or(layout.position.default_kind()), self.kind.is_some()),
        });
        details
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

/// `None` for a deletion, which is no access.
fn is_write(field: &[u8]) -> Result<Option<bool>, String> {
    let word = field.trim_ascii().to_ascii_lowercase();
    match word.as_slice() {
        b"r" | b"read" | b"load" | b"get" | b"gets" | b"rs" | b"head" | b"0" | b"false" => Ok(Some(false)),
        b"w" | b"write" | b"store" | b"modify" | b"set" | b"put" | b"ws" | b"add" | b"replace" | b"cas" | b"append"
        | b"prepend" | b"incr" | b"decr" | b"1" | b"true" => Ok(Some(true)),
        b"delete" | b"del" | b"discard" | b"trim" => Ok(None),
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

pub(crate) type Field<'a> = std::borrow::Cow<'a, [u8]>;

/// Splits a line at separators outside quotes; a doubled quote inside quotes is one.
fn fields(line: &[u8], separator: u8) -> Result<Vec<Field<'_>>, String> {
    if !line.contains(&b'"') {
        return Ok(line.split(|byte| *byte == separator).map(Field::Borrowed).collect());
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
            byte if byte == separator && !quoted => fields.push(Field::Owned(std::mem::take(&mut field))),
            byte => field.push(byte),
        }
    }
    if quoted {
        return Err("a quote is not closed on its line".to_owned());
    }
    fields.push(Field::Owned(field));
    Ok(fields)
}
