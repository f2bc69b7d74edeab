//! Ages of a control group's pages from the kernel's own generations: the multi-gen LRU, by way of debugfs.
//!
//! The kernel lists for each group and node how many pages each generation has and when it began. A page is in the
//! generation that was youngest when it was last seen accessed. So it has been idle at least since the next one began
//! ([`List::idle`]). Without need for memory the kernel makes no generations; a look makes one. That clears the
//! accessed bits of the group's processes, and pages that were accessed enter the generation that was youngest until
//! then. The kernel keeps four and joins the oldest two when there would be more. So ages reach back three looks. One
//! generation too many makes pages count as younger, never as older. Pages of files that are read by calls instead of
//! mappings stay in their generation: the kernel looks at those when it evicts, and so the command may take less than
//! was counted. A busy page is found busy by the eviction itself and stays.
//!
//! Groups below count to a group, at the same rules. Cost: a look walks the page tables of the group's processes.
//!
//! ```
//! use std::time::Duration;
//!
//! use refault_pool::reclaim::generations::parse;
//!
//! let text = "memcg    12 /web\n node     0\n  7  90000  100  20 \n  8  60000  30  0 \n  9  10  5  0 \n";
//! let list = &parse(text)[0];
//! assert_eq!((list.path.as_str(), list.generations[0].anonymous_pages), ("/web", 100));
//! assert_eq!(list.idle(0), Duration::from_secs(60)); // idle since generation 8 began
//! assert_eq!(list.older_than(Duration::from_secs(30)), Some(7));
//! ```

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::groups::path_in_hierarchy;

/// Where the kernel lists generations.
pub const FILE: &str = "/sys/kernel/debug/lru_gen";
/// Which says whether there are any.
const ENABLED: &str = "/sys/kernel/mm/lru_gen/enabled";
/// How readily a look at generations may look at pages that are no file's; only whether it is 0 matters.
const LOOK_AT_ALL: u32 = 100;

/// One generation of a group on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// Its number; the younger, the larger.
    pub number: u64,
    /// Since it began.
    pub age: Duration,
    /// Pages that are no file's.
    pub anonymous_pages: u64,
    /// Pages of files.
    pub file_pages: u64,
}

/// The generations of a group on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The kernel's number of the group.
    pub group: u64,
    /// Its path below the root of the hierarchy.
    pub path: String,
    /// The node of memory.
    pub node: u64,
    /// Oldest first.
    pub generations: Vec<Generation>,
}

/// Pages of a group to evict: all up to a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The kernel's number of the group.
    pub group: u64,
    /// The node of memory.
    pub node: u64,
    /// The youngest generation that goes.
    pub number: u64,
    /// Pages that go at most.
    pub pages: u64,
    /// Pages that are no file's may go.
    pub swaps: bool,
}

impl List {
    /// For how long the pages of the generation at this place have been idle at least.
    pub fn idle(&self, at: usize) -> Duration {
        self.generations.get(at + 1).map_or(Duration::ZERO, |next| next.age)
    }

    /// The youngest generation whose pages have all been idle for at least `idle`, and that the kernel would evict: not
    /// the youngest two.
    pub fn older_than(&self, idle: Duration) -> Option<u64> {
        let most = self.generations.len().saturating_sub(2);
        (0..most).rev().find(|at| self.idle(*at) >= idle).map(|at| self.generations[at].number)
    }

    /// Pages up to a generation: those that are no file's, and those of files.
    fn pages_up_to(&self, number: u64) -> (u64, u64) {
        let old = self.generations.iter().filter(|generation| generation.number <= number);
        old.fold((0, 0), |sum, generation| (sum.0 + generation.anonymous_pages, sum.1 + generation.file_pages))
    }
}

/// The evictions after which no page is left that was idle for at least `idle`. At most `swap_pages` pages that are no
/// file's can go.
pub fn evictions(lists: &[List], idle: Duration, mut swap_pages: u64) -> Vec<Eviction> {
    let mut all = Vec::new();
    for list in lists {
        let Some(number) = list.older_than(idle) else { continue };
        let (anonymous, file) = list.pages_up_to(number);
        let swapped = anonymous.min(swap_pages);
        swap_pages -= swapped;
        if file + swapped > 0 {
            let (group, node) = (list.group, list.node);
            all.push(Eviction { group, node, number, pages: file + swapped, swaps: swapped > 0 });
        }
    }
    all
}

/// The youngest generation of each group and node.
pub fn youngest(lists: &[List]) -> HashMap<(u64, u64), u64> {
    let of = |list: &List| Some(((list.group, list.node), list.generations.last()?.number));
    lists.iter().filter_map(of).collect()
}

/// Pages that were accessed while these were the youngest generations, and since; those of groups that are new count
/// as accessed.
pub fn accessed_since(lists: &[List], youngest: &HashMap<(u64, u64), u64>) -> u64 {
    let of = |list: &List| {
        let first = youngest.get(&(list.group, list.node)).copied().unwrap_or(0);
        let young = list.generations.iter().filter(|generation| generation.number >= first);
        young.map(|generation| generation.anonymous_pages + generation.file_pages).sum::<u64>()
    };
    lists.iter().map(of).sum()
}

/// Pages of all generations: those that are no file's, and those of files.
pub fn pages(lists: &[List]) -> (u64, u64) {
    let all = lists.iter().map(|list| list.pages_up_to(u64::MAX));
    all.fold((0, 0), |sum, pages| (sum.0 + pages.0, sum.1 + pages.1))
}

/// The generations of a group and of those below it.
#[derive(Debug)]
pub struct Generations {
    file: PathBuf,
    path: String,
}

impl Generations {
    /// Of the group of a directory.
    ///
    /// # Errors
    /// The kernel keeps no generations, does not show them to this user, or has none of this group: says which.
    pub fn open(directory: &Path) -> io::Result<Generations> {
        let path = path_in_hierarchy(directory)?;
        Generations::of(Path::new(FILE), Path::new(ENABLED), path)
    }

    fn of(file: &Path, enabled: &Path, path: String) -> io::Result<Generations> {
        let refuse = |why: String| Err(io::Error::other(why));
        match fs::read_to_string(enabled) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return refuse(
                    "this kernel has no generations (multi-gen LRU, from 6.1 on, CONFIG_LRU_GEN)".to_owned(),
                );
            }
            Err(error) => return refuse(format!("{}: {error}", enabled.display())),
            Ok(text) if !is_on(&text) => {
                return refuse(format!("the kernel's generations are off: echo y > {}", enabled.display()));
            }
            Ok(_) => {}
        }
        let generations = Generations { file: file.to_owned(), path };
        match generations.lists() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse(format!("{} is not there: mount debugfs at /sys/kernel/debug", file.display()))
            }
            Err(error) => refuse(format!("{}: {error}; be root", file.display())),
            Ok(lists) if lists.is_empty() => refuse(format!("{} has no group {}", file.display(), generations.path)),
            Ok(_) => Ok(generations),
        }
    }

    /// In words, what it is.
    pub fn words(&self) -> String {
        format!("the kernel's generations ({})", self.file.display())
    }

    /// What the kernel lists now.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn lists(&self) -> io::Result<Vec<List>> {
        let mut lists = parse(&String::from_utf8_lossy(&fs::read(&self.file)?));
        lists.retain(|list| is_within(&list.path, &self.path));
        Ok(lists)
    }

    /// Looks at what was accessed: makes a generation wherever the youngest is at least so old.
    ///
    /// # Errors
    /// The kernel made none, though it was to.
    pub fn age(&self, at_least: Duration) -> io::Result<()> {
        self.write(aging(&self.lists()?, at_least))
    }

    /// Evicts.
    ///
    /// # Errors
    /// The kernel did nothing of it.
    pub fn evict(&self, evictions: &[Eviction], swappiness: u32) -> io::Result<()> {
        self.write(evictions.iter().map(|eviction| eviction_command(eviction, swappiness)).collect())
    }

    /// Commands by themselves: the kernel leaves out all that follow one that fails, as it does when a group is gone.
    fn write(&self, commands: Vec<String>) -> io::Result<()> {
        let (mut failed, mut done) = (None, commands.is_empty());
        for command in commands {
            let written = fs::File::options().write(true).open(&self.file);
            match written.and_then(|mut file| file.write_all(command.as_bytes())) {
                Ok(()) => done = true,
                Err(error) => failed = Some(error),
            }
        }
        if done { Ok(()) } else { Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into())) }
    }
}

/// `+ GROUP NODE NUMBER SWAPPINESS`: a generation after the one of this number.
fn aging(lists: &[List], at_least: Duration) -> Vec<String> {
    let youngest = lists.iter().filter_map(|list| Some((list, list.generations.last()?)));
    youngest
        .filter(|(_, youngest)| youngest.age >= at_least)
        .map(|(list, youngest)| format!("+ {} {} {} {LOOK_AT_ALL}\n", list.group, list.node, youngest.number))
        .collect()
}

/// `- GROUP NODE NUMBER SWAPPINESS PAGES`: eviction up to the generation of this number.
fn eviction_command(eviction: &Eviction, swappiness: u32) -> String {
    let swappiness = if eviction.swaps { swappiness } else { 0 };
    format!("- {} {} {} {swappiness} {}\n", eviction.group, eviction.node, eviction.number, eviction.pages)
}

/// Whether `lru_gen/enabled` says that there are generations: `0x0007`, of which bit 0 is the switch.
fn is_on(text: &str) -> bool {
    let digits = text.trim().trim_start_matches("0x");
    u32::from_str_radix(digits, 16).is_ok_and(|bits| bits & 1 == 1)
}

/// Whether a group is this one or below it.
fn is_within(path: &str, group: &str) -> bool {
    let group = group.trim_end_matches('/');
    path.strip_prefix(group).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Reads the kernel's listing.
pub fn parse(text: &str) -> Vec<List> {
    let mut lists: Vec<List> = Vec::new();
    let mut group = None;
    for line in text.lines() {
        let line = line.trim_start();
        if let Some(rest) = line.strip_prefix("memcg ") {
            let (number, path) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), "/"));
            group = number.parse().ok().map(|number: u64| (number, path.to_owned()));
        } else if let Some(node) = line.strip_prefix("node ") {
            if let (Some((group, path)), Ok(node)) = (&group, node.trim().parse()) {
                lists.push(List { group: *group, path: path.clone(), node, generations: Vec::new() });
            }
        } else if let (Some(list), Some(generation)) = (lists.last_mut(), generation(line)) {
            list.generations.push(generation);
        }
    }
    lists
}

fn generation(line: &str) -> Option<Generation> {
    let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(Generation {
        number: next()?,
        age: Duration::from_millis(next()?),
        anonymous_pages: next()?,
        file_pages: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 6.12 lists it, shortened.
    const TEXT: &str = "\
memcg     1 /
 node     0
          0      12196         12       4411 
          1      12196          0          0 
          2      12196          0          0 
          3      12196        310         91 
memcg    28 /web
 node     0
          4       9100      10240        100 
          5       6040       2560         10 
          6       3020          0          5 
          7          8          1          0 
 node     1
          0       9100          0          0 
          1       9000          0          0 
memcg    29 /web/a b
 node     0
          0       8000         64          0 
          1       7000          0          0 
          2       2000          0          0 
memcg    30 /website
 node     0
          0       8000          9          9 
";

    fn web() -> Vec<List> {
        let mut lists = parse(TEXT);
        lists.retain(|list| is_within(&list.path, "/web"));
        lists
    }

    #[test]
    fn a_group_has_what_is_below_it_and_nothing_beside_it() {
        let found: Vec<(u64, u64, usize)> =
            web().iter().map(|list| (list.group, list.node, list.generations.len())).collect();
        assert_eq!(found, [(28, 0, 4), (28, 1, 2), (29, 0, 3)]);
        assert_eq!(web()[2].path, "/web/a b");
        assert_eq!(parse(TEXT).iter().filter(|list| is_within(&list.path, "/")).count(), 5);
        assert_eq!(pages(&web()), (10240 + 2560 + 1 + 64, 115));
    }

    #[test]
    fn pages_are_idle_since_the_generation_after_theirs_began() {
        let list = &web()[0];
        assert_eq!(list.idle(0), Duration::from_millis(6040));
        assert_eq!(list.idle(3), Duration::ZERO);
        let older = |seconds| list.older_than(Duration::from_secs(seconds));
        // The kernel refuses the youngest two, however old.
        assert_eq!([older(0), older(3), older(4), older(6), older(7)], [Some(5), Some(5), Some(4), Some(4), None]);
        assert_eq!(web()[1].older_than(Duration::ZERO), None);
    }

    #[test]
    fn what_was_accessed_lies_in_what_was_the_youngest_generation_and_in_younger_ones() {
        assert_eq!(youngest(&web()), HashMap::from([((28, 0), 7), ((28, 1), 1), ((29, 0), 2)]));
        let then = HashMap::from([((28, 0), 6), ((28, 1), 1)]);
        assert_eq!(accessed_since(&web(), &then), 5 + 1 + 64);
    }

    #[test]
    fn evictions_take_no_more_into_swap_than_it_has_room_for() {
        let six = Duration::from_secs(6);
        let all = evictions(&web(), six, u64::MAX);
        assert_eq!(all.iter().map(|eviction| eviction.pages).collect::<Vec<_>>(), [10340, 64]);
        assert_eq!(eviction_command(&all[0], 60), "- 28 0 4 60 10340\n");
        let some = evictions(&web(), six, 1000);
        assert_eq!(some, [Eviction { group: 28, node: 0, number: 4, pages: 1100, swaps: true }]);
        let none = evictions(&web(), six, 0);
        assert_eq!(eviction_command(&none[0], 60), "- 28 0 4 0 100\n");
        assert_eq!(evictions(&web(), Duration::from_secs(60), u64::MAX), []);
    }

    #[test]
    fn a_generation_is_made_where_the_youngest_is_not_new() {
        assert_eq!(aging(&web(), Duration::from_secs(1)), ["+ 28 1 1 100\n", "+ 29 0 2 100\n"]);
        assert_eq!(aging(&web(), Duration::ZERO).len(), 3);
    }

    #[test]
    fn what_the_kernel_does_not_have_is_said() {
        let directory = tempfile::tempdir().expect("a directory");
        let (file, enabled) = (directory.path().join("lru_gen"), directory.path().join("enabled"));
        let refused = |path: &str| {
            let said = Generations::of(&file, &enabled, path.to_owned()).err();
            said.map_or("taken".to_owned(), |error| error.to_string())
        };
        assert!(refused("/web").contains("this kernel has no generations"));
        fs::write(&enabled, "0x0000\n").expect("room");
        assert!(refused("/web").contains("are off: echo y >"));
        fs::write(&enabled, "0x0007\n").expect("room");
        assert!(refused("/web").contains("mount debugfs"));
        fs::write(&file, TEXT).expect("room");
        assert!(refused("/elsewhere").contains("has no group /elsewhere"));
        assert_eq!(refused("/web"), "taken");
    }
}
