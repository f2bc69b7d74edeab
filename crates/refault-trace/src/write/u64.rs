//! Writing `.u64`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::packed::{Compression, Packed};
use crate::Entry;
use crate::error::{Place, TraceError};

/// Writes a `.u64` trace. Nothing is whole until [`U64Writer::finish`].
pub struct U64Writer {
    path: PathBuf,
    sink: Packed,
    bytes: Vec<u8>,
    entries: u64,
}

impl U64Writer {
    /// Creates the file, or empties the one that is there.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: impl AsRef<Path>, compression: Compression) -> Result<U64Writer, TraceError> {
        let path = path.as_ref();
        let file = File::create(path).map_err(|source| TraceError::Open { file: path.to_owned(), source })?;
        Self::new(file, path, compression)
    }

    /// Writes to a file that is open and empty; `path` stands for it in errors.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn new(file: File, path: &Path, compression: Compression) -> Result<U64Writer, TraceError> {
        let sink = Packed::new(file, compression);
        let sink = sink.map_err(|source| TraceError::Open { file: path.to_owned(), source })?;
        Ok(U64Writer { path: path.to_owned(), sink, bytes: Vec::new(), entries: 0 })
    }

    /// Appends entries.
    ///
    /// # Errors
    /// The device is full or failed.
    pub fn write(&mut self, entries: &[Entry]) -> Result<(), TraceError> {
        self.bytes.clear();
        self.bytes.reserve(size_of_val(entries));
        for entry in entries {
            self.bytes.extend_from_slice(&entry.0.to_le_bytes());
        }
        self.sink.write_all(&self.bytes).map_err(|source| failed(&self.path, self.entries, source))?;
        self.entries += entries.len() as u64;
        Ok(())
    }

    /// Ends the file and returns the number of entries written.
    ///
    /// # Errors
    /// As [`U64Writer::write`].
    pub fn finish(self) -> Result<u64, TraceError> {
        let U64Writer { path, sink, entries, .. } = self;
        sink.finish().map_err(|source| failed(&path, entries, source))?;
        Ok(entries)
    }
}

fn failed(path: &Path, entries: u64, source: io::Error) -> TraceError {
    let place = Place::Offset(entries * size_of::<Entry>() as u64);
    TraceError::Io { file: path.to_owned(), place, source }
}
