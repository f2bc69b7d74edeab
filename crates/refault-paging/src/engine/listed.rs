//! Pages that the kernel looks at by itself when a thread ends, whatever ends it: those of its list of robust mutexes.
//!
//! The kernel walks that list, and stops where it meets a page that is out: the mutexes behind it would stay locked for
//! ever. A process that is killed can bring nothing in, so such pages stay. The program puts a mutex into its list
//! without a call; it has written to it by then. So the lists are looked at whenever pages are about to leave.
//!
//! Invariant: what [`Lists::kept`] names is held once. Cost: two look-ups and a copy of 24 bytes for each thread with a
//! list, per batch.

use super::Engine;
use crate::PAGE;
use crate::page::table::State;

/// Shows the addresses of all lists' parts to its second argument. It reads none that its first calls missing.
pub type Walk = fn(&dyn Fn(usize) -> bool, &mut dyn FnMut(usize));

/// See the module.
#[derive(Default)]
pub(crate) struct Lists {
    walk: Option<Walk>,
    kept: Vec<usize>,
}

impl Engine {
    /// Says how to find out what is in the threads' lists.
    pub fn looks_at_lists_with(&mut self, walk: Walk) {
        self.lists.walk = Some(walk);
    }

    /// Holds what is in the threads' lists now, and nothing that was.
    pub(crate) fn keep_listed(&mut self) {
        let Some(walk) = self.lists.walk else { return };
        let mut listed = Vec::new();
        let pages = &self.pages;
        // What may not be read says so by SIGSEGV, which the walk survives.
        let is_there = |address| match pages.state(address) {
            State::Resident => true,
            State::Untouched => pages.range(address).is_none(),
            _ => false,
        };
        walk(&is_there, &mut |address| listed.push(address & !(PAGE - 1)));
        if listed.is_empty() && self.lists.kept.is_empty() {
            return;
        }
        listed.sort_unstable();
        listed.dedup();
        listed.retain(|address| match self.pages.find(*address) {
            Some((page, entry)) if entry.state() == State::Resident && self.pages.range(*address).is_some() => {
                self.pages.hold(page, 1);
                true
            }
            _ => false,
        });
        for address in std::mem::replace(&mut self.lists.kept, listed) {
            self.pages.release(address);
        }
    }
}
