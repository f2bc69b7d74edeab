//! What can be told of a trace without a policy: how long, how many pages, of which kind, how soon they come again, and
//! where and when the accesses fall.
//!
//! Cost: a pass of some 50 to 100 nanoseconds per access, and some 40 bytes per page. Where the length is not known, a
//! second, much faster pass precedes it.
//!
//! ```
//! use refault_trace::Source;
//! use refault_trace::statistics::{Resolution, TraceStatistics};
//!
//! let source = Source::workload("zipf:theta=1,pages=100,accesses=5000".parse()?);
//! let statistics = TraceStatistics::of(&source, Resolution::default(), |_part_done| {})?;
//! assert_eq!(statistics.reads() + statistics.writes(), 5000);
//! # Ok::<(), refault_trace::TraceError>(())
//! ```

use crate::error::TraceError;
use crate::heat_map::{HeatMap, HeatMapBuilder};
use crate::page_ids::{MAX_PAGES, PageIds};
use crate::reader::{Details, Source, TimeSpan, UNKNOWN_BYTES};
use crate::remark::Reading;
use crate::reuse::{DistanceHistogram, ReuseDistances};
use crate::{Entry, Kind};

/// How fine the parts over time are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// Spans of time, at least 1.
    pub columns: usize,
    /// Rows of the heat map, about.
    pub rows: usize,
}

impl Default for Resolution {
    fn default() -> Resolution {
        Resolution { columns: 96, rows: 48 }
    }
}

/// Accesses of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindCount {
    /// Accesses that read.
    pub reads: u64,
    /// Accesses that write.
    pub writes: u64,
}

/// The pages in use at a point of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FootprintPoint {
    /// Accesses up to this point.
    pub accesses: u64,
    /// Distinct pages from the start up to this point.
    pub distinct_pages: u64,
    /// Distinct pages since the point before: the working set of that span.
    pub window_pages: u64,
}

/// What can be told of a trace by itself.
#[derive(Clone, Debug)]
pub struct TraceStatistics {
    /// Accesses.
    pub accesses: u64,
    /// Distinct pages of both types. A file page is the same whether read or mapped.
    pub distinct_pages: u64,
    /// Distinct anonymous pages.
    pub distinct_anon_pages: u64,
    /// Distinct file pages.
    pub distinct_file_pages: u64,
    /// Accesses by [`Kind`], in its order.
    pub kinds: [KindCount; 3],
    /// Lowest and highest page number.
    pub page_range: (u64, u64),
    /// How often each reuse distance occurs, exactly.
    pub reuse: DistanceHistogram,
    /// The pages in use over time.
    pub footprint: Vec<FootprintPoint>,
    /// Where and when the accesses fall.
    pub heat_map: HeatMap,
    /// Bytes that all accesses stand for together, if each says its size.
    pub bytes: Option<u64>,
    /// Time of the first and of the last access, if the trace says.
    pub time: Option<TimeSpan>,
    /// How the trace was understood.
    pub details: Details,
    /// What was left out or assumed, and what objects were taken for.
    pub reading: Reading,
}

impl TraceStatistics {
    /// Reads a trace and says what can be told. `progress` is called with the part done, from 0 to 1.
    ///
    /// # Errors
    /// The trace cannot be read, or has more than [`MAX_PAGES`] pages.
    pub fn of(source: &Source, resolution: Resolution, mut progress: impl FnMut(f64)) -> Result<Self, TraceError> {
        let (mut block, mut total) = (Vec::new(), source.open()?.total());
        let passes = if total.is_some() { 1.0 } else { 2.0 };
        if total.is_none() {
            let (mut reader, mut accesses) = (source.open()?, 0);
            loop {
                let read = reader.next_block(&mut block)?.len() as u64;
                if read == 0 {
                    break;
                }
                accesses += read;
                progress(reader.progress().unwrap_or(0.0) / passes);
            }
            total = Some(accesses);
        }
        let mut builder = StatisticsBuilder::new(total.unwrap_or(0), resolution);
        let mut reader = source.open()?;
        loop {
            if reader.read_block(&mut block)? == 0 {
                let mut statistics = builder.finish();
                statistics.details = reader.details();
                statistics.reading = Reading::of(&*reader);
                return Ok(statistics);
            }
            let time = reader.block_time();
            builder.time = match (builder.time, time) {
                (Some(so_far), Some(time)) => Some(TimeSpan { last_ns: time.last_ns, ..so_far }),
                (so_far, time) => so_far.or(time),
            };
            // A sum over some of the accesses would be wrong.
            let known = |bytes: &u64| Some(*bytes).filter(|bytes| *bytes != UNKNOWN_BYTES);
            let sum =
                |bytes: &[u64]| bytes.iter().try_fold(0_u64, |sum, bytes| Some(sum.saturating_add(known(bytes)?)));
            let so_far = if builder.accesses == 0 { Some(0) } else { builder.bytes };
            builder.bytes =
                so_far.zip(reader.block_bytes().and_then(sum)).map(|(so_far, here)| so_far.saturating_add(here));
            if !builder.observe(&block) {
                let reason = format!("has more than {MAX_PAGES} distinct pages, which is all this program can number");
                return Err(TraceError::unsuitable(source.name().as_ref(), reason));
            }
            progress((passes - 1.0 + reader.progress().unwrap_or(0.0)) / passes);
        }
    }

    /// All reads.
    pub fn reads(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.reads).sum()
    }

    /// All writes.
    pub fn writes(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.writes).sum()
    }
}

/// Collects statistics from entries.
pub struct StatisticsBuilder {
    resolution: Resolution,
    accesses_per_column: u64,
    accesses: u64,
    ids: PageIds,
    distinct: [u64; 2],
    kinds: [KindCount; 3],
    page_range: (u64, u64),
    reuse: ReuseDistances,
    histogram: DistanceHistogram,
    /// Column of each page's last access.
    last_column: Vec<u32>,
    window_pages: u64,
    footprint: Vec<FootprintPoint>,
    heat_map: HeatMapBuilder,
    pages: Vec<u32>,
    distances: Vec<u32>,
    bytes: Option<u64>,
    time: Option<TimeSpan>,
}

impl StatisticsBuilder {
    /// For a trace of `total` accesses; if it has more, they fall into the last column.
    pub fn new(total: u64, resolution: Resolution) -> StatisticsBuilder {
        let resolution = Resolution { columns: resolution.columns.max(1), ..resolution };
        StatisticsBuilder {
            resolution,
            accesses_per_column: total.div_ceil(resolution.columns as u64).max(1),
            accesses: 0,
            ids: PageIds::new(),
            distinct: [0; 2],
            kinds: [KindCount::default(); 3],
            page_range: (u64::MAX, 0),
            reuse: ReuseDistances::new(0),
            histogram: DistanceHistogram::new(),
            last_column: Vec::new(),
            window_pages: 0,
            footprint: Vec::new(),
            heat_map: HeatMapBuilder::new(resolution.columns),
            pages: Vec::new(),
            distances: Vec::new(),
            bytes: None,
            time: None,
        }
    }

    /// Looks at the next accesses. False if there are more pages than ids.
    #[must_use]
    pub fn observe(&mut self, entries: &[Entry]) -> bool {
        self.pages.clear();
        for entry in entries {
            let kind = entry.kind().unwrap_or(Kind::Mapped);
            let file = kind != Kind::Anon;
            let known = self.ids.len();
            let Some(id) = self.ids.id(*entry) else { return false };
            let column = self.column();
            if self.ids.len() > known {
                self.distinct[usize::from(file)] += 1;
                self.last_column.push(u32::MAX);
            }
            if self.last_column[id as usize] != column as u32 {
                self.last_column[id as usize] = column as u32;
                self.window_pages += 1;
            }
            let count = &mut self.kinds[kind as usize];
            *(if entry.write() { &mut count.writes } else { &mut count.reads }) += 1;
            self.page_range = (self.page_range.0.min(entry.page()), self.page_range.1.max(entry.page()));
            self.heat_map.record(id, entry.page(), file, column);
            self.pages.push(id);
            self.accesses += 1;
            if self.accesses.is_multiple_of(self.accesses_per_column) {
                self.end_column();
            }
        }
        self.reuse.access_all(&self.pages, &mut self.distances);
        self.distances.iter().for_each(|distance| self.histogram.record(*distance));
        true
    }

    /// What was collected.
    pub fn finish(mut self) -> TraceStatistics {
        if self.footprint.last().is_none_or(|point| point.accesses < self.accesses) {
            self.end_column();
        }
        TraceStatistics {
            accesses: self.accesses,
            distinct_pages: self.ids.len() as u64,
            distinct_anon_pages: self.distinct[0],
            distinct_file_pages: self.distinct[1],
            kinds: self.kinds,
            page_range: self.page_range,
            reuse: self.histogram,
            footprint: self.footprint,
            heat_map: self.heat_map.finish(self.resolution.rows, self.accesses_per_column),
            bytes: self.bytes,
            time: self.time,
            details: Details::new(),
            reading: Reading::default(),
        }
    }

    fn column(&self) -> usize {
        ((self.accesses / self.accesses_per_column) as usize).min(self.resolution.columns - 1)
    }

    fn end_column(&mut self) {
        let (accesses, distinct_pages) = (self.accesses, self.ids.len() as u64);
        self.footprint.push(FootprintPoint { accesses, distinct_pages, window_pages: self.window_pages });
        self.window_pages = 0;
    }
}
