//! One program of laws of access under a limit that pulses, and what the kernel counted meanwhile: without pressure, with
//! it, with DAMON's module that sorts lists, and with the same module that never finds anything to sort.

use std::ffi::c_void;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use refault_lab::experiments::lru_sort::{CYCLE, VARIANTS, Variant, pulsed};
use rustix::mm::MlockAllFlags;

use super::counted::{between, fold, snapshot, thread_us};
use super::kernel_files::{numbers, say, tell, text};
use super::replay::{FLUSHED_PAGES, Mapping};
use super::setup::{DATA_DISK, GROUP, clear, prepare};
use super::{RUN, job_text};
use crate::job::pulse::{COUNTERS, GIVEN_UP, KDAMOND, Pulse};
use crate::job::{Counters, Job, Lists, Said};

/// Tells a process that it is the program.
pub(super) const PROGRAM: &str = "pulse";
const PAGE: u64 = 4096;
/// A program's own time is made in steps: what it touches in one, then a pause as long. Translations are forgotten after
/// each, so that the monitor's checks see what is touched again, as with a small TLB.
const STEP: Duration = Duration::from_millis(5);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// What is evicted at a time: as many pages as a writer of cgroup v1 asks for.
const BATCH: &str = "131072";
/// From then on the module's counts are this run's: it goes on where it was stopped, and tells what it had not told yet
/// with its first aggregation.
const MODULE_COUNTS: Duration = Duration::from_millis(1500);
const PARAMETERS: &str = "/sys/module/damon_lru_sort/parameters";
/// More often than every check, and longer than any run. (The module divides: 1001 would be every check.)
const NEVER_HOT: u64 = 2_000;
const NEVER_COLD: u64 = 1 << 40;

/// Runs all variants on one kind of lists, and says of each what was counted.
pub(super) fn run(pulse: &Pulse, lists: Lists) -> Result<(), String> {
    for variant in VARIANTS {
        let job = Job { swappiness: pulse.swappiness, anon: pulse.pages, ..Job::default() };
        prepare(&job, lists)?;
        let counted = run_one(pulse, variant);
        // What is left of the program goes, and the monitor with it.
        let _ = tell(&format!("{GROUP}/cgroup.kill"), "1");
        let _ = sort(false);
        for _ in 0..100 {
            if std::fs::remove_dir(GROUP).is_ok() {
                break;
            }
            std::thread::sleep(BETWEEN_LOOKS);
        }
        clear();
        let counters = counted.map_err(|why| format!("{why} (variant {})", variant.name()))?;
        COUNTERS.iter().for_each(|name| {
            say(&Said::Counted((*name).to_owned(), counters.get(*name).copied().unwrap_or(0)));
        });
        say(&Said::Ended);
    }
    Ok(())
}

/// A program that waits to be told to go.
struct Program {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Program {
    fn start() -> Result<Program, String> {
        let mut command = Command::new("/init");
        command.env(RUN, PROGRAM).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("no process: {error}"))?;
        let orders = child.stdin.take().expect("invariant: piped");
        let answers = BufReader::new(child.stdout.take().expect("invariant: piped"));
        let mut program = Program { child, orders, answers };
        program.hears("ready")?;
        Ok(program)
    }

    /// The number after the word that it says next.
    fn hears(&mut self, word: &str) -> Result<u64, String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| format!("the program: {error}"))?;
        let (said, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), "0"));
        if said != word {
            let ended = self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
            return Err(format!("the program ended before it had said '{word}': {ended}"));
        }
        rest.parse().map_err(|_| format!("the program said '{line}'"))
    }
}

/// Where the limit stands. A group of cgroup v1, as the document's, is evicted from until it fits, or until nothing is
/// evicted; only then the limit is lowered, or is not. `memory.max` would have the program killed instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Lowering,
    /// Or it should be, and is not.
    Tight,
    Relaxed,
}

/// Bytes that the group is charged.
fn charge() -> Result<u64, String> {
    let text = text(&format!("{GROUP}/memory.current"))?;
    text.trim().parse().map_err(|_| "the group's charge is no number".to_owned())
}

fn run_one(pulse: &Pulse, variant: Variant) -> Result<Counters, String> {
    let mut program = Program::start()?;
    fold();
    let beside = charge()? + Job { anon: pulse.pages, ..Job::default() }.extra() * PAGE;
    let bytes = |share: f64| (pulse.pages as f64 * share) as u64 * PAGE + beside;
    let limit = |bytes: u64| tell(&format!("{GROUP}/memory.max"), &bytes.to_string());
    let mut before = counted()?;
    let begin = Instant::now();
    program.orders.write_all(b"go\n").map_err(|error| format!("the program: {error}"))?;
    let is_pressed = variant != Variant::Orig;
    limit(bytes(if is_pressed { CYCLE.tight } else { CYCLE.relaxed }))?;
    let monitored = matches!(variant, Variant::Plrus | Variant::Null);
    let (tight, mut stage) = (bytes(CYCLE.tight), if is_pressed { Stage::Tight } else { Stage::Relaxed });
    let (mut since, mut is_monitoring, mut said, mut given_up) = (Instant::now(), false, 0, 0);
    let mut is_noted = !monitored;
    while program.child.try_wait().map_err(|error| format!("the program: {error}"))?.is_none() {
        if stage != Stage::Lowering {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        // As in the document, the monitor starts when the program has been seen.
        if monitored && !is_monitoring && begin.elapsed() >= Duration::from_secs(1) {
            set_up(variant)?;
            sort(true)?;
            is_monitoring = true;
        }
        if !is_noted && begin.elapsed() >= MODULE_COUNTS {
            before.extend(of_module());
            is_noted = true;
        }
        match stage {
            Stage::Tight if since.elapsed().as_secs_f64() >= CYCLE.tight_seconds => {
                limit(bytes(CYCLE.relaxed))?;
                (stage, since) = (Stage::Relaxed, Instant::now());
            }
            Stage::Relaxed if is_pressed && since.elapsed().as_secs_f64() >= CYCLE.relaxed_seconds => {
                stage = Stage::Lowering;
            }
            Stage::Lowering => {
                let fits = charge()? <= tight;
                if fits {
                    limit(tight)?;
                }
                let gives_up = !fits && tell(&format!("{GROUP}/memory.reclaim"), BATCH).is_err();
                given_up += u64::from(gives_up);
                if fits || gives_up {
                    (stage, since) = (Stage::Tight, Instant::now());
                }
            }
            Stage::Tight | Stage::Relaxed => {}
        }
        if begin.elapsed().as_secs() > said {
            said = begin.elapsed().as_secs();
            say(&Said::Done(said));
        }
    }
    let run_us = program.hears("ran")?;
    let after = counted()?;
    let mut counters: Counters =
        COUNTERS.iter().map(|name| ((*name).to_owned(), between(&before, &after, name))).collect();
    counters.insert("run_us".to_owned(), run_us);
    counters.insert(GIVEN_UP.to_owned(), given_up);
    Ok(counters)
}

/// The kernel's counters, and the monitor's.
fn counted() -> Result<Counters, String> {
    let mut counters = snapshot(DATA_DISK)?;
    let events = text(&format!("{GROUP}/memory.events"))?;
    counters.insert("oom".to_owned(), numbers(&events).get("oom").copied().unwrap_or(0));
    counters.insert(KDAMOND.to_owned(), thread_us("kdamond."));
    counters.extend(of_module());
    Ok(counters)
}

/// What the module says that it has moved.
fn of_module() -> [(String, u64); 2] {
    [("hot_bytes", "bytes_lru_sorted_hot_regions"), ("cold_bytes", "bytes_lru_sorted_cold_regions")].map(
        |(name, file)| {
            let text = text(&format!("{PARAMETERS}/{file}")).unwrap_or_default();
            (name.to_owned(), text.trim().parse().unwrap_or(0))
        },
    )
}

/// Tells the module what it looks for.
fn set_up(variant: Variant) -> Result<(), String> {
    if !std::path::Path::new(PARAMETERS).exists() {
        return Err(
            "this kernel has no module damon_lru_sort (CONFIG_DAMON_LRU_SORT), so that nothing sorts".to_owned()
        );
    }
    let sorting = pulsed::sorting();
    let (hot, cold) = match variant {
        Variant::Plrus => (sorting.hot_thres_access_freq, sorting.cold_min_age),
        _ => (NEVER_HOT, NEVER_COLD),
    };
    let parameters = [
        ("hot_thres_access_freq", hot),
        ("cold_min_age", cold),
        ("quota_ms", sorting.quota_ms),
        ("quota_reset_interval_ms", sorting.quota_reset_interval_ms),
        ("wmarks_interval", sorting.wmarks.wmarks_interval),
        ("wmarks_high", sorting.wmarks.wmarks_high),
        ("wmarks_mid", sorting.wmarks.wmarks_mid),
        ("wmarks_low", sorting.wmarks.wmarks_low),
    ];
    parameters.iter().try_for_each(|(name, value)| tell(&format!("{PARAMETERS}/{name}"), &value.to_string()))
}

fn sort(is_on: bool) -> Result<(), String> {
    tell(&format!("{PARAMETERS}/enabled"), if is_on { "Y" } else { "N" })
}

/// The program itself: it fills its memory and touches it by its laws, when it is told to.
pub(super) fn program() -> Result<(), String> {
    let pulse: Pulse = job_text()?.parse()?;
    let pulsed = pulse.pulsed().map_err(|error| error.to_string())?;
    let mut accesses = pulsed.accesses();
    let flushed = Mapping::anonymous(null_mut::<c_void>(), FLUSHED_PAGES * PAGE as usize)?;
    for page in 0..FLUSHED_PAGES {
        // SAFETY: within the mapping just made.
        unsafe { flushed.word(page).write_volatile(1) };
    }
    rustix::mm::mlockall(MlockAllFlags::CURRENT).map_err(|error| format!("mlockall: {error}"))?;
    // Where all of the memory is in use, reclaim finds nothing at times: the program faults again and is not killed.
    tell("/proc/self/oom_score_adj", "-1000")?;
    tell(&format!("{GROUP}/cgroup.procs"), "0")?;
    let data = Mapping::anonymous(null_mut::<c_void>(), (pulse.pages * PAGE) as usize)?;
    println!("ready");
    let mut order = String::new();
    std::io::stdin().read_line(&mut order).map_err(|error| format!("no order: {error}"))?;
    let began = Instant::now();
    let (mut now, length, filled_at) = (0, pulsed.length(), accesses.filled_at());
    let mut random = pulse.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while now < length {
        let end = if now < filled_at { filled_at } else { length };
        let until = (now + STEP.as_nanos() as u64).min(end);
        let is_filling = now < filled_at;
        accesses.touches(now, until, &mut |page| {
            let word = data.word(page as usize);
            if is_filling {
                // Half of a page is noise, so that it compresses to half.
                for at in 0..PAGE as usize / size_of::<u64>() / 2 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    // SAFETY: `word` found the whole page within the mapping, which can be written and is this process's
                    // own.
                    unsafe { word.add(at).write_volatile(random) };
                }
            }
            // SAFETY: as above.
            unsafe { word.write_volatile(word.read_volatile().wrapping_add(1)) };
        });
        flushed.flush()?;
        std::thread::sleep(Duration::from_nanos(until - now));
        now = until;
    }
    println!("ran {}", began.elapsed().as_micros());
    Ok(())
}
