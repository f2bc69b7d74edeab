//! Out of memory: which task is killed, and what that frees.
//!
//! Kernel: `out_of_memory`, `oom_badness` in `mm/oom_kill.c`; `mem_cgroup_out_of_memory` in `mm/memcontrol.c`.

use refault_core::PageId;
use refault_core::policy::HitReport;

use super::config::WhenKilled;
use super::group::GroupId;
use super::happenings::Happened;
use super::memory::{entry, state};
use super::report::Kill;
use super::task::Life;
use super::{End, Event, Machine};

impl Machine {
    /// Kills the task with the most memory in a group's subtree and frees that memory. False if there is none.
    pub(super) fn kill_in(&mut self, group: GroupId) -> bool {
        let candidates = (0..self.tasks.len()).filter(|id| {
            let task = &self.tasks[*id];
            task.life == Life::Working && self.memory.groups.is_below(task.group, group)
        });
        // The first of those with the most, so that runs repeat.
        let Some((id, resident)) = candidates
            .map(|id| (id, self.memory_of(id)))
            .reduce(|best, next| if next.1 > best.1 { next } else { best })
        else {
            self.end = Some(End::OutOfMemory);
            return false;
        };
        self.kill(id, resident, group);
        true
    }

    /// The user-space killer: ends the task that has not run for longest, if the trigger fires.
    pub(super) fn look_at_pressure(&mut self) {
        self.pressure.collect(self.now);
        let Some(killer) = &mut self.killer else { return };
        let (fires, next) = (killer.fires(self.now, &self.pressure), self.now + killer.interval());
        self.at(next, Event::Trigger);
        if !fires {
            return;
        }
        let working = (0..self.tasks.len()).filter(|id| self.tasks[*id].life == Life::Working);
        if let Some(id) = working.min_by_key(|id| self.tasks[*id].last_run) {
            let pages = self.memory_of(id);
            self.kill(id, pages, 0);
        }
    }

    fn kill(&mut self, id: usize, resident: u64, group: GroupId) {
        let victim_group = self.tasks[id].group;
        self.memory.groups.count_event(victim_group, |events| events.oom_kill += 1);
        self.statistics.oom_kills += 1;
        let group_name = self.memory.groups[group].name.clone();
        let task = self.config.tasks[id].name.clone();
        let what = Happened::Killed { task: task.clone(), pages: resident, group: group_name.clone() };
        self.happened(self.now, what);
        self.kills.push(Kill { at: self.now, task, pages: resident, group: group_name });
        self.tasks[id].kills += 1;
        self.tasks[id].life = Life::Killed;
        self.release_task_memory(id);
        if self.restart_of(id).is_some() {
            if self.restarts_left == 0 {
                self.end = Some(End::OutOfMemory);
            }
            self.restarts_left = self.restarts_left.saturating_sub(1);
        }
        self.wake(id, self.now);
    }

    pub(super) fn is_killed(&self, id: usize) -> bool {
        self.tasks[id].life == Life::Killed || self.end.is_some()
    }

    fn restart_of(&self, id: usize) -> Option<u64> {
        match self.config.tasks[id].when_killed {
            WhenKilled::Stop => None,
            WhenKilled::Restart(delay) => Some(delay),
        }
    }

    /// After what time a killed task starts again, if it does.
    pub(super) fn restart_delay(&self, id: usize) -> Option<u64> {
        self.restart_of(id)
    }

    /// Pages in memory and in swap that only this task uses, and file pages it maps.
    fn memory_of(&self, id: usize) -> u64 {
        let task = &self.tasks[id];
        let anon = (task.anon_first..task.anon_first + task.anon_pages)
            .filter(|page| self.memory.state[*page as usize] & (state::RESIDENT | state::SLOT) != 0)
            .count();
        let mapped: usize = self.memory.address_spaces[task.address_space]
            .mappings
            .iter()
            .filter(|mapping| **mapping != task.anon_mapping)
            .map(|mapping| self.memory.mappings[*mapping].entries.iter().filter(|e| **e & entry::PRESENT != 0).count())
            .sum();
        (anon + mapped) as u64
    }

    /// Frees the anonymous memory of a task and unmaps its files. What is being read or written right now stays until a
    /// later call.
    pub(super) fn release_task_memory(&mut self, id: usize) {
        let (first, pages) = (self.tasks[id].anon_first, self.tasks[id].anon_pages);
        for page in first..first + pages {
            let bits = self.memory.state[page as usize];
            if bits & (state::LOCKED | state::WRITEBACK) != 0 {
                self.forget_requests(page);
            }
            if bits & state::RESIDENT != 0 {
                self.policy.freed(page as PageId);
                self.memory.discard(page);
            } else if bits & state::SEEN != 0 {
                self.memory.discard_swapped(page);
            }
        }
        let space = self.tasks[id].address_space;
        self.memory.address_spaces[space].alive = false;
        for at in 0..self.memory.address_spaces[space].mappings.len() {
            let mapping = self.memory.address_spaces[space].mappings[at];
            if mapping != self.tasks[id].anon_mapping {
                self.unmap_file(mapping);
            }
        }
        self.counted = self.policy.counters();
    }

    /// Unmapping a young file page counts as one access through a descriptor (spec: classic §3).
    fn unmap_file(&mut self, mapping: usize) {
        let first = self.memory.segments[self.memory.mappings[mapping].segment].first;
        for offset in 0..self.memory.mappings[mapping].entries.len() {
            let bits = std::mem::take(&mut self.memory.mappings[mapping].entries[offset]);
            if bits & entry::YOUNG != 0 && self.hit_report == HitReport::Kernel {
                self.policy.accessed(first + offset as PageId, &mut self.memory);
            }
        }
    }

    /// A page is thrown away while a request for it is on its way: the request ends without effect.
    fn forget_requests(&mut self, page: PageId) {
        if self.memory.has(page, state::WRITEBACK) {
            self.memory.end_write(page);
        }
        self.memory.state[page as usize] &= !state::LOCKED;
    }
}
