//! Where evicted pages are kept: as a value they are filled with, compressed in memory, or encrypted in a file on disk.
//!
//! What does not compress goes to the file at once. Under pressure pages are compressed with zstd instead of a fast
//! codec. What was compressed longest is compressed again so, and goes to the file when all that is not enough. At a
//! fork the file is closed for writing on both sides: neither uses a slot of it again. So parent and child go on
//! reading their common past, each with new files and a key of its own for what it writes.
//!
//! Invariants: a slot belongs to one page from the write that returned it to its release; the file has no name, and
//! only these processes have the key without which it cannot be read. Cost: 16 bytes per compressed page.
//!
//! ```
//! use refault_paging::stores::Stores;
//! use refault_store::{Page, Scratch, Slot};
//!
//! let mut stores = Stores::new(1 << 30, 64 << 20, None, 0)?;
//! let (mut scratch, mut slots) = (Scratch::new(), [Slot::from_bits(0); 2]);
//! let (zeros, mut text) = (Page::ZERO, Page::ZERO);
//! text.0[..8].copy_from_slice(b"contents");
//! assert_eq!(stores.write(&[&zeros, &text], &[0x1000, 0x2000], &mut scratch, &mut slots), 2);
//!
//! let mut back = Page::ZERO;
//! stores.read(slots[1], &mut back, &mut scratch)?;
//! assert_eq!(back.0, text.0);
//! assert_eq!((stores.stored().same_filled, stores.stored().compressed), (1, 1));
//! stores.release(slots[0]);
//! stores.release(slots[1]);
//! assert_eq!(stores.compressed(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cold;
pub(crate) mod copies;
mod descriptor;
mod fast_codec;

use std::collections::VecDeque;
use std::io;

use refault_store::codec::Codec;
use refault_store::{CompressedPool, FileStore, FileStoreOptions, Page, Scratch, Slot, Store, StoreError, Tier};

use crate::PAGE;

use cold::Owner;
use descriptor::Descriptor;
use fast_codec::FastCodec;

/// Bits of a slot that say which file: above the place.
const FILE_SHIFT: u32 = 44;
const FILE_MASK: u64 = u8::MAX as u64;
/// Files of a process at most: those from before its forks, and the current one.
const MAX_FILES: usize = FILE_MASK as usize;
/// Pages that are moved from the pool to the file at once.
const BATCH: usize = 32;

/// Pages that are looked at for one batch at most.
const MAX_LOOKED: usize = 8 * BATCH;
/// A page of which zstd leaves more than this goes to the file.
const MAX_DENSE: usize = PAGE * 5 / 8;

/// Entries of the queues that are not worth looking through.
const MIN_QUEUED: usize = 1024;

/// Makes the files of a process.
pub trait Files: Send {
    /// A new unnamed file, as a descriptor that only [`Files::close`] closes; `None`: there can be none.
    fn create(&mut self) -> Option<i32>;
    /// A descriptor from [`Files::create`] is needed no more.
    fn close(&mut self, descriptor: i32);
}

struct File {
    store: FileStore,
    descriptor: i32,
    /// From before a fork: slots are not used again.
    frozen: bool,
    pages: u64,
}

/// Whose a slot of the compressed pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It is all there is of a page.
    Page,
    /// Its page is resident too.
    Copy,
    /// It was released, or is another page's now.
    Nobody,
}

/// Who knows whose a slot is, and is told when it changes.
pub trait Holders {
    /// Whose this slot is, if the page at `address` had it once.
    fn holder(&self, address: usize, slot: Slot) -> Holder;
    /// The page at `address`, which held its slot so, has another now, or none beside its memory.
    fn moved(&mut self, address: usize, held: Holder, slot: Option<Slot>);
}

/// See the module.
pub struct Stores {
    pool: CompressedPool,
    files: Vec<Option<File>>,
    maker: Option<Box<dyn Files>>,
    /// Bytes of contents that a file may have.
    file_limit: u64,
    same_filled: u64,
    /// Compressed pages, oldest first, those that zstd is still to try and the others: whose they are, and the slot
    /// they had then.
    loose: VecDeque<(Owner, Slot)>,
    dense: VecDeque<(Owner, Slot)>,
    buffer: Vec<Page>,
    /// What the pool has moved to empty a block.
    moved: Vec<(Owner, Slot)>,
    fast: FastCodec,
    /// Bytes of compressed pages from which on they are compressed harder.
    dense_from: u64,
    /// Entries of the queues beyond which they are looked through.
    tidy_from: usize,
    /// Pages that went into the pool, how many that were when cold ones are looked for next, and where in the queues.
    entered: u64,
    look_at: u64,
    looked: [usize; 2],
}

/// What is stored where.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stored {
    /// Pages that are all one value.
    pub same_filled: u64,
    /// Pages in the pool, and the memory it takes.
    pub compressed: u64,
    /// Bytes of memory of the pool.
    pub pool_bytes: u64,
    /// Pages in files.
    pub in_files: u64,
}

/// A page compressed, or [`Codec::Raw`] if what it would leave free is too little. Such a page takes memory for longer
/// than it is worth. Reading it back from a file is as fast as decompressing it hard.
fn squeeze<'a>(page: &'a Page, codec: Codec, scratch: &'a mut Scratch) -> (Codec, &'a [u8]) {
    match scratch.compress(page, codec) {
        (Codec::Zstd, bytes) if bytes.len() > MAX_DENSE => (Codec::Raw, &page.0),
        other => other,
    }
}

/// Whose a slot is, by an entry of a queue. An entry from before the page came to be needed again, or was moved, has no
/// holder: the page has a later one.
fn whose(pool: &CompressedPool, holders: &impl Holders, owner: Owner, slot: Slot) -> Holder {
    match holders.holder(owner.address(), slot) {
        holder if holder != Holder::Nobody && pool.owner(slot) == owner.word() => holder,
        _ => Holder::Nobody,
    }
}

impl Stores {
    /// Stores with files, if they can be made, and a pool of at most `pool_limit` bytes of addresses. The pool will
    /// take some part of `memory` bytes.
    pub fn new(pool_limit: u64, memory: u64, maker: Option<Box<dyn Files>>, file_limit: u64) -> io::Result<Stores> {
        Ok(Stores {
            pool: CompressedPool::with_blocks_for(pool_limit, memory)?,
            files: Vec::new(),
            maker,
            file_limit,
            same_filled: 0,
            loose: VecDeque::new(),
            dense: VecDeque::new(),
            buffer: Vec::new(),
            moved: Vec::new(),
            fast: FastCodec::default(),
            dense_from: u64::MAX,
            tidy_from: MIN_QUEUED,
            entered: 0,
            look_at: 0,
            looked: [0; 2],
        })
    }

    /// What is stored where.
    pub fn stored(&self) -> Stored {
        let usage = self.pool.usage();
        Stored {
            same_filled: self.same_filled,
            compressed: usage.pool_pages,
            pool_bytes: usage.pool_bytes,
            in_files: self.files.iter().flatten().map(|file| file.pages).sum(),
        }
    }

    /// The pool may have `limit` bytes of addresses from now on, or those that it has used. Whether that is less.
    pub fn lower_pool_limit(&mut self, limit: u64) -> bool {
        self.pool.lower_limit(limit)
    }

    /// Pages in the pool.
    pub fn compressed(&self) -> u64 {
        self.pool.usage().pool_pages
    }

    /// A fork is about to share the memory of the compressed pages.
    pub fn share(&self) {
        self.pool.share();
    }

    /// No other process has it any more.
    pub fn unshare(&self) {
        self.pool.unshare();
    }

    /// Pages of that memory that are not shared any more, since this was last asked.
    pub fn take_unshared(&self) -> u64 {
        self.pool.take_unshared()
    }

    /// Bytes of memory that the compressed pages take.
    pub fn pool_bytes(&self) -> u64 {
        self.pool.bytes()
    }

    /// From `bytes` bytes of compressed pages on, pages are compressed with zstd instead of a fast codec. A page that
    /// zstd keeps in memory costs 10 µs more to bring back, one that is in the file 100.
    pub fn compress_hard_from(&mut self, bytes: u64) {
        self.dense_from = bytes;
    }

    /// How a page is compressed now.
    fn codec(&mut self, page: &Page, scratch: &mut Scratch) -> Codec {
        if self.pool.bytes() < self.dense_from { self.fast.choose(page, scratch) } else { Codec::Zstd }
    }

    /// Where a page waits that is compressed so: for zstd, or for the file.
    fn queue_of(&mut self, codec: Option<Codec>) -> &mut VecDeque<(Owner, Slot)> {
        match codec {
            Some(Codec::Lz4 | Codec::Words | Codec::Columns) => &mut self.loose,
            _ => &mut self.dense,
        }
    }

    /// Opens the file that will be written to, if there is to be one.
    pub fn open_file(&mut self) {
        self.current();
    }

    /// The file that is written now: its number.
    fn current(&mut self) -> Option<usize> {
        if let Some(at) = self.files.iter().position(|file| file.as_ref().is_some_and(|file| !file.frozen)) {
            return Some(at);
        }
        let free = self.files.iter().position(Option::is_none).unwrap_or(self.files.len());
        if free >= MAX_FILES {
            return None;
        }
        let descriptor = self.maker.as_mut()?.create()?;
        let options = FileStoreOptions { limit: self.file_limit, encrypt: true, engine: None };
        let Ok(store) = FileStore::on(Box::new(Descriptor(descriptor)), &options) else {
            self.maker = None;
            return None;
        };
        let file = File { store, descriptor, frozen: false, pages: 0 };
        if free == self.files.len() {
            self.files.push(Some(file));
        } else {
            self.files[free] = Some(file);
        }
        Some(free)
    }

    /// Stores pages, which belong at `addresses`. Returns how many, from the front, have a slot now.
    pub fn write(&mut self, pages: &[&Page], addresses: &[usize], scratch: &mut Scratch, slots: &mut [Slot]) -> usize {
        let mut written = 0;
        while written < pages.len() {
            let page = pages[written];
            let owner = Owner::new(addresses[written], self.entered);
            let slot = if let Some(slot) = refault_store::same_filled::detect(page) {
                self.same_filled += 1;
                slot
            } else {
                let wanted = self.codec(page, scratch);
                let put = match squeeze(page, wanted, scratch) {
                    (Codec::Raw, _) => None,
                    (codec, bytes) => Some(self.pool.put_owned(codec, bytes, owner.word())),
                };
                let put = match put {
                    Some(put) => put,
                    None => {
                        let run = self.write_raw(&pages[written..], scratch, &mut slots[written..]);
                        if run > 0 {
                            written += run;
                            continue;
                        }
                        self.pool.put_owned(Codec::Raw, &page.0, owner.word())
                    }
                };
                match put {
                    Ok(slot) => {
                        self.queue_of(Some(wanted)).push_back((owner, slot));
                        self.entered += 1;
                        slot
                    }
                    Err(_)
                        if self.write_file(&pages[written..=written], scratch, &mut slots[written..=written]) == 1 =>
                    {
                        slots[written]
                    }
                    Err(_) => return written,
                }
            };
            slots[written] = slot;
            written += 1;
        }
        written
    }

    /// Writes the leading pages that do not compress to the file in one go. Returns how many.
    fn write_raw(&mut self, pages: &[&Page], scratch: &mut Scratch, slots: &mut [Slot]) -> usize {
        let (mut run, codec) = (1, self.codec(pages[0], scratch));
        while run < pages.len()
            && refault_store::same_filled::detect(pages[run]).is_none()
            && squeeze(pages[run], codec, scratch).0 == Codec::Raw
        {
            run += 1;
        }
        self.write_file(&pages[..run], scratch, &mut slots[..run])
    }

    /// Stores pages where they take no memory. Returns how many, from the front: none if there is no file.
    pub fn write_beside_memory(&mut self, pages: &[&Page], scratch: &mut Scratch, slots: &mut [Slot]) -> usize {
        let mut written = 0;
        while written < pages.len() {
            if let Some(slot) = refault_store::same_filled::detect(pages[written]) {
                self.same_filled += 1;
                slots[written] = slot;
                written += 1;
                continue;
            }
            let rest = &pages[written..];
            let run = rest.iter().take_while(|page| refault_store::same_filled::detect(page).is_none()).count();
            let done = self.write_file(&rest[..run], scratch, &mut slots[written..written + run]);
            written += done;
            if done < run {
                break;
            }
        }
        written
    }

    fn write_file(&mut self, pages: &[&Page], scratch: &mut Scratch, slots: &mut [Slot]) -> usize {
        let Some(number) = self.current() else { return 0 };
        let file = self.files[number].as_mut().expect("invariant: the current file is there");
        let mut outcome = [Err(StoreError::Full("")); BATCH];
        let many = pages.len().min(BATCH);
        file.store.write(&pages[..many], scratch, &mut outcome[..many]);
        let done = outcome[..many].iter().take_while(|slot| slot.is_ok()).count();
        for (index, slot) in outcome[..many].iter().enumerate() {
            let Ok(slot) = slot else { continue };
            if index < done {
                slots[index] = Slot::from_bits(slot.bits() | (number as u64) << FILE_SHIFT);
                file.pages += 1;
            } else {
                file.store.release(*slot);
            }
        }
        done
    }

    /// One step towards less memory for what was compressed longest. A page that no thread asks for goes to the file.
    /// Beyond `limits.0` bytes pages are compressed harder, beyond `limits.1` they go to the file. Pages that came to
    /// be needed meanwhile have another turn. Returns whether anything was done.
    pub fn demote(&mut self, limits: (u64, u64), scratch: &mut Scratch, holders: &mut impl Holders) -> bool {
        if self.move_cold(scratch, holders) {
            return true;
        }
        if self.pool.bytes() > limits.0 && (self.compact(holders) || self.compress_harder(scratch, holders)) {
            return true;
        }
        self.pool.bytes() > limits.1 && self.maker.is_some() && self.move_to_file(scratch, holders)
    }

    /// Gives the memory of one block back that is mostly empty. Returns whether there was one.
    fn compact(&mut self, holders: &mut impl Holders) -> bool {
        let mut all = std::mem::take(&mut self.moved);
        let gained = self.pool.compact(|word, from, to| {
            let owner = Owner::from_word(word);
            let holder = holders.holder(owner.address(), from);
            if holder == Holder::Nobody {
                return false;
            }
            holders.moved(owner.address(), holder, Some(to));
            all.push((owner, to));
            true
        });
        // What lies in a block that has emptied is old as a rule.
        for entry in all.drain(..) {
            let entered = self.entered;
            let queue = self.queue_of(self.pool.codec(entry.1));
            let age = |(owner, _): &(Owner, Slot)| owner.age(entered);
            if queue.front().is_none_or(|front| age(front) <= age(&entry)) {
                queue.push_front(entry);
            } else {
                queue.push_back(entry);
            }
        }
        self.moved = all;
        gained
    }

    fn compress_harder(&mut self, scratch: &mut Scratch, holders: &mut impl Holders) -> bool {
        let mut buffer = self.take_buffer();
        let mut done = 0;
        while done < BATCH
            && let Some((owner, slot)) = self.loose.pop_front()
        {
            let address = owner.address();
            match whose(&self.pool, holders, owner, slot) {
                Holder::Nobody => continue,
                Holder::Copy => {
                    holders.moved(address, Holder::Copy, None);
                    self.pool.release(slot);
                }
                // What it is compressed to now would stay beside what it would become.
                Holder::Page if self.pool.lies_shared(slot) => self.dense.push_back((owner, slot)),
                Holder::Page if self.pool.read(slot, &mut buffer[0], scratch).is_ok() => {
                    let len = self.pool.object_len(slot).unwrap_or(usize::MAX);
                    let denser = match squeeze(&buffer[0], Codec::Zstd, scratch) {
                        (Codec::Zstd, bytes) if bytes.len() < len => {
                            self.pool.put_owned(Codec::Zstd, bytes, owner.word()).ok()
                        }
                        _ => None,
                    };
                    if let Some(denser) = denser {
                        holders.moved(address, Holder::Page, Some(denser));
                        self.pool.release(slot);
                    }
                    self.dense.push_back((owner, denser.unwrap_or(slot)));
                }
                // The fault that asks for it finds out.
                Holder::Page => {}
            }
            done += 1;
        }
        self.buffer = buffer;
        done > 0
    }

    fn move_to_file(&mut self, scratch: &mut Scratch, holders: &mut impl Holders) -> bool {
        let mut buffer = self.take_buffer();
        let mut batch = [(Owner::new(0, 0), Slot::from_bits(0)); BATCH];
        let (mut many, mut looked, mut dropped) = (0, 0, 0);
        while many < BATCH
            && looked < MAX_LOOKED
            && let Some((owner, slot)) = self.dense.pop_front()
        {
            let address = owner.address();
            looked += 1;
            // A page that was stored, read back and stored again may be in the queue twice with the same slot.
            let again = batch[..many].iter().any(|(_, other)| *other == slot);
            match whose(&self.pool, holders, owner, slot) {
                Holder::Copy => {
                    holders.moved(address, Holder::Copy, None);
                    self.pool.release(slot);
                    dropped += 1;
                }
                Holder::Page if self.pool.take_mark(slot) => self.dense.push_back((owner, slot)),
                Holder::Page if !again && self.pool.read(slot, &mut buffer[many], scratch).is_ok() => {
                    batch[many] = (owner, slot);
                    many += 1;
                }
                _ => {}
            }
        }
        let pages: [&Page; BATCH] = std::array::from_fn(|index| &buffer[index]);
        let mut slots = [Slot::from_bits(0); BATCH];
        let done = if many > 0 { self.write_file(&pages[..many], scratch, &mut slots) } else { 0 };
        for index in 0..many {
            let (owner, slot) = batch[index];
            if index < done {
                holders.moved(owner.address(), Holder::Page, Some(slots[index]));
                self.pool.release(slot);
            } else {
                self.dense.push_front((owner, slot));
            }
        }
        self.buffer = buffer;
        done + dropped > 0 || many == 0 && looked > 0
    }

    fn take_buffer(&mut self) -> Vec<Page> {
        if self.buffer.is_empty() {
            self.buffer = vec![Page::ZERO; BATCH];
        }
        std::mem::take(&mut self.buffer)
    }

    /// A slot that stayed a page's while it was resident is all there is of it again.
    pub fn used_again(&mut self, address: usize, slot: Slot) {
        if slot.tier() != Tier::Pool {
            return;
        }
        self.pool.mark(slot);
        let owner = Owner::new(address, self.entered);
        if self.pool.reown(slot, owner.word()) {
            self.queue_of(self.pool.codec(slot)).push_back((owner, slot));
        }
    }

    /// The page of a slot is another from now on.
    pub fn relocate(&mut self, slot: Slot, address: usize) {
        if slot.tier() != Tier::Pool {
            return;
        }
        let owner = Owner::from_word(self.pool.owner(slot)).at(address);
        if self.pool.reown(slot, owner.word()) {
            self.queue_of(self.pool.codec(slot)).push_back((owner, slot));
        }
    }

    /// Forgets entries of the queues that mean nothing any more, once they are many. Cost: O(1) per entry that was
    /// queued since the last time.
    pub fn tidy(&mut self, holders: &impl Holders) {
        let queued = self.loose.len() + self.dense.len();
        if queued > self.tidy_from && queued as u64 > self.pool.usage().pool_pages * 3 / 2 {
            for queue in [&mut self.loose, &mut self.dense] {
                queue.retain(|(owner, slot)| whose(&self.pool, holders, *owner, *slot) != Holder::Nobody);
            }
            // Those that are left may mean something for long: a forked child has its parent's.
            self.tidy_from = (2 * (self.loose.len() + self.dense.len())).max(MIN_QUEUED);
        }
    }

    fn split(slot: Slot) -> (usize, Slot) {
        let file = (slot.bits() >> FILE_SHIFT & FILE_MASK) as usize;
        (file, Slot::from_bits(slot.bits() & !(FILE_MASK << FILE_SHIFT)))
    }

    /// Reads a page back.
    ///
    /// # Errors
    /// The file cannot be read now, or what is read is not what was written.
    pub fn read(&self, slot: Slot, into: &mut Page, scratch: &mut Scratch) -> Result<(), StoreError> {
        match slot.tier() {
            Tier::File => {
                let (number, slot) = Stores::split(slot);
                let file = self.files[number].as_ref().expect("invariant: a file with slots in use is there");
                file.store.read(slot, into, scratch)
            }
            _ => self.pool.read(slot, into, scratch),
        }
    }

    /// Reads pages back whose slots are neighbours in one file: all that the first of `slots` has there. Returns how
    /// many, 0 if the first is not in a file.
    ///
    /// # Errors
    /// As [`Stores::read`], for the first page.
    pub fn read_run(&self, slots: &[Slot], into: &mut [Page]) -> Result<usize, StoreError> {
        let Some(first) = slots.first().filter(|slot| slot.tier() == Tier::File) else { return Ok(0) };
        let run = slots.iter().zip(0..).take_while(|(slot, index)| slot.bits() == first.bits() + index).count();
        let (number, first) = Stores::split(*first);
        let file = self.files[number].as_ref().expect("invariant: a file with slots in use is there");
        file.store.read_run(first, &mut into[..run])
    }

    /// Gives a slot up.
    pub fn release(&mut self, slot: Slot) {
        match slot.tier() {
            Tier::SameFilled => self.same_filled -= 1,
            Tier::Pool => self.pool.release(slot),
            Tier::File => {
                let (number, slot) = Stores::split(slot);
                let file = self.files[number].as_mut().expect("invariant: a file with slots in use is there");
                file.pages -= 1;
                if !file.frozen {
                    file.store.release(slot);
                } else if file.pages == 0 {
                    let descriptor = file.descriptor;
                    self.files[number] = None;
                    self.close(descriptor);
                }
            }
        }
    }

    fn close(&mut self, descriptor: i32) {
        if let Some(maker) = &mut self.maker {
            maker.close(descriptor);
        }
    }

    /// Right before a fork: from now on nothing is written to the files there are.
    pub fn freeze(&mut self) {
        for file in self.files.iter_mut().flatten().filter(|file| file.pages > 0) {
            file.frozen = true;
            file.store.finish_writing();
        }
    }

    /// In a forked child: the file that was not frozen is the parent's alone.
    pub fn after_fork(&mut self) {
        for number in 0..self.files.len() {
            if let Some(file) = self.files[number].take_if(|file| !file.frozen) {
                self.close(file.descriptor);
            }
        }
    }

    /// Bytes of memory beside the compressed pages and the heap: what the files' seals take.
    pub fn seal_bytes(&self) -> u64 {
        self.files.iter().flatten().map(|file| file.store.seal_bytes()).sum()
    }
}
