//! Formats that are columns in a known order, without names: the traces of Alibaba, Tencent and the Storage
//! Performance Council, of webcachesim, and of IBM's object store.

use super::csv_columns::CsvColumns;
use super::csv_fields::{Field, TimeUnit, fields, operation_of, separator_of, time_number};
use super::numbers::number;

/// What a column says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Time(TimeUnit),
    Device,
    /// A number of sectors of 512 bytes.
    Block,
    Offset,
    Object,
    Size,
    Count,
    /// In letters.
    Operation,
    /// 0 reads and 1 writes.
    OperationNumber,
}

/// A known order of columns.
pub(crate) struct Preset {
    /// The format's name.
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [Column],
    /// Whether more columns may follow, which are not read.
    pub(crate) has_more: bool,
    /// Whether the last column may be missing.
    pub(crate) is_short: bool,
    pub(crate) block_bytes: Option<u64>,
    /// How a line of names begins, if there may be one; in small letters.
    header: &'static [u8],
}

/// `device,opcode,offset,length,timestamp`, in bytes and microseconds since 1970.
pub(crate) const ALIBABA: Preset = Preset {
    name: "alibaba",
    columns: &[Column::Device, Column::Operation, Column::Offset, Column::Size, Column::Time(TimeUnit::Microseconds)],
    has_more: false,
    is_short: false,
    block_bytes: None,
    header: b"device_id,opcode",
};

/// `timestamp,offset,size,type,volume`, in seconds and sectors; type 0 reads, 1 writes.
pub(crate) const TENCENT: Preset = Preset {
    name: "tencent",
    columns: &[Column::Time(TimeUnit::Seconds), Column::Block, Column::Count, Column::OperationNumber, Column::Device],
    has_more: false,
    is_short: false,
    block_bytes: Some(512),
    header: b"timestamp,offset,size,iotype,volumeid",
};

/// `asu,lba,bytes,opcode,seconds`, the format of the Storage Performance Council.
pub(crate) const SPC: Preset = Preset {
    name: "spc",
    columns: &[Column::Device, Column::Block, Column::Size, Column::Operation, Column::Time(TimeUnit::Seconds)],
    has_more: true,
    is_short: false,
    block_bytes: Some(512),
    header: b"asu,lba",
};

/// `time id size` and features, which webcachesim's traces and those of its kind have.
pub(crate) const TR: Preset = Preset {
    name: "tr",
    columns: &[Column::Time(TimeUnit::Seconds), Column::Object, Column::Size],
    has_more: true,
    is_short: false,
    block_bytes: None,
    header: b"#",
};

/// `milliseconds REST.GET.OBJECT object size first last`, as IBM published of its object store.
pub(crate) const IBM: Preset = Preset {
    name: "ibm",
    columns: &[Column::Time(TimeUnit::Milliseconds), Column::Operation, Column::Object, Column::Size],
    has_more: true,
    is_short: true,
    block_bytes: None,
    header: b"#",
};

impl Preset {
    /// The columns by number, as they are named on the command line.
    pub(crate) fn columns(&self) -> CsvColumns {
        let mut columns = CsvColumns { kind: Some(String::new()), ttl: Some(String::new()), ..CsvColumns::default() };
        let none = || Some(String::new());
        (columns.page, columns.address, columns.offset, columns.block) = (none(), none(), none(), none());
        (columns.object, columns.device, columns.size, columns.key_size) = (none(), none(), none(), none());
        (columns.count, columns.operation, columns.time) = (none(), none(), none());
        for (index, column) in self.columns.iter().enumerate() {
            let number = Some((index + 1).to_string());
            match column {
                Column::Time(unit) => (columns.time, columns.time_unit) = (number, Some(*unit)),
                Column::Device => columns.device = number,
                Column::Block => columns.block = number,
                Column::Offset => columns.offset = number,
                Column::Object => columns.object = number,
                Column::Size => columns.size = number,
                Column::Count => columns.count = number,
                Column::Operation | Column::OperationNumber => columns.operation = number,
            }
        }
        columns
    }

    /// Whether a line names the columns.
    pub(crate) fn is_header(&self, line: &[u8]) -> bool {
        line.len() >= self.header.len() && line[..self.header.len()].eq_ignore_ascii_case(self.header)
    }

    /// Whether a line has the columns, in words if not.
    pub(crate) fn check(&self, fields: &[Field]) -> Result<(), String> {
        let least = self.columns.len() - usize::from(self.is_short);
        if fields.len() < least || (fields.len() > self.columns.len() && !self.has_more) {
            return Err(format!(
                "the line has {} columns; a line of {} has {}",
                fields.len(),
                self.name,
                self.columns.len()
            ));
        }
        Ok(())
    }

    /// Whether lines are of this format and hardly of another: the times are those of their years, or there is an
    /// operation in letters.
    pub(crate) fn is_likely<'a>(&self, lines: impl Iterator<Item = &'a [u8]>) -> bool {
        let (mut any, mut last) = (false, 0.0);
        for line in lines {
            if !any && self.is_header(line) {
                continue;
            }
            let time = match self.is_line(line) {
                true => self.time_of(line),
                false => return false,
            };
            let fits = match self.name {
                "alibaba" => time > 1e15,
                "tencent" => (1e9..4e9).contains(&time),
                "spc" => time < 1e9,
                "ibm" => memchr::memmem::find(line, b"REST.").is_some(),
                // Time or sequence does not fall.
                _ => time >= last,
            };
            if !fits {
                return false;
            }
            (any, last) = (true, time);
        }
        any
    }

    fn time_of(&self, line: &[u8]) -> f64 {
        let index = self.columns.iter().position(|column| matches!(column, Column::Time(_)));
        let fields = fields(line, separator_of(line)).unwrap_or_default();
        index.and_then(|index| fields.get(index)).and_then(|field| time_number(field).ok()).unwrap_or(f64::NAN)
    }

    /// Whether a line may be of this format.
    fn is_line(&self, line: &[u8]) -> bool {
        let separator = separator_of(line);
        let Ok(fields) = fields(line, separator) else { return false };
        self.check(&fields).is_ok()
            && self.columns.iter().zip(&fields).all(|(column, field)| match column {
                Column::Time(_) => time_number(field).is_ok(),
                Column::Operation => operation_of(field).is_ok_and(|(_, by_number)| !by_number),
                Column::OperationNumber => matches!(field.trim_ascii(), b"0" | b"1"),
                Column::Device => !field.trim_ascii().is_empty(),
                Column::Object => number(field, "").is_ok() || self.name == IBM.name,
                Column::Block | Column::Offset | Column::Size | Column::Count => number(field, "").is_ok(),
            })
    }
}
