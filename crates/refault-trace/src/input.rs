//! The bytes of a trace file: opened with care, decompressed by magic, counted and limited.
//!
//! Invariants: memory is bounded whatever the file holds. It is one buffer, for zstd a window of at most 2 GiB, for xz
//! a dictionary of at most 1 GiB. The window is filled as far as the data goes. What is handed out never exceeds
//! [`Limits`]. Cost: one copy from the decompressor into the buffer.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;

use crate::Format;
use crate::error::{Place, TraceError};
use crate::reader::Options;
use crate::rft::RftReader;
use crate::{Kind, Limits};
use packed::{LZ4_LEGACY_MAGIC, Lz4Frames, Lz4Legacy, ZlibStreams};

mod packed;

const BUFFER: usize = 256 << 10;
/// How much of the start is looked at to tell the format.
const SNIFFED: usize = 4096;
/// From here on [`Limits::expansion`] holds.
const EXPANSION_FREE: u64 = 1 << 30;

/// Bytes of a trace that must be in memory as a whole: an `.rft` that comes from a pipe or is packed again, or JSON.
const MAX_IN_MEMORY: usize = 1 << 28;

/// zstd's largest window, of 2 GiB: what `zstd --long=31` asks for, also of a frame of few bytes whose length it did
/// not know. Memory is taken as far as it is filled.
const ZSTD_WINDOW_LOG: u32 = 31;

/// Memory for an xz dictionary, at most: `xz -9` needs 64 MiB.
const XZ_MEMORY_KIB: u32 = 1 << 20;

const XZ_MAGIC: [u8; 6] = [0xFD, b'7', b'z', b'X', b'Z', 0];
const LZ4_MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const GZIP_MAGIC: [u8; 3] = [0x1F, 0x8B, 0x08];
/// What spreadsheets put before a text in UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// A decompressed stream of bytes with its place.
pub(crate) struct Input {
    path: PathBuf,
    source: Box<dyn Read + Send>,
    /// The file itself, if it is a regular one and not compressed.
    plain: Option<File>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes handed out before `start`.
    offset: u64,
    at_end: bool,
    /// The last line that was handed out has no end.
    line_is_cut: bool,
    compressed: bool,
    file_bytes: Option<u64>,
    consumed: Arc<AtomicU64>,
    limits: Limits,
}

impl Input {
    /// Opens a file and looks at its first bytes.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Input, TraceError> {
        let open_error = |source| TraceError::Open { file: path.to_owned(), source };
        let metadata = std::fs::metadata(path).map_err(open_error)?;
        if metadata.is_dir() {
            return Err(TraceError::unsuitable(path, "is a directory; name a trace file in it"));
        }
        let file = File::open(path).map_err(open_error)?;
        if metadata.is_file() && metadata.len() == 0 {
            return Err(TraceError::unsuitable(path, "is empty; a trace has at least one access"));
        }
        let plain = metadata.is_file().then(|| file.try_clone().map_err(open_error)).transpose()?;
        let file_bytes = metadata.is_file().then_some(metadata.len());
        Self::from_reader(options.shown(path), Box::new(file), plain, file_bytes, options)
    }

    /// Bytes from memory, named `path` in errors.
    pub(crate) fn from_bytes(path: &Path, bytes: Vec<u8>, options: &Options) -> Result<Input, TraceError> {
        if bytes.is_empty() {
            return Err(TraceError::unsuitable(path, "is empty; a trace has at least one access"));
        }
        let length = bytes.len() as u64;
        Self::from_reader(path, Box::new(io::Cursor::new(bytes)), None, Some(length), options)
    }

    fn from_reader(
        path: &Path,
        raw: Box<dyn Read + Send>,
        plain: Option<File>,
        file_bytes: Option<u64>,
        options: &Options,
    ) -> Result<Input, TraceError> {
        let consumed = Arc::new(AtomicU64::new(0));
        let counting = Counting { inner: raw, consumed: consumed.clone() };
        let mut raw = BufReader::with_capacity(BUFFER, counting);
        let io_error = |source| TraceError::Io { file: path.to_owned(), place: Place::Offset(0), source };
        let head = raw.fill_buf().map_err(io_error)?;
        let zstd = head.starts_with(&ZSTD_MAGIC) || is_skippable_frame(head);
        let gzip = head.starts_with(&GZIP_MAGIC);
        let zlib = is_zlib(head) && may_be_zlib(path, options.format);
        let (xz, lz4) = (head.starts_with(&XZ_MAGIC), head.starts_with(&LZ4_MAGIC));
        let lz4_legacy = head.starts_with(&LZ4_LEGACY_MAGIC);
        let source: Box<dyn Read + Send> = if zstd {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(raw).map_err(io_error)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG).map_err(io_error)?;
            Box::new(decoder)
        } else if xz {
            Box::new(XzReader::new_mem_limit(raw, true, XZ_MEMORY_KIB))
        } else if lz4 {
            Box::new(Lz4Frames::new(raw))
        } else if lz4_legacy {
            Box::new(Lz4Legacy::new(raw))
        } else if gzip {
            Box::new(MultiGzDecoder::new(raw))
        } else if zlib {
            Box::new(ZlibStreams::new(raw))
        } else {
            Box::new(raw)
        };
        let compressed = zstd || gzip || zlib || xz || lz4 || lz4_legacy;
        let mut input = Input {
            path: path.to_owned(),
            source,
            plain: plain.filter(|_| !compressed),
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            offset: 0,
            at_end: false,
            line_is_cut: false,
            compressed,
            file_bytes,
            consumed,
            limits: options.limits.clone(),
        };
        if input.fill(1)?.is_empty() {
            return Err(TraceError::unsuitable(path, "is empty; a trace has at least one access"));
        }
        Ok(input)
    }

    /// The file's path, for errors.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The uncompressed regular file below, if it is one, with its length; it must be sought in before it is read.
    pub(crate) fn take_plain_file(&mut self) -> Option<(File, u64)> {
        Some((self.plain.take()?, self.file_bytes?))
    }

    /// Reads an `.rft` trace, which is sought in: from the file itself, else (packed again, or a pipe) from memory.
    pub(crate) fn into_rft(mut self, kind: Option<Kind>) -> Result<RftReader, TraceError> {
        if let Some(file) = self.plain {
            return RftReader::from_file(&self.path, file, kind);
        }
        let bytes = self.rest("an .rft trace that is packed again")?;
        RftReader::from_bytes(&self.path, bytes, kind)
    }

    /// All that is left, if that fits into 256 MiB; `what` is named if it does not.
    pub(crate) fn rest(&mut self, what: &str) -> Result<Vec<u8>, TraceError> {
        let mut bytes = Vec::new();
        loop {
            let available = self.fill(1)?;
            if available.is_empty() {
                return Ok(bytes);
            }
            bytes.extend_from_slice(available);
            let taken = available.len();
            self.consume(taken);
            if bytes.len() > MAX_IN_MEMORY {
                let reason = format!("{what} is read as a whole, and may have at most {MAX_IN_MEMORY} bytes");
                return Err(TraceError::limit(&self.path, Place::Offset(self.offset), reason));
            }
        }
    }

    /// Where the next byte lies.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Size of the data, if it is not compressed and in a regular file.
    pub(crate) fn data_bytes(&self) -> Option<u64> {
        self.file_bytes.filter(|_| !self.compressed)
    }

    /// The part of the file consumed, 0 to 1.
    pub(crate) fn progress(&self) -> Option<f64> {
        let total = self.file_bytes?;
        if !self.compressed {
            return Some((self.offset as f64 / total as f64).min(1.0));
        }
        Some((self.consumed.load(Ordering::Relaxed) as f64 / total as f64).min(1.0))
    }

    /// The first bytes, up to 4096, without consuming them.
    pub(crate) fn head(&mut self) -> Result<&[u8], TraceError> {
        let head = self.fill(SNIFFED)?;
        let head = &head[..head.len().min(SNIFFED)];
        Ok(head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(head))
    }

    /// At least `wanted` bytes (at most 256 KiB), or fewer if the data ends; nothing is consumed.
    pub(crate) fn fill(&mut self, wanted: usize) -> Result<&[u8], TraceError> {
        debug_assert!(wanted <= BUFFER);
        if self.end - self.start < wanted && !self.at_end {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < wanted && !self.at_end {
                match self.source.read(&mut self.buffer[self.end..]) {
                    Ok(0) => self.at_end = true,
                    Ok(read) => self.end += read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(source) => {
                        let place = Place::Offset(self.offset + self.end as u64);
                        return Err(self.unread(place, source));
                    }
                }
                self.check_growth()?;
            }
        }
        Ok(&self.buffer[self.start..self.end])
    }

    /// What to say of an error while reading.
    fn unread(&self, place: Place, source: io::Error) -> TraceError {
        let text = source.to_string();
        // What zstd says where a window is beyond its limit, and where there is no memory for one.
        let memory = ["too much memory", "not enough memory", "memory too big"];
        if self.compressed && memory.iter().any(|words| text.contains(words)) {
            let reason = "what packed it needs more memory to unpack than is given here: unpack it first, as by `zstd -dc \
                          --long=31 FILE` or `xz -dc FILE`";
            return TraceError::limit(&self.path, place, reason);
        }
        // What the unpackers say where the data ends too early.
        let ends =
            ["incomplete frame", "incomplete deflate stream", "unexpected end of file", "failed to fill whole buffer"];
        if self.compressed && ends.iter().any(|words| text.contains(words)) {
            let reason = "truncated: the packed data ends before its end; fetch the file again, or pack it anew";
            return TraceError::malformed(&self.path, place, reason);
        }
        TraceError::Io { file: self.path.clone(), place, source }
    }

    /// Goes past bytes that [`Input::fill`] has shown.
    pub(crate) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.end - self.start);
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Consumes the next line and returns it without its end, or `None` at the end of the data.
    pub(crate) fn line(&mut self, line_number: u64) -> Result<Option<&[u8]>, TraceError> {
        let limit = self.limits.line_bytes.min(BUFFER - 1);
        let mut searched = 0;
        let length = loop {
            let rest = &self.buffer[self.start + searched..self.end];
            if let Some(newline) = memchr::memchr(b'\n', rest) {
                break searched + newline;
            }
            searched += rest.len();
            if searched > limit || self.at_end {
                break searched;
            }
            self.fill(searched + 1)?;
        };
        if length > limit {
            let reason = format!("line is longer than {limit} bytes; is this a text file?");
            return Err(TraceError::limit(&self.path, Place::Line(line_number), reason));
        }
        let start = self.start;
        let newline = usize::from(start + length < self.end);
        if length + newline == 0 {
            return Ok(None);
        }
        self.consume(length + newline);
        self.line_is_cut = newline == 0;
        let line = &self.buffer[start..start + length];
        let line = if line_number == 1 { line.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(line) } else { line };
        Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
    }

    /// Whether the last line that was handed out has no end: the text may be cut within it.
    pub(crate) fn line_is_cut(&self) -> bool {
        self.line_is_cut
    }

    fn check_growth(&self) -> Result<(), TraceError> {
        if !self.compressed {
            return Ok(());
        }
        let unpacked = self.offset + self.end as u64;
        let place = Place::Offset(unpacked);
        if unpacked > self.limits.decompressed_bytes {
            let reason = format!("unpacks to more than the limit of {} bytes", self.limits.decompressed_bytes);
            return Err(TraceError::limit(&self.path, place, reason));
        }
        let packed = self.consumed.load(Ordering::Relaxed).max(1);
        if unpacked > EXPANSION_FREE && unpacked / packed > self.limits.expansion {
            let reason = format!(
                "unpacks to more than {} times its size: not a trace, or unpack it first if it is",
                self.limits.expansion
            );
            return Err(TraceError::limit(&self.path, place, reason));
        }
        Ok(())
    }
}

/// Whether the first two bytes are a header of zlib (RFC 1950): deflate with a window of 32 KiB, and a check sum.
fn is_zlib(head: &[u8]) -> bool {
    head.len() >= 2 && head[0] == 0x78 && u16::from_be_bytes([head[0], head[1]]).is_multiple_of(31)
}

/// Two bytes prove little: only DAMON records come packed like this, and those say nothing in their names.
fn may_be_zlib(path: &Path, format: Option<Format>) -> bool {
    match format {
        Some(format) => format == Format::Damo,
        None => Format::of_name(path).is_none_or(|format| format == Format::Damo),
    }
}

/// zstd's skippable frames, which parallel compressors put first.
fn is_skippable_frame(head: &[u8]) -> bool {
    head.len() >= 4 && head[0] & 0xF0 == 0x50 && head[1..4] == [0x2A, 0x4D, 0x18]
}

struct Counting<R> {
    inner: R,
    consumed: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.consumed.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
