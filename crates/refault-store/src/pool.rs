//! The compressed pool: pages kept in memory, compressed.
//!
//! Memory is cut into blocks; a block holds objects of one size class (64, 128, … 4160 bytes). So an object wastes 32
//! bytes on average, and less than one object's room is left at the end of a block. Blocks have 16 KiB in a small pool
//! and 64 in a large one: what is left at their ends is 9 and 1 % of the memory where pages compress to 40 %. But each
//! class may have most of one block free. Freeing never moves anything. A block without objects goes back to the kernel
//! at once, except a few that are kept against flutter. Blocks that are mostly empty are emptied by
//! [`CompressedPool::compact`], which moves what has an owner. What the pool reports is the memory of its blocks, not
//! the sum of its objects. An object is 16 bytes of header (checksum, length, codec, mark; owner) and the payload.
//!
//! Invariants: the bytes in blocks never exceed the limit; an object is touched only by the holder of its slot; a lock
//! (one a class, one for free blocks) is held only while links are changed, never while compressing. Nothing is
//! allocated after construction but for what a fork shares: tables are reserved for the limit and take memory only
//! where blocks are in use. Cost: O(1) per page besides the codec. Source: size-class allocators for compressed memory,
//! zsmalloc among them.
//!
//! ```
//! use refault_store::codec::Codec;
//! use refault_store::{CompressedPool, Page, Scratch};
//!
//! let pool = CompressedPool::new(1 << 20)?;
//! let mut page = Page::ZERO;
//! page.0[0] = 1;
//! let slot = pool.put(&page, Codec::Lz4, &mut Scratch::new()).expect("there is room");
//! assert!(pool.codec(slot).is_some() && pool.bytes() <= pool.limit());
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::codec::{Codec, Scratch};
use crate::mapping::Mapping;
use crate::{PAGE_SIZE, Page, Slot, Store, StoreError, Tier, Usage, same_filled};

const MIN_BLOCK: usize = 16 * 1024;
const MAX_BLOCK: usize = 64 * 1024;
/// Blocks are as large as they can be with `MIN_BLOCKS` of them.
const MIN_BLOCKS: u64 = 1024;
const STEP: usize = 64;
const HEADER: usize = 16;
/// The word of the header that says whose the object is.
const OWNER: usize = 8;
/// No owner can be told of a move.
const NO_OWNER: u64 = 0;
/// The object is free.
const FREE: u64 = u64::MAX;
/// Blocks without objects that are kept.
const MAX_EMPTY: u64 = 4;
/// The byte of the header that says whether the page is marked.
const MARK: usize = 7;
const CLASSES: usize = (PAGE_SIZE + HEADER).div_ceil(STEP);
const INDEX_BITS: u32 = 10;
const NONE: u32 = u32::MAX;
const NO_OBJECT: u16 = u16::MAX;

/// What the pool is called in messages.
pub const NAME: &str = "compressed pool";

/// One block's record: 16 bytes.
struct Block {
    class: AtomicU8,
    /// Pages of the block that a fork has shared; 0: none. See `shared`.
    shared: AtomicU8,
    /// Objects in use.
    used: AtomicU16,
    /// First object that was freed; each free object's first two bytes name the next.
    free: AtomicU16,
    /// Objects from here on were never used.
    fresh: AtomicU16,
    /// Neighbours on the class's list of blocks with room, or the next free block.
    next: AtomicU32,
    previous: AtomicU32,
}

/// Blocks of a class that have room.
struct Class {
    partial: u32,
    /// Blocks on that list without any object: at most one is kept.
    empty: u32,
    /// Blocks, and objects in use in them.
    blocks: u32,
    used: u32,
}

struct FreeBlocks {
    first: u32,
    /// Blocks from here on were never used.
    fresh: u32,
}

/// See the module.
pub struct CompressedPool {
    memory: Mapping,
    records: Mapping,
    /// Bytes of a block.
    block: usize,
    blocks: u32,
    classes: [Mutex<Class>; CLASSES],
    free: Mutex<FreeBlocks>,
    blocks_used: AtomicU64,
    empty: AtomicU64,
    pages: AtomicU64,
    same_filled: AtomicU64,
    /// See [`CompressedPool::take_unshared`].
    unshared: AtomicU64,
    /// Of shared blocks.
    given_back: Mutex<BTreeMap<u32, shared::GivenBack>>,
}

impl CompressedPool {
    /// A pool of at most `limit` bytes (rounded down to blocks of 16 KiB, at least one). Reserves addresses only.
    pub fn new(limit: u64) -> std::io::Result<CompressedPool> {
        CompressedPool::with_blocks_for(limit, 0)
    }

    /// The same with blocks for a pool that will take some `expected` bytes.
    pub fn with_blocks_for(limit: u64, expected: u64) -> std::io::Result<CompressedPool> {
        let block = ((expected / MIN_BLOCKS) as usize).clamp(MIN_BLOCK, MAX_BLOCK);
        // A power of two.
        let block = 1 << block.ilog2();
        let blocks = (limit / block as u64).clamp(1, u64::from(u32::MAX - 1)) as u32;
        Ok(CompressedPool {
            memory: Mapping::new(blocks as usize * block)?,
            records: Mapping::new(blocks as usize * size_of::<Block>())?,
            block,
            blocks,
            classes: std::array::from_fn(|_| Mutex::new(Class { partial: NONE, empty: 0, blocks: 0, used: 0 })),
            free: Mutex::new(FreeBlocks { first: NONE, fresh: 0 }),
            blocks_used: AtomicU64::new(0),
            empty: AtomicU64::new(0),
            pages: AtomicU64::new(0),
            same_filled: AtomicU64::new(0),
            unshared: AtomicU64::new(0),
            given_back: Mutex::default(),
        })
    }

    /// Bytes that the blocks may take.
    pub fn limit(&self) -> u64 {
        u64::from(self.blocks) * self.block as u64
    }

    /// The blocks may take `limit` bytes at most from now on, or as many as were ever in use. Gives back the addresses
    /// of the rest. Whether there were any.
    pub fn lower_limit(&mut self, limit: u64) -> bool {
        let fresh = self.free.get_mut().expect("invariant: nothing panics under this lock").fresh;
        let blocks = (limit / self.block as u64).clamp(u64::from(fresh.max(1)), u64::from(self.blocks)) as u32;
        // SAFETY: blocks from `fresh` on were never taken, and those from `blocks` on never will be.
        unsafe {
            self.memory.truncate(blocks as usize * self.block);
            self.records.truncate(blocks as usize * size_of::<Block>());
        }
        std::mem::replace(&mut self.blocks, blocks) > blocks
    }

    /// Bytes that the blocks take.
    pub fn bytes(&self) -> u64 {
        self.blocks_used.load(Ordering::Relaxed) * self.block as u64
    }

    /// Compresses a page with the given codec and stores it.
    pub fn put(&self, page: &Page, codec: Codec, scratch: &mut Scratch) -> Result<Slot, StoreError> {
        let (codec, bytes) = scratch.compress(page, codec);
        self.put_compressed(codec, bytes)
    }

    /// Stores a page that [`Scratch::compress`] has compressed.
    ///
    /// # Errors
    /// The pool is full.
    pub fn put_compressed(&self, codec: Codec, bytes: &[u8]) -> Result<Slot, StoreError> {
        self.put_owned(codec, bytes, NO_OWNER)
    }

    /// The same for an owner (neither 0 nor `u64::MAX`) who can be told that the page was moved.
    ///
    /// # Errors
    /// The pool is full.
    pub fn put_owned(&self, codec: Codec, bytes: &[u8], owner: u64) -> Result<Slot, StoreError> {
        let class = (HEADER + bytes.len()).div_ceil(STEP) - 1;
        let (block, index) = self.take(class).ok_or(StoreError::Full(NAME))?;
        let header = u64::from(checksum(bytes)) | (bytes.len() as u64) << 32 | (codec as u64) << 48;
        let object = self.object(block, class, index);
        // SAFETY: the object was just taken, so it belongs to this call alone; its class has room for header and
        // payload.
        unsafe {
            object.cast::<u64>().write_unaligned(header);
            object.add(OWNER).cast::<u64>().write_unaligned(owner);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), object.add(HEADER), bytes.len());
        }
        self.pages.fetch_add(1, Ordering::Relaxed);
        Ok(Slot::new(Tier::Pool, u64::from(block) << INDEX_BITS | u64::from(index)))
    }

    /// The header and payload of a slot; `None` if the header is impossible.
    fn get(&self, slot: Slot) -> Option<(u32, Codec, &[u8])> {
        let (block, class, object) = self.locate(slot);
        debug_assert!(block < self.blocks);
        // SAFETY: the holder of a slot is the only one to touch its object, and the object was written by `put`.
        let header = unsafe { object.cast::<u64>().read_unaligned() };
        let len = (header >> 32 & 0xffff) as usize;
        let codec = Codec::from_byte((header >> 48) as u8)?;
        if len + HEADER > (class + 1) * STEP {
            return None;
        }
        // SAFETY: `len` bytes after the header lie within the object (just checked); the slot's holder keeps it alive.
        let bytes = unsafe { std::slice::from_raw_parts(object.add(HEADER), len) };
        Some((header as u32, codec, bytes))
    }

    /// How a page is encoded in the pool.
    pub fn codec(&self, slot: Slot) -> Option<Codec> {
        self.get(slot).map(|(_, codec, _)| codec)
    }

    /// Bytes that a page takes in the pool, without its header.
    pub fn object_len(&self, slot: Slot) -> Option<usize> {
        self.get(slot).map(|(.., bytes)| bytes.len())
    }

    /// A page's owner, 0 for none.
    pub fn owner(&self, slot: Slot) -> u64 {
        let (.., object) = self.locate(slot);
        // SAFETY: the object belongs to the holder of the slot, and its header has this word.
        unsafe { object.add(OWNER).cast::<u64>().read_unaligned() }
    }

    /// Whether a page lies in memory that a fork shares: to give it up gives no memory back.
    pub fn lies_shared(&self, slot: Slot) -> bool {
        self.is_shared(self.locate(slot).0)
    }

    /// A page has this owner from now on, as in [`CompressedPool::put_owned`]. False: it lies in memory that a fork shares
    /// and stays as it is.
    pub fn reown(&self, slot: Slot, owner: u64) -> bool {
        let (block, _, object) = self.locate(slot);
        if self.is_shared(block) {
            return false;
        }
        // SAFETY: as in `owner`; no other thread has this memory.
        unsafe { object.add(OWNER).cast::<u64>().write_unaligned(owner) };
        true
    }

    /// Remembers that a page came to be needed again, until [`CompressedPool::take_mark`].
    pub fn mark(&self, slot: Slot) {
        let (block, _, object) = self.locate(slot);
        if !self.is_shared(block) {
            // SAFETY: the object belongs to the holder of the slot, and its header is 8 bytes.
            unsafe { object.add(MARK).write(1) };
        }
    }

    /// Whether [`CompressedPool::mark`] was called since the page was stored or this was last asked.
    pub fn take_mark(&self, slot: Slot) -> bool {
        let (block, _, object) = self.locate(slot);
        // SAFETY: as in `mark`.
        !self.is_shared(block) && unsafe { object.add(MARK).replace(0) != 0 }
    }

    /// Flips one bit of a stored page: for tests of what happens when memory or a wild write damages the pool.
    pub fn flip_bit(&self, slot: Slot, bit: usize) {
        let (_, class, object) = self.locate(slot);
        let len = (class + 1) * STEP;
        // SAFETY: the byte lies within the object, which belongs to the holder of the slot.
        unsafe { *object.add(bit / 8 % len) ^= 1 << (bit % 8) };
    }

    fn locate(&self, slot: Slot) -> (u32, usize, *mut u8) {
        let block = (slot.place() >> INDEX_BITS) as u32;
        let index = (slot.place() & ((1 << INDEX_BITS) - 1)) as u16;
        let class = usize::from(self.record(block).class.load(Ordering::Relaxed));
        (block, class, self.object(block, class, index))
    }

    /// Objects of a block of a class.
    fn objects(&self, class: usize) -> u16 {
        (self.block / ((class + 1) * STEP)) as u16
    }

    fn record(&self, block: u32) -> &Block {
        debug_assert!(block < self.blocks);
        // SAFETY: the table has `blocks` records of atomics; zeroed memory is a valid record.
        unsafe { &*self.records.base().as_ptr().cast::<Block>().add(block as usize) }
    }

    fn object(&self, block: u32, class: usize, index: u16) -> *mut u8 {
        // SAFETY: block < blocks and index < objects of the class, so the object lies inside the block.
        unsafe {
            self.memory.base().as_ptr().add(block as usize * self.block + usize::from(index) * (class + 1) * STEP)
        }
    }

    /// Takes an object of a class.
    fn take(&self, class: usize) -> Option<(u32, u16)> {
        let objects = self.objects(class);
        let mut state = self.classes[class].lock().expect("invariant: nothing panics under this lock");
        if state.partial == NONE {
            let block = self.take_block()?;
            let record = self.record(block);
            record.class.store(class as u8, Ordering::Relaxed);
            record.used.store(0, Ordering::Relaxed);
            record.free.store(NO_OBJECT, Ordering::Relaxed);
            record.fresh.store(0, Ordering::Relaxed);
            self.link(&mut state, block);
            state.empty += 1;
            state.blocks += 1;
            self.empty.fetch_add(1, Ordering::Relaxed);
        }
        let block = state.partial;
        let record = self.record(block);
        let free = record.free.load(Ordering::Relaxed);
        let index = if free == NO_OBJECT {
            let fresh = record.fresh.load(Ordering::Relaxed);
            record.fresh.store(fresh + 1, Ordering::Relaxed);
            fresh
        } else {
            // SAFETY: a free object belongs to the class's lock, and its first two bytes name the next free one.
            let next = unsafe { self.object(block, class, free).cast::<u16>().read_unaligned() };
            record.free.store(next, Ordering::Relaxed);
            free
        };
        let used = record.used.load(Ordering::Relaxed) + 1;
        record.used.store(used, Ordering::Relaxed);
        state.used += 1;
        if used == 1 {
            state.empty -= 1;
            self.empty.fetch_sub(1, Ordering::Relaxed);
        }
        if used == objects {
            self.unlink(&mut state, block);
        }
        Some((block, index))
    }

    /// Gives an object back, and its block if it was the last of it.
    fn put_back(&self, block: u32, class: usize, index: u16) {
        if self.is_shared(block) {
            return self.put_back_shared(block, index);
        }
        let objects = self.objects(class);
        let mut state = self.classes[class].lock().expect("invariant: nothing panics under this lock");
        let record = self.record(block);
        // SAFETY: the object was given up by its holder, so it belongs to the class's lock now.
        unsafe { self.free_object(record, self.object(block, class, index), index) };
        let used = record.used.load(Ordering::Relaxed);
        record.used.store(used - 1, Ordering::Relaxed);
        state.used -= 1;
        if used == objects {
            self.link(&mut state, block);
        }
        if used == 1 {
            if state.empty > 0 || self.empty.load(Ordering::Relaxed) >= MAX_EMPTY {
                self.unlink(&mut state, block);
                state.blocks -= 1;
                drop(state);
                self.put_back_block(block);
                return;
            }
            state.empty += 1;
            self.empty.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Puts an object first on its block's list of free ones.
    ///
    /// # Safety
    /// No caller has its slot, and no other thread changes the list.
    unsafe fn free_object(&self, record: &Block, object: *mut u8, index: u16) {
        // SAFETY: promised by the caller; an object has room for both words.
        unsafe {
            object.cast::<u16>().write_unaligned(record.free.load(Ordering::Relaxed));
            object.add(OWNER).cast::<u64>().write_unaligned(FREE);
        }
        record.free.store(index, Ordering::Relaxed);
    }

    /// Empties one block whose objects fit into what is free in others of their class, and gives its memory back. Does
    /// so if more than an eighth of the pool's memory is free in blocks. `moved` is told the owner of each object and
    /// its old and new slots, and answers whether it was that owner's. Returns whether a block was emptied. No other
    /// thread may use the pool meanwhile. Cost: a copy of half a block, and a walk through the blocks of the class that
    /// have room.
    pub fn compact(&self, mut moved: impl FnMut(u64, Slot, Slot) -> bool) -> bool {
        let Some(class) = self.loosest() else { return false };
        let (step, objects) = ((class + 1) * STEP, self.objects(class));
        let block = {
            let mut state = self.classes[class].lock().expect("invariant: nothing panics under this lock");
            let mut sparsest = (NONE, u16::MAX);
            let mut at = state.partial;
            while at != NONE {
                let used = self.record(at).used.load(Ordering::Relaxed);
                if used < sparsest.1 && used > 0 && self.is_movable(at, class) {
                    sparsest = (at, used);
                }
                at = self.record(at).next.load(Ordering::Relaxed);
            }
            let (block, used) = sparsest;
            let room = state.blocks * u32::from(objects) - state.used;
            if block == NONE || room < u32::from(objects) {
                return false;
            }
            debug_assert!(room - u32::from(objects - used) >= u32::from(used));
            self.unlink(&mut state, block);
            state.blocks -= 1;
            state.used -= u32::from(used);
            block
        };
        let mut stay = 0;
        for index in 0..self.record(block).fresh.load(Ordering::Relaxed) {
            let from = self.object(block, class, index);
            // SAFETY: an object that was used once has a header, and no thread changes it meanwhile.
            let owner = unsafe { from.add(OWNER).cast::<u64>().read_unaligned() };
            if owner == FREE {
                continue;
            }
            let (to, place) = self.take(class).expect("invariant: there is room in other blocks");
            // SAFETY: both are objects of this class; the new one was just taken.
            unsafe { std::ptr::copy_nonoverlapping(from, self.object(to, class, place), step) };
            let slot = |block, index| Slot::new(Tier::Pool, u64::from(block) << INDEX_BITS | u64::from(index));
            if !moved(owner, slot(block, index), slot(to, place)) {
                // Its header is damaged: it stays, for the caller that has its slot to find out.
                self.put_back(to, class, place);
                stay += 1;
                continue;
            }
            let record = self.record(block);
            // SAFETY: no caller has this object's slot any more.
            unsafe { self.free_object(record, from, index) };
        }
        if stay > 0 {
            let mut state = self.classes[class].lock().expect("invariant: nothing panics under this lock");
            self.record(block).used.store(stay, Ordering::Relaxed);
            state.blocks += 1;
            state.used += u32::from(stay);
            self.link(&mut state, block);
            return false;
        }
        self.put_back_block(block);
        true
    }

    /// The class with the most free memory in its blocks, if over an eighth of the pool is free in all together.
    fn loosest(&self) -> Option<usize> {
        let free = self.classes.iter().enumerate().map(|(class, state)| {
            let state = state.lock().expect("invariant: nothing panics under this lock");
            let objects = u32::from(self.objects(class));
            let free = state.blocks * objects - state.used;
            (free as usize * (class + 1) * STEP, class, free >= objects + u32::from(state.empty > 0) * objects)
        });
        let (mut total, mut most) = (0, (0, None));
        for (bytes, class, has_block) in free {
            total += bytes;
            if has_block && bytes > most.0 {
                most = (bytes, Some(class));
            }
        }
        most.1.filter(|_| total as u64 > self.bytes() / 8)
    }

    /// Whether all objects of a block have owners.
    fn is_movable(&self, block: u32, class: usize) -> bool {
        (0..self.record(block).fresh.load(Ordering::Relaxed)).all(|index| {
            // SAFETY: an object that was used once has a header.
            unsafe { self.object(block, class, index).add(OWNER).cast::<u64>().read_unaligned() != NO_OWNER }
        })
    }

    fn link(&self, state: &mut Class, block: u32) {
        let record = self.record(block);
        record.previous.store(NONE, Ordering::Relaxed);
        record.next.store(state.partial, Ordering::Relaxed);
        if state.partial != NONE {
            self.record(state.partial).previous.store(block, Ordering::Relaxed);
        }
        state.partial = block;
    }

    fn unlink(&self, state: &mut Class, block: u32) {
        let record = self.record(block);
        let (previous, next) = (record.previous.load(Ordering::Relaxed), record.next.load(Ordering::Relaxed));
        if previous == NONE {
            state.partial = next;
        } else {
            self.record(previous).next.store(next, Ordering::Relaxed);
        }
        if next != NONE {
            self.record(next).previous.store(previous, Ordering::Relaxed);
        }
    }

    fn take_block(&self) -> Option<u32> {
        let mut free = self.free.lock().expect("invariant: nothing panics under this lock");
        let block = if free.first != NONE {
            let block = free.first;
            free.first = self.record(block).next.load(Ordering::Relaxed);
            block
        } else if free.fresh < self.blocks {
            free.fresh += 1;
            free.fresh - 1
        } else {
            return None;
        };
        self.blocks_used.fetch_add(1, Ordering::Relaxed);
        Some(block)
    }

    fn put_back_block(&self, block: u32) {
        // SAFETY: the block was taken off its class's list without an object in it, so nothing in it is in use.
        unsafe { self.memory.discard(block as usize * self.block, self.block) };
        let record = self.record(block);
        record.used.store(0, Ordering::Relaxed);
        let mut free = self.free.lock().expect("invariant: nothing panics under this lock");
        record.next.store(free.first, Ordering::Relaxed);
        free.first = block;
        self.blocks_used.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store for CompressedPool {
    fn write(&self, pages: &[&Page], scratch: &mut Scratch, slots: &mut [Result<Slot, StoreError>]) {
        for (page, slot) in pages.iter().zip(slots) {
            *slot = match same_filled::detect(page) {
                Some(found) => {
                    self.same_filled.fetch_add(1, Ordering::Relaxed);
                    Ok(found)
                }
                None => self.put(page, Codec::Lz4, scratch),
            };
        }
    }

    fn read(&self, slot: Slot, into: &mut Page, scratch: &mut Scratch) -> Result<(), StoreError> {
        if slot.tier() == Tier::SameFilled {
            same_filled::fill(slot, into);
            return Ok(());
        }
        let (sum, codec, bytes) = self.get(slot).ok_or(StoreError::Checksum(NAME))?;
        if checksum(bytes) != sum || !scratch.decompress(codec, bytes, into) {
            return Err(StoreError::Checksum(NAME));
        }
        Ok(())
    }

    fn release(&self, slot: Slot) {
        if slot.tier() == Tier::SameFilled {
            self.same_filled.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let (block, class, _) = self.locate(slot);
        self.put_back(block, class, (slot.place() & ((1 << INDEX_BITS) - 1)) as u16);
        self.pages.fetch_sub(1, Ordering::Relaxed);
    }

    fn usage(&self) -> Usage {
        Usage {
            same_filled_pages: self.same_filled.load(Ordering::Relaxed),
            pool_pages: self.pages.load(Ordering::Relaxed),
            pool_bytes: self.bytes(),
            ..Usage::default()
        }
    }

    /// Compresses a page again with zstd, once; `None` if that saves nothing.
    fn demote(&self, slot: Slot, buffer: &mut Page, scratch: &mut Scratch) -> Option<Slot> {
        if slot.tier() != Tier::Pool {
            return None;
        }
        let (_, codec, bytes) = self.get(slot)?;
        let old_class = (HEADER + bytes.len()).div_ceil(STEP);
        if !matches!(codec, Codec::Lz4 | Codec::Words | Codec::Columns) || self.read(slot, buffer, scratch).is_err() {
            return None;
        }
        let (_, bytes) = scratch.compress(buffer, Codec::Zstd);
        if (HEADER + bytes.len()).div_ceil(STEP) >= old_class {
            return None;
        }
        self.put(buffer, Codec::Zstd, scratch).ok()
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(bytes) as u32
}

mod shared;
#[cfg(test)]
mod tests;
