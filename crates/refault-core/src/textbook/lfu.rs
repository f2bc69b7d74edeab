//! LFU: the page with the fewest accesses since it came in goes, of equal ones the one used longest ago; and LFU with
//! dynamic aging.
//!
//! A page that comes back starts from one access. With `aging=yes` (LFUDA) a page is worth its accesses and the age of
//! the cache at its last one; the age is the worth of the page evicted last. So what was popular once does not stay for
//! good.
//!
//! Greedy-Dual-Size-Frequency (GDSF) ranks by that age plus accesses times cost by size. All costs are 1, so that it
//! saves misses rather than bytes. Sizes are counted in pages: for pages it is LFUDA. An object that would itself be among
//! those that go for it stays out, and none goes ([`Policy::keeps_out`]); a page must come in.
//!
//! Cost: that of [`super::ranked`], and 4 bytes per page id, 8 for GDSF.
//! Source: Arlitt, Cherkasova, Dilley, Friedrich and Jin, *Evaluating Content Management Techniques for Web Proxy
//! Caches*, Performance Evaluation Review 27(4), 2000, section 2 (both). GDSF: Cherkasova, *Improving WWW Proxies
//! Performance with Greedy-Dual-Size-Frequency Caching Policy*, HP Labs HPL-98-69, 1998, section 3.

use super::ranked::Ranked;
use crate::counters::Counters;
use crate::memory::Memory;
use crate::page::PageId;
use crate::parameter::{Parameter, ParameterError, Parameters, parse_switch};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// Which of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LfuParams {
    /// Dynamic aging.
    pub aging: bool,
}

impl LfuParams {
    /// LFU with dynamic aging.
    pub const fn with_aging() -> LfuParams {
        LfuParams { aging: true }
    }
}

impl Parameters for LfuParams {
    const LIST: &'static [Parameter] = &[Parameter {
        name: "aging",
        default: "no",
        values: "yes or no",
        meaning: "add the worth of the page evicted last to a page's accesses, so that old popularity passes",
    }];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        match name {
            "aging" => {
                self.aging = parse_switch(value).ok_or_else(|| ParameterError::invalid(name, value, Self::LIST))?;
                Ok(())
            }
            _ => Err(ParameterError::unknown(name, Self::LIST)),
        }
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Lfu {
    params: LfuParams,
    ranked: Ranked,
    /// Accesses since the page came in.
    accesses: Vec<u32>,
    age: u64,
}

impl Lfu {
    /// An empty cache.
    pub fn new(params: LfuParams) -> Lfu {
        Lfu { params, ..Lfu::default() }
    }

    fn used(&mut self, page: PageId) {
        let time = self.ranked.tick();
        let count = &mut self.accesses[page as usize];
        *count = count.saturating_add(1);
        self.ranked.put(page, u64::from(*count) + self.age, time);
    }
}

/// Accesses since the object came in, and its size.
#[derive(Clone, Copy, Debug, Default)]
struct Object {
    accesses: u32,
    pages: f32,
}

/// Greedy-Dual-Size-Frequency; see the module.
#[derive(Clone, Debug, Default)]
pub struct Gdsf {
    ranked: Ranked,
    objects: Vec<Object>,
    /// The worth of the object evicted last.
    age: f64,
}

impl Gdsf {
    /// Worths are not negative, and numbers that are not are in the order of their bits.
    fn worth(&self, object: Object) -> u64 {
        (self.age + f64::from(object.accesses) / f64::from(object.pages)).to_bits()
    }

    fn used(&mut self, page: PageId) {
        let time = self.ranked.tick();
        let object = &mut self.objects[page as usize];
        object.accesses = object.accesses.saturating_add(1);
        let object = *object;
        self.ranked.put(page, self.worth(object), time);
    }
}

impl Policy for Gdsf {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, admission: &Admission, _memory: &mut M) {
        self.objects[page as usize] = Object { accesses: 0, pages: admission.pages() as f32 };
        self.used(page);
    }

    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        if self.ranked.contains(page) {
            self.used(page);
        }
    }

    fn freed(&mut self, page: PageId) {
        self.ranked.remove(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let age = &mut self.age;
        self.ranked.evict(request.goal, memory, |_, worth| *age = f64::from_bits(worth))
    }

    fn keeps_out(&mut self, admission: &Admission, needed: u64, bytes: &dyn Fn(PageId) -> u64) -> bool {
        let worth = self.worth(Object { accesses: 1, pages: admission.pages() as f32 });
        // Of equal worth, it is the one used last.
        !self.ranked.amount_to(needed, worth, bytes)
    }

    fn grow(&mut self, pages: usize) {
        self.ranked.grow(pages);
        self.objects.resize(pages.max(self.objects.len()), Object::default());
    }

    fn counters(&self) -> Counters {
        self.ranked.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.ranked.metadata_bytes() + self.objects.capacity() * size_of::<Object>()
    }
}

impl Policy for Lfu {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, _memory: &mut M) {
        self.accesses[page as usize] = 0;
        self.used(page);
    }

    fn accessed<M: Memory>(&mut self, page: PageId, _memory: &mut M) {
        if self.ranked.contains(page) {
            self.used(page);
        }
    }

    fn freed(&mut self, page: PageId) {
        self.ranked.remove(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let (aging, age) = (self.params.aging, &mut self.age);
        self.ranked.evict(request.goal, memory, |_, worth| {
            if aging {
                *age = worth;
            }
        })
    }

    fn grow(&mut self, pages: usize) {
        self.ranked.grow(pages);
        self.accesses.resize(pages.max(self.accesses.len()), 0);
    }

    fn counters(&self) -> Counters {
        self.ranked.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.ranked.metadata_bytes() + self.accesses.capacity() * size_of::<u32>()
    }
}
