//! Where evicted pages go.
//!
//! In order: a page filled with one value takes no space ([`same_filled`]), then memory again, but compressed
//! ([`CompressedPool`]), then a file ([`FileStore`]). [`TieredStore`] stacks the three; [`FaultyDevice`] sits below a
//! file store and fails on purpose, so that every error path is walked in tests.
//!
//! Invariants: a slot belongs to one page from the write that returned it until it is released; a read returns exactly
//! the bytes that were written or an error, never zeros and never older bytes. Everything is under a checksum or an
//! authentication tag that is kept in memory, apart from the data; nothing here allocates after construction; no lock
//! is held across compression or across a read of the file.
//!
//! ```
//! use refault_store::codec::Codec;
//! use refault_store::{Page, Scratch, Store, StoreError, TieredStore, TieredStoreOptions};
//!
//! let store = TieredStore::new(&TieredStoreOptions { pool_limit: 1 << 20, codec: Codec::Lz4, file: None })?;
//! let mut page = Page::ZERO;
//! page.0[..5].copy_from_slice(b"hello");
//! let mut scratch = Scratch::new();
//! let mut slots = [Err(StoreError::Full("pool"))];
//! store.write(&[&page], &mut scratch, &mut slots); // pages in batches
//! let slot = slots[0]?;
//! let mut back = Page::ZERO;
//! store.read(slot, &mut back, &mut scratch)?;
//! assert_eq!(back.0, page.0);
//! store.release(slot);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod codec;
mod columns;
mod device;
mod error_number;
pub mod faulty;
mod file;
mod mapping;
pub mod noted;
pub mod pool;
pub mod same_filled;
mod tiered;
mod uring;
mod words;
mod zstd;

pub use codec::Scratch;
pub use device::{Device, FileDevice, IoEngine, Job};
pub use error_number::ErrorNumber;
pub use faulty::{FaultPlan, FaultyDevice};
pub use file::{FileStore, FileStoreOptions};
pub use mapping::{Source, reserve_from};
pub use pool::CompressedPool;
pub use tiered::{TieredStore, TieredStoreOptions};

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// The contents of a page, aligned as direct I/O wants it.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_SIZE]);

impl Page {
    /// A page of zeros.
    pub const ZERO: Page = Page([0; PAGE_SIZE]);

    /// A hash of the contents, by which pages can be told apart. Two that differ have the same with a probability of
    /// one in 2^128, unless an attacker who knows the seed makes them so. Cost: 0.2 µs.
    pub fn fingerprint(&self, seed: u64) -> u128 {
        xxhash_rust::xxh3::xxh3_128_with_seed(&self.0, seed)
    }
}

impl Default for Page {
    fn default() -> Page {
        Page::ZERO
    }
}

/// Which store a slot lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tier {
    /// No space: the slot itself says what the page is filled with.
    SameFilled,
    /// The compressed pool.
    Pool,
    /// The file.
    File,
}

/// Where the contents of an evicted page are: 2 bits of tier, 54 bits of place. Fits a page's state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(u64);

impl Slot {
    /// Bits that [`Slot::bits`] may use.
    pub const BITS: u32 = 56;
    const PLACE_BITS: u32 = 54;
    const PLACE_MASK: u64 = (1 << Self::PLACE_BITS) - 1;

    pub(crate) const fn new(tier: Tier, place: u64) -> Slot {
        debug_assert!(place <= Self::PLACE_MASK);
        Slot((tier as u64) << Self::PLACE_BITS | place)
    }

    pub(crate) const fn place(self) -> u64 {
        self.0 & Self::PLACE_MASK
    }

    /// The store it lies in.
    pub const fn tier(self) -> Tier {
        match self.0 >> Self::PLACE_BITS {
            0 => Tier::SameFilled,
            1 => Tier::Pool,
            _ => Tier::File,
        }
    }

    /// The slot as a number below `1 << Slot::BITS`.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The slot that [`Slot::bits`] came from.
    pub const fn from_bits(bits: u64) -> Slot {
        Slot(bits)
    }
}

/// Why a page could not be stored or brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No room is left, or only the reserve. Nothing was lost: the page is still where it was.
    #[error("the {0} is full")]
    Full(&'static str),
    /// The file could not be read or written.
    #[error("{operation} of the swap file at byte {offset} failed: {}", ErrorNumber(*.errno))]
    Io {
        /// `read` or `write`.
        operation: &'static str,
        /// Byte offset in the file.
        offset: u64,
        /// The error number of the system call.
        errno: i32,
    },
    /// The file that a page comes from could not be read.
    #[error("reading its file at byte {offset} failed: {}", ErrorNumber(*.errno))]
    Source {
        /// Byte offset in the file.
        offset: u64,
        /// The error number of the system call.
        errno: i32,
    },
    /// The file that a page comes from was made shorter: the page's first byte, which is beyond its end.
    #[error("its file was made shorter and ends before byte {0} now")]
    Shortened(u64),
    /// What came back is not what was written.
    #[error("a page in the {0} does not match its checksum: its contents are lost")]
    Checksum(&'static str),
}

/// How full a store is. Bytes of memory or of disk that it really occupies, not bytes of pages in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Pages in the store that are all one value.
    pub same_filled_pages: u64,
    /// Pages in the compressed pool.
    pub pool_pages: u64,
    /// Bytes of memory of the compressed pool, headers, rounding and free space in its blocks included.
    pub pool_bytes: u64,
    /// Pages in the file.
    pub file_pages: u64,
    /// Bytes of the file that are in use.
    pub file_bytes: u64,
}

/// A store of pages. All methods may be called from several threads.
pub trait Store: Send + Sync {
    /// Stores `pages` and puts the outcome of each in `slots` (same length). A page that could not be stored leaves
    /// nothing behind. Cost: one compression per page; pages for a file go out in one batch.
    fn write(&self, pages: &[&Page], scratch: &mut Scratch, slots: &mut [Result<Slot, StoreError>]);

    /// Reads a page back. The slot stays.
    fn read(&self, slot: Slot, into: &mut Page, scratch: &mut Scratch) -> Result<(), StoreError>;

    /// Gives a slot up; it must not be used again.
    fn release(&self, slot: Slot);

    /// How full the store is.
    fn usage(&self) -> Usage;

    /// In a child after a fork, while the parent stands still: makes everything that is shared with the parent the
    /// child's own. Slots stay valid.
    fn after_fork(&self) -> std::io::Result<()> {
        Ok(())
    }

    /// Moves a page one step colder (compressed harder, or from memory to the file) and returns its new slot.
    /// `None` if there is nothing colder or it did not fit. The old slot stays and must be released by the caller.
    fn demote(&self, slot: Slot, buffer: &mut Page, scratch: &mut Scratch) -> Option<Slot> {
        let _ = (slot, buffer, scratch);
        None
    }
}
