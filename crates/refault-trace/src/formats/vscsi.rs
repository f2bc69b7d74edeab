//! The block traces of VMware's `vscsiStats`, as CloudPhysics published them. They are packed little-endian records, of
//! 32 bytes in version 1 and of 40 in version 2. A record has the SCSI command, the bytes moved, the first block of 512
//! bytes and the time in microseconds.
//!
//! Reads and writes are taken; other commands are left out. The version is found from the records.

use super::numbers::{page, pages_touched};
use super::oracle_general::record;
use super::request::{Request, Requests, Weight, kind_detail};
use crate::error::Place;
use crate::input::Input;
use crate::reader::{Details, Options};
use crate::remark::{Counts, Doubt, Remark};
use crate::{Kind, TraceError};

const SECTOR_BYTES: u64 = 512;
const MICROSECOND_NS: u64 = 1000;
const V1_BYTES: usize = 32;
const V2_BYTES: usize = 40;
/// Records looked at to tell the version.
const LOOKED_AT: usize = 8;

/// READ (6), (10), (12), (16).
const READS: [u16; 4] = [0x08, 0x28, 0xA8, 0x88];
/// WRITE (6), (10), (12), (16), WRITE AND VERIFY (10).
const WRITES: [u16; 5] = [0x0A, 0x2A, 0xAA, 0x8A, 0x2E];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// What both versions say.
struct Command {
    command: u16,
    version: u16,
    bytes: u32,
    block: u64,
    microseconds: u64,
}

impl Version {
    const fn record_bytes(self) -> usize {
        match self {
            Version::One => V1_BYTES,
            Version::Two => V2_BYTES,
        }
    }

    const fn mark(self) -> u16 {
        match self {
            Version::One => 1,
            Version::Two => 2,
        }
    }

    /// Reads a record, which has enough bytes.
    fn command(self, record: &[u8]) -> Command {
        let u16_at = |at: usize| u16::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| record[at + i]));
        let (command, version, bytes) = match self {
            Version::One => (u16_at(12), u16_at(14), u32_at(4)),
            Version::Two => (u16_at(0), u16_at(2), u32_at(8)),
        };
        Command { command, version, bytes, block: u64_at(16), microseconds: u64_at(24) }
    }

    /// Whether the first records are of this version, and move whole blocks if they read or write.
    fn fits(self, head: &[u8], looked_at: usize) -> bool {
        let mut records = head.chunks_exact(self.record_bytes()).take(looked_at).peekable();
        records.peek().is_some()
            && records.all(|record| {
                let command = self.command(record);
                command.version >> 8 == self.mark()
                    && command.command <= 0xFF
                    && u64::from(command.bytes).is_multiple_of(SECTOR_BYTES)
            })
    }
}

/// Whether a file begins with records of this format.
pub(crate) fn is_head(head: &[u8]) -> bool {
    version(head, LOOKED_AT).is_some()
}

fn version(head: &[u8], looked_at: usize) -> Option<Version> {
    [Version::Two, Version::One].into_iter().find(|version| version.fits(head, looked_at))
}

pub(crate) struct Vscsi {
    kind: Kind,
    kind_asked: bool,
    version: Option<Version>,
    limit: u64,
    counts: Counts,
}

impl Vscsi {
    pub(crate) fn new(options: &Options) -> Vscsi {
        let (kind, kind_asked) = (options.kind.unwrap_or(Kind::Fd), options.kind.is_some());
        Vscsi { kind, kind_asked, version: None, limit: options.limits.request_bytes, counts: Counts::default() }
    }

    fn request(&mut self, version: Version, record: &[u8]) -> Result<Option<Request>, String> {
        let command = version.command(record);
        if command.version >> 8 != version.mark() {
            return Err(format!("the record is not of version {}, as those before it are", version.mark()));
        }
        let write = WRITES.contains(&command.command);
        if !write && !READS.contains(&command.command) {
            self.counts.add(Doubt::OtherCommands);
            return Ok(None);
        }
        let outside = || format!("block {} lies beyond 2^64 bytes", command.block);
        let offset = command.block.checked_mul(SECTOR_BYTES).ok_or_else(outside)?;
        let size = u64::from(command.bytes);
        let (first_page, pages) = pages_touched(offset, size, self.limit)?;
        let no_time = || format!("time {} µs is no time", command.microseconds);
        let time = Some(command.microseconds.checked_mul(MICROSECOND_NS).ok_or_else(no_time)?);
        if pages == 0 {
            self.counts.add(Doubt::EmptyRequests);
        }
        let (first_page, kind, weight) = (page(first_page)?, self.kind, Weight::range(offset, size));
        Ok((pages > 0).then_some(Request { first_page, pages, kind, write, time, weight, repeat: 1 }))
    }
}

impl Requests for Vscsi {
    fn next(&mut self, input: &mut Input) -> Result<Option<Request>, TraceError> {
        let version = match self.version {
            Some(version) => version,
            None => {
                let found = version(input.head()?, 1);
                let reason = "the first record is of neither version 1 nor version 2 of vscsi traces";
                *self.version.insert(
                    found.ok_or_else(|| TraceError::malformed(input.path(), Place::Offset(input.offset()), reason))?,
                )
            }
        };
        loop {
            let offset = input.offset();
            let request = match version {
                Version::One => record::<V1_BYTES>(input)?.map(|record| self.request(version, &record)),
                Version::Two => record::<V2_BYTES>(input)?.map(|record| self.request(version, &record)),
            };
            match request {
                None => return Ok(None),
                Some(Ok(None)) => {}
                Some(Ok(request)) => return Ok(request),
                Some(Err(reason)) => return Err(TraceError::malformed(input.path(), Place::Offset(offset), reason)),
            }
        }
    }

    fn details(&self) -> Details {
        let version = self.version.map(|version| ("version", version.mark().to_string()));
        version.into_iter().chain([kind_detail(self.kind, self.kind_asked)]).collect()
    }

    fn remarks(&self) -> Vec<Remark> {
        self.counts.remarks()
    }
}
