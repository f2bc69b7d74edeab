//! Values in columns, separated by commas, semicolons, tabs, bars or blanks, with names or in an order that is known.
//!
//! One column says where an access lies. It is a page number, a byte address in memory, or a byte offset in a file or
//! device. It may also be a block number, or the name or number of an object. What a size beside it means depends on
//! that. Offsets and addresses with sizes are split into the pages they touch. Blocks are split into the pages of
//! `size` bytes or `count` blocks. A page is one page, and so is an object unless objects have sizes
//! ([`super::object`]). For these a size only weighs. Disks get ranges of pages of their own.
//!
//! The separator is one that each of the first lines has as often as the others. The first line names the columns unless
//! it is data: then the columns must be given by number, or be those of a known order ([`super::preset`]), or there is only one, of page
//! numbers. Fields may be quoted; a line is a record.

use super::PAGE_BYTES;
use super::csv_columns::{CsvColumns, Layout, Position};
use super::csv_fields::{
    Field, Operation, TimeUnit, fields, kind_of, operation_of, separator_name, separator_of, separators_of_lines,
    time_number, time_of,
};
use super::lis::block_detail;
use super::numbers::{number, page, pages_touched};
use super::object::{Objects, Pages, Spellings, named};
use super::preset::Preset;
use super::ranges::Ranges;
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::Kind;
use crate::error::quote;
use crate::reader::{Details, ObjectPages, ObjectsAs, Options};
use crate::remark::{Counts, Doubt, Remark};

pub(crate) struct Csv {
    columns: CsvColumns,
    preset: Option<&'static Preset>,
    kind: Option<Kind>,
    block_bytes: Option<u64>,
    objects: Objects,
    devices: Ranges,
    limit: u64,
    layout: Option<Layout>,
    separator: u8,
    /// The whole lines of the beginning that may be records or names, up to some.
    first_lines: Vec<Vec<u8>>,
    /// Lines before the first that begin with `#`, up to some.
    comments: Vec<Vec<u8>>,
    /// Options for objects and blocks, which do nothing where there are none.
    asked: Asked,
    /// The line of names, if there is one.
    header: Option<Vec<u8>>,
    spellings: Spellings,
    time_unit: Option<TimeUnit>,
    counts: Counts,
    /// What was assumed of the separator and the first time.
    separator_remark: Option<Remark>,
    time_remark: Option<Remark>,
}

/// Lines that tell the separator, at most.
const MAX_FIRST_LINES: usize = 16;
/// What spreadsheets write before the names: the separator.
const SEPARATOR_LINE: &[u8] = b"sep=";

/// Options that were given.
struct Asked {
    block_bytes: bool,
    sizes: bool,
    skip_size_zero: bool,
}

/// Whether a line names a column this format knows as a position.
pub(crate) fn is_header(line: &[u8]) -> bool {
    fields(line, separator_of(line)).is_ok_and(|fields| CsvColumns::name_a_position(&fields))
}

impl Csv {
    pub(crate) fn new(options: &Options) -> Csv {
        Csv {
            columns: options.columns.clone(),
            preset: None,
            kind: options.kind,
            block_bytes: options.block_bytes.map(u64::from),
            objects: Objects::new(options),
            devices: Ranges::many("device"),
            limit: options.limits.request_bytes,
            layout: None,
            separator: b',',
            first_lines: Vec::new(),
            comments: Vec::new(),
            asked: Asked {
                block_bytes: options.block_bytes.is_some(),
                sizes: options.objects == ObjectsAs::Sized,
                skip_size_zero: options.skip_size_zero,
            },
            header: None,
            spellings: Spellings::default(),
            time_unit: None,
            counts: Counts::default(),
            separator_remark: None,
            time_remark: None,
        }
    }

    /// A format with columns in a known order.
    pub(crate) fn preset(preset: &'static Preset, options: &Options) -> Csv {
        let block_bytes = options.block_bytes.map(u64::from).or(preset.block_bytes);
        Csv { columns: preset.columns(), preset: Some(preset), block_bytes, ..Csv::new(options) }
    }

    /// The same, told of how the text begins.
    pub(crate) fn with_head(mut self, head: &[u8]) -> Csv {
        let ends = memchr::memrchr(b'\n', head).map_or(head.len(), |end| end + 1);
        let lines = head[..ends].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end);
        let lines =
            lines.filter(|line| !line.is_empty() && !line.starts_with(b"#") && !line.starts_with(SEPARATOR_LINE));
        self.first_lines = lines.take(MAX_FIRST_LINES).map(<[u8]>::to_vec).collect();
        self
    }

    /// Finds the separator, and says if another would do as well.
    fn find_separator(&mut self, line: &[u8]) {
        let lines: Vec<&[u8]> = self.first_lines.iter().map(Vec::as_slice).collect();
        let (found, other) = match self.columns.separator {
            Some(separator) => (separator, None),
            // A known order of columns needs no more than a line.
            None if !self.is_free() || lines.is_empty() => (separator_of(line), None),
            None => {
                let possible = separators_of_lines(&lines);
                let fits = |separator: &&u8| fields(line, **separator).is_ok_and(|fields| self.columns.fit(&fields));
                let mut fitting = possible.iter().filter(fits).copied();
                (fitting.next().unwrap_or(possible[0]), fitting.next())
            }
        };
        self.separator = found;
        if let Some(other) = other {
            let [found, other] = [found, other].map(separator_name);
            let text = format!(
                "columns are taken to be parted by {found}, though each line has {other} as often as others: --columns \
                 separator={other} says otherwise"
            );
            self.separator_remark = Some(Remark::with_text(Doubt::Separator, 1, text));
        }
        self.first_lines = Vec::new();
    }

    /// Whether a line that begins as a comment may be a record: it has as many fields as others, and a number.
    fn may_be_record(&self, comment: &[u8]) -> bool {
        let width = self.layout.as_ref().map_or(0, |layout| layout.width);
        let fields = fields(comment, self.separator).unwrap_or_default();
        width > 1 && fields.len() == width && fields.iter().any(|field| time_number(field).is_ok())
    }

    /// Options that do nothing here.
    fn idle_options(&self) -> Vec<Remark> {
        let Some(layout) = &self.layout else { return Vec::new() };
        let is_object = matches!(layout.position, Position::Object(_));
        let is_block = matches!(layout.position, Position::Block(..));
        let idle = [
            ("--block-bytes", self.asked.block_bytes && !is_block, "block"),
            ("--objects-have-sizes", self.asked.sizes && !is_object, "object"),
            ("--skip-size-zero", self.asked.skip_size_zero && !is_object, "object"),
        ];
        let text = |option: &str, what: &str| format!("{option} does nothing: the trace is not of {what}s");
        let idle = idle.iter().filter(|(_, is_idle, _)| *is_idle);
        idle.map(|(option, _, what)| Remark::with_text(Doubt::IdleOption, 1, text(option, what))).collect()
    }

    /// Whether to remark on what a preset leaves out or assumes: its documentation says it.
    fn is_free(&self) -> bool {
        self.preset.is_none()
    }

    fn time(&mut self, field: &[u8], said: Option<TimeUnit>) -> Result<u64, String> {
        let unit = match (self.time_unit, said) {
            (Some(unit), _) => unit,
            (None, Some(unit)) => *self.time_unit.insert(unit),
            (None, None) => {
                let unit = TimeUnit::of_magnitude(time_number(field)?);
                let (words, name) = unit.words();
                let text = match unit {
                    TimeUnit::Seconds => format!(
                        "times are taken for {words}, because no column's name says their unit: --columns {name}=NAME \
                         says so"
                    ),
                    _ => {
                        let first = quote(field);
                        format!("the first time, {first}, is taken for {words}: --columns {name}=NAME says so")
                    }
                };
                self.time_remark = Some(Remark::with_text(Doubt::TimeUnit, 1, text));
                *self.time_unit.insert(unit)
            }
        };
        time_of(field, unit)
    }

    fn request(&mut self, fields: &[Field]) -> Result<Option<Request>, String> {
        let Some(layout) = &self.layout else { return Ok(None) };
        let field = |index: usize, name: &str| {
            let missing = || format!("{name} is missing: the line has {} fields, not {}", fields.len(), index + 1);
            fields.get(index).map(AsRef::as_ref).ok_or_else(missing)
        };
        let mut write = false;
        if let Some(index) = layout.operation {
            let (operation, by_number) = operation_of(field(index, "operation")?)?;
            if by_number && !layout.numbers_are_known && self.preset.is_none() {
                self.counts.add(Doubt::OperationNumbers);
            }
            match operation {
                Operation::Write if by_number && layout.one_reads => {}
                Operation::Read | Operation::Write => write = operation == Operation::Write,
                Operation::Delete => {
                    self.counts.add(Doubt::Deletions);
                    return Ok(None);
                }
                Operation::Other => {
                    self.counts.add(Doubt::OtherCommands);
                    return Ok(None);
                }
            }
        }
        let is_object = matches!(layout.position, Position::Object(_));
        let is_weighed = layout.position.is_weighed();
        let size = match layout.size {
            // An object may say no size, as a request that found nothing does; in a known order the field may be missing.
            Some(index) if is_weighed && fields.get(index).is_some_and(|field| has_no_size(field)) => None,
            Some(index) if is_object && fields.len() <= index && self.preset.is_some() => None,
            Some(index) => Some(number(field(index, "size")?, "size")?),
            None => None,
        };
        let key_size = match layout.key_size {
            Some(index) => number(field(index, "key size")?, "key size")?,
            None => 0,
        };
        let count = layout.count.map(|index| number(field(index, "count")?, "count")).transpose()?;
        if is_object && count == Some(0) {
            self.counts.add(Doubt::NoTransfers);
            return Ok(None);
        }
        let mut repeat = 1;
        let (first_page, pages, weight): Pages = match layout.position {
            Position::Page(index) => {
                let first = page(number(field(index, "page")?, "page")?)?;
                let count = count.unwrap_or(1);
                if count.saturating_mul(PAGE_BYTES) > self.limit || first + count > 1 << 56 {
                    return Err(format!("{count} pages from page {first} are too many"));
                }
                if count == 1 && size.is_some_and(|size| size > PAGE_BYTES) {
                    self.counts.add(Doubt::SizesOfPages);
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
                if size.is_some() && counted.is_some() && size != counted {
                    self.counts.add(Doubt::UnequalCounts);
                }
                if self.preset.is_none() && counted.is_none() && size.is_some_and(|size| size % unit != 0) {
                    self.counts.add(Doubt::PartsOfBlocks);
                }
                let known = size.or(counted);
                let (first, pages) = pages_touched(offset, known.unwrap_or(unit), self.limit)?;
                (page(first)?, pages, Weight::range(offset, known.unwrap_or(unit)))
            }
            Position::Object(index) => {
                repeat = count.unwrap_or(1);
                let key = field(index, "object")?.trim_ascii();
                let object = match layout.devices.is_empty() {
                    true => named(key),
                    false => named(&[&device(&layout.devices, fields)?, b"\n".as_slice(), key].concat()),
                };
                self.spellings.see(key);
                let size = size.map(|size| size.saturating_add(key_size));
                let pages = self.objects.pages(object, size)?;
                self.objects.repeat(repeat - 1, size.filter(|_| pages.1 > 0));
                pages
            }
        };
        if pages == 0 && !is_object {
            self.counts.add(Doubt::EmptyRequests);
            return Ok(None);
        }
        // As many accesses as the longest request has bytes.
        if pages.saturating_mul(repeat) > self.limit {
            return Err(format!("{pages} pages {repeat} times over are too many"));
        }
        let first_page = match layout.devices.is_empty() || is_object {
            true => first_page,
            false => self.devices.place(&device(&layout.devices, fields)?, first_page, pages)?,
        };
        let kind = match layout.kind {
            Some(index) => kind_of(field(index, "kind")?)?,
            None => self.kind.unwrap_or(layout.position.default_kind()),
        };
        if let Some(index) = layout.ttl
            && fields.get(index).is_some_and(|ttl| time_number(ttl).is_ok_and(|ttl| ttl > 0.0))
        {
            self.counts.add(Doubt::TimesToLive);
        }
        if layout.operations_are_missing && self.preset.is_none() {
            self.counts.add(Doubt::NoOperations);
        }
        let time = match layout.time {
            Some((index, unit)) => Some(self.time(field(index, "time")?, unit)?),
            None => None,
        };
        Ok((pages > 0).then_some(Request { first_page, pages, kind, write, time, weight, repeat }))
    }
}

/// Whether a field says that an object's size is not known.
fn has_no_size(field: &[u8]) -> bool {
    matches!(field.trim_ascii(), b"" | b"-" | b"-1")
}

/// The name of a disk, of several columns.
fn device<'a>(columns: &[usize], fields: &'a [Field<'a>]) -> Result<std::borrow::Cow<'a, [u8]>, String> {
    let field = |index: &usize| {
        let field = fields.get(*index).map(|field| field.trim_ascii());
        field.ok_or_else(|| format!("device is missing: the line has {} fields, not {}", fields.len(), index + 1))
    };
    match columns {
        [one] => Ok(field(one)?.into()),
        several => Ok(several.iter().map(field).collect::<Result<Vec<_>, String>>()?.join(&b','.to_owned()).into()),
    }
}

impl LineFormat for Csv {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        if line.starts_with(b"#") {
            if self.layout.is_none() && self.comments.len() < MAX_FIRST_LINES {
                self.comments.push(line.to_vec());
            } else if self.may_be_record(line) {
                self.counts.add(Doubt::Comments);
            }
            return Ok(None);
        }
        if self.header.as_deref() == Some(line) {
            self.counts.add(Doubt::RepeatedHeaders);
            return Ok(None);
        }
        if self.layout.is_none() {
            if line.contains(&b'\r') {
                return Err("lines end in CR alone: make them end in LF, as by `tr '\\r' '\\n'`".to_owned());
            }
            if let Some([separator]) = line.strip_prefix(SEPARATOR_LINE) {
                self.columns.separator.get_or_insert(*separator);
                return Ok(None);
            }
            self.find_separator(line);
            let fields = fields(line, self.separator)?;
            if let Some(preset) = self.preset {
                if preset.is_header(line) {
                    self.header = Some(line.to_vec());
                    return Ok(None);
                }
                preset.check(&fields)?;
            }
            let mut fields = fields;
            let least = self.preset.map_or(0, |preset| preset.columns.len());
            fields.resize(fields.len().max(least), Field::Borrowed(b""));
            let (layout, is_header) = self.columns.layout(&fields)?;
            if layout.size.is_none() {
                self.objects.without_sizes();
            }
            self.layout = Some(layout);
            let comments = std::mem::take(&mut self.comments);
            let records = comments.iter().filter(|comment| self.may_be_record(comment)).count();
            self.counts.add_many(Doubt::Comments, records as u64);
            if is_header && self.is_free() {
                let said = self.layout.iter().flat_map(|layout| &layout.remarks);
                let is_guess = said.into_iter().any(|remark| remark.doubt == Doubt::FirstLineIsHeader);
                self.header = (!is_guess).then(|| line.to_vec());
                return Ok(None);
            }
        }
        let fields = fields(line, self.separator)?;
        let width = self.layout.as_ref().map_or(0, |layout| layout.width);
        if fields.len() > width && fields[width..].iter().any(|field| !field.trim_ascii().is_empty()) {
            self.counts.add(Doubt::ExtraFields);
        }
        self.request(&fields)
    }

    fn details(&self) -> Details {
        let Some(layout) = &self.layout else { return Details::new() };
        let separator = separator_name(self.separator).to_owned();
        let mut details = vec![("separator", separator), ("columns", layout.described.join(", "))];
        if !layout.devices.is_empty() && !matches!(layout.position, Position::Object(_)) {
            details.push(("devices", self.devices.described()));
        }
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

    fn remarks(&self) -> Vec<Remark> {
        let layout = self.layout.iter().filter(|_| self.is_free()).flat_map(|layout| layout.remarks.clone());
        let unread = self.preset.filter(|preset| preset.has_more).into_iter().filter_map(|preset| {
            let layout = self.layout.as_ref()?;
            layout.remarks.iter().find(|remark| remark.doubt == Doubt::UnreadColumns).cloned().map(|remark| {
                let text = format!("columns behind the {} of {} are not read", preset.columns.len(), preset.name);
                Remark::with_text(Doubt::UnreadColumns, remark.count, text)
            })
        });
        let mut counts = self.counts.clone();
        counts.add_many(Doubt::OddNumbers, self.spellings.odd());
        let counted = counts.remarks().into_iter().chain(self.objects.counts().remarks());
        let assumed = self.separator_remark.iter().chain(&self.time_remark).cloned();
        layout.chain(unread).chain(assumed).chain(self.idle_options()).chain(counted).collect()
    }

    fn objects(&self) -> Option<ObjectPages> {
        let layout = self.layout.as_ref()?;
        matches!(layout.position, Position::Object(_)).then(|| self.objects.pages_of_all())
    }

    fn ends_each_line(&self) -> bool {
        self.preset.is_some()
    }

    fn says_sizes(&self) -> bool {
        self.layout.as_ref().is_some_and(|layout| layout.size.is_some() && layout.position.is_weighed())
    }
}
