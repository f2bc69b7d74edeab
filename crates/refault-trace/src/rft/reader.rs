//! Reading `.rft`: from the start, or from any access.

use std::fs::File;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use super::block;
use super::layout::{self, FRAME_BYTES, Footer, Frame, HEADER_BYTES, MAGIC, MAX_FOOTER_BYTES, TRAILER_BYTES, VERSION};
use crate::error::{Place, TraceError};
use crate::formats::apply_kinds;
use crate::reader::{Details, TimeSpan, TraceReader};
use crate::{Entry, Kind};

/// What is wrong if blocks and footer do not follow each other without a gap.
const STRAY: &str = "bytes that belong to no block follow it; are these several files in one?";

trait Bytes: Read + Seek + Send {}
impl<T: Read + Seek + Send> Bytes for T {}

/// A trace in refault's own format.
pub struct RftReader {
    path: PathBuf,
    bytes: Box<dyn Bytes>,
    footer: Footer,
    kind: Option<Kind>,
    decompressor: zstd::bulk::Decompressor<'static>,
    packed: Vec<u8>,
    plain: Vec<u8>,
    next_block: usize,
    /// Where the footer starts, which is where the last block ends.
    footer_offset: u64,
    /// Entries of the next block to leave out.
    skip: usize,
    time: Option<TimeSpan>,
}

impl RftReader {
    /// Opens a file and reads its footer.
    ///
    /// # Errors
    /// The file cannot be opened, is not of this format or version, was not finished, or its footer is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<RftReader, TraceError> {
        let path = path.as_ref();
        let open = |source| TraceError::Open { file: path.to_owned(), source };
        let file = File::open(path).map_err(open)?;
        if file.metadata().map_err(open)?.is_dir() {
            return Err(TraceError::unsuitable(path, "is a directory; name a trace file in it"));
        }
        Self::new(path, Box::new(file), None)
    }

    /// A trace in memory.
    pub(crate) fn from_bytes(path: &Path, bytes: Vec<u8>, kind: Option<Kind>) -> Result<RftReader, TraceError> {
        Self::new(path, Box::new(Cursor::new(bytes)), kind)
    }

    /// A file that is open already.
    pub(crate) fn from_file(path: &Path, file: File, kind: Option<Kind>) -> Result<RftReader, TraceError> {
        Self::new(path, Box::new(file), kind)
    }

    fn new(path: &Path, mut bytes: Box<dyn Bytes>, kind: Option<Kind>) -> Result<RftReader, TraceError> {
        let decompressor = zstd::bulk::Decompressor::new();
        let decompressor = decompressor.map_err(|source| TraceError::Open { file: path.to_owned(), source })?;
        let (footer, footer_offset) = read_footer(path, &mut *bytes)?;
        Ok(RftReader {
            path: path.to_owned(),
            bytes,
            footer,
            kind: kind.filter(|kind| *kind != Kind::Anon),
            decompressor,
            packed: Vec::new(),
            plain: Vec::new(),
            next_block: 0,
            footer_offset,
            skip: 0,
            time: None,
        })
    }

    /// Where the blocks lie, and the metadata.
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Goes to an access; beyond the last one, to the end. Cost: the next block is decoded from its start.
    pub fn seek(&mut self, access: u64) {
        (self.next_block, self.skip) = match self.footer.block_of(access) {
            Some(block) => (block, (access - self.footer.blocks[block].first_access) as usize),
            None => (self.footer.blocks.len(), 0),
        };
    }

    fn decode(&mut self, number: usize, out: &mut Vec<Entry>) -> Result<(), TraceError> {
        let index = self.footer.blocks[number];
        let place = Place::Offset(index.offset);
        let damaged =
            |path: &Path, reason: &str| TraceError::malformed(path, place, format!("block {number}: {reason}"));
        let mut frame = [0; FRAME_BYTES];
        read_at(&self.path, &mut *self.bytes, index.offset, &mut frame)?;
        let frame = Frame::decode(&frame).map_err(|reason| damaged(&self.path, &reason))?;
        self.packed.resize(frame.packed_bytes as usize, 0);
        read_at(&self.path, &mut *self.bytes, index.offset + FRAME_BYTES as u64, &mut self.packed)?;
        if frame.sum(&self.packed) != frame.checksum || frame.entries != index.entries {
            return Err(damaged(&self.path, "checksum does not match; the file is damaged"));
        }
        let end = self.footer.blocks.get(number + 1).map_or(self.footer_offset, |next| next.offset);
        if block_end(index.offset, frame) != end {
            return Err(damaged(&self.path, STRAY));
        }
        self.plain.resize(frame.plain_bytes as usize, 0);
        let unpacked = self.decompressor.decompress_to_buffer(&self.packed, &mut self.plain);
        if !unpacked.is_ok_and(|bytes| bytes == frame.plain_bytes as usize) {
            return Err(damaged(&self.path, "does not unpack to the length it says"));
        }
        let decoded = block::decode(&self.plain, frame.entries as usize, out);
        decoded.map_err(|reason| damaged(&self.path, &reason))?;
        let (min, max) =
            out.iter().fold((u64::MAX, 0), |(min, max), entry| (min.min(entry.page()), max.max(entry.page())));
        if (min, max) != (index.min_page, index.max_page) {
            return Err(damaged(&self.path, "its pages are not those of the index; are these parts of two files?"));
        }
        Ok(())
    }
}

impl TraceReader for RftReader {
    fn read_block(&mut self, out: &mut Vec<Entry>) -> Result<usize, TraceError> {
        out.clear();
        self.time = None;
        if self.next_block == self.footer.blocks.len() {
            return Ok(0);
        }
        self.decode(self.next_block, out)?;
        self.time = self.footer.blocks[self.next_block].time;
        self.next_block += 1;
        out.drain(..std::mem::take(&mut self.skip));
        apply_kinds(out, self.kind);
        Ok(out.len())
    }

    fn total(&self) -> Option<u64> {
        Some(self.footer.accesses())
    }

    fn progress(&self) -> Option<f64> {
        Some(self.next_block as f64 / self.footer.blocks.len().max(1) as f64)
    }

    fn block_time(&self) -> Option<TimeSpan> {
        self.time
    }

    fn details(&self) -> Details {
        let others = self.kind.unwrap_or(Kind::Anon).name();
        let kind = ("kind", format!("as each entry says; {others} where its kind bits are clear"));
        let metadata = self.footer.metadata.iter().map(|(key, value)| {
            let known = KNOWN_METADATA.iter().find(|(known, _)| known == key);
            match known {
                Some((_, words)) => (*words, crate::error::printable(value)),
                None => ("noted", crate::error::printable(&format!("{key}: {value}"))),
            }
        });
        [kind].into_iter().chain(metadata).collect()
    }
}

/// Metadata that refault writes, and what it is called: each by a name of its own, so that none replaces another.
const KNOWN_METADATA: [(&str, &str); 7] = [
    ("source", "made from"),
    ("writer", "made by"),
    ("recorded", "recorded"),
    ("granularity", "granularity"),
    ("intervals", "intervals"),
    ("processes", "processes"),
    ("overhead", "overhead"),
];

/// The footer and where it starts.
fn read_footer(path: &Path, bytes: &mut dyn Bytes) -> Result<(Footer, u64), TraceError> {
    let io = |source| TraceError::Io { file: path.to_owned(), place: Place::Offset(0), source };
    let length = bytes.seek(SeekFrom::End(0)).map_err(io)?;
    let malformed = |offset: u64, reason: &str| TraceError::malformed(path, Place::Offset(offset), reason);
    let mut header = [0; HEADER_BYTES];
    if length < HEADER_BYTES as u64 {
        return Err(malformed(0, "truncated: too short for the header of an .rft trace"));
    }
    read_at(path, bytes, 0, &mut header)?;
    if header[..8] != MAGIC {
        return Err(malformed(0, "does not start as an .rft trace does"));
    }
    let version = layout::u32_at(&header, 8);
    if version != VERSION {
        let reason = format!("is of version {version} of the .rft format; this program reads version {VERSION}");
        return Err(malformed(8, &reason));
    }
    if layout::u32_at(&header, 12) != 0 {
        return Err(malformed(12, "the header's reserved bytes are not zero"));
    }
    let unfinished = "truncated: the footer is missing, so writing was cut short; record or convert it again";
    if length < (HEADER_BYTES + TRAILER_BYTES) as u64 {
        return Err(malformed(length, unfinished));
    }
    let trailer_offset = length - TRAILER_BYTES as u64;
    let mut trailer = [0; TRAILER_BYTES];
    read_at(path, bytes, trailer_offset, &mut trailer)?;
    let (footer_bytes, checksum) = layout::decode_trailer(&trailer).ok_or_else(|| malformed(length, unfinished))?;
    let room = trailer_offset - HEADER_BYTES as u64;
    if footer_bytes > room.min(MAX_FOOTER_BYTES) {
        return Err(malformed(trailer_offset, &format!("the footer's length of {footer_bytes} bytes is absurd")));
    }
    let footer_offset = trailer_offset - footer_bytes;
    let mut footer = vec![0; footer_bytes as usize];
    read_at(path, bytes, footer_offset, &mut footer)?;
    if xxh3_64(&footer) != checksum {
        return Err(malformed(footer_offset, "the footer's checksum does not match; the file is damaged"));
    }
    let footer = Footer::decode(&footer, footer_offset).map_err(|reason| malformed(footer_offset, &reason))?;
    let (Some(first), Some(last)) = (footer.blocks.first(), footer.blocks.last()) else {
        return Err(TraceError::unsuitable(path, "has no accesses"));
    };
    if first.offset != HEADER_BYTES as u64 {
        return Err(malformed(HEADER_BYTES as u64, "bytes that belong to no block follow the header"));
    }
    // The ends are looked at here, so that two files in one are refused at once; decoding looks at all blocks.
    let mut frame = [0; FRAME_BYTES];
    read_at(path, bytes, last.offset, &mut frame)?;
    let frame = Frame::decode(&frame).map_err(|reason| malformed(last.offset, &reason))?;
    if block_end(last.offset, frame) != footer_offset {
        return Err(malformed(last.offset, STRAY));
    }
    Ok((footer, footer_offset))
}

fn block_end(offset: u64, frame: Frame) -> u64 {
    offset + FRAME_BYTES as u64 + u64::from(frame.packed_bytes)
}

fn read_at(path: &Path, bytes: &mut dyn Bytes, offset: u64, out: &mut [u8]) -> Result<(), TraceError> {
    let read = bytes.seek(SeekFrom::Start(offset)).and_then(|_| bytes.read_exact(out));
    read.map_err(|source| TraceError::Io { file: path.to_owned(), place: Place::Offset(offset), source })
}
