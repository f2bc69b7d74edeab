//! What a cache writes about itself, for `refault top`: a JSON line each second, and a last one when it is gone.
//!
//! Several caches, of several processes, may append to one file: each line is one write, and says whose it is. Nothing
//! is written for readers and writers of files; a thread of its own asks for the report, which takes the engine's lock
//! for some microseconds. A full disk is no reason to end the program: lines are missing then, and the next one that
//! can be written ends what is left of one that was written in part. The file begins anew when it has grown to
//! [`MAX_FILE_BYTES`]; so it must be empty or of statistics from the start. The names of the fields are those of
//! [`CacheReport`] and of the policies' counters.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use refault_core::Counters;
use refault_store::PAGE_SIZE;

use crate::engine::lists::Lists;
use crate::options::CacheReport;

/// Between two lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// A file that has grown so large begins anew: ten hours or so of one cache.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// What each line begins with.
const BEGIN: &[u8] = b"{\"pid\":";
/// Names the file where no option does.
pub(crate) const VARIABLE: &str = "REFAULT_CACHE_STATS";

const UNBROKEN: &str = "invariant: nothing panics under this lock";

/// Caches of this process.
static CACHES: AtomicU32 = AtomicU32::new(0);

/// What lines are about.
pub(crate) trait Reported: Send + Sync + 'static {
    /// How it is now.
    fn report(&self) -> CacheReport;
    /// What its policy says of its lists.
    fn lists(&self) -> Lists;
}

/// The file, and what the line before said.
pub(crate) struct Statistics {
    lines: Mutex<Lines>,
    closed: Mutex<bool>,
    wake: Condvar,
}

struct Lines {
    file: Appended,
    policy: String,
    cache: u32,
    begun: Instant,
    last: Instant,
    hits: u64,
    misses: u64,
}

/// The file that an option names, or the environment.
pub(crate) fn path(option: Option<&PathBuf>) -> Option<PathBuf> {
    option.cloned().or_else(|| std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from))
}

impl Statistics {
    /// # Errors
    /// The file cannot be appended to.
    pub(crate) fn new(path: &Path, policy: &str) -> io::Result<Arc<Statistics>> {
        let file = Appended::open(path, MAX_FILE_BYTES)?;
        let (now, cache) = (Instant::now(), CACHES.fetch_add(1, Ordering::Relaxed));
        let lines = Lines { file, policy: policy.to_owned(), cache, begun: now, last: now, hits: 0, misses: 0 };
        Ok(Arc::new(Statistics { lines: Mutex::new(lines), closed: Mutex::new(false), wake: Condvar::new() }))
    }

    /// Starts the thread. Without one there is the last line only.
    pub(crate) fn start<C: Reported>(self: &Arc<Statistics>, cache: &Arc<C>) {
        let (own, cache) = (self.clone(), Arc::downgrade(cache));
        let _ = std::thread::Builder::new().name("refault-stats".into()).spawn(move || own.work(&cache));
    }

    fn work(&self, cache: &Weak<impl Reported>) {
        loop {
            let closed = self.closed.lock().expect(UNBROKEN);
            let (closed, _) = self.wake.wait_timeout_while(closed, INTERVAL, |closed| !*closed).expect(UNBROKEN);
            if *closed {
                return;
            }
            drop(closed);
            let Some(cache) = cache.upgrade() else { return };
            self.write(&*cache, false);
        }
    }

    pub(crate) fn write(&self, cache: &impl Reported, last: bool) {
        let (report, lists) = (cache.report(), cache.lists());
        let mut lines = self.lines.lock().expect(UNBROKEN);
        let line = lines.line(&report, &lists, last);
        lines.file.append(line);
    }

    /// The cache is gone.
    pub(crate) fn close(&self, cache: &impl Reported) {
        *self.closed.lock().expect(UNBROKEN) = true;
        self.wake.notify_all();
        self.write(cache, true);
    }
}

/// A file of lines, to which others append too.
struct Appended {
    file: File,
    most_bytes: u64,
    /// The last line was written in part.
    torn: bool,
}

impl Appended {
    fn open(path: &Path, most_bytes: u64) -> io::Result<Appended> {
        // A pipe without a reader would keep us waiting.
        let options = |options: &mut std::fs::OpenOptions| options.custom_flags(libc::O_NONBLOCK).open(path);
        let file = options(File::options().create(true).append(true).read(true))?;
        let refused = |what| Err(io::Error::new(ErrorKind::InvalidInput, what));
        if !file.metadata()?.is_file() {
            return refused("it is not a regular file");
        }
        let mut begin = [0; BEGIN.len()];
        let bytes = file.read_at(&mut begin, 0)?;
        // Another program may have emptied the file after a line was written in part: that line's end is left.
        let begins = begin[..bytes].strip_prefix(b"\n").unwrap_or(&begin[..bytes]);
        if *begins != BEGIN[..begins.len()] {
            return refused("it has something else than statistics, and would be emptied one day");
        }
        Ok(Appended { file, most_bytes, torn: false })
    }

    /// Writes a line at once, so that those of others do not come between its parts.
    fn append(&mut self, mut line: String) {
        let len = self.file.metadata().map_or(0, |metadata| metadata.len());
        if len == 0 || len >= self.most_bytes && self.file.set_len(0).is_ok() {
            self.torn = false;
        }
        if self.torn {
            line.insert(0, '\n');
        }
        loop {
            match self.file.write(line.as_bytes()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) | Ok(0) => return,
                Ok(bytes) => return self.torn = bytes < line.len(),
            }
        }
    }
}

impl Lines {
    fn line(&mut self, report: &CacheReport, lists: &Lists, last: bool) -> String {
        let now = Instant::now();
        let passed = now.duration_since(self.last).as_secs_f64().max(0.001);
        let rate = |count: u64, before: u64| ((count.saturating_sub(before)) as f64 / passed).round();
        let mut text = format!(
            "{{\"pid\":{},\"cache\":{},\"seconds\":{:.3},\"unix_ms\":{},\"last\":{last},\"page_bytes\":{PAGE_SIZE}",
            std::process::id(),
            self.cache,
            self.begun.elapsed().as_secs_f64(),
            SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis(),
        );
        let mut add = |name: &str, value: &dyn std::fmt::Display| {
            let _ = write!(text, ",\"{name}\":{value}");
        };
        add("policy", &quoted(&self.policy));
        add("io", &quoted(&report.io));
        let values = [
            ("memory_bytes", report.memory_bytes),
            ("resident_bytes", report.resident_bytes),
            ("cached_bytes", report.cached_bytes),
            ("compressed_bytes", report.compressed_bytes),
            ("compressed_pages", report.compressed_pages),
            ("dirty_bytes", report.dirty_bytes),
            ("orphan_bytes", report.orphan_bytes),
            ("metadata_bytes", report.metadata_bytes),
            ("registered_bytes", report.registered_bytes),
            ("hits", report.hits),
            ("misses", report.misses),
            ("waits", report.waits),
            ("read_ahead", report.read_ahead),
            ("unpacked", report.unpacked),
            ("written", report.written),
            ("written_back", report.written_back),
        ];
        values.iter().for_each(|(name, value)| add(name, value));
        add("hits_per_second", &rate(report.hits, self.hits));
        add("misses_per_second", &rate(report.misses, self.misses));
        Counters::NAMES.iter().zip(report.counters.values()).for_each(|(name, value)| add(name, &value));
        let generations = lists.generations.iter().map(|one| {
            let age = lists.now.saturating_sub(one.birth) / 1_000_000;
            format!("{{\"seq\":{},\"age_ms\":{age},\"pages\":{}}}", one.seq, one.pages.iter().sum::<u64>())
        });
        add("generations", &format_args!("[{}]", generations.collect::<Vec<_>>().join(",")));
        match lists.leader {
            Some(leader) => add("leader", &quoted(leader)),
            None => add("leader", &"null"),
        }
        let answers = report.would_miss.iter().map(|one| {
            let (policy, memory) = (quoted(&one.policy), one.memory_bytes);
            let counts = format!("\"accesses\":{},\"misses\":{}", one.accesses, one.misses);
            format!("{{\"policy\":{policy},\"memory_bytes\":{memory},{counts}}}")
        });
        add("would_miss", &format_args!("[{}]", answers.collect::<Vec<_>>().join(",")));
        text.push_str("}\n");
        (self.last, self.hits, self.misses) = (now, report.hits, report.misses);
        text
    }
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control < ' ' => drop(write!(quoted, "\\u{:04x}", control as u32)),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "{\"pid\":1}\n";

    #[test]
    fn a_line_that_was_written_in_part_is_ended_by_the_next() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("cache.jsonl");
        let mut appended = Appended::open(&path, 1 << 20).expect("opens");
        appended.append(LINE.to_owned());
        // A device with room for a part of a line: a limit of this process would hold for other tests.
        std::fs::OpenOptions::new().append(true).open(&path).expect("opens").write_all(b"{\"pid").expect("room");
        appended.torn = true;
        appended.append(LINE.to_owned());
        appended.append(LINE.to_owned());
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!(text, format!("{LINE}{{\"pid\n{LINE}{LINE}"));
    }

    #[test]
    fn a_file_begins_anew_when_it_is_large_and_is_nothing_else_of_anybodys() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("cache.jsonl");
        let most = 20 * LINE.len() as u64;
        let mut two = [Appended::open(&path, most).expect("opens"), Appended::open(&path, most).expect("opens")];
        let mut shrank = 0;
        for turn in 0..100 {
            let before = std::fs::metadata(&path).expect("there").len();
            two[turn % 2].append(LINE.to_owned());
            let after = std::fs::metadata(&path).expect("there").len();
            assert!(after <= most, "{after} bytes");
            shrank += u32::from(after < before);
        }
        assert_eq!(shrank, 4, "each 20 lines");
        let text = std::fs::read_to_string(&path).expect("text");
        assert!(text.lines().all(|line| line == LINE.trim_end()));
        std::fs::write(&path, "dear diary").expect("writes");
        assert!(Appended::open(&path, most).is_err());
        assert!(Appended::open("/dev/null".as_ref(), most).is_err());
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
        assert!(Appended::open(&pipe, most).is_err(), "and the call waits for no reader");
    }
}
