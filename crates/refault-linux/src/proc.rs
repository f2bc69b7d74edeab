//! Files of `/proc`, read without libc, and what their lines say.
//!
//! Cost: the time in which the kernel writes them, a microsecond per mapping and some ten for the rest. Reading takes
//! two calls more than the kernel needs to hand the text out. Source: proc(5).
//!
//! ```
//! use refault_linux::proc;
//!
//! let text = proc::read(proc::MAPS).expect("a kernel with /proc");
//! let code = proc::read as usize;
//! assert!(proc::mappings(&text).any(|((start, end), _)| (start..end).contains(&code)));
//! ```

use alloc::ffi::CString;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ffi::CStr;

use crate::flags::O_RDONLY;
use crate::sys;

/// Free bytes before each read: the kernel hands out a page at most at a time, so that what is larger makes more calls.
const MIN_FREE: usize = 4096;

/// The mappings of this process.
pub const MAPS: &CStr = c"/proc/self/maps";
/// Numbers, memory and tracer of this process.
pub const STATUS: &CStr = c"/proc/self/status";
/// The mappings of this process, with what is in memory of each.
pub const SMAPS: &CStr = c"/proc/self/smaps";
/// The sums of that over all mappings.
pub const SMAPS_ROLLUP: &CStr = c"/proc/self/smaps_rollup";

/// Start and end of some addresses.
pub type Span = (usize, usize);

/// All of a file; `None` if it cannot be opened or read to its end. Bytes that are no UTF-8, as names of files may
/// have, are replaced.
pub fn read(path: &CStr) -> Option<String> {
    let descriptor = sys::open(path, O_RDONLY);
    if descriptor < 0 {
        return None;
    }
    // No page of it is touched before the kernel writes to it.
    let mut text = Vec::with_capacity(2 * MIN_FREE);
    let is_whole = loop {
        text.reserve(MIN_FREE);
        let read = sys::read(descriptor as i32, text.spare_capacity_mut());
        if read <= 0 {
            break read == 0;
        }
        // SAFETY: this many bytes were written.
        unsafe { text.set_len(text.len() + read as usize) };
    };
    // SAFETY: it was opened here.
    unsafe { sys::close(descriptor as i32) };
    let lossy = |error: alloc::string::FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
    is_whole.then(|| String::from_utf8(text).unwrap_or_else(lossy))
}

/// The front of a file in a buffer of the caller's, for code that may not allocate; `None` if it cannot be read. The
/// kernel writes at most a page at once.
pub fn read_into<'a>(path: &CStr, buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let descriptor = sys::open(path, O_RDONLY);
    if descriptor < 0 {
        return None;
    }
    // SAFETY: bytes that have values are bytes that may have none, and the kernel writes values.
    let free = unsafe { core::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), buffer.len()) };
    let read = sys::read(descriptor as i32, free);
    // SAFETY: it was opened here.
    unsafe { sys::close(descriptor as i32) };
    buffer.get(..usize::try_from(read).ok()?)
}

/// The addresses that a line of `maps`, or the first line of a mapping in `smaps`, begins with, and the rest of it.
pub fn mapping(line: &str) -> Option<(Span, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    Some(((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?), rest))
}

/// The mappings of a text as [`MAPS`] has it, with what stands behind the addresses.
pub fn mappings(text: &str) -> impl Iterator<Item = (Span, &str)> {
    text.lines().filter_map(mapping)
}

/// The mappings, as [`mappings()`] has them, that have no page in memory or in the kernel's swap, by the text of
/// [`SMAPS`].
pub fn empty_mappings(smaps: &str) -> impl Iterator<Item = (Span, &str)> {
    let mut found = None;
    smaps.lines().filter_map(move |line| {
        if let Some(size) = line.strip_prefix("Rss:") {
            found = found.filter(|_| size.trim() == "0 kB");
        } else if let Some(size) = line.strip_prefix("Swap:") {
            return found.take().filter(|_| size.trim() == "0 kB");
        } else if let Some(head) = mapping(line) {
            found = Some(head);
        }
        None
    })
}

/// The bytes that a line `Name:   12 kB` of `smaps`, `smaps_rollup` or `status` says; `None` if there is no such line.
pub fn kib_field(text: &[u8], name: &str) -> Option<u64> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))?;
    let digits = value.iter().skip_while(|byte| **byte == b' ' || **byte == b'\t').take_while(|b| b.is_ascii_digit());
    let kib = digits.fold(0u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0')));
    Some(kib.saturating_mul(1024))
}

/// A line of `status`: what stands behind its name, trimmed.
pub fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The process that a thread belongs to, by their numbers here.
pub fn process_of_thread(thread: i32) -> Option<i32> {
    let path = CString::new(format!("/proc/{thread}/status")).ok()?;
    status_field(&read(&path)?, "Tgid")?.parse().ok()
}

/// The number of a field of `stat`, counted from 1 as proc(5) does; it must stand behind the name, from the fourth on.
/// `None` if it is not there or no number.
pub fn stat_field<T: core::str::FromStr>(stat: &[u8], number: usize) -> Option<T> {
    let field = stat_fields(stat)?.nth(number.checked_sub(STATE)?)?;
    core::str::from_utf8(field).ok()?.trim_end().parse().ok()
}

/// The letter of a process's state by its `stat`: `Z` has ended and was not waited for.
pub fn stat_state(stat: &[u8]) -> Option<u8> {
    stat_fields(stat)?.next()?.first().copied()
}

/// The number of the field that holds the state.
const STATE: usize = 3;

/// The fields of `stat` from the state on: the name before them stands in parentheses and may hold anything,
/// parentheses included.
fn stat_fields(stat: &[u8]) -> Option<impl Iterator<Item = &[u8]>> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    Some(stat.get(end + 2..)?.split(|byte| *byte == b' '))
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn files_are_read_to_their_ends() {
        // More than the kernel hands out at once.
        let text = read(SMAPS).expect("it is there");
        assert!(text.len() > 3 * MIN_FREE && text.ends_with('\n') && text.contains("VmFlags"));
        // SAFETY: touches no memory.
        let thread = unsafe { sys::call(crate::calls::SYS_gettid, [0; 6]) };
        assert_eq!(process_of_thread(thread as i32), Some(sys::process_id()));
        assert!(read(STATUS).is_some_and(|status| status.contains("\nTracerPid:")));
        assert_eq!(read(c"/proc/self/none"), None);
        // It opens and cannot be read.
        assert_eq!(read(c"/proc/self"), None);
    }

    #[test]
    fn names_that_are_no_text_are_no_reason_to_read_nothing() {
        let directory = std::env::temp_dir().join(format!("refault-names-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let path = directory.join("file");
        std::fs::write(&path, b"a\xffb\n").expect("a file");
        let name = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no zeros");
        assert_eq!(read(&name).as_deref(), Some("a\u{fffd}b\n"));
        std::fs::remove_dir_all(&directory).expect("they are there");
    }

    #[test]
    fn empty_is_what_has_no_page_anywhere() {
        let mapping = |head: &str, rss: u32, swap: u32| {
            format!(
                "{head} ---p 0 00:00 0 \nSize:  8 kB\nRss:   {rss} kB\nPss:   0 kB\nSwap:  {swap} kB\nVmFlags: mr\n"
            )
        };
        let text = mapping("1000-3000", 0, 0) + &mapping("3000-5000", 4, 0) + &mapping("5000-7000", 0, 4);
        let text = text + &mapping("7000-9000", 0, 0);
        let found: Vec<_> = empty_mappings(&text).map(|((start, _), rest)| (start, rest.trim_end())).collect();
        assert_eq!(found, [(0x1000, "---p 0 00:00 0"), (0x7000, "---p 0 00:00 0")]);
    }

    #[test]
    fn a_line_has_addresses_and_more() {
        let text = "1000-3000 r-xp 00000000 08:01 17   /a b\nffffffffff600000-ffffffffff601000 --xp 0 0 0 [vsyscall]\n";
        let all: Vec<_> = mappings(text).collect();
        assert_eq!(all[0], ((0x1000, 0x3000), "r-xp 00000000 08:01 17   /a b"));
        assert_eq!(all[1].0, (0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000));
        let text = read(MAPS).expect("it is there");
        assert!(mappings(&text).count() > 3);
    }

    #[test]
    fn fields_are_found_by_their_names() {
        let status = "Name:\ta\nState:\tR (running)\nVmRSS:\t    40 kB\nTracerPid:\t0\nNSpid:\t7\t3\n";
        assert_eq!((status_field(status, "TracerPid"), status_field(status, "NSpid")), (Some("0"), Some("7\t3")));
        assert_eq!((status_field(status, "Tracer"), status_field(status, "State")), (None, Some("R (running)")));
        assert_eq!(
            (kib_field(status.as_bytes(), "VmRSS"), kib_field(status.as_bytes(), "VmHWM")),
            (Some(40 << 10), None)
        );
        let mut buffer = [0; 2048];
        let rollup = read_into(SMAPS_ROLLUP, &mut buffer).expect("it is there");
        assert!(kib_field(rollup, "Rss").is_some_and(|bytes| bytes > 0));
        assert_eq!(read_into(c"/proc/self/none", &mut buffer), None);
    }

    #[test]
    fn fields_of_stat_are_counted_behind_a_name_that_may_hold_anything() {
        let stat = b"7 (a) (b 1) S 3 7 7 0 -1 99\n";
        assert_eq!((stat_state(stat), stat_field(stat, 4), stat_field(stat, 5)), (Some(b'S'), Some(3), Some(7)));
        assert_eq!((stat_field(stat, 8), stat_field(stat, 9)), (Some(-1), Some(99)));
        assert_eq!(
            (stat_field::<u64>(stat, 10), stat_field::<u64>(stat, 2), stat_field::<u64>(stat, 3)),
            (None, None, None)
        );
        for broken in [&b""[..], b"7 (half a line", b"7 (a)", b"7 (a) "] {
            assert_eq!(stat_field::<u64>(broken, 4), None);
        }
        assert_eq!(stat_state(b"7 (a)"), None);
    }
}
