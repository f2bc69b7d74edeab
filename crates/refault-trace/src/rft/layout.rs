//! The fixed parts of an `.rft` file: header, block frame, footer, trailer. All numbers are little-endian.

use xxhash_rust::xxh3::xxh3_64;

use crate::reader::{BLOCK_ENTRIES, TimeSpan};

/// First bytes of a file: a byte no text has, the name, a line end that transfers as text would change.
pub(crate) const MAGIC: [u8; 8] = *b"\x89RFT\r\n\x1a\n";
/// Last bytes of a whole file.
pub(crate) const END_MAGIC: [u8; 8] = *b"RFT-END\n";
/// The version this code writes and the only one it reads.
pub(crate) const VERSION: u32 = 1;
/// Magic, version, reserved.
pub(crate) const HEADER_BYTES: usize = 16;
/// Packed length, plain length, entries, checksum.
pub(crate) const FRAME_BYTES: usize = 24;
/// Footer length, footer checksum, end magic.
pub(crate) const TRAILER_BYTES: usize = 24;
/// An index record.
const INDEX_BYTES: usize = 56;
/// A block's entries take at most this much before compression: ten bytes of page and one of flags each, and a tag.
pub(crate) const MAX_PLAIN_BYTES: usize = BLOCK_ENTRIES * 11 + 1;
/// What compression may add to data it cannot compress.
pub(crate) const MAX_PACKED_BYTES: usize = MAX_PLAIN_BYTES + MAX_PLAIN_BYTES / 64 + 1024;
/// Footer at most: 2^24 blocks, that is 10^12 entries, and metadata.
pub(crate) const MAX_FOOTER_BYTES: u64 = (INDEX_BYTES as u64) << 24;
const NO_TIME: u64 = u64::MAX;
/// Longest key or value of the metadata.
pub(crate) const MAX_METADATA_BYTES: usize = u16::MAX as usize;

/// Key and value pairs that travel with a trace, in the order they were added.
pub type Metadata = Vec<(String, String)>;

/// Where a block lies and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockIndex {
    /// Bytes from the start of the file to the block's frame.
    pub offset: u64,
    /// Number of the block's first access, from 0.
    pub first_access: u64,
    /// Entries, from 1 to [`BLOCK_ENTRIES`].
    pub entries: u32,
    /// Lowest page number.
    pub min_page: u64,
    /// Highest page number.
    pub max_page: u64,
    /// When the accesses happened, if recorded.
    pub time: Option<TimeSpan>,
}

/// The index of all blocks, and the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footer {
    /// Blocks in order.
    pub blocks: Vec<BlockIndex>,
    /// What was said about the trace.
    pub metadata: Metadata,
}

impl Footer {
    /// Accesses of the trace.
    pub fn accesses(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.first_access + u64::from(block.entries))
    }

    /// The block that holds an access, `None` beyond the end.
    pub fn block_of(&self, access: u64) -> Option<usize> {
        let after = self.blocks.partition_point(|block| block.first_access <= access);
        (access < self.accesses()).then(|| after - 1)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.blocks.len() * INDEX_BYTES + 16);
        bytes.extend((self.blocks.len() as u64).to_le_bytes());
        for block in &self.blocks {
            let (first, last) = block.time.map_or((NO_TIME, NO_TIME), |time| (time.first_ns, time.last_ns));
            let fields = [block.offset, block.first_access, block.min_page, block.max_page, first, last];
            bytes.extend(fields.iter().flat_map(|field| field.to_le_bytes()));
            bytes.extend(u64::from(block.entries).to_le_bytes());
        }
        bytes.extend((self.metadata.len() as u64).to_le_bytes());
        for text in self.metadata.iter().flat_map(|(key, value)| [key, value]) {
            bytes.extend((text.len() as u16).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    /// Parses a footer whose checksum holds, for blocks that end at `end`.
    pub(crate) fn decode(bytes: &[u8], end: u64) -> Result<Footer, String> {
        let mut rest = Fields(bytes);
        let count = rest.u64()?;
        if count > (bytes.len() / INDEX_BYTES) as u64 {
            return Err(format!("the footer is too short for {count} blocks"));
        }
        let mut blocks: Vec<BlockIndex> = Vec::with_capacity(count as usize);
        let (mut access, mut lowest_offset) = (0, HEADER_BYTES as u64);
        for number in 0..count {
            let [offset, first_access, min_page, max_page, first, last, entries] = rest.u64s()?;
            let valid = (1..=BLOCK_ENTRIES as u64).contains(&entries)
                && first_access == access
                && min_page <= max_page
                && offset >= lowest_offset
                && offset.checked_add(FRAME_BYTES as u64).is_some_and(|frame_end| frame_end <= end);
            if !valid {
                return Err(format!("the index of block {number} contradicts itself or its neighbours"));
            }
            access += entries;
            lowest_offset = offset + FRAME_BYTES as u64;
            let time = (first != NO_TIME).then_some(TimeSpan { first_ns: first, last_ns: last });
            blocks.push(BlockIndex { offset, first_access, entries: entries as u32, min_page, max_page, time });
        }
        let pairs = rest.u64()?;
        let mut metadata = Metadata::new();
        for _ in 0..pairs {
            metadata.push((rest.text()?, rest.text()?));
        }
        if !rest.0.is_empty() {
            return Err(format!("{} bytes follow the footer's metadata", rest.0.len()));
        }
        Ok(Footer { blocks, metadata })
    }
}

/// Reads fields from the front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take(&mut self, bytes: usize) -> Result<&[u8], String> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or("the footer ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok(u64_at(self.take(8)?, 0))
    }

    fn u64s<const N: usize>(&mut self) -> Result<[u64; N], String> {
        let bytes = self.take(N * 8)?;
        Ok(std::array::from_fn(|index| u64_at(bytes, index * 8)))
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.take(2)?;
        let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
        String::from_utf8(self.take(length)?.to_vec()).map_err(|_| "the metadata is not UTF-8".to_owned())
    }
}

/// A number of 8 bytes; the caller has checked that they are there.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// A number of 4 bytes; the caller has checked that they are there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// What stands before a block's packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) packed_bytes: u32,
    pub(crate) plain_bytes: u32,
    pub(crate) entries: u32,
    pub(crate) checksum: u64,
}

impl Frame {
    pub(crate) fn new(packed: &[u8], plain_bytes: usize, entries: usize) -> Frame {
        let (packed_bytes, plain_bytes, entries) = (packed.len() as u32, plain_bytes as u32, entries as u32);
        let mut frame = Frame { packed_bytes, plain_bytes, entries, checksum: 0 };
        frame.checksum = frame.sum(packed);
        frame
    }

    /// The checksum of the lengths and the packed bytes.
    pub(crate) fn sum(&self, packed: &[u8]) -> u64 {
        let mut hasher = xxhash_rust::xxh3::Xxh3::new();
        hasher.update(&self.encode()[..12]);
        hasher.update(packed);
        hasher.digest()
    }

    pub(crate) fn encode(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        bytes[0..4].copy_from_slice(&self.packed_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.plain_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.entries.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; FRAME_BYTES]) -> Result<Frame, String> {
        let frame = Frame {
            packed_bytes: u32_at(bytes, 0),
            plain_bytes: u32_at(bytes, 4),
            entries: u32_at(bytes, 8),
            checksum: u64_at(bytes, 16),
        };
        let valid = frame.packed_bytes as usize <= MAX_PACKED_BYTES
            && frame.plain_bytes as usize <= MAX_PLAIN_BYTES
            && (1..=BLOCK_ENTRIES as u32).contains(&frame.entries)
            && u32_at(bytes, 12) == 0;
        if !valid {
            return Err(format!(
                "the block's lengths are absurd: {} bytes packed, {} unpacked, {} entries",
                frame.packed_bytes, frame.plain_bytes, frame.entries
            ));
        }
        Ok(frame)
    }
}

/// What ends a whole file.
pub(crate) fn encode_trailer(footer: &[u8]) -> [u8; TRAILER_BYTES] {
    let mut bytes = [0; TRAILER_BYTES];
    bytes[0..8].copy_from_slice(&(footer.len() as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&xxh3_64(footer).to_le_bytes());
    bytes[16..24].copy_from_slice(&END_MAGIC);
    bytes
}

/// Length and checksum of the footer; `None` if the file does not end as a whole one does.
pub(crate) fn decode_trailer(bytes: &[u8; TRAILER_BYTES]) -> Option<(u64, u64)> {
    (bytes[16..] == END_MAGIC).then(|| (u64_at(bytes, 0), u64_at(bytes, 8)))
}
