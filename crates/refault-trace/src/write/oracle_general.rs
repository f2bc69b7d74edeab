//! Writing oracleGeneral: a record of 24 bytes per access, which says when its object is accessed next.
//!
//! The next access of a record is only known later. So records are kept back for a while, and those that have left are
//! amended in a scratch file. From that file the trace is written at the end. Cost: some 40 bytes per page, and a
//! system call for each access whose page comes back after more than [`KEPT_BACK`] others.
//!
//! An object is a page: its number, with bit 63 set for the type (anonymous or file) that did not come first, so that
//! equal numbers of both stay apart. A size is the access's own, or a page's; a time is in whole seconds from the first
//! one, or 0.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use foldhash::fast::FixedState;

use super::Block;
use super::packed::{Compression, Packed};
use crate::error::{Place, TraceError};
use crate::formats::{ORACLE_RECORD_BYTES, PAGE_BYTES};
use crate::reader::UNKNOWN_BYTES;
use crate::{Entry, Kind};

/// Records that can still be amended in memory.
const KEPT_BACK: usize = 1 << 18;
const SECOND_NS: u64 = 1_000_000_000;
/// Where the number of the next access lies in a record.
const NEXT_AT: usize = 16;
/// Marks objects of the type that did not come first.
const OTHER_TYPE: u64 = 1 << 63;
const COPIED: usize = 1 << 18;

type Record = [u8; ORACLE_RECORD_BYTES];

/// Writes an oracleGeneral trace. Nothing is whole until [`OracleGeneralWriter::finish`].
pub struct OracleGeneralWriter {
    path: PathBuf,
    file: File,
    compression: Compression,
    scratch: File,
    /// Records not in the scratch file yet, the last ones written.
    kept: VecDeque<Record>,
    records: u64,
    last: HashMap<u64, u64, FixedState>,
    first_is_file: Option<bool>,
    origin_ns: Option<u64>,
}

impl OracleGeneralWriter {
    /// Writes to a file that is open and empty; `path` stands for it in errors.
    ///
    /// # Errors
    /// There is no place for the scratch file.
    pub fn new(file: File, path: &Path, compression: Compression) -> Result<OracleGeneralWriter, TraceError> {
        let scratch = tempfile::tempfile().map_err(|source| TraceError::Open { file: path.to_owned(), source })?;
        Ok(OracleGeneralWriter {
            path: path.to_owned(),
            file,
            compression,
            scratch,
            kept: VecDeque::new(),
            records: 0,
            last: HashMap::default(),
            first_is_file: None,
            origin_ns: None,
        })
    }

    /// Appends a block.
    ///
    /// # Errors
    /// The device is full or failed; there are more than 2^63 accesses, a size of 4 GiB or a span of 136 years.
    pub fn write(&mut self, block: Block<'_>) -> Result<(), TraceError> {
        for (index, entry) in block.entries.iter().enumerate() {
            let object = self.object(*entry);
            let time = block.times.map(|times| times[index]).or(block.time.map(|time| time.first_ns));
            let seconds = time.map_or(0, |time| {
                let origin = *self.origin_ns.get_or_insert(time);
                time.saturating_sub(origin) / SECOND_NS
            });
            let size = block.bytes.map(|bytes| bytes[index]).filter(|bytes| *bytes != UNKNOWN_BYTES);
            let size = size.unwrap_or(PAGE_BYTES);
            let mut record = Record::default();
            let fitting = |number: u64, what: &str| {
                let reason = || format!("{what} {number} has more than the 32 bits of oracleGeneral: write .csv");
                let place = Place::Offset(self.records * ORACLE_RECORD_BYTES as u64);
                u32::try_from(number).map_err(|_| TraceError::malformed(&self.path, place, reason()))
            };
            record[0..4].copy_from_slice(&fitting(seconds, "a time in seconds of")?.to_le_bytes());
            record[4..12].copy_from_slice(&object.to_le_bytes());
            record[12..16].copy_from_slice(&fitting(size, "a size in bytes of")?.to_le_bytes());
            record[NEXT_AT..].copy_from_slice(&(-1i64).to_le_bytes());
            self.append(object, record).map_err(|source| self.failed(source))?;
        }
        Ok(())
    }

    /// Writes the file and returns the number of accesses.
    ///
    /// # Errors
    /// As [`OracleGeneralWriter::write`].
    pub fn finish(mut self) -> Result<u64, TraceError> {
        let (path, records) = (self.path.clone(), self.records);
        let failed = |source| TraceError::Io { file: path, place: Place::Offset(0), source };
        self.flush(0).and_then(|()| self.copy()).map_err(failed)?;
        Ok(records)
    }

    fn object(&mut self, entry: Entry) -> u64 {
        let is_file = entry.kind() != Some(Kind::Anon);
        let first_is_file = *self.first_is_file.get_or_insert(is_file);
        entry.page() | if is_file == first_is_file { 0 } else { OTHER_TYPE }
    }

    fn append(&mut self, object: u64, record: Record) -> io::Result<()> {
        // Accesses are numbered from 1; what matters to a reader is their order.
        let number = self.records;
        if let Some(before) = self.last.insert(object, number) {
            let next = (number as i64 + 1).to_le_bytes();
            let written = number - self.kept.len() as u64;
            match before.checked_sub(written) {
                Some(index) => self.kept[index as usize][NEXT_AT..].copy_from_slice(&next),
                None => {
                    let place = before * ORACLE_RECORD_BYTES as u64 + NEXT_AT as u64;
                    self.scratch.seek(SeekFrom::Start(place))?;
                    self.scratch.write_all(&next)?;
                }
            }
        }
        self.kept.push_back(record);
        self.records += 1;
        if self.kept.len() >= 2 * KEPT_BACK { self.flush(KEPT_BACK) } else { Ok(()) }
    }

    /// Moves records to the scratch file until `left` are kept.
    fn flush(&mut self, left: usize) -> io::Result<()> {
        let moved = self.kept.len().saturating_sub(left);
        let mut bytes = Vec::with_capacity(moved * ORACLE_RECORD_BYTES);
        self.kept.drain(..moved).for_each(|record| bytes.extend_from_slice(&record));
        self.scratch.seek(SeekFrom::End(0))?;
        self.scratch.write_all(&bytes)
    }

    fn copy(&mut self) -> io::Result<()> {
        let mut sink = Packed::new(self.file.try_clone()?, self.compression)?;
        self.scratch.rewind()?;
        let mut buffer = vec![0; COPIED];
        loop {
            match self.scratch.read(&mut buffer)? {
                0 => return sink.finish(),
                read => sink.write_all(&buffer[..read])?,
            }
        }
    }

    fn failed(&self, source: io::Error) -> TraceError {
        let place = Place::Offset(self.records * ORACLE_RECORD_BYTES as u64);
        TraceError::Io { file: self.path.clone(), place, source }
    }
}
