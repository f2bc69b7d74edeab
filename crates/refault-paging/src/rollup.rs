//! How much of this process's memory others have too, as the kernel counts it.
//!
//! A child of `fork` shares its parent's pages until one of the two writes to them, which nobody tells an unprivileged
//! process. Anonymous pages are dirty, those of files that are mapped by several are clean, so what is shared and dirty is
//! what was inherited and not written since (and shared memory, which is little as a rule).
//!
//! Cost: a walk through the page tables, some 0.1 ms per 10 MiB. Source: proc_pid_smaps(5), `smaps_rollup`.

use crate::sys::{self, nr};

/// Pages of this process that are shared and dirty; `None` if the kernel does not say.
pub(crate) fn shared_pages() -> Option<i64> {
    let mut text = [0u8; 2048];
    // SAFETY: opens a file: O_CLOEXEC.
    let file = unsafe { sys::call(2, [c"/proc/self/smaps_rollup".as_ptr() as usize, 0o2_000_000, 0, 0, 0, 0]) };
    if file < 0 {
        return None;
    }
    // SAFETY: reads into `text`, and closes what was opened above.
    let read = unsafe {
        let read = sys::call(nr::READ, [file as usize, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
        sys::call(nr::CLOSE, [file as usize, 0, 0, 0, 0, 0]);
        read
    };
    shared_dirty(text.get(..usize::try_from(read).ok()?)?)
}

/// The pages of the line `Shared_Dirty`.
fn shared_dirty(text: &[u8]) -> Option<i64> {
    const KEY: &[u8] = b"\nShared_Dirty:";
    let after = text.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let digits = text[after..].iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
    let kib = digits.fold(0i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    Some(kib / (crate::PAGE as i64 >> 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_found() {
        let text = b"55d-7ff ---p 0 00:00 0 [rollup]\nRss: 880 kB\nShared_Clean: 800 kB\nShared_Dirty:        44 kB\nPrivate: 1 kB\n";
        assert_eq!((shared_dirty(text), shared_dirty(b"Rss: 1 kB\n")), (Some(11), None));
        assert!(shared_pages().is_some());
    }
}
