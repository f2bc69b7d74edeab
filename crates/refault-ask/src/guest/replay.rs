//! One replay: the accesses of a sequence, made in a group under a limit, and the kernel's counters around them.

use std::ffi::c_void;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;
use std::time::Duration;

use refault_trace::{Entry, Kind};
use rustix::fs::Advice;
use rustix::mm::{MapFlags, MlockAllFlags, MprotectFlags, ProtFlags};

use super::kernel_files::{numbers, pressure, say, tell, tell_if_there, text};
use super::setup::{DATA, DATA_DISK, GROUP, SEQUENCE};
use crate::iso;
use crate::job::{COUNTERS, Counters, Job, Lists, Said};
use crate::kernel::version_of;

const PAGE: usize = 4096;
const SECTOR: u64 = 512;
/// Accesses between two flushes of the TLB, and between two folds of the statistics.
const FLUSH_EVERY: u64 = 256;
const FOLD_EVERY: u64 = 64;
/// More pages than a kernel flushes one by one.
const FLUSHED_PAGES: usize = 64;
/// Aligned to every level of page tables, so that regions begin where page numbers say.
const ANON_BASE: usize = 1 << 40;
const FILE_BASE: usize = 2 << 40;
/// The first version that folds a group's statistics when they are read, and the first that does so for each kind alone.
const FOLDS_WHEN_READ: (u32, u32) = (6, 2);
const FOLDS_EACH_BY_ITSELF: (u32, u32) = (6, 16);
/// Longer than older kernels take to fold statistics by themselves.
const FOLDED_BY_ITSELF: Duration = Duration::from_secs(3);
/// How often a run says how far it is.
const SAYINGS: u64 = 50;

/// Memory of this process's own.
struct Mapping {
    base: *mut c_void,
    bytes: usize,
}

impl Mapping {
    /// Private memory; at a place if that is not null.
    fn anonymous(at: *mut c_void, bytes: usize) -> Result<Mapping, String> {
        let fixed = if at.is_null() { MapFlags::empty() } else { MapFlags::FIXED_NOREPLACE };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | fixed;
        // SAFETY: the kernel chooses a place, or one is asked for where nothing else may be: no memory is replaced.
        let base = unsafe { rustix::mm::mmap_anonymous(at, bytes, ProtFlags::READ | ProtFlags::WRITE, flags) };
        base.map(|base| Mapping { base, bytes }).map_err(|error| format!("no memory: {error}"))
    }

    /// A file, to be read.
    fn file(file: &File, bytes: usize) -> Result<Mapping, String> {
        let (at, flags) = (FILE_BASE as *mut c_void, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE);
        // SAFETY: as for anonymous memory; nothing changes the file, whose disk is read-only.
        let base = unsafe { rustix::mm::mmap(at, bytes, ProtFlags::READ, flags, file, 0) };
        base.map(|base| Mapping { base, bytes }).map_err(|error| format!("the file cannot be mapped: {error}"))
    }

    fn word(&self, page: usize) -> *mut u64 {
        assert!((page + 1) * PAGE <= self.bytes, "a page beyond its mapping");
        // Within the mapping, as was just seen.
        self.base.wrapping_byte_add(page * PAGE).cast()
    }

    /// Has the processor forget all translations.
    fn flush(&self) -> Result<(), String> {
        for protection in [MprotectFlags::READ, MprotectFlags::READ | MprotectFlags::WRITE] {
            // SAFETY: the mapping is this struct's own, and nothing is read from it meanwhile.
            let changed = unsafe { rustix::mm::mprotect(self.base, self.bytes, protection) };
            changed.map_err(|error| format!("mprotect: {error}"))?;
        }
        Ok(())
    }
}

struct Replay {
    anon: Option<Mapping>,
    file: Option<(File, Option<Mapping>)>,
    touched: Vec<bool>,
    first_touches: u64,
    buffer: Vec<u8>,
}

impl Replay {
    fn access(&mut self, entry: Entry) -> Result<(), String> {
        let page = entry.page() as usize;
        match (entry.kind(), &self.anon, &self.file) {
            (Some(Kind::Anon), Some(anon), _) => {
                let word = anon.word(page);
                if !self.touched[page] {
                    self.touched[page] = true;
                    self.first_touches += 1;
                    for at in 0..PAGE / size_of::<u64>() {
                        // SAFETY: `word` found the whole page within the mapping, which can be written and is this
                        // process's own.
                        unsafe { word.add(at).write_volatile(page as u64 + 1) };
                    }
                } else if entry.write() {
                    // SAFETY: as above.
                    unsafe { word.write_volatile(page as u64 + 1) };
                } else {
                    // SAFETY: as above.
                    let value = unsafe { word.read_volatile() };
                    if value != page as u64 + 1 {
                        return Err(format!("page {page} came back with {value}"));
                    }
                }
            }
            (Some(Kind::Mapped), _, Some((_, Some(mapping)))) => {
                // SAFETY: the page is within the mapping, and within the file, which has all its pages.
                unsafe { mapping.word(page).read_volatile() };
            }
            (Some(_), _, Some((file, _))) => {
                let read = file.read_exact_at(&mut self.buffer, (page * PAGE) as u64);
                read.map_err(|error| format!("page {page} of the file: {error}"))?;
            }
            _ => return Err("an access to memory that the job does not name".to_owned()),
        }
        Ok(())
    }
}

/// Replays the sequence and says what the kernel counted.
pub(super) fn run(job: &Job, lists: Lists) -> Result<(), String> {
    let sequence = sequence(job.accesses)?;
    let flushed = Mapping::anonymous(null_mut(), FLUSHED_PAGES * PAGE)?;
    for page in 0..FLUSHED_PAGES {
        // SAFETY: within the mapping just made.
        unsafe { flushed.word(page).write_volatile(1) };
    }
    let mut replay = Replay {
        anon: None,
        file: None,
        touched: vec![false; job.anon as usize],
        first_touches: 0,
        buffer: vec![0; PAGE],
    };
    replay.touched.fill(false);
    tell_if_there("/proc/sys/vm/drop_caches", "3");
    rustix::mm::mlockall(MlockAllFlags::CURRENT).map_err(|error| format!("mlockall: {error}"))?;
    tell(&format!("{GROUP}/cgroup.procs"), "0")?;
    if job.anon > 0 {
        replay.anon = Some(Mapping::anonymous(ANON_BASE as *mut c_void, job.anon as usize * PAGE)?);
    }
    if job.file > 0 {
        let path = format!("{DATA}/{}", iso::NAME);
        let file = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
        rustix::fs::fadvise(&file, 0, None, Advice::Random).map_err(|error| format!("{path}: {error}"))?;
        let mapping = job.mapped.then(|| Mapping::file(&file, job.file as usize * PAGE)).transpose()?;
        replay.file = Some((file, mapping));
    }
    let fold = fold_file(lists);
    let fold = fold.map(|path| File::open(&path).map_err(|error| format!("{path}: {error}"))).transpose()?;
    limit(job)?;

    let flushes = job.anon > 0 || job.mapped;
    let step = (job.accesses / SAYINGS).max(1);
    let (mut before, mut folded) = (snapshot(0)?, [0; PAGE]);
    for (done, entry) in (0..).zip(&sequence) {
        if done == job.warm_up && done > 0 {
            before = snapshot(replay.first_touches)?;
        }
        if let Some(fold) = fold.as_ref().filter(|_| done % FOLD_EVERY == FOLD_EVERY - 1) {
            fold.read_at(&mut folded, 0).map_err(|error| format!("statistics: {error}"))?;
        }
        if flushes && done % FLUSH_EVERY == FLUSH_EVERY - 1 {
            flushed.flush()?;
        }
        replay.access(*entry)?;
        if done % step == step - 1 {
            say(&Said::Done(done + 1));
        }
    }
    let after = snapshot(replay.first_touches)?;
    for name in COUNTERS {
        let value = |of: &Counters| of.get(name).copied().unwrap_or(0);
        let changed = if name.starts_with("resident") { value(&after) } else { value(&after) - value(&before) };
        say(&Said::Counted(name.to_owned(), changed));
    }
    Ok(())
}

/// The accesses, from their disk.
fn sequence(accesses: u64) -> Result<Vec<Entry>, String> {
    let failed = |error: std::io::Error| format!("{SEQUENCE}: {error}");
    let mut disk = std::io::BufReader::with_capacity(1 << 20, File::open(SEQUENCE).map_err(failed)?);
    let mut sequence = Vec::with_capacity(accesses as usize);
    let mut bytes = [0; 8];
    for _ in 0..accesses {
        disk.read_exact(&mut bytes).map_err(failed)?;
        sequence.push(Entry(u64::from_le_bytes(bytes)));
    }
    Ok(sequence)
}

/// Sets the limit: the data's pages, what this process holds in the group already, and what the kernel will need.
fn limit(job: &Job) -> Result<(), String> {
    fold();
    let stat = text(&format!("{GROUP}/memory.stat"))?;
    let stat = numbers(&stat);
    let own: u64 = ["anon", "file", "kernel"].iter().filter_map(|name| stat.get(name)).sum();
    let bytes = (job.limit + job.extra()) * PAGE as u64 + own;
    tell(&format!("{GROUP}/memory.max"), &bytes.to_string())
}

/// The file of the group that makes the kernel fold its statistics; on the classic lists decisions look at them.
fn fold_file(lists: Lists) -> Option<String> {
    // Each kind of statistics is folded by itself from 6.16 on; before 6.2 no reading folds them at once.
    let name = match version()? {
        version if version >= FOLDS_EACH_BY_ITSELF => "memory.zswap.current",
        version if version >= FOLDS_WHEN_READ => "cpu.stat",
        _ => return None,
    };
    (lists == Lists::Classic).then(|| format!("{GROUP}/{name}")).filter(|path| std::path::Path::new(path).exists())
}

/// Has the kernel fold all its statistics. Old kernels do so by themselves only, every two seconds.
fn fold() {
    for name in ["cpu.stat", "memory.zswap.current"] {
        let _ = text(&format!("{GROUP}/{name}"));
    }
    let _ = text("/proc/sys/vm/stat_refresh");
    if version().is_some_and(|version| version < FOLDS_WHEN_READ) {
        std::thread::sleep(FOLDED_BY_ITSELF);
    }
}

/// The kernel's version.
fn version() -> Option<(u32, u32)> {
    let release = text("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = version_of(release.trim()).split('.').filter_map(|number| number.parse::<u32>().ok());
    Some((numbers.next()?, numbers.next()?))
}

/// The kernel's counters now.
fn snapshot(first_touches: u64) -> Result<Counters, String> {
    fold();
    let (group, machine) = (text(&format!("{GROUP}/memory.stat"))?, text("/proc/vmstat")?);
    let (group, machine) = (numbers(&group), numbers(&machine));
    let mut counters: Counters = COUNTERS
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), *group.get(name).or_else(|| machine.get(name))?)))
        .collect();
    // A group counts swapping by itself from 6.13 on; the machine does in every kernel.
    for name in ["pswpin", "pswpout"] {
        counters.insert(name.to_owned(), machine.get(name).copied().unwrap_or(0));
    }
    let disk = text(&format!("/sys/block/{DATA_DISK}/stat"))?;
    let sectors: u64 = disk.split_whitespace().nth(2).and_then(|number| number.parse().ok()).unwrap_or(0);
    let file_reads = sectors * SECTOR / PAGE as u64;
    let [some, full] = pressure(&text(&format!("{GROUP}/memory.pressure")).unwrap_or_default());
    let of_group = |name: &str| group.get(name).copied().unwrap_or(0) / PAGE as u64;
    counters.extend(
        [
            ("file_reads", file_reads),
            ("loads", file_reads + counters["pswpin"]),
            ("first_touches", first_touches),
            ("kswapd_us", kswapd_us()),
            ("pressure_some_us", some),
            ("pressure_full_us", full),
            ("resident_anon", of_group("anon")),
            ("resident_file", of_group("file")),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    Ok(counters)
}

/// The CPU time of the kernel's thread that reclaims in the background.
fn kswapd_us() -> u64 {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_it = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "kswapd0")
    };
    let schedstat = processes.map(|entry| entry.path()).find(is_it).map(|path| path.join("schedstat"));
    let text = schedstat.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0) / 1000
}
