//! Writing `.rft`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::block;
use super::layout::{self, BlockIndex, Footer, Frame, HEADER_BYTES, MAGIC, MAX_METADATA_BYTES, VERSION};
use crate::Entry;
use crate::error::{Place, TraceError};
use crate::reader::{BLOCK_ENTRIES, TimeSpan};

/// The zstd level: decoding costs the same at any, this one writes at some 100 MB/s.
const LEVEL: i32 = 3;

/// Writes a trace. The file is not whole, and readers refuse it, until [`RftWriter::finish`] has written its footer.
pub struct RftWriter {
    path: PathBuf,
    file: BufWriter<File>,
    offset: u64,
    footer: Footer,
    pending: Vec<Entry>,
    plain: Vec<u8>,
    packed: Vec<u8>,
    compressor: zstd::bulk::Compressor<'static>,
}

impl RftWriter {
    /// Creates the file, or empties the one that is there.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: impl AsRef<Path>) -> Result<RftWriter, TraceError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|source| TraceError::Open { file: path.to_owned(), source })?;
        Self::new(file, path)
    }

    /// Writes to a file that is open and empty; `path` stands for it in errors.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(file: File, path: impl AsRef<Path>) -> Result<RftWriter, TraceError> {
        let path = path.as_ref().to_owned();
        let open = |source| TraceError::Open { file: path.clone(), source };
        let mut file = BufWriter::with_capacity(1 << 18, file);
        let compressor = zstd::bulk::Compressor::new(LEVEL).map_err(open)?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&VERSION.to_le_bytes());
        file.write_all(&header).map_err(open)?;
        Ok(RftWriter {
            path,
            file,
            offset: HEADER_BYTES as u64,
            footer: Footer::default(),
            pending: Vec::with_capacity(BLOCK_ENTRIES),
            plain: Vec::new(),
            packed: Vec::new(),
            compressor,
        })
    }

    /// Says something about the trace, such as where it comes from. Both texts are cut to 65 535 bytes.
    pub fn add_metadata(&mut self, key: &str, value: &str) {
        let cut = |text: &str| {
            let is_boundary = |end: &usize| text.is_char_boundary(*end);
            text[..(0..=MAX_METADATA_BYTES.min(text.len())).rev().find(is_boundary).unwrap_or(0)].to_owned()
        };
        self.footer.metadata.push((cut(key), cut(value)));
    }

    /// Appends entries, in blocks of [`BLOCK_ENTRIES`].
    ///
    /// # Errors
    /// An entry is of undefined kind; the device is full or failed.
    pub fn write(&mut self, mut entries: &[Entry]) -> Result<(), TraceError> {
        while !entries.is_empty() {
            let (now, later) = entries.split_at(entries.len().min(BLOCK_ENTRIES - self.pending.len()));
            self.pending.extend_from_slice(now);
            entries = later;
            if self.pending.len() == BLOCK_ENTRIES {
                self.flush(None)?;
            }
        }
        Ok(())
    }

    /// Ends the block begun and appends entries that happened in `time` as blocks of their own: what a recorder that
    /// looks at intervals writes for each.
    ///
    /// # Errors
    /// As [`RftWriter::write`].
    pub fn write_timed(&mut self, entries: &[Entry], time: TimeSpan) -> Result<(), TraceError> {
        self.flush(None)?;
        for block in entries.chunks(BLOCK_ENTRIES) {
            self.pending.extend_from_slice(block);
            self.flush(Some(time))?;
        }
        Ok(())
    }

    /// Writes the footer and returns the number of accesses.
    ///
    /// # Errors
    /// As [`RftWriter::write`].
    pub fn finish(mut self) -> Result<u64, TraceError> {
        self.flush(None)?;
        let footer = self.footer.encode();
        self.put(&footer)?;
        self.put(&layout::encode_trailer(&footer))?;
        self.file.flush().map_err(|source| self.failed(source))?;
        Ok(self.footer.accesses())
    }

    fn flush(&mut self, time: Option<TimeSpan>) -> Result<(), TraceError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if let Some(entry) = self.pending.iter().find(|entry| entry.kind().is_none()) {
            let reason = format!("entry {:#018x} is of undefined kind", entry.0);
            return Err(TraceError::malformed(&self.path, Place::Offset(self.offset), reason));
        }
        self.plain.clear();
        block::encode(&self.pending, &mut self.plain);
        self.packed.resize(zstd::zstd_safe::compress_bound(self.plain.len()), 0);
        let packed = self.compressor.compress_to_buffer(&self.plain, &mut self.packed);
        let packed = packed.map_err(|source| self.failed(source))?;
        self.packed.truncate(packed);
        let (min_page, max_page) =
            self.pending.iter().fold((u64::MAX, 0), |(min, max), entry| (min.min(entry.page()), max.max(entry.page())));
        let index = BlockIndex {
            offset: self.offset,
            first_access: self.footer.accesses(),
            entries: self.pending.len() as u32,
            min_page,
            max_page,
            time,
        };
        let frame = Frame::new(&self.packed, self.plain.len(), self.pending.len());
        self.put(&frame.encode())?;
        let packed = std::mem::take(&mut self.packed);
        self.put(&packed)?;
        self.packed = packed;
        self.footer.blocks.push(index);
        self.pending.clear();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        self.file.write_all(bytes).map_err(|source| self.failed(source))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn failed(&self, source: std::io::Error) -> TraceError {
        TraceError::Io { file: self.path.clone(), place: Place::Offset(self.offset), source }
    }
}
