//! What groups access, from the page tables of their processes: `clear_refs` clears the accessed bits, `smaps` counts
//! what has one since.
//!
//! What several processes of a group share, by the object that they map, counts once: as much as the one that accessed
//! most of it. They may have accessed different parts; how much more it is then at most is the error. Shared memory
//! without an object is what a process got by `fork` and has not written since; it counts by its addresses. Of a mapping
//! that is shared in part, that part is taken to be accessed as the whole is. A huge page counts whole.
//!
//! Processes that this one may not look at leave a sum in part. Version 2 lists those of other PID namespaces as 0. Version
//! 1 leaves them out, and so [`hidden`] looks for memory that is charged to a group and that none of its processes maps.
//!
//! Clearing makes the kernel's own reclaim take pages for idle until they are accessed again. Cost: the kernel walks the
//! page tables of each process, some 10 ms per GiB of small pages.

mod hidden;

use std::collections::HashMap;
use std::io;

use refault_pool::mappings::{Mapping, Object, clear_accessed, each_mapping};

use super::bytes::Accessed;
use crate::tree::Group;

/// The source, in words.
pub const WORDS: &str = "accessed bits of page tables (clear_refs and smaps)";

/// What several processes may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Shared {
    Object(Object),
    Inherited(u64),
}

/// How much was accessed of it.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// By one process.
    accessed_bytes: u64,
    resident_bytes: u64,
    is_anonymous: bool,
}

impl Use {
    fn add(&mut self, other: Use) {
        self.accessed_bytes += other.accessed_bytes;
        self.resident_bytes += other.resident_bytes;
        self.is_anonymous |= other.is_anonymous;
    }
}

/// What all processes of a group did to one thing.
#[derive(Clone, Copy, Debug, Default)]
struct Together {
    /// The process that accessed most.
    most: Use,
    sum_bytes: u64,
    /// The most that is resident in one process.
    resident_bytes: u64,
}

/// Clears the accessed bits of all processes.
///
/// # Errors
/// There are processes, and this user may look at none of them.
pub fn clear(groups: &[Group]) -> io::Result<()> {
    let (mut done, mut trouble) = (false, None);
    for pid in groups.iter().flat_map(Group::processes) {
        match clear_accessed(pid) {
            Ok(()) => done = true,
            Err(error) => trouble = Some(error),
        }
    }
    match trouble {
        Some(error) if !done => Err(error),
        _ => Ok(()),
    }
}

/// What was accessed of each group itself since.
pub fn look(groups: &[Group]) -> Vec<Accessed> {
    let hidden = hidden::Namespace::own();
    groups
        .iter()
        .map(|group| {
            let mut sums = Sums::of(&group.members());
            // What is allocated or given back while they are looked at is not hidden: it must be so twice.
            if hidden.holds_memory(group, sums.seen) {
                sums = Sums::of(&group.members());
                sums.own.is_in_part |= hidden.holds_memory(group, sums.seen);
            }
            sums.accessed()
        })
        .collect()
}

/// Sums over the processes of a group.
#[derive(Debug, Default)]
struct Sums {
    own: Accessed,
    shared: HashMap<Shared, Together>,
    seen: hidden::Seen,
}

impl Sums {
    fn of(processes: &[u32]) -> Sums {
        let mut sums = Sums::default();
        for pid in processes {
            let mut shared = HashMap::new();
            // One that has ended is left out.
            let seen = each_mapping(*pid, |mapping, object| sums.see(mapping, object, &mut shared));
            sums.seen.processes += usize::from(seen.is_ok());
            sums.own.is_in_part |= *pid == 0 || seen.is_err_and(|error| hidden::is(*pid, &error));
            sums.end(shared);
        }
        sums
    }

    /// A mapping of a process, whose shared things are kept apart.
    fn see(&mut self, mapping: &Mapping, object: Option<Object>, of_process: &mut HashMap<Shared, Use>) {
        let resident = mapping.resident_bytes;
        let part = |bytes: u64, of: u64| (u128::from(bytes) * u128::from(of) / u128::from(resident.max(1))) as u64;
        let accessed = mapping.accessed_bytes.min(resident);
        let anonymous = mapping.anonymous_bytes.min(resident);
        self.seen.anonymous_bytes += anonymous;
        self.seen.mapped_bytes += resident - anonymous;
        // Of an object's mapping all but what was written to privately is the object's.
        let shared = match object {
            Some(_) => resident - anonymous,
            None => mapping.shared_bytes.min(resident),
        };
        let used_together = part(accessed, shared);
        let is_anonymous = object.is_none();
        self.own.anonymous_bytes += accessed - used_together;
        if shared > 0 {
            let what = object.map_or(Shared::Inherited(mapping.start), Shared::Object);
            let one = Use { accessed_bytes: used_together, resident_bytes: shared, is_anonymous };
            of_process.entry(what).or_default().add(one);
        }
    }

    /// All mappings of a process were seen.
    fn end(&mut self, of_process: HashMap<Shared, Use>) {
        for (what, one) in of_process {
            let together = self.shared.entry(what).or_default();
            together.sum_bytes += one.accessed_bytes;
            together.resident_bytes = together.resident_bytes.max(one.resident_bytes);
            if one.accessed_bytes > together.most.accessed_bytes {
                together.most = one;
            }
        }
    }

    fn accessed(self) -> Accessed {
        let mut all = self.own;
        for together in self.shared.values() {
            let most = together.most.accessed_bytes;
            match together.most.is_anonymous {
                true => all.anonymous_bytes += most,
                false => all.file_bytes += most,
            }
            all.error_bytes += together.sum_bytes.min(together.resident_bytes).saturating_sub(most);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sums(processes: &[&[(Mapping, Option<Object>)]]) -> Accessed {
        let mut sums = Sums::default();
        for process in processes {
            let mut shared = HashMap::new();
            process.iter().for_each(|(mapping, object)| sums.see(mapping, *object, &mut shared));
            sums.end(shared);
        }
        sums.accessed()
    }

    fn mapping(resident: u64, accessed: u64, shared: u64, anonymous: u64) -> Mapping {
        Mapping {
            resident_bytes: resident * MIB,
            accessed_bytes: accessed * MIB,
            shared_bytes: shared * MIB,
            anonymous_bytes: anonymous * MIB,
            ..Mapping::default()
        }
    }

    #[test]
    fn what_processes_share_counts_once() {
        let heap = (mapping(8, 6, 0, 8), None);
        let library = (mapping(2, 1, 2, 0), Some((1, 7)));
        let segment = (mapping(64, 16, 64, 0), Some((1, 9)));
        let one = sums(&[&[heap.clone(), library.clone(), segment.clone()]]);
        assert_eq!((one.anonymous_bytes, one.file_bytes, one.error_bytes), (6 * MIB, 17 * MIB, 0));
        let two = sums(&[&[heap.clone(), library, segment.clone()], &[heap, segment]]);
        assert_eq!((two.anonymous_bytes, two.file_bytes, two.error_bytes), (12 * MIB, 17 * MIB, 16 * MIB));
        // One process has looked at more of the segment than the other.
        let part = (mapping(16, 16, 16, 0), Some((1, 9)));
        let some = (mapping(64, 16, 16, 0), Some((1, 9)));
        let both = sums(&[&[some], &[part]]);
        assert_eq!((both.anonymous_bytes, both.file_bytes, both.error_bytes), (0, 16 * MIB, 16 * MIB));
    }

    #[test]
    fn a_process_of_another_namespace_leaves_the_sum_in_part() {
        let own = std::process::id();
        assert!(!Sums::of(&[own]).accessed().is_in_part);
        let part = Sums::of(&[own, 0]).accessed();
        assert!(part.is_in_part && part.file_bytes > 0, "{part:?}");
        // One that has ended has accessed nothing.
        assert!(!Sums::of(&[u32::MAX]).accessed().is_in_part);
    }

    #[test]
    fn memory_inherited_by_fork_counts_once_and_is_no_file_s() {
        let inherited = (mapping(40, 20, 40, 40), None);
        let all = sums(&[std::slice::from_ref(&inherited), std::slice::from_ref(&inherited)]);
        assert_eq!((all.anonymous_bytes, all.file_bytes, all.error_bytes), (20 * MIB, 0, 20 * MIB));
        // Nothing is made of more than there is, whatever the kernel's counters say meanwhile.
        let odd = (mapping(1, 9, 9, 9), None);
        assert_eq!(sums(&[&[odd]]).anonymous_bytes, MIB);
    }
}
