//! Where evicted pages are kept: as a value they are filled with, compressed in memory, or encrypted in a file on disk.
//!
//! What does not compress goes to the file at once; what has been compressed longest follows when the compressed pages
//! take more than their part of the budget. At a fork the file is closed for writing on both sides: nobody uses a slot
//! of it again, so parent and child go on reading their common past, each with new files of its own and a key of its
//! own for what it writes.
//!
//! Invariants: a slot belongs to one page from the write that returned it to its release; the file has no name, and
//! nobody can read it without a key that only these processes have. Cost: 24 bytes a compressed page.

use std::collections::VecDeque;
use std::io;

use refault_store::codec::Codec;
use refault_store::device::{Device, Job};
use refault_store::{CompressedPool, FileStore, FileStoreOptions, Page, Scratch, Slot, Store, StoreError, Tier};

use crate::PAGE;
use crate::sys;

/// Bits of a slot that say which file: above the place.
const FILE_SHIFT: u32 = 44;
/// Files of a process at most: those from before its forks, and the current one.
const MAX_FILES: usize = 255;
/// Pages that are moved from the pool to the file at once.
const BATCH: usize = 32;

/// Makes the files of a process.
pub trait Files: Send {
    /// A new unnamed file, as a descriptor that nobody else closes; `None`: there can be none.
    fn create(&mut self) -> Option<i32>;
    /// A descriptor from [`Files::create`] is needed no more.
    fn close(&mut self, descriptor: i32);
}

/// A file by its descriptor, with direct I/O if it was opened so.
struct Descriptor(i32);

impl Device for Descriptor {
    unsafe fn write(&self, jobs: &mut [Job]) {
        for job in jobs {
            // SAFETY: the buffer is readable (promised by the caller).
            job.result =
                unsafe { sys::call(18, [self.0 as usize, job.buffer as usize, job.len, job.offset as usize, 0, 0]) }
                    as i32;
        }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: writes into `buffer`.
        let read = unsafe {
            sys::call(17, [self.0 as usize, buffer.as_mut_ptr() as usize, buffer.len(), offset as usize, 0, 0])
        };
        if read < 0 { Err(io::Error::from_raw_os_error(-read as i32)) } else { Ok(read as usize) }
    }

    fn punch(&self, offset: u64, len: u64) {
        // SAFETY: changes the file only.
        unsafe { sys::call(285, [self.0 as usize, 3, offset as usize, len as usize, 0, 0]) };
    }

    fn after_fork(&self, _pieces: &mut dyn Iterator<Item = (u64, usize)>) -> io::Result<()> {
        Ok(())
    }

    fn describe(&self) -> String {
        "direct I/O".to_owned()
    }
}

struct File {
    store: FileStore,
    descriptor: i32,
    /// From before a fork: slots are not used again.
    frozen: bool,
    pages: u64,
}

/// See the module.
pub struct Stores {
    pool: CompressedPool,
    files: Vec<Option<File>>,
    maker: Option<Box<dyn Files>>,
    /// Bytes of contents that a file may have.
    file_limit: u64,
    same_filled: u64,
    /// Compressed pages, oldest first: where they belong, and the slot they had then.
    compressed: VecDeque<(usize, Slot)>,
    buffer: Vec<Page>,
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

impl Stores {
    /// Stores with a pool of at most `pool_limit` bytes of addresses, and files if they can be made.
    pub fn new(pool_limit: u64, maker: Option<Box<dyn Files>>, file_limit: u64) -> io::Result<Stores> {
        Ok(Stores {
            pool: CompressedPool::new(pool_limit)?,
            files: Vec::new(),
            maker,
            file_limit,
            same_filled: 0,
            compressed: VecDeque::new(),
            buffer: Vec::new(),
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

    /// Bytes of memory that the compressed pages take.
    pub fn pool_bytes(&self) -> u64 {
        self.pool.bytes()
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
            let slot = if let Some(slot) = refault_store::same_filled::detect(page) {
                self.same_filled += 1;
                slot
            } else {
                let (codec, bytes) = scratch.compress(page, Codec::Lz4);
                let put = match codec {
                    Codec::Raw => None,
                    _ => Some(self.pool.put_compressed(codec, bytes)),
                };
                let put = match put {
                    Some(put) => put,
                    None => {
                        let run = self.write_raw(&pages[written..], scratch, &mut slots[written..]);
                        if run > 0 {
                            written += run;
                            continue;
                        }
                        self.pool.put_compressed(Codec::Raw, &page.0)
                    }
                };
                match put {
                    Ok(slot) => {
                        self.compressed.push_back((addresses[written], slot));
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
        let mut run = 1;
        while run < pages.len()
            && refault_store::same_filled::detect(pages[run]).is_none()
            && scratch.compress(pages[run], Codec::Lz4).0 == Codec::Raw
        {
            run += 1;
        }
        self.write_file(&pages[..run], scratch, &mut slots[..run])
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

    /// Moves the pages that were compressed longest to the file, until the pool takes no more than `limit` bytes or a
    /// batch is done. `holds` says whether a page still has this slot; `moved` is told its new one. Returns whether
    /// anything was done.
    pub fn demote(
        &mut self,
        limit: u64,
        scratch: &mut Scratch,
        holds: impl Fn(usize, Slot) -> bool,
        mut moved: impl FnMut(usize, Slot),
    ) -> bool {
        if self.pool.bytes() <= limit || self.maker.is_none() {
            return false;
        }
        if self.buffer.is_empty() {
            self.buffer = vec![Page::ZERO; BATCH];
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut batch = [(0, Slot::from_bits(0)); BATCH];
        let mut many = 0;
        while many < BATCH {
            let Some((address, slot)) = self.compressed.pop_front() else { break };
            // A page that was stored, read back and stored again may be in the queue twice with the same slot.
            let again = batch[..many].contains(&(address, slot));
            if !again && holds(address, slot) && self.pool.read(slot, &mut buffer[many], scratch).is_ok() {
                batch[many] = (address, slot);
                many += 1;
            }
        }
        let pages: [&Page; BATCH] = std::array::from_fn(|index| &buffer[index]);
        let mut slots = [Slot::from_bits(0); BATCH];
        let done = if many > 0 { self.write_file(&pages[..many], scratch, &mut slots) } else { 0 };
        for index in 0..many {
            let (address, slot) = batch[index];
            if index < done {
                self.pool.release(slot);
                moved(address, slots[index]);
            } else {
                self.compressed.push_front((address, slot));
            }
        }
        self.buffer = buffer;
        done > 0
    }

    /// Forgets entries of the queue that mean nothing any more, once they are many.
    pub fn tidy(&mut self, holds: impl Fn(usize, Slot) -> bool) {
        if self.compressed.len() > 1024 && self.compressed.len() as u64 > 2 * self.pool.usage().pool_pages {
            self.compressed.retain(|(address, slot)| holds(*address, *slot));
        }
    }

    fn split(slot: Slot) -> (usize, Slot) {
        let file = (slot.bits() >> FILE_SHIFT & 0xff) as usize;
        (file, Slot::from_bits(slot.bits() & !(0xff << FILE_SHIFT)))
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
        self.files.iter_mut().flatten().filter(|file| file.pages > 0).for_each(|file| file.frozen = true);
    }

    /// In a forked child: the file that was not frozen is the parent's alone.
    pub fn after_fork(&mut self) {
        for number in 0..self.files.len() {
            if let Some(file) = self.files[number].take_if(|file| !file.frozen) {
                self.close(file.descriptor);
            }
        }
    }

    /// Bytes of the queue and the like.
    pub fn own_bytes(&self) -> usize {
        self.compressed.capacity() * size_of::<(usize, Slot)>() + self.buffer.len() * PAGE
    }
}
