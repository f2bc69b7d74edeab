//! The block traces of Microsoft Research Cambridge (Narayanan, Donnelly and Rowstron, FAST 2008): comma-separated
//! timestamp (100 ns), host, disk, `Read` or `Write`, offset and size in bytes, latency.
//!
//! The first disk of a file keeps its page numbers; each further one gets a range of its own, 2^44 pages higher.

use super::numbers::{number, page, pages_touched};
use super::request::{LineFormat, Request};
use crate::Kind;
use crate::error::quote;
use crate::reader::Options;

const DISK_SHIFT: u32 = 44;
const MAX_DISKS: usize = 1 << (56 - DISK_SHIFT);
const TICK_NS: u64 = 100;
const FIELDS: usize = 7;

pub(crate) struct Msr {
    kind: Kind,
    limit: u64,
    /// Host and disk as they are written, in order of appearance.
    disks: Vec<Vec<u8>>,
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
        let kind = options.kind.unwrap_or(Kind::Fd);
        Msr { kind, limit: options.limits.request_bytes, disks: Vec::new() }
    }

    fn disk(&mut self, name: &[u8]) -> Result<u64, String> {
        if let Some(index) = self.disks.iter().position(|disk| disk == name) {
            return Ok(index as u64);
        }
        if self.disks.len() == MAX_DISKS {
            return Err(format!("more than {MAX_DISKS} disks"));
        }
        self.disks.push(name.to_owned());
        Ok(self.disks.len() as u64 - 1)
    }
}

impl LineFormat for Msr {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if line.trim_ascii().is_empty() {
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
        let disk = self.disk(&line[starts[1]..starts[3] - 1])?;
        let write = is_write(field(3)).ok_or_else(|| format!("type {} is neither Read nor Write", quote(field(3))))?;
        let (offset, size) = (number(field(4), "offset")?, number(field(5), "size")?);
        let (mut first_page, pages) = pages_touched(offset, size, self.limit)?;
        if disk > 0 {
            if first_page + pages > 1 << DISK_SHIFT {
                return Err(format!("offset {offset} is beyond 2^56 bytes"));
            }
            first_page += disk << DISK_SHIFT;
        }
        page(first_page)?;
        let time = Some(time.saturating_mul(TICK_NS));
        Ok((pages > 0).then_some(Request { first_page, pages, kind: self.kind, write, time }))
    }
}
