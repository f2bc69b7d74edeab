//! One budget over the processes of a tree: shared by need, whatever those do that have more than they need.

#[path = "common/c_program.rs"]
mod c_program;
mod common;

use c_program::Program;
use common::skipped;

const SHARED_BUDGET: &str = include_str!("c/shared_budget.c");
const FLAGS: [&str; 2] = ["--summary", "summary.json"];

/// A figure of the summary that a run has written.
fn figure(program: &Program, name: &str) -> u64 {
    let text = std::fs::read_to_string(program.directory.path().join("summary.json")).expect("it was written");
    let summary: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    summary[name].as_u64().unwrap_or_else(|| panic!("{name}: {text}"))
}

#[test]
fn two_that_need_all_of_it_have_half_each() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(SHARED_BUDGET);
    let faults = |memory: &str, processes: &str| {
        program.comes_through_with(memory, &FLAGS, &[processes]);
        figure(&program, "faults")
    };
    let (alone, together) = (faults("8M", "one"), faults("16M", "two"));
    assert!(together <= 3 * 2 * alone, "{together} faults of two, {alone} of one in half of the memory");
    assert!(figure(&program, "peak_bytes") <= 16 << 20, "never more than the budget");
}

/// The memory of one fits beside what the others have compressed, and not that of all: one after the other has what it needs.
#[test]
fn those_that_lack_memory_come_first_in_turns() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/takes_turns.c"));
    program.comes_through_with("20M", &FLAGS, &[]);
    // Of 600 thousand touches every second one would find its page gone if the three had equal parts all the time.
    let again = figure(&program, "refaults");
    assert!(again < 100_000, "{again} pages were brought back");
    assert!(figure(&program, "peak_bytes") <= 20 << 20, "never more than the budget");
}

/// The one that came first has everything, and sleeps in a call that is made again without being seen.
#[test]
fn who_sleeps_gives_way_and_sleeps_on() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(SHARED_BUDGET);
    let for_a_while =
        ["poll", "nanosleep", "usleep", "select", "cond_timedwait", "futex", "sigtimedwait", "semtimedop"];
    for name in ["waitpid", "read", "write", "epoll_pwait2"].into_iter().chain(for_a_while) {
        program.comes_through_with("24M", &FLAGS, &[name]);
        // Sixty passes over 16 MiB, of which nothing comes to fit if the sleeper keeps its 24: 245 thousand pages would
        // come back. It gives half at once, and half of what is left each tenth of a second.
        let again = figure(&program, "refaults");
        assert!(again < 100_000, "{name}: {again} pages were brought back");
    }
}

/// It waits in the middle of what it writes, which fits into a quarter of the budget: being asked does not cut that short.
#[test]
fn who_is_asked_while_it_writes_writes_on() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/asked_while_writing.c"));
    let value = refault_paging::tree::MAKE_ROOM.to_string();
    for by in ["sends", "pipes"] {
        program.comes_through_with("24M", &FLAGS, &[by, &value]);
    }
}

/// Calls that a signal ends in their middle go on where their thread was asked, whatever their memory is and wherever they are
/// made; those that a signal of the program's ends do not.
#[test]
fn who_is_asked_in_the_middle_of_a_call_goes_on() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/asked_in_calls.c"));
    let value = refault_paging::tree::MAKE_ROOM.to_string();
    let fill = ["getrandom", "read zeros", "sendfile"];
    let wait = ["write", "writev", "unmanaged write", "send", "sendmsg", "recv", "recvmsg"];
    for how in fill.iter().chain(&wait).chain(&["handled write"]) {
        program.comes_through_with("24M", &FLAGS, &[how, &value]);
    }
}

/// A signal of the program's that comes while its thread is asked, or right behind that, finds the call waiting.
#[test]
fn who_is_asked_while_it_waits_for_signals_hears_them() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/asked_and_interrupted.c"));
    program.comes_through_with("24M", &FLAGS, &[&refault_paging::tree::MAKE_ROOM.to_string()]);
}

/// It computes, and neither faults nor calls the kernel: it is asked where it runs.
#[test]
fn who_computes_gives_way() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(SHARED_BUDGET);
    program.comes_through_with("24M", &FLAGS, &["computes"]);
    let touches = std::fs::read_to_string(program.directory.path().join("touches")).expect("the child wrote it");
    let touches: u64 = touches.trim().parse().expect("a number");
    // A turn of the token, 0.6 s here, may pass before it gives. If it never gives, most touches find their page gone.
    let again = figure(&program, "refaults");
    assert!(again < touches / 10, "{again} of {touches} pages were brought back");
}

/// What a container's processes call themselves are numbers of others outside: by those they would be taken for unmanaged, and
/// others for them.
#[test]
fn processes_of_another_namespace_are_known() {
    if skipped(&["unshare", "python3"]) {
        return;
    }
    let alone = ["-Urpf", "--mount-proc", "true"];
    if !std::process::Command::new("unshare").args(alone).status().is_ok_and(|status| status.success()) {
        refault_testing::skip_required("no namespaces of process numbers are to be had");
        return;
    }
    let program =
        "import os, time; x = bytearray(os.urandom(1)) * (24 << 20); time.sleep(0.7); print(len(x), os.getpid())";
    let mut arguments = vec!["run", "--memory", "64M", "--", "unshare"];
    arguments.extend(&alone[..2]);
    arguments.extend(["python3", "-c", program]);
    let run = common::refault(&arguments);
    let said = common::text(&run.stderr);
    assert!(run.status.success() && common::text(&run.stdout) == "25165824 1\n", "{:?} {said}", run.status);
    assert!(!said.contains("not managed"), "{said}");
    // Its memory is in the peak.
    let peak: f64 = said.split("peak ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect("a peak");
    assert!((24.0..=64.0).contains(&peak), "{said}");
}

/// The same of those that are forked into another namespace and execute nothing: they do not take their numbers for those of
/// their parent's namespace.
#[test]
fn forked_children_in_another_namespace_are_known() {
    if skipped(&["gcc", "unshare"]) {
        return;
    }
    if !std::process::Command::new("unshare").args(["-Upf", "true"]).status().is_ok_and(|status| status.success()) {
        refault_testing::skip_required("no namespaces of process numbers are to be had");
        return;
    }
    let program = Program::new(include_str!("c/forks_elsewhere.c"));
    let said = program.comes_through("64M", &[]);
    assert!(!said.contains("not managed"), "{said}");
}

/// Who is asked for room gets a signal that ends a process which does not know it.
#[test]
fn a_stranger_with_the_number_of_a_process_in_a_container_is_not_asked() {
    if skipped(&["unshare", "python3", "bash"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        refault_testing::skip_required("only root can choose the number of a process");
        return;
    }
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/stranger.sh");
    let mut command = std::process::Command::new("timeout");
    command.args(["-k", "5", "60", "bash"]).arg(script).arg(env!("CARGO_BIN_EXE_refault"));
    let run = command.output().expect("timeout starts");
    assert_eq!(common::text(&run.stdout), "True\nlives\n", "{}", common::text(&run.stderr));
}

/// What killed processes of a container had is given back; and no process that lives is taken for dead, wherever it is.
#[test]
fn the_dead_and_the_living_of_a_container_are_told_apart() {
    if skipped(&["unshare", "python3"]) {
        return;
    }
    let contained = ["-Urpf", "--mount-proc"];
    if !std::process::Command::new("unshare").args(contained).arg("true").status().is_ok_and(|status| status.success())
    {
        refault_testing::skip_required("no namespaces of process numbers are to be had");
        return;
    }
    let held = "import os, subprocess, sys, time; held = lambda mib: bytearray(os.urandom(1)) * (mib << 20)\n";
    let run = |memory: &str, unshare: &[&str], program: &str| {
        let program = format!("{held}{program}");
        let mut arguments = vec!["run", "--memory", memory, "--", "unshare"];
        arguments.extend(unshare);
        arguments.extend(["python3", "-c", &program]);
        let run = common::refault(&arguments);
        let said = common::text(&run.stderr).to_owned();
        assert!(run.status.success(), "{:?} {said}", run.status);
        (common::text(&run.stdout).to_owned(), said)
    };
    let figure = |said: &str, before: &str| -> u64 {
        let digits: String =
            said.split(before).next().and_then(|text| text.rsplit(' ').next()).unwrap_or("").replace(',', "");
        digits.parse().unwrap_or_else(|_| panic!("no figure before '{before}': {said}"))
    };
    // Three that are killed, and one that has room once they are known to be dead.
    let killed = "
for _ in range(3):
    subprocess.run([sys.executable, '-c', 'import os; x = bytearray(os.urandom(1)) * (16 << 20); os.kill(os.getpid(), 9)'])
    time.sleep(1.5)
x = held(20)
for turn in range(30):
    for at in range(0, len(x), 4096): x[at] = turn
print('done')";
    let (out, said) = run("48M", &contained, killed);
    assert_eq!(out, "done\n");
    assert!(figure(&said, " pages stored") < 1000, "{said}");
    // A child of one that has no /proc any more, and one that has lost its parent.
    let living = "
os.mkdir('empty') if not os.path.exists('empty') else None
os.chroot('empty')
child = os.fork()
if child == 0:
    x = held(24)
    for turn in range(30):
        x[::4096] = bytes([turn]) * len(x[::4096])
        time.sleep(0.1)
    os._exit(0)
print(os.waitpid(child, 0)[1])";
    let directory = tempfile::tempdir().expect("a directory");
    let living = living.replace("'empty'", &format!("{:?}", directory.path().join("empty")));
    let (out, said) = run("64M", &["-Ur"], &living);
    assert!(out == "0\n" && !said.contains("not managed"), "{out} {said}");
    let orphan = "
if os.fork() == 0:
    x = held(24)
    time.sleep(3.5)
    os._exit(0)
os._exit(0)";
    let waits = format!("{}; sleep 4", "( unshare -Urpf python3 -c \"$ORPHAN\" & )");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_refault"));
    command.args(["run", "--memory", "64M", "--", "sh", "-c", &waits]).env("ORPHAN", format!("{held}{orphan}"));
    let run = command.output().expect("refault starts");
    let said = common::text(&run.stderr);
    assert!(run.status.success() && !said.contains("not managed"), "{said}");
}

/// The parent has nothing to give up but what its children read too. What it gives up is no gain before they do as well, and
/// takes no memory meanwhile.
#[test]
fn what_a_parent_and_its_children_share_goes_without_memory_beside() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/children_read.c"));
    program.comes_through_with("45M", &FLAGS, &[]);
    let peak = figure(&program, "peak_bytes");
    assert!(peak <= 49 << 20, "{peak} bytes of 45 MiB; it was 58 to 66 MiB when the parent held it compressed");
}

/// With nothing but shared pages to give up, a fork waited for seconds, during which all looked through all that they have.
#[test]
fn a_parent_of_many_that_has_no_room_forks_on() {
    if skipped(&["gcc"]) {
        return;
    }
    let program = Program::new(include_str!("c/many_children_write.c"));
    program.comes_through_with("80M", &FLAGS, &[]);
    let peak = figure(&program, "peak_bytes");
    assert!(peak <= 92 << 20, "{peak} bytes of 80 MiB; it was 100 to 106 MiB");
}
