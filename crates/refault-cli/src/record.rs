//! `refault record`: a trace of the pages that a program accesses, each once per interval.
//!
//! The agent sets the pages that were accessed aside at the end of each interval, so that the next access of each is
//! seen; this command makes an `.rft` trace of it. Within an interval a page stands where it was first accessed, as a
//! write if that access was one. Processes have pages of their own.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use refault_console::{Contents, Failure, ForceArgs, Outputs, say};
use refault_paging::settings::RecordSettings;
use refault_trace::rft::RftWriter;
use refault_trace::write::OutputFormat;
use refault_trace::{Entry, Kind, TimeSpan};

use crate::inherited::Unnamed;
use crate::launch::{self, Launch};
use crate::trace::unwritten;
use crate::wss::interval;
use refault_console::text::grouped;

/// First word of a piece of the agent's file.
const MARK: u64 = u64::from_le_bytes(*b"rfrecord");
/// Words and bytes of its header.
const WORDS: usize = 9;
const HEADER: usize = WORDS * 8;
/// Pages of a process: 47 bits of addresses.
const PAGE_BITS: u32 = 35;
/// What it takes to deliver a fault to the thread that takes it, in nanoseconds: what the agent does then is measured.
const DELIVERY_NS: f64 = 2000.0;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault record --out app.rft -- python3 analysis.py
  refault mrc --trace app.rft --misses 1%,5%         how much memory is enough
  refault compare --trace app.rft --memory 25%,50%   which policy gets by with how much

The memory of the program is not limited while it is recorded. Private anonymous memory is recorded, no matter what asks
for it. A page counts once per interval, however often it is accessed, in the order of first accesses. Shorter intervals
see more and cost more, and both are said at the end. No privilege is needed.")]
/// Record which pages a program accesses, as a trace
pub struct RecordArgs {
    /// The trace to write
    #[arg(long, value_name = "FILE.rft", default_value = "refault.rft")]
    out: PathBuf,
    /// Time between two looks, such as 50ms or 1s; milliseconds without a unit; at least 1 ms
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = interval, allow_hyphen_values = true)]
    interval: u64,
    /// Record a program that runs already: not possible, and why is said
    #[arg(long, value_name = "PID", hide_short_help = true, exclusive = true)]
    pid: Option<u32>,
    /// The program and its arguments
    #[arg(
        required_unless_present = "pid",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
    #[command(flatten)]
    force: ForceArgs,
}

/// Runs the command; exits with the program's exit code.
pub fn run(args: &RecordArgs) -> Result<(), Failure> {
    if let Some(pid) = args.pid {
        return Err(cannot_attach(pid));
    }
    let mut launch = Launch::new(&args.program, launch::machine_bytes())?;
    let pieces = Unnamed::new()?;
    // Fails now rather than after the program has run.
    let mut outputs = Outputs::new(args.force);
    args.program.iter().for_each(|argument| outputs.reads(Path::new(argument)));
    if OutputFormat::of_path(&args.out).is_some_and(|format| format != OutputFormat::Rft) {
        let remedy = "name it .rft; refault trace convert writes other formats";
        return Err(Failure::usage("a recording is an .rft trace", args.out.display(), remedy));
    }
    let output = outputs.claim("--out", Some(&args.out), Contents::Trace(OutputFormat::Rft))?;
    let output = output.expect("invariant: a path was given");
    let file = output.file().try_clone().map_err(|error| Failure::write(args.out.display(), &error))?;
    let mut writer = RftWriter::new(file, &args.out).map_err(|error| unwritten(&error))?;
    let out = launch.output(pieces.path())?;
    launch.settings().record =
        Some(RecordSettings { out, interval_ms: args.interval.max(1), shift: 0, most_cpu: None });
    let command = args.program.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let mut recording = Recording::default();
    let mut file = std::fs::File::open(pieces.path()).map_err(|error| Failure::write("a temporary file", &error))?;
    let mut pending = Vec::new();
    let mut trouble = None;
    let mut take = |file: &mut std::fs::File, recording: &mut Recording| {
        let taken = file.read_to_end(&mut pending).map_err(|error| Failure::write("a temporary file", &error));
        taken.and_then(|_| recording.take(&mut pending, &mut writer, || pieces.no_room()))
    };
    let code = launch.run(|| {
        if trouble.is_none() {
            trouble = take(&mut file, &mut recording).err();
        }
    })?;
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    take(&mut file, &mut recording)?;
    if recording.pieces == 0 || recording.pages == 0 {
        let remedy = "it ended before the first interval was over, or executes a program that cannot be managed";
        if code != 0 {
            say(format_args!("nothing was recorded: {command}: {remedy}"));
            return Err(Failure::Exit(code));
        }
        return Err(Failure::failed("nothing was recorded", command, remedy));
    }
    for (key, value) in recording.metadata(&command, args.interval) {
        writer.add_metadata(key, &value);
    }
    let accesses = writer.finish().map_err(|error| unwritten(&error))?;
    output.commit()?;
    recording.tell(accesses, &args.out, args.interval);
    if code == 0 { Ok(()) } else { Err(Failure::Exit(code)) }
}

/// Why a program that runs already is not recorded: what would be needed is named.
fn cannot_attach(pid: u32) -> Failure {
    let reason = "a trace needs to know of single pages when they were read: DAMON has regions only, PAGEMAP_SCAN and soft-dirty \
                  bits writes only, and of idle-page tracking ";
    let tracking = match Path::new("/sys/kernel/mm/page_idle/bitmap").exists() {
        true => "refault makes no use yet",
        false => "this kernel has none (CONFIG_IDLE_PAGE_TRACKING)",
    };
    let remedy = format!(
        "start it under refault record -- PROGRAM, or see its regions with refault monitor --pid {pid}, its working set \
         with refault wss --pid {pid}"
    );
    Failure::failed(
        "cannot record a program that runs already",
        format!("process {pid}"),
        format!("{reason}{tracking}; {remedy}"),
    )
}

/// What a process touched in an interval, as the agent writes it: a header and a word for each page.
pub(crate) struct Piece<'a> {
    pub(crate) pid: u64,
    /// Tells processes of the same number apart.
    pub(crate) birth: u64,
    /// Monotonic nanoseconds.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// Nanoseconds of processor time of the look.
    spent: u64,
    pages: u64,
    /// Nanoseconds that the faults took.
    faults: u64,
    touches: &'a [u8],
}

/// What should be a piece is none.
#[derive(Debug)]
pub(crate) struct Damaged;

impl<'a> Piece<'a> {
    /// The piece that begins at a place of what was read, which is moved behind it; none if it is not whole yet.
    pub(crate) fn at(bytes: &'a [u8], at: &mut usize) -> Result<Option<Piece<'a>>, Damaged> {
        let Some((header, rest)) = bytes[*at..].split_at_checked(HEADER) else { return Ok(None) };
        let word =
            |index: usize| u64::from_le_bytes(header[index * 8..index * 8 + 8].try_into().expect("invariant: 8 bytes"));
        let [mark, pid, birth, begin, end, length, spent, pages, faults]: [u64; WORDS] = std::array::from_fn(word);
        if mark != MARK {
            return Err(Damaged);
        }
        let Some(touches) = rest.get(..length as usize) else { return Ok(None) };
        *at += HEADER + touches.len();
        Ok(Some(Piece { pid, birth, begin, end, spent, pages, faults, touches }))
    }

    /// Pages by number and whether the first access was a write, in the order of first accesses.
    pub(crate) fn touches(&self) -> impl Iterator<Item = (u64, bool)> {
        self.touches.chunks_exact(8).map(|touch| {
            let touch = u64::from_le_bytes(touch.try_into().expect("invariant: 8 bytes"));
            (touch / 2, touch % 2 == 1)
        })
    }
}

/// What was taken so far.
#[derive(Default)]
struct Recording {
    pieces: u64,
    pages: u64,
    look_ns: u64,
    fault_ns: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    longest_ns: u64,
    processes: HashMap<(u64, u64), u64>,
}

impl Recording {
    /// Writes the whole pieces at the front of `pending` to the trace and takes them out. What is none is there because the
    /// agent had no room for a piece; what that means, `damaged` says.
    fn take(
        &mut self,
        pending: &mut Vec<u8>,
        writer: &mut RftWriter,
        damaged: impl Fn() -> Failure,
    ) -> Result<(), Failure> {
        let mut at = 0;
        let mut entries = Vec::new();
        while let Some(piece) = Piece::at(pending, &mut at).map_err(|Damaged| damaged())? {
            let next = self.processes.len() as u64;
            let process = *self.processes.entry((piece.pid, piece.birth)).or_insert(next);
            entries.clear();
            entries.extend(
                piece.touches().map(|(page, write)| Entry::new((process << PAGE_BITS) | page, Kind::Anon, write)),
            );
            let origin = *self.first_ns.get_or_insert(piece.begin);
            let time = |ns: u64| ns.saturating_sub(origin);
            if !entries.is_empty() {
                let span = TimeSpan { first_ns: time(piece.begin), last_ns: time(piece.end) };
                writer.write_timed(&entries, span).map_err(|error| unwritten(&error))?;
            }
            self.pieces += 1;
            self.pages += piece.pages;
            self.look_ns += piece.spent;
            self.fault_ns += piece.faults;
            self.last_ns = self.last_ns.max(piece.end);
            self.longest_ns = self.longest_ns.max(piece.end.saturating_sub(piece.begin));
        }
        pending.drain(..at);
        Ok(())
    }

    fn seconds(&self) -> f64 {
        (self.last_ns - self.first_ns.unwrap_or(self.last_ns)) as f64 / 1e9
    }

    /// Intervals of `milliseconds` that the recording goes over, whatever number of processes was looked at in each.
    fn intervals(&self, milliseconds: u64) -> u64 {
        (self.last_ns - self.first_ns.unwrap_or(self.last_ns)).div_ceil(milliseconds * 1_000_000)
    }

    /// Shares of one processor that the looks took, and that the program spent on faults because of them.
    fn overhead(&self) -> [f64; 2] {
        let elapsed = (self.seconds() * 1e9).max(1.0);
        let faults = self.fault_ns as f64 + self.pages as f64 * DELIVERY_NS;
        [self.look_ns as f64 / elapsed, faults / elapsed]
    }

    fn metadata(&self, command: &str, interval: u64) -> [(&'static str, String); 5] {
        let [looks, faults] = self.overhead();
        [
            ("recorded", command.to_owned()),
            ("granularity", format!("pages accessed in each {interval} ms, in the order of first accesses")),
            ("intervals", self.intervals(interval).to_string()),
            ("processes", self.processes.len().to_string()),
            ("overhead", format!("looks {:.2} %, faults {:.2} % of one processor", looks * 100.0, faults * 100.0)),
        ]
    }

    fn tell(&self, accesses: u64, out: &Path, interval: u64) {
        let [looks, faults] = self.overhead();
        say(format_args!(
            "{} accesses in {} intervals of {interval} ms (the longest {:.0} ms) and {} process{} written to {}",
            grouped(accesses),
            grouped(self.intervals(interval)),
            self.longest_ns as f64 / 1e6,
            self.processes.len(),
            if self.processes.len() == 1 { "" } else { "es" },
            out.display(),
        ));
        say(format_args!(
            "overhead: the looks took {:.2} % of one processor, their faults some {:.2} %; a page is written as a write if \
             its first access in an interval was one",
            looks * 100.0,
            faults * 100.0,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(pid: u64, times: [u64; 2], touches: &[(u64, bool)]) -> Vec<u8> {
        let pages = touches.len() as u64;
        let header: [u64; WORDS] = [MARK, pid, 7, times[0], times[1], pages * 8, 10, pages, 20];
        let touches = touches.iter().map(|(page, write)| page * 2 + u64::from(*write));
        header.into_iter().chain(touches).flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn pieces_become_blocks_with_times_and_processes_have_pages_of_their_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a.rft");
        let mut writer = RftWriter::create(&path).expect("creates");
        let unread = || Failure::Failed("no piece".to_owned());
        let mut recording = Recording::default();
        let mut bytes = piece(100, [1000, 2000], &[(6, false), (5, true)]);
        bytes.extend(piece(101, [1500, 2500], &[(5, false)]));
        let tail = piece(100, [2000, 3000], &[(6, false), (9, true)]);
        bytes.extend(&tail[..70]);
        recording.take(&mut bytes, &mut writer, unread).expect("takes");
        assert_eq!((recording.pieces, bytes.len()), (2, 70));
        bytes.extend(&tail[70..]);
        recording.take(&mut bytes, &mut writer, unread).expect("takes");
        assert_eq!((recording.pieces, recording.pages, bytes.len(), recording.processes.len()), (3, 5, 0, 2));
        assert_eq!(recording.intervals(1), 1, "from 1 to 3 µs");
        recording.last_ns = 5_001_000;
        assert_eq!(recording.intervals(1), 5, "of two processes together");
        assert_eq!(writer.finish().expect("finishes"), 5);
        let mut reader = refault_trace::open(&path, &refault_trace::Options::default()).expect("opens");
        let mut pages = Vec::new();
        let mut block = Vec::new();
        while reader.read_block(&mut block).expect("reads") > 0 {
            pages.extend(block.iter().map(|entry| (entry.page(), entry.write())));
        }
        assert_eq!(pages, [(6, false), (5, true), ((1 << PAGE_BITS) | 5, false), (6, false), (9, true)]);
        let mut garbage = vec![1; HEADER];
        let mut writer = RftWriter::create(directory.path().join("b.rft")).expect("creates");
        assert!(Recording::default().take(&mut garbage, &mut writer, unread).is_err());
    }
}
