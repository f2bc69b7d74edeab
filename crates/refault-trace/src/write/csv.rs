//! Writing CSV: columns `page,kind,write`, `size` and `time_ns` if the first block has them. A size that is not known is
//! an empty field.
//!
//! [`crate::Format::Csv`] reads it back as it was. A size beside a page only weighs; objects with sizes, of which memory
//! may hold as many as their bytes allow, are in a column `object` instead.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::Block;
use super::packed::{Compression, Packed};
use crate::error::{Place, TraceError};
use crate::reader::UNKNOWN_BYTES;

/// Writes a CSV trace. Nothing is whole until [`CsvWriter::finish`].
pub struct CsvWriter {
    path: PathBuf,
    sink: Packed,
    text: Vec<u8>,
    /// Whether there are columns of sizes and of times; `None` before the header.
    columns: Option<(bool, bool)>,
    lines: u64,
}

impl CsvWriter {
    /// Writes to a file that is open and empty; `path` stands for it in errors.
    ///
    /// # Errors
    /// The compressor has no memory.
    pub fn new(file: File, path: &Path, compression: Compression) -> Result<CsvWriter, TraceError> {
        let sink = Packed::new(file, compression);
        let sink = sink.map_err(|source| TraceError::Open { file: path.to_owned(), source })?;
        Ok(CsvWriter { path: path.to_owned(), sink, text: Vec::new(), columns: None, lines: 0 })
    }

    /// Appends a block.
    ///
    /// # Errors
    /// The device is full or failed; an entry is of undefined kind, or sizes begin in the middle, or times begin or end
    /// there.
    pub fn write(&mut self, block: Block<'_>) -> Result<(), TraceError> {
        let here = (block.bytes.is_some(), block.times.is_some());
        let (sizes, times) = *self.columns.get_or_insert(here);
        self.text.clear();
        if self.lines == 0 {
            self.text.extend(if block.objects { &b"object"[..] } else { b"page" });
            self.text.extend(b",kind,write");
            self.text.extend(if sizes { &b",size"[..] } else { b"" });
            self.text.extend(if times { &b",time_ns\n"[..] } else { b"\n" });
            self.lines = 1;
        }
        let mixed = |what: &str| {
            let reason =
                format!("only some of its accesses say their {what}, from access {} on: write .rft", self.lines);
            Err(TraceError::unsuitable(&self.path, reason))
        };
        match here {
            (true, _) if !sizes => return mixed("size"),
            (_, here) if here != times => return mixed("time"),
            _ => {}
        }
        for (index, entry) in block.entries.iter().enumerate() {
            let Some(kind) = entry.kind() else {
                let reason = format!("entry {:#018x} is of undefined kind", entry.0);
                return Err(TraceError::malformed(&self.path, Place::Line(self.lines + 1), reason));
            };
            let text = &mut self.text;
            let written = write!(text, "{},{},{}", entry.page(), kind.name(), u8::from(entry.write()))
                .and_then(|()| match block.bytes.map(|bytes| bytes[index]).filter(|_| sizes) {
                    Some(UNKNOWN_BYTES) => write!(text, ","),
                    Some(bytes) => write!(text, ",{bytes}"),
                    None if sizes => write!(text, ","),
                    None => Ok(()),
                })
                .and_then(|()| block.times.map_or(Ok(()), |times| write!(text, ",{}", times[index])));
            written.map_err(|source| self.failed(source))?;
            self.text.push(b'\n');
            self.lines += 1;
        }
        let text = std::mem::take(&mut self.text);
        let written = self.sink.write_all(&text);
        self.text = text;
        written.map_err(|source| self.failed(source))
    }

    /// Ends the file and returns the number of accesses written.
    ///
    /// # Errors
    /// As [`CsvWriter::write`].
    pub fn finish(self) -> Result<u64, TraceError> {
        let CsvWriter { path, sink, lines, .. } = self;
        sink.finish().map_err(|source| TraceError::Io { file: path, place: Place::Line(lines), source })?;
        Ok(lines.saturating_sub(1))
    }

    fn failed(&self, source: std::io::Error) -> TraceError {
        TraceError::Io { file: self.path.clone(), place: Place::Line(self.lines), source }
    }
}
