//! Pages in a file: fixed slots of one page, written in batches, freed and reused.
//!
//! A batch takes consecutive slots where it can, so that the device sees few long writes. The checksum of each page
//! (or, with encryption, its authentication tag) is kept in memory. So a read finds out a write that was lost, done by
//! half or put in the wrong place: old data never passes for new.
//!
//! Encryption: AES-256-GCM with a key that is drawn at start, kept out of core dumps and swap, and wiped on drop; the
//! nonce is a counter that never repeats under one key; the slot number is authenticated too.
//!
//! Invariants: a slot that failed to be written is never used again; the last [`RESERVE`] slots are not given out, so
//! the store is called full before the disk is; freed slots are punched out of the file once [`PUNCH_RUN`] neighbours
//! are free. Memory: one bit and 32 bytes per slot in use. Cost: one write per run of slots, one read per page; no lock
//! during a read.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aes_gcm::aead::{AeadInPlace, KeyInit};
use aes_gcm::{Aes256Gcm, Nonce, Tag};
use zeroize::Zeroizing;

use crate::device::{Device, FileDevice, IoEngine, Job};
use crate::mapping::Mapping;
use crate::{PAGE_SIZE, Page, Scratch, Slot, Store, StoreError, Tier, Usage};

/// Slots that are kept back: the store is full before its last slot is used.
pub const RESERVE: u64 = 16;

/// Free neighbours that are worth a hole: 64 KiB.
pub const PUNCH_RUN: u64 = 16;

/// The file is used from its start again once it is this many times larger than what is in it: the larger, the longer
/// the runs of free slots that are found there.
const SPREAD: u64 = 3;
/// Words of slots (256 KiB each) below which the file just grows: 16 MiB.
const MIN_WORDS: usize = 64;

/// What the file is called in messages.
pub const NAME: &str = "swap file";

/// Pages a batch of writes takes at once.
const BATCH: usize = 64;

/// How a file store is made.
#[derive(Clone, Debug)]
pub struct FileStoreOptions {
    /// Bytes of contents at most.
    pub limit: u64,
    /// Encrypt with a key that only this process has.
    pub encrypt: bool,
    /// Force an I/O engine; `None` chooses.
    pub engine: Option<IoEngine>,
}

/// What must be known of a slot to trust its contents.
#[derive(Clone, Copy)]
struct Seal {
    /// Checksum in the first 8 bytes, or authentication tag.
    tag: [u8; 16],
    /// Nonce counter, unique for each write of a process.
    counter: u64,
    /// The process: a child continues under its parent's key, but not with its parent's nonces.
    epoch: u32,
}

struct Slots {
    /// One bit per slot: in use or never to be used again.
    taken: Vec<u64>,
    free: u64,
    /// Where the search starts.
    next: u64,
    /// Words of `taken` from here on were never used.
    fresh: usize,
}

struct Staging {
    pages: Vec<Page>,
    numbers: Vec<u64>,
}

/// See the module.
pub struct FileStore {
    device: Box<dyn Device>,
    slots: Mutex<Slots>,
    staging: Mutex<Staging>,
    seals: Mapping,
    slot_count: u64,
    cipher: Option<Aes256Gcm>,
    writes: AtomicU64,
    epoch: AtomicU32,
    pages: AtomicU64,
}

impl FileStore {
    /// A store in an unlinked file in `directory`.
    pub fn create(directory: &Path, options: &FileStoreOptions) -> io::Result<FileStore> {
        FileStore::on(Box::new(FileDevice::create(directory, options.engine)?), options)
    }

    /// A store on any device.
    pub fn on(device: Box<dyn Device>, options: &FileStoreOptions) -> io::Result<FileStore> {
        let slot_count = (options.limit / PAGE_SIZE as u64).max(1) + RESERVE;
        let words = slot_count.div_ceil(64) as usize;
        let mut taken = vec![0; words];
        if !slot_count.is_multiple_of(64) {
            taken[words - 1] = !0 << (slot_count % 64);
        }
        let cipher = if options.encrypt {
            let mut key = Zeroizing::new([0u8; 32]);
            rustix::rand::getrandom(&mut key[..], rustix::rand::GetRandomFlags::empty())?;
            Some(Aes256Gcm::new_from_slice(&key[..]).expect("invariant: the key has 32 bytes"))
        } else {
            None
        };
        let seals = Mapping::new(slot_count as usize * size_of::<Seal>())?;
        if cipher.is_some() {
            seals.keep_secret();
        }
        Ok(FileStore {
            device,
            slots: Mutex::new(Slots { taken, free: slot_count, next: 0, fresh: 0 }),
            staging: Mutex::new(Staging { pages: Vec::new(), numbers: Vec::new() }),
            seals,
            slot_count,
            cipher,
            writes: AtomicU64::new(0),
            epoch: AtomicU32::new(0),
            pages: AtomicU64::new(0),
        })
    }

    /// One line for people: what does the I/O, and whether it is encrypted.
    pub fn describe(&self) -> String {
        let sealed = if self.cipher.is_some() { "AES-256-GCM" } else { "checksums" };
        format!("{}, {sealed}", self.device.describe())
    }

    /// Nothing is written any more: gives back what only writes need.
    pub fn finish_writing(&self) {
        let mut staging = self.staging.lock().expect("invariant: nothing panics under this lock");
        (staging.pages, staging.numbers) = (Vec::new(), Vec::new());
    }

    /// Bytes of memory that the seals take.
    pub fn seal_bytes(&self) -> u64 {
        let slots = self.slots.lock().expect("invariant: nothing panics under this lock");
        (slots.fresh * 64 * size_of::<Seal>()) as u64
    }

    fn seal(&self, number: u64) -> *mut Seal {
        debug_assert!(number < self.slot_count);
        // SAFETY: the table has `slot_count` entries.
        unsafe { self.seals.base().as_ptr().cast::<Seal>().add(number as usize) }
    }

    /// Takes up to `wanted` slots, consecutive ones first. Fewer than wanted means full.
    fn take(&self, wanted: usize, numbers: &mut Vec<u64>) {
        let mut slots = self.slots.lock().expect("invariant: nothing panics under this lock");
        numbers.clear();
        let room = slots.free.saturating_sub(RESERVE).min(wanted as u64) as usize;
        let words = slots.taken.len();
        let mut word = (slots.next / 64) as usize % words;
        // Back to the start of the file instead of further into it, while most of what was used is free again.
        let used = self.slot_count - slots.free;
        let returns = slots.fresh >= MIN_WORDS && used * SPREAD < slots.fresh as u64 * 64;
        let mut looked = 0;
        while numbers.len() < room && looked <= words {
            let mut holes = !slots.taken[word];
            while holes != 0 && numbers.len() < room {
                let bit = holes.trailing_zeros();
                holes &= holes - 1;
                slots.taken[word] |= 1 << bit;
                numbers.push(word as u64 * 64 + u64::from(bit));
            }
            if numbers.len() < room {
                word = (word + 1) % if returns { slots.fresh } else { words };
                looked += 1;
            }
        }
        slots.free -= numbers.len() as u64;
        slots.next = word as u64 * 64;
        slots.fresh = slots.fresh.max(numbers.iter().max().map_or(0, |last| *last as usize / 64 + 1));
    }

    fn give_back(&self, number: u64) {
        let punch = {
            let mut slots = self.slots.lock().expect("invariant: nothing panics under this lock");
            slots.taken[(number / 64) as usize] &= !(1 << (number % 64));
            slots.free += 1;
            let run = number / PUNCH_RUN * PUNCH_RUN;
            let mask = ((1u64 << PUNCH_RUN) - 1) << (run % 64);
            if slots.taken[(run / 64) as usize] & mask == 0 && run + PUNCH_RUN <= self.slot_count {
                // These slots must not be taken while the hole is punched, or fresh contents would go into it.
                slots.taken[(run / 64) as usize] |= mask;
                Some((run, mask))
            } else {
                None
            }
        };
        if let Some((run, mask)) = punch {
            self.device.punch(run * PAGE_SIZE as u64, PUNCH_RUN * PAGE_SIZE as u64);
            let mut slots = self.slots.lock().expect("invariant: nothing panics under this lock");
            slots.taken[(run / 64) as usize] &= !mask;
        }
    }

    /// Puts a page's sealed contents into a staging page.
    fn seal_page(&self, number: u64, page: &Page, staged: &mut Page) {
        staged.0.copy_from_slice(&page.0);
        let counter = self.writes.fetch_add(1, Ordering::Relaxed);
        let epoch = self.epoch.load(Ordering::Relaxed);
        let mut tag = [0; 16];
        match &self.cipher {
            Some(cipher) => {
                let sealed = cipher
                    .encrypt_in_place_detached(&nonce(counter, epoch), &number.to_le_bytes(), &mut staged.0)
                    .expect("invariant: a page is shorter than the cipher's limit");
                tag.copy_from_slice(&sealed);
            }
            None => tag[..8].copy_from_slice(&checksum(number, &staged.0)),
        }
        // SAFETY: the slot was taken by this call, so its seal belongs to it until the slot is handed out.
        unsafe { self.seal(number).write(Seal { tag, counter, epoch }) };
    }

    /// Writes one run of consecutive slots per job; repeats short writes until they are whole or make no progress.
    fn write_runs(&self, numbers: &[u64], pages: &mut [Page], mut outcome: impl FnMut(usize, Result<(), StoreError>)) {
        // A run ends where the slot numbers jump. 64 jobs at most, so the list lives on the stack.
        let mut jobs: [Job; BATCH] =
            std::array::from_fn(|_| Job { offset: 0, buffer: std::ptr::null_mut(), len: 0, result: 0 });
        let mut count = 0;
        let mut start = 0;
        while start < numbers.len() {
            let mut end = start + 1;
            while end < numbers.len() && numbers[end] == numbers[end - 1] + 1 {
                end += 1;
            }
            jobs[count].offset = numbers[start] * PAGE_SIZE as u64;
            jobs[count].buffer = pages[start].0.as_mut_ptr();
            jobs[count].len = (end - start) * PAGE_SIZE;
            count += 1;
            start = end;
        }
        // SAFETY: the jobs point into `pages`, which is borrowed until this function returns.
        unsafe { self.device.write(&mut jobs[..count]) };
        let mut at = 0;
        for job in &mut jobs[..count] {
            let pages_in_job = job.len / PAGE_SIZE;
            let mut done = job.result.max(0) as usize;
            let mut errno = if job.result < 0 { -job.result } else { 0 };
            while errno == 0 && done < job.len {
                // Direct I/O wants whole pages: write the page that was cut short again.
                let whole = done / PAGE_SIZE * PAGE_SIZE;
                let mut rest = [Job {
                    offset: job.offset + whole as u64,
                    // SAFETY: `whole` is below the job's length.
                    buffer: unsafe { job.buffer.add(whole) },
                    len: job.len - whole,
                    result: 0,
                }];
                // SAFETY: the rest is a part of the job, whose memory is borrowed until this function returns.
                unsafe { self.device.write(&mut rest) };
                match rest[0].result {
                    0 => errno = libc::ENOSPC,
                    result if result < 0 => errno = -result,
                    result if (result as usize) < PAGE_SIZE && whole + (result as usize) <= done => errno = libc::EIO,
                    result => done = whole + result as usize,
                }
            }
            for page in 0..pages_in_job {
                let failed = errno != 0 && (page + 1) * PAGE_SIZE > done;
                outcome(
                    at + page,
                    match errno {
                        libc::ENOSPC | libc::EDQUOT if failed => Err(StoreError::Full(NAME)),
                        errno if failed => Err(StoreError::Io {
                            operation: "write",
                            offset: job.offset + (page * PAGE_SIZE) as u64,
                            errno,
                        }),
                        _ => Ok(()),
                    },
                );
            }
            at += pages_in_job;
        }
    }

    /// Reads neighbouring slots in one go: a page more costs a device next to nothing. Returns how many pages, from the
    /// front, are there.
    ///
    /// # Errors
    /// Not even the first page can be read, or it is not what was written.
    pub fn read_run(&self, first: Slot, into: &mut [Page]) -> Result<usize, StoreError> {
        // SAFETY: pages are bytes without gaps between them.
        let bytes = unsafe { std::slice::from_raw_parts_mut(into.as_mut_ptr().cast::<u8>(), size_of_val(into)) };
        let read = self.read_bytes(first.place(), bytes)? / PAGE_SIZE;
        for (index, page) in into[..read].iter_mut().enumerate() {
            match self.open_page(first.place() + index as u64, page) {
                Err(_) if index > 0 => return Ok(index),
                other => other?,
            }
        }
        Ok(read)
    }

    /// Reads from a slot on. Returns the bytes read: a page at least.
    fn read_bytes(&self, number: u64, into: &mut [u8]) -> Result<usize, StoreError> {
        let start = number * PAGE_SIZE as u64;
        let failed = |errno| StoreError::Io { operation: "read", offset: start, errno };
        let mut most = 0;
        loop {
            // Direct I/O wants aligned pieces, so a read of less than a page starts again from the beginning.
            match self.device.read(start, into) {
                Ok(read) if read >= PAGE_SIZE => return Ok(read),
                Ok(read) if read > most => most = read,
                Ok(_) => return Err(failed(libc::EIO)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error.raw_os_error().unwrap_or(libc::EIO))),
            }
        }
    }

    /// Decrypts what was read from a slot, and checks it.
    fn open_page(&self, number: u64, into: &mut Page) -> Result<(), StoreError> {
        // SAFETY: the seal was written before the slot was handed out, and the slot's holder is the only reader.
        let seal = unsafe { self.seal(number).read() };
        match &self.cipher {
            Some(cipher) => cipher
                .decrypt_in_place_detached(
                    &nonce(seal.counter, seal.epoch),
                    &number.to_le_bytes(),
                    &mut into.0,
                    Tag::from_slice(&seal.tag),
                )
                .map_err(|_| StoreError::Checksum(NAME)),
            None if seal.tag[..8] == checksum(number, &into.0) => Ok(()),
            None => Err(StoreError::Checksum(NAME)),
        }
    }
}

impl Store for FileStore {
    fn write(&self, pages: &[&Page], _scratch: &mut Scratch, slots: &mut [Result<Slot, StoreError>]) {
        let mut staging = self.staging.lock().expect("invariant: nothing panics under this lock");
        let Staging { pages: staged, numbers } = &mut *staging;
        for (pages, slots) in pages.chunks(BATCH).zip(slots.chunks_mut(BATCH)) {
            self.take(pages.len(), numbers);
            let taken = numbers.len();
            if staged.len() < taken {
                staged.resize(taken, Page::ZERO);
            }
            for ((page, number), staged) in pages.iter().zip(numbers.iter()).zip(staged.iter_mut()) {
                self.seal_page(*number, page, staged);
            }
            slots.fill(Err(StoreError::Full(NAME)));
            self.write_runs(&numbers[..taken], &mut staged[..taken], |index, outcome| match outcome {
                Ok(()) => {
                    self.pages.fetch_add(1, Ordering::Relaxed);
                    slots[index] = Ok(Slot::new(Tier::File, numbers[index]));
                }
                Err(error) => {
                    // A slot that could not be written is not used again.
                    if error == StoreError::Full(NAME) {
                        self.give_back(numbers[index]);
                    }
                    slots[index] = Err(error);
                }
            });
        }
    }

    fn read(&self, slot: Slot, into: &mut Page, _scratch: &mut Scratch) -> Result<(), StoreError> {
        self.read_bytes(slot.place(), &mut into.0)?;
        self.open_page(slot.place(), into)
    }

    fn release(&self, slot: Slot) {
        self.pages.fetch_sub(1, Ordering::Relaxed);
        self.give_back(slot.place());
    }

    fn after_fork(&self) -> io::Result<()> {
        let mut epoch = [0; 4];
        rustix::rand::getrandom(&mut epoch, rustix::rand::GetRandomFlags::empty())?;
        self.epoch.store(u32::from_ne_bytes(epoch), Ordering::Relaxed);
        let slots = self.slots.lock().expect("invariant: nothing panics under this lock");
        // The last words may hold bits beyond the last slot, which the device need not have.
        let taken = (0..self.slot_count).filter(|n| slots.taken[(n / 64) as usize] >> (n % 64) & 1 != 0);
        self.device.after_fork(&mut taken.map(|number| (number * PAGE_SIZE as u64, PAGE_SIZE)))
    }

    fn usage(&self) -> Usage {
        let pages = self.pages.load(Ordering::Relaxed);
        Usage { file_pages: pages, file_bytes: pages * PAGE_SIZE as u64, ..Usage::default() }
    }
}

fn nonce(counter: u64, epoch: u32) -> Nonce<aes_gcm::aead::consts::U12> {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&counter.to_le_bytes());
    bytes[8..].copy_from_slice(&epoch.to_le_bytes());
    Nonce::from(bytes)
}

fn checksum(number: u64, bytes: &[u8]) -> [u8; 8] {
    xxhash_rust::xxh3::xxh3_64_with_seed(bytes, number).to_le_bytes()
}

#[cfg(test)]
mod tests;
