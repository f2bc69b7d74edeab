//! Who knows what groups access: the kernel's generations where it has them, else the page tables of all processes.
//!
//! Both show each group with all below it, and are asked for all groups at once. Generations count each page once, however many
//! processes map it; a look makes one, of which the kernel keeps four, so their windows follow each other. Page tables
//! ([`page_tables`]) keep accessed bits until they are cleared, so windows of several lengths can begin together.

pub mod page_tables;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use refault_pool::reclaim::generations::{Generations, List, accessed_since, youngest};

use crate::text::printable;
use crate::tree::Group;

const PAGE: u64 = 4096;

/// What was accessed of a group and those below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accessed {
    /// Bytes that are no file's.
    pub anonymous_bytes: u64,
    /// Bytes of files and of shared memory.
    pub file_bytes: u64,
    /// By how much the sum may be larger: processes that share memory may access different parts of it.
    pub error_bytes: u64,
    /// The source counts pages that are charged to the group, and only those.
    pub is_by_charge: bool,
    /// Processes hold its memory at which this one may not look, of other users, PID namespaces or groups: what they access
    /// is not in the sums.
    pub is_in_part: bool,
}

impl Accessed {
    fn add(&mut self, other: Accessed) {
        self.anonymous_bytes = self.anonymous_bytes.saturating_add(other.anonymous_bytes);
        self.file_bytes = self.file_bytes.saturating_add(other.file_bytes);
        self.error_bytes = self.error_bytes.saturating_add(other.error_bytes);
        self.is_by_charge |= other.is_by_charge;
        self.is_in_part |= other.is_in_part;
    }
}

/// A source.
#[derive(Debug)]
pub enum Source {
    /// The kernel's generations, and which were the youngest when the window began.
    Generations(Generations, HashMap<(u64, u64), u64>),
    /// Accessed bits of page tables.
    PageTables,
}

impl Source {
    /// The best that this machine permits for the hierarchy of this directory, and why not a better one.
    pub fn best(root: &Path) -> (Source, Option<io::Error>) {
        match Generations::open(root) {
            Ok(generations) => (Source::Generations(generations, HashMap::new()), None),
            Err(error) => (Source::PageTables, Some(error)),
        }
    }

    /// In words, what it is.
    pub fn words(&self) -> String {
        match self {
            Source::Generations(generations, _) => generations.words(),
            Source::PageTables => page_tables::WORDS.to_owned(),
        }
    }

    /// Whether each window begins at the end of the one before.
    pub fn follows(&self) -> bool {
        matches!(self, Source::Generations(..))
    }

    /// Begins a window.
    ///
    /// # Errors
    /// The kernel makes no generation, or this user may look at no process.
    pub fn begin(&mut self, groups: &[Group]) -> io::Result<()> {
        match self {
            Source::Generations(generations, then) => {
                generations.age(std::time::Duration::ZERO)?;
                *then = youngest(&generations.lists()?);
                Ok(())
            }
            Source::PageTables => page_tables::clear(groups),
        }
    }

    /// What was accessed of each group since the window began, those below it included.
    ///
    /// # Errors
    /// The kernel shows no generations any more.
    pub fn look(&mut self, groups: &[Group]) -> io::Result<Vec<Accessed>> {
        let own = match self {
            Source::Generations(generations, then) => {
                generations.age(std::time::Duration::ZERO)?;
                by_list(groups, &generations.lists()?, then)
            }
            Source::PageTables => page_tables::look(groups),
        };
        Ok(with_those_below(groups, own))
    }
}

/// What the lists of each group itself say.
fn by_list(groups: &[Group], lists: &[List], then: &HashMap<(u64, u64), u64>) -> Vec<Accessed> {
    let places: HashMap<&str, usize> = groups.iter().enumerate().map(|(at, group)| (group.path.as_str(), at)).collect();
    let mut own = vec![Accessed::default(); groups.len()];
    for list in lists {
        let Some(at) = places.get(printable(list.path.as_bytes()).as_str()) else { continue };
        let first = then.get(&(list.group, list.node)).copied().unwrap_or(0);
        let young = list.generations.iter().filter(|generation| generation.number >= first);
        let anonymous = young.map(|generation| generation.anonymous_pages).sum::<u64>();
        let all = accessed_since(std::slice::from_ref(list), then);
        let anonymous_bytes = anonymous.saturating_mul(PAGE);
        let file_bytes = all.saturating_sub(anonymous).saturating_mul(PAGE);
        own[*at].add(Accessed { anonymous_bytes, file_bytes, is_by_charge: true, ..Accessed::default() });
    }
    own
}

/// Adds to each group what is below it; each stands after the one above it.
fn with_those_below(groups: &[Group], mut own: Vec<Accessed>) -> Vec<Accessed> {
    for at in (0..groups.len()).rev() {
        if let Some(parent) = groups[at].parent {
            let below = own[at];
            own[parent].add(below);
        }
    }
    own
}

#[cfg(test)]
mod tests {
    use refault_pool::reclaim::generations::parse;

    use super::*;

    fn group(path: &str, parent: Option<usize>) -> Group {
        Group { path: path.to_owned(), directory: path.into(), id: 0, version: 2, parent }
    }

    #[test]
    fn a_group_has_what_was_accessed_below_it() {
        let groups = [group("/", None), group("/web", Some(0)), group("/web/one", Some(1)), group("/db", Some(0))];
        let text = "memcg 1 /\n node 0\n  0 9000 7 0\nmemcg 5 /web/one\n node 0\n  3 9000 10 20\n  4 5 1 2\n \
                    node 1\n  8 5 100 0\nmemcg 6 /gone\n node 0\n  0 5 900 900\n";
        let then = HashMap::from([((1, 0), 1), ((5, 0), 4), ((5, 1), 9)]);
        let all = with_those_below(&groups, by_list(&groups, &parse(text), &then));
        let pages = |at: usize| (all[at].anonymous_bytes / PAGE, all[at].file_bytes / PAGE);
        assert_eq!([pages(0), pages(1), pages(2), pages(3)], [(1, 2), (1, 2), (1, 2), (0, 0)]);
    }
}
