//! How much of this process's memory others have too, as the kernel counts it.
//!
//! A child of `fork` shares its parent's pages until one of the two writes to them, which nobody tells an unprivileged
//! process. The kernel says what a process has of anonymous memory, and what that is if each page is divided by those
//! that share it: the difference is what others make up for. A page that two share counts half in it, one that many
//! share almost whole, so it tells how many pages are shared within a factor of two; that they are dirty, which clean
//! pages of files are not, tells it exactly where there is no other shared memory.
//!
//! Cost: a walk through the page tables, some 0.1 ms per 10 MiB. Source: proc_pid_smaps(5), `smaps_rollup`.

use crate::sys::{self, nr};

/// What this process shares. In pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    /// Anonymous memory, shared or not.
    pub(crate) anonymous: i64,
    /// Part of it that others have too.
    pub(crate) shared: i64,
    /// What the others make up for of that, if each page is divided by those that share it.
    pub(crate) others: i64,
}

/// What this process shares; `None` if the kernel does not say.
pub(crate) fn common() -> Option<Common> {
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
    parse(text.get(..usize::try_from(read).ok()?)?)
}

fn parse(text: &[u8]) -> Option<Common> {
    let anonymous = pages(text, b"\nAnonymous:")?;
    let others = (anonymous - pages(text, b"\nPss_Anon:")?).max(0);
    Some(Common { anonymous, shared: pages(text, b"\nShared_Dirty:")?.min(2 * others), others })
}

/// The pages of a line.
fn pages(text: &[u8], key: &[u8]) -> Option<i64> {
    let after = text.windows(key.len()).position(|window| window == key)? + key.len();
    let digits = text[after..].iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
    let kib = digits.fold(0i64, |number, digit| number.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    Some(kib / (crate::PAGE as i64 >> 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_share_is_told_from_what_many_do_and_from_shared_memory() {
        let text = |pss: u32, dirty: u32| {
            format!(
                "55d-7ff ---p 0 00:00 0 [rollup]\nRss: 990 kB\nPss_Anon:  {pss} kB\nShared_Clean: 800 kB\nShared_Dirty: {dirty} kB\nAnonymous:   400 kB\n"
            )
        };
        let of = |pss, dirty| parse(text(pss, dirty).as_bytes());
        // 200 KiB that two share; that four share; and the first with 4 MiB of shared memory beside.
        assert_eq!(of(300, 200), Some(Common { anonymous: 100, shared: 50, others: 25 }));
        assert_eq!(of(252, 200), Some(Common { anonymous: 100, shared: 50, others: 37 }));
        assert_eq!(of(300, 4296), Some(Common { anonymous: 100, shared: 50, others: 25 }));
        assert_eq!(parse(b"Rss: 1 kB\n"), None);
        assert!(common().is_some_and(|common| common.anonymous > 0 && common.shared <= common.anonymous));
    }
}
