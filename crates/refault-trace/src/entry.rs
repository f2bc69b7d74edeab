//! One access, as every format is decoded to and as the `.u64` format stores it.
//!
//! ```
//! use refault_trace::{Entry, Kind};
//!
//! let entry = Entry::new(42, Kind::Anon, true);
//! assert_eq!((entry.page(), entry.kind(), entry.write()), (42, Some(Kind::Anon), true));
//! ```

/// What kind of page an access touches and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Anonymous memory.
    Anon = 0,
    /// A file page by `read()` or `write()`.
    Fd = 1,
    /// A file page through a mapping. The same page number as with [`Kind::Fd`] is the same page.
    Mapped = 2,
}

impl Kind {
    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Anon => "anon",
            Kind::Fd => "fd",
            Kind::Mapped => "mapped",
        }
    }

    /// The kind with a name of the command line.
    pub fn from_name(name: &str) -> Option<Kind> {
        [Kind::Anon, Kind::Fd, Kind::Mapped].into_iter().find(|kind| kind.name() == name)
    }
}

/// An access: page number in bits 0–55, write in bit 56, kind in bits 57–58, bits 59–63 zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Entry(pub u64);

impl Entry {
    /// The largest page number.
    pub const MAX_PAGE: u64 = (1 << 56) - 1;
    /// The write bit.
    pub const WRITE: u64 = 1 << 56;
    /// Where the kind starts.
    pub const KIND_SHIFT: u32 = 57;

    /// An access to `page`, which must be at most [`Entry::MAX_PAGE`] (higher bits are dropped).
    #[inline]
    pub const fn new(page: u64, kind: Kind, write: bool) -> Entry {
        Entry((page & Self::MAX_PAGE) | ((write as u64) << 56) | ((kind as u64) << Self::KIND_SHIFT))
    }

    /// The page number.
    #[inline]
    pub const fn page(self) -> u64 {
        self.0 & Self::MAX_PAGE
    }

    /// Whether the page is written.
    #[inline]
    pub const fn write(self) -> bool {
        self.0 & Self::WRITE != 0
    }

    /// The kind; `None` for the undefined value 3 or if a reserved bit is set.
    #[inline]
    pub const fn kind(self) -> Option<Kind> {
        match self.0 >> Self::KIND_SHIFT {
            0 => Some(Kind::Anon),
            1 => Some(Kind::Fd),
            2 => Some(Kind::Mapped),
            _ => None,
        }
    }

    /// The same access taken for another kind: what `--kind` does to formats that do not say.
    #[inline]
    pub const fn with_kind(self, kind: Kind) -> Entry {
        Entry::new(self.page(), kind, self.write())
    }
}
