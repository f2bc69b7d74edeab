//! Which pages a trace has, and how page numbers become dense page ids.
//!
//! Ids keep the order of addresses: first the anonymous pages, then, from the next 2 MiB boundary, the file pages.
//! Each type is one mapping from its lowest to its highest page number; a page's *region* is its 2 MiB of addresses.
//! If the numbers of a type are dense enough, its ids are the page numbers less a constant; otherwise they are ranks
//! (`sparse`), and addresses are looked up.
//!
//! Cost: one bit per page number near a used one, one hash look-up per access and pass at worst.
//!
//! ```
//! use refault_sim::LayoutBuilder;
//! use refault_trace::{Entry, Kind};
//!
//! let entries = [9, 5, 9].map(|page| Entry::new(page, Kind::Mapped, false));
//! let mut builder = LayoutBuilder::new();
//! builder.observe(&entries);
//! let layout = builder.finish()?;
//! let mut accesses = Vec::new();
//! layout.translate(&entries, &mut accesses);
//! assert_eq!((layout.distinct_pages(), accesses.len()), (2, 3));
//! assert_eq!(accesses[0].page(), accesses[2].page());
//! # Ok::<(), refault_sim::layout::LayoutError>(())
//! ```

mod page_set;

use std::ops::Range;

use refault_core::{PageId, PageType};
use refault_trace::{Entry, Kind};

use page_set::{PageSet, Ranks};

/// Pages of a 2 MiB region.
pub const REGION_PAGES: u64 = 512;
/// A type is laid out densely while its span is at most this many times its distinct pages, plus a region.
const DENSE_FACTOR: u64 = 8;

/// Page numbers of a file or a disk: its first is a multiple of this (`refault_trace` gives ranges of 2^36 or 2^44 pages).
pub(crate) const FILE_PAGES: u64 = 1 << 36;

/// An access with its page id: the bits of an [`Entry`] with the id in place of the page number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Access(u64);

impl Access {
    /// Which page.
    #[inline]
    pub const fn page(self) -> PageId {
        self.0 as PageId
    }

    /// Whether it is written.
    #[inline]
    pub const fn write(self) -> bool {
        self.0 & Entry::WRITE != 0
    }

    /// Kind and write bit as an index: 0 and 1 anonymous memory read and written, 2 and 3 through a descriptor, 4 and 5
    /// through a file mapping.
    #[inline]
    pub(crate) const fn kind_bits(self) -> usize {
        (self.0 >> 56) as usize & 7
    }

    /// Whether the access goes through a file descriptor.
    #[inline]
    pub const fn is_fd(self) -> bool {
        self.0 & (3 << Entry::KIND_SHIFT) == (Kind::Fd as u64) << Entry::KIND_SHIFT
    }

    /// Anonymous, by descriptor, or through a file mapping.
    #[inline]
    pub const fn kind(self) -> Kind {
        match self.0 >> Entry::KIND_SHIFT {
            0 => Kind::Anon,
            1 => Kind::Fd,
            _ => Kind::Mapped,
        }
    }
}

/// The first pass over a trace.
#[derive(Default)]
pub struct LayoutBuilder {
    anon: PageSet,
    file: PageSet,
    accesses: u64,
    fd_accesses: u64,
    mapped_accesses: u64,
    writes: u64,
    /// The largest window of readahead; 0: no page comes in that is not accessed.
    window: u64,
}

impl LayoutBuilder {
    /// An empty trace.
    pub fn new() -> LayoutBuilder {
        LayoutBuilder::default()
    }

    /// Looks at the next accesses. Entries of undefined kind count as mapped file pages.
    pub fn observe(&mut self, entries: &[Entry]) {
        self.accesses += entries.len() as u64;
        for entry in entries {
            self.writes += u64::from(entry.write());
            match entry.kind() {
                Some(Kind::Anon) => self.anon.insert(entry.page()),
                Some(Kind::Fd) => {
                    self.fd_accesses += 1;
                    self.file.insert(entry.page());
                }
                _ => {
                    self.mapped_accesses += 1;
                    self.file.insert(entry.page());
                }
            }
        }
    }

    /// The mapping of a type covers these page numbers, whether they are accessed or not. Without it, a mapping reaches
    /// from the lowest page accessed to the highest, which is all that a trace tells.
    pub fn covers(&mut self, page_type: PageType, pages: Range<u64>) {
        let set = if page_type == PageType::Anon { &mut self.anon } else { &mut self.file };
        set.cover(pages);
    }

    /// Pages of files that are not accessed may come in too, by readahead in windows of at most this many pages: they have
    /// ids beside those of the pages that are accessed.
    pub fn reads_ahead(&mut self, window: u32) {
        self.window = u64::from(window);
    }

    /// The layout. Fails if there are more pages than ids (2^32 - 512).
    pub fn finish(mut self) -> Result<Layout, LayoutError> {
        let distinct_file = self.file.distinct();
        if self.window > 0 && distinct_file > 0 {
            // A window begins behind the one before it, which began at or before the page that was accessed.
            self.file.add_neighbours(self.window / 2, 2 * self.window, FILE_PAGES);
        }
        let pages = self.anon.distinct() + self.file.distinct();
        let anon = Placement::new(self.anon, 0);
        let file_base = anon.end().next_multiple_of(REGION_PAGES);
        let file = Placement { distinct: distinct_file, ..Placement::new(self.file, file_base) };
        let ids = file.end();
        if ids > u64::from(u32::MAX) - REGION_PAGES {
            return Err(LayoutError { pages });
        }
        Ok(Layout {
            anon,
            file,
            ids: ids as usize,
            file_base: file_base as PageId,
            accesses: self.accesses,
            fd_accesses: self.fd_accesses,
            mapped_accesses: self.mapped_accesses,
            writes: self.writes,
        })
    }
}

/// More distinct pages than page ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayoutError {
    /// Distinct pages found.
    pub pages: u64,
}

impl std::fmt::Display for LayoutError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} distinct pages are more than the 4 billion this build can address", self.pages)
    }
}

impl std::error::Error for LayoutError {}

/// An entry has a page that the layout does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unobserved;

impl std::fmt::Display for Unobserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a page that the first pass over the trace did not see")
    }
}

impl std::error::Error for Unobserved {}

/// Where the pages of one type lie.
#[derive(Debug, Default)]
struct Placement {
    distinct: u64,
    first_id: u64,
    /// Dense: the page number of `first_id`, a multiple of [`REGION_PAGES`].
    origin: u64,
    /// The page number after the last.
    page_end: u64,
    /// Lowest page number.
    page_start: u64,
    ids: u64,
    sparse: Option<Sparse>,
}

#[derive(Debug)]
struct Sparse {
    /// Page number of each id, ascending.
    pages: Vec<u64>,
    ranks: Ranks,
}

impl Placement {
    fn new(set: PageSet, first_id: u64) -> Placement {
        let distinct = set.distinct();
        if distinct == 0 {
            return Placement { first_id, ..Placement::default() };
        }
        let mapped = set.span();
        let origin = mapped.start / REGION_PAGES * REGION_PAGES;
        let span = mapped.end - origin;
        let dense = span <= distinct.saturating_mul(DENSE_FACTOR) + REGION_PAGES;
        let (ids, sparse) = if dense {
            (span, None)
        } else {
            let (pages, ranks) = set.into_ranks();
            (distinct, Some(Sparse { pages, ranks }))
        };
        let (page_start, page_end) = (mapped.start, mapped.end);
        Placement { distinct, first_id, origin, page_start, page_end, ids, sparse }
    }

    fn end(&self) -> u64 {
        self.first_id + self.ids
    }

    /// The id of a page; `None` if it cannot have been observed.
    #[inline]
    fn id(&self, page: u64) -> Option<u64> {
        match &self.sparse {
            None => {
                let offset = page.wrapping_sub(self.origin);
                (offset < self.ids).then_some(offset + self.first_id)
            }
            Some(sparse) => sparse.ranks.rank(page).map(|rank| self.first_id + u64::from(rank)),
        }
    }

    /// Address of a page number, before the types are told apart.
    fn offset(&self, page: u64) -> u64 {
        if self.sparse.is_some() { page } else { page - self.origin }
    }

    fn page(&self, id: u64) -> u64 {
        match &self.sparse {
            None => id - self.first_id + self.origin,
            Some(sparse) => sparse.pages[(id - self.first_id) as usize],
        }
    }
}

/// Which pages a trace has and where they lie; counts of the first pass.
#[derive(Debug)]
pub struct Layout {
    anon: Placement,
    file: Placement,
    ids: usize,
    file_base: PageId,
    accesses: u64,
    fd_accesses: u64,
    mapped_accesses: u64,
    writes: u64,
}

impl Layout {
    /// Page ids are below this. Some of them may not occur in the trace.
    pub fn ids(&self) -> usize {
        self.ids
    }

    /// Ids from here on are file pages.
    pub fn file_base(&self) -> PageId {
        self.file_base
    }

    /// Distinct pages of both types.
    pub fn distinct_pages(&self) -> u64 {
        self.anon.distinct + self.file.distinct
    }

    /// Distinct anonymous pages.
    pub fn distinct_anon(&self) -> u64 {
        self.anon.distinct
    }

    /// Distinct file pages.
    pub fn distinct_file(&self) -> u64 {
        self.file.distinct
    }

    /// Accesses seen by the first pass.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Accesses by `read()` and `write()`.
    pub fn fd_accesses(&self) -> u64 {
        self.fd_accesses
    }

    /// Accesses through file mappings.
    pub fn mapped_accesses(&self) -> u64 {
        self.mapped_accesses
    }

    /// Writes of any kind.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Whether regions must be looked up because some type is sparse.
    pub fn is_sparse(&self) -> bool {
        self.anon.sparse.is_some() || self.file.sparse.is_some()
    }

    /// Whether the anonymous ids are ranks rather than addresses.
    pub fn is_anon_sparse(&self) -> bool {
        self.anon.sparse.is_some()
    }

    /// The page number of an id that occurs in the trace.
    pub fn page_number(&self, id: PageId) -> u64 {
        self.placement(id).page(u64::from(id))
    }

    /// The page number of every id; 0 for ids between the types, which do not occur.
    pub fn page_numbers(&self) -> Vec<u64> {
        let mut numbers = vec![0; self.ids];
        for placement in [&self.anon, &self.file] {
            for id in placement.first_id..placement.end() {
                numbers[id as usize] = placement.page(id);
            }
        }
        numbers
    }

    /// The addresses, in pages, of the mapping that holds an id: `start..end`, in the units of [`Layout::address`].
    pub fn mapping(&self, id: PageId) -> std::ops::Range<u64> {
        let placement = self.placement(id);
        let shift = self.address_shift(id);
        placement.offset(placement.page_start) + shift..placement.offset(placement.page_end) + shift
    }

    /// The address of an id, in pages; ascending with ids, unique over both types. Region = address / 512.
    /// Where nothing is sparse it is the id itself.
    pub fn address(&self, id: PageId) -> u64 {
        let placement = self.placement(id);
        placement.offset(placement.page(u64::from(id))) + self.address_shift(id)
    }

    /// Turns entries into accesses, appended to `out`.
    ///
    /// # Panics
    ///
    /// Where an entry has a page that was not observed; [`Layout::try_translate`] says so.
    pub fn translate(&self, entries: &[Entry], out: &mut Vec<Access>) {
        self.try_translate(entries, out).expect("every entry was observed");
    }

    /// Turns entries into accesses, appended to `out`. Fails, with `out` as it was, if an entry's page has no id: it was
    /// not observed. (Where ids are page numbers less a constant, pages between observed ones have ids too.)
    pub fn try_translate(&self, entries: &[Entry], out: &mut Vec<Access>) -> Result<(), Unobserved> {
        let flags = !Entry::MAX_PAGE;
        let before = out.len();
        let mut observed = true;
        if self.is_sparse() {
            out.extend(entries.iter().map(|e| {
                let placement = if e.0 >> Entry::KIND_SHIFT == 0 { &self.anon } else { &self.file };
                let id = placement.id(e.page());
                observed &= id.is_some();
                Access((e.0 & flags) | id.unwrap_or(0))
            }));
        } else {
            let dense = [&self.anon, &self.file].map(|p| (p.origin, p.first_id, p.ids));
            out.extend(entries.iter().map(|e| {
                let (origin, first_id, ids) = dense[usize::from(e.0 >> Entry::KIND_SHIFT != 0)];
                let offset = e.page().wrapping_sub(origin);
                observed &= offset < ids;
                Access((e.0 & flags) | (offset.wrapping_add(first_id) & Entry::MAX_PAGE))
            }));
        }
        if observed {
            return Ok(());
        }
        out.truncate(before);
        Err(Unobserved)
    }

    fn placement(&self, id: PageId) -> &Placement {
        if id < self.file_base { &self.anon } else { &self.file }
    }

    /// File addresses start above the anonymous ones, on a region boundary.
    fn address_shift(&self, id: PageId) -> u64 {
        if id < self.file_base { 0 } else { self.anon.offset(self.anon.page_end).next_multiple_of(REGION_PAGES) }
    }
}
