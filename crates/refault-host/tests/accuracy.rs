//! Working sets of programs whose accesses are known, in control groups of this machine: within 5 % or 4 MiB.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use refault_host::host::{Host, Row};
use refault_pool::reclaim::swap::Swap;
use refault_testing::cgroup::Group;
use refault_testing::skip_required;

const MIB: u64 = 1 << 20;

/// The program that does as it is told.
struct Program {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Program {
    fn start(group: &Group, binary: &Path) -> Program {
        let mut command = group.command(binary);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh is there");
        let orders = child.stdin.take().expect("a pipe");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Program { child, orders, answers }
    }

    fn does(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        assert_eq!(answer, "done\n", "{order}");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A group that is gone when its program and the program's children are.
struct Place {
    group: Group,
}

impl Drop for Place {
    fn drop(&mut self) {
        let procs = self.group.directory().join("cgroup.procs");
        let until = Instant::now() + Duration::from_secs(10);
        while std::fs::read_to_string(&procs).is_ok_and(|text| !text.is_empty()) && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

fn built(directory: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/known_accesses.c");
    let binary = directory.join("known_accesses");
    let gcc = Command::new("gcc").args(["-O1", "-Wall", "-o"]).arg(&binary).arg(source).status().expect("gcc starts");
    assert!(gcc.success());
    binary
}

/// Lets the program do this within a window, and says what was measured of its group.
fn measured(host: &mut Host, group: &Group, program: &mut Program, orders: &[&str]) -> Row {
    host.step().expect("a window begins");
    orders.iter().for_each(|order| program.does(order));
    while host.due() > Instant::now() {
        std::thread::yield_now();
    }
    host.step().expect("it ends");
    // The next window begins when looks have taken no more than their share; here at once.
    let report = host.report();
    report.groups.into_iter().find(|row| row.path == group.path()).expect("the group is there")
}

#[test]
fn working_sets_are_within_5_percent_or_4_mib_of_the_truth() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let binary = built(scratch.path());
    let in_memory = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
    let file = |name: &str| scratch.path().join(name).display().to_string();
    let (once, again, mapped) = (file("once"), file("again"), file("mapped"));
    let memory = in_memory.path().display().to_string();
    let orders = |lines: &[&str]| -> Vec<String> {
        lines
            .iter()
            .map(|line| {
                line.replace("ONCE", &once)
                    .replace("AGAIN", &again)
                    .replace("MAPPED", &mapped)
                    .replace("MEMORY", &memory)
            })
            .collect()
    };
    // What it is, what the program does before, and then within windows, with what it accesses in each in MiB.
    type Case<'a> = (&'a str, &'a [&'a str], &'a [(&'a [&'a str], u64)]);
    let cases: [Case<'_>; 7] = [
        (
            "hot set that moves",
            &["anonymous 96"],
            &[(&["touch 0 40"], 40), (&["touch 30 60"], 30), (&["touch 0 20", "touch 60 96"], 56), (&[], 0)],
        ),
        ("huge pages", &["huge 64"], &[(&["step 0 32"], 32), (&["touch 60 64"], 4)]),
        ("shared memory", &["shared 64"], &[(&["both 0 24"], 24)]),
        (
            "shared memory by calls",
            &["write MEMORY/once 80", "write MEMORY/again 24", "read MEMORY/again 2"],
            &[(&["read MEMORY/again 1"], 24)],
        ),
        ("mapped file", &["map MAPPED 48", "touch 0 48"], &[(&["touch 4 24"], 20)]),
        (
            "files read once and again",
            &["write ONCE 80", "write AGAIN 24", "read AGAIN 3", "read ONCE 1"],
            &[(&["read AGAIN 1"], 24)],
        ),
        ("all together", &["write ONCE 80", "read ONCE 1", "anonymous 64"], &[(&["touch 0 16"], 16)]),
    ];
    let mut table = String::new();
    for (name, before, windows) in cases {
        let group = match Group::new("truth") {
            Ok(group) => group,
            Err(error) => return skip_required(format_args!("no memory cgroup can be made: {error}")),
        };
        let place = Place { group };
        let group = &place.group;
        let mut program = Program::start(group, &binary);
        orders(before).iter().for_each(|order| program.does(order));
        for (lines, truth) in windows {
            let mut host = Host::open(&[Duration::from_millis(1)]).expect("groups");
            host.take_page_tables();
            host.within(group.path()).expect("it was made");
            let lines = orders(lines);
            let row = measured(&mut host, group, &mut program, &lines.iter().map(String::as_str).collect::<Vec<_>>());
            let set = row.working_sets[0].expect("a window has ended");
            let mib = |bytes: u64| bytes as f64 / MIB as f64;
            writeln!(
                table,
                "| {name} | {truth} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
                mib(set.bytes),
                mib(set.error_bytes),
                mib(row.figures.usage_bytes),
                mib(row.kubelet_working_set_bytes),
                mib(row.vpa_target_bytes.expect("it was seen"))
            )
            .expect("room");
            let allowed = (truth * MIB / 20).max(4 * MIB);
            assert!(
                set.bytes.abs_diff(truth * MIB) <= allowed,
                "{name}: {:.1} MiB instead of {truth}\n{table}",
                mib(set.bytes)
            );
            let proposal = row.proposal.expect("a window has ended");
            assert!(proposal.high_bytes >= truth * MIB, "{name}: {proposal:?}");
            // A limit below what cannot go kills.
            let swap = Swap::of_host().expect("proc is mounted");
            let stays = row.figures.stat.swap_backed_bytes().saturating_sub(swap.free_bytes());
            assert!(proposal.high_bytes >= stays, "{name}: {proposal:?}, {stays} bytes have no place in swap");
        }
    }
    println!(
        "| program | truth | refault host | its error | usage | usage less inactive file | VPA's target |\n\
         |---|---:|---:|---:|---:|---:|---:|\n{table}"
    );
}

/// The longer window holds the shorter one, also of memory that is gone when the longer one ends.
#[test]
fn a_longer_window_is_no_smaller_where_a_group_shrinks() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let binary = built(scratch.path());
    let group = match Group::new("shrinks") {
        Ok(group) => group,
        Err(error) => return skip_required(format_args!("no memory cgroup can be made: {error}")),
    };
    let place = Place { group };
    let mut program = Program::start(&place.group, &binary);
    program.does("anonymous 48");
    let mut host = Host::open(&[Duration::from_millis(1), Duration::from_millis(2)]).expect("groups");
    host.take_page_tables();
    host.measure_all_at_once();
    host.within(place.group.path()).expect("it was made");
    let row = measured(&mut host, &place.group, &mut program, &["touch 0 32"]);
    let short = row.working_sets[0].expect("its window has ended").bytes;
    assert!(short.abs_diff(32 * MIB) <= 4 * MIB, "{short}");
    drop(program);
    while host.due() > Instant::now() {
        std::thread::yield_now();
    }
    host.step().expect("the longer one ends");
    let row = host.report().groups.remove(0);
    assert_eq!(row.working_sets.iter().map(|set| set.map(|set| set.bytes)).collect::<Vec<_>>(), [Some(short); 2]);
}

/// Jobs that end before a window does, such as compilations, leave nothing to look at.
#[test]
fn memory_that_was_given_back_within_a_window_is_in_the_proposal() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let binary = built(scratch.path());
    let group = match Group::new("ended") {
        Ok(group) => group,
        Err(error) => return skip_required(format_args!("no memory cgroup can be made: {error}")),
    };
    let place = Place { group };
    let mut program = Program::start(&place.group, &binary);
    let mut host = Host::open(&[Duration::from_secs(5)]).expect("groups");
    host.take_page_tables();
    host.measure_all_at_once();
    host.within(place.group.path()).expect("it was made");
    host.step().expect("a window begins");
    program.does("anonymous 48");
    let next = |host: &mut Host| {
        std::thread::sleep(host.due().saturating_duration_since(Instant::now()));
        host.step().expect("groups");
    };
    next(&mut host);
    drop(program);
    while host.rounds() == 0 {
        next(&mut host);
    }
    let row = host.report().groups.remove(0);
    let set = row.working_sets[0].expect("its window has ended");
    assert!(set.bytes < 4 * MIB && set.error_bytes.abs_diff(48 * MIB) <= 4 * MIB, "{set:?}");
    let proposal = row.proposal.expect("a window has ended");
    assert!(proposal.high_bytes >= 48 * MIB && proposal.high_bytes < 60 * MIB, "{proposal:?}");
}
