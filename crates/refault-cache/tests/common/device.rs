//! A device that keeps writes in its own memory. It may lose, reorder or tear them in a crash. It may refuse writes,
//! and fail to make them durable once, losing some on the way.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex};

use refault_cache::Backing;

use super::{PAGE, Random};

const SECTOR: usize = 512;
/// What the device has.
#[derive(Default)]
pub struct Medium {
    /// What survives a crash.
    pub durable: Vec<u8>,
    /// What a read returns.
    pub current: Vec<u8>,
    /// Sectors that were written since the last flush, each with all its versions, oldest first.
    pub pending: BTreeMap<usize, Vec<[u8; SECTOR]>>,
    pub fail_sync: bool,
    pub fail_writes: bool,
    /// Writes that were refused.
    pub refused: u64,
    pub syncs: u64,
    pub random: u64,
    /// It takes bytes at any place.
    pub exact: bool,
}

#[derive(Clone, Default)]
pub struct Device(pub Arc<Mutex<Medium>>);

impl Medium {
    fn random(&mut self) -> u64 {
        self.random += 1;
        Random::new(self.random).next()
    }

    /// The device after a crash: of each sector any version since the last flush, or none.
    pub fn crash(&mut self) -> Vec<u8> {
        let mut image = self.durable.clone();
        let size = image.len().max(self.current.len());
        image.resize(size, 0);
        let sectors: Vec<usize> = self.pending.keys().copied().collect();
        for sector in sectors {
            let choice = self.random() as usize;
            let versions = &self.pending[&sector];
            if let Some(version) = versions.get(choice % (versions.len() + 1)) {
                let part = SECTOR.min(image.len().saturating_sub(sector * SECTOR));
                image[sector * SECTOR..][..part].copy_from_slice(&version[..part]);
            }
        }
        image
    }
}

impl Backing for Device {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let medium = self.0.lock().unwrap();
        let (mut at, start) = (offset as usize, offset as usize);
        for slice in into {
            let part = slice.len().min(medium.current.len().saturating_sub(at));
            slice[..part].copy_from_slice(&medium.current[at..at + part]);
            at += part;
        }
        Ok(at - start)
    }

    fn write(&self, from: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut medium = self.0.lock().unwrap();
        let bytes: Vec<u8> = from.iter().flat_map(|slice| slice.iter().copied()).collect();
        // A write that is refused may have been carried out in part.
        let done = if medium.fail_writes { bytes.len() / 2 / SECTOR * SECTOR } else { bytes.len() };
        let end = offset as usize + done;
        let size = medium.current.len().max(end);
        medium.current.resize(size, 0);
        medium.current[offset as usize..end].copy_from_slice(&bytes[..done]);
        assert!(medium.exact || (offset.is_multiple_of(SECTOR as u64) && done.is_multiple_of(SECTOR)));
        for place in offset as usize / SECTOR..end.div_ceil(SECTOR) {
            let mut sector = [0; SECTOR];
            let there = SECTOR.min(medium.current.len() - place * SECTOR);
            sector[..there].copy_from_slice(&medium.current[place * SECTOR..][..there]);
            medium.pending.entry(place).or_default().push(sector);
        }
        medium.refused += u64::from(medium.fail_writes);
        if medium.fail_writes { Err(io::Error::from_raw_os_error(28)) } else { Ok(done) }
    }

    fn takes_any_bytes(&self) -> bool {
        self.0.lock().unwrap().exact
    }

    fn sync(&self) -> io::Result<()> {
        let mut medium = self.0.lock().unwrap();
        medium.syncs += 1;
        if std::mem::take(&mut medium.fail_sync) {
            // What was not durable may be gone, and no later call tells of it.
            let image = medium.crash();
            medium.current.clone_from(&image);
            medium.durable = image;
            medium.pending.clear();
            return Err(io::Error::from_raw_os_error(5));
        }
        medium.durable = medium.current.clone();
        medium.pending.clear();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().current.len() as u64)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut medium = self.0.lock().unwrap();
        medium.current.resize(bytes as usize, 0);
        // Lengths are durable at once here: the bytes are what this is about.
        medium.durable.resize(bytes as usize, 0);
        let end = (bytes as usize).div_ceil(SECTOR);
        medium.pending.retain(|sector, _| *sector < end);
        Ok(())
    }
}

/// A device of some pages, each full of a number of its own; one with an odd seed takes bytes at any place.
pub fn device(seed: u64, pages: usize) -> Device {
    let bytes: Vec<u8> = (0..pages * PAGE).map(|at| (at / 4096 * 7) as u8).collect();
    let medium = Medium {
        durable: bytes.clone(),
        current: bytes,
        random: seed << 32,
        exact: seed % 2 == 1,
        ..Medium::default()
    };
    Device(Arc::new(Mutex::new(medium)))
}
