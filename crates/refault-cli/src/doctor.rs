//! `refault doctor`: what works on this machine, how fast, and the one command that would improve it.
//!
//! Everything is asked of the running kernel, not guessed from its version; speeds are measured in a second. Exit code
//! 0 when `refault run` would work, 1 when not; the same for a program that is named, at which it looks instead.

mod kernel;
mod measure;
mod program;
mod system;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

use clap::Args;
use refault_console::{Failure, Format, ResultArgs, in_words, with_output};
use refault_host::text::printable;
use refault_pager::kernel_gives::{Given, kernel_gives};
use refault_pager::pagemap::ScanMethod;
use refault_pager::probe::Capabilities;
use refault_pager::uffd::{Access, feature};
use serde_json::{Value, json};

pub use measure::seconds_per_page;
use refault_console::text::plain_table;
use refault_kernel::Places;
use system::Machine;

use crate::launch::KernelObstacle;

/// The finding of what `refault run` stands on.
const SYSTEM_CALLS: &str = "system calls";

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault doctor                  a table; exit code 0 if 'refault run' would work here, 1 if not
  refault doctor --format json    the same for scripts
  refault doctor --quick          without the measurements
  refault doctor --clean          removes what killed runs left
  refault doctor ./server         whether and how 'refault run' can keep this program's budget; exit code 0 or 1")]
/// Say what works on this machine, how fast, and what would improve it
pub struct DoctorArgs {
    #[command(flatten)]
    result: ResultArgs,
    /// Measure nothing
    #[arg(long)]
    quick: bool,
    /// Remove cgroups and zram devices that `refault run` left because it was killed together with what keeps them
    #[arg(long, conflicts_with_all = ["quick", "program"])]
    clean: bool,
    /// A program to look at, as it would be given to `refault run`: it is not started
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// How well something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// It works.
    Works,
    /// It works with less, or is not there and not needed.
    Limited,
    /// `refault run` needs it and does not have it.
    Missing,
}

impl Status {
    const fn name(self) -> &'static str {
        match self {
            Status::Works => "works",
            Status::Limited => "limited",
            Status::Missing => "missing",
        }
    }
}

/// One thing looked at.
#[derive(Debug)]
struct Finding {
    name: &'static str,
    status: Status,
    detail: String,
    /// Name, value and unit.
    measured: Vec<(&'static str, f64, &'static str)>,
    improve: Option<String>,
}

impl Finding {
    fn new(name: &'static str, status: Status, detail: impl Into<String>) -> Finding {
        let detail = printable(in_words(&detail.into()).as_bytes());
        Finding { name, status, detail, measured: Vec::new(), improve: None }
    }

    fn append(mut self, more: &str) -> Finding {
        self.detail.push_str(more);
        self
    }

    fn improve(mut self, command: impl Into<String>) -> Finding {
        self.improve = Some(command.into());
        self
    }
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    if args.clean {
        return kernel::clean();
    }
    let mut outputs = args.result.outputs();
    let (format, out) = args.result.claim(&mut outputs)?;
    let (findings, obstacle) = match args.program.is_empty() {
        true => (examine(&Machine::new(Path::new("/")), args.quick), None),
        false => {
            let examined = program::examine(&args.program)?;
            (examined.findings, examined.obstacle)
        }
    };
    let missing: Vec<&Finding> = findings.iter().filter(|finding| finding.status == Status::Missing).collect();
    with_output(out, |out| match format {
        Format::Table => write_table(out, &findings, args.program.is_empty()),
        Format::Csv => write_csv(out, &findings),
        Format::Json => {
            serde_json::to_writer_pretty(&mut *out, &to_json(&findings, missing.is_empty()))?;
            writeln!(out)
        }
    })?;
    if let Some(obstacle) = obstacle {
        return Err(obstacle);
    }
    match missing.first() {
        None => Ok(()),
        Some(first) => {
            let remedy = first.improve.as_deref().unwrap_or("there is no remedy on this kernel");
            Err(Failure::failed(
                "'refault run' does not work here",
                format!("{}: {}", first.name, first.detail),
                remedy,
            ))
        }
    }
}

fn examine(machine: &Machine, quick: bool) -> Vec<Finding> {
    let capabilities = Capabilities::probe();
    let mut findings = vec![machine.kernel(), machine.settings(), gives(&capabilities), system_call()];
    findings.push(agent());
    let usable = capabilities.userfaultfd.is_ok();
    findings.extend(userfaultfd(&capabilities));
    findings.push(scan(&capabilities));
    findings.push(io_uring(&capabilities));
    findings.push(kernel::finding());
    findings.push(machine.memory_limit());
    findings.push(machine.swap());
    findings.push(machine.zram());
    findings.push(machine.pressure());
    findings.push(machine.damon());
    if usable && !quick {
        measure::add(&mut findings);
    }
    findings
}

/// What this kernel has of what came in with one release or another: it explains why a machine does what another does not.
fn gives(capabilities: &Capabilities) -> Finding {
    let moves = capabilities.userfaultfd.as_ref().is_ok_and(|(offered, _)| offered & feature::MOVE != 0);
    let scans = matches!(capabilities.scan, Ok(ScanMethod::Ioctl));
    let mut given = kernel_gives();
    given.push(Given { name: "PAGEMAP_SCAN", since: "6.7", is_here: scans });
    given.push(Given { name: "UFFDIO_MOVE", since: "6.8", is_here: moves });
    let named = |is_here| {
        let chosen = given.iter().filter(|given: &&Given| given.is_here == is_here);
        chosen.map(|given| format!("{} ({})", given.name, given.since)).collect::<Vec<_>>().join(", ")
    };
    let (here, lacking) = (named(true), named(false));
    let detail = if lacking.is_empty() { here } else { format!("{here}; without {lacking}") };
    Finding::new("kernel gives", Status::Works, detail)
}

/// The library that is preloaded into programs.
fn agent() -> Finding {
    let title = "agent";
    let Some(path) = crate::program::agent_library() else {
        let name = crate::program::AGENT;
        let detail = format!("{name} is neither in this binary nor beside it nor in ../lib/refault");
        // A user of this binary may have no sources at hand, but knows where it came from.
        return Finding::new(title, Status::Missing, detail).improve(
            "install refault again with scripts/install.sh or its package, or name the library in REFAULT_AGENT_LIBRARY",
        );
    };
    let place = path.display();
    if crate::embedded::made(&path) {
        return Finding::new(title, Status::Works, format!("in this binary; programs load it from {place}"));
    }
    Finding::new(title, Status::Works, place.to_string())
}

/// What `refault run` stands on. Where it cannot have that, it leaves budgets to the kernel, if it may make a group.
fn system_call() -> Finding {
    match crate::launch::kernel_obstacle() {
        None => Finding::new(SYSTEM_CALLS, Status::Works, "can be taken over, and pages moved, without privilege"),
        Some(obstacle) => {
            let goes_on = !obstacle.is_nested && refault_kernel::examine(&Places::default()).is_ok();
            of_obstacle(&obstacle, goes_on)
        }
    }
}

fn of_obstacle(obstacle: &KernelObstacle, goes_on: bool) -> Finding {
    let detail = format!("{}: {}", obstacle.what, obstacle.tried);
    let finding = if goes_on {
        Finding::new(SYSTEM_CALLS, Status::Limited, format!("{detail}; the kernel backend takes over"))
    } else {
        Finding::new(SYSTEM_CALLS, Status::Missing, detail)
    };
    finding.improve(obstacle.remedy)
}

/// Only regions need it: `refault run` takes what it needs another way.
fn refused(error: &std::io::Error) -> String {
    format!("refused: {error}; regions of the library need it, 'refault run' does not")
}

/// What regions stand on: the library's memory under a budget, which the page tables of a process of its own show.
fn userfaultfd(capabilities: &Capabilities) -> Vec<Finding> {
    let (offered, access) = match &capabilities.userfaultfd {
        Ok(found) => *found,
        Err(error) => {
            let built = error.raw_os_error() != Some(rustix::io::Errno::NOSYS.raw_os_error());
            let root = rustix::process::geteuid().is_root();
            let finding = Finding::new("userfaultfd", Status::Limited, refused(error));
            return vec![match (built, root) {
                (false, _) => finding.improve("boot a kernel built with CONFIG_USERFAULTFD=y"),
                // Root is only refused by a filter of system calls.
                (true, true) => finding.improve("start the container with --security-opt seccomp=unconfined"),
                (true, false) => finding.improve("sudo sysctl vm.unprivileged_userfaultfd=1"),
            }];
        }
    };
    let route = match access {
        Access::SystemCall if rustix::process::geteuid().is_root() => "by the system call, as root",
        Access::SystemCall => "by the system call",
        Access::Device => "by /dev/userfaultfd",
    };
    let names = feature::names;
    let needed = feature::PAGEFAULT_FLAG_WP | feature::MISSING_SHMEM | feature::WP_HUGETLBFS_SHMEM;
    let better = feature::SIGBUS | feature::THREAD_ID | feature::POISON;
    let lacking = names(needed & !offered);
    let features = if !lacking.is_empty() {
        Finding::new("userfaultfd features", Status::Limited, format!("lacks {lacking}"))
            .improve("boot Linux 5.19 or later")
    } else if better & !offered != 0 {
        Finding::new("userfaultfd features", Status::Limited, format!("lacks {}", names(better & !offered)))
            .improve("boot Linux 6.6 or later")
    } else {
        Finding::new("userfaultfd features", Status::Works, names(offered & (needed | better)))
    };
    let unused = offered & !(needed | better);
    let features =
        if unused == 0 { features } else { features.append(&format!("; regions do without {}", names(unused))) };
    vec![
        Finding::new("userfaultfd", Status::Works, format!("permitted {route}, faults of system calls included")),
        features,
    ]
}

fn scan(capabilities: &Capabilities) -> Finding {
    let tracking = match capabilities.offers_read_write_protect() {
        Some(true) => "; the kernel also offers read-write-protect tracking, which this version does not use",
        Some(false) => "; read-write-protect tracking is not offered by this kernel",
        None => "",
    };
    let finding = match &capabilities.scan {
        Ok(ScanMethod::Ioctl) => Finding::new("accessed bits", Status::Works, "drop-and-scan, by PAGEMAP_SCAN"),
        Ok(ScanMethod::Entries) => Finding::new(
            "accessed bits",
            Status::Limited,
            "drop-and-scan, by reading /proc/self/pagemap: 30 times slower",
        )
        .improve("boot Linux 6.7 or later"),
        Err(error) => {
            let detail = format!("refault-only ({error}): what is evicted and comes back is the only information");
            Finding::new("accessed bits", Status::Limited, detail).improve("mount -t proc proc /proc")
        }
    };
    finding.append(tracking)
}

fn io_uring(capabilities: &Capabilities) -> Finding {
    match &capabilities.io_uring {
        Ok(()) => Finding::new("io_uring", Status::Works, "file stores batch their writes"),
        Err(error) => Finding::new("io_uring", Status::Limited, format!("{error}: file stores use pread and pwrite"))
            .improve("sudo sysctl kernel.io_uring_disabled=0"),
    }
}

/// The table, and what it comes to: of this machine, or of the program that was named.
fn write_table(out: &mut dyn Write, findings: &[Finding], is_of_machine: bool) -> std::io::Result<()> {
    let mut table = plain_table();
    for finding in findings {
        let speeds = finding.measured.iter().map(|(name, value, unit)| format!("{name} {} {unit}", figure(*value)));
        let speeds: Vec<String> = speeds.collect();
        let detail = if speeds.is_empty() {
            finding.detail.clone()
        } else {
            format!("{}; {}", finding.detail, speeds.join(", "))
        };
        table.add_row([finding.name, finding.status.name(), &detail]);
    }
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    let mut improvable = findings.iter().filter(|finding| finding.improve.is_some()).peekable();
    if improvable.peek().is_some() {
        writeln!(out, "\nWhat would improve it:")?;
    }
    for finding in improvable {
        writeln!(out, "  {:<21} {}", finding.name, finding.improve.as_deref().unwrap_or_default())?;
    }
    let works = findings.iter().all(|finding| finding.status != Status::Missing);
    let is_limited = |name| findings.iter().any(|finding| finding.name == name && finding.status == Status::Limited);
    let is_the_kernels = is_limited("program") || is_limited(SYSTEM_CALLS);
    let verdict = match (works, is_of_machine) {
        (true, false) if is_the_kernels => {
            "'refault run' leaves this program's budget to the kernel: all its memory counts."
        }
        (true, true) if is_the_kernels => {
            "'refault run' leaves budgets to the kernel here: all memory of a program counts."
        }
        (true, true) => "'refault run' works here.",
        (false, true) => "'refault run' does not work here.",
        (true, false) => "'refault run' manages this program.",
        (false, false) => "'refault run' does not manage this program.",
    };
    let is_measured = findings.iter().any(|finding| !finding.measured.is_empty());
    let times = " Times are medians as the program sees them, on the machine as busy as it is now.";
    writeln!(out, "\n{verdict}{}", if is_measured { times } else { "" })
}

fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn write_csv(out: &mut dyn Write, findings: &[Finding]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record(["name", "status", "detail", "improve"])?;
    for finding in findings {
        csv.write_record([
            finding.name,
            finding.status.name(),
            &finding.detail,
            finding.improve.as_deref().unwrap_or(""),
        ])?;
    }
    csv.flush()
}

fn to_json(findings: &[Finding], works: bool) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let measured =
                finding.measured.iter().map(|(name, value, unit)| json!({"name": name, "value": value, "unit": unit}));
            json!({
                "name": finding.name,
                "status": finding.status.name(),
                "detail": finding.detail,
                "measured": measured.collect::<Vec<_>>(),
                "improve": finding.improve,
            })
        })
        .collect();
    json!({"run_works": works, "findings": findings})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_pager_lacks_is_no_end_where_the_kernel_can_take_over() {
        let obstacle =
            KernelObstacle { what: "it lacks", tried: "that".into(), remedy: "use another", is_nested: false };
        for (goes_on, status, verdict) in [
            (true, Status::Limited, "leaves budgets to the kernel here"),
            (false, Status::Missing, "does not work here"),
        ] {
            let findings = [of_obstacle(&obstacle, goes_on)];
            assert_eq!((findings[0].status, findings[0].improve.as_deref()), (status, Some("use another")));
            let mut table: Vec<u8> = Vec::new();
            write_table(&mut table, &findings, true).expect("room");
            let table = String::from_utf8(table).expect("text");
            assert!(table.contains(verdict), "{table}");
        }
    }
}
