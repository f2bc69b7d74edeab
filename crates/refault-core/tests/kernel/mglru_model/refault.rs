//! What a refault counts and activates, as the model has it (spec: workingset §6, §7).

use super::*;

impl MglruModel {
    pub(super) fn refault(&mut self, id: PageId, old: Evicted, in_fault: bool, free_swap: bool) {
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        if old.lruvec != lruvec {
            return;
        }
        *[&mut self.counters.workingset_refault_anon, &mut self.counters.workingset_refault_file][t] += 1;
        if self.is_7_2() {
            self.refault_7_2(id, old, in_fault);
            return;
        }
        let references = old.refs + u64::from(old.workingset);
        let tier = self.tier(references, old.workingset);
        let recent = match self.params.refault {
            RefaultDistance::Generation => old.min_seq == self.lruvec(lruvec).min_seq[t],
            _ => {
                let distance = self.lruvec(lruvec).clock[t] - old.time;
                let recent = distance <= self.lruvec(lruvec).evicted[t].iter().sum::<u64>();
                let class = self.distance_class(lruvec, distance, free_swap);
                let graded = match self.params.refault {
                    RefaultDistance::Evictions => recent || class != Class::None,
                    _ => class == Class::Short,
                };
                if graded {
                    self.refault_by_distance(id, references, old.workingset, class, recent, in_fault);
                    return;
                }
                recent
            }
        };
        if !recent {
            return;
        }
        self.lruvec(lruvec).refaulted[t][tier] += 1;
        self.count_activate(t);
        if in_fault || references >= 3 {
            self.page(id).refs = 3;
            self.page(id).workingset = true;
            self.count_restore(t);
        }
    }

    pub(super) fn distance_class(&self, lruvec: LruvecId, distance: u64, free_swap: bool) -> Class {
        let [mut active, mut inactive] = self.active_and_inactive(lruvec, FILE);
        if free_swap {
            let anon = self.active_and_inactive(lruvec, ANON);
            active += anon[0];
            inactive += anon[1];
        }
        if self.params.refault == RefaultDistance::Unified {
            return if distance < active.min(inactive) { Class::Short } else { Class::None };
        }
        let total = active + inactive;
        if distance <= total / self.params.max_generations {
            Class::Short
        } else if distance <= total / self.params.min_generations {
            Class::Mid
        } else if distance <= total {
            Class::Long
        } else {
            Class::None
        }
    }

    pub(super) fn refault_by_distance(
        &mut self,
        id: PageId,
        references: u64,
        w: bool,
        class: Class,
        recent: bool,
        in_fault: bool,
    ) {
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        let tier = self.tier(references, w);
        if in_fault || references >= 3 {
            let page = self.page(id);
            if class == Class::Short {
                if in_fault {
                    page.refs |= references.min(3);
                } else {
                    page.active = true;
                }
                page.workingset = true;
            } else if recent || class == Class::Mid {
                page.refs |= (references - u64::from(w)).min(3);
                page.workingset = true;
            } else {
                page.refs |= 1;
            }
            self.count_restore(t);
        }
        let mut counted_tier = tier;
        if class == Class::Short && tier == 0 {
            self.page(id).workingset = true;
            counted_tier = 1.min(self.params.tiers - 1);
            self.count_activate(t);
        }
        let l = self.lruvec(lruvec);
        if counted_tier == tier && recent {
            l.refaulted[t][tier] += 1;
        } else {
            l.avg_total[t][counted_tier] += 1;
            l.avg_refaulted[t][counted_tier] += 1;
        }
    }

    pub(super) fn refault_7_2(&mut self, id: PageId, old: Evicted, in_fault: bool) {
        let (t, lruvec) = (self.pages[&id].page_type, self.pages[&id].lruvec);
        if self.lruvec(lruvec).max_seq.abs_diff(old.min_seq) >= self.params.max_generations {
            return;
        }
        let tier = self.tier(old.refs + 1, old.workingset);
        self.lruvec(lruvec).refaulted[t][tier] += 1;
        if old.workingset {
            if in_fault {
                self.count_activate(t);
            }
            self.page(id).workingset = true;
            self.count_restore(t);
        } else {
            self.page(id).refs = old.refs;
        }
    }

    pub(super) fn count_activate(&mut self, t: usize) {
        *[&mut self.counters.workingset_activate_anon, &mut self.counters.workingset_activate_file][t] += 1;
    }

    pub(super) fn count_restore(&mut self, t: usize) {
        *[&mut self.counters.workingset_restore_anon, &mut self.counters.workingset_restore_file][t] += 1;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Short,
    Mid,
    Long,
    None,
}
