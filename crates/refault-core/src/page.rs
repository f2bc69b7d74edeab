//! The words that policies and front-ends exchange about a page.
//!
//! ```
//! use refault_core::{PageType, Shadow};
//!
//! assert_eq!(PageType::Anon.other(), PageType::File);
//! assert_eq!([0; 2][PageType::File.index()], 0);
//! assert_ne!(Shadow::NONE, Shadow(1));
//! ```

/// Dense index of a page, chosen by the front-end: `0..pages`. It names the *slot* (a file offset or a virtual
/// page with its swap slot). So a page that is evicted and brought back has the same id.
pub type PageId = u32;

/// No page: the end of a list. Front-ends may use ids up to `NO_PAGE - 1`.
pub const NO_PAGE: PageId = u32::MAX;

/// Index of an lruvec, the reclaim state of one (memory cgroup, node) pair. A front-end without cgroups uses 0.
pub type LruvecId = u16;

/// Which list type a page belongs to, decided by being swap-backed, not by being mapped (spec: overview §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum PageType {
    /// Swap-backed: anonymous memory, tmpfs, shared memory.
    Anon = 0,
    /// Everything else: file pages, lazily freed anonymous pages.
    File = 1,
}

impl PageType {
    /// Both types, in the order anon, file.
    pub const ALL: [PageType; 2] = [PageType::Anon, PageType::File];

    /// 0 for anon, 1 for file: the index used in every per-type array.
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The other type.
    #[inline]
    pub const fn other(self) -> PageType {
        match self {
            PageType::Anon => PageType::File,
            PageType::File => PageType::Anon,
        }
    }
}

/// The word a policy leaves in the slot of an evicted page, kept by the front-end and handed back when the page
/// returns. Its layout is the policy's own (spec: workingset §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shadow(pub u64);

impl Shadow {
    /// No entry: what policies without a memory of evicted pages leave. Every real entry has its lowest bit set.
    pub const NONE: Shadow = Shadow(0);
}
