//! Packed files that their unpackers read in part only: each frame or stream of a file is read, and one that is cut is
//! an error.
//!
//! Cost: of an lz4 file of the legacy form a block of 8 MiB and what it was packed to.

use std::io::{self, BufRead, Read};

use flate2::bufread::ZlibDecoder;
use lz4_flex::frame::FrameDecoder;

/// Frames of lz4, one behind the other, each with the mark of its end: the decoder takes a file that is cut between
/// blocks for whole.
pub(super) struct Lz4Frames<R: Read> {
    decoder: FrameDecoder<Watched<R>>,
    /// Inside a frame.
    inside: bool,
}

/// Bytes on their way to a decoder.
struct Watched<R> {
    inner: R,
    /// Since this was last set to 0.
    bytes: u64,
    ended: bool,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bytes += read as u64;
        self.ended |= read == 0 && !buffer.is_empty();
        Ok(read)
    }
}

impl<R: Read> Lz4Frames<R> {
    pub(super) fn new(packed: R) -> Lz4Frames<R> {
        Lz4Frames { decoder: FrameDecoder::new(Watched { inner: packed, bytes: 0, ended: false }), inside: false }
    }
}

impl<R: Read> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.decoder.get_mut().bytes = 0;
            let read = self.decoder.read(buffer)?;
            let Watched { bytes, ended, .. } = *self.decoder.get_ref();
            match (read, ended) {
                // The end of a frame; another may follow.
                (0, false) if !buffer.is_empty() => self.inside = false,
                (0, true) if self.inside || bytes > 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                (read, _) => {
                    self.inside |= read > 0;
                    return Ok(read);
                }
            }
        }
    }
}

/// lz4's legacy form: behind the mark, blocks of 8 MiB (the last may be shorter), each with its packed length before it.
/// It has no mark of its end, so a file that is cut between two blocks is taken for whole. Another may follow.
pub(super) struct Lz4Legacy<R> {
    inner: R,
    packed: Vec<u8>,
    block: Vec<u8>,
    /// Where what was not handed out begins in the block.
    start: usize,
}

/// What `lz4 -l` and Linux's images begin with.
pub(super) const LZ4_LEGACY_MAGIC: [u8; 4] = [0x02, 0x21, 0x4C, 0x18];
/// Bytes of a block, at most.
const LEGACY_BLOCK: usize = 8 << 20;

impl<R: Read> Lz4Legacy<R> {
    pub(super) fn new(inner: R) -> Lz4Legacy<R> {
        Lz4Legacy { inner, packed: Vec::new(), block: Vec::new(), start: 0 }
    }

    /// Unpacks the next block; false at the end.
    fn next_block(&mut self) -> io::Result<bool> {
        let wrong =
            |reason: &str| io::Error::new(io::ErrorKind::InvalidData, format!("lz4 of the legacy form: {reason}"));
        loop {
            let mut head = [0; 4];
            let mut read = 0;
            while read < head.len() {
                match self.inner.read(&mut head[read..])? {
                    0 if read == 0 => return Ok(false),
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    more => read += more,
                }
            }
            if head == LZ4_LEGACY_MAGIC {
                continue;
            }
            let length = u32::from_le_bytes(head) as usize;
            if length > lz4_flex::block::get_maximum_output_size(LEGACY_BLOCK) {
                return Err(wrong("a block is too long; is another file behind the first?"));
            }
            self.packed.clear();
            self.inner.by_ref().take(length as u64).read_to_end(&mut self.packed)?;
            if self.packed.len() < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.block.resize(LEGACY_BLOCK, 0);
            let unpacked = lz4_flex::block::decompress_into(&self.packed, &mut self.block);
            let unpacked = unpacked.map_err(|error| wrong(&error.to_string()))?;
            self.block.truncate(unpacked);
            self.start = 0;
            if unpacked > 0 {
                return Ok(true);
            }
        }
    }
}

impl<R: Read> Read for Lz4Legacy<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.start == self.block.len() && !self.next_block()? {
            return Ok(0);
        }
        let taken = buffer.len().min(self.block.len() - self.start);
        buffer[..taken].copy_from_slice(&self.block[self.start..self.start + taken]);
        self.start += taken;
        Ok(taken)
    }
}

/// Streams of zlib, one behind the other.
pub(super) struct ZlibStreams<R> {
    decoder: Option<ZlibDecoder<R>>,
}

impl<R: BufRead> ZlibStreams<R> {
    pub(super) fn new(packed: R) -> ZlibStreams<R> {
        ZlibStreams { decoder: Some(ZlibDecoder::new(packed)) }
    }
}

impl<R: BufRead> Read for ZlibStreams<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.decoder {
            let read = decoder.read(buffer)?;
            if read > 0 || buffer.is_empty() || decoder.get_mut().fill_buf()?.is_empty() {
                return Ok(read);
            }
            self.decoder = self.decoder.take().map(|ended| ZlibDecoder::new(ended.into_inner()));
        }
        Ok(0)
    }
}
