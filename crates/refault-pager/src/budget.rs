//! Budgets: how many pages may be resident, as a tree with minimum, share and maximum.
//!
//! A pager stands at one budget; a budget without a pager only bounds those below it. When a budget is reached, one
//! pager below it evicts pages: the one whose oldest generation is oldest. That age is weighted by how far the pager is
//! above its minimum in proportion to its share. Pagers at or below their minimum give way only when no other pager
//! can.
//!
//! Invariants: a budget's use is the sum of its pagers' resident pages; use exceeds the maximum only by charges that
//! were forced (counted as overruns). Cost: one atomic addition per level of the tree and page. Nothing is allocated
//! by a charge.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use refault_store::PAGE_SIZE;

use crate::pager::Inner;

/// Bounds of one budget, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct BudgetBounds {
    /// Kept when others need room. Default 0.
    pub minimum: u64,
    /// Weight against siblings when room must be made, at least 1. Default 100.
    pub share: u64,
    /// Never exceeded. Default: no bound of its own.
    pub maximum: u64,
}

impl Default for BudgetBounds {
    fn default() -> BudgetBounds {
        BudgetBounds { minimum: 0, share: 100, maximum: u64::MAX }
    }
}

pub(crate) struct Node {
    parent: Option<Budget>,
    minimum: u64,
    share: u64,
    maximum: AtomicU64,
    used: AtomicU64,
    children: Mutex<Vec<Weak<Node>>>,
    pager: Mutex<Weak<Inner>>,
}

/// A node of the tree. Clones are the same node.
#[derive(Clone)]
pub struct Budget(Arc<Node>);

impl Budget {
    /// A tree of its own that allows `bytes` to be resident.
    pub fn new(bytes: u64) -> Budget {
        Budget::with(None, BudgetBounds { maximum: bytes, ..BudgetBounds::default() })
    }

    /// A budget below this one.
    pub fn child(&self, bounds: BudgetBounds) -> Budget {
        let child = Budget::with(Some(self.clone()), bounds);
        let mut children = self.0.children.lock().expect("invariant: nothing panics under this lock");
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(&child.0));
        drop(children);
        child
    }

    fn with(parent: Option<Budget>, bounds: BudgetBounds) -> Budget {
        Budget(Arc::new(Node {
            parent,
            minimum: bounds.minimum / PAGE_SIZE as u64,
            share: bounds.share.max(1),
            maximum: AtomicU64::new(bounds.maximum / PAGE_SIZE as u64),
            used: AtomicU64::new(0),
            children: Mutex::new(Vec::new()),
            pager: Mutex::new(Weak::new()),
        }))
    }

    /// Bytes that are resident below this budget.
    pub fn used_bytes(&self) -> u64 {
        self.0.used.load(Ordering::Acquire) * PAGE_SIZE as u64
    }

    /// Bytes that may be resident.
    pub fn maximum_bytes(&self) -> u64 {
        self.maximum_pages().saturating_mul(PAGE_SIZE as u64)
    }

    pub(crate) fn maximum_pages(&self) -> u64 {
        self.0.maximum.load(Ordering::Acquire)
    }

    pub(crate) fn used_pages(&self) -> u64 {
        self.0.used.load(Ordering::Acquire)
    }

    pub(crate) fn set_maximum_pages(&self, pages: u64) {
        self.0.maximum.store(pages, Ordering::Release);
    }

    pub(crate) fn attach(&self, pager: &Arc<Inner>) -> bool {
        let mut slot = self.0.pager.lock().expect("invariant: nothing panics under this lock");
        if slot.strong_count() > 0 {
            return false;
        }
        *slot = Arc::downgrade(pager);
        true
    }

    fn ancestors(&self) -> impl Iterator<Item = &Budget> {
        std::iter::successors(Some(self), |budget| budget.0.parent.as_ref())
    }

    /// Charges pages to this budget and all above, or to none and names the one that would be exceeded. The one that
    /// refuses is not seen to be exceeded meanwhile: the evictor would take that for a lack of room.
    pub(crate) fn try_charge(&self, pages: u64) -> Result<(), &Budget> {
        for budget in self.ancestors() {
            let charged = |used: u64| used.checked_add(pages).filter(|used| *used <= budget.maximum_pages());
            if budget.0.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, charged).is_err() {
                for undo in self.ancestors().take_while(|undo| !Arc::ptr_eq(&undo.0, &budget.0)) {
                    undo.0.used.fetch_sub(pages, Ordering::AcqRel);
                }
                return Err(budget);
            }
        }
        Ok(())
    }

    /// Charges without asking.
    pub(crate) fn charge_anyway(&self, pages: u64) {
        self.ancestors().for_each(|budget| {
            budget.0.used.fetch_add(pages, Ordering::AcqRel);
        });
    }

    pub(crate) fn uncharge(&self, pages: u64) {
        self.ancestors().for_each(|budget| {
            budget.0.used.fetch_sub(pages, Ordering::AcqRel);
        });
    }

    /// The budget here or above with the least room, and that room in pages (negative: exceeded).
    pub(crate) fn tightest(&self) -> (&Budget, i64) {
        self.ancestors()
            .map(|budget| (budget, budget.maximum_pages() as i64 - budget.used_pages() as i64))
            .min_by_key(|(_, room)| *room)
            .expect("invariant: a budget is its own first ancestor")
    }

    /// The pager below this budget that should give way.
    pub(crate) fn victim(&self) -> Option<Arc<Inner>> {
        let mut best = None;
        self.consider(&mut best);
        best.map(|(_, pager)| pager)
    }

    fn consider(&self, best: &mut Option<((bool, u128), Arc<Inner>)>) {
        if let Some(pager) = self.0.pager.lock().expect("invariant: nothing panics under this lock").upgrade() {
            let used = self.used_pages();
            let above = used.saturating_sub(self.0.minimum);
            let age = u128::from(pager.oldest_generation_age());
            let score = (above > 0, (age + 1) * u128::from(above.max(1)) / u128::from(self.0.share));
            if used > 0 && best.as_ref().is_none_or(|(known, _)| score > *known) {
                *best = Some((score, pager));
            }
        }
        for child in self.0.children.lock().expect("invariant: nothing panics under this lock").iter() {
            if let Some(child) = child.upgrade() {
                Budget(child).consider(best);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_counts_on_every_level_or_on_none() {
        let root = Budget::new(10 << 12);
        let left = root.child(BudgetBounds { maximum: 8 << 12, ..BudgetBounds::default() });
        let right = root.child(BudgetBounds::default());
        assert!(left.try_charge(8).is_ok());
        assert!(left.try_charge(1).is_err());
        assert!(right.try_charge(3).is_err());
        assert_eq!((left.used_pages(), right.used_pages(), root.used_pages()), (8, 0, 8));
        assert!(right.try_charge(2).is_ok());
        assert_eq!(left.tightest().1, 0);
        left.uncharge(8);
        assert_eq!((left.used_pages(), root.used_pages()), (0, 2));
        right.charge_anyway(20);
        assert_eq!(right.tightest().1, -12);
    }

    #[test]
    fn a_charge_that_is_refused_exceeds_nothing_meanwhile() {
        let root = Budget::new(4 << 12);
        let child = root.child(BudgetBounds::default());
        child.charge_anyway(4);
        std::thread::scope(|scope| {
            let charges = scope.spawn(|| (0..200_000).for_each(|_| assert!(root.try_charge(1).is_err())));
            while !charges.is_finished() {
                assert_eq!((child.tightest().1, root.used_pages()), (0, 4));
            }
        });
        assert!(child.try_charge(1).is_err());
        assert_eq!(child.used_pages(), 4);
    }
}
