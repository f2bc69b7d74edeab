//! Shared pages that a relative has evicted go first ([`crate::tree::dropped`]).

use core::sync::atomic::Ordering;

use refault_core::{PageId, Shadow};

use super::Engine;
use crate::PAGE;
use crate::page::table::CHUNK_PAGES;
use crate::tree::dropped::MAX_CHUNKS;

impl Engine {
    /// A shared page was given up: others are to give it up as well.
    pub(crate) fn note_dropped(&self, address: usize) {
        self.account.shared().dropped.note(self.hand.family, address);
    }

    /// Takes shared pages from the policy that others have given up already, `wanted` and less than a chunk more.
    pub(crate) fn choose_dropped(&mut self, wanted: usize, chosen: &mut Vec<(PageId, Shadow)>) {
        let notes = self.account.shared().dropped.notes.load(Ordering::Relaxed);
        if notes == self.hand.seen || self.hand.family == 0 {
            return;
        }
        let mut looks = 0;
        while looks < MAX_CHUNKS && chosen.len() < wanted {
            looks += 1;
            let Some((start, end, attributes)) = self.ranges.from(self.hand.at) else {
                (self.hand.at, self.hand.seen, self.hand.began) = (0, self.hand.began, notes);
                return;
            };
            let start = start.max(self.hand.at);
            let known = if attributes.can_be_evicted() { self.table.next_known(start, end) } else { None };
            let Some(known) = known else {
                self.hand.at = end;
                continue;
            };
            self.hand.at = (known + 1).next_multiple_of(CHUNK_PAGES * PAGE).min(end);
            let noted = self.account.shared().dropped.noted(self.hand.family, known);
            for address in (known..self.hand.at).step_by(PAGE) {
                if noted >> (address / PAGE % CHUNK_PAGES) & 1 == 1
                    && let Some((page, entry)) = self.table.find(address)
                    && entry.is_guarded()
                    && !entry.is_held()
                {
                    self.policy.freed(page);
                    chosen.push((page, Shadow::NONE));
                }
            }
        }
    }
}
