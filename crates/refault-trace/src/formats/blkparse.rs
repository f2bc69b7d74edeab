//! What `blkparse` prints of a block device's events: device, processor, number, time, process, action, kind of
//! request, first sector and number of sectors.
//!
//! One event of each request is taken: where it was queued (action `Q`), which is what the file system or the program
//! asked for. Reads and writes count; discards and flushes do not. Devices get ranges of pages of their own. Lines that
//! are no events (blkparse's summary) are skipped.

use super::numbers::{decimal, number, pages_touched, words};
use super::ranges::Ranges;
use super::request::{LineFormat, Request, Weight, kind_detail};
use crate::Kind;
use crate::error::quote;
use crate::reader::{Details, Options};

const SECTOR_BYTES: u64 = 512;

pub(crate) struct Blkparse {
    kind: Kind,
    kind_asked: bool,
    limit: u64,
    devices: Ranges,
}

/// `major,minor`
fn is_device(word: &[u8]) -> bool {
    let comma = memchr::memchr(b',', word);
    comma.is_some_and(|comma| decimal(&word[..comma]).is_some() && decimal(&word[comma + 1..]).is_some())
}

/// Nanoseconds of a time such as `12.000345678` seconds.
pub(crate) fn seconds(word: &[u8]) -> Option<u64> {
    let point = memchr::memchr(b'.', word)?;
    let (whole, part) = (decimal(&word[..point])?, &word[point + 1..]);
    if part.len() > 9 {
        return None;
    }
    let nanoseconds = decimal(part)?.checked_mul(10u64.pow(9 - part.len() as u32))?;
    whole.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Whether a line is an event.
pub(crate) fn is_line(line: &[u8]) -> bool {
    let fields: Vec<&[u8]> = words(line).take(7).collect();
    fields.len() == 7 && is_device(fields[0]) && decimal(fields[1]).is_some() && seconds(fields[3]).is_some()
}

impl Blkparse {
    pub(crate) fn new(options: &Options) -> Blkparse {
        Blkparse {
            kind: options.kind.unwrap_or(Kind::Fd),
            kind_asked: options.kind.is_some(),
            limit: options.limits.request_bytes,
            devices: Ranges::new("device"),
        }
    }
}

impl LineFormat for Blkparse {
    fn parse(&mut self, line: &[u8]) -> Result<Option<Request>, String> {
        if !is_line(line) {
            return Ok(None);
        }
        let mut fields = words(line);
        let mut next = || fields.next().unwrap_or_default();
        let device = next();
        let (_, _, time, _, action, kind) = (next(), next(), next(), next(), next(), next());
        if action != b"Q" {
            return Ok(None);
        }
        let (first, plus, count) = (next(), next(), next());
        let write = kind.contains(&b'W');
        if (!write && !kind.contains(&b'R')) || kind.contains(&b'D') || plus != b"+" {
            return Ok(None);
        }
        let time = seconds(time);
        let (first, count) = (number(first, "first sector")?, number(count, "number of sectors")?);
        let outside = || format!("sector {} lies beyond 2^64 bytes", quote(first.to_string().as_bytes()));
        let offset = first.checked_mul(SECTOR_BYTES).ok_or_else(outside)?;
        let size = count.checked_mul(SECTOR_BYTES).ok_or_else(outside)?;
        let (first_page, pages) = pages_touched(offset, size, self.limit)?;
        let first_page = self.devices.place(device, first_page, pages)?;
        let (kind, weight) = (self.kind, Weight::range(offset, size));
        Ok((pages > 0).then_some(Request { first_page, pages, kind, write, time, weight }))
    }

    fn details(&self) -> Details {
        vec![("events", "requests queued (Q)".to_owned()), kind_detail(self.kind, self.kind_asked)]
    }
}
