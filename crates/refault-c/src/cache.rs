//! Page caches and their files.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use refault::cache::{CacheOptions, MakeError, OpenError, PageCache, ReadError, WriteBack, WriteError};

use crate::handles::Table;
use crate::open_file::{FILES, OpenFile, on_file};
use crate::status::{Failure, REFAULT_NO_ROOM, give, guarded, path, refault_status, text};

/// A page cache.
pub type refault_cache = u64;
/// A file behind a page cache.
pub type refault_file = u64;

/// What open(2) says of `O_DIRECT` where there is none.
const EINVAL: std::ffi::c_int = 22;
/// What write(2) says of a file that was opened for reading only.
const EBADF: std::ffi::c_int = 9;

/// For `refault_file_open_with`: the file is opened for reading and writing. Without a flag it is opened for reading.
pub const REFAULT_OPEN_WRITE: u32 = 1;
/// The file is opened for reading, and for writing by its first write, which may fail then.
pub const REFAULT_OPEN_WRITE_ON_DEMAND: u32 = 2;
/// What is written goes through the kernel's page cache: `refault_file_write` returns when the kernel has it, which writes
/// it to the device when it sees fit, at the latest at `refault_file_sync`. Small writes between two syncs cost about
/// what they cost without direct I/O. Until a sync the kernel holds a copy, which does not count in the cache's memory;
/// without a sync it holds it until it wants the memory.
pub const REFAULT_OPEN_BUFFERED_WRITES: u32 = 4;

static CACHES: Table<PageCache> = Table::new(1, "page cache");

/// A cache's state at one moment. Counts are pages since the start.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refault_cache_stats {
    /// Bytes of contents that may be in memory now: what records take is taken off.
    pub memory_bytes: u64,
    /// Bytes of contents that are.
    pub resident_bytes: u64,
    /// Bytes of records of pages and frames. They count in the cache's memory beyond the first MiB.
    pub metadata_bytes: u64,
    /// Pages that were asked for and were in memory.
    pub hits: u64,
    /// Pages that were asked for and had to be read.
    pub misses: u64,
    /// Pages that were read along in sequences.
    pub read_ahead: u64,
    /// Pages written.
    pub written: u64,
}

fn make_failure(error: MakeError) -> Failure {
    match &error {
        MakeError::Memory(source) | MakeError::Statistics { error: source, .. } => {
            Failure::system(source, error.to_string())
        }
        _ => Failure::argument(error.to_string()),
    }
}

fn open_failure(error: OpenError) -> Failure {
    match &error {
        OpenError::Io { error: source, .. } => Failure::system(source, error.to_string()),
        // As the system says it.
        OpenError::NoDirect(_) => Failure::argument(error.to_string()).numbered(EINVAL),
        _ => Failure::argument(error.to_string()),
    }
}

pub(crate) fn read_failure(error: &ReadError, sentence: String) -> Failure {
    match error {
        ReadError::Io { error: source, .. } => Failure::system(source, sentence),
        ReadError::NoRoom => Failure::new(REFAULT_NO_ROOM, sentence),
        ReadError::TooManyPages => Failure::argument(sentence),
        _ => Failure::system(&std::io::ErrorKind::UnexpectedEof.into(), sentence),
    }
}

fn write_failure(error: WriteError) -> Failure {
    match &error {
        WriteError::Io { error: source, .. } => Failure::system(source, error.to_string()),
        WriteError::Read(source) => read_failure(source, error.to_string()),
        WriteError::NotForWriting { .. } => not_for_writing(error.to_string()),
        _ => Failure::system(&std::io::ErrorKind::Other.into(), error.to_string()),
    }
}

fn not_for_writing(sentence: String) -> Failure {
    Failure::system(&std::io::Error::from_raw_os_error(EBADF), sentence)
}

/// Makes an empty cache of at most `memory` bytes (at least 256 KiB), records of pages included, under a policy such as
/// `"mglru"` or `"s3fifo{small=0.1}"`; null is the default. `refault_policy_names` lists them.
///
/// # Safety
/// `policy` is null or a string; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_cache_new(
    memory: u64,
    policy: *const c_char,
    out: *mut refault_cache,
) -> refault_status {
    guarded(|| {
        let mut options = CacheOptions { memory, ..CacheOptions::default() };
        // SAFETY: the caller's.
        if let Some(policy) = unsafe { text(policy, "the policy") }? {
            options.policy = policy.to_owned();
        }
        let cache = PageCache::new(&options).map_err(make_failure)?;
        // SAFETY: the caller's.
        unsafe { give(out, 0, "the cache")? };
        // SAFETY: as above, and it is not null.
        unsafe { give(out, CACHES.put(cache), "the cache") }
    })
}

/// How a cache is made. Set all to zero first: a zero is the default.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refault_cache_options {
    /// Bytes of memory, at least 256 KiB, for files' contents and what is kept of pages; 64 MiB if 0.
    pub memory: u64,
    /// The policy, or null.
    pub policy: *const c_char,
    /// Pages of a window of readahead at most; if 0, as many as the kernel reads ahead on the file's device, 512 at least, but no more than a 32nd of memory, or 8 if that is more.
    pub read_ahead: u32,
    /// Not 0: nothing is read ahead.
    pub no_read_ahead: u32,
    /// Not 0: writes stay in memory until they are written in the background, or `refault_file_sync` asks for it.
    pub write_back: u32,
    /// With `write_back`: the share of memory from which on pages are written in the background; 0.1 if 0.
    pub background_ratio: f64,
    /// The share of memory that may wait to be written, at most 0.5; 0.2 if 0.
    pub ratio: f64,
    /// Milliseconds after which pages are written in any case; 30,000 if 0.
    pub expire_ms: u64,
    /// The share of memory for evicted pages, compressed, at most 0.75; none if 0.
    pub compressed: f64,
    /// A file that gets a line each second, for `refault top`; or null: the environment variable
    /// `REFAULT_CACHE_STATS` may name one.
    pub statistics: *const c_char,
}

/// `refault_cache_new` with more to say.
///
/// # Safety
/// `options` points to options whose `policy` and `statistics` are null or strings; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_cache_new_with(
    options: *const refault_cache_options,
    out: *mut refault_cache,
) -> refault_status {
    guarded(|| {
        // SAFETY: the caller's; null is refused.
        let asked = unsafe { options.as_ref() }.ok_or_else(|| Failure::argument("the options are null"))?;
        // SAFETY: the caller's.
        unsafe { give(out, 0, "the cache")? };
        // SAFETY: the caller's.
        let options = unsafe { cache_options(asked) }?;
        let cache = PageCache::new(&options).map_err(make_failure)?;
        // SAFETY: as above, and it is not null.
        unsafe { give(out, CACHES.put(cache), "the cache") }
    })
}

/// # Safety
/// Policy and statistics are null or strings.
unsafe fn cache_options(asked: &refault_cache_options) -> Result<CacheOptions, Failure> {
    let (mut options, mut write_back) = (CacheOptions::default(), WriteBack::default());
    if asked.memory != 0 {
        options.memory = asked.memory;
    }
    // SAFETY: the caller's.
    if let Some(policy) = unsafe { text(asked.policy, "the policy") }? {
        options.policy = policy.to_owned();
    }
    if asked.read_ahead != 0 {
        options.read_ahead = Some(asked.read_ahead);
    }
    if asked.no_read_ahead != 0 {
        options.read_ahead = Some(0);
    }
    if asked.background_ratio != 0.0 {
        write_back.background_ratio = asked.background_ratio;
    }
    if asked.ratio != 0.0 {
        write_back.ratio = asked.ratio;
        if asked.background_ratio == 0.0 {
            write_back.background_ratio = write_back.background_ratio.min(asked.ratio / 2.0);
        }
    }
    if asked.expire_ms != 0 {
        write_back.expire = Duration::from_millis(asked.expire_ms);
    }
    if asked.compressed != 0.0 {
        options.compressed = Some(asked.compressed);
    }
    if !asked.statistics.is_null() {
        // SAFETY: the caller's.
        options.statistics = Some(unsafe { path(asked.statistics) }?);
    }
    options.write_back = (asked.write_back != 0).then_some(write_back);
    Ok(options)
}

/// Ends the use of a cache. Its files stay usable until they are closed.
#[unsafe(no_mangle)]
pub extern "C" fn refault_cache_free(cache: refault_cache) -> refault_status {
    guarded(|| CACHES.take(cache).map(drop))
}

/// A cache's state now.
///
/// # Safety
/// `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_cache_stats_now(
    cache: refault_cache,
    out: *mut refault_cache_stats,
) -> refault_status {
    guarded(|| {
        let report = CACHES.find(cache)?.report();
        let stats = refault_cache_stats {
            memory_bytes: report.memory_bytes,
            resident_bytes: report.resident_bytes,
            metadata_bytes: report.metadata_bytes,
            hits: report.hits,
            misses: report.misses,
            read_ahead: report.read_ahead,
            written: report.written,
        };
        // SAFETY: the caller's.
        unsafe { give(out, stats, "the state") }
    })
}

/// Opens a file, which must exist, with direct I/O: for reading, and for writing by its first write, which fails where that
/// is not allowed. While it is open only this cache should write to it.
///
/// # Safety
/// `file_path` is a string; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_file_open(
    cache: refault_cache,
    file_path: *const c_char,
    out: *mut refault_file,
) -> refault_status {
    // SAFETY: the caller's.
    unsafe { refault_file_open_with(cache, file_path, REFAULT_OPEN_WRITE_ON_DEMAND, out) }
}

/// `refault_file_open` with the rights that the `REFAULT_OPEN_` flags ask for: with 0 the file is opened for reading.
///
/// # Safety
/// `file_path` is a string; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_file_open_with(
    cache: refault_cache,
    file_path: *const c_char,
    flags: u32,
    out: *mut refault_file,
) -> refault_status {
    guarded(|| {
        // SAFETY: the caller's.
        let path = unsafe { path(file_path) }?;
        let cache = CACHES.find(cache)?;
        // SAFETY: the caller's.
        unsafe { give(out, 0, "the file")? };
        let known = REFAULT_OPEN_WRITE | REFAULT_OPEN_WRITE_ON_DEMAND | REFAULT_OPEN_BUFFERED_WRITES;
        if flags & !known != 0 {
            return Err(Failure::argument(format!("{flags:#x} has flags that are none of refault_file_open_with's")));
        }
        let asks = |flag| flags & flag != 0;
        let options = cache
            .options()
            .write(asks(REFAULT_OPEN_WRITE))
            .write_on_demand(asks(REFAULT_OPEN_WRITE_ON_DEMAND))
            .buffered_writes(asks(REFAULT_OPEN_BUFFERED_WRITES));
        let file = options.open(&path).map_err(open_failure)?;
        // SAFETY: as above, and it is not null.
        unsafe { give(out, FILES.put(OpenFile::new(file, path)), "the file") }
    })
}

/// Closes a file; what is cached of it goes. What waits to be written is written, but nothing is made durable, and a
/// failure is not told: see `refault_file_sync`.
#[unsafe(no_mangle)]
pub extern "C" fn refault_file_close(file: refault_file) -> refault_status {
    guarded(|| FILES.take(file).map(drop))
}

/// Reads up to `length` bytes from `offset` on; `read` gets how many: fewer only at the end of the file, 0 beyond it.
///
/// # Safety
/// `buffer` can hold `length` bytes, and no other thread uses them during the call; `read` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_file_read(
    file: refault_file,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
    read: *mut usize,
) -> refault_status {
    on_file(file, |file| {
        check_range(buffer, length, offset)?;
        // SAFETY: the caller's; an empty slice needs no memory.
        unsafe { give(read, 0, "the number of bytes")? };
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the caller's: it is not null and holds `length` bytes.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
        let found = file.read_at(buffer, offset).map_err(|error| read_failure(&error, error.to_string()))?;
        // SAFETY: as above.
        unsafe { give(read, found, "the number of bytes") }
    })
}

/// Writes `length` bytes at `offset`; the file grows if need be. When it returns the device has
/// them, or memory with `write_back`; `refault_file_sync` makes them durable.
///
/// # Safety
/// `buffer` holds `length` bytes, which do not change during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_file_write(
    file: refault_file,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> refault_status {
    on_file(file, |file| {
        check_range(buffer, length, offset)?;
        if length == 0 {
            return Ok(());
        }
        // SAFETY: the caller's: it is not null and holds `length` bytes.
        let buffer = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), length) };
        file.write_at(buffer, offset).map_err(write_failure)
    })
}

/// Makes everything durable that was written before. After a failure, what was written since the last success may not
/// be.
#[unsafe(no_mangle)]
pub extern "C" fn refault_file_sync(file: refault_file) -> refault_status {
    on_file(file, |file| {
        file.sync().map_err(|error| Failure::system(&error, format!("cannot make it durable: {error}")))
    })
}

/// Cuts the file off, or adds zeros at its end.
#[unsafe(no_mangle)]
pub extern "C" fn refault_file_truncate(file: refault_file, bytes: u64) -> refault_status {
    on_file(file, |file| {
        if i64::try_from(bytes).is_err() {
            return Err(Failure::argument(format!("no file can have {bytes} bytes")));
        }
        if !file.is_writable() {
            return Err(not_for_writing("cannot set the length: the file was opened for reading only".into()));
        }
        file.set_len(bytes).map_err(|error| Failure::system(&error, format!("cannot set the length: {error}")))
    })
}

/// Another program may have written to the file: drops what is cached of it, and asks for its length.
#[unsafe(no_mangle)]
pub extern "C" fn refault_file_reload(file: refault_file) -> refault_status {
    on_file(file, |file| {
        file.reload().map_err(|error| Failure::system(&error, format!("cannot ask for the length: {error}")))
    })
}

/// Asks the system whether another program has changed the file since it was opened or this was last called, and if so
/// does what `refault_file_reload` does; `changed` gets 1 then, and 0 otherwise. A change within some milliseconds of a
/// write of this cache's may not be noticed.
///
/// # Safety
/// `changed` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_file_reload_if_changed(file: refault_file, changed: *mut u32) -> refault_status {
    on_file(file, |file| {
        // SAFETY: the caller's.
        unsafe { give(changed, 0, "whether it was changed")? };
        let found = file.reload_if_changed();
        let found = found.map_err(|error| Failure::system(&error, format!("cannot look for changes: {error}")))?;
        // SAFETY: as above.
        unsafe { give(changed, u32::from(found), "whether it was changed") }
    })
}

/// From now on a sync that fails makes the cache forget what was written since the last one, as the kernel's page cache
/// does: it says so once, and reads ask the device for what it has. Otherwise such pages are written again later, which is
/// wrong for a program with a journal of its own that others may take up meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn refault_file_forget_on_failure(file: refault_file) -> refault_status {
    on_file(file, |file| {
        file.forget_on_failure();
        Ok(())
    })
}

/// The file's length in bytes.
///
/// # Safety
/// `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_file_size(file: refault_file, out: *mut u64) -> refault_status {
    on_file(file, |file| {
        // SAFETY: the caller's.
        unsafe { give(out, file.len(), "the length") }
    })
}

/// Refuses what no memory and no file can be.
fn check_range(buffer: *const c_void, length: usize, offset: u64) -> Result<(), Failure> {
    if buffer.is_null() && length > 0 {
        return Err(Failure::argument("the buffer is null"));
    }
    let beyond_memory = isize::try_from(length).is_err();
    let beyond_files = offset.checked_add(length as u64).is_none_or(|end| i64::try_from(end).is_err());
    if beyond_memory || beyond_files {
        return Err(Failure::argument(format!("{length} bytes at offset {offset} reach beyond what a file can have")));
    }
    Ok(())
}
