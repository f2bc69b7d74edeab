//! Which parts of the page numbers are accessed when, as a matrix of counts.
//!
//! Columns are equal spans of accesses. Rows are *regions* of neighbouring page numbers that occur in the trace, so
//! that the gaps of a sparse address space take no room; regions double in size until there are few enough. Anonymous
//! and file pages never share a row.
//!
//! Cost: one addition per access; 12 bytes per page and 8 bytes per cell of the finest matrix.
//!
//! ```
//! use refault_trace::Source;
//! use refault_trace::statistics::{Resolution, TraceStatistics};
//!
//! let source = Source::workload("cyclic:pages=64,accesses=640".parse()?);
//! let heat = TraceStatistics::of(&source, Resolution::default(), |_part_done| {})?.heat_map;
//! let accesses: u64 = heat.rows.iter().flat_map(|row| &row.counts).sum();
//! assert_eq!(accesses, 640);
//! # Ok::<(), refault_trace::TraceError>(())
//! ```

use std::collections::HashMap;

/// Regions kept while counting, at most.
const MAX_REGIONS: usize = 4096;
/// Pages of the smallest region, as a power of two.
const FIRST_SHIFT: u32 = 0;

/// A row of a [`HeatMap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatRow {
    /// File pages rather than anonymous ones.
    pub file: bool,
    /// Lowest page number the row stands for.
    pub first_page: u64,
    /// Highest page number the row stands for. Pages between that do not occur have no row.
    pub last_page: u64,
    /// Accesses in each column.
    pub counts: Vec<u64>,
}

/// Accesses by page number and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeatMap {
    /// Accesses a column spans; the last one may span fewer.
    pub accesses_per_column: u64,
    /// Rows by ascending page number, anonymous pages first.
    pub rows: Vec<HeatRow>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Region {
    file: bool,
    number: u64,
}

/// Counts accesses by page id.
pub(crate) struct HeatMapBuilder {
    columns: usize,
    shift: u32,
    regions: HashMap<Region, u32, foldhash::fast::FixedState>,
    /// Region index of each page id.
    region_of: Vec<u32>,
    /// Page number and type of each page id.
    pages: Vec<(u64, bool)>,
    counts: Vec<u64>,
}

impl HeatMapBuilder {
    pub(crate) fn new(columns: usize) -> HeatMapBuilder {
        HeatMapBuilder {
            columns,
            shift: FIRST_SHIFT,
            regions: HashMap::default(),
            region_of: Vec::new(),
            pages: Vec::new(),
            counts: Vec::new(),
        }
    }

    /// Counts an access in a column. Ids come in ascending order of their first access.
    #[inline]
    pub(crate) fn record(&mut self, id: u32, page: u64, file: bool, column: usize) {
        if id as usize == self.region_of.len() {
            self.add_page(page, file);
        }
        self.counts[self.region_of[id as usize] as usize * self.columns + column] += 1;
    }

    fn add_page(&mut self, page: u64, file: bool) {
        self.pages.push((page, file));
        let region = self.region(page, file);
        self.region_of.push(region);
        while self.regions.len() > MAX_REGIONS {
            self.coarsen();
        }
    }

    fn region(&mut self, page: u64, file: bool) -> u32 {
        let next = self.regions.len() as u32;
        let index = *self.regions.entry(Region { file, number: page >> self.shift }).or_insert(next);
        if index == next {
            self.counts.resize(self.counts.len() + self.columns, 0);
        }
        index
    }

    /// Doubles the regions and adds up the counts of those that fall together.
    fn coarsen(&mut self) {
        self.shift += 1;
        let finer = std::mem::take(&mut self.regions);
        let finer_counts = std::mem::take(&mut self.counts);
        let mut coarse_of = vec![0; finer.len()];
        for (region, index) in finer {
            let coarse = self.region(region.number >> 1 << self.shift, region.file);
            coarse_of[index as usize] = coarse;
            let from = &finer_counts[index as usize * self.columns..][..self.columns];
            let to = &mut self.counts[coarse as usize * self.columns..][..self.columns];
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
        for region in &mut self.region_of {
            *region = coarse_of[*region as usize];
        }
    }

    /// The map with about `rows` rows, never more than one beyond.
    pub(crate) fn finish(self, rows: usize, accesses_per_column: u64) -> HeatMap {
        let mut extents: HashMap<u32, (u64, u64)> = HashMap::new();
        for ((page, _), region) in self.pages.iter().zip(&self.region_of) {
            let extent = extents.entry(*region).or_insert((*page, *page));
            *extent = (extent.0.min(*page), extent.1.max(*page));
        }
        let mut regions: Vec<_> = self.regions.iter().collect();
        regions.sort_unstable();
        let in_row = regions.len().div_ceil(rows.max(1)).max(1);
        let mut map = HeatMap { accesses_per_column, rows: Vec::new() };
        for same_type in regions.chunk_by(|(a, _), (b, _)| a.file == b.file) {
            for group in same_type.chunks(in_row) {
                let extents = group.iter().map(|(_, index)| extents[*index]);
                let (first_page, last_page) =
                    extents.fold((u64::MAX, 0), |(first, last), extent| (first.min(extent.0), last.max(extent.1)));
                let mut counts = vec![0; self.columns];
                for (_, index) in group {
                    let from = &self.counts[**index as usize * self.columns..][..self.columns];
                    counts.iter_mut().zip(from).for_each(|(to, from)| *to += from);
                }
                map.rows.push(HeatRow { file: group[0].0.file, first_page, last_page, counts });
            }
        }
        map
    }
}
