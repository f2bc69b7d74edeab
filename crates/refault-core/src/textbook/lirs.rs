//! LIRS: pages are ranked by the distance between their last two accesses rather than by the last one.
//!
//! Most of memory belongs to pages of low inter-reference recency (*LIR*), a small rest to the others (*HIR*). The
//! stack `S` orders pages by last access and remembers evicted HIR pages (ghosts); its bottom is always a LIR page. So
//! an HIR page that is accessed while in `S` was accessed at a shorter distance than that LIR page. It takes that
//! page's status. Resident HIR pages stand in the queue `Q`, whose oldest is evicted.
//!
//! Two variants ([`LirsVariant`]), which differ in what a hit on a page in `Q` but not in `S` does.
//!
//! Invariants: `S` holds all LIR pages, all ghosts and some resident HIR pages; `Q` all resident HIR pages; the ghosts
//! are queued in order of eviction, and the oldest leave `S` while it is longer than its limit.
//!
//! Cost: 17 bytes per page id.
//! Source: Jiang and Zhang, *LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy*, SIGMETRICS 2002,
//! section 3.

use super::{evict, evict_oldest};
use crate::counters::Counters;
use crate::lists::linked::{Link, List};
use crate::memory::Memory;
use crate::page::{NO_PAGE, PageId};
use crate::parameter::{Parameter, ParameterError, Parameters, parse_share};
use crate::policy::{Admission, HitReport, Policy, ReclaimRequest};

/// Which published form of the algorithm runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LirsVariant {
    /// The reference simulator's: a hit on a page in `Q` that has left `S` first turns the bottom LIR page into an HIR
    /// page, which evicts one. LIR pages are missing then until the next miss, which fills the gap.
    #[default]
    LibCacheSim,
    /// The paper's: such a page enters `S` and moves to the end of `Q`, and nothing else happens.
    Paper,
}

/// Variant and sizes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LirsParams {
    /// Which published form.
    pub variant: LirsVariant,
    /// Share of memory for resident HIR pages, 0 to 1; at least one page.
    pub hir: f64,
    /// Pages and ghosts in `S`, as a multiple of memory in pages, at least 1.
    pub stack: f64,
}

impl Default for LirsParams {
    fn default() -> LirsParams {
        LirsParams { variant: LirsVariant::LibCacheSim, hir: 0.01, stack: 2.0 }
    }
}

impl Parameters for LirsParams {
    const LIST: &'static [Parameter] = &[
        Parameter {
            name: "variant",
            default: "libcachesim",
            values: "libcachesim or paper",
            meaning: "libcachesim: a hit on a page in Q that has left S takes the status of a LIR page; paper: it does not",
        },
        Parameter {
            name: "hir",
            default: "1%",
            values: "a share, 0% to 100% or 0 to 1",
            meaning: "share of memory for resident HIR pages (at least one page)",
        },
        Parameter {
            name: "stack",
            default: "2",
            values: "a number from 1 to 1000",
            meaning: "pages and ghosts in S, as a multiple of memory",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), ParameterError> {
        let invalid = || ParameterError::invalid(name, value, Self::LIST);
        match name {
            "variant" => {
                self.variant = match value {
                    "libcachesim" => LirsVariant::LibCacheSim,
                    "paper" => LirsVariant::Paper,
                    _ => return Err(invalid()),
                }
            }
            "hir" => self.hir = parse_share(value).ok_or_else(invalid)?,
            "stack" => {
                let stack = value.parse().ok().filter(|stack| (1.0..=1000.0).contains(stack));
                self.stack = stack.ok_or_else(invalid)?;
            }
            _ => return Err(ParameterError::unknown(name, Self::LIST)),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Nowhere,
    /// In `S`, resident.
    Lir,
    /// In `S` and `Q`, resident.
    HirInBoth,
    /// In `Q` only, resident.
    HirInQueue,
    /// In `S` and among the crowded-out pages, resident.
    CrowdedOut,
    /// In `S` and among the ghosts.
    Ghost,
    /// At the head of `S`, no ghost any more, about to be admitted.
    Returning,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Lirs {
    params: LirsParams,
    places: Vec<Place>,
    stack_links: Vec<Link>,
    /// Links in `queue`, `crowded_out` or `ghosts`: no page is on two of them.
    queue_links: Vec<Link>,
    /// `S`.
    stack: List,
    /// `Q`.
    queue: List,
    /// Pages that would have evicted themselves from a `Q` of one page, see [`LirsVariant::LibCacheSim`].
    crowded_out: List,
    ghosts: List,
    lir_pages: usize,
    lir_limit: usize,
    hir_limit: usize,
    stack_limit: usize,
    returning: PageId,
    counters: Counters,
}

impl Default for Lirs {
    fn default() -> Lirs {
        Lirs::new(LirsParams::default())
    }
}

impl Lirs {
    /// Empty stack and queue.
    pub fn new(params: LirsParams) -> Lirs {
        Lirs {
            params,
            places: Vec::new(),
            stack_links: Vec::new(),
            queue_links: Vec::new(),
            stack: List::default(),
            queue: List::default(),
            crowded_out: List::default(),
            ghosts: List::default(),
            lir_pages: 0,
            lir_limit: 0,
            hir_limit: 1,
            stack_limit: 0,
            returning: NO_PAGE,
            counters: Counters::default(),
        }
    }

    /// A page is coming in: if it is a ghost, it takes the status of the bottom LIR page.
    fn expect<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        if self.returning == page {
            return;
        }
        if self.returning != NO_PAGE {
            // The page announced before never came.
            self.places[self.returning as usize] = Place::Ghost;
            self.ghosts.push_head(&mut self.queue_links, self.returning);
            self.returning = NO_PAGE;
        }
        if self.places[page as usize] == Place::Ghost {
            self.ghosts.remove(&mut self.queue_links, page);
            self.places[page as usize] = Place::Returning;
            self.returning = page;
            self.stack.move_to_head(&mut self.stack_links, page);
            self.make_room_for_lir(page, memory);
        }
    }

    /// Turns LIR pages into HIR pages until one more LIR page fits. The page that is being accessed stays.
    fn make_room_for_lir<M: Memory>(&mut self, accessed: PageId, memory: &mut M) {
        while self.lir_pages >= self.lir_limit && self.demote_bottom() {
            while self.queue.len() > self.hir_limit && self.evict_hir(accessed, memory) {}
        }
    }

    /// Moves the bottom LIR page to the head of `Q`; false if there is none.
    fn demote_bottom(&mut self) -> bool {
        self.prune();
        let Some(page) = self.stack.tail().filter(|page| self.places[*page as usize] == Place::Lir) else {
            return false;
        };
        self.stack.remove(&mut self.stack_links, page);
        self.queue.push_head(&mut self.queue_links, page);
        self.places[page as usize] = Place::HirInQueue;
        self.lir_pages -= 1;
        self.prune();
        true
    }

    /// Evicts the oldest page of `Q` but `spared`; false if memory lets none of them go.
    fn evict_hir<M: Memory>(&mut self, spared: PageId, memory: &mut M) -> bool {
        let victim = (0..self.queue.len()).find_map(|_| {
            let page = self.queue.pop_tail(&mut self.queue_links)?;
            if page != spared && evict(page, memory, &mut self.counters) {
                return Some(page);
            }
            self.queue.push_head(&mut self.queue_links, page);
            None
        });
        let Some(page) = victim else { return false };
        self.places[page as usize] = if self.places[page as usize] == Place::HirInBoth {
            self.ghosts.push_head(&mut self.queue_links, page);
            Place::Ghost
        } else {
            Place::Nowhere
        };
        true
    }

    /// Evicts the page that was crowded out first; false if there is none that memory lets go.
    fn evict_crowded_out<M: Memory>(&mut self, memory: &mut M) -> bool {
        let Some(page) = evict_oldest(&mut self.crowded_out, &mut self.queue_links, memory, &mut self.counters) else {
            return false;
        };
        self.ghosts.push_head(&mut self.queue_links, page);
        self.places[page as usize] = Place::Ghost;
        true
    }

    /// Takes what is not LIR off the bottom of `S`.
    fn prune(&mut self) {
        while let Some(page) = self.stack.tail()
            && self.stack.len() > 1
        {
            self.places[page as usize] = match self.places[page as usize] {
                Place::Ghost => {
                    self.ghosts.remove(&mut self.queue_links, page);
                    Place::Nowhere
                }
                Place::HirInBoth => Place::HirInQueue,
                Place::CrowdedOut => {
                    self.crowded_out.remove(&mut self.queue_links, page);
                    self.queue.push_tail(&mut self.queue_links, page);
                    Place::HirInQueue
                }
                _ => break,
            };
            self.stack.remove(&mut self.stack_links, page);
        }
    }

    /// Forgets the oldest ghosts while `S` is too long.
    fn limit_stack(&mut self) {
        while self.stack.len() > self.stack_limit {
            let Some(ghost) = self.ghosts.pop_tail(&mut self.queue_links) else { break };
            self.stack.remove(&mut self.stack_links, ghost);
            self.places[ghost as usize] = Place::Nowhere;
        }
    }
}

impl Policy for Lirs {
    const HITS: HitReport = HitReport::EachAccess;

    fn admit<M: Memory>(&mut self, page: PageId, _admission: &Admission, memory: &mut M) {
        self.expect(page, memory);
        if self.returning == page {
            self.returning = NO_PAGE;
        } else {
            self.stack.push_head(&mut self.stack_links, page);
        }
        if self.lir_pages < self.lir_limit {
            self.places[page as usize] = Place::Lir;
            self.lir_pages += 1;
        } else {
            self.places[page as usize] = Place::HirInBoth;
            self.queue.push_head(&mut self.queue_links, page);
        }
        self.limit_stack();
    }

    fn accessed<M: Memory>(&mut self, page: PageId, memory: &mut M) {
        match self.places[page as usize] {
            Place::Lir => {
                self.stack.move_to_head(&mut self.stack_links, page);
                self.prune();
            }
            Place::HirInBoth => {
                self.stack.move_to_head(&mut self.stack_links, page);
                self.queue.remove(&mut self.queue_links, page);
                self.make_room_for_lir(page, memory);
                self.places[page as usize] = Place::Lir;
                self.lir_pages += 1;
            }
            Place::HirInQueue => {
                self.queue.move_to_head(&mut self.queue_links, page);
                let mut place = Place::HirInBoth;
                if self.params.variant == LirsVariant::LibCacheSim && self.lir_pages >= self.lir_limit {
                    if self.queue.len() == 1 && self.hir_limit == 1 {
                        self.queue.remove(&mut self.queue_links, page);
                        self.crowded_out.push_head(&mut self.queue_links, page);
                        place = Place::CrowdedOut;
                    }
                    // Not in the stack yet, so that pruning it does not meet the page.
                    self.make_room_for_lir(page, memory);
                }
                self.places[page as usize] = place;
                self.stack.push_head(&mut self.stack_links, page);
            }
            Place::CrowdedOut => {
                self.stack.move_to_head(&mut self.stack_links, page);
                self.crowded_out.remove(&mut self.queue_links, page);
                self.make_room_for_lir(page, memory);
                self.places[page as usize] = Place::Lir;
                self.lir_pages += 1;
            }
            Place::Nowhere | Place::Ghost | Place::Returning => {}
        }
        self.limit_stack();
    }

    fn freed(&mut self, page: PageId) {
        match self.places[page as usize] {
            Place::Nowhere => {}
            Place::Lir => {
                self.stack.remove(&mut self.stack_links, page);
                self.lir_pages -= 1;
            }
            Place::HirInBoth => {
                self.stack.remove(&mut self.stack_links, page);
                self.queue.remove(&mut self.queue_links, page);
            }
            Place::HirInQueue => self.queue.remove(&mut self.queue_links, page),
            Place::CrowdedOut => {
                self.stack.remove(&mut self.stack_links, page);
                self.crowded_out.remove(&mut self.queue_links, page);
            }
            Place::Ghost => {
                self.stack.remove(&mut self.stack_links, page);
                self.ghosts.remove(&mut self.queue_links, page);
            }
            Place::Returning => {
                self.stack.remove(&mut self.stack_links, page);
                self.returning = NO_PAGE;
            }
        }
        self.places[page as usize] = Place::Nowhere;
        self.prune();
    }

    fn forgotten(&mut self, page: PageId) {
        self.freed(page);
    }

    fn reclaim<M: Memory>(&mut self, request: &ReclaimRequest, memory: &mut M) -> u32 {
        let before = self.counters.pgsteal;
        if let Some(page) = request.incoming {
            self.expect(page, memory);
        }
        let mut freed = (self.counters.pgsteal - before) as u32;
        while freed < request.goal {
            if self.evict_hir(NO_PAGE, memory) || self.evict_crowded_out(memory) {
                freed += 1;
            } else if !self.demote_bottom() {
                break;
            }
        }
        freed
    }

    fn grow(&mut self, pages: usize) {
        let pages = pages.max(self.places.len());
        self.places.resize(pages, Place::Nowhere);
        self.stack_links.resize(pages, Link::default());
        self.queue_links.resize(pages, Link::default());
    }

    fn set_capacity(&mut self, pages: usize) {
        self.hir_limit = ((pages as f64 * self.params.hir) as usize).max(1);
        self.lir_limit = pages.saturating_sub(self.hir_limit);
        self.stack_limit = (pages as f64 * self.params.stack) as usize;
        self.limit_stack();
    }

    fn counters(&self) -> Counters {
        self.counters
    }

    fn metadata_bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
            + (self.stack_links.capacity() + self.queue_links.capacity()) * size_of::<Link>()
    }
}
