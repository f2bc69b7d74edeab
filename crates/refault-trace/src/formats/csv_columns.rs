//! Which column of a CSV file is what: by the names asked for, by number, or by the names that are usual.

use super::PAGE_BYTES;
use super::csv::Field;
use super::numbers::number;
use crate::Kind;

/// Which columns of a CSV file to read: by name as in the first line, or by number from 1. `None` looks for the names
/// that each field says, whatever their case; an empty name reads no such column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvColumns {
    /// Page number: `page`, `page_number`, `pfn`, `vpn`. One page per line, or `count` pages.
    pub page: Option<String>,
    /// Byte address in memory: `address`, `addr`, `vaddr`.
    pub address: Option<String>,
    /// Byte offset in a file or device: `offset`, `byte_offset`.
    pub offset: Option<String>,
    /// Block number: `lba`, `lbn`, `sector` (512 bytes each), `block`, `block_number`, `blkno` (a page each), unless
    /// [`crate::Options::block_bytes`] says another unit.
    pub block: Option<String>,
    /// Name or number of an object: `object`, `object_id`, `obj_id`, `obj`, `objid`, `key`, `id`.
    pub object: Option<String>,
    /// Bytes accessed: `size`, `length`, `len`, `bytes`, `object_size`, `obj_size`, `size_bytes`, `value_size`. Without
    /// it an access touches one page or block.
    pub size: Option<String>,
    /// Blocks or pages accessed: `count`, `blocks`, `sectors`, `nr_blocks`, `nr_sectors`, `pages`.
    pub count: Option<String>,
    /// Operation: `op`, `operation`, `type`, `write`, `rw`, `is_write`. Deletions are left out.
    pub operation: Option<String>,
    /// Kind: `kind`.
    pub kind: Option<String>,
    /// Time in seconds (`time`, `timestamp`, `ts`), or in the unit of its name (`time_ms`, `time_us`, `time_ns`).
    pub time: Option<String>,
}

const PAGE_NAMES: &[&str] = &["page", "page_number", "pfn", "vpn"];
const ADDRESS_NAMES: &[&str] = &["address", "addr", "vaddr"];
const OFFSET_NAMES: &[&str] = &["offset", "byte_offset"];
/// Block numbers that count sectors of 512 bytes.
const SECTOR_NAMES: &[&str] = &["lba", "lbn", "sector"];
const BLOCK_NAMES: &[&str] = &["lba", "lbn", "sector", "block", "block_number", "blkno"];
const OBJECT_NAMES: &[&str] = &["object", "object_id", "obj_id", "obj", "objid", "key", "id"];
const SIZE_NAMES: &[&str] = &["size", "length", "len", "bytes", "object_size", "obj_size", "size_bytes", "value_size"];
const COUNT_NAMES: &[&str] = &["count", "blocks", "sectors", "nr_blocks", "nr_sectors", "pages"];
const OPERATION_NAMES: &[&str] = &["op", "operation", "type", "write", "rw", "is_write"];
const KIND_NAMES: &[&str] = &["kind"];
const TIME_NAMES: &[&str] =
    &["time", "timestamp", "ts", "time_s", "time_ms", "time_us", "time_ns", "timestamp_ms", "timestamp_us"];

/// Columns shown in a message, at most.
const MAX_SHOWN: usize = 12;
const SECTOR_BYTES: u64 = 512;

/// Where an access lies: the column and what it counts.
#[derive(Clone, Copy)]
pub(crate) enum Position {
    Page(usize),
    Address(usize),
    Offset(usize),
    /// The column, and the bytes of a block that its name stands for.
    Block(usize, u64),
    Object(usize),
}

impl Position {
    fn column(self) -> usize {
        match self {
            Position::Page(index) | Position::Address(index) | Position::Offset(index) => index,
            Position::Block(index, _) | Position::Object(index) => index,
        }
    }

    /// What its pages are taken for unless options say otherwise.
    pub(crate) fn default_kind(self) -> Kind {
        match self {
            Position::Page(_) | Position::Address(_) => Kind::Anon,
            Position::Offset(_) | Position::Block(..) | Position::Object(_) => Kind::Fd,
        }
    }
}

/// Columns by index.
pub(crate) struct Layout {
    pub(crate) position: Position,
    pub(crate) size: Option<usize>,
    pub(crate) count: Option<usize>,
    pub(crate) operation: Option<usize>,
    pub(crate) kind: Option<usize>,
    /// The column and the nanoseconds of its unit.
    pub(crate) time: Option<(usize, f64)>,
    /// Each of them for people: what it is, and which column.
    pub(crate) described: Vec<String>,
}

/// Finds columns in a first line, and notes what was found.
struct Finder<'a> {
    first: &'a [Field<'a>],
    /// Whether some column was found by name, so that the line is a header.
    named: bool,
    described: Vec<(usize, String)>,
}

impl Finder<'_> {
    fn find(&mut self, what: &str, given: &Option<String>, usual: &[&str]) -> Result<Option<usize>, String> {
        let by_name = |name: &str| self.first.iter().position(|field| same_name(field, name));
        let found = match given.as_deref() {
            Some("") => None,
            // A number is a number, though the first record of a file without a header may hold it.
            Some(name) => match (name.parse::<usize>(), by_name(name)) {
                (Ok(index), _) if (1..=self.first.len()).contains(&index) => Some((index - 1, false)),
                (Ok(index), _) => {
                    return Err(format!("there is no column {index}: the line has {}", self.first.len()));
                }
                (Err(_), Some(index)) => Some((index, true)),
                (Err(_), None) => {
                    let name = name.escape_debug();
                    return Err(format!("no column is called '{name}'; there are: {}", columns_here(self.first)));
                }
            },
            None => usual.iter().find_map(|name| by_name(name)).map(|index| (index, true)),
        };
        let Some((index, by_name)) = found else { return Ok(None) };
        self.named |= by_name;
        let name = String::from_utf8_lossy(self.first[index].trim_ascii()).escape_debug().to_string();
        let name = if by_name { format!("{what} is '{name}' (column {})", index + 1) } else { String::new() };
        let text = if name.is_empty() { format!("{what} is column {}", index + 1) } else { name };
        self.described.push((index, text));
        Ok(Some(index))
    }

    fn drop(&mut self, index: Option<usize>, keep: usize) {
        if index.is_some_and(|index| index != keep) {
            self.described.retain(|(other, _)| Some(*other) != index);
        }
    }
}

impl CsvColumns {
    /// Whether a first line names a column that is usual for a position.
    pub(crate) fn name_a_position(first: &[Field]) -> bool {
        let names = [PAGE_NAMES, ADDRESS_NAMES, OFFSET_NAMES, BLOCK_NAMES, OBJECT_NAMES].concat();
        first.iter().any(|field| names.iter().any(|name| same_name(field, name)))
    }

    /// The layout that the first line gives, and whether that line only names columns.
    pub(crate) fn layout(&self, first: &[Field]) -> Result<(Layout, bool), String> {
        let mut finder = Finder { first, named: false, described: Vec::new() };
        let block = finder.find("block", &self.block, BLOCK_NAMES)?;
        let block_unit = |index: usize| {
            let is_sector = SECTOR_NAMES.iter().any(|name| same_name(&first[index], name));
            if is_sector { SECTOR_BYTES } else { PAGE_BYTES }
        };
        let found = [
            finder.find("page", &self.page, PAGE_NAMES)?.map(Position::Page),
            finder.find("address", &self.address, ADDRESS_NAMES)?.map(Position::Address),
            finder.find("offset", &self.offset, OFFSET_NAMES)?.map(Position::Offset),
            block.map(|index| Position::Block(index, block_unit(index))),
            finder.find("object", &self.object, OBJECT_NAMES)?.map(Position::Object),
        ];
        let given = [&self.page, &self.address, &self.offset, &self.block, &self.object];
        let asked = given.iter().position(|name| name.as_deref().is_some_and(|name| !name.is_empty()));
        let position = match asked {
            Some(index) => found[index],
            None => found.into_iter().flatten().next(),
        };
        let lone_number = first.len() == 1 && number(&first[0], "page").is_ok();
        let position = position
            .or(lone_number.then_some(Position::Page(0)))
            .ok_or_else(|| format!("no column says where an access lies; {}", suggestion(first)))?;
        for other in found {
            finder.drop(other.map(Position::column), position.column());
        }
        let (size, count) = (
            finder.find("size", &self.size, SIZE_NAMES)?,
            match position {
                Position::Page(_) | Position::Block(..) => finder.find("count", &self.count, COUNT_NAMES)?,
                _ => None,
            },
        );
        let operation = finder.find("operation", &self.operation, OPERATION_NAMES)?;
        let (kind, time) = (finder.find("kind", &self.kind, KIND_NAMES)?, finder.find("time", &self.time, TIME_NAMES)?);
        let time = time.map(|index| (index, time_unit(&first[index])));
        let is_header = finder.named || (!lone_number && !is_data(position, first));
        let described = finder.described.into_iter().map(|(_, text)| text).collect();
        Ok((Layout { position, size, count, operation, kind, time, described }, is_header))
    }
}

/// Whether a first line, whose columns were given by number, is a record: its fields that are to be numbers are.
fn is_data(position: Position, first: &[Field]) -> bool {
    match position {
        // A key need be no number; a header has none anywhere.
        Position::Object(_) => first.iter().any(|field| number(field, "").is_ok()),
        _ => number(&first[position.column()], "").is_ok(),
    }
}

/// What there is, and what to write.
fn suggestion(first: &[Field]) -> String {
    if first.iter().all(|field| number(field, "").is_ok()) {
        let columns = first.len();
        return format!("the first line has {columns} numbers and no names: say by number, such as --columns object=2");
    }
    let likely = [("page", "page"), ("addr", "address"), ("off", "offset"), ("lba", "block"), ("block", "block")];
    let likely = likely.iter().chain(&[("sector", "block"), ("key", "object"), ("obj", "object"), ("id", "object")]);
    let name = |field: &Field| String::from_utf8_lossy(field.trim_ascii()).escape_debug().to_string();
    let example = likely
        .filter_map(|(part, what)| {
            let column = first.iter().find(|field| name(field).to_ascii_lowercase().contains(part))?;
            Some(format!("{what}={}", name(column)))
        })
        .next();
    let example = example.unwrap_or_else(|| format!("page={}", name(&first[0])));
    format!("there are: {}; say which, such as --columns {example}", columns_here(first))
}

/// The names of a first line.
fn columns_here(first: &[Field]) -> String {
    let names = first.iter().take(MAX_SHOWN);
    let names: Vec<String> =
        names.map(|field| String::from_utf8_lossy(field.trim_ascii()).escape_debug().take(40).collect()).collect();
    let more = if first.len() > MAX_SHOWN { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

/// Nanoseconds of the unit that a column's name ends in; seconds if it says none.
fn time_unit(name: &[u8]) -> f64 {
    let name = name.trim_ascii().to_ascii_lowercase();
    match () {
        () if name.ends_with(b"_ns") => 1.0,
        () if name.ends_with(b"_us") => 1e3,
        () if name.ends_with(b"_ms") => 1e6,
        () => 1e9,
    }
}

fn same_name(field: &[u8], name: &str) -> bool {
    field.trim_ascii().eq_ignore_ascii_case(name.as_bytes())
}
