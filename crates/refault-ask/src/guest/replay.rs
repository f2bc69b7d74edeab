//! One replay: the accesses of a sequence, made in a group under a limit, and the kernel's counters around them.

use std::ffi::c_void;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::ptr::null_mut;

use refault_trace::{Entry, Kind};
use rustix::fs::Advice;
use rustix::mm::{MapFlags, MlockAllFlags, MprotectFlags, ProtFlags};

use super::counted::{FOLDS_WHEN_READ, between, fold, snapshot, version};
use super::kernel_files::{numbers, say, tell, tell_if_there, text};
use super::setup::{DATA, DATA_DISK, GROUP, SEQUENCE};
use crate::iso;
use crate::job::{COUNTERS, Counters, Job, Lists, Said};

const PAGE: usize = 4096;
/// Accesses between two flushes of the TLB, and between two folds of the statistics.
const FLUSH_EVERY: u64 = 256;
const FOLD_EVERY: u64 = 64;
/// More pages than a kernel flushes one by one.
pub(super) const FLUSHED_PAGES: usize = 64;
/// Aligned to every level of page tables, so that regions begin where page numbers say.
const ANON_BASE: usize = 1 << 40;
const FILE_BASE: usize = 2 << 40;
/// The first version that folds each kind of a group's statistics alone.
const FOLDS_EACH_BY_ITSELF: (u32, u32) = (6, 16);
/// How often a run says how far it is.
const SAYINGS: u64 = 50;

/// Memory of this process's own.
pub(super) struct Mapping {
    base: *mut c_void,
    bytes: usize,
}

impl Mapping {
    /// Private memory; at a place if that is not null.
    pub(super) fn anonymous(at: *mut c_void, bytes: usize) -> Result<Mapping, String> {
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

    pub(super) fn word(&self, page: usize) -> *mut u64 {
        assert!((page + 1) * PAGE <= self.bytes, "a page beyond its mapping");
        // Within the mapping, as was just seen.
        self.base.wrapping_byte_add(page * PAGE).cast()
    }

    /// Has the processor forget all translations.
    pub(super) fn flush(&self) -> Result<(), String> {
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
    let (mut before, mut folded) = (counted(0)?, [0; PAGE]);
    for (done, entry) in (0..).zip(&sequence) {
        if done == job.warm_up && done > 0 {
            before = counted(replay.first_touches)?;
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
    let after = counted(replay.first_touches)?;
    for name in COUNTERS {
        say(&Said::Counted(name.to_owned(), between(&before, &after, name)));
    }
    Ok(())
}

/// The kernel's counters, and the replay's own.
fn counted(first_touches: u64) -> Result<Counters, String> {
    let mut counters = snapshot(DATA_DISK)?;
    counters.insert("first_touches".to_owned(), first_touches);
    Ok(counters)
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
