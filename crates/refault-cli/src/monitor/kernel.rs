//! The kernel's own monitor, DAMON, as a second source: its regions beside ours (spec: damon §11).

use std::io;
use std::path::Path;
use std::time::Instant;

use refault_console::{Failure, say};
use refault_core::monitor::Attributes;
use refault_pool::reclaim::kdamond::Kdamond;
pub use refault_pool::reclaim::kdamond::SYSFS;

use super::recording::{Process, Seen, Snapshot};

/// A kdamond of our own.
pub struct Kernel {
    kdamond: Kdamond,
    running: bool,
    window: u32,
    sample_us: u64,
    start: Instant,
    last: Option<Instant>,
    aggr_us: u64,
    process: Process,
}

impl Kernel {
    /// Takes a free kdamond.
    ///
    /// # Errors
    /// There is no DAMON, no right to use it, or no kdamond that may be used: says which, and what to do `instead` of using
    /// it.
    pub fn claim(root: &Path, instead: &str) -> Result<Kernel, Failure> {
        let kdamond = Kdamond::claim(root).map_err(|refusal| {
            let remedy = format!("{}{instead}", refusal.first);
            Failure::failed("the kernel's monitor cannot be used", refusal.why, remedy)
        })?;
        Ok(Kernel {
            kdamond,
            running: false,
            window: 1,
            sample_us: 0,
            start: Instant::now(),
            last: None,
            aggr_us: 0,
            process: Process::default(),
        })
    }

    /// Starts monitoring a process, or takes the regions of the aggregation that has passed. What fails is said once.
    pub fn monitor(&mut self, pid: u32, attributes: &Attributes) {
        if self.process.pid == 0
            && let Err(error) = self.begin(pid, attributes)
        {
            say(format_args!("the kernel's monitor does not start: {error}"));
            return;
        }
        let due = self.last.is_none_or(|last| last.elapsed().as_micros() as u64 >= self.aggr_us);
        if self.running && due {
            self.last = Some(Instant::now());
            // A process that ends takes its regions along.
            if let Ok(snapshot) = self.snapshot() {
                self.process.snapshots.push(snapshot);
            }
        }
    }

    /// Starts monitoring a process.
    ///
    /// # Errors
    /// The kernel refuses: it has no operations on virtual addresses, or there is no such process.
    pub fn begin(&mut self, pid: u32, attributes: &Attributes) -> io::Result<()> {
        self.process.pid = u64::from(pid);
        self.start(pid, attributes)?;
        self.running = true;
        Ok(())
    }

    fn start(&mut self, pid: u32, attributes: &Attributes) -> io::Result<()> {
        (self.window, self.sample_us) = (attributes.max_nr_accesses(), attributes.sample_interval);
        self.aggr_us = attributes.aggr_interval;
        self.kdamond.write("contexts/nr_contexts", 1)?;
        self.kdamond.write("contexts/0/operations", "vaddr")?;
        let intervals = "contexts/0/monitoring_attrs/intervals";
        self.kdamond.write(&format!("{intervals}/sample_us"), attributes.sample_interval)?;
        self.kdamond.write(&format!("{intervals}/aggr_us"), attributes.aggr_interval)?;
        self.kdamond
            .write(&format!("{intervals}/update_us"), attributes.ops_update_interval.max(attributes.aggr_interval))?;
        let bounds = "contexts/0/monitoring_attrs/nr_regions";
        self.kdamond.write(&format!("{bounds}/min"), attributes.min_nr_regions)?;
        self.kdamond.write(&format!("{bounds}/max"), attributes.max_nr_regions)?;
        self.kdamond.write("contexts/0/targets/nr_targets", 1)?;
        self.kdamond.write("contexts/0/targets/0/pid_target", pid)?;
        // A scheme that only counts shows all regions as those it tried.
        self.kdamond.write("contexts/0/schemes/nr_schemes", 1)?;
        self.kdamond.write("contexts/0/schemes/0/action", "stat")?;
        self.kdamond.take_any_region(0)?;
        self.kdamond.write("state", "on")
    }

    fn snapshot(&self) -> io::Result<Snapshot> {
        self.kdamond.write("state", "update_schemes_tried_regions")?;
        let place = self.kdamond.path("contexts/0/schemes/0/tried_regions");
        let mut regions = Vec::new();
        for entry in std::fs::read_dir(&place)?.flatten().filter(|entry| entry.path().is_dir()) {
            let number = |file: &str| {
                std::fs::read_to_string(entry.path().join(file)).ok().and_then(|text| text.trim().parse::<u64>().ok())
            };
            if let (Some(start), Some(end), Some(count), Some(age)) =
                (number("start"), number("end"), number("nr_accesses"), number("age"))
            {
                let (nr_accesses, age) = (count as u32, age as u32);
                regions.push(Seen { start, end, nr_accesses, age, most: None });
            }
        }
        regions.sort_by_key(|region| region.start);
        let now_ns = self.start.elapsed().as_nanos() as u64;
        Ok(Snapshot { now_ns, window: self.window, sample_us: self.sample_us, regions })
    }

    /// The regions that were seen last, and nothing of those before is kept; none if there was no aggregation yet.
    pub fn latest(&mut self) -> &[Seen] {
        let snapshots = &mut self.process.snapshots;
        snapshots.drain(..snapshots.len().saturating_sub(1));
        snapshots.last().map_or(&[], |snapshot| &snapshot.regions)
    }

    /// What was seen; the kdamond is given back.
    pub fn finish(mut self) -> Process {
        std::mem::take(&mut self.process)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A tree with the files of the kernel's, for kdamonds in these states, with these numbers of contexts.
    fn tree(kdamonds: &[(&str, u32)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        std::fs::write(root.join("nr_kdamonds"), kdamonds.len().to_string()).expect("writes");
        for (index, (state, contexts)) in kdamonds.iter().enumerate() {
            let kdamond = root.join(index.to_string());
            for place in [
                "contexts/0/monitoring_attrs/intervals",
                "contexts/0/monitoring_attrs/nr_regions",
                "contexts/0/targets/0",
                "contexts/0/schemes/0/access_pattern/sz",
                "contexts/0/schemes/0/access_pattern/nr_accesses",
                "contexts/0/schemes/0/access_pattern/age",
                "contexts/0/schemes/0/tried_regions",
            ] {
                std::fs::create_dir_all(kdamond.join(place)).expect("makes");
            }
            std::fs::write(kdamond.join("state"), state).expect("writes");
            std::fs::write(kdamond.join("contexts/nr_contexts"), contexts.to_string()).expect("writes");
        }
        directory
    }

    fn all_files(root: &Path) -> Vec<(PathBuf, String)> {
        let mut files = Vec::new();
        let mut places = vec![root.to_owned()];
        while let Some(place) = places.pop() {
            for entry in std::fs::read_dir(place).expect("reads").flatten() {
                if entry.path().is_dir() {
                    places.push(entry.path());
                } else {
                    files.push((entry.path(), std::fs::read_to_string(entry.path()).expect("reads")));
                }
            }
        }
        files.sort();
        files
    }

    #[test]
    fn one_in_use_is_never_touched() {
        for kdamonds in [&[("on", 1)][..], &[("on", 0)], &[("off", 1)], &[("on", 1), ("off", 1)]] {
            let directory = tree(kdamonds);
            let before = all_files(directory.path());
            let error = Kernel::claim(directory.path(), "look elsewhere").err().expect("is refused");
            assert!(error.line().contains("kdamond"), "{}", error.line());
            assert_eq!(all_files(directory.path()), before, "{kdamonds:?}");
        }
        assert!(
            Kernel::claim(Path::new("/nowhere"), "look elsewhere")
                .err()
                .expect("refused")
                .line()
                .contains("no DAMON in sysfs: look elsewhere")
        );
    }

    #[test]
    fn a_free_one_is_set_up_read_and_given_back() {
        let directory = tree(&[("on", 1), ("off", 0)]);
        let in_use = all_files(&directory.path().join("0"));
        let file = |name: &str| std::fs::read_to_string(directory.path().join("1").join(name)).expect("reads");
        let mut kernel = Kernel::claim(directory.path(), "look elsewhere").expect("is free");
        let attributes = Attributes::default();
        for (index, (start, end)) in [(8192, 12_288), (4096, 8192)].into_iter().enumerate() {
            let place = directory.path().join(format!("1/contexts/0/schemes/0/tried_regions/{index}"));
            std::fs::create_dir_all(&place).expect("makes");
            for (name, value) in [("start", start), ("end", end), ("nr_accesses", 3), ("age", 4)] {
                std::fs::write(place.join(name), value.to_string()).expect("writes");
            }
        }
        kernel.monitor(4711, &attributes);
        assert_eq!(file("contexts/0/targets/0/pid_target"), "4711");
        assert_eq!(file("contexts/0/operations"), "vaddr");
        assert_eq!(file("contexts/0/monitoring_attrs/intervals/sample_us"), "5000");
        assert_eq!(file("state"), "update_schemes_tried_regions");
        let process = kernel.finish();
        assert_eq!((file("state"), file("contexts/nr_contexts")), ("off".to_owned(), "0".to_owned()));
        assert_eq!(
            process.snapshots[0].regions[0],
            Seen { start: 4096, end: 8192, nr_accesses: 3, age: 4, most: None }
        );
        assert_eq!(all_files(&directory.path().join("0")), in_use);
        assert_eq!(std::fs::read_to_string(directory.path().join("nr_kdamonds")).expect("reads"), "2");
    }

    #[test]
    fn the_first_one_is_made_and_taken_away_again() {
        let directory = tree(&[]);
        let kernel = Kernel::claim(directory.path(), "look elsewhere").expect("is made");
        assert_eq!(std::fs::read_to_string(directory.path().join("nr_kdamonds")).expect("reads"), "1");
        drop(kernel);
        assert_eq!(std::fs::read_to_string(directory.path().join("nr_kdamonds")).expect("reads"), "0");
    }
}
