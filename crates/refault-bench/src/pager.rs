//! `refault-bench pager`: a program under `refault run` beside the same program in a memory cgroup that swaps to zram.
//!
//! Both sides do the same work with the same *total* memory. The kernel's side may have a percentage of the program's
//! memory resident, and zram holds the rest as far as it compresses. It gets [`ALLOWANCE`] more, because a cgroup also
//! counts code, files and page tables; what these leave, it has for anonymous memory too. So a first run, not counted,
//! finds out how much anonymous memory and zram come to. That is our budget, which counts what is resident, compressed,
//! and the pager's own. Of programs that run to their end it is the percentage and the most that zram has taken: their
//! files need room in the cgroup, and none in our budget. Then both sides run one after the other, several times, the
//! order reversed every second time; what counts is the median. Ours has no options.
//!
//! A third side is `refault run --backend kernel`, which counts code, files and page tables too. So it is given what the
//! kernel's side has in all: its cgroup's limit, and what zram took in that first run.

pub mod load;

mod backend;
mod deadline;
mod idle;
pub mod kernel;
mod peers;
mod programs;
mod rows;
mod side;
pub mod sources;
mod table;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use self::backend::Backend;
use self::rows::{Kind, Row};
use crate::piecemeal::Piecemeal;
use refault_console::Failure;
use refault_console::Format;
use refault_console::Progress;

/// Bytes that the cgroup gets on top of the budget.
const ALLOWANCE: u64 = 8 << 20;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo refault-bench pager --against zram
  sudo refault-bench pager --against zram --rows uniform,zipf --runs 3 --format csv
  sudo refault-bench pager --rows sort,duckdb --python ~/venv/bin/python3
  sudo refault-bench pager --rows large --runs 1     16 GiB: the longest pause
  refault-bench pager --against nothing --quick      our side only, without root

Makes a memory cgroup and a new zram device for each run of the other side and removes them afterwards, also when it is
interrupted or killed. Swap and zram devices that exist are left alone. Wants a quiet machine. Rows whose program is not
installed are named and left out.")]
/// Print the speed table of `refault run`
pub struct PagerArgs {
    /// What to compare with
    #[arg(long, value_enum, default_value = "zram")]
    against: Against,
    /// Rows to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Row::USUAL)]
    rows: Vec<Row>,
    /// Runs of each side of each row; the table shows the median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Seconds measured per run [default: memcached 12, whose speed differs by a third from one second to another; the
    /// others 4]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Seconds before counting starts, the same for both sides [default: settled 30; zipf, btree and large 10; the
    /// others 2]
    #[arg(long, value_name = "S")]
    warm_up: Option<f64>,
    /// An eighth of the memory and half a second per run: a smoke test, not a measurement
    #[arg(long)]
    quick: bool,
    /// Python interpreter of the rows sort and duckdb
    #[arg(long, value_name = "FILE", default_value = "python3")]
    python: PathBuf,
    /// Options for `refault run`, such as --with='--policy=clock'; none as a rule. The kernel backend's runs do without
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "", hide_default_value = true)]
    with: String,
    /// Output format
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    /// A memory cgroup with zram swap (LZ4), and `refault run --backend kernel`
    Zram,
    /// Nothing: our side only
    Nothing,
}

/// What is measured of a run: a structure of numbers whose fields, by name and in order, are also the columns of
/// results.
macro_rules! measured {
    ($(#[$about:meta])* struct $name:ident { $($(#[$doc:meta])* $field:ident: f64,)* }) => {
        $(#[$about])*
        struct $name {
            $($(#[$doc])* $field: f64,)*
        }

        impl $name {
            const FIELDS: [&'static str; [$(stringify!($field)),*].len()] = [$(stringify!($field)),*];

            fn values(&self) -> [f64; Self::FIELDS.len()] {
                [$(self.$field),*]
            }

            fn from_values([$($field),*]: [f64; Self::FIELDS.len()]) -> $name {
                $name { $($field),* }
            }
        }
    };
}

measured! {
    /// One run of one side, or the median of several. What is not known is not a number.
    #[derive(Clone, Debug)]
    struct Measured {
        operations_per_second: f64,
        p50_ns: f64,
        p99_ns: f64,
        max_ns: f64,
        /// Of the operations that hold a fault on a stored page, 99 of 100 take no longer than this.
        fault_p99_ns: f64,
        cpu_seconds: f64,
        resident_bytes: f64,
        compressed_bytes: f64,
        /// The most that it cost in all: resident, compressed, and on our side the pager's own.
        total_bytes: f64,
        metadata_bytes_per_page: f64,
        /// Times the run had to be repeated because the kernel killed the program.
        kills: f64,
    }
}

impl Measured {
    /// Nothing is known but that nothing was killed.
    fn unknown() -> Measured {
        Measured { kills: 0.0, ..Measured::from_values([f64::NAN; Self::FIELDS.len()]) }
    }

    /// Field by field.
    fn median(runs: &[Measured]) -> Measured {
        let mut middle = [f64::NAN; Self::FIELDS.len()];
        for (index, value) in middle.iter_mut().enumerate() {
            *value = super::median(runs.iter().map(|run| run.values()[index]).collect());
        }
        Measured { kills: runs.iter().map(|run| run.kills).sum(), ..Measured::from_values(middle) }
    }
}

/// What became of a run on the kernel's side.
enum Other {
    Ran(Measured),
    /// The kernel killed the program each time.
    Killed {
        kills: u32,
        /// The most that zram took meanwhile.
        compressed: u64,
    },
}

/// A row with both sides. `theirs` is empty where nothing is compared, or where the kernel killed every run.
pub struct RowResult {
    row: Row,
    ours: Vec<Measured>,
    theirs: Vec<Measured>,
    /// Runs of the kernel's side that ended so, where none ended well.
    killed: u32,
    /// Bytes that our side was given; the resident part of the kernel's.
    budget: u64,
    resident: u64,
    /// Why the row was not measured.
    left_out: Option<String>,
    /// Under the kernel backend.
    kernel: InKernel,
}

/// A row under `refault run --backend kernel`.
#[derive(Default)]
struct InKernel {
    runs: Vec<Measured>,
    /// Bytes that it was given; 0 where it is not measured.
    budget: u64,
    /// Programs that the kernel killed meanwhile, in a run that did not end well.
    kills: u32,
    /// Why there are no further runs.
    failed: Option<String>,
}

impl RowResult {
    /// Whether its ratio is one to zram.
    fn is_to_zram(&self) -> bool {
        !self.is_against_itself()
    }

    fn is_against_itself(&self) -> bool {
        matches!(self.row, Row::Fits | Row::Idle)
    }
}

/// What the runs share.
#[derive(Clone)]
struct Plan {
    seconds: Option<f64>,
    warm_up: Option<f64>,
    quick: bool,
    python: PathBuf,
    with: Vec<OsString>,
    /// Why nothing can be measured under the kernel backend, in words.
    kernel_missing: Option<String>,
}

impl Plan {
    /// Seconds that are counted in a row.
    fn seconds(&self, row: Row) -> f64 {
        self.seconds.unwrap_or(row.seconds())
    }

    /// Seconds before counting starts in a row.
    fn warm_up(&self, row: Row) -> f64 {
        self.warm_up.unwrap_or(row.warm_up())
    }
}

/// Runs the command.
pub fn run(args: &PagerArgs) -> Result<(), Failure> {
    let needs_kernel = args.rows.iter().any(|row| match row.kind() {
        Kind::Program => true,
        Kind::Idle => false,
        _ => args.against == Against::Zram && *row != Row::Fits,
    });
    if needs_kernel && let Some(why) = kernel::obstacle() {
        let remedy = "--against nothing --rows uniform,zipf,scan,btree,fits,idle measures our side only";
        return Err(Failure::failed("cannot compare with zram", why, remedy));
    }
    let plan = Plan {
        seconds: if args.quick { Some(0.5) } else { args.seconds },
        warm_up: if args.quick { Some(0.2) } else { args.warm_up },
        quick: args.quick,
        python: args.python.clone(),
        with: args.with.split_whitespace().map(OsString::from).collect(),
        kernel_missing: match args.against {
            Against::Zram => backend::obstacle()?,
            Against::Nothing => Some("--against nothing measures the pager only".to_owned()),
        },
    };
    let runs = if args.quick { 1 } else { args.runs };
    let progress = Progress::parts("measuring");
    progress.add(u64::from(runs) * args.rows.len() as u64);
    let results = table::Table::new(args.format, &plan, runs);
    let results = Piecemeal::open(results, progress, side::place())?;
    let rows = args.rows.iter();
    let outcome =
        rows.copied().try_for_each(|row| results.add(measure(row, args.against, runs, &plan, results.progress())?));
    results.close(outcome)
}

/// All runs of a row.
fn measure(row: Row, against: Against, runs: u32, plan: &Plan, progress: &Progress) -> Result<RowResult, Failure> {
    let (ours, theirs) = (Vec::new(), Vec::new());
    let kernel = InKernel::default();
    let mut result = RowResult { row, ours, theirs, killed: 0, budget: 0, resident: 0, left_out: None, kernel };
    progress.says(format!("{row}, to begin with"));
    let subject = match side::Subject::new(row, plan) {
        Ok(subject) => subject,
        Err(Ok(reason)) => {
            progress.advance(u64::from(runs));
            return Ok(RowResult { left_out: Some(reason), ..result });
        }
        Err(Err(failure)) => return Err(failure),
    };
    result.resident = subject.resident(row);
    let compares = against == Against::Zram || result.is_against_itself();
    result.budget = result.resident + subject.rest(row) / 2;
    let mut compressed = 0;
    if result.is_against_itself() {
        result.budget = result.resident;
    } else if compares {
        // Not counted: it says what zram takes.
        match subject.theirs(row, plan)? {
            Other::Ran(measured) => {
                compressed = measured.compressed_bytes as u64;
                result.budget = match row.kind() {
                    // Its files are charged too, and come and go.
                    Kind::Program => result.resident + compressed,
                    _ => measured.total_bytes as u64,
                };
            }
            Other::Killed { kills, compressed: most } => {
                (result.killed, compressed) = (kills, most);
                result.budget = result.resident + compressed;
            }
        }
    }
    if plan.kernel_missing.is_none() {
        result.kernel.budget = match result.is_against_itself() {
            true => result.resident + ALLOWANCE,
            false => result.resident + ALLOWANCE + compressed,
        };
    }
    for number in 0..runs {
        progress.says(format!("{row}, run {} of {runs}", number + 1));
        for turn in 0..3 {
            match if number % 2 == 0 { turn } else { 2 - turn } {
                0 => result.ours.push(subject.ours(row, Backend::Pager, result.budget, plan)?),
                1 => result.kernel.run(&subject, row, plan),
                _ if compares && result.killed == 0 => match subject.theirs(row, plan)? {
                    Other::Ran(measured) => result.theirs.push(measured),
                    Other::Killed { kills, .. } => result.killed = kills,
                },
                _ => {}
            }
        }
        progress.advance(1);
    }
    Ok(result)
}

impl InKernel {
    /// One more run, unless one has failed. A failure is the backend's result: the other sides go on.
    fn run(&mut self, subject: &side::Subject, row: Row, plan: &Plan) {
        if self.budget == 0 || self.failed.is_some() {
            return;
        }
        let before = backend::kills();
        match subject.ours(row, Backend::Kernel, self.budget, plan) {
            Ok(measured) => self.runs.push(measured),
            Err(failure) => {
                self.kills += u32::try_from(backend::kills() - before).unwrap_or(u32::MAX);
                self.failed = Some(failure.line().to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_taken_field_by_field() {
        let run = |ops: f64, p99: f64| Measured { operations_per_second: ops, p99_ns: p99, ..Measured::unknown() };
        let median = Measured::median(&[run(3.0, 10.0), run(1.0, 30.0), run(2.0, 20.0)]);
        assert_eq!((median.operations_per_second, median.p99_ns), (2.0, 20.0));
        assert_eq!(Measured::median(&[run(1.0, 0.0), run(2.0, 0.0)]).operations_per_second, 1.5);
    }
}
