//! What a task does when an access is not a hit: faults, reads, writes that dirty a page (spec: overview §4.6, §10).
//!
//! One missing page: a frame is allocated and charged, the slot's shadow is taken, the policy admits the page, the
//! contents are read, the access happens. All of it takes effect at once; its CPU time and the wait for the device
//! pass afterwards, while the page is locked.
//!
//! Kernel: `do_anonymous_page`, `do_swap_page` in `mm/memory.c`; `filemap_fault`, `filemap_read` in `mm/filemap.c`.

use refault_core::memory::readahead::{SwapWindow, Window};
use refault_core::policy::{AccessReport, Admission, HitReport};
use refault_core::{PageId, PageType};
use refault_trace::Kind;

use super::Machine;
use super::device::Direction;
use super::group::GroupId;
use super::memory::{Completion, entry, state};

/// Sleep until a time, stalled for memory or not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub until: u64,
    pub stalled: bool,
}

/// What an access cost.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    /// CPU time without being stalled for memory.
    pub cpu: u64,
    /// CPU time while stalled: reclaim, and synchronous reads of the working set.
    pub stall: u64,
    /// What it waits for afterwards.
    pub wait: Option<Wait>,
}

/// A page could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Try again later.
    Later,
    /// The task was killed.
    Killed,
}

/// How a page is brought in.
#[derive(Clone, Copy)]
struct Bring {
    group: GroupId,
    in_fault: bool,
    overwrites: bool,
    /// Read ahead: not worth retrying or killing for.
    speculative: bool,
    bits: u16,
}

impl Machine {
    /// The current access of a task needs more than bits set.
    pub(super) fn miss(&mut self, id: usize) -> Outcome {
        let task = &self.tasks[id];
        let access = task.block[task.at];
        let (offset, write) = (access.page() as u32, access.write());
        let mut outcome = Outcome::default();
        let done = match access.kind() {
            Some(Kind::Fd) => self.descriptor_access(id, offset, write, &mut outcome),
            Some(Kind::Anon) => self.anon_fault(id, offset, write, &mut outcome),
            _ => self.file_fault(id, offset, write, &mut outcome),
        };
        match done {
            Ok(()) => {
                self.statistics.pgfault += u64::from(access.kind() != Some(Kind::Fd));
                outcome.cpu += self.finish_access(id);
            }
            Err(Refused::Later | Refused::Killed) => {}
        }
        outcome
    }

    /// `read()` or `write()` of one page.
    fn descriptor_access(&mut self, id: usize, offset: u32, write: bool, outcome: &mut Outcome) -> Result<(), Refused> {
        let file = self.tasks[id].file.as_ref().expect("invariant: a phase with file accesses has a file");
        let (first, pages, random) = (file.first, file.pages, file.random);
        let page = first + offset;
        outcome.cpu += self.memory.costs.read_hit;
        let mut missed = false;
        if !self.memory.has(page, state::RESIDENT) {
            missed = true;
            if write || self.memory.cached_on(page).is_some() {
                let bring = Bring {
                    group: self.tasks[id].group,
                    in_fault: false,
                    overwrites: write,
                    speculative: false,
                    bits: 0,
                };
                self.bring_in(id, page, bring, outcome)?;
            } else {
                let window = self.descriptor_window(id, first, offset, pages, random);
                self.read_window(id, first, window, Some(offset), false, outcome)?;
            }
        }
        if self.memory.has(page, state::MARKER) && !missed {
            self.memory.state[page as usize] &= !state::MARKER;
            self.read_on(id, first, offset, pages, false, outcome);
        }
        self.wait_if_locked(page, outcome);
        if write {
            self.dirty_file_page(page, outcome);
        }
        let file = self.tasks[id].file.as_mut().expect("invariant: tested above");
        file.window.hit(offset.into());
        match file.reads.report(self.hit_report, page, write, !missed) {
            AccessReport::Tell => {
                if self.hit_report == HitReport::Kernel {
                    outcome.cpu += self.memory.costs.mark_accessed;
                }
                self.policy.accessed(page, &mut self.memory);
            }
            AccessReport::SetBit => self.memory.state[page as usize] |= state::TOUCHED,
            AccessReport::Nothing => {}
        }
        Ok(())
    }

    fn descriptor_window(&mut self, id: usize, first: PageId, offset: u32, pages: u32, random: bool) -> Window {
        let most = self.config.readahead;
        if random || most == 0 {
            return Window { start: u64::from(offset), len: 1, marker: None };
        }
        let states = &self.memory.state;
        let cached = |most: u64| {
            let before = (offset - (most as u32).min(offset)..offset).rev();
            before.take_while(|o| states[(first + o) as usize] & state::RESIDENT != 0).count() as u64
        };
        let file = self.tasks[id].file.as_mut().expect("invariant: the caller has one");
        file.window.miss(offset.into(), pages.into(), most.into(), cached)
    }

    /// The next window, because a marked page was used; `in_fault`: by a fault, which marks what it reads ahead too (spec:
    /// mglru §4).
    fn read_on(&mut self, id: usize, first: PageId, offset: u32, pages: u32, in_fault: bool, outcome: &mut Outcome) {
        let most = self.config.readahead;
        let file = self.tasks[id].file.as_mut().expect("invariant: the caller has one");
        if file.random || most == 0 {
            return;
        }
        let window = file.window.marked(offset.into(), pages.into(), most.into());
        // No task waits for these pages; a failure only ends the window.
        let _ = self.read_window(id, first, window, None, in_fault, outcome);
    }

    /// An access through a file mapping without a (suitable) entry.
    fn file_fault(&mut self, id: usize, offset: u32, write: bool, outcome: &mut Outcome) -> Result<(), Refused> {
        let file = self.tasks[id].file.as_ref().expect("invariant: a phase with file accesses has a file");
        let (first, pages, mapping, random) = (file.first, file.pages, file.mapping, file.random);
        let page = first + offset;
        outcome.cpu += self.memory.costs.fault;
        let most = self.config.readahead;
        // A mapping without recency never says that a page came in by a fault (spec: overview §2).
        let recency = self.memory.mappings[mapping].recency;
        let missed = !self.memory.has(page, state::RESIDENT);
        if missed && self.memory.cached_on(page).is_some() {
            let group = self.tasks[id].group;
            let bring = Bring { group, in_fault: recency, overwrites: false, speculative: false, bits: 0 };
            self.bring_in(id, page, bring, outcome)?;
        } else if missed {
            let file = self.tasks[id].file.as_mut().expect("invariant: tested above");
            let window = if random || most == 0 {
                Window { start: u64::from(offset), len: 1, marker: None }
            } else {
                file.window.mapped_miss(offset.into(), pages.into(), most.into())
            };
            self.read_window(id, first, window, Some(offset), recency, outcome)?;
            self.count_major_fault(id);
        } else if self.memory.has(page, state::MARKER) {
            self.memory.state[page as usize] &= !state::MARKER;
            self.read_on(id, first, offset, pages, recency, outcome);
        }
        self.wait_if_locked(page, outcome);
        self.memory.map(mapping, page, write, !missed || self.hit_report != HitReport::AccessedBit);
        self.fault_around(id, first, offset, pages, mapping);
        if write {
            self.dirty_file_page(page, outcome);
        }
        Ok(())
    }

    /// Maps cached neighbours, young as on x86.
    fn fault_around(&mut self, id: usize, first: PageId, offset: u32, pages: u32, mapping: usize) {
        let around = self.config.fault_around;
        if around <= 1 {
            return;
        }
        let start = offset / around * around;
        let mut useful = 1;
        for neighbour in start..(start + around).min(pages) {
            let bits = self.memory.state[(first + neighbour) as usize];
            let present = self.memory.mappings[mapping].entries[neighbour as usize] & entry::PRESENT != 0;
            if neighbour != offset && !present && bits & (state::RESIDENT | state::LOCKED) == state::RESIDENT {
                self.memory.map(mapping, first + neighbour, false, true);
                useful += i32::from(bits & state::WORKINGSET == 0);
            }
        }
        let file = self.tasks[id].file.as_mut().expect("invariant: the caller has one");
        file.window.misses = (file.window.misses - useful).max(0);
    }

    /// An access to anonymous memory without a (suitable) entry.
    fn anon_fault(&mut self, id: usize, offset: u32, write: bool, outcome: &mut Outcome) -> Result<(), Refused> {
        let (mapping, first) = (self.tasks[id].anon_mapping, self.tasks[id].anon_first);
        let page = first + offset;
        outcome.cpu += self.memory.costs.fault;
        let bits = self.memory.state[page as usize];
        let missed = bits & state::RESIDENT == 0;
        if missed {
            if bits & state::SEEN == 0 {
                if !self.wants_huge(id, offset) || !self.huge_fault(id, offset, outcome) {
                    let bring = self.fault_of(id, page);
                    self.bring_in(id, page, bring, outcome)?;
                    outcome.cpu += self.memory.costs.zero_page;
                }
            } else {
                if self.swap_in(id, first, offset, outcome)? {
                    self.count_major_fault(id);
                }
            }
        } else if bits & state::AHEAD != 0 {
            self.memory.state[page as usize] &= !state::AHEAD;
            self.tasks[id].swap_window.hits += 1;
        }
        self.wait_if_locked(page, outcome);
        let bits = self.memory.state[page as usize];
        if write && bits & state::SLOT != 0 {
            if bits & state::WRITEBACK == 0 {
                self.memory.release_slot(page);
            } else {
                self.memory.mark_dirty(page);
            }
        }
        // The access that brings a page in is not a hit for policies that count hits by the bit alone.
        let young = !missed || self.hit_report != HitReport::AccessedBit;
        self.memory.map(mapping, page, write || bits & state::SLOT == 0, young);
        Ok(())
    }

    fn fault_of(&self, id: usize, page: PageId) -> Bring {
        let owner = if self.memory.has(page, state::SLOT) {
            self.memory.group_of(self.memory.lruvec[page as usize])
        } else {
            self.tasks[id].group
        };
        Bring { group: owner, in_fault: true, overwrites: false, speculative: false, bits: 0 }
    }

    /// Reads a page back from swap, with its neighbours where the device makes that worth while. False if nothing had
    /// to be read.
    fn swap_in(&mut self, id: usize, first: PageId, offset: u32, outcome: &mut Outcome) -> Result<bool, Refused> {
        let page = first + offset;
        let bring = self.fault_of(id, page);
        let (synchronous, rotating) = {
            let model = self.memory.swap_device.as_ref().expect("invariant: swapped out to a device").model();
            (model.synchronous, model.rotating)
        };
        if synchronous || self.memory.cached_on(page).is_some() {
            if self.bring_in(id, page, bring, outcome)? {
                return Ok(false);
            }
            self.memory.counters.pswpin += 1;
            let device = self.memory.swap_device.as_mut().expect("invariant: tested above");
            let cost = device.synchronous_cost(Direction::Read, 1);
            if self.memory.has(page, state::WORKINGSET) {
                outcome.stall += cost;
            } else {
                outcome.cpu += cost;
            }
            return Ok(true);
        }
        let pages = self.tasks[id].anon_pages;
        let size = self.tasks[id].swap_window.miss(offset, self.config.page_cluster);
        self.bring_in(id, page, Bring { bits: state::LOCKED, ..bring }, outcome)?;
        self.submit_swap_read(page, outcome);
        let neighbours: Vec<PageId> = if rotating {
            let slot = self.memory.swap_position(page);
            let cluster = u64::from(size.next_power_of_two());
            let start = slot / cluster * cluster;
            (start..start + cluster).filter_map(|slot| self.memory.page_in_slot(slot)).collect()
        } else {
            SwapWindow::around(offset, size, pages).map(|o| first + o).collect()
        };
        for neighbour in neighbours {
            let bits = self.memory.state[neighbour as usize];
            if neighbour == page || bits & (state::RESIDENT | state::SLOT) != state::SLOT {
                continue;
            }
            let ahead = Bring {
                speculative: true,
                bits: state::LOCKED | state::AHEAD,
                group: self.memory.group_of(self.memory.lruvec[neighbour as usize]),
                ..bring
            };
            match self.bring_in(id, neighbour, ahead, outcome) {
                Ok(true) => {}
                Ok(false) => self.submit_swap_read(neighbour, outcome),
                Err(_) => break,
            }
        }
        Ok(true)
    }

    fn submit_swap_read(&mut self, page: PageId, outcome: &mut Outcome) {
        outcome.cpu += self.memory.costs.submit;
        self.memory.counters.pswpin += 1;
        let at = self.now + outcome.cpu + outcome.stall;
        let position = self.memory.swap_position(page);
        let device = self.memory.swap_device.as_mut().expect("invariant: swapped out to a device");
        let done = device.submit(at, Direction::Read, position, 1);
        self.reading.push((page, 1, done));
        self.memory.completions.push((done, Completion::Read { first: page, count: 1 }));
        self.collect_completions();
    }

    /// Brings in what is missing of a window and reads it. Only the demanded page must succeed.
    fn read_window(
        &mut self,
        id: usize,
        first: PageId,
        window: Window,
        demand: Option<u32>,
        in_fault: bool,
        outcome: &mut Outcome,
    ) -> Result<(), Refused> {
        let synchronous = self.memory.file_device.is_synchronous();
        let bits = if synchronous { 0 } else { state::LOCKED };
        let mut run: Option<(PageId, u32)> = None;
        let mut workingset = false;
        let mut result = Ok(());
        // A file has fewer than 2^32 pages.
        for offset in window.start as u32..(window.start + window.len) as u32 {
            let page = first + offset;
            let demanded = demand == Some(offset);
            if self.memory.has(page, state::RESIDENT) {
                self.submit_file_read(run.take(), workingset, outcome);
                continue;
            }
            let bring = Bring {
                group: self.tasks[id].group,
                in_fault,
                overwrites: false,
                speculative: !demanded,
                bits: bits | if window.marker == Some(offset.into()) { state::MARKER } else { 0 },
            };
            match self.bring_in(id, page, bring, outcome) {
                Ok(true) => self.submit_file_read(run.take(), workingset, outcome),
                Ok(false) => {
                    workingset |= self.memory.has(page, state::WORKINGSET);
                    run = Some(run.map_or((page, 1), |(start, len)| (start, len + 1)));
                }
                Err(refused) if demanded => {
                    result = Err(refused);
                    break;
                }
                // Reading ahead is given up, but the page that is waited for may still lie ahead.
                Err(Refused::Killed) => {
                    result = Err(Refused::Killed);
                    break;
                }
                Err(Refused::Later) => {
                    self.submit_file_read(run.take(), workingset, outcome);
                    if demand.is_none_or(|wanted| wanted < offset) {
                        break;
                    }
                }
            }
        }
        self.submit_file_read(run, workingset, outcome);
        result
    }

    fn submit_file_read(&mut self, run: Option<(PageId, u32)>, workingset: bool, outcome: &mut Outcome) {
        let Some((first, count)) = run else { return };
        self.memory.counters.file_reads += u64::from(count);
        if self.memory.file_device.is_synchronous() {
            let cost = self.memory.file_device.synchronous_cost(Direction::Read, u64::from(count));
            if workingset {
                outcome.stall += cost;
            } else {
                outcome.cpu += cost;
            }
            return;
        }
        outcome.cpu += self.memory.costs.submit;
        let at = self.now + outcome.cpu + outcome.stall;
        let done = self.memory.file_device.submit(at, Direction::Read, u64::from(first), u64::from(count));
        self.reading.push((first, count, done));
        self.memory.completions.push((done, Completion::Read { first, count }));
        self.collect_completions();
    }

    /// The contents of some pages have arrived.
    pub(super) fn read_done(&mut self, first: PageId, count: u32) {
        if let Some(at) = self.reading.iter().position(|read| read.0 == first) {
            self.reading.swap_remove(at);
        }
        for page in first..first + count {
            self.memory.state[page as usize] &= !state::LOCKED;
        }
    }

    fn wait_if_locked(&mut self, page: PageId, outcome: &mut Outcome) {
        if !self.memory.has(page, state::LOCKED) {
            return;
        }
        let arrival = self.reading.iter().find(|(first, count, _)| (*first..first + count).contains(&page));
        let Some(&(_, _, until)) = arrival else { return };
        outcome.wait = Some(Wait { until, stalled: self.memory.has(page, state::WORKINGSET) });
    }

    /// Allocates, charges and admits a page. True if its contents are there, because its frame was not reused since it
    /// was evicted; otherwise they are the caller's business.
    fn bring_in(&mut self, id: usize, page: PageId, bring: Bring, outcome: &mut Outcome) -> Result<bool, Refused> {
        let node = self.charge(id, bring.group, bring.speculative, page, outcome)?;
        let found = if bring.overwrites { None } else { self.memory.cached_on(page) };
        let node = found.unwrap_or(node);
        if let Some(frames) = &mut self.memory.frames {
            let again = found.is_none() && !bring.overwrites && self.memory.state[page as usize] & state::SEEN != 0;
            frames.counts.pages_read_again += u64::from(again);
        }
        // Reclaim may have thrown a neighbour's page table away, but this page cannot have come in meanwhile.
        debug_assert!(!self.memory.has(page, state::RESIDENT));
        let lruvec = self.memory.lruvec_of(bring.group, node);
        let file = self.memory.is_file(page);
        let shadow = self.memory.take_shadow(page);
        let keeps_slot = !file
            && self.memory.has(page, state::SLOT)
            && self.memory.swap_device.as_ref().is_some_and(|device| !device.is_synchronous());
        let page_type = if file { PageType::File } else { PageType::Anon };
        let admission = match (bring.in_fault, bring.overwrites) {
            (true, _) => Admission::fault(page_type),
            (false, false) => Admission::read(page_type),
            (false, true) => Admission::overwrite(page_type),
        };
        let shadow = if found.is_some() { None } else { shadow };
        let admission = admission.in_lruvec(lruvec).keeping_slot(keeps_slot).with_shadow(shadow);
        self.policy.admit(page, &admission, &mut self.memory);
        if found.is_some() {
            self.memory.reactivate(page, lruvec, bring.bits & !(state::LOCKED | state::AHEAD));
        } else {
            self.memory.insert(page, lruvec, bring.bits);
        }
        if self.policy.is_workingset(page) {
            self.memory.state[page as usize] |= state::WORKINGSET;
        }
        outcome.cpu += self.memory.costs.allocate;
        Ok(found.is_some())
    }

    fn count_major_fault(&mut self, id: usize) {
        self.memory.counters.pgmajfault += 1;
        self.tasks[id].major_faults += 1;
        let group = self.tasks[id].group;
        self.memory.groups[group].major_faults += 1;
    }
}
