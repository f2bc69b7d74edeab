//! A program whose behaviour changes. Phases: reads and some writes, nine of ten in a hot quarter that moves every five
//! seconds, the others anywhere. Tabs: 22 parts visited in turn, each touched once from end to end and then half of it
//! five times more at random. It says when it is set up, and at the end how many operations per second it did.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Setup;
use crate::random::Random;
use refault_console::Failure;

/// How long the hot part stays.
const PHASE: Duration = Duration::from_secs(5);
/// Parts that are visited in turn.
const TABS: usize = 22;
/// Accesses for each page of a part.
const VISIT: usize = 6;

/// The program itself.
#[derive(clap::Args, Debug)]
pub struct ProgramArgs {
    mib: usize,
    seconds: f64,
    /// Visit parts in turn, as tabs of a browser
    #[arg(long)]
    tabs: bool,
}

/// Runs as the program.
pub fn execute(args: &ProgramArgs) -> Result<(), Failure> {
    let trouble = |error: std::io::Error| Failure::write("standard output", &error);
    let pages = (args.mib << 8).max(TABS);
    let mut memory = vec![0u8; pages * 4096];
    let mut random = Random::new(1);
    // Pages that compress to about half.
    for page in memory.chunks_exact_mut(4096) {
        page[..2048].chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
        page[2048..].fill(1);
    }
    let mut out = std::io::stdout();
    writeln!(out, "ready").and_then(|()| out.flush()).map_err(trouble)?;
    let start = Instant::now();
    let mut operations = 0u64;
    let mut sum = 0u64;
    let end = Duration::from_secs_f64(args.seconds);
    let (mut tab, mut visit) = (0, 0);
    while start.elapsed() < end {
        let phase = (start.elapsed().as_secs() / PHASE.as_secs()) as usize % 4;
        for _ in 0..512 {
            let number = random.next();
            let page = if args.tabs {
                let part = pages / TABS;
                let place = if visit < part { visit } else { (number >> 8) as usize % (part / 2).max(1) };
                let page = tab * part + place;
                visit += 1;
                if visit >= part * VISIT {
                    (tab, visit) = ((tab + 1) % TABS, 0);
                }
                page
            } else if number.is_multiple_of(10) {
                (number >> 8) as usize % pages
            } else {
                phase * (pages / 4) + (number >> 8) as usize % (pages / 4)
            };
            let at = page * 4096 + (number >> 40) as usize % 4096;
            // What is done with a page: a few hundred nanoseconds, as a look-up would take.
            let from = at & !511;
            sum = memory[from..from + 512]
                .iter()
                .fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
            if number & 0x70 == 0 {
                memory[at] = memory[at].wrapping_add(1);
            }
        }
        operations += 512;
    }
    let rate = operations as f64 / start.elapsed().as_secs_f64();
    writeln!(out, "{rate} {}", sum & 1).map_err(trouble)
}

/// Runs the program under `command`; operations per second.
pub(super) fn run(
    command: &mut Command,
    binary: &Path,
    setup: &Setup<'_>,
    begin: impl FnOnce(),
) -> Result<f64, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::failed("the program failed", "program", why);
    command.arg(binary).args(["program", &setup.mib.to_string(), &setup.seconds.to_string()]);
    if setup.work == super::Work::Tabs {
        command.arg("--tabs");
    }
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| failed(&error))?;
    let mut lines = BufReader::new(child.stdout.take().expect("invariant: piped")).lines();
    let ready = lines.next().and_then(Result::ok);
    if ready.as_deref() != Some("ready") {
        let _ = child.wait();
        return Err(failed(&"it did not start"));
    }
    begin();
    let last = lines.next().and_then(Result::ok);
    let status = child.wait().map_err(|error| failed(&error))?;
    let rate = last.and_then(|line| line.split(' ').next()?.parse().ok());
    rate.filter(|_| status.success()).ok_or_else(|| failed(&status))
}
