//! `refault-bench machine`: processor time of the simulated machine for one access, and what idle memory adds to it.
//!
//! The first table is the speed goal: four tasks on four CPUs, `nvme` for files and swap, memory for half of the pages
//! they access, by policy and kind of access; all of a run is timed, the making of tables included. The second table
//! holds the work and grows the memory: four tasks in a group of fixed size beside a task that has filled the rest and
//! sleeps. The cost of an access is the difference between a run of twice the accesses and one of once, divided by the
//! accesses. So filling is not in it. Times are processor time of this thread's process, not of the wall.

use std::io::Write;

use clap::Args;
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;
use refault_sim::named;
use serde_json::json;

use super::median;
use refault_console::Failure;
use refault_console::Progress;
use refault_console::text::{align_numbers, grouped, plain_table};
use refault_console::{Format, with_output};
use refault_core::policy::registry::FrontEnd;
use refault_lab::policies::parse_policies_for;

#[derive(Args, Debug)]
#[command(after_help = "\
Needs about 2 GiB of memory for the largest machine.

Examples:
  refault-bench machine
  refault-bench machine --accesses 10000000 --runs 1 --format csv")]
/// Print the simulated machine's time per access, and show that idle memory costs nothing
pub struct MachineArgs {
    /// Accesses of all tasks together
    #[arg(long, value_name = "N", default_value_t = 50_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    accesses: u64,
    /// Runs of each row; the table shows the median
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=99))]
    runs: u32,
    /// Output format
    #[arg(long, value_enum, ignore_case = true, default_value = "table")]
    format: Format,
}

/// Pages that the tasks of the first table access.
const PAGES: u64 = 1 << 20;
/// Most seconds for 50 M accesses.
const GOAL_NS: f64 = 100.0;
/// Sizes of the second table, as powers of two.
const SIZES: [u32; 4] = [18, 20, 22, 24];
/// Pages that the tasks of the second table access, and those their group may have.
const ACTIVE: u64 = 1 << 16;

const POLICIES: [&str; 3] = ["clock", "classic", "mglru"];
const KINDS: [&str; 3] = ["anon", "fd", "mapped"];

struct Row {
    policy: String,
    work: String,
    pages: u64,
    /// Processor seconds of a run.
    seconds: f64,
    nanoseconds: f64,
    misses: u64,
}

/// Runs the command.
pub fn run(args: &MachineArgs) -> Result<(), Failure> {
    let progress = Progress::part("simulating");
    let total = (POLICIES.len() * KINDS.len() + SIZES.len()) as f64;
    let (mut speed, mut idle) = (Vec::new(), Vec::new());
    for kind in KINDS {
        for policy in POLICIES {
            let text = goal(kind, args.accesses);
            let runs = (0..args.runs).map(|_| timed(policy, &text)).collect::<Result<Vec<_>, _>>()?;
            let seconds = median(runs.iter().map(|run| run.0).collect());
            speed.push(Row {
                policy: policy.into(),
                work: kind.into(),
                pages: PAGES,
                seconds,
                nanoseconds: seconds * 1e9 / args.accesses as f64,
                misses: loads(&runs[0].1),
            });
            progress.set(speed.len() as f64 / total);
        }
    }
    for bits in SIZES {
        idle.push(beside_idle_memory(1 << bits, args)?);
        progress.set((speed.len() + idle.len()) as f64 / total);
    }
    drop(progress);
    with_output(None, |out| match args.format {
        Format::Table => write_tables(out, &speed, &idle, args),
        Format::Csv => write_csv(out, &speed, &idle),
        Format::Json => write_json(out, &speed, &idle, args),
    })
}

/// Four tasks over 2^20 pages, half of which fit.
fn goal(kind: &str, accesses: u64) -> String {
    let each = if kind == "anon" { PAGES / 4 } else { PAGES };
    format!(
        r#"
[machine]
cpus = 4
memory = "{}p"
swap = "{PAGES}p"
swap_device = "nvme"
file_device = "nvme"
[[file]]
name = "data"
size = "{PAGES}p"
[[task]]
name = "worker"
count = 4
[[task.workload]]
spec = "zipf:theta=1.0,pages={each},accesses={},kind={kind}"
file = "data"
random = true
"#,
        PAGES / 2,
        accesses / 4,
    )
}

/// Four tasks in a group that holds half of their pages, on a machine of `pages` that a sleeping task has filled.
fn idle(pages: u64, accesses: u64) -> String {
    let filled = pages - ACTIVE;
    format!(
        r#"
[machine]
cpus = 4
memory = "{}p"
swap = "{ACTIVE}p"
swap_device = "nvme"
duration = "10000s"
[[group]]
name = "/active"
max = "{}p"
[[task]]
name = "idle"
[[task.workload]]
spec = "cyclic:pages={filled},accesses={filled},writes=1"
[[task]]
name = "worker"
count = 4
group = "/active"
start = "1000s"
[[task.workload]]
spec = "zipf:theta=1.0,pages={},accesses={}"
"#,
        pages + pages / 16,
        ACTIVE / 2,
        ACTIVE / 4,
        accesses / 4,
    )
}

fn beside_idle_memory(pages: u64, args: &MachineArgs) -> Result<Row, Failure> {
    let accesses = args.accesses / 4;
    let (mut seconds, mut costs, mut misses) = (Vec::new(), Vec::new(), 0);
    for _ in 0..args.runs {
        let (once, _) = timed("mglru", &idle(pages, accesses))?;
        let (twice, report) = timed("mglru", &idle(pages, accesses * 2))?;
        seconds.push(once);
        costs.push((twice - once) * 1e9 / accesses as f64);
        misses = loads(&report);
    }
    Ok(Row {
        policy: "mglru".into(),
        work: "anon beside idle memory".into(),
        pages,
        seconds: median(seconds),
        nanoseconds: median(costs),
        misses,
    })
}

fn loads(report: &Report) -> u64 {
    report.counters.pswpin + report.counters.file_reads
}

/// Runs a scenario from its text to its report; processor seconds, and the report.
fn timed(policy: &str, text: &str) -> Result<(f64, Report), Failure> {
    let spec = parse_policies_for(&[policy.to_string()], FrontEnd::Machine)?.remove(0);
    let scenario = Scenario::parse(text, "bench").expect("invariant: the scenarios of this command are valid");
    let start = processor_seconds()?;
    let failed = |error: String| Failure::failed("cannot run the machine", error, "this is a defect: report it");
    let mut machine = named::machine(&spec, scenario.config).map_err(failed)?;
    let report = machine.run().map_err(|error| failed(error.to_string()))?;
    Ok((processor_seconds()? - start, report))
}

/// Processor time of this thread, so that other load on the machine counts less.
fn processor_seconds() -> Result<f64, Failure> {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::failed("cannot read processor time", path, error.to_string()))?;
    let nanoseconds = text.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    nanoseconds
        .map(|nanoseconds| nanoseconds / 1e9)
        .ok_or_else(|| Failure::failed("cannot read processor time", path, "the kernel lacks scheduler statistics"))
}

fn write_tables(out: &mut dyn Write, speed: &[Row], idle: &[Row], args: &MachineArgs) -> std::io::Result<()> {
    writeln!(
        out,
        "4 tasks, {} accesses zipf(1.0) to {} pages, memory for half, nvme; median of {} runs",
        grouped(args.accesses),
        grouped(PAGES),
        args.runs
    )?;
    let mut table = plain_table();
    table.set_header(["policy", "kind", "seconds", "ns/access", "at most", "", "loads"]);
    for row in speed {
        table.add_row([
            row.policy.clone(),
            row.work.clone(),
            format!("{:.2}", row.seconds),
            format!("{:.0}", row.nanoseconds),
            format!("{GOAL_NS:.0}"),
            if row.nanoseconds <= GOAL_NS { "yes" } else { "no" }.into(),
            grouped(row.misses),
        ]);
    }
    align_numbers(&mut table);
    writeln!(out, "{}\n", table.trim_fmt())?;
    writeln!(
        out,
        "mglru, 4 tasks, {} accesses zipf(1.0) to {} anonymous pages in a group of half, beside idle memory",
        grouped(args.accesses / 4),
        grouped(ACTIVE)
    )?;
    let mut table = plain_table();
    table.set_header(["pages of memory in use", "seconds with filling", "ns/access", "loads"]);
    for row in idle {
        table.add_row([
            format!("2^{}", row.pages.ilog2()),
            format!("{:.2}", row.seconds),
            format!("{:.1}", row.nanoseconds),
            grouped(row.misses),
        ]);
    }
    align_numbers(&mut table);
    writeln!(out, "{}\n", table.trim_fmt())?;
    writeln!(
        out,
        "seconds: processor time of a run, its tables and generators included. ns/access: that time over the accesses; \
         beside idle memory, the time that as many accesses more add. loads: pages read from files or swap."
    )
}

fn write_csv(out: &mut dyn Write, speed: &[Row], idle: &[Row]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["policy", "work", "pages", "seconds", "nanoseconds_per_access", "loads"])?;
    for row in speed.iter().chain(idle) {
        csv.write_record([
            row.policy.clone(),
            row.work.clone(),
            row.pages.to_string(),
            row.seconds.to_string(),
            row.nanoseconds.to_string(),
            row.misses.to_string(),
        ])?;
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, speed: &[Row], idle: &[Row], args: &MachineArgs) -> std::io::Result<()> {
    let rows = |rows: &[Row]| -> Vec<serde_json::Value> {
        let row = |row: &Row| {
            json!({"policy": row.policy, "work": row.work, "pages": row.pages, "seconds": row.seconds,
                "nanoseconds_per_access": row.nanoseconds, "loads": row.misses})
        };
        rows.iter().map(row).collect()
    };
    let object =
        json!({"accesses": args.accesses, "runs": args.runs, "speed": rows(speed), "beside_idle_memory": rows(idle)});
    serde_json::to_writer(&mut *out, &object)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_scenarios_are_valid_and_run() {
        for kind in KINDS {
            let (_, report) = timed("mglru", &goal(kind, 4000)).unwrap();
            assert_eq!(report.accesses, 4000, "{kind}");
        }
        let (_, report) = timed("mglru", &idle(1 << 18, 400_000)).unwrap();
        assert_eq!(report.accesses, 400_000 + (1 << 18) - ACTIVE);
        assert!(report.counters.pswpin > 1000 && report.counters.pgsteal < 400_000, "only the group is reclaimed from");
    }
}
