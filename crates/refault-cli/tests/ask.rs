//! `refault ask`: what was asked before is shown without an emulator, and what cannot be asked is said in one line.
//! Where a kernel and an emulator are found, one kernel is booted.

use std::process::Command;

use crate::common::text;
use tempfile::TempDir;

/// A question whose answers ship with the program.
const KNOWN: &str = "uniform:pages=16384,n=98304,type=1,seed=107";

fn ask(cache: &TempDir, path: Option<&str>, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.arg("ask").args(arguments).env("XDG_CACHE_HOME", cache.path());
    if let Some(path) = path {
        command.env("PATH", path);
    }
    command.output().expect("it runs")
}

#[test]
fn a_known_question_needs_no_emulator_and_the_model_is_near() {
    let cache = TempDir::new().expect("a directory");
    let arguments = ["--kernel", "6.12,7.2", "--memory", "4096p", KNOWN, "--format", "json"];
    let output = ask(&cache, Some("/nonexistent"), &arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let answers = json["answers"].as_array().expect("answers");
    assert_eq!(answers.len(), 4, "two kernels, two kinds of lists");
    for answer in answers {
        let loads = |of: &serde_json::Value| of["counters"]["loads"].as_f64().expect("a number");
        let (kernel, model) = (loads(answer), loads(&answer["model"]));
        assert!((kernel - model).abs() < 0.01 * kernel, "{answer}");
    }
    let table = ask(&cache, Some("/nonexistent"), &arguments[..5]);
    let shown = text(&table.stdout);
    assert!(shown.contains("The model's loads lie within") && shown.contains("98,304 accesses"), "{shown}");
}

fn run(cache: &TempDir, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_refault"));
    command.args(arguments).env("XDG_CACHE_HOME", cache.path()).env("PATH", "/nonexistent").current_dir(cache.path());
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    output
}

/// What `compare` and `mrc` say of kernels: as a table, in JSON, and in the report.
fn said_of_kernels(cache: &TempDir, command: &str, source: &[&str]) -> (String, serde_json::Value, String) {
    let policy = ["--policy", "lru,mglru", "--memory", "4096p"];
    let of = |more: &[&str]| run(cache, &[&[command][..], source, &policy, more].concat()).stdout;
    let table = text(&of(&["--report", "report.html", "--force"]));
    let (_, lines) = table.split_once("\nReal kernels:\n").expect("a part about kernels");
    assert!(lines.lines().all(|line| line.chars().count() <= 100), "{table}");
    let line = lines.lines().map(|line| line.trim().trim_end_matches(" \\")).collect::<Vec<_>>().join(" ");
    let json: serde_json::Value = serde_json::from_slice(&of(&["--format", "json"])).expect("JSON");
    let report = std::fs::read_to_string(cache.path().join("report.html")).expect("a report");
    let (_, note) = report.split_once("Real kernels: ").expect("a note about kernels");
    let note = note.split("</p>").next().expect("it ends").replace("<code>", "").replace("</code>", "");
    (line, json["traces"][0]["kernels"].clone(), note)
}

#[test]
fn comparisons_and_curves_say_what_kernels_did_with_the_same_accesses() {
    let cache = TempDir::new().expect("a directory");
    // The same accesses from a file: what counts is what they are.
    run(&cache, &["trace", "generate", KNOWN, "known.u64"]);
    for command in ["compare", "mrc"] {
        for source in [&["--workload", KNOWN][..], &["known.u64"]] {
            let (line, json, note) = said_of_kernels(&cache, command, source);
            assert!(line.starts_with("kernels 6.1, 6.12 and 7.2 did this within 0."), "{line}");
            assert!(line.ends_with("with 16 MiB and 48 MiB of memory"), "{line}");
            assert_eq!(note, format!("{line}."));
            assert_eq!((&json["asked"], json["answers"].as_array().map(Vec::len)), (&true.into(), Some(12)));
            for answer in json["answers"].as_array().expect("answers") {
                let (kernel, model) = (&answer["loads"], &answer["model_loads"]);
                let (kernel, model) = (kernel.as_f64().expect("loads"), model.as_f64().expect("loads"));
                let within = json["within_percent"].as_f64().expect("a figure");
                assert!((kernel - model).abs() / kernel * 100.0 <= within + 1e-9 && within < 1.0, "{answer}");
            }
        }
    }
}

#[test]
fn where_no_kernel_was_asked_the_command_that_asks_is_said() {
    let cache = TempDir::new().expect("a directory");
    // As long, by the same law: other accesses all the same.
    let other = KNOWN.replace("107", "108");
    run(&cache, &["trace", "generate", &other, "it's.u64"]);
    for command in ["compare", "mrc"] {
        for source in [&["--workload", &other][..], &["it's.u64", "--limit", "5000", "--kind", "anon"]] {
            let (line, json, note) = said_of_kernels(&cache, command, source);
            assert!(line.starts_with("no kernel was asked anything like this; refault ask --kernel "), "{line}");
            assert_eq!((note, &json["asked"]), (format!("{line}."), &false.into()));
            let minutes = json["minutes"].as_u64().expect("minutes");
            let said = if minutes == 1 { "a minute".to_owned() } else { format!("{minutes} minutes") };
            assert!((1..=10).contains(&minutes) && line.ends_with(&format!("would take about {said}")), "{line}");
            // The command is one that a shell and `refault ask` take: what fails is what this test has taken from it.
            let shown = json["command"].as_str().expect("a command");
            assert!(line.contains(shown), "{line}");
            let program = shown.replacen("refault", env!("CARGO_BIN_EXE_refault"), 1);
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("PATH=/nonexistent; {program}")]).current_dir(cache.path());
            let output = shell.env("XDG_CACHE_HOME", cache.path()).output().expect("a shell");
            assert!(text(&output.stderr).contains("curl is not installed"), "{}", text(&output.stderr));
        }
    }
}

#[test]
fn published_counters_stand_beside_the_kernels() {
    let cache = TempDir::new().expect("a directory");
    let arguments = ["--kernel", "6.12", "--memory", "4096p", KNOWN];
    let table = text(&ask(&cache, Some("/nonexistent"), &arguments).stdout);
    let row = table.lines().find(|line| line.contains("generations") && line.contains("pgdeactivate"));
    let cells: Vec<&str> = row.expect("a row").split_whitespace().collect();
    assert_eq!(cells[cells.len() - 4..], ["0", "0", "–", "0"], "kernel, model, off by, published: {table}");
    let json = ask(&cache, Some("/nonexistent"), &[&arguments[..], &["--format", "json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["answers"][0]["published"], serde_json::json!({}));
    assert_eq!(json["answers"][1]["published"], serde_json::json!({"pgactivate": 0.0, "pgdeactivate": 0.0}));
    let csv = text(&ask(&cache, Some("/nonexistent"), &[&arguments[..], &["--format", "csv"]].concat()).stdout);
    assert!(csv.lines().next().is_some_and(|header| header.ends_with(",policy,published")), "{csv}");
    // Of a loop nothing was published.
    let looped = ["--kernel", "6.12", "--memory", "8192p", "cyclic:pages=9011,n=49152,type=1,seed=114"];
    assert!(!text(&ask(&cache, Some("/nonexistent"), &looped).stdout).contains("published"));
}

#[test]
fn what_cannot_be_asked_is_said_in_one_line() {
    let cache = TempDir::new().expect("a directory");
    let other = "uniform:pages=4096,accesses=10000,kind=fd,seed=9";
    let broken = cache.path().join("broken.deb").display().to_string();
    std::fs::write(&broken, b"!<arch>\nno package").expect("written");
    for (arguments, part, code) in [
        (vec!["--kernel", "six", other], "not a kernel", 2),
        (vec!["--kernel", "6.12", other], "curl is not installed", 1),
        (vec!["--kernel", "/absent/linux.deb", other], "no such file", 2),
        (vec!["--kernel", &broken, other], "not a whole Debian package", 1),
        (vec!["--kernel", "6.12", "absent.rft"], "absent.rft", 2),
        (vec!["--kernel", "6.12", "--warm-up", "10000", other], "nothing would be counted", 2),
        (vec!["--kernel", "6.12", "fio:random_distribution=neither"], "neither", 2),
        (vec!["--kernel", "6.12", "lru-sort:parsec3/ferret"], "no program of the experiment", 2),
        (vec!["--kernel", "6.12", "lru-sort:parsec3/canneal,memory=64k"], "no size that a program can have", 2),
        (vec!["--kernel", "6.12", "lru-sort:parsec3/canneal,seconds=99999999999999"], "1 to 3600 s", 2),
        (vec!["--kernel", "6.12", "lru-sort:parsec3/canneal,colour=red"], "no such option", 2),
        (vec!["--kernel", "6.12", "--memory", "8M", "lru-sort:parsec3/canneal"], "its limit follows", 2),
    ] {
        let output = ask(&cache, Some("/nonexistent"), &arguments);
        let said = text(&output.stderr);
        let last = said.lines().last().unwrap_or_default();
        assert!(
            last.contains(part) && output.status.code() == Some(code),
            "{arguments:?}: {:?}: {said}",
            output.status
        );
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn what_a_guest_cannot_run_is_said_in_one_line() {
    let cache = TempDir::new().expect("a directory");
    let script = cache.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("written");
    let script = script.display().to_string();
    let limited = ["--kernel", "6.12", "--memory", "24M"];
    for (options, program, part) in [
        (&limited[..], vec!["no-such-program"], "program not found"),
        (&limited[..2], vec!["/bin/sh"], "a program has no pages to take a share of"),
        (&["--kernel", "6.12", "--memory", "4k"], vec!["/bin/sh"], "too little for any program"),
        (&limited, vec![&script], "needs /no/such/interpreter, which is missing"),
        (&["--kernel", "6.12", "--memory", "24M", "--with", "/no/such"], vec!["/bin/sh"], "--with: not found"),
        (&["--kernel", "6.12", "--memory", "24M", "--warm-up", "9"], vec!["/bin/sh"], "cannot be used with"),
    ] {
        let output = ask(&cache, None, &[options, &["--"], &program].concat());
        let said = text(&output.stderr);
        assert!(said.contains(part) && output.status.code() == Some(2), "{program:?}: {:?}: {said}", output.status);
        assert!(output.stdout.is_empty() && said.trim_end().lines().count() == 1, "{said}");
    }
    let output = ask(&cache, Some("/nonexistent"), &[&limited[..], &["--", "/bin/sh", "-c", "true"]].concat());
    let said = text(&output.stderr);
    assert!(said.contains("mkfs.ext4") || said.contains("curl is not installed"), "{said}");
}

/// The kernel that scripts/dev/machines has fetched, if qemu is there as well.
fn kernel() -> Option<String> {
    let packages = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/machines/kernel-6.12/packages");
    let found = std::fs::read_dir(packages).into_iter().flatten().flatten().map(|entry| entry.path());
    let Some(package) = found.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb")) else {
        eprintln!("skipped: {packages} has no kernel; scripts/dev/machines --libc none --kernel 6.12 fetches one");
        return None;
    };
    if Command::new("qemu-system-x86_64").arg("--version").output().is_err() {
        eprintln!("skipped: no qemu");
        return None;
    }
    Some(package.display().to_string())
}

/// A program of this machine runs in the guest, in its group, and is reported with how it ends.
#[test]
fn a_program_runs_on_a_kernel() {
    let Some(package) = kernel() else { return };
    let cache = TempDir::new().expect("a directory");
    // Reads a file of 8 MiB twice where 4 MiB fit, writes a line, and fails.
    let script =
        "dd if=/dev/zero of=/tmp/data bs=64k count=128 2>&1; for i in 1 2; do cat /tmp/data; done | wc -c; exit 7";
    let with = ["dd", "cat", "wc"].map(|name| ["--with", name]).concat();
    let arguments = [
        &["--kernel", &package, "--lists", "generations", "--memory", "4M", "--format", "json"][..],
        &with,
        &["--", "sh", "-c", script],
    ]
    .concat();
    let output = ask(&cache, None, &arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("it ended with status 7; its last words: 16777216"), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let answer = &json["answers"][0];
    let count = |name: &str| answer["counters"][name].as_u64().expect("a number");
    assert_eq!((&answer["exit_status"], &json["memory_bytes"]), (&7.into(), &(4 << 20).into()));
    assert!(count("file_writes") >= 1024 && count("file_reads") > 1024 && count("pgsteal") > 2048, "{answer}");
    assert!(count("peak_bytes") <= 4 << 20 && count("oom_kill") == 0 && count("run_us") >= count("cpu_us"), "{answer}");
}

/// DAMON's module sorts a program under a limit that pulses; the same module that finds nothing moves nothing.
#[test]
fn a_kernel_sorts() {
    let Some(package) = kernel() else { return };
    let cache = TempDir::new().expect("a directory");
    let workload = "lru-sort:parsec3/freqmine,memory=2M,seconds=7,seed=3";
    let arguments = ["--kernel", &package, "--lists", "classic", workload, "--format", "json"];
    let first = ask(&cache, None, &arguments);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let json: serde_json::Value = serde_json::from_slice(&first.stdout).expect("JSON");
    let answer = &json["answers"][0];
    let count = |variant: &str, name: &str| answer["counters"][variant][name].as_u64().expect("a number");
    assert_eq!((count("orig", "pswpout"), count("orig", "kdamond_us")), (0, 0), "{answer}");
    assert!(count("mprs", "pswpout") >= 64 && count("mprs", "kdamond_us") == 0, "a quarter goes: {answer}");
    assert!(count("plrus", "hot_bytes") > 0 && count("plrus", "kdamond_us") > 0, "{answer}");
    assert_eq!((count("null", "hot_bytes"), count("null", "cold_bytes")), (0, 0), "{answer}");
    assert!(count("null", "kdamond_us") > 0, "{answer}");
    assert!(answer["figures"]["pgmajfaults"]["published"]["ratio"].is_number(), "{answer}");
    let second = ask(&cache, None, &arguments);
    assert_eq!(second.stdout, first.stdout, "from the cache");
}

/// It answers; the second time from the cache.
#[test]
fn a_kernel_answers() {
    let Some(package) = kernel() else { return };
    let cache = TempDir::new().expect("a directory");
    let workload = "mixed:apages=1024,fpages=512,accesses=20000,writes=0.25";
    let arguments = ["--kernel", &package, "--lists", "generations", workload, "--format", "json"];
    let first = ask(&cache, None, &arguments);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let json: serde_json::Value = serde_json::from_slice(&first.stdout).expect("JSON");
    let answer = &json["answers"][0];
    let count = |name: &str| answer["counters"][name].as_u64().expect("a number");
    assert!(answer["kernel"].as_str().expect("a release").starts_with("6.12"), "{answer}");
    assert!(count("file_reads") > 512 && count("pswpin") > 0 && count("first_touches") <= 1024, "{answer}");
    let second = ask(&cache, None, &arguments);
    assert_eq!(second.stdout, first.stdout, "from the cache");
    assert!(!text(&second.stderr).contains("asking"), "{}", text(&second.stderr));
}

/// A table has no column that is empty in each row.
#[test]
fn no_column_of_a_table_is_empty() {
    let cache = TempDir::new().expect("a directory");
    for (question, columns) in [(&["lru-sort:parsec3/canneal"][..], 10), (&["--memory", "4096p", KNOWN], 7)] {
        let output = ask(&cache, Some("/nonexistent"), &[&["--kernel", "6.12"], question].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        let table = text(&output.stdout);
        // Cells are at least two blanks apart; some hold one.
        let lines = table.lines().take_while(|line| !line.is_empty());
        let cells: Vec<Vec<&str>> =
            lines.map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
        assert!(cells.len() > 8 && cells.iter().all(|row| row.len() == columns), "{table}");
        for column in 0..columns {
            assert!(cells[1..].iter().any(|row| row[column] != "–"), "column {}: {table}", cells[0][column]);
        }
    }
}
