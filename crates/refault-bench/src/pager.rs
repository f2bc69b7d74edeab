//! `refault bench pager`: a program under `refault run` beside the same program in a memory cgroup that swaps to zram.
//!
//! Both sides run the same program on the same data with the same resident budget, one after the other, several times,
//! the order reversed every second time; what counts is the median. What the comparison charges: the budget holds the
//! program's memory on both sides; compressed pages lie outside of it on both sides (zram's pool is not charged to a
//! cgroup, ours not to `--resident`) and are shown. The kernel's side gets [`ALLOWANCE`] more, because a cgroup also
//! counts code, stacks and page tables.

pub mod load;

pub mod kernel;
mod side;
mod table;

use std::ffi::OsString;

use clap::{Args, ValueEnum};

use crate::pager::load::Pattern;
use refault_console::Failure;
use refault_console::Progress;
use refault_console::{Format, with_output};

/// Bytes that the cgroup gets on top of the budget.
const ALLOWANCE: u64 = 8 << 20;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo refault bench pager --against zram
  sudo refault bench pager --against zram --rows uniform,zipf --runs 3 --format csv
  sudo refault bench pager --against zram --rows scan --with='--policy=clock'
  refault bench pager --against nothing --quick      our side only, without root

Makes a memory cgroup and a new zram device for each run of the other side and removes them afterwards, also when it is
interrupted or killed. Swap and zram devices that exist are left alone. Wants a quiet machine.")]
/// Print the speed table of `refault run`
pub struct PagerArgs {
    /// What to compare with
    #[arg(long, value_enum, default_value = "zram")]
    against: Against,
    /// Rows to measure
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Row::ALL)]
    rows: Vec<Row>,
    /// Runs of each side of each row; the table shows the median
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Seconds measured per run [default: memcached 12, whose speed differs by a third from one second to another; the
    /// others 4]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Seconds before counting starts, the same for both sides [default: until the row is settled: memcached 30, for so
    /// long it reorders what it was filled with; zipf 10; the others 2]
    #[arg(long, value_name = "S")]
    warm_up: Option<f64>,
    /// An eighth of the memory and half a second per run: a smoke test, not a measurement
    #[arg(long)]
    quick: bool,
    /// Options for `refault run`, such as --with='--policy=clock'; none as a rule
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, default_value = "", hide_default_value = true)]
    with: String,
    /// Output format
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    /// A memory cgroup with zram swap (LZ4)
    Zram,
    /// Nothing: our side only
    Nothing,
}

/// A row of the table.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// memcached, 560 MB of 2000-byte values, two clients over a Unix socket, Gaussian reads
    Memcached,
    /// Uniform random 8-byte reads over 512 MiB, one thread
    Uniform,
    /// Zipf(1.0) reads and 10 % writes over 1 GiB, two threads
    Zipf,
    /// Sequential scans, repeated, over 512 MiB
    Scan,
    /// Uniform random reads over 512 MiB that all fit; compared with the program alone
    Fits,
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().expect("invariant: no row is hidden").get_name())
    }
}

impl Row {
    const ALL: [Row; 5] = [Row::Memcached, Row::Uniform, Row::Zipf, Row::Scan, Row::Fits];

    /// Percent of the program's memory that may be resident.
    fn percent(self) -> u64 {
        match self {
            Row::Memcached => 57,
            Row::Uniform => 50,
            Row::Zipf => 25,
            Row::Scan => 75,
            Row::Fits => 110,
        }
    }

    /// Operations of ours for one of the other side's that are aimed at.
    fn aim(self) -> f64 {
        match self {
            Row::Memcached | Row::Uniform => 1.3,
            Row::Zipf => 1.5,
            Row::Scan => 2.0,
            Row::Fits => 0.97,
        }
    }

    /// Bytes of data.
    fn bytes(self, quick: bool) -> u64 {
        let bytes = match self {
            Row::Memcached => 560_000_000,
            Row::Zipf => 1 << 30,
            _ => 512 << 20,
        };
        if quick { bytes / 8 } else { bytes }
    }

    /// Seconds until both sides are settled.
    fn warm_up(self) -> f64 {
        match self {
            Row::Memcached => 30.0,
            Row::Zipf => 10.0,
            Row::Uniform | Row::Scan | Row::Fits => 2.0,
        }
    }

    /// Seconds that are counted.
    fn seconds(self) -> f64 {
        if self == Row::Memcached { 12.0 } else { 4.0 }
    }

    /// Pattern and threads of the array; `None` for memcached.
    fn pattern(self) -> Option<(Pattern, u32)> {
        match self {
            Row::Memcached => None,
            Row::Uniform | Row::Fits => Some((Pattern::Uniform, 1)),
            Row::Zipf => Some((Pattern::Zipf, 2)),
            Row::Scan => Some((Pattern::Scan, 1)),
        }
    }
}

/// One run of one side, or the median of several.
#[derive(Clone, Debug, Default)]
struct Measured {
    operations_per_second: f64,
    p50_ns: f64,
    p99_ns: f64,
    max_ns: f64,
    /// Of the operations that hold a fault on a stored page, 99 of 100 take no longer than this; not a number without
    /// such faults.
    fault_p99_ns: f64,
    cpu_seconds: f64,
    resident_bytes: f64,
    compressed_bytes: f64,
    metadata_bytes_per_page: f64,
    /// Times the run had to be repeated because the kernel killed the program.
    kills: f64,
}

impl Measured {
    const FIELDS: [&'static str; 10] = [
        "operations_per_second",
        "p50_ns",
        "p99_ns",
        "max_ns",
        "fault_p99_ns",
        "cpu_seconds",
        "resident_bytes",
        "compressed_bytes",
        "metadata_bytes_per_page",
        "kills",
    ];

    fn values(&self) -> [f64; 10] {
        [
            self.operations_per_second,
            self.p50_ns,
            self.p99_ns,
            self.max_ns,
            self.fault_p99_ns,
            self.cpu_seconds,
            self.resident_bytes,
            self.compressed_bytes,
            self.metadata_bytes_per_page,
            self.kills,
        ]
    }

    /// Field by field.
    fn median(runs: &[Measured]) -> Measured {
        let middle = |index: usize| super::median(runs.iter().map(|run| run.values()[index]).collect());
        Measured {
            operations_per_second: middle(0),
            p50_ns: middle(1),
            p99_ns: middle(2),
            max_ns: middle(3),
            fault_p99_ns: middle(4),
            cpu_seconds: middle(5),
            resident_bytes: middle(6),
            compressed_bytes: middle(7),
            metadata_bytes_per_page: middle(8),
            kills: runs.iter().map(|run| run.kills).sum(),
        }
    }
}

/// A row with both sides. `theirs` is empty where nothing is compared.
struct RowResult {
    row: Row,
    ours: Vec<Measured>,
    theirs: Vec<Measured>,
}

/// What the runs share.
struct Plan {
    seconds: Option<f64>,
    warm_up: Option<f64>,
    quick: bool,
    with: Vec<OsString>,
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
    let needs_kernel = args.against == Against::Zram && args.rows.iter().any(|row| *row != Row::Fits);
    if needs_kernel && let Some(why) = kernel::obstacle() {
        return Err(Failure::failed("cannot compare with zram", why, "--against nothing measures our side only"));
    }
    let plan = Plan {
        seconds: if args.quick { Some(0.5) } else { args.seconds },
        warm_up: if args.quick { Some(0.2) } else { args.warm_up },
        quick: args.quick,
        with: args.with.split_whitespace().map(OsString::from).collect(),
    };
    let runs = if args.quick { 1 } else { args.runs };
    let progress = Progress::new("measuring");
    progress.add(u64::from(runs) * args.rows.len() as u64);
    let mut results = Vec::new();
    for row in &args.rows {
        let mut result = RowResult { row: *row, ours: Vec::new(), theirs: Vec::new() };
        let bytes = side::program_bytes(*row, &plan)?;
        for number in 0..runs {
            for turn in 0..2 {
                if (turn + number) % 2 == 0 {
                    result.ours.push(side::ours(*row, bytes, &plan)?);
                } else if args.against == Against::Zram {
                    result.theirs.push(side::theirs(*row, bytes, &plan)?);
                }
            }
            progress.advance(1);
        }
        results.push(result);
    }
    drop(progress);
    with_output(None, |out| match args.format {
        Format::Table => table::write_table(out, &results, &plan),
        Format::Csv => table::write_csv(out, &results),
        Format::Json => table::write_json(out, &results, &plan),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_taken_field_by_field() {
        let run = |ops: f64, p99: f64| Measured { operations_per_second: ops, p99_ns: p99, ..Measured::default() };
        let median = Measured::median(&[run(3.0, 10.0), run(1.0, 30.0), run(2.0, 20.0)]);
        assert_eq!((median.operations_per_second, median.p99_ns), (2.0, 20.0));
        assert_eq!(Measured::median(&[run(1.0, 0.0), run(2.0, 0.0)]).operations_per_second, 1.5);
    }
}
