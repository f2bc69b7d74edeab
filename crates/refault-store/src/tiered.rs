//! The stores in order: same-filled, compressed pool, file.
//!
//! A page goes to the first store that takes it. Pages that compress badly skip the pool when there is a file, and
//! pages that stayed long in the pool can be sent on ([`Store::demote`]): first compressed harder, then to the file.

use std::io;
use std::path::PathBuf;

use crate::codec::Codec;
use crate::{
    CompressedPool, FileStore, FileStoreOptions, Page, Scratch, Slot, Store, StoreError, Tier, Usage, same_filled,
};

/// Pages a batch for the file has at most.
const BATCH: usize = 64;

/// What a tiered store consists of.
#[derive(Clone, Debug)]
pub struct TieredStoreOptions {
    /// Bytes of memory for the compressed pool; 0 for none.
    pub pool_limit: u64,
    /// Codec of the pool's first step.
    pub codec: Codec,
    /// Directory and options of the file; `None` for none.
    pub file: Option<(PathBuf, FileStoreOptions)>,
}

/// See the module.
pub struct TieredStore {
    pool: Option<CompressedPool>,
    file: Option<FileStore>,
    codec: Codec,
    same_filled: std::sync::atomic::AtomicU64,
}

impl TieredStore {
    /// Makes the stores that the options ask for.
    pub fn new(options: &TieredStoreOptions) -> io::Result<TieredStore> {
        let pool = if options.pool_limit > 0 { Some(CompressedPool::new(options.pool_limit)?) } else { None };
        let file = match &options.file {
            Some((directory, options)) => Some(FileStore::create(directory, options)?),
            None => None,
        };
        Ok(TieredStore::with(pool, file, options.codec))
    }

    /// Stacks given stores.
    pub fn with(pool: Option<CompressedPool>, file: Option<FileStore>, codec: Codec) -> TieredStore {
        TieredStore { pool, file, codec, same_filled: std::sync::atomic::AtomicU64::new(0) }
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let pool = self.pool.as_ref().map(|p| format!("compressed pool of at most {} MiB", p.limit() >> 20));
        let file = self.file.as_ref().map(|f| format!("file ({})", f.describe()));
        match (pool, file) {
            (Some(pool), Some(file)) => format!("{pool}, then {file}"),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => "same-filled pages only".to_owned(),
        }
    }

    /// The pool, if there is one.
    pub fn pool(&self) -> Option<&CompressedPool> {
        self.pool.as_ref()
    }

    /// The file, if there is one.
    pub fn file(&self) -> Option<&FileStore> {
        self.file.as_ref()
    }

    fn write_file(&self, pages: &[&Page], scratch: &mut Scratch, slots: &mut [Result<Slot, StoreError>]) {
        match &self.file {
            Some(file) => file.write(pages, scratch, slots),
            None => slots.fill(Err(StoreError::Full(crate::pool::NAME))),
        }
    }
}

impl Store for TieredStore {
    fn write(&self, pages: &[&Page], scratch: &mut Scratch, slots: &mut [Result<Slot, StoreError>]) {
        let mut rest: [usize; BATCH] = [0; BATCH];
        for (first, (pages, slots)) in pages.chunks(BATCH).zip(slots.chunks_mut(BATCH)).enumerate() {
            let _ = first;
            let mut left = 0;
            for (index, page) in pages.iter().enumerate() {
                slots[index] = match same_filled::detect(page) {
                    Some(slot) => {
                        self.same_filled.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        Ok(slot)
                    }
                    None => match &self.pool {
                        Some(pool) => pool.put(page, self.codec, scratch),
                        None => Err(StoreError::Full(crate::pool::NAME)),
                    },
                };
                if slots[index].is_err() {
                    rest[left] = index;
                    left += 1;
                }
            }
            if left > 0 {
                let mut batch: [&Page; BATCH] = [&Page::ZERO; BATCH];
                let mut outcome = [Err(StoreError::Full(crate::pool::NAME)); BATCH];
                for (at, index) in rest[..left].iter().enumerate() {
                    batch[at] = pages[*index];
                }
                self.write_file(&batch[..left], scratch, &mut outcome[..left]);
                for (at, index) in rest[..left].iter().enumerate() {
                    slots[*index] = outcome[at];
                }
            }
        }
    }

    fn read(&self, slot: Slot, into: &mut Page, scratch: &mut Scratch) -> Result<(), StoreError> {
        match (slot.tier(), &self.pool, &self.file) {
            (Tier::SameFilled, _, _) => {
                same_filled::fill(slot, into);
                Ok(())
            }
            (Tier::Pool, Some(pool), _) => pool.read(slot, into, scratch),
            (Tier::File, _, Some(file)) => file.read(slot, into, scratch),
            _ => unreachable!("invariant: a slot comes from a store that exists"),
        }
    }

    fn release(&self, slot: Slot) {
        match (slot.tier(), &self.pool, &self.file) {
            (Tier::SameFilled, _, _) => {
                self.same_filled.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            }
            (Tier::Pool, Some(pool), _) => pool.release(slot),
            (Tier::File, _, Some(file)) => file.release(slot),
            _ => unreachable!("invariant: a slot comes from a store that exists"),
        }
    }

    fn usage(&self) -> Usage {
        let pool = self.pool.as_ref().map(Store::usage).unwrap_or_default();
        let file = self.file.as_ref().map(Store::usage).unwrap_or_default();
        Usage {
            same_filled_pages: self.same_filled.load(std::sync::atomic::Ordering::Relaxed),
            file_pages: file.file_pages,
            file_bytes: file.file_bytes,
            ..pool
        }
    }

    fn after_fork(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), Store::after_fork)
    }

    fn demote(&self, slot: Slot, buffer: &mut Page, scratch: &mut Scratch) -> Option<Slot> {
        if slot.tier() != Tier::Pool {
            return None;
        }
        let pool = self.pool.as_ref()?;
        if let Some(harder) = pool.demote(slot, buffer, scratch) {
            return Some(harder);
        }
        let file = self.file.as_ref()?;
        pool.read(slot, buffer, scratch).ok()?;
        let mut slots = [Err(StoreError::Full(crate::file::NAME))];
        file.write(&[buffer], scratch, &mut slots);
        slots[0].ok()
    }
}
