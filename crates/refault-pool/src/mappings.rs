//! The mappings of another process, and how much of each was accessed: `/proc/PID/smaps` and `/proc/PID/clear_refs`.
//!
//! The kernel counts a page as referenced if its accessed bit is set in the process's page tables. So it does if
//! another process has marked the page since the bits were last cleared. A huge page counts whole. Clearing the bits
//! makes the kernel's own reclaim take the pages for idle until they are accessed again; nothing else of the process
//! changes.
//!
//! Cost: the kernel walks the page tables of the process for each look, some 10 ms per GiB of small pages.
//!
//! ```
//! use refault_pool::mappings::{Sums, mappings};
//!
//! let all = mappings(std::process::id())?;
//! let sums = Sums::of(&all);
//! assert!(sums.accessed_bytes > 0 && sums.accessed_bytes <= sums.resident_bytes);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::ops::Add;

use refault_linux::proc;

/// One mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    /// Bytes in memory.
    pub resident_bytes: u64,
    /// Bytes of them accessed since [`clear_accessed`].
    pub accessed_bytes: u64,
    /// Bytes in memory that are no file's.
    pub anonymous_bytes: u64,
    /// Bytes in memory that other processes map too: the kernel leaves them where they are.
    pub shared_bytes: u64,
    /// Bytes in swap.
    pub swap_bytes: u64,
    /// The kernel can take its pages away: not locked, not a device's, not of fixed huge pages.
    pub reclaimable: bool,
}

/// Sums over mappings, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// In memory.
    pub resident_bytes: u64,
    /// Accessed since the bits were cleared.
    pub accessed_bytes: u64,
    /// In memory and no file's.
    pub anonymous_bytes: u64,
    /// In swap.
    pub swap_bytes: u64,
}

impl Sums {
    /// Adds mappings up.
    pub fn of(mappings: &[Mapping]) -> Sums {
        let one = |mapping: &Mapping| Sums {
            resident_bytes: mapping.resident_bytes,
            accessed_bytes: mapping.accessed_bytes,
            anonymous_bytes: mapping.anonymous_bytes,
            swap_bytes: mapping.swap_bytes,
        };
        mappings.iter().map(one).fold(Sums::default(), Sums::add)
    }
}

impl Add for Sums {
    type Output = Sums;

    fn add(self, other: Sums) -> Sums {
        Sums {
            resident_bytes: self.resident_bytes + other.resident_bytes,
            accessed_bytes: self.accessed_bytes + other.accessed_bytes,
            anonymous_bytes: self.anonymous_bytes + other.anonymous_bytes,
            swap_bytes: self.swap_bytes + other.swap_bytes,
        }
    }
}

/// What a mapping shows: a file, or memory that processes share, by the numbers of its device and inode; none of memory
/// that has no file.
pub type Object = (u64, u64);

/// The mappings of a process, by address.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn mappings(pid: u32) -> io::Result<Vec<Mapping>> {
    let mut mappings = Vec::new();
    each_mapping(pid, |mapping, _| mappings.push(mapping.clone()))?;
    Ok(mappings)
}

/// Hands each mapping of a process to `seen`, by address, with what it shows. Keeps one line and one mapping at a time,
/// however many there are.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn each_mapping(pid: u32, seen: impl FnMut(&Mapping, Option<Object>)) -> io::Result<()> {
    parse(BufReader::new(File::open(format!("/proc/{pid}/smaps"))?), seen)
}

/// Clears the accessed bits of a process.
///
/// # Errors
/// There is no such process, or it belongs to another user.
pub fn clear_accessed(pid: u32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "1")
}

/// Reads the text of a `smaps` file.
fn parse(mut text: impl BufRead, mut seen: impl FnMut(&Mapping, Option<Object>)) -> io::Result<()> {
    let mut last: Option<(Mapping, Option<Object>)> = None;
    // Bytes: a mapped file may be called anything.
    let mut bytes = Vec::new();
    while text.read_until(b'\n', &mut bytes)? > 0 {
        let line = String::from_utf8_lossy(&bytes);
        if let Some(((start, end), _)) = proc::mapping(&line) {
            let (start, end) = (start as u64, end as u64);
            last.iter().for_each(|(mapping, object)| seen(mapping, *object));
            last = Some((Mapping { start, end, reclaimable: true, ..Mapping::default() }, object(&line)));
        } else if let (Some((mapping, _)), Some((key, value))) = (last.as_mut(), line.split_once(':')) {
            mapping.take(key, value);
        }
        bytes.clear();
    }
    last.iter().for_each(|(mapping, object)| seen(mapping, *object));
    Ok(())
}

impl Mapping {
    /// Takes in a line of those below the first.
    fn take(&mut self, key: &str, value: &str) {
        if key == "VmFlags" {
            // Locked, not expanded (a device's), page frames without a struct page, fixed huge pages.
            let fixed = ["lo", "io", "pf", "ht"];
            self.reclaimable = !value.split_whitespace().any(|flag| fixed.contains(&flag));
            return;
        }
        let kib: u64 = value.trim().strip_suffix(" kB").and_then(|number| number.parse().ok()).unwrap_or(0);
        let bytes = kib.saturating_mul(1024);
        match key {
            "Rss" => self.resident_bytes = bytes,
            "Referenced" => self.accessed_bytes = bytes,
            "Anonymous" => self.anonymous_bytes = bytes,
            "Shared_Clean" | "Shared_Dirty" => self.shared_bytes = self.shared_bytes.saturating_add(bytes),
            "Swap" => self.swap_bytes = bytes,
            _ => {}
        }
    }
}

/// Device and inode of a mapping's first line: `7f00-7f10 rw-p 00000000 fe:00 1 /tmp/a`.
fn object(line: &str) -> Option<Object> {
    let mut words = line.split_whitespace().skip(3);
    let (major, minor) = words.next()?.split_once(':')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let inode: u64 = words.next()?.parse().ok()?;
    (inode != 0).then_some((number(major)? << 32 | number(minor)?, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
55d0c8a00000-55d0c8a21000 rw-p 00000000 00:00 0                          [heap]
Size:                132 kB
Rss:                  40 kB
Shared_Clean:          4 kB
Shared_Dirty:          8 kB
Referenced:           12 kB
Anonymous:            40 kB
Swap:                  8 kB
VmFlags: rd wr mr mw me ac sd
7f0000000000-7f0000001000 r--p 00000000 fe:00 1 /tmp/a: 7 kB
Rss:                   4 kB
VmFlags: rd mr lo
";

    #[test]
    fn mappings_are_read_whatever_their_files_are_called() {
        let (mut found, mut objects) = (Vec::new(), Vec::new());
        let seen = |mapping: &Mapping, object| {
            found.push(mapping.clone());
            objects.push(object);
        };
        parse(TEXT.as_bytes(), seen).expect("bytes can be read");
        assert_eq!(objects, [None, Some((0xfe << 32, 1))]);
        assert_eq!(found.len(), 2);
        let heap = &found[0];
        assert_eq!((heap.start, heap.end), (0x55d0_c8a0_0000, 0x55d0_c8a2_1000));
        assert_eq!((heap.resident_bytes, heap.accessed_bytes, heap.swap_bytes), (40 << 10, 12 << 10, 8 << 10));
        assert_eq!(heap.shared_bytes, 12 << 10);
        assert!(heap.reclaimable && !found[1].reclaimable);
        assert_eq!(
            Sums::of(&found),
            Sums { resident_bytes: 44 << 10, accessed_bytes: 12 << 10, anonymous_bytes: 40 << 10, swap_bytes: 8 << 10 }
        );
    }

    #[test]
    fn this_process_has_mappings_and_no_process_has_none() {
        let sums = Sums::of(&mappings(std::process::id()).expect("our own"));
        assert!(sums.resident_bytes > 0 && sums.anonymous_bytes <= sums.resident_bytes);
        assert_eq!(mappings(u32::MAX).expect_err("no process").kind(), io::ErrorKind::NotFound);
    }
}
