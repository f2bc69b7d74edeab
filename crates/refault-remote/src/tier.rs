//! Blocks of an object in a local file that outlives the process.
//!
//! The file has a head that names object and version, and slots, each with a head of its own and one block. Which block
//! a slot has is read from the heads when the file is opened; whether it really has it is seen by its checksum whenever
//! it is read, which is seeded with object, version, and the block's place. So nothing need be synced or repaired: a
//! crash in the middle of a write, a flipped bit, or a block of an older version reads as missing. Slots are given anew
//! in the order of a clock, those first that were not read since its hand was there.
//!
//! Invariants: one process has the file (a lock of the system's); a block is in the map only while its slot has it.
//! Cost: some 40 bytes of memory per block; a checksum per block read or written; what is read goes through the
//! kernel's page cache.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};

use object_store::ObjectMeta;
use rustix::fs::FlockOperation;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128};

const MAGIC: &[u8; 8] = b"rftblk1\n";
/// Before the first slot.
const HEAD: u64 = 4096;
/// Of a slot, before its block: number, bytes, checksum of the block, checksum of these.
const SLOT_HEAD: usize = 32;

const UNBROKEN: &str = "invariant: nothing panics under this lock";

pub(crate) struct Tier {
    file: File,
    seed: u64,
    pub(crate) block: u64,
    slots: RwLock<Slots>,
}

struct Slots {
    by_block: HashMap<u64, u32>,
    /// By slot: its block, and whether that was read since the hand was there.
    blocks: Vec<(Option<u64>, AtomicBool)>,
    hand: usize,
}

/// What came of looking for a block.
pub(crate) enum Found {
    Whole,
    Missing,
    /// It was there, and is not what it was.
    Damaged,
}

impl Tier {
    /// The file of an object in a directory; made, or made anew if it has another version of the object.
    pub(crate) fn open(
        directory: &Path,
        store: &str,
        meta: &ObjectMeta,
        block: u32,
        bytes: u64,
    ) -> Result<Tier, (PathBuf, io::Error)> {
        let name = xxh3_128(format!("{store}\n{}", meta.location).as_bytes());
        let path = directory.join(format!("{name:032x}.blocks"));
        Tier::open_at(&path, store, meta, u64::from(block), bytes).map_err(|error| (path, error))
    }

    fn open_at(path: &Path, store: &str, meta: &ObjectMeta, block: u64, bytes: u64) -> io::Result<Tier> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        // What it holds may be private in the store.
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => io::Error::new(
                io::ErrorKind::ResourceBusy,
                "another user of it is there; give it a directory of its own",
            ),
            error => error.into(),
        })?;
        let version = format!("{store}\n{}\n{:?}\n{}\n{}", meta.location, meta.e_tag, meta.size, meta.last_modified);
        let key = xxh3_128(version.as_bytes());
        let mut head = MAGIC.to_vec();
        head.extend(key.to_le_bytes());
        head.extend(block.to_le_bytes());
        let mut there = vec![0; head.len()];
        let same = file.read_exact_at(&mut there, 0).is_ok() && there == head;
        if !same {
            file.write_all_at(&head, 0)?;
            file.set_len(HEAD)?;
        }
        let stride = SLOT_HEAD as u64 + block;
        let most =
            (bytes.saturating_sub(HEAD) / stride).min(meta.size.div_ceil(block)).min(u64::from(u32::MAX)) as usize;
        let mut tier = Tier {
            file,
            seed: key as u64,
            block,
            slots: RwLock::new(Slots {
                by_block: HashMap::new(),
                blocks: (0..most).map(|_| (None, AtomicBool::new(false))).collect(),
                hand: 0,
            }),
        };
        if same {
            tier.find_blocks(meta.size.div_ceil(block));
            // A smaller limit than before.
            let end = HEAD + most as u64 * stride;
            if tier.file.metadata()?.len() > end {
                tier.file.set_len(end)?;
            }
        }
        Ok(tier)
    }

    fn find_blocks(&mut self, blocks: u64) {
        let mut head = [0; SLOT_HEAD];
        let slots = self.slots.get_mut().expect(UNBROKEN);
        let stride = SLOT_HEAD as u64 + self.block;
        for slot in 0..slots.blocks.len() {
            // The last slot may be short, as the last block is. One that is torn is found out when it is read.
            if self.file.read_exact_at(&mut head, HEAD + slot as u64 * stride).is_err() {
                break;
            }
            if let Some((number, _, _)) = parse(&head, self.seed).filter(|(number, ..)| *number < blocks) {
                slots.blocks[slot].0 = Some(number);
                slots.by_block.insert(number, slot as u32);
            }
        }
        // A block that stands twice is the later slot's.
        for slot in 0..slots.blocks.len() {
            if slots.blocks[slot].0.is_some_and(|number| slots.by_block.get(&number) != Some(&(slot as u32))) {
                slots.blocks[slot].0 = None;
            }
        }
    }

    fn at(&self, slot: u32) -> u64 {
        HEAD + u64::from(slot) * (SLOT_HEAD as u64 + self.block)
    }

    /// Reads a block whose length the caller knows. One that is damaged is damaged for one reader, and missing for the
    /// others.
    pub(crate) fn read(&self, number: u64, into: &mut Vec<u8>, length: usize) -> Found {
        let slots = self.slots.read().expect(UNBROKEN);
        let Some(slot) = slots.by_block.get(&number).copied() else { return Found::Missing };
        if self.take(slot, number, into, length) {
            slots.blocks[slot as usize].1.store(true, Ordering::Relaxed);
            return Found::Whole;
        }
        drop(slots);
        let mut slots = self.slots.write().expect(UNBROKEN);
        // Meanwhile another reader may have given it up, and may even have fetched it and kept it anew.
        let Some(slot) = slots.by_block.get(&number).copied() else { return Found::Missing };
        if self.take(slot, number, into, length) {
            return Found::Whole;
        }
        slots.by_block.remove(&number);
        slots.blocks[slot as usize].0 = None;
        Found::Damaged
    }

    /// Appends a slot's block, if that is whole and the one that is looked for. The caller has the lock.
    fn take(&self, slot: u32, number: u64, into: &mut Vec<u8>, length: usize) -> bool {
        let mut whole = vec![0; SLOT_HEAD + length];
        let read = self.file.read_exact_at(&mut whole, self.at(slot));
        let (head, bytes) = whole.split_at(SLOT_HEAD);
        let right = read.is_ok()
            && parse(head, self.seed).is_some_and(|(there, bytes_there, sum)| {
                there == number && bytes_there == length as u64 && sum == self.sum(number, bytes)
            });
        if right {
            into.extend_from_slice(bytes);
        }
        right
    }

    fn sum(&self, number: u64, bytes: &[u8]) -> u64 {
        xxh3_64_with_seed(bytes, self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Keeps a block. What cannot be written is not kept.
    pub(crate) fn write(&self, number: u64, bytes: &[u8]) {
        let mut head = Vec::with_capacity(SLOT_HEAD + bytes.len());
        head.extend(number.to_le_bytes());
        head.extend((bytes.len() as u64).to_le_bytes());
        head.extend(self.sum(number, bytes).to_le_bytes());
        head.extend(xxh3_64_with_seed(&head, self.seed).to_le_bytes());
        head.extend(bytes);
        let mut slots = self.slots.write().expect(UNBROKEN);
        if slots.by_block.contains_key(&number) {
            return;
        }
        let Some(slot) = slots.take() else { return };
        if self.file.write_all_at(&head, self.at(slot)).is_ok() {
            slots.blocks[slot as usize] = (Some(number), AtomicBool::new(false));
            slots.by_block.insert(number, slot);
        }
    }
}

/// Whether there is no room for a file.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

impl Slots {
    /// A slot that is free, or whose block goes.
    fn take(&mut self) -> Option<u32> {
        // Twice round: the first time may find all of them read.
        for _ in 0..2 * self.blocks.len() {
            let slot = self.hand;
            self.hand = (self.hand + 1) % self.blocks.len();
            let (block, read) = &mut self.blocks[slot];
            match *block {
                Some(_) if std::mem::take(read.get_mut()) => {}
                Some(number) => {
                    *block = None;
                    self.by_block.remove(&number);
                    return Some(slot as u32);
                }
                None => return Some(slot as u32),
            }
        }
        None
    }
}

/// Number, length and checksum of a slot's block, if the head is whole.
fn parse(head: &[u8], seed: u64) -> Option<(u64, u64, u64)> {
    let word = |place: usize| Some(u64::from_le_bytes(head.get(place * 8..place * 8 + 8)?.try_into().ok()?));
    (word(3)? == xxh3_64_with_seed(head.get(..24)?, seed)).then_some((word(0)?, word(1)?, word(2)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(tag: &str) -> ObjectMeta {
        ObjectMeta {
            location: "a/b".into(),
            last_modified: std::time::SystemTime::UNIX_EPOCH.into(),
            size: 40 * 4096 + 100,
            e_tag: Some(tag.to_owned()),
            version: None,
        }
    }

    fn bytes(number: u64) -> Vec<u8> {
        (0..4096u64).map(|at| (number * 7 + at * at) as u8).collect()
    }

    fn has(tier: &Tier, number: u64) -> bool {
        let mut into = Vec::new();
        let whole = matches!(tier.read(number, &mut into, 4096), Found::Whole);
        assert!(!whole || into == bytes(number), "a block is what was written or missing");
        whole
    }

    #[test]
    fn blocks_survive_and_other_versions_are_not_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let open =
            |tag: &str| Tier::open(directory.path(), "store", &meta(tag), 4096, 1 << 20).map_err(|(_, error)| error);
        let tier = open("1").expect("opens");
        (0..10).for_each(|number| tier.write(number, &bytes(number)));
        assert_eq!(open("1").err().map(|error| error.kind()), Some(io::ErrorKind::ResourceBusy));
        drop(tier);
        let tier = open("1").expect("opens");
        assert!((0..10).all(|number| has(&tier, number)) && !has(&tier, 10));
        drop(tier);
        let tier = open("2").expect("opens");
        assert!(!(0..10).any(|number| has(&tier, number)));
    }

    #[test]
    fn a_short_last_block_survives_wherever_it_stands() {
        for before in 0..8 {
            let directory = tempfile::tempdir().expect("a directory");
            let open = || Tier::open(directory.path(), "store", &meta("1"), 8192, 1 << 20).map_err(|(_, error)| error);
            let tier = open().expect("opens");
            (0..before).for_each(|number| tier.write(number, &[1; 8192]));
            tier.write(20, &[7; 100]);
            drop(tier);
            let mut seen = Vec::new();
            assert!(matches!(open().expect("opens").read(20, &mut seen, 100), Found::Whole), "after {before}");
            assert_eq!(seen, [7; 100]);
        }
    }

    #[test]
    fn every_flipped_or_torn_byte_is_noticed() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || Tier::open(directory.path(), "store", &meta("1"), 4096, 1 << 20).map_err(|(_, error)| error);
        let tier = open().expect("opens");
        (0..4).for_each(|number| tier.write(number, &bytes(number)));
        drop(tier);
        let path = std::fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        let whole = std::fs::read(&path).expect("reads");
        let second = HEAD as usize + SLOT_HEAD + 4096;
        for place in (0..SLOT_HEAD + 4096).step_by(61).chain(0..SLOT_HEAD) {
            let mut damaged = whole.clone();
            damaged[second + place] ^= 1 << (place % 8);
            std::fs::write(&path, &damaged).expect("writes");
            let tier = open().expect("opens");
            assert!(!has(&tier, 1), "byte {place}");
            assert!([0, 2, 3].iter().all(|number| has(&tier, *number)), "byte {place}");
            tier.write(1, &bytes(1));
            assert!(has(&tier, 1), "it is there again");
        }
        for length in [0, 10, HEAD as usize, second + 5, second + 1000, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).expect("writes");
            let tier = open().expect("opens");
            let there = (0..4).filter(|number| has(&tier, *number)).count();
            assert_eq!(there, length.saturating_sub(HEAD as usize) / (SLOT_HEAD + 4096), "{length}");
        }
    }

    #[test]
    fn a_damaged_block_is_damaged_once_though_many_read_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let tier = Tier::open(directory.path(), "store", &meta("1"), 4096, 1 << 20).map_err(|(_, error)| error);
        let tier = tier.expect("opens");
        for number in 0..40 {
            tier.write(number, &bytes(number));
            let slot = tier.slots.read().expect(UNBROKEN).by_block[&number];
            tier.file.write_all_at(b"torn", tier.at(slot) + SLOT_HEAD as u64 + 100).expect("writes");
            let start = std::sync::Barrier::new(4);
            let damaged = std::thread::scope(|scope| {
                let reader = || {
                    start.wait();
                    let found = tier.read(number, &mut Vec::new(), 4096);
                    // As who fetches it does.
                    tier.write(number, &bytes(number));
                    matches!(found, Found::Damaged)
                };
                let readers = [(); 4].map(|()| scope.spawn(reader));
                readers.into_iter().map(|reader| reader.join().expect("reads")).filter(|it| *it).count()
            });
            assert_eq!(damaged, 1, "block {number}");
            assert!(has(&tier, number), "block {number} was kept anew");
        }
    }

    #[test]
    fn a_full_file_gives_up_what_was_not_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let limit = HEAD + 8 * (4096 + SLOT_HEAD as u64);
        let tier =
            Tier::open(directory.path(), "store", &meta("1"), 4096, limit).map_err(|(_, error)| error).expect("opens");
        for number in 0..40 {
            tier.write(number, &bytes(number));
            assert!(has(&tier, 0), "what is read again and again stays");
        }
        assert_eq!((0..40).filter(|number| has(&tier, *number)).count(), 8);
        assert!(tier.file.metadata().expect("is there").len() <= limit);
    }
}
