//! Which column of a CSV file is what: by the names asked for, by number, or by the names that are usual.

use super::PAGE_BYTES;
use super::csv_fields::{Field, SEPARATOR_NAMES, TimeUnit, separator_name, separator_named, time_number};
use super::numbers::number;
use crate::Kind;
use crate::remark::{Doubt, Remark};

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
    /// Disk, device or volume, of which each has positions of its own: `disk`, `device`, `lun`, `asu`, `volume` and the
    /// like; several columns that name it together are joined by `+`.
    pub device: Option<String>,
    /// Bytes accessed: `size`, `length`, `len`, `bytes`, `object_size`, `obj_size`, `size_bytes`, `value_size` and the
    /// like. Without it an access touches one page or block.
    pub size: Option<String>,
    /// Bytes of the key beside the size of its value: `key_size`.
    pub key_size: Option<String>,
    /// Blocks or pages accessed: `count`, `blocks`, `sectors`, `nr_blocks`, `nr_sectors`, `pages`. Of objects: how
    /// often the record counts, `op_count`.
    pub count: Option<String>,
    /// Operation: `op`, `operation`, `type`, `write`, `rw`, `is_write` and the like. Deletions are left out.
    pub operation: Option<String>,
    /// Kind: `kind`.
    pub kind: Option<String>,
    /// Time: `time`, `timestamp`, `ts`, or with a unit `time_s`, `time_ms`, `time_us`, `time_ns`.
    pub time: Option<String>,
    /// The unit of the time; `None` takes that of the column's name, or tells it by the first time's magnitude.
    pub time_unit: Option<TimeUnit>,
    /// Time to live, which is counted and not used: `ttl`.
    pub ttl: Option<String>,
    /// Columns that are known not to matter, so that nothing is said of them.
    pub unread: Vec<String>,
    /// What parts columns: `,`, `;`, tab, `|`, or a blank, of which several are one. `None` finds it from the first
    /// lines.
    pub separator: Option<u8>,
}

const PAGE_NAMES: &[&str] = &["page", "page_number", "pfn", "vpn"];
const ADDRESS_NAMES: &[&str] = &["address", "addr", "vaddr"];
const OFFSET_NAMES: &[&str] = &["offset", "byte_offset"];
/// Block numbers that count sectors of 512 bytes.
const SECTOR_NAMES: &[&str] = &["lba", "lbn", "sector"];
const BLOCK_NAMES: &[&str] = &["lba", "lbn", "sector", "block", "block_number", "blkno"];
const OBJECT_NAMES: &[&str] =
    &["object", "object_id", "obj_id", "obj", "objid", "key", "id", "cachekey", "hashed_path_query", "url"];
/// Names of a disk; those of its host are joined to it.
const DEVICE_NAMES: &[&str] = &[
    "device",
    "device_id",
    "dev",
    "disk",
    "disk_id",
    "disknumber",
    "disk_number",
    "disknum",
    "lun",
    "asu",
    "volume",
    "volume_id",
    "volumeid",
    "vol",
    "vol_id",
    "vdisk",
    "namespace",
    "nsid",
];
const HOST_NAMES: &[&str] = &["hostname", "host", "server"];
const SIZE_NAMES: &[&str] = &[
    "size",
    "length",
    "len",
    "bytes",
    "object_size",
    "obj_size",
    "size_bytes",
    "value_size",
    "objectsize",
    "response_size",
    "io_size",
    "iosize",
];
const KEY_SIZE_NAMES: &[&str] = &["key_size"];
const COUNT_NAMES: &[&str] = &["count", "blocks", "sectors", "nr_blocks", "nr_sectors", "pages"];
/// How often a record of an object counts.
const REPEAT_NAMES: &[&str] = &["op_count"];
const OPERATION_NAMES: &[&str] =
    &["op", "operation", "opcode", "type", "write", "rw", "is_write", "iotype", "io_type", "optype", "op_type"];
/// Names that say what 0 and 1 mean.
const WRITE_NAMES: &[&str] = &["write", "is_write"];
const KIND_NAMES: &[&str] = &["kind"];
const TTL_NAMES: &[&str] = &["ttl"];
const TIME_NAMES: &[&str] = &[
    "time",
    "timestamp",
    "ts",
    "time_s",
    "time_ms",
    "time_us",
    "time_ns",
    "timestamp_ms",
    "timestamp_us",
    "timestamp_ns",
    "op_time",
    "relative_unix",
];

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

    /// Whether a size beside it only weighs, so that a record may do without.
    pub(crate) fn is_weighed(self) -> bool {
        matches!(self, Position::Page(_) | Position::Object(_))
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
    /// The columns that together name a disk.
    pub(crate) devices: Vec<usize>,
    pub(crate) size: Option<usize>,
    pub(crate) key_size: Option<usize>,
    pub(crate) count: Option<usize>,
    pub(crate) operation: Option<usize>,
    /// Whether 0 and 1 as operations mean what is said of them.
    pub(crate) numbers_are_known: bool,
    /// The number 1 reads, as in Meta's traces of its CDN.
    pub(crate) one_reads: bool,
    /// Whether to remark that no column says the operation.
    pub(crate) operations_are_missing: bool,
    pub(crate) kind: Option<usize>,
    /// The column, and its unit if that is known.
    pub(crate) time: Option<(usize, Option<TimeUnit>)>,
    pub(crate) ttl: Option<usize>,
    /// Each of them for people: what it is, and which column.
    pub(crate) described: Vec<String>,
    /// Columns of the first line.
    pub(crate) width: usize,
    /// What was assumed of the first line.
    pub(crate) remarks: Vec<Remark>,
}

/// Finds columns in a first line, and notes what was found.
struct Finder<'a> {
    first: &'a [Field<'a>],
    /// Whether some column was found by name, so that the line is a header.
    named: bool,
    /// The line is a record, in which usual names are data.
    is_data: bool,
    described: Vec<(usize, String)>,
}

impl Finder<'_> {
    fn find(&mut self, what: &str, given: &Option<String>, usual: &[&str]) -> Result<Option<usize>, String> {
        let found = match given.as_deref() {
            Some("") => None,
            Some(name) => Some(self.column(name)?),
            None => self.usual(usual),
        };
        let Some((index, by_name)) = found else { return Ok(None) };
        self.note(what, index, by_name);
        Ok(Some(index))
    }

    /// The columns that together name a disk.
    fn devices(&mut self, given: &Option<String>) -> Result<Vec<usize>, String> {
        let mut found = Vec::new();
        match given.as_deref() {
            Some("") => {}
            Some(names) => {
                for name in names.split('+') {
                    found.push(self.column(name)?);
                }
            }
            None => {
                if let Some(device) = self.usual(DEVICE_NAMES) {
                    found.extend(self.usual(HOST_NAMES));
                    found.push(device);
                }
            }
        }
        for (index, by_name) in &found {
            self.note("device", *index, *by_name);
        }
        Ok(found.into_iter().map(|(index, _)| index).collect())
    }

    /// The column with the first of the usual names that is there.
    fn usual(&self, names: &[&str]) -> Option<(usize, bool)> {
        let found = names.iter().filter(|_| !self.is_data).find_map(|name| self.by_name(name));
        found.map(|index| (index, true))
    }

    fn by_name(&self, name: &str) -> Option<usize> {
        self.first.iter().position(|field| same_name(field, name))
    }

    /// The column with a name or number, and whether it was found by its name.
    fn column(&self, name: &str) -> Result<(usize, bool), String> {
        // A number is a number, though the first record of a file without a header may hold it.
        match (name.parse::<usize>(), self.by_name(name)) {
            (Ok(index), _) if (1..=self.first.len()).contains(&index) => Ok((index - 1, false)),
            (Ok(index), _) => {
                let columns = columns_here(self.first, true);
                Err(format!("there is no column {index}: the line has {}: {columns}", self.first.len()))
            }
            (Err(_), Some(index)) => Ok((index, true)),
            (Err(_), None) => {
                let columns = columns_here(self.first, is_record(self.first));
                Err(format!("no column is called '{}'; there are: {columns}", name.escape_debug()))
            }
        }
    }

    fn note(&mut self, what: &str, index: usize, by_name: bool) {
        self.named |= by_name;
        let name = String::from_utf8_lossy(self.first[index].trim_ascii()).escape_debug().to_string();
        let name = if by_name { format!("{what} is '{name}' (column {})", index + 1) } else { String::new() };
        let text = if name.is_empty() { format!("{what} is column {}", index + 1) } else { name };
        self.described.push((index, text));
    }

    /// The remark that columns are not read, except `known` ones.
    fn unread(&self, known: &[usize], is_header: bool) -> Option<Remark> {
        let is_read = |index: &usize| self.described.iter().any(|(other, _)| other == index);
        let unread: Vec<usize> =
            (0..self.first.len()).filter(|index| !is_read(index) && !known.contains(index)).collect();
        let name = |index: &usize| match is_header && !self.first[*index].trim_ascii().is_empty() {
            true => String::from_utf8_lossy(self.first[*index].trim_ascii()).escape_debug().take(40).collect(),
            false => (index + 1).to_string(),
        };
        let names: Vec<String> = unread.iter().take(MAX_SHOWN).map(name).collect();
        let more = if unread.len() > MAX_SHOWN { ", …" } else { "" };
        let text = format!(
            "columns that are not read: {}{more}; --columns unread=NAME says that one does not matter",
            names.join(", ")
        );
        (!unread.is_empty()).then(|| Remark::with_text(Doubt::UnreadColumns, unread.len() as u64, text))
    }

    fn drop(&mut self, index: Option<usize>, keep: usize) {
        if index.is_some_and(|index| index != keep) {
            self.described.retain(|(other, _)| Some(*other) != index);
        }
    }
}

impl CsvColumns {
    /// Fields that can be given a column; those of times say their unit.
    pub const FIELDS: [&str; 20] = [
        "page",
        "address",
        "offset",
        "block",
        "object",
        "device",
        "size",
        "key_size",
        "count",
        "operation",
        "kind",
        "ttl",
        "time",
        "time_s",
        "time_ms",
        "time_us",
        "time_ns",
        "filetime",
        "unread",
        "separator",
    ];

    /// Gives one of [`CsvColumns::FIELDS`] its column, as the options of the command and of Python do.
    ///
    /// # Errors
    /// Another field; the sentence lists all.
    ///
    /// ```
    /// use refault_trace::CsvColumns;
    ///
    /// let mut columns = CsvColumns::default();
    /// columns.set("time_us", "when")?;
    /// assert_eq!(columns.time.as_deref(), Some("when"));
    /// # Ok::<(), String>(())
    /// ```
    pub fn set(&mut self, field: &str, column: &str) -> Result<(), String> {
        let unit = match field {
            "time_s" => Some(TimeUnit::Seconds),
            "time_ms" => Some(TimeUnit::Milliseconds),
            "time_us" => Some(TimeUnit::Microseconds),
            "time_ns" => Some(TimeUnit::Nanoseconds),
            "filetime" => Some(TimeUnit::FileTime),
            _ => None,
        };
        let place = match field {
            "page" => &mut self.page,
            "address" => &mut self.address,
            "offset" => &mut self.offset,
            "block" => &mut self.block,
            "object" => &mut self.object,
            "device" => &mut self.device,
            "size" => &mut self.size,
            "key_size" => &mut self.key_size,
            "count" => &mut self.count,
            "operation" => &mut self.operation,
            "kind" => &mut self.kind,
            "ttl" => &mut self.ttl,
            "unread" => {
                self.unread.push(column.to_owned());
                return Ok(());
            }
            "separator" => {
                self.separator = Some(separator_named(column).ok_or(format!("separators are {SEPARATOR_NAMES}"))?);
                return Ok(());
            }
            _ if unit.is_some() || field == "time" => {
                self.time_unit = unit;
                &mut self.time
            }
            _ => return Err(format!("columns are {}", Self::FIELDS.join(", "))),
        };
        *place = Some(column.to_owned());
        Ok(())
    }

    /// What [`CsvColumns::set`] was told, to be told again elsewhere.
    ///
    /// ```
    /// use refault_trace::CsvColumns;
    ///
    /// let mut columns = CsvColumns::default();
    /// columns.set("unread", "latency")?;
    /// columns.set("time_us", "when")?;
    /// assert_eq!(columns.told(), [("time_us", "when".to_owned()), ("unread", "latency".to_owned())]);
    /// # Ok::<(), String>(())
    /// ```
    pub fn told(&self) -> Vec<(&'static str, String)> {
        let time = self.time_unit.map_or("time", |unit| unit.words().1);
        let columns = [
            ("page", &self.page),
            ("address", &self.address),
            ("offset", &self.offset),
            ("block", &self.block),
            ("object", &self.object),
            ("device", &self.device),
            ("size", &self.size),
            ("key_size", &self.key_size),
            ("count", &self.count),
            ("operation", &self.operation),
            ("kind", &self.kind),
            ("ttl", &self.ttl),
            (time, &self.time),
        ];
        let said = columns.into_iter().filter_map(|(field, column)| Some((field, column.clone()?)));
        let unread = self.unread.iter().map(|column| ("unread", column.clone()));
        let separator = self.separator.map(|separator| ("separator", separator_name(separator).to_owned()));
        said.chain(unread).chain(separator).collect()
    }

    /// Whether a first line names a column that is usual for a position.
    pub(crate) fn name_a_position(first: &[Field]) -> bool {
        let names = [PAGE_NAMES, ADDRESS_NAMES, OFFSET_NAMES, BLOCK_NAMES, OBJECT_NAMES].concat();
        first.iter().any(|field| names.iter().any(|name| same_name(field, name)))
    }

    /// Whether the column that was given by number holds a number in a first line.
    fn number_data(&self, first: &[Field]) -> bool {
        let given = [&self.page, &self.address, &self.offset, &self.block].into_iter().flatten();
        let mut columns = given.filter_map(|name| name.parse::<usize>().ok());
        columns.any(|column| column > 0 && first.get(column - 1).is_some_and(|field| number(field, "").is_ok()))
    }

    /// Whether a first line may be parted like this: the columns that were given by number are there, and those that
    /// hold numbers do.
    pub(crate) fn fit(&self, first: &[Field]) -> bool {
        let index = |column: &str| column.parse::<usize>().ok().filter(|number| *number > 0).map(|number| number - 1);
        let is_number = |field: &Field| time_number(field).is_ok() || number(field, "").is_ok();
        self.told().iter().all(|(field, column)| {
            let holds_number = !matches!(*field, "object" | "device" | "operation" | "kind" | "unread" | "separator");
            column.split('+').filter_map(index).all(|index| {
                first.get(index).is_some_and(|field| !holds_number || field.trim_ascii().is_empty() || is_number(field))
            })
        })
    }

    /// The layout that the first line gives, and whether that line only names columns.
    pub(crate) fn layout(&self, first: &[Field]) -> Result<(Layout, bool), String> {
        let mut finder = Finder { first, named: false, is_data: self.number_data(first), described: Vec::new() };
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
        let is_object = matches!(position, Position::Object(_));
        // A column called `device` beside an object's name is no disk, unless it is said to be.
        let devices = if is_object && self.device.is_none() { Vec::new() } else { finder.devices(&self.device)? };
        let size = finder.find("size", &self.size, SIZE_NAMES)?;
        let key_size =
            if is_object && size.is_some() { finder.find("key size", &self.key_size, KEY_SIZE_NAMES)? } else { None };
        let count = match position {
            Position::Page(_) | Position::Block(..) => finder.find("count", &self.count, COUNT_NAMES)?,
            Position::Object(_) => finder.find("count", &self.count, REPEAT_NAMES)?,
            Position::Address(_) | Position::Offset(_) => None,
        };
        let operation = finder.find("operation", &self.operation, OPERATION_NAMES)?;
        let one_reads = operation.is_some_and(|index| same_name(&first[index], "optype"))
            && first.iter().any(|field| same_name(field, "cachekey"));
        let numbers_are_known =
            one_reads || operation.is_some_and(|index| WRITE_NAMES.iter().any(|name| same_name(&first[index], name)));
        let kind = finder.find("kind", &self.kind, KIND_NAMES)?;
        let time = finder.find("time", &self.time, TIME_NAMES)?;
        let time = time.map(|index| (index, self.time_unit.or_else(|| time_unit(first, index))));
        let ttl = finder.find("time to live", &self.ttl, TTL_NAMES)?;
        let is_header = finder.named || (!lone_number && !is_data(position, first));
        let mut remarks = Vec::new();
        if is_header && (!finder.named || is_record(first)) {
            let text = format!("the first line is taken for a header: {}", columns_here(first, false));
            remarks.push(Remark::with_text(Doubt::FirstLineIsHeader, 1, text));
        }
        let unread: Vec<usize> =
            self.unread.iter().map(|name| Ok(finder.column(name)?.0)).collect::<Result<_, String>>()?;
        remarks.extend(finder.unread(&unread, is_header));
        let described = finder.described.into_iter().map(|(_, text)| text).collect();
        let layout = Layout {
            position,
            devices,
            size,
            key_size,
            count,
            operation,
            numbers_are_known,
            one_reads,
            operations_are_missing: operation.is_none() && self.operation.is_none(),
            kind,
            time,
            ttl,
            described,
            width: first.len(),
            remarks,
        };
        Ok((layout, is_header))
    }
}

/// Whether a first line looks like a record, because a field is a number.
fn is_record(first: &[Field]) -> bool {
    let is_number = |field: &Field| std::str::from_utf8(field).is_ok_and(|text| text.trim().parse::<f64>().is_ok());
    first.iter().any(is_number)
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
    if first.len() == 1 {
        return format!(
            "the line has one column, {}; columns are parted by {SEPARATOR_NAMES}",
            columns_here(first, false)
        );
    }
    if is_record(first) {
        let columns = columns_here(first, true);
        return format!("the first line does not name columns: {columns}; say by number, such as --columns object=2");
    }
    let likely = [("page", "page"), ("addr", "address"), ("off", "offset"), ("lba", "block"), ("block", "block")];
    let likely = likely.iter().chain(&[("sector", "block"), ("key", "object"), ("obj", "object"), ("id", "object")]);
    let name = |field: &Field| String::from_utf8_lossy(field.trim_ascii()).escape_debug().to_string();
    // What has other letters may mean something else in the option, and a name that two have means the first.
    let called = |column: usize| {
        let text = name(&first[column]);
        let is_plain = !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
        if is_plain && first.iter().position(|field| name(field) == text) == Some(column) {
            text
        } else {
            (column + 1).to_string()
        }
    };
    let example = likely
        .filter_map(|(part, what)| {
            let column = first.iter().position(|field| name(field).to_ascii_lowercase().contains(part))?;
            Some(format!("{what}={}", called(column)))
        })
        .next();
    let example = example.unwrap_or_else(|| format!("page={}", called(0)));
    format!("there are: {}; say which, such as --columns {example}", columns_here(first, false))
}

/// The fields of a first line, by their numbers if they are no names.
fn columns_here(first: &[Field], numbered: bool) -> String {
    let shown = first.iter().take(MAX_SHOWN).enumerate().map(|(index, field)| {
        let text: String = String::from_utf8_lossy(field.trim_ascii()).escape_debug().take(40).collect();
        if numbered { format!("{} '{text}'", index + 1) } else { text }
    });
    let shown: Vec<String> = shown.collect();
    let more = if first.len() > MAX_SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// The unit that a column's name says.
fn time_unit(first: &[Field], index: usize) -> Option<TimeUnit> {
    let name = first[index].trim_ascii().to_ascii_lowercase();
    let has = |other: &str| first.iter().any(|field| same_name(field, other));
    match () {
        () if name.ends_with(b"_ns") => Some(TimeUnit::Nanoseconds),
        () if name.ends_with(b"_us") => Some(TimeUnit::Microseconds),
        () if name.ends_with(b"_ms") => Some(TimeUnit::Milliseconds),
        () if name.ends_with(b"_s") || name == b"relative_unix" || name == b"op_time" => Some(TimeUnit::Seconds),
        // The block traces of SYSTOR '17, with the names of theirs.
        () if has("iotype") && has("lun") => Some(TimeUnit::Seconds),
        // The block traces of MSR Cambridge, with the names of their columns.
        () if has("disknumber") && has("responsetime") => Some(TimeUnit::FileTime),
        () => None,
    }
}

fn same_name(field: &[u8], name: &str) -> bool {
    field.trim_ascii().eq_ignore_ascii_case(name.as_bytes())
}
