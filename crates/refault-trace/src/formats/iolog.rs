//! What fio writes of its I/O (`--write_iolog`): a line `fio version N iolog`, then `file action offset length`; in
//! version 3 with microseconds before it.
//!
//! Reads and writes are taken, trims, syncs and waits left out. Files get ranges of
//! pages of their own.

use super::numbers::{number, pages_touched, words};
use super::ranges::Ranges;
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::Kind;
use crate::error::quote;
use crate::reader::{Details, Options};
use crate::remark::{Counts, Doubt, Remark};

const MICROSECOND_NS: u64 = 1000;

pub(crate) struct Iolog {
    kind: Kind,
    kind_asked: bool,
    limit: u64,
    /// As the first line says.
    version: Option<u64>,
    files: Ranges,
    counts: Counts,
}

/// The version that a first line names.
fn version(line: &[u8]) -> Option<u64> {
    let fields: Vec<&[u8]> = words(line).collect();
    match fields[..] {
        [b"fio", b"version", version, b"iolog"] => number(version, "").ok(),
        _ => None,
    }
}

/// Whether a line begins a log.
pub(crate) fn is_line(line: &[u8]) -> bool {
    version(line).is_some()
}

impl Iolog {
    pub(crate) fn new(options: &Options) -> Iolog {
        Iolog {
            kind: options.kind.unwrap_or(Kind::Fd),
            kind_asked: options.kind.is_some(),
            limit: options.limits.request_bytes,
            version: None,
            files: Ranges::many("file"),
            counts: Counts::default(),
        }
    }
}

impl LineFormat for Iolog {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        let known = match (self.version, version(line)) {
            // Logs that fio appended to each other.
            (_, Some(known @ (2 | 3))) => {
                self.version = Some(known);
                return Ok(None);
            }
            (_, Some(other)) => return Err(format!("version {other} of fio's logs is not known; 2 and 3 are")),
            (Some(known), None) => known,
            (None, None) => return Err(format!("{} is not the first line of a log: fio version 3 iolog", quote(line))),
        };
        let mut fields: Vec<&[u8]> = words(line).collect();
        let mut time = None;
        if known == 3 {
            let microseconds = number(fields.remove(0), "time")?;
            let no_time = || format!("time {microseconds} µs is no time");
            time = Some(microseconds.checked_mul(MICROSECOND_NS).ok_or_else(no_time)?);
        }
        if fields.is_empty() {
            return Err(format!("{} has no file", quote(line)));
        }
        // A name may hold blanks; what is behind it has a known number of fields.
        let action = fields[1..].iter().rposition(|word| ACTIONS.contains(word)).map(|index| index + 1);
        let action = action.ok_or_else(|| format!("{} has no action of fio", quote(line)))?;
        let write = match fields[action] {
            b"read" => false,
            b"write" => true,
            b"trim" => {
                self.counts.add(Doubt::OtherCommands);
                return Ok(None);
            }
            b"sync" | b"datasync" | b"wait" => {
                self.counts.add(Doubt::NoTransfers);
                return Ok(None);
            }
            _ => return Ok(None),
        };
        let field = |at: usize| fields.get(action + at).copied().unwrap_or_default();
        let (offset, size) = (number(field(1), "offset")?, number(field(2), "length")?);
        let (first_page, pages) = pages_touched(offset, size, self.limit)?;
        if pages == 0 {
            self.counts.add(Doubt::EmptyRequests);
            return Ok(None);
        }
        let first_page = self.files.place(&fields[..action].join(&b' '), first_page, pages)?;
        let (kind, weight) = (self.kind, Weight::range(offset, size));
        Ok(Some(Request { first_page, pages, kind, write, time, weight, repeat: 1 }))
    }

    fn ends_each_line(&self) -> bool {
        true
    }

    fn details(&self) -> Details {
        let version = self.version.map(|version| ("version", version.to_string()));
        let known = [("files", self.files.described()), kind_detail(self.kind, self.kind_asked)];
        version.into_iter().chain(known).collect()
    }

    fn remarks(&self) -> Vec<Remark> {
        self.counts.remarks()
    }
}

/// What a line of a log may do.
const ACTIONS: [&[u8]; 9] = [b"add", b"open", b"close", b"read", b"write", b"trim", b"sync", b"datasync", b"wait"];
