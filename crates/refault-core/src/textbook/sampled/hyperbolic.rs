//! Hyperbolic caching: of a few pages drawn at random the one with the fewest accesses per time in memory goes.
//!
//! Time is counted in accesses. Of equal pages the one drawn first goes. If memory holds no more pages than are drawn,
//! all are looked at. All costs are 1; the rate of an object is divided by its size.
//!
//! Cost: 16 bytes per page id beside [`super`]'s; O(1) for a hit, O(sample) for an eviction.
//! Source: Blankstein, Sen and Freedman, *Hyperbolic Caching: Flexible Caching for Web Applications*, USENIX ATC 2017,
//! sections 3.1 and 4.1, which samples 64.

use super::Sampled;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::monitor::Random;
use crate::page::PageId;
use crate::parameter::{Parameter, ParameterError, Parameters, parse_whole};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

const MAX_SAMPLE: u64 = 1024;

/// The draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HyperbolicParams {
    /// Pages drawn for an eviction, 1 to 1,024.
    pub sample: u32,
    /// What the draws follow from.
    pub seed: u64,
}

impl Default for HyperbolicParams {
    fn default() -> HyperbolicParams {
        HyperbolicParams { sample: 64, seed: 1 }
    }
}

impl Parameters for HyperbolicParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "sample",
            default: "64",
            values: "1 to 1024",
            meaning: "pages drawn at random for an eviction, of which the worst goes",
        },
        Parameter { name: "seed", default: "1", values: "0 to 2^64-1", meaning: "what the random draws follow from" },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let wrong = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "sample" => self.sample = parse_whole(value, 1, MAX_SAMPLE).ok_or_else(wrong)? as u32,
            "seed" => self.seed = parse_whole(value, 0, u64::MAX).ok_or_else(wrong)?,
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    came: u64,
    accesses: u32,
    /// Bytes, or as many as fit.
    bytes: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Hyperbolic {
    params: HyperbolicParams,
    random: Random,
    sampled: Sampled,
    records: Vec<Record>,
    now: u64,
    counters: Counters,
}

impl Default for Hyperbolic {
    fn default() -> Hyperbolic {
        Hyperbolic::new(HyperbolicParams::default())
    }
}

impl Hyperbolic {
    /// An empty memory.
    pub fn new(params: HyperbolicParams) -> Hyperbolic {
        Hyperbolic {
            params,
            random: Random::new(params.seed),
            sampled: Sampled::default(),
            records: Vec::new(),
            now: 0,
            counters: Counters::default(),
        }
    }

    /// Whether a page had fewer accesses per time and size than another, at the time of the access to come.
    fn is_worse(&self, page: PageId, than: PageId) -> bool {
        let of = |page: PageId| {
            let record = self.records[page as usize];
            (u128::from(record.accesses), u128::from(self.now + 1 - record.came) * u128::from(record.bytes))
        };
        let ((accesses, room), (other_accesses, other_room)) = (of(page), of(than));
        accesses * other_room < other_accesses * room
    }

    fn choose(&mut self) -> Option<PageId> {
        let sample = self.params.sample as usize;
        if self.sampled.pages.len() <= sample {
            let pages = self.sampled.pages.iter().copied();
            return pages.reduce(|worst, page| if self.is_worse(page, worst) { page } else { worst });
        }
        let mut worst = self.sampled.draw(&mut self.random);
        for _ in 1..sample {
            let page = self.sampled.draw(&mut self.random);
            if self.is_worse(page, worst) {
                worst = page;
            }
        }
        Some(worst)
    }
}

impl Policy for Hyperbolic {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, _memory: &mut M) {
        self.now += 1;
        let bytes = u32::try_from(admission.bytes).unwrap_or(u32::MAX);
        self.records[page as usize] = Record { accesses: 1, came: self.now, bytes };
        self.sampled.insert(page);
    }

    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        self.now += 1;
        let accesses = &mut self.records[page as usize].accesses;
        *accesses = accesses.saturating_add(1);
    }

    fn freed(&mut self, page: PageId) {
        if self.sampled.contains(page) {
            self.sampled.remove(page);
        }
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let mut freed = 0;
        while freed < request.goal {
            let Some(chosen) = self.choose() else { break };
            let Some(gone) = self.sampled.evict(chosen, memory, &mut self.counters) else { break };
            self.sampled.remove(gone);
            freed += 1;
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        self.sampled.grow(pages);
        self.records.resize(pages.max(self.records.len()), Record::default());
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.sampled.metadata_bytes() + self.records.capacity() * size_of::<Record>()
    }
}
