//! The row of `--here` for builds in a loop: the files that a C compiler reads, in the order in which it reads them.
//!
//! Some hundred C files are made that include headers of this machine; `cc -M` says which files each of them reads. A
//! build reads them all, whole, one C file after the other, each followed by its headers. Nothing is compiled: a
//! compiler cannot be made to read through a page cache of ours. Copies are read, so that no other process has them in
//! the kernel's page cache. C files have twice the memory, as trees have that are built in a loop. Headers, which are
//! read again and again, are a small part.
//!
//! Cost: a second or two of `cc -M`, and twice memory on disk.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use refault_cache::{CacheOptions, PageCache};
use refault_console::{Failure, with_output};
use refault_core::Counters;
use serde::{Deserialize, Serialize};

use super::{ALLOWANCE, Request, SEEDS, compared, level};
use crate::cache::load::{PAGE, forget, pages_from_disk};
use crate::pager::kernel::{Kernel, cgroup_obstacle};
use crate::random::Random;
use refault_lab::experiment::MeasuredHere;

/// Bytes of a C file.
const SOURCE: u64 = 64 << 10;
/// C files over memory.
const TIMES: u64 = 2;
/// Builds to warm up, and those that are counted.
const BUILDS: [u64; 2] = [1, 3];
/// Headers that a C file includes.
const INCLUDES: usize = 6;
const HEADERS: [&str; 24] = [
    "stdio.h",
    "stdlib.h",
    "string.h",
    "unistd.h",
    "errno.h",
    "fcntl.h",
    "signal.h",
    "time.h",
    "math.h",
    "limits.h",
    "stdint.h",
    "ctype.h",
    "locale.h",
    "wchar.h",
    "dirent.h",
    "netdb.h",
    "poll.h",
    "pthread.h",
    "regex.h",
    "setjmp.h",
    "termios.h",
    "sys/mman.h",
    "sys/socket.h",
    "sys/stat.h",
];
/// The policy before and after.
const POLICIES: [&str; 2] = ["freebsd", "freebsd{cache_pool=no}"];

/// Builds: which files they read.
#[derive(Args, Clone, Debug)]
pub struct BuildLoad {
    /// The files of a build, one per line, in the order of reading
    #[arg(long)]
    list: PathBuf,
}

/// What was counted in the builds after the first.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Counts {
    /// Pages read from the device.
    loads: u64,
    cached: u64,
    reactivated: u64,
}

impl Counts {
    fn per_build(&self) -> f64 {
        self.loads as f64 / BUILDS[1] as f64
    }

    fn reactivated_share(&self) -> f64 {
        100.0 * self.reactivated as f64 / self.cached as f64
    }
}

/// Measures builds, which one experiment has.
///
/// # Errors
/// Files cannot be written or read.
pub fn measure(experiment: &str, request: &Request, progress: &dyn Fn(f64)) -> Result<MeasuredHere, Failure> {
    let mut measured = MeasuredHere::default();
    if experiment != "freepool" {
        return Ok(measured);
    }
    let written = |error: std::io::Error| Failure::write(request.directory.display(), &error);
    let directory = tempfile::tempdir_in(&request.directory).map_err(written)?;
    let place = directory.path();
    let Some(tree) = Tree::new(place, (request.memory * TIMES / SOURCE) as usize)? else {
        measured.remarks.push("Builds were left out on this machine: cc -M failed; is a C compiler installed?".into());
        return Ok(measured);
    };
    let obstacle = cgroup_obstacle();
    let mut counts: [Vec<Counts>; 3] = Default::default();
    for seed in 1..=SEEDS {
        let list = place.join("list");
        std::fs::write(&list, tree.build(seed)).map_err(written)?;
        let load = BuildLoad { list };
        for (at, policy) in POLICIES.into_iter().enumerate() {
            tree.forget().map_err(written)?;
            counts[at].push(through_ours(&load, policy, request.memory)?);
            progress(((seed - 1) as f64 + (at + 1) as f64 / 3.0) / SEEDS as f64);
        }
        if obstacle.is_none() {
            tree.forget().map_err(written)?;
            counts[2].push(through_the_kernels(&load, request.memory)?);
        }
    }
    let of = |side: usize, of: &dyn Fn(&Counts) -> f64| counts[side].iter().map(of).collect::<Vec<f64>>();
    let side = format!("page cache, {}", POLICIES[1]);
    let share = |counts: &Counts| counts.reactivated_share();
    let loads = |counts: &Counts| counts.per_build();
    measured.rows.push(compared(
        ["build", "reactivated_share", "% of pages cached", &side],
        &of(0, &share),
        &of(1, &share),
    ));
    measured.rows.push(compared(["build", "vnode_pages_in", "pages per build", &side], &of(0, &loads), &of(1, &loads)));
    if obstacle.is_none() {
        let texts = ["build", "vnode_pages_in", "pages per build", "the kernel's page cache"];
        measured.rows.push(level(texts, &of(2, &loads)));
    }
    measured.remarks.push(format!(
        "Builds on this machine: {} C files and {} headers, {} pages, read in the order in which a compiler reads them and \
         not compiled; {} MiB of memory; {} builds after the first, {SEEDS} orders of the C files. Counts, not times.{}",
        tree.units.len(),
        tree.files.len() - tree.units.len(),
        tree.pages,
        request.memory >> 20,
        BUILDS[1],
        obstacle.map_or_else(String::new, |why| format!(" The kernel's side was left out: it {why}."))
    ));
    Ok(measured)
}

/// C files and copies of the headers that they include.
struct Tree {
    files: Vec<PathBuf>,
    /// For each C file what is read for it, as places in `files`.
    units: Vec<Vec<usize>>,
    pages: u64,
}

impl Tree {
    /// Makes `units` C files; nothing if the compiler does not say what they read.
    fn new(place: &Path, units: usize) -> Result<Option<Tree>, Failure> {
        let written = |error: std::io::Error| Failure::write(place.display(), &error);
        let mut random = Random::new(3);
        for unit in 0..units {
            let mut source = String::new();
            for _ in 0..INCLUDES {
                let _ = writeln!(source, "#include <{}>", HEADERS[random.below(HEADERS.len())]);
            }
            let mut number = 0;
            while (source.len() as u64) < SOURCE - 64 {
                number += 1;
                let _ = writeln!(source, "int part_{unit}_{number}(int a) {{ return a * {number} + {unit}; }}");
            }
            std::fs::write(place.join(format!("unit{unit}.c")), source).map_err(written)?;
        }
        let mut command = Command::new("cc");
        command.arg("-M").args((0..units).map(|unit| format!("unit{unit}.c"))).current_dir(place);
        let Ok(output) = command.stdin(Stdio::null()).stderr(Stdio::null()).output() else { return Ok(None) };
        if !output.status.success() {
            return Ok(None);
        }
        let mut tree = Tree { files: Vec::new(), units: Vec::new(), pages: 0 };
        let mut places: HashMap<PathBuf, usize> = HashMap::new();
        for read in prerequisites(&String::from_utf8_lossy(&output.stdout)) {
            let mut unit = Vec::new();
            for path in read {
                let at = match places.get(&path) {
                    Some(at) => *at,
                    None => {
                        let at = tree.files.len();
                        let copy =
                            if path.is_absolute() { place.join(format!("header{at}")) } else { place.join(&path) };
                        if path.is_absolute() {
                            std::fs::copy(&path, &copy).map_err(|error| Failure::write(copy.display(), &error))?;
                        }
                        let bytes = copy.metadata().map_err(written)?.len();
                        tree.pages += bytes.div_ceil(PAGE as u64);
                        tree.files.push(copy);
                        places.insert(path, at);
                        at
                    }
                };
                unit.push(at);
            }
            tree.units.push(unit);
        }
        Ok(Some(tree).filter(|tree| tree.units.len() == units))
    }

    /// The files of a build, one per line; C files in an order of the seed's.
    fn build(&self, seed: u64) -> String {
        let mut order: Vec<usize> = (0..self.units.len()).collect();
        let mut random = Random::new(seed);
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at + 1));
        }
        let files = order.into_iter().flat_map(|unit| &self.units[unit]).map(|at| &self.files[*at]);
        files.fold(String::new(), |list, file| list + &file.display().to_string() + "\n")
    }

    /// Takes all files out of the kernel's page cache.
    fn forget(&self) -> std::io::Result<()> {
        rustix::fs::sync();
        self.files.iter().try_for_each(|file| forget(file))
    }
}

/// What stands behind the colons of make's rules, rule by rule.
fn prerequisites(rules: &str) -> Vec<Vec<PathBuf>> {
    let joined = rules.replace("\\\n", " ");
    let of_rule = |line: &str| {
        let (_, files) = line.split_once(": ")?;
        Some(files.split_whitespace().map(PathBuf::from).collect())
    };
    joined.lines().filter_map(of_rule).collect()
}

/// Reads files: all bytes of each.
type ReadFile<'a> = dyn FnMut(&Path, &mut Vec<u8>) -> Result<(), String> + 'a;

impl BuildLoad {
    /// Makes the builds; `counted` is called after the first.
    fn make(&self, read: &mut ReadFile<'_>, counted: &mut dyn FnMut()) -> Result<(), Failure> {
        let failed = |what: &dyn std::fmt::Display| Failure::failed("reading", self.list.display(), what);
        let list = std::fs::read_to_string(&self.list).map_err(|error| failed(&error))?;
        let mut bytes = Vec::new();
        for build in 0..BUILDS.iter().sum() {
            if build == BUILDS[0] {
                counted();
            }
            list.lines().try_for_each(|file| read(Path::new(file), &mut bytes)).map_err(|error| failed(&error))?;
        }
        Ok(())
    }
}

fn through_ours(load: &BuildLoad, policy: &str, memory: u64) -> Result<Counts, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed("the page cache", load.list.display(), error);
    // Files are read whole, so that there is nothing to read ahead.
    let options = CacheOptions { memory, policy: policy.into(), read_ahead: Some(0), ..CacheOptions::default() };
    let cache = PageCache::new(&options).map_err(|error| failed(&error))?;
    let mut open = HashMap::new();
    let mut before = Counters::default();
    let mut read = |path: &Path, bytes: &mut Vec<u8>| {
        let (file, length) = match open.entry(path.to_path_buf()) {
            std::collections::hash_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::hash_map::Entry::Vacant(entry) => {
                let length = path.metadata().map_err(|error| error.to_string())?.len();
                entry.insert((cache.open(path).map_err(|error| error.to_string())?, length))
            }
        };
        bytes.resize(*length as usize, 0);
        file.read_at(bytes, 0).map(drop).map_err(|error| error.to_string())
    };
    load.make(&mut read, &mut || before = cache.report().counters)?;
    let counted = cache.report().counters.since(&before);
    Ok(Counts { loads: counted.file_reads, cached: counted.pages_cached, reactivated: counted.pages_reactivated })
}

fn through_the_kernels(load: &BuildLoad, memory: u64) -> Result<Counts, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::failed("the kernel's side", load.list.display(), error);
    let kernel = Kernel::new(memory + ALLOWANCE, 0)?;
    let mut command = kernel.command();
    command.arg(crate::live::tool::me()?).args(["here-build-load", "--list"]).arg(&load.list);
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| failed(&error))?;
    serde_json::from_slice(&output.stdout).map_err(|error| failed(&error))
}

/// The hidden program that reads through the kernel's page cache, inside the cgroup.
///
/// # Errors
/// A file cannot be read.
pub fn run_load(load: &BuildLoad) -> Result<(), Failure> {
    let mut before = 0;
    let mut read = |path: &Path, bytes: &mut Vec<u8>| {
        *bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        Ok(())
    };
    load.make(&mut read, &mut || before = pages_from_disk())?;
    let counts = Counts { loads: pages_from_disk() - before, ..Counts::default() };
    with_output(None, |out| {
        serde_json::to_writer(&mut *out, &counts)?;
        writeln!(out)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_make_writes_them() {
        let rules = "unit0.o: unit0.c /usr/include/a.h \\\n  /usr/include/b.h\nunit1.o: unit1.c\n";
        let files = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let expected = [files(&["unit0.c", "/usr/include/a.h", "/usr/include/b.h"]), files(&["unit1.c"])];
        assert_eq!(prerequisites(rules), expected);
    }

    /// A loop over twice the memory: nearly all of it is read again in each build, and without the pool of cached pages
    /// hardly any page is found again.
    #[test]
    fn builds_read_what_does_not_fit() {
        let directory = tempfile::tempdir().expect("a directory");
        const MEMORY: u64 = 4 << 20;
        let Some(tree) = Tree::new(directory.path(), (MEMORY * TIMES / SOURCE) as usize).expect("written") else {
            return refault_testing::skip_required("cc is not installed");
        };
        let load = BuildLoad { list: directory.path().join("list") };
        std::fs::write(&load.list, tree.build(1)).expect("written");
        let [with, without] = POLICIES.map(|policy| through_ours(&load, policy, MEMORY).expect("read"));
        for counts in [with, without] {
            let share = counts.per_build() / tree.pages as f64;
            assert!((0.4..=1.0).contains(&share), "{share} of the tree read per build");
            assert!(counts.cached > 0);
        }
        assert!(without.reactivated_share() < with.reactivated_share(), "{without:?} against {with:?}");
    }
}
