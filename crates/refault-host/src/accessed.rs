//! Who knows what groups access: the kernel's generations where it has them, else its monitor ([`physical`]), else the page
//! tables of all processes.
//!
//! All show each group with all below it, and are asked for all groups at once. Generations count each page once, however many
//! processes map it; a look makes one, of which the kernel keeps four, so their windows follow each other. Page tables
//! ([`page_tables`]) keep accessed bits until they are cleared, so windows of several lengths can begin together.

mod bytes;
pub mod page_tables;
pub mod physical;

use std::collections::HashMap;
use std::io;
use std::path::Path;

pub use bytes::Accessed;
use refault_pool::reclaim::generations::{Generations, List, accessed_since, youngest};

use crate::text::printable;
use crate::tree::Group;

const PAGE: u64 = 4096;

/// A source.
#[derive(Debug)]
pub enum Source {
    /// The kernel's generations, and which were the youngest when the window began.
    Generations(Generations, HashMap<(u64, u64), u64>),
    /// The kernel's monitor.
    Monitor(physical::Monitor),
    /// Accessed bits of page tables.
    PageTables,
}

impl Source {
    /// The best that this machine permits for the hierarchy of this directory, with this number of groups, and why not better
    /// ones.
    pub fn best(root: &Path, groups: usize) -> (Source, Option<String>) {
        let first = match Source::generations(root) {
            Ok(source) => return (source, None),
            Err(error) => error,
        };
        let monitor = match groups {
            0..=physical::MAX_GROUPS => Source::monitor(),
            _ => Err(io::Error::other(format!("there are more than {} groups", physical::MAX_GROUPS))),
        };
        match monitor {
            Ok(source) => (source, Some(format!("generations: {first}"))),
            Err(second) => (Source::PageTables, Some(format!("generations: {first}; nor from DAMON: {second}"))),
        }
    }

    /// The kernel's generations.
    ///
    /// # Errors
    /// This kernel has none, or does not show them.
    pub fn generations(root: &Path) -> io::Result<Source> {
        Ok(Source::Generations(Generations::open(root)?, HashMap::new()))
    }

    /// The kernel's monitor.
    ///
    /// # Errors
    /// It cannot be had.
    pub fn monitor() -> io::Result<Source> {
        physical::Monitor::open().map(Source::Monitor)
    }

    /// Processor time that it took beside this thread's, since it was asked for before.
    pub fn take_spent(&mut self) -> std::time::Duration {
        match self {
            Source::Monitor(monitor) => monitor.take_spent(),
            _ => std::time::Duration::ZERO,
        }
    }

    /// In words, what it is.
    pub fn words(&self) -> String {
        match self {
            Source::Generations(generations, _) => generations.words(),
            Source::Monitor(_) => physical::WORDS.to_owned(),
            Source::PageTables => page_tables::WORDS.to_owned(),
        }
    }

    /// Whether each window begins at the end of the one before.
    pub fn follows(&self) -> bool {
        !matches!(self, Source::PageTables)
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
            Source::Monitor(monitor) => monitor.look(groups).map(drop),
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
            Source::Monitor(monitor) => monitor.look(groups)?,
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
