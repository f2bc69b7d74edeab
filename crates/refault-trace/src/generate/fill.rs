//! How each workload chooses its pages.
//!
//! The formulas are those of the published generator of the kernel measurements; the last four workloads are not, and
//! fio's have a module of their own. Each arm is a loop over a block with its state in registers. A draw costs a few
//! nanoseconds. The look-ups of successive draws do not depend on each other, so the processor overlaps their cache
//! misses.

use std::sync::Arc;

use super::fio::FioReader;
use super::spec::WorkloadSpec;
use super::stream::{Stream, Tag, permutation};
use super::workload::Generator;
use super::zipf::{BATCH, ZipfTable};
use crate::{Entry, Kind};

/// The state of a generator between two blocks.
pub(crate) struct PageChoice {
    spec: WorkloadSpec,
    positions: Stream,
    mode: Stream,
    order: Vec<u32>,
    zipf: Option<Arc<ZipfTable>>,
    fio: Option<FioReader>,
    next: u64,
    scan: u64,
    ahead: u64,
    behind: u64,
}

impl PageChoice {
    /// Builds the tables. `None` if the weights of a Zipf distribution do not fit.
    pub(crate) fn new(spec: &WorkloadSpec) -> Option<PageChoice> {
        let weighed = match spec.generator {
            Generator::Zipf => spec.pages,
            Generator::Mixed => spec.anon_pages,
            _ => 0,
        } as u32;
        let ordered = if spec.generator == Generator::HotCold { spec.pages as u32 } else { weighed };
        let zipf = if weighed > 0 { Some(ZipfTable::shared(weighed, spec.theta)?) } else { None };
        Some(PageChoice {
            spec: spec.clone(),
            positions: Stream::new(spec.seed, Tag::Positions),
            mode: Stream::new(spec.seed, Tag::Mode),
            order: if ordered > 0 { permutation(ordered, spec.seed) } else { Vec::new() },
            zipf,
            fio: (spec.generator == Generator::Fio).then(|| FioReader::new(&spec.fio, spec.seed, spec.kind)),
            next: 0,
            scan: 0,
            ahead: 0,
            behind: 0,
        })
    }

    /// Appends the next `count` accesses, reads all of them.
    pub(crate) fn fill(&mut self, count: usize, out: &mut Vec<Entry>) {
        let WorkloadSpec { pages, hot, kind, hot_sixteenths: share, gap, .. } = self.spec;
        let (order, start) = (&self.order[..], self.next);
        let end = start + count as u64;
        let entry = |page: u64| Entry::new(page, kind, false);
        let fresh = pages - if self.spec.takes("hot") { hot } else { 0 };
        match self.spec.generator {
            Generator::Uniform => out.extend((start..end).map(|_| entry(self.positions.below(pages)))),
            Generator::Zipf => {
                let zipf = self.zipf.as_ref().expect("invariant: built for this generator");
                let total = zipf.total();
                let (mut draws, mut ranks) = ([0; BATCH], [0; BATCH]);
                for _ in 0..count / BATCH {
                    draws.fill_with(|| self.positions.below(total));
                    zipf.ranks(&draws, &mut ranks);
                    out.extend(ranks.iter().map(|rank| entry(u64::from(order[*rank as usize]))));
                }
                let draws = (0..count % BATCH).map(|_| self.positions.below(total));
                out.extend(draws.map(|draw| entry(u64::from(order[zipf.rank(draw) as usize]))));
            }
            Generator::Cyclic => extend_cyclic(out, start % pages, pages, count, entry),
            Generator::HotCold => out.extend((start..end).map(|i| {
                let phase = i * self.spec.phases / self.spec.accesses;
                entry(if self.mode.chance(share) {
                    u64::from(order[((phase * hot + self.positions.below(hot)) % pages) as usize])
                } else {
                    self.positions.below(pages)
                })
            })),
            Generator::ScanHot => out.extend((start..end).map(|_| {
                if self.mode.chance(share) {
                    return entry(self.positions.below(hot));
                }
                let page = hot + self.scan;
                self.scan = if self.scan + 1 == fresh { 0 } else { self.scan + 1 };
                entry(page)
            })),
            Generator::TwoPass => out.extend((start..end).map(|_| {
                if self.mode.chance(share) {
                    return entry(self.positions.below(hot));
                }
                if self.ahead < fresh && (self.ahead < gap || self.ahead - self.behind <= gap) {
                    self.ahead += 1;
                    entry(hot + self.ahead - 1)
                } else if self.behind < fresh {
                    self.behind += 1;
                    entry(hot + self.behind - 1)
                } else {
                    entry(self.positions.below(hot))
                }
            })),
            Generator::Mixed => {
                let zipf = self.zipf.as_ref().expect("invariant: built for this generator");
                let (total, file_pages) = (zipf.total(), self.spec.file_pages);
                out.extend((start..end).map(|_| {
                    if self.mode.chance(share) {
                        let rank = zipf.rank(self.positions.below(total));
                        return Entry::new(u64::from(order[rank as usize]), Kind::Anon, false);
                    }
                    let page = self.scan;
                    self.scan = if self.scan + 1 == file_pages { 0 } else { self.scan + 1 };
                    Entry::new(page, Kind::Fd, false)
                }));
            }
            Generator::HotThenCyclic => {
                let first = (hot.saturating_mul(self.spec.rounds)).clamp(start, end);
                extend_cyclic(out, start % hot, hot, (first - start) as usize, entry);
                let into = first - (hot.saturating_mul(self.spec.rounds)).min(first);
                extend_cyclic(out, into % fresh, fresh, (end - first) as usize, |page| entry(hot + page));
            }
            Generator::Fio => self.fio.as_mut().expect("invariant: built for this generator").fill(count, out),
            Generator::FillRandom => {
                let first = pages.clamp(start, end);
                out.extend((start..first).map(|page| Entry::new(page, kind, kind == Kind::Anon)));
                out.extend((first..end).map(|_| entry(self.positions.below(pages))));
            }
            Generator::IdleAnon => {
                let first = self.spec.anon_pages.clamp(start, end);
                out.extend((start..first).map(|page| Entry::new(page, Kind::Anon, true)));
                let file_pages = self.spec.file_pages;
                out.extend((first..end).map(|_| Entry::new(self.positions.below(file_pages), Kind::Fd, false)));
            }
        }
        self.next = end;
    }
}

/// Appends `count` numbers below `period` in turn, from `from`.
fn extend_cyclic(out: &mut Vec<Entry>, from: u64, period: u64, count: usize, entry: impl Fn(u64) -> Entry) {
    let (mut page, mut left) = (from, count as u64);
    while left > 0 {
        let run = left.min(period - page);
        out.extend((page..page + run).map(&entry));
        left -= run;
        page = 0;
    }
}
