//! A zram device that swap is on: made for one budget, and removed with it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::PAGE;
use crate::places::{Places, number, write};
use crate::swap;

/// The compressor: the fastest. What cannot have it keeps the kernel's own choice.
const COMPRESSOR: &str = "lz4";
/// Bytes that the kernel keeps for each page that fits on a device: 16 of zram's table, 4 of the swap area's.
const TABLE_BYTES: u64 = 20;
/// How long the device's file may take to appear.
const PATIENCE: Duration = Duration::from_secs(2);

const HOT_ADD: &str = "/sys/class/zram-control/hot_add";
const HOT_REMOVE: &str = "/sys/class/zram-control/hot_remove";

/// A zram device.
#[derive(Clone, Debug)]
pub struct Device {
    number: u32,
    /// Bytes that fit on it, before compression.
    bytes: u64,
    system: PathBuf,
    file: PathBuf,
}

/// What a device has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfers {
    /// Pages brought back.
    pub read: u64,
    /// Pages stored.
    pub written: u64,
}

impl Transfers {
    /// Both together.
    pub(crate) fn plus(self, other: Transfers) -> Transfers {
        Transfers { read: self.read + other.read, written: self.written + other.written }
    }
}

impl Device {
    /// Adds a device to the machine. It has no size yet.
    ///
    /// # Errors
    /// The kernel refuses, or has no zram.
    pub fn add(places: &Places) -> io::Result<Device> {
        let number = number(&places.at(HOT_ADD), 0)?;
        Ok(Device::numbered(places, u32::try_from(number).unwrap_or(u32::MAX), 0))
    }

    /// A device that is there.
    pub fn numbered(places: &Places, number: u32, bytes: u64) -> Device {
        let system = places.at(format!("/sys/block/zram{number}"));
        let file = places.at(format!("/dev/zram{number}"));
        Device { number, bytes, system, file }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes that fit on it before compression; 0 if it was found and not made.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory that the kernel keeps for a device of this many bytes, whatever is on it.
    pub fn table_bytes(bytes: u64) -> u64 {
        bytes / PAGE * TABLE_BYTES
    }

    /// Gives it a size and a bound of memory, and swaps to it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn swap_on(&mut self, bytes: u64, room: u64) -> io::Result<()> {
        let _ = write(&self.system.join("comp_algorithm"), COMPRESSOR);
        self.bytes = bytes.next_multiple_of(PAGE);
        write(&self.system.join("disksize"), self.bytes)?;
        self.set_room(room)?;
        self.await_file()?;
        swap::on(&self.file, self.bytes)
    }

    /// Waits for its file, which another process makes, or the kernel.
    fn await_file(&self) -> io::Result<()> {
        let begun = Instant::now();
        while !self.file.exists() {
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::from_raw_os_error(libc::ENOENT));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Bounds the memory that it takes, in bytes. What does not fit is refused, and stays where it was.
    ///
    /// # Errors
    /// The device is not there.
    pub fn set_room(&self, bytes: u64) -> io::Result<()> {
        // No bound is what a zero means.
        write(&self.system.join("mem_limit"), bytes.max(PAGE))
    }

    /// Bytes of memory that it takes.
    ///
    /// # Errors
    /// The device is not there.
    pub fn used(&self) -> io::Result<u64> {
        /// `mem_used_total` among the numbers of `mm_stat`.
        const MEM_USED_TOTAL: usize = 2;
        number(&self.system.join("mm_stat"), MEM_USED_TOTAL)
    }

    /// Pages read and written since it was made.
    pub fn transfers(&self) -> Transfers {
        // Requests of a page each: swap reads and writes zram so.
        let count = |at| number(&self.system.join("stat"), at).unwrap_or(0);
        // What was refused for want of room is written again.
        let refused = number(&self.system.join("io_stat"), 1).unwrap_or(0);
        Transfers { read: count(0), written: count(4).saturating_sub(refused) }
    }

    /// Swaps to it no more, and removes it. That it is gone is no error.
    ///
    /// # Errors
    /// What is on it does not fit into memory, or the kernel refuses.
    pub fn remove(&self, places: &Places) -> io::Result<()> {
        if !self.system.exists() {
            return Ok(());
        }
        swap::off(&self.file)?;
        write(&self.system.join("reset"), 1)?;
        write(&places.at(HOT_REMOVE), self.number)
    }

    /// Whether a device can be added: the file, and whether it is there.
    pub(crate) fn source(places: &Places) -> (PathBuf, bool) {
        let path = places.at(HOT_ADD);
        let is_there = Path::exists(&path);
        (path, is_there)
    }
}
