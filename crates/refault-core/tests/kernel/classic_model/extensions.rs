//! What the model of the classic lists has beyond [`Policy`](refault_core::Policy): groups, and sorting by schemes.

use refault_core::memory::{IoState, Memory};
use refault_core::policy::{
    BackgroundPass, NodeReclaim, PassOutcome, Policy, ProactiveRequest, ReclaimRequest, SortRule, Sorting,
};
use refault_core::{LruvecId, PageId};

use super::{ClassicModel, Lruvec};

impl NodeReclaim for ClassicModel {
    fn add_lruvec(&mut self, parent: Option<LruvecId>) -> LruvecId {
        self.tree.0.push(parent);
        self.lruvecs.push(Lruvec::default());
        self.lruvecs.len() as LruvecId - 1
    }

    fn reclaim_nodes<M: Memory>(&mut self, _roots: &[LruvecId], _memory: &mut M) -> u32 {
        unreachable!("the driver reclaims for limits only")
    }

    fn background_pass<M: Memory>(&mut self, _pass: &BackgroundPass, _memory: &mut M) -> PassOutcome {
        unreachable!("the driver reclaims for limits only")
    }

    fn reclaim_proactively<M: Memory>(&mut self, request: &ProactiveRequest, memory: &mut M) -> u32 {
        let own = self.params.swappiness;
        self.params.swappiness = request.swappiness.unwrap_or(own);
        let request = ReclaimRequest { target: request.target, goal: request.goal, incoming: None };
        let freed = self.reclaim(&request, memory);
        self.params.swappiness = own;
        freed
    }

    /// Off its list, without flags, through the batch stage for no group's limit (damos §3.2, classic §12).
    fn page_out<M: Memory>(&mut self, id: PageId, memory: &mut M) -> bool {
        if !self.is_listed(id) || self.activating.contains(&id) {
            return false;
        }
        self.own_list(id).retain(|p| *p != id);
        self.page(id).active = false;
        self.page(id).referenced = false;
        let gone = self.batch_stage(id, 0, false, memory, &mut 0);
        if !gone && memory.io_state(id).any(IoState::UNEVICTABLE) {
            self.cull(id);
        } else if !gone {
            self.adding.push(id);
            if self.adding.len() >= self.params.batch {
                self.drain_additions();
            }
        }
        gone
    }

    fn made_evictable(&mut self, id: PageId) {
        self.drain();
        if std::mem::take(&mut self.page(id).culled) {
            self.own_list(id).push_front(id);
        }
    }

    fn is_workingset(&self, id: PageId) -> bool {
        self.pages[&id].workingset
    }

    fn write_finished(&mut self, id: PageId) {
        // A page that waits for its activation cannot be isolated.
        if !std::mem::take(&mut self.page(id).reclaim) || !self.is_listed(id) || self.activating.contains(&id) {
            return;
        }
        self.own_list(id).retain(|p| *p != id);
        self.page(id).active = false;
        self.own_list(id).push_back(id);
        self.counters.pgrotated += 1;
    }
}

impl Sorting for ClassicModel {
    fn prioritise<M: Memory>(&mut self, id: PageId, rule: SortRule, _memory: &mut M) {
        if !self.is_listed(id) || self.activating.contains(&id) {
            return;
        }
        match rule {
            SortRule::MarkAccessed => self.mark_accessed(id),
            SortRule::Activate if self.pages[&id].active => {}
            SortRule::Activate => self.activate_later(id),
        }
    }

    fn deprioritise<M: Memory>(&mut self, id: PageId, _rule: SortRule, _memory: &mut M) {
        if !self.pages[&id].active || !self.is_listed(id) {
            return;
        }
        self.own_list(id).retain(|p| *p != id);
        self.page(id).active = false;
        self.page(id).referenced = false;
        self.own_list(id).push_front(id);
        self.counters.pgdeactivate += 1;
    }
}

/// Where pages go that stay.
impl ClassicModel {
    pub(super) fn cull(&mut self, id: PageId) {
        self.page(id).culled = true;
        self.page(id).active = false;
    }

    pub(super) fn activate(&mut self, id: PageId) -> bool {
        self.page(id).active = true;
        self.counters.pgactivate += 1;
        false
    }
}
