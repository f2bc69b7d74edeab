//! The block traces of Microsoft Research Cambridge (Narayanan, Donnelly and Rowstron, FAST 2008): comma-separated
//! timestamp (100 ns), host, disk, `Read` or `Write`, offset and size in bytes, latency; some copies begin with a line
//! of names.
//!
//! The first disk of a file keeps its page numbers; each further one gets a range of its own, 2^44 pages (2^56 bytes)
//! higher. Offsets beyond that are refused: they would lie in another disk's range.

use std::borrow::Cow;

use super::numbers::{number, pages_touched};
use super::ranges::Ranges;
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::Kind;
use crate::error::quote;
use crate::reader::{Details, Options};
use crate::remark::{Counts, Doubt, Remark};

const TICK_NS: u64 = 100;
const FIELDS: usize = 7;

pub(crate) struct Msr {
    kind: Kind,
    kind_asked: bool,
    limit: u64,
    disks: Ranges,
    counts: Counts,
}

/// Whether a line has the names of the columns.
pub(crate) fn is_header(line: &[u8]) -> bool {
    let names = b"timestamp,hostname,disknumber,type,offset,size,responsetime";
    line.trim_ascii().eq_ignore_ascii_case(names)
}

/// Whether a line is of this format.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let fields: Vec<_> = line.split(|byte| *byte == b',').collect();
    fields.len() == FIELDS && is_write(fields[3]).is_some() && number(fields[0], "").is_ok()
}

fn is_write(field: &[u8]) -> Option<bool> {
    let field = field.trim_ascii();
    if field.eq_ignore_ascii_case(b"read") {
        Some(false)
    } else if field.eq_ignore_ascii_case(b"write") {
        Some(true)
    } else {
        None
    }
}

impl Msr {
    pub(crate) fn new(options: &Options) -> Msr {
        let (kind, kind_asked) = (options.kind.unwrap_or(Kind::Fd), options.kind.is_some());
        Msr {
            kind,
            kind_asked,
            limit: options.limits.request_bytes,
            disks: Ranges::new("disk"),
            counts: Counts::default(),
        }
    }
}

impl LineFormat for Msr {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if line.trim_ascii().is_empty() || is_header(line) {
            return Ok(None);
        }
        let mut commas = memchr::memchr_iter(b',', line);
        let mut starts = [0; FIELDS + 1];
        for start in &mut starts[1..FIELDS] {
            let missing = || format!("{} has not the {FIELDS} fields of an MSR trace", quote(line));
            *start = commas.next().ok_or_else(missing)? + 1;
        }
        starts[FIELDS] = line.len() + 1;
        let field = |index: usize| &line[starts[index]..starts[index + 1] - 1];
        let time = number(field(0), "timestamp")?;
        let disk = &line[starts[1]..starts[3] - 1];
        // Some copies have a blank behind each comma.
        let disk = match disk.contains(&b' ') {
            false => Cow::Borrowed(disk),
            true => Cow::Owned([field(1).trim_ascii(), b",".as_slice(), field(2).trim_ascii()].concat()),
        };
        let write = is_write(field(3)).ok_or_else(|| format!("type {} is neither Read nor Write", quote(field(3))))?;
        let (offset, size) = (number(field(4), "offset")?, number(field(5), "size")?);
        let (first_page, pages) = pages_touched(offset, size, self.limit)?;
        let first_page = self.disks.place(&disk, first_page, pages)?;
        let time = Some(time.checked_mul(TICK_NS).ok_or_else(|| format!("timestamp {time} is no time"))?);
        if pages == 0 {
            self.counts.add(Doubt::EmptyRequests);
        }
        let (kind, weight) = (self.kind, Weight::range(offset, size));
        Ok((pages > 0).then_some(Request { first_page, pages, kind, write, time, weight, repeat: 1 }))
    }

    fn ends_each_line(&self) -> bool {
        true
    }

    fn details(&self) -> Details {
        vec![("disks", self.disks.described()), kind_detail(self.kind, self.kind_asked)]
    }

    fn remarks(&self) -> Vec<Remark> {
        self.counts.remarks()
    }
}
