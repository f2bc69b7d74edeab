//! Requests for more than one frame: huge pages for tasks, and buffers that must be contiguous.
//!
//! A *huge page* is asked for when a task first touches an aligned 2 MiB of its anonymous memory that is to have one.
//! The task's share says for how many of them that is. The huge page is given if its group has room, a block of order 9
//! exists, and more than `low` and its frames are free; no task reclaims for it, but kswapd is woken. Otherwise the
//! touch is served by a single page, and the rest of that memory too. The policy sees 512 pages, brought in by one
//! fault; they go one by one.
//!
//! A *buffer* is a block of 2^order frames for the kernel itself, asked for at fixed times and kept for a while. The
//! requester reclaims if there is none, up to [`MAX_FRUITLESS_CALLS`] times, and waits for that; then it goes without.
//!
//! There is no compaction, and pages are not collapsed into huge ones later.
//!
//! Kernel: `do_huge_pmd_anonymous_page` in `mm/huge_memory.c`; `__alloc_pages_slowpath` in `mm/page_alloc.c`.
//!
//! ```
//! use refault_sim::machine::scenario::Scenario;
//!
//! let scenario = Scenario::parse(
//!     r#"
//!     [machine]
//!     memory = "64M"
//!     frames = true
//!     [[buffer]]
//!     name = "packets"
//!     order = 9
//!     every = "10ms"
//!     hold = "1ms"
//!     [[task]]
//!     name = "reader"
//!     [[task.workload]]
//!     spec = "uniform:pages=1000,accesses=1000,kind=anon"
//!     "#,
//!     "buffers.toml",
//! )?;
//! assert_eq!(scenario.config.buffers[0].order, 9); // 2 MiB in one piece, a hundred times per second
//! # Ok::<(), refault_sim::machine::scenario::ScenarioError>(())
//! ```

use refault_core::PageType;
use refault_core::frames::Frame;
use refault_core::page::NO_PAGE;
use refault_core::policy::Admission;
use refault_core::policy::room::MAX_FRUITLESS_CALLS;

use super::fault::Outcome;
use super::memory::REGION_PAGES;
use super::{Event, Machine};

/// Order of a huge page.
const HUGE_ORDER: u32 = REGION_PAGES.ilog2();

/// A contiguous buffer that is asked for again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferConfig {
    /// For messages.
    pub name: String,
    /// It has 2^order frames.
    pub order: u32,
    /// The node it lies on.
    pub node: usize,
    /// First request, nanoseconds.
    pub start: u64,
    /// Time between two requests, nanoseconds; above 0.
    pub every: u64,
    /// How long each is kept, nanoseconds.
    pub hold: u64,
}

/// A buffer that is held.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    config: usize,
    block: Frame,
}

impl Machine {
    /// Whether the 2 MiB of a task's memory around `offset` are to be one page: its share of them, evenly spread.
    pub(super) fn wants_huge(&self, id: usize, offset: u32) -> bool {
        let share = self.config.tasks[id].huge_pages;
        let region = offset as usize / REGION_PAGES;
        let whole = (region + 1) * REGION_PAGES <= self.tasks[id].anon_pages as usize;
        let through = |regions: usize| (regions as f64 * share) as u64;
        share > 0.0 && whole && through(region + 1) > through(region)
    }

    /// Gives a task a huge page around `offset` of its untouched memory; false if it must do with a single one.
    pub(super) fn huge_fault(&mut self, id: usize, offset: u32, outcome: &mut Outcome) -> bool {
        let pages = REGION_PAGES as u64;
        let first = self.tasks[id].anon_first + offset / REGION_PAGES as u32 * REGION_PAGES as u32;
        if (first..first + REGION_PAGES as u32).any(|page| self.memory.state[page as usize] != 0) {
            // Part of it was touched when none was to be had: asked for once.
            return false;
        }
        let (node, group) = (self.tasks[id].node, self.tasks[id].group);
        let enough = self.memory.nodes[node].free > self.memory.nodes[node].watermarks.low + pages;
        let allowed = self.memory.groups.over_limit(group, pages).is_none();
        let frames = self.memory.frames.as_mut().expect("invariant: huge pages need frames");
        if !enough || !allowed || !frames.take_huge(node, first, HUGE_ORDER) {
            frames.counts.thp_fault_fallback += 1;
            frames.counts.thp_fault_fragmented += u64::from(enough && allowed);
            self.wake_kswapd(node, self.now);
            return false;
        }
        frames.counts.thp_fault_alloc += 1;
        self.memory.groups.charge(group, pages as i64);
        let lruvec = self.memory.lruvec_of(group, node);
        let admission = Admission::fault(PageType::Anon).in_lruvec(lruvec);
        let mapping = self.tasks[id].anon_mapping;
        for page in first..first + REGION_PAGES as u32 {
            self.policy.admit(page, &admission, &mut self.memory);
            self.memory.insert(page, lruvec, 0);
            self.memory.map(mapping, page, true, false);
        }
        outcome.cpu += self.memory.costs.allocate + pages * self.memory.costs.zero_page;
        true
    }

    pub(super) fn schedule_buffers(&mut self) {
        for buffer in 0..self.config.buffers.len() {
            self.at(self.config.buffers[buffer].start, Event::Buffer(buffer));
        }
    }

    /// A buffer is asked for.
    pub(super) fn request_buffer(&mut self, index: usize) {
        let config = &self.config.buffers[index];
        let (node, order, every, hold) = (config.node, config.order, config.every, config.hold);
        self.at(self.now + every, Event::Buffer(index));
        let mut outcome = Outcome::default();
        let mut block = self.try_buffer(node, order);
        let mut tries = 0;
        while block.is_none() && tries < MAX_FRUITLESS_CALLS {
            self.wake_kswapd(node, self.now);
            self.direct_reclaim(node, NO_PAGE, &mut outcome);
            block = self.try_buffer(node, order);
            tries += 1;
        }
        self.buffer_stalled += outcome.stall;
        let frames = self.memory.frames.as_mut().expect("invariant: buffers need frames");
        frames.counts.buffers_asked += 1;
        frames.counts.buffers_failed += u64::from(block.is_none());
        frames.counts.buffers_stalled += u64::from(block.is_some() && tries > 0);
        if tries > 0 {
            frames.stalls.record(outcome.stall);
        }
        if let Some(block) = block {
            self.buffers.push(Held { config: index, block });
            let number = self.buffers.len() - 1;
            self.at(self.now + outcome.stall + hold, Event::Release(number));
            self.set_capacity();
        }
    }

    fn try_buffer(&mut self, node: usize, order: u32) -> Option<Frame> {
        let target = &mut self.memory.nodes[node];
        if target.free <= target.watermarks.min + (1 << order) {
            return None;
        }
        let block = self.memory.frames.as_mut()?.take_block(node, order)?;
        target.free -= 1 << order;
        Some(block)
    }

    /// A buffer is given back.
    pub(super) fn release_buffer(&mut self, number: usize) {
        let Held { config, block } = self.buffers[number];
        let (node, order) = (self.config.buffers[config].node, self.config.buffers[config].order);
        let frames = self.memory.frames.as_mut().expect("invariant: buffers need frames");
        frames.give_block_back(node, block, order);
        self.memory.nodes[node].free += 1 << order;
        self.set_capacity();
    }

    /// Frames in buffers hold no pages: the policy has that many fewer.
    fn set_capacity(&mut self) {
        let held = self.memory.frames.as_ref().map_or(0, |frames| frames.held);
        let managed: u64 = self.config.nodes.iter().sum();
        self.policy.set_capacity((managed - held) as usize);
    }
}
