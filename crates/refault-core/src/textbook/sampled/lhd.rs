//! LHD, least hit density: evicts, of a few pages drawn at random, the one with the fewest hits to be expected per time
//! that it would stay.
//!
//! Ages are counted in accesses since a page's last, in steps that double until they fit. Pages are told apart by the
//! ages of their last two hits: 16 classes, each with a histogram of hits and one of evictions by age. Each period the
//! histograms are halved and the density of each age becomes the hits at it or later over the time lived until them.
//! Beside those drawn, the pages are looked at that came in last and promised less than recent victims. A hundredth of
//! memory explores for 50 periods: its pages stay, so that the histograms see what comes of great ages.
//!
//! An object's density is divided by its size, in pages; explorers are counted by whole pages.
//!
//! The details are those of the authors' simulator, with one application: the first densities are
//! (class + 1) / (age + 1); 8 pages are drawn in the first 50 periods; histograms keep nine tenths per period; steps of
//! age are 2^10 accesses at first and are fitted to the pages in memory in the 6th and 26th period.
//!
//! Cost: 24 bytes per page id beside [`super`]'s, up to 3.8 MB for the histograms; O(1) for a hit, O(sample) for an
//! eviction.
//! Source: Beckmann, Chen and Cidon, *LHD: Improving Cache Hit Rate by Maximizing Hit Density*, NSDI 2018, sections 3
//! and 4.

mod densities;

use super::Sampled;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::monitor::Random;
use crate::page::{NO_PAGE, PageId};
use crate::parameter::{Parameter, ParameterError, Parameters, parse_share, parse_whole};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};
use densities::{DECAY, Densities};

/// Periods until all pages of the sample are drawn and none explores.
const WARM_UP_PERIODS: u64 = 50;
/// Pages drawn before.
const WARM_UP_SAMPLE: u32 = 8;
/// One access in 32 makes an explorer, while there may be more of them.
const EXPLORE_ONE_IN: u64 = 32;

/// The draws, and the measure of ages.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LhdParams {
    /// Pages drawn for an eviction, 1 to 1,024.
    pub sample: u32,
    /// Pages remembered that came in last and promised little, 0 to 1,024.
    pub newcomers: u32,
    /// The share of memory that may explore, 0 to 1.
    pub explorers: f64,
    /// Accesses between two computations of densities, 1 to 2^40.
    pub period: u64,
    /// Ages told apart, 2 to 2^20.
    pub ages: u32,
    /// What the draws follow from.
    pub seed: u64,
}

impl Default for LhdParams {
    fn default() -> LhdParams {
        LhdParams { sample: 32, newcomers: 8, explorers: 0.01, period: 1 << 20, ages: 20_000, seed: 1 }
    }
}

impl Parameters for LhdParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "sample",
            default: "32",
            values: "1 to 1024",
            meaning: "pages drawn at random for an eviction, of which the worst goes; 8 in the first 50 periods",
        },
        Parameter {
            name: "newcomers",
            default: "8",
            values: "0 to 1024",
            meaning: "pages beside them that came in last and promised less than recent victims",
        },
        Parameter {
            name: "explorers",
            default: "1%",
            values: "a share, 0% to 100% or 0 to 1",
            meaning: "share of memory for pages that stay, so that great ages are seen, in the first 50 periods",
        },
        Parameter {
            name: "period",
            default: "1048576",
            values: "1 to 1099511627776",
            meaning: "accesses between two computations of densities",
        },
        Parameter { name: "ages", default: "20000", values: "2 to 1048576", meaning: "ages told apart" },
        Parameter { name: "seed", default: "1", values: "0 to 2^64-1", meaning: "what the random draws follow from" },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let wrong = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "sample" => self.sample = parse_whole(value, 1, 1024).ok_or_else(wrong)? as u32,
            "newcomers" => self.newcomers = parse_whole(value, 0, 1024).ok_or_else(wrong)? as u32,
            "explorers" => self.explorers = parse_share(value).ok_or_else(wrong)?,
            "period" => self.period = parse_whole(value, 1, 1 << 40).ok_or_else(wrong)?,
            "ages" => self.ages = parse_whole(value, 2, 1 << 20).ok_or_else(wrong)? as u32,
            "seed" => self.seed = parse_whole(value, 0, u64::MAX).ok_or_else(wrong)?,
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// The time of the last access.
    accessed: u64,
    /// The ages at the last two hits, the later first.
    hit_ages: [u32; 2],
    /// The size.
    pages: f32,
    explores: bool,
}

impl Record {
    /// What an explorer takes of the share that may explore.
    fn whole_pages(&self) -> i64 {
        f64::from(self.pages).ceil() as i64
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Lhd {
    params: LhdParams,
    random: Random,
    sampled: Sampled,
    records: Vec<Record>,
    densities: Densities,
    /// The newcomers that promised little, a ring; [`NO_PAGE`] for none.
    newcomers: Vec<PageId>,
    next_newcomer: usize,
    /// The mean density of recent victims.
    victims: f32,
    /// Pages that may still explore, and all that may.
    explorers_left: i64,
    explorers: i64,
    now: u64,
    until_period: u64,
    periods: u64,
    counters: Counters,
}

impl Default for Lhd {
    fn default() -> Lhd {
        Lhd::new(LhdParams::default())
    }
}

impl Lhd {
    /// An empty memory.
    pub fn new(params: LhdParams) -> Lhd {
        Lhd {
            params,
            random: Random::new(params.seed),
            sampled: Sampled::default(),
            records: Vec::new(),
            densities: Densities::new(params.ages as usize),
            newcomers: vec![NO_PAGE; params.newcomers as usize],
            next_newcomer: 0,
            victims: 0.0,
            explorers_left: 0,
            explorers: 0,
            now: 0,
            until_period: params.period,
            periods: 0,
            counters: Counters::default(),
        }
    }

    fn class_and_age(&self, page: PageId) -> (usize, usize) {
        let record = &self.records[page as usize];
        let class = self.densities.class(u64::from(record.hit_ages[0]) + u64::from(record.hit_ages[1]));
        (class, self.densities.age(self.now - record.accessed))
    }

    fn density(&self, page: PageId) -> f32 {
        let (class, age) = self.class_and_age(page);
        let record = &self.records[page as usize];
        self.densities.of(class, age, record.pages, record.explores)
    }

    /// A page that no longer explores, by an access or because it goes.
    fn end_exploration(&mut self, page: PageId) {
        let record = &mut self.records[page as usize];
        if std::mem::take(&mut record.explores) {
            self.explorers_left += record.whole_pages();
        }
    }

    fn used(&mut self, page: PageId, came: bool) {
        self.records[page as usize].accessed = self.now;
        let explores = self.random.bits().is_multiple_of(EXPLORE_ONE_IN);
        if explores && self.explorers_left > 0 && self.periods < WARM_UP_PERIODS {
            self.records[page as usize].explores = true;
            self.explorers_left -= self.records[page as usize].whole_pages();
        }
        if came && !explores && !self.newcomers.is_empty() && self.density(page) < self.victims {
            self.newcomers[self.next_newcomer] = page;
            self.next_newcomer = (self.next_newcomer + 1) % self.newcomers.len();
        }
        self.now += 1;
        self.until_period -= 1;
        if self.until_period == 0 {
            self.densities.compute(self.sampled.pages.len(), self.periods);
            self.until_period = self.params.period;
            self.periods += 1;
        }
    }

    fn choose(&mut self) -> Option<PageId> {
        if self.sampled.pages.is_empty() {
            return None;
        }
        let sample = if self.periods > WARM_UP_PERIODS { self.params.sample } else { WARM_UP_SAMPLE };
        let mut worst = (f32::MAX, NO_PAGE);
        for _ in 0..sample {
            let page = self.sampled.draw(&mut self.random);
            let density = self.density(page);
            if density < worst.0 {
                worst = (density, page);
            }
        }
        for page in self.newcomers.iter().copied().filter(|page| *page != NO_PAGE && self.sampled.contains(*page)) {
            let density = self.density(page);
            if density < worst.0 {
                worst = (density, page);
            }
        }
        self.victims = DECAY * self.victims + (1.0 - DECAY) * worst.0;
        Some(worst.1)
    }
}

impl Policy for Lhd {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, _memory: &mut M) {
        let pages = admission.pages() as f32;
        self.records[page as usize] = Record { hit_ages: [0, self.params.ages], pages, ..Record::default() };
        self.sampled.insert(page);
        self.used(page, true);
    }

    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        if !self.sampled.contains(page) {
            return;
        }
        let (class, age) = self.class_and_age(page);
        self.densities.hit(class, age);
        self.end_exploration(page);
        let record = &mut self.records[page as usize];
        record.hit_ages = [age as u32, record.hit_ages[0]];
        self.used(page, false);
    }

    fn freed(&mut self, page: PageId) {
        if self.sampled.contains(page) {
            self.end_exploration(page);
            self.sampled.remove(page);
        }
        self.forgotten(page);
    }

    fn forgotten(&mut self, page: PageId) {
        for newcomer in self.newcomers.iter_mut().filter(|newcomer| **newcomer == page) {
            *newcomer = NO_PAGE;
        }
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        while freed < request.goal {
            let Some(chosen) = self.choose() else { break };
            let Some(gone) = self.sampled.evict(chosen, memory, &mut self.counters) else { break };
            let (class, age) = self.class_and_age(gone);
            self.densities.evicted(class, age);
            self.end_exploration(gone);
            self.sampled.remove(gone);
            freed += 1;
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.sampled.grow(pages);
        self.records.resize(pages.max(self.records.len()), Record::default());
    }

    fn set_capacity(&mut self, pages: usize) {
        let explorers = (pages as f64 * self.params.explorers) as i64;
        self.explorers_left += explorers - self.explorers;
        self.explorers = explorers;
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.sampled.metadata_bytes()
            + self.densities.metadata_bytes()
            + self.records.capacity() * size_of::<Record>()
            + self.newcomers.capacity() * size_of::<PageId>()
    }
}
