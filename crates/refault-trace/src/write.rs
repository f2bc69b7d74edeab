//! Writing `.u64` traces, plain or compressed.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;

use crate::Entry;
use crate::error::{Place, TraceError};

/// How a `.u64` file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all: the only form that can be mapped.
    #[default]
    None,
    /// zstd, level 3.
    Zstd,
    /// gzip, level 6.
    Gzip,
}

impl Compression {
    /// By the extension of a path: `.zst`, `.gz` or neither.
    pub fn of_path(path: &Path) -> Compression {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(extension) if extension.eq_ignore_ascii_case("zst") => Compression::Zstd,
            Some(extension) if extension.eq_ignore_ascii_case("gz") => Compression::Gzip,
            _ => Compression::None,
        }
    }
}

enum Sink {
    Plain(BufWriter<File>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
    Gzip(GzEncoder<BufWriter<File>>),
}

/// Writes a `.u64` trace. Nothing is whole until [`U64Writer::finish`].
pub struct U64Writer {
    path: PathBuf,
    sink: Sink,
    bytes: Vec<u8>,
    entries: u64,
}

impl U64Writer {
    /// Creates the file, or empties the one that is there.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: impl AsRef<Path>, compression: Compression) -> Result<U64Writer, TraceError> {
        let path = path.as_ref().to_owned();
        let open = |source| TraceError::Open { file: path.clone(), source };
        let file = BufWriter::with_capacity(1 << 18, File::create(&path).map_err(open)?);
        let sink = match compression {
            Compression::None => Sink::Plain(file),
            Compression::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(file, 3).map_err(open)?;
                encoder.include_checksum(true).map_err(open)?;
                Sink::Zstd(encoder)
            }
            Compression::Gzip => Sink::Gzip(GzEncoder::new(file, flate2::Compression::default())),
        };
        Ok(U64Writer { path, sink, bytes: Vec::new(), entries: 0 })
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
        let written = match &mut self.sink {
            Sink::Plain(sink) => sink.write_all(&self.bytes),
            Sink::Zstd(sink) => sink.write_all(&self.bytes),
            Sink::Gzip(sink) => sink.write_all(&self.bytes),
        };
        written.map_err(|source| self.failed(source))?;
        self.entries += entries.len() as u64;
        Ok(())
    }

    /// Ends the file and returns the number of entries written.
    ///
    /// # Errors
    /// As [`U64Writer::write`].
    pub fn finish(self) -> Result<u64, TraceError> {
        let U64Writer { path, sink, entries, .. } = self;
        let ended = match sink {
            Sink::Plain(sink) => Ok(sink),
            Sink::Zstd(sink) => sink.finish(),
            Sink::Gzip(sink) => sink.finish(),
        };
        ended.and_then(|mut sink| sink.flush()).map_err(|source| {
            let place = Place::Offset(entries * size_of::<Entry>() as u64);
            TraceError::Io { file: path, place, source }
        })?;
        Ok(entries)
    }

    fn failed(&self, source: io::Error) -> TraceError {
        let place = Place::Offset(self.entries * size_of::<Entry>() as u64);
        TraceError::Io { file: self.path.clone(), place, source }
    }
}
