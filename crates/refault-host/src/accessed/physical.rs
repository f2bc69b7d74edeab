//! What groups access, from the kernel's monitor, DAMON: it goes through all physical memory and asks of each page that is
//! charged to a group whether it was accessed since it was asked before.
//!
//! That is a scheme that only counts, with filters: of this group, no file's or else, and young. The filter for young
//! pages asks page by page and clears what it asks, so nothing is estimated by regions, and windows follow each other.
//! Files that are read by calls count too, unless the kernel keeps generations: then it marks no such page. Each page counts
//! once, however many processes map it, to the group that it is charged to. Needs root, a kdamond that no other program
//! uses, and Linux 6.14, which says what filters let pass.
//!
//! Cost: the kernel goes through all memory twice for each group. That is the kdamond's time, and counts as ours. More
//! than [`MAX_GROUPS`] groups are not looked at this way.
//!
//! A kdamond is ours only while it looks. Another program that uses DAMON, or idle pages, meanwhile takes accesses away.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use refault_pool::reclaim::kdamond::{Kdamond, SYSFS};

use super::bytes::Accessed;
use crate::tree::Group;

/// The source, in words.
pub const WORDS: &str = "the kernel's monitor (DAMON), page by page of physical memory";
/// More are not looked at.
pub const MAX_GROUPS: usize = 64;
/// From one look of the kdamond at its regions to the next, and until it applies schemes: the first time ends it.
const SAMPLE: Duration = Duration::from_millis(50);
const APPLY: Duration = Duration::from_millis(200);
/// The longest that a walk may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Of a group, what is no file's and the rest.
const KINDS: [&str; 2] = ["N", "Y"];

/// The monitor.
#[derive(Debug)]
pub struct Monitor {
    root: PathBuf,
    memory: Vec<Range<u64>>,
    spent: Duration,
}

impl Monitor {
    /// Asks whether it can be had.
    ///
    /// # Errors
    /// It cannot: says why.
    pub fn open() -> io::Result<Monitor> {
        let memory = ranges(&fs::read_to_string("/proc/iomem")?);
        Monitor::of(Path::new(SYSFS), memory)
    }

    fn of(root: &Path, memory: Vec<Range<u64>>) -> io::Result<Monitor> {
        if memory.is_empty() {
            return Err(io::Error::other("the kernel does not show where memory lies to this user; be root"));
        }
        let kdamond = Kdamond::claim(root).map_err(io::Error::other)?;
        kdamond.write("contexts/nr_contexts", 1)?;
        let has_operations = kdamond.write("contexts/0/operations", "paddr");
        has_operations.map_err(|_| io::Error::other("this kernel's DAMON does not look at physical memory"))?;
        kdamond.write("contexts/0/schemes/nr_schemes", 1)?;
        if !kdamond.path("contexts/0/schemes/0/stats/sz_ops_filter_passed").exists() {
            return Err(io::Error::other("this kernel's DAMON does not say what filters let pass (from 6.14 on)"));
        }
        Ok(Monitor { root: root.to_owned(), memory, spent: Duration::ZERO })
    }

    /// The kernel's processor time since it was asked for before.
    pub fn take_spent(&mut self) -> Duration {
        std::mem::take(&mut self.spent)
    }

    /// What was accessed of each group itself since the last look.
    ///
    /// # Errors
    /// Another program uses the kernel's monitor, or there are more than [`MAX_GROUPS`] groups.
    pub fn look(&mut self, groups: &[Group]) -> io::Result<Vec<Accessed>> {
        if groups.len() > MAX_GROUPS {
            return Err(io::Error::other(format!("there are more than {MAX_GROUPS} groups")));
        }
        let mut all = vec![Accessed { is_by_charge: true, ..Accessed::default() }; groups.len()];
        let kdamond = Kdamond::claim(&self.root).map_err(io::Error::other)?;
        let asked = self.set(&kdamond, groups)?;
        if asked.is_empty() {
            return Ok(all);
        }
        kdamond.write("state", "on")?;
        self.wait(&kdamond, asked.len() * KINDS.len())?;
        for (number, at) in asked.into_iter().enumerate() {
            let passed = |kind: usize| {
                let scheme = number * KINDS.len() + kind;
                kdamond.number(&format!("contexts/0/schemes/{scheme}/stats/sz_ops_filter_passed")).unwrap_or(0)
            };
            (all[at].anonymous_bytes, all[at].file_bytes) = (passed(0), passed(1));
        }
        self.spent += kdamond.number("pid").map_or(Duration::ZERO, ran);
        Ok(all)
    }

    /// Sets the kdamond up; answers which groups its schemes count, two for each.
    fn set(&self, kdamond: &Kdamond, groups: &[Group]) -> io::Result<Vec<usize>> {
        kdamond.write("contexts/nr_contexts", 1)?;
        kdamond.write("contexts/0/operations", "paddr")?;
        let intervals = "contexts/0/monitoring_attrs/intervals";
        kdamond.write(&format!("{intervals}/sample_us"), SAMPLE.as_micros())?;
        kdamond.write(&format!("{intervals}/aggr_us"), APPLY.as_micros())?;
        kdamond.write(&format!("{intervals}/update_us"), PATIENCE.as_micros())?;
        // Regions are of no use here: as few as may be.
        kdamond.write("contexts/0/monitoring_attrs/nr_regions/min", 3)?;
        kdamond.write("contexts/0/monitoring_attrs/nr_regions/max", 3.max(self.memory.len()))?;
        kdamond.write("contexts/0/targets/nr_targets", 1)?;
        let regions = "contexts/0/targets/0/regions";
        kdamond.write(&format!("{regions}/nr_regions"), self.memory.len())?;
        for (at, range) in self.memory.iter().enumerate() {
            kdamond.write(&format!("{regions}/{at}/start"), range.start)?;
            kdamond.write(&format!("{regions}/{at}/end"), range.end)?;
        }
        // What the root holds itself is asked for nowhere, and a name that is not printable cannot be named.
        let is_named = |group: &Group| group.path != "/" && !group.path.contains('\\');
        let asked: Vec<usize> = (0..groups.len()).filter(|at| is_named(&groups[*at])).collect();
        kdamond.write("contexts/0/schemes/nr_schemes", asked.len() * KINDS.len())?;
        for (number, at) in asked.iter().enumerate() {
            for (kind, matching) in KINDS.into_iter().enumerate() {
                let scheme = number * KINDS.len() + kind;
                let place = format!("contexts/0/schemes/{scheme}");
                kdamond.write(&format!("{place}/action"), "stat")?;
                kdamond.write(&format!("{place}/apply_interval_us"), APPLY.as_micros())?;
                kdamond.take_any_region(scheme)?;
                kdamond.write(&format!("{place}/filters/nr_filters"), 3)?;
                // Each keeps out what it names: what is not the group's, what is of the other kind, and what is not young.
                for (filter, (kind, matching)) in
                    [("memcg", "N"), ("anon", matching), ("young", "N")].iter().enumerate()
                {
                    let filter = format!("{place}/filters/{filter}");
                    kdamond.write(&format!("{filter}/type"), kind)?;
                    kdamond.write(&format!("{filter}/matching"), matching)?;
                    kdamond.write(&format!("{filter}/allow"), "N")?;
                    if *kind == "memcg" {
                        kdamond.write(&format!("{filter}/memcg_path"), &groups[*at].path)?;
                    }
                }
            }
        }
        Ok(asked)
    }

    /// Until each scheme has gone through all memory once.
    fn wait(&self, kdamond: &Kdamond, schemes: usize) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            std::thread::sleep(SAMPLE);
            kdamond.write("state", "update_schemes_stats")?;
            let last = format!("contexts/0/schemes/{}/stats/sz_tried", schemes - 1);
            if kdamond.number(&last).is_some_and(|bytes| bytes > 0) {
                return Ok(());
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the kernel's monitor does not end its walk"))
    }
}

/// Where memory lies, by the text of `/proc/iomem`; addresses are 0 to whom they are not shown.
fn ranges(text: &str) -> Vec<Range<u64>> {
    let one = |line: &str| {
        let (range, name) = line.split_once(" : ")?;
        let (start, last) = range.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let range = number(start)?..number(last)?.checked_add(1)?;
        (name.trim() == "System RAM" && range.end > 1).then_some(range)
    };
    text.lines().filter_map(one).collect()
}

/// For how long a kernel's thread ran.
fn ran(pid: u64) -> Duration {
    let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_lies_where_the_kernel_says_and_only_root_is_told() {
        let text = "00001000-0009fbff : System RAM\n000f0000-000fffff : System ROM\n100000000-13fffffff : System RAM\n  \
                    100200000-1012fffff : Kernel code\n";
        assert_eq!(ranges(text), [0x1000..0x9fc00, 0x1_0000_0000..0x1_4000_0000]);
        assert!(ranges("00000000-00000000 : System RAM\n").is_empty());
        let error = Monitor::of(Path::new("/nowhere"), Vec::new()).expect_err("hidden");
        assert!(error.to_string().contains("be root"), "{error}");
    }

    /// A tree with the files of the kernel's that are read, for two groups.
    fn tree() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let kdamond = directory.path().join("0");
        let write = |file: &str, text: &str| {
            let path = directory.path().join(file);
            fs::create_dir_all(path.parent().expect("it is below")).expect("room");
            fs::write(path, text).expect("room");
        };
        write("nr_kdamonds", "1");
        write("0/state", "off");
        write("0/contexts/nr_contexts", "0");
        for place in ["monitoring_attrs/intervals", "monitoring_attrs/nr_regions", "targets/0/regions/0"] {
            fs::create_dir_all(kdamond.join("contexts/0").join(place)).expect("room");
        }
        for scheme in 0..4 {
            for place in ["filters/0", "filters/1", "filters/2", "access_pattern/sz", "access_pattern/age", "stats"] {
                fs::create_dir_all(kdamond.join(format!("contexts/0/schemes/{scheme}/{place}"))).expect("room");
            }
            fs::create_dir_all(kdamond.join(format!("contexts/0/schemes/{scheme}/access_pattern/nr_accesses")))
                .expect("room");
            write(&format!("0/contexts/0/schemes/{scheme}/stats/sz_tried"), "9000000\n");
            let passed = format!("{}\n", (scheme + 1) * 4096);
            write(&format!("0/contexts/0/schemes/{scheme}/stats/sz_ops_filter_passed"), &passed);
        }
        directory
    }

    #[test]
    fn each_group_but_the_root_is_asked_for_twice_and_the_kdamond_is_given_back() {
        let directory = tree();
        let group =
            |path: &str, parent| Group { path: path.to_owned(), directory: path.into(), id: 0, version: 2, parent };
        let groups = [group("/", None), group("/web", Some(0)), group("/a\\nb", Some(0)), group("/db", Some(0))];
        let memory = Range { start: 4096, end: 1 << 30 };
        let mut monitor = Monitor::of(directory.path(), vec![memory]).expect("it is free");
        let all = monitor.look(&groups).expect("it is free");
        let pages = all.iter().map(|one| (one.anonymous_bytes / 4096, one.file_bytes / 4096)).collect::<Vec<_>>();
        assert_eq!(pages, [(0, 0), (1, 2), (0, 0), (3, 4)]);
        assert!(all.iter().all(|one| one.is_by_charge));
        let said = |file: &str| {
            fs::read_to_string(directory.path().join("0").join(file)).expect("it was written").trim().to_owned()
        };
        for (scheme, path, kind) in [(0, "/web", "N"), (1, "/web", "Y"), (2, "/db", "N"), (3, "/db", "Y")] {
            let filter = |at: usize, file: &str| said(&format!("contexts/0/schemes/{scheme}/filters/{at}/{file}"));
            let names = [0, 1, 2].map(|at| (filter(at, "type"), filter(at, "matching"), filter(at, "allow")));
            let expected = [("memcg", "N", "N"), ("anon", kind, "N"), ("young", "N", "N")]
                .map(|(kind, matching, allow)| (kind.to_owned(), matching.to_owned(), allow.to_owned()));
            assert_eq!(names, expected);
            assert_eq!(filter(0, "memcg_path"), path);
        }
        assert_eq!(
            (said("contexts/0/targets/0/regions/0/start"), said("contexts/0/operations")),
            ("4096".into(), "paddr".into())
        );
        assert_eq!((said("state"), said("contexts/nr_contexts")), ("off".into(), "0".into()));
        let many = vec![groups[1].clone(); MAX_GROUPS + 1];
        assert!(monitor.look(&many).is_err());
    }
}
