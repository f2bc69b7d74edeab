//! How much of this process's memory others have too, as the kernel counts it.
//!
//! A child of `fork` shares its parent's pages until one of the two writes to them. The kernel does not tell an
//! unprivileged process of such a write. It says what a process has of anonymous memory, and what that is if each page
//! is divided by those that share it. The difference is what others make up for. A page that two share counts half in
//! it, one that many share almost whole. So it tells how many pages are shared within a factor of two. That they are
//! dirty, which clean pages of files are not, tells it exactly where there is no other shared memory.
//!
//! Cost: a walk through the page tables, some 0.1 ms per 10 MiB. Source: proc_pid_smaps(5), `smaps_rollup`.

use refault_linux::{PAGE, proc};

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
    parse(proc::read_into(proc::SMAPS_ROLLUP, &mut [0; 2048])?)
}

fn parse(text: &[u8]) -> Option<Common> {
    let pages = |name| proc::kib_field(text, name).map(|bytes| (bytes / PAGE as u64) as i64);
    let anonymous = pages("Anonymous")?;
    let others = (anonymous - pages("Pss_Anon")?).max(0);
    Some(Common { anonymous, shared: pages("Shared_Dirty")?.min(2 * others), others })
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
