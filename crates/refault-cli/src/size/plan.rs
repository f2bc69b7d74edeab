//! What is run, in which order, and when that is enough.
//!
//! *Quick*: the program alone; with ample memory, while a sample of its pages is looked at; and in less memory, with what
//! is left of three times its own time.
//! *Thorough*: alone, with ample memory, recorded, under several budgets, and all that
//! decides again and again, until the answer stands or the runs are used up. Each step is a line on standard error.

use std::time::{Duration, Instant};

use refault_console::text::{grouped, number};
use refault_console::{Failure, say};
use refault_lab::size::{PAGE_BYTES, Size, bytes_text};
use refault_paging::MIN_PROGRAM_BYTES;

use super::Study;
use super::ladder::{self, Ladder, Row, Rung, refinement};
use super::prediction::{Pages, Prediction, RECORDINGS};
use super::trial::{How, Outcome, Runner};
use super::write::part_text;
use crate::{doctor, launch};

/// Seconds that a program takes longer than, and how many times it is run then.
const RUNS: [(f64, u32); 3] = [(30.0, 2), (5.0, 3), (0.0, 5)];
/// A program that takes less seconds is run once before anything is measured, so that its files are in memory.
const WARM_UP_SECONDS: f64 = 30.0;
/// Budgets added between too little and enough.
const REFINEMENTS: u32 = 4;
/// How close too little and enough are in the end.
const CLOSENESS: f64 = 1.1;
/// Runs of one program differ by this number of seconds by themselves, the start of refault among them: less cannot be
/// measured.
const MIN_DIFFERENCE: f64 = 0.005;
/// A quick answer takes this multiple of the program's own time, or this long at least.
const QUICK_TIMES: u32 = 3;
const MIN_QUICK: Duration = Duration::from_secs(3);
/// Where there is little time, a run is ended after this multiple of the program's time alone, if `--give-up` is not less.
const QUICK_GIVE_UP: f64 = 1.5;
/// Less than this part of the program's time, or of its peak, says nothing of all of it.
const MIN_PART: f64 = 0.5;
/// Budgets that are tried.
const QUICK_BUDGETS: usize = 2;
/// A budget of more of the peak is not tried: it would tell little.
const MAX_TRIED: f64 = 0.85;
/// Added to what is predicted: a sample's error.
const MARGIN: f64 = 1.05;
/// Looks that a program should get, and milliseconds between them.
const LOOKS: f64 = 50.0;
const LOOK_MS: (u64, u64) = (20, 200);
/// How long the refault of a run may take before the program begins, in no budget's favour.
const GRACE: Duration = Duration::from_secs(1);

/// What is to be run.
pub struct Plan {
    /// How much longer the program may take, as a part of its time.
    pub slowdown: f64,
    /// Budgets; none: those that the recording suggests.
    pub budgets: Vec<Size>,
    /// Runs under each; `None`: as the program's time allows, and no more than the answer needs.
    pub runs: Option<u32>,
    /// A run is ended after this multiple of the program's time alone.
    pub give_up: u32,
    /// Whether the program is recorded, so that there is a prediction.
    pub records: bool,
    /// Whether runs are repeated.
    pub thorough: bool,
}

/// The runs so far, and what is said of each.
struct Steps<'a> {
    runner: &'a Runner,
    begun: Instant,
    limit: Duration,
}

impl Steps<'_> {
    fn alone(&self) -> Result<Outcome, Failure> {
        let outcome = self.runner.run(How::Alone, None)?;
        say(format_args!("alone: {}", seconds_text(outcome.seconds)));
        Ok(outcome)
    }

    /// What is left of the time for a quick answer.
    fn left(&self, whole: Duration) -> Duration {
        (whole * QUICK_TIMES).max(MIN_QUICK).saturating_sub(self.begun.elapsed())
    }

    /// A run with all memory that looks at the program's pages.
    fn looked(&self, ladder: &mut Ladder, interval_ms: u64, left: Duration) -> Result<Vec<[u64; 2]>, Failure> {
        let bytes = launch::machine_bytes();
        let (outcome, curve) = self.runner.run_with_curve(How::Looked(bytes, interval_ms), Some(left))?;
        if outcome.given_up {
            let remedy = "it did not end with ample memory within twice its time alone: --thorough waits for it";
            return Err(Failure::failed("no quick answer", self.runner.command_line(), remedy));
        }
        let rung = Rung::Ample(bytes);
        ladder.looks_ms = Some(interval_ms);
        ladder.row(rung).outcomes.push(outcome);
        say(self.line(ladder, rung, &outcome));
        Ok(curve)
    }

    /// A run under a budget with the time that is left. None if it tells nothing: it was ended before it had nearly all
    /// that it has with ample memory.
    fn try_out(&self, ladder: &mut Ladder, bytes: u64, left: Duration) -> Result<Option<Row>, Failure> {
        let (rung, limit) = (Rung::Budget(bytes), left.min(self.limit + GRACE));
        let mut outcome = self.runner.run(rung.how(), Some(limit))?;
        let allowed = ladder.baseline().seconds().mean * (1.0 + ladder.slowdown);
        if outcome.given_up && outcome.seconds <= allowed {
            (outcome.given_up, outcome.unfinished) = (false, true);
            let most = outcome.summary.map_or(0, |own| own.peak_with_stored_bytes);
            if (most as f64) < ladder.peak_bytes().unwrap_or(0) as f64 * MIN_PART {
                let time = seconds_text(outcome.seconds);
                say(format_args!("under {}: ended with the time after {time}, too early to tell", bytes_text(bytes)));
                return Ok(None);
            }
        }
        ladder.row(rung).outcomes.push(outcome);
        say(self.line(ladder, rung, &outcome));
        Ok(Some(ladder.row(rung).clone()))
    }

    /// A run with all memory, which becomes part of the ladder.
    fn ample(&self, ladder: &mut Ladder) -> Result<Outcome, Failure> {
        let rung = Rung::Ample(launch::machine_bytes());
        let outcome = self.runner.run(rung.how(), Some(self.limit * 10 + GRACE))?;
        if outcome.given_up {
            let what = "it did not end with all the memory of the machine";
            let remedy =
                "under refault it takes more than --give-up times ten of its time alone, so no budget can be judged";
            return Err(Failure::failed(what, self.runner.command_line(), remedy));
        }
        ladder.row(rung).outcomes.push(outcome);
        say(self.line(ladder, rung, &outcome));
        Ok(outcome)
    }

    /// A run of a rung, which becomes part of the ladder.
    fn run(&self, ladder: &mut Ladder, rung: Rung) -> Result<(), Failure> {
        let outcome = self.runner.run(rung.how(), Some(self.limit + GRACE))?;
        ladder.row(rung).outcomes.push(outcome);
        say(self.line(ladder, rung, &outcome));
        Ok(())
    }

    fn line(&self, ladder: &Ladder, rung: Rung, outcome: &Outcome) -> String {
        let what = match rung {
            Rung::Alone => "alone".to_owned(),
            Rung::Ample(_) if ladder.looks_ms.is_some() => "with ample memory, and looks at its pages".to_owned(),
            Rung::Ample(_) => "with ample memory".to_owned(),
            Rung::Budget(bytes) => format!("under {}", bytes_text(bytes)),
        };
        if outcome.given_up {
            return format!("{what}: ended after {}", seconds_text(outcome.seconds));
        }
        let base = if matches!(rung, Rung::Ample(_)) { &ladder.alone } else { ladder.baseline() };
        let is_by_waiting = ladder.row_of(rung).is_some_and(|row| ladder.is_by_waiting(row));
        let longer = match is_by_waiting {
            true => ladder.longer(ladder.row_of(rung).expect("invariant: it was run")).part,
            false => outcome.seconds / base.seconds().mean - 1.0,
        };
        let longer = if rung == Rung::Alone { String::new() } else { format!(", {}", part_text(longer)) };
        let back = outcome.summary.map(|summary| format!(", {} refaults", grouped(summary.refaults)));
        let ended = if outcome.unfinished { ", ended with the time" } else { "" };
        format!("{what}: {}{longer}{}{ended}", seconds_text(outcome.seconds), back.unwrap_or_default())
    }

    /// Records the program, if that is wanted.
    fn record(&self, alone: f64, most: u32) -> Result<Prediction, String> {
        let mut said = Instant::now();
        let step = || {
            say(format_args!("recorded: {}", seconds_text(said.elapsed().as_secs_f64())));
            said = Instant::now();
        };
        let prediction = Prediction::record(self.runner, alone, most, step);
        let prediction = prediction.map_err(|failure| failure.line().to_owned());
        if let Err(failure) = &prediction {
            say(format_args!("there is no prediction: {failure}"));
        }
        prediction
    }
}

fn seconds_text(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1000.0) } else { format!("{seconds:.1} s") }
}

impl Plan {
    /// Runs everything.
    ///
    /// # Errors
    /// The program cannot be run or managed, fails, is too short to be measured, or the command was interrupted.
    pub fn carry_out(&self, runner: &Runner, policy: &str) -> Result<Study, Failure> {
        let mut steps = Steps { runner, begun: Instant::now(), limit: Duration::MAX };
        say(self.announcement());
        let mut alone = steps.alone()?;
        // A server's start and end are part of it.
        let whole = steps.begun.elapsed();
        self.check_length(runner, alone.seconds)?;
        if self.thorough && alone.seconds < WARM_UP_SECONDS {
            // The first brought the program's files into memory.
            alone = steps.alone()?;
        }
        let give_up = f64::from(self.give_up);
        let give_up = if self.thorough { give_up } else { give_up.min(QUICK_GIVE_UP) };
        steps.limit = Duration::from_secs_f64(alone.seconds * give_up);
        let mut ladder = Ladder {
            slowdown: self.slowdown,
            alone: Row { rung: Rung::Alone, outcomes: vec![alone] },
            ample: None,
            looks_ms: None,
            budgets: Vec::new(),
            seconds_per_page: None,
        };
        let prediction = if self.thorough {
            self.thorough(&steps, &mut ladder, alone.seconds)?
        } else {
            self.quick(&steps, &mut ladder, whole)?
        };
        say(format_args!("took {}", seconds_text(steps.begun.elapsed().as_secs_f64())));
        Ok(Study {
            program: runner.command_line(),
            load: runner.server.as_ref().map(|server| server.load.clone()),
            policy: policy.to_owned(),
            ladder,
            prediction,
            give_up,
            thorough: self.thorough,
            is_measurable: self.is_measurable(alone.seconds),
        })
    }

    /// The most recordings: who wants fewer runs has fewer.
    fn recordings(&self) -> u32 {
        self.runs.map_or(RECORDINGS, |runs| runs.min(RECORDINGS))
    }

    /// How long it will take, and why.
    fn announcement(&self) -> String {
        if !self.thorough {
            return format!(
                "runs the program alone, with ample memory and in less: {QUICK_TIMES} times as long as it takes alone, or \
                 {} s; what has not ended then is judged by what it waited; --thorough repeats that under more budgets, to \
                 say how far times are off",
                MIN_QUICK.as_secs()
            );
        }
        let most = self.runs.unwrap_or(RUNS[2].1);
        let budgets = if self.budgets.is_empty() { 4 + REFINEMENTS as usize } else { self.budgets.len() };
        let (recorded, times) =
            (if self.records { self.recordings() as usize } else { 0 }, most as usize * (budgets + 2));
        let less = if self.runs.is_none() { "; fewer if the answer stands earlier" } else { "" };
        format!(
            "runs the program alone, with ample memory{} and under {budgets} budgets, {most} times each at most: up to \
             {} runs, of which those with little memory take up to {} times as long as alone{less}",
            if recorded > 0 { ", recorded" } else { "" },
            recorded + times,
            self.give_up,
        )
    }

    /// Whether what may be lost, of `alone` seconds, can be measured at all.
    fn is_measurable(&self, alone: f64) -> bool {
        alone * self.slowdown >= MIN_DIFFERENCE
    }

    fn check_length(&self, runner: &Runner, alone: f64) -> Result<(), Failure> {
        if self.is_measurable(alone) || !self.budgets.is_empty() {
            return Ok(());
        }
        let remedy = format!(
            "it takes {:.1} ms alone, and {} % of that is less than the {} ms by which runs differ by themselves: give it \
             more work, or a larger --slowdown",
            alone * 1000.0,
            number(self.slowdown * 100.0),
            number(MIN_DIFFERENCE * 1000.0)
        );
        Err(Failure::failed("too short to be measured", runner.command_line(), remedy))
    }

    /// What is predicted to be enough, or less where that is hardly less than the peak; then what that run suggests.
    fn quick(
        &self,
        steps: &Steps<'_>,
        ladder: &mut Ladder,
        whole: Duration,
    ) -> Result<Result<Prediction, String>, Failure> {
        let alone = ladder.alone.seconds().mean;
        let interval_ms = ((alone * 1000.0 / LOOKS) as u64).clamp(LOOK_MS.0, LOOK_MS.1);
        let curve = steps.looked(ladder, interval_ms, steps.left(whole))?;
        let seconds_per_page = doctor::seconds_per_page();
        ladder.seconds_per_page = seconds_per_page;
        let prediction = match curve.is_empty() {
            true => Err("it ended before its pages were looked at".to_owned()),
            false => Ok(Prediction { interval_ms, pages: Pages::Seen(curve), seconds_per_page }),
        };
        let Some(peak) = ladder.peak_bytes() else { return Ok(prediction) };
        let highest = (peak as f64 * MAX_TRIED) as u64;
        let need = prediction.as_ref().ok().and_then(|prediction| prediction.need(ladder));
        let first = need.map_or(peak / 2, |need| ((need as f64 * MARGIN) as u64).min(highest));
        let mut next = ladder::round_up(first).max(MIN_PROGRAM_BYTES);
        for _ in 0..QUICK_BUDGETS {
            let left = steps.left(whole);
            if left.as_secs_f64() < ladder.unlimited().seconds().mean * MIN_PART || next >= peak {
                break;
            }
            let Some(row) = steps.try_out(ladder, next, left)? else { break };
            let advised = row.outcomes[0].summary.and_then(|own| own.would_stop_refaulting_at_bytes);
            let then = match ladder.is_enough(&row) {
                true => next / 2,
                false => advised.unwrap_or((next + peak) / 2).min(highest),
            };
            let then = ladder::round_up(then).max(MIN_PROGRAM_BYTES);
            let is_close = |a: u64, b: u64| a.max(b) as f64 <= a.min(b) as f64 * CLOSENESS;
            if is_close(then, next) {
                break;
            }
            next = then;
        }
        Ok(prediction)
    }

    fn thorough(
        &self,
        steps: &Steps<'_>,
        ladder: &mut Ladder,
        alone: f64,
    ) -> Result<Result<Prediction, String>, Failure> {
        let rounds =
            self.runs.unwrap_or_else(|| RUNS.iter().find(|(least, _)| alone >= *least).map_or(1, |(_, runs)| *runs));
        steps.ample(ladder)?;
        let prediction = match self.records {
            true => steps.record(alone, self.recordings()),
            false => Err("the program was not recorded".to_owned()),
        };
        ladder.seconds_per_page = prediction.as_ref().ok().and_then(|prediction| prediction.seconds_per_page);
        for bytes in self.first_budgets(ladder, &prediction, alone)? {
            steps.run(ladder, Rung::Budget(bytes))?;
        }
        if self.budgets.is_empty() {
            for _ in 0..REFINEMENTS {
                let Some(bytes) = refinement(ladder, MIN_PROGRAM_BYTES, CLOSENESS) else { break };
                steps.run(ladder, Rung::Budget(bytes))?;
            }
        }
        for round in 1..rounds {
            // Who says how many runs gets them; else what the answer rests on is repeated until it stands.
            let decisive = self.runs.is_none();
            if decisive && ladder.stands() {
                break;
            }
            for rung in ladder.round(round, decisive) {
                steps.run(ladder, rung)?;
            }
        }
        Ok(prediction)
    }

    /// The budgets that are run in any case, the largest first.
    fn first_budgets(
        &self,
        ladder: &Ladder,
        prediction: &Result<Prediction, String>,
        alone: f64,
    ) -> Result<Vec<u64>, Failure> {
        let least = MIN_PROGRAM_BYTES;
        let peak = ladder.peak_bytes();
        let mut budgets = match (self.budgets.is_empty(), prediction) {
            (false, _) => {
                let in_bytes = |size: &Size| match size {
                    Size::Share(_) => {
                        let remedy = "write bytes such as 512M: the program's statistics name no peak";
                        let peak = peak.ok_or_else(|| Failure::usage("a share of nothing", "--budgets", remedy))?;
                        Ok(size.pages(peak / PAGE_BYTES))
                    }
                    size => Ok(size.pages(1)),
                };
                let pages: Result<Vec<u64>, Failure> = self.budgets.iter().map(in_bytes).collect();
                pages?.iter().map(|pages| pages * PAGE_BYTES).collect()
            }
            (true, Ok(prediction)) => prediction.budgets(alone, self.slowdown, least),
            // Without a recording: parts of the peak.
            (true, Err(_)) => peak.map_or(Vec::new(), |peak| {
                [0.9, 0.6, 0.3].map(|part| ladder::round_up((peak as f64 * part) as u64)).into_iter().collect()
            }),
        };
        budgets.retain(|bytes| *bytes >= least);
        budgets.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
        budgets.dedup();
        Ok(budgets)
    }
}
