//! How a page comes in.
//!
//! ```
//! use refault_core::policy::Admission;
//! use refault_core::{PageType, Shadow};
//!
//! let refault = Admission::fault(PageType::Anon).with_shadow(Some(Shadow(1)));
//! assert!(refault.in_fault && refault.shadow.is_some());
//! let written_over = Admission::overwrite(PageType::File).with_shadow(Some(Shadow(1)));
//! assert!(written_over.shadow.is_none());
//! ```

use crate::page::{LruvecId, PageType, Shadow};

/// What the program has said about the order in which it accesses the range of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessPattern {
    /// Nothing: it may be found out.
    #[default]
    Unknown,
    /// From beginning to end, again and again.
    Cyclic,
    /// Something else (sequential once, random): nothing needs to be found out.
    Other,
}

/// How a page comes in. Made by [`Admission::fault`], [`Admission::read`] or [`Admission::overwrite`].
#[derive(Clone, Copy, Debug)]
pub struct Admission {
    /// Anonymous or file.
    pub page_type: PageType,
    /// The lruvec the page is charged to.
    pub lruvec: LruvecId,
    /// The page is brought in by a page fault on a mapping with recency.
    pub in_fault: bool,
    /// The insertion overwrites the slot: the shadow is lost without being looked at.
    pub overwrites: bool,
    /// The page keeps its swap slot (it is in the swap cache). False on synchronous swap devices.
    pub keeps_slot: bool,
    /// What the slot held, if the page was evicted before.
    pub shadow: Option<Shadow>,
    /// What the program has said about its accesses.
    pub pattern: AccessPattern,
    /// Where the page lies, in pages, where ids do not follow addresses or offsets: neighbours have neighbouring
    /// places, and what is far apart has places far apart. `None`: the id says it.
    pub place: Option<u64>,
    /// Bytes of what comes in: a page's, or those of an object that comes and goes whole, at least 1.
    pub bytes: u64,
}

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

impl Admission {
    /// By a page fault, into lruvec 0, without a shadow.
    pub const fn fault(page_type: PageType) -> Admission {
        Admission {
            page_type,
            lruvec: 0,
            in_fault: true,
            overwrites: false,
            keeps_slot: false,
            shadow: None,
            pattern: AccessPattern::Unknown,
            place: None,
            bytes: PAGE_BYTES,
        }
    }

    /// By a read through a file descriptor, or ahead of one, into lruvec 0, without a shadow.
    pub const fn read(page_type: PageType) -> Admission {
        Admission { in_fault: false, ..Admission::fault(page_type) }
    }

    /// By a write through a file descriptor of the whole page, into lruvec 0: what the slot held is lost.
    pub const fn overwrite(page_type: PageType) -> Admission {
        Admission { overwrites: true, ..Admission::read(page_type) }
    }

    /// With what the page's slot held. An overwriting admission stays without.
    pub const fn with_shadow(self, shadow: Option<Shadow>) -> Admission {
        if self.overwrites { self } else { Admission { shadow, ..self } }
    }

    /// Charged to an lruvec.
    pub const fn in_lruvec(self, lruvec: LruvecId) -> Admission {
        Admission { lruvec, ..self }
    }

    /// The page keeps its swap slot.
    pub const fn keeping_slot(self, keeps_slot: bool) -> Admission {
        Admission { keeps_slot, ..self }
    }

    /// With where the page lies, because its id does not say it.
    pub const fn at(self, place: u64) -> Admission {
        Admission { place: Some(place), ..self }
    }

    /// Of an object of this size. Policies that know sizes weigh by it; the others take it for one page.
    pub const fn of_bytes(self, bytes: u64) -> Admission {
        Admission { bytes: if bytes == 0 { 1 } else { bytes }, ..self }
    }

    /// Pages of 4 KiB that the bytes are, with a fraction; 1 for a page.
    pub fn pages(&self) -> f64 {
        self.bytes as f64 / PAGE_BYTES as f64
    }

    /// With what the program has said about its accesses.
    pub const fn with_pattern(self, pattern: AccessPattern) -> Admission {
        Admission { pattern, ..self }
    }
}
