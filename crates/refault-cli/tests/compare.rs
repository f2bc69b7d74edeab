//! `refault compare` from outside: what scripts rely on.

use std::path::PathBuf;

use crate::common::{refault, rows, stdout, text, trace};
use assert_cmd::Command;
use tempfile::TempDir;

/// The rows of a CSV result without the two fields of time.
fn csv(arguments: &[&str]) -> Vec<Vec<String>> {
    let mut rows = rows(&stdout(arguments));
    rows.iter_mut().for_each(|row| row.truncate(row.len() - 2));
    rows
}

#[test]
fn counts_are_exact_on_a_trace_checked_by_hand() {
    let directory = TempDir::new().expect("a temporary directory");
    // FIFO with three frames, the sequence of Belady's anomaly: 9 misses; with four: 10.
    let path = trace(&directory, "belady.u64", [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]);
    let rows = csv(&["compare", "--trace", &path, "--policy", "fifo,lru", "--memory", "3p,4p", "--format", "csv"]);
    let fields = ["trace", "policy", "memory_pages", "accesses", "distinct_pages", "hits", "misses", "miss_ratio"];
    assert_eq!(rows[0][..8], fields);
    assert_eq!(rows[1][..8], ["belady", "fifo", "3", "12", "5", "3", "9", "0.75"]);
    assert_eq!(rows[2][..7], ["belady", "fifo", "4", "12", "5", "2", "10"]);
    assert_eq!(rows[3][..7], ["belady", "lru", "3", "12", "5", "2", "10"]);
    assert_eq!(rows[4][..7], ["belady", "lru", "4", "12", "5", "4", "8"]);
    assert_eq!(rows.len(), 5);
}

#[test]
fn json_has_the_fields_of_csv_in_the_same_order() {
    let workload = "zipf:pages=512,accesses=5000";
    let output =
        refault(&["compare", "--workload", workload, "--policy", "lru", "--memory", "25%", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let run = json["runs"][0].as_object().expect("an object per run");
    let output = refault(&["compare", "--workload", workload, "--policy", "lru", "--memory", "25%", "--format", "csv"]);
    let csv = text(&output.stdout);
    let header: Vec<&str> = csv.lines().next().expect("a header").split(',').collect();
    assert_eq!(run.keys().map(String::as_str).collect::<Vec<_>>(), header);
    assert_eq!(header[header.len() - 2..], ["wall_seconds", "accesses_per_second"]);
    assert_eq!(run["hits"].as_u64().unwrap() + run["misses"].as_u64().unwrap(), run["accesses"].as_u64().unwrap());
}

#[test]
fn results_do_not_depend_on_jobs() {
    let arguments = |jobs| {
        let workload =
            ["--workload", "zipf:pages=2048,accesses=300000", "--workload", "cyclic:pages=500,accesses=9999"];
        // More than one block of accesses.
        let rest = ["--policy", "opt,arc,mglru", "--memory", "10%,50%", "--format", "csv", "--jobs", jobs];
        ["compare"].into_iter().chain(workload).chain(rest).collect::<Vec<_>>()
    };
    let one = csv(&arguments("1"));
    assert_eq!(one, csv(&arguments("2")));
    assert_eq!(one, csv(&arguments("7")));
}

#[test]
fn a_seed_changes_workloads_that_do_not_say_theirs() {
    let run = |workload: &str, seed: &str| {
        let common = ["--policy", "lru", "--memory", "10%", "--format", "csv", "--seed", seed];
        csv(&[&["compare", "--workload", workload][..], &common].concat())[1][4..7].to_vec()
    };
    assert_ne!(run("uniform:pages=1000,accesses=5000", "1"), run("uniform:pages=1000,accesses=5000", "3"));
    assert_eq!(
        run("uniform:pages=1000,accesses=5000,seed=5", "1"),
        run("uniform:pages=1000,accesses=5000,seed=5", "2")
    );
}

#[test]
fn swap_bounds_what_anonymous_memory_can_leave() {
    let run = |swap: &str| {
        let workload = ["--workload", "cyclic:pages=1000,accesses=3000", "--policy", "classic", "--memory", "500p"];
        csv(&[&["compare"][..], &workload, &["--swap", swap, "--format", "csv"]].concat())
    };
    let (header, none) = (run("none")[0].clone(), run("none")[1].clone());
    let field = |row: &[String], name: &str| {
        let at = header.iter().position(|field| field == name).expect("a field");
        row[at].parse::<u64>().expect("a number")
    };
    assert_eq!((field(&none, "pswpout"), field(&none, "misses")), (0, 1000));
    assert!(field(&none, "limit_overruns") > 0);
    let ample = run("4G")[1].clone();
    assert_eq!(field(&ample, "limit_overruns"), 0);
    assert!(field(&ample, "pswpout") > 500);
}

#[test]
fn unusable_input_is_one_line_with_exit_code_2() {
    let directory = TempDir::new().expect("a temporary directory");
    let good = trace(&directory, "good.u64", [1, 2, 3]);
    let empty = trace(&directory, "empty.u64", []);
    let odd: PathBuf = directory.path().join("odd.u64");
    std::fs::write(&odd, [1, 2, 3]).expect("the temporary directory can be written");
    let folder = directory.path().to_str().expect("its path is UTF-8");
    let cases: &[(&[&str], &[&str])] = &[
        (&["--trace", "/nowhere/at-all.u64"], &["/nowhere/at-all.u64", "no such file"]),
        (&["--trace", folder], &["directory"]),
        (&["--trace", &empty], &["empty.u64", "empty"]),
        (&["--trace", odd.to_str().expect("its path is UTF-8")], &["odd.u64"]),
        (&["--trace", &good, "--memory", "12q"], &["'12q'", "4096p"]),
        (&["--trace", &good, "--memory", "0%"], &["is not a size above zero"]),
        (&["--trace", &good, "--memory", "-5%"], &["-5%"]),
        (&["--trace", &good, "--policy", "nope"], &["unknown policy", "'nope'", "choose from", "fifo"]),
        (&["--trace", &good, "--policy", "lru{x=1}"], &["'lru{x=1}'", "no parameter 'x'"]),
        (&["--trace", &good, "--policy", "classic{swappiness=999}"], &["swappiness=999", "0 to 200"]),
        (&["--trace", &good, "--policy", "classic{swappiness=1"], &["unbalanced"]),
        (&["--trace", &good, "--policy", ","], &["no policy named"]),
        (&["--workload", "nope:pages=1"], &["nope", "zipf"]),
        (&["--workload", "zipf:pages=x"], &["pages=x"]),
        (&["--trace", &good, "--jobs", "0"], &["--jobs"]),
        (&["--trace", &good, "--format", "xml"], &["xml", "json"]),
        (&["--nonsense"], &["--nonsense"]),
        (&["--trace", &good, "--swap", "some"], &["'some'"]),
    ];
    for (arguments, expected) in cases {
        let output = refault(&[&["compare"], *arguments].concat());
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
        assert!(line.starts_with("refault: ") && line.lines().count() == 1, "{arguments:?}: {line}");
        for part in *expected {
            assert!(line.contains(part), "{arguments:?}: '{part}' is not in {line}");
        }
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_file_that_is_named_twice_is_read_once() {
    let directory = TempDir::new().expect("a temporary directory");
    let good = trace(&directory, "good.u64", [1, 2, 3]);
    let output = refault(&["compare", "--policy", "lru", "--memory", "2p", "--format", "csv", &good, &good]);
    assert_eq!(text(&output.stdout).lines().count(), 2, "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("good.u64: named twice: it is read once"), "{}", text(&output.stderr));
    // Under another name too.
    let other = directory.path().join("other.u64");
    std::os::unix::fs::symlink(&good, &other).expect("room");
    let other = other.to_string_lossy().into_owned();
    let output = refault(&["compare", "--policy", "lru", "--memory", "2p", "--format", "csv", &good, &other]);
    assert_eq!(text(&output.stdout).lines().count(), 2, "{}", text(&output.stdout));
    let output = refault(&["compare", "--strict", "--policy", "lru", "--memory", "2p", &good, &other]);
    assert!(
        output.status.code() == Some(2) && text(&output.stderr).contains("name it once"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn a_result_that_cannot_be_written_fails_with_exit_code_1() {
    let directory = TempDir::new().expect("a temporary directory");
    let good = trace(&directory, "good.u64", [1, 2, 3]);
    for flag in ["--out", "--report"] {
        let output = refault(&["compare", "--trace", &good, "--policy", "lru", flag, "/nowhere/at-all/x.html"]);
        assert_eq!(output.status.code(), Some(1));
        let line = text(&output.stderr);
        assert!(line.starts_with("refault: cannot write: /nowhere/at-all/x.html: "), "{line}");
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["compare", "--workload", "zipf:pages=64,accesses=100", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
}

#[test]
fn the_name_of_the_output_chooses_its_format() {
    let directory = TempDir::new().expect("a temporary directory");
    for (name, start) in [("runs.csv", "trace,policy,"), ("runs.json", "{\"runs\":["), ("runs.txt", "zipf:")] {
        let path = directory.path().join(name);
        let path = path.to_str().expect("its path is UTF-8");
        let output =
            refault(&["compare", "--workload", "zipf:pages=64,accesses=100", "--policy", "lru", "--out", path]);
        assert!(output.status.success() && output.stdout.is_empty());
        let written = std::fs::read_to_string(path).expect("it is written");
        assert!(written.starts_with(start), "{written}");
    }
}

#[test]
fn results_without_times_are_identical_byte_for_byte() {
    let run = |format: &str, jobs: &str| {
        let common =
            ["--workload", "zipf:pages=2048,accesses=300000", "--policy", "opt,arc,mglru", "--memory", "10%,50%"];
        let rest = ["--format", format, "--no-timing", "--jobs", jobs];
        stdout(&[&["compare"][..], &common, &rest].concat())
    };
    for format in ["csv", "json", "table"] {
        assert_eq!(run(format, "1"), run(format, "2"), "{format}");
        assert!(!run(format, "1").contains("wall_seconds"));
    }
}

/// The built-in set, which takes long, is compared once: `pictures.rs` looks at its table and its report.
#[test]
fn tables_of_many_sizes_fit_a_terminal() {
    let long = |line: &&str| line.chars().count() > 100;
    let many = ["compare", "--workload", "zipf:pages=4000,accesses=40000", "--policy", "lru,opt", "--memory"];
    let sizes = "2%,4%,6%,8%,10%,12%,14%,16%,18%,20%,22%,24%";
    let table = stdout(&[&many[..], &[sizes]].concat());
    assert_eq!(table.lines().filter(long).collect::<Vec<_>>(), Vec::<&str>::new());
    assert_eq!(table.matches("\n opt").count(), 2, "{table}");
}

#[test]
fn the_verdict_is_what_the_figures_say() {
    let directory = TempDir::new().expect("a temporary directory");
    // Belady's anomaly: FIFO misses 9 of 12 with three frames, 10 with four; LRU 10 and 8.
    let path = trace(&directory, "belady.u64", [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]);
    let common = ["--policy", "fifo,lru,opt", "--memory", "3p,4p"];
    let table = stdout(&[&["compare", &path][..], &common].concat());
    assert!(table.contains("12 KiB: fifo misses least, 10.0 % fewer misses than lru"), "{table}");
    assert!(table.contains("16 KiB: lru misses least\n"), "{table}");
    let both = ["compare", &path, "--workload", "cyclic:pages=10,accesses=100"];
    let json = stdout(&[&both[..], &common, &["--format", "json", "--baseline", "fifo"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let overall = &json["verdict"]["overall"];
    assert_eq!(overall.as_array().map(Vec::len), Some(1), "lru alone: opt knows the future, fifo is the baseline");
    // 9 to 10 misses, 10 to 8, and twice the same number on a cycle that does not fit.
    let mean = (-1.0 / 9.0 + 0.2) / 4.0;
    assert!((overall[0]["mean_reduction"].as_f64().expect("a mean") - mean).abs() < 1e-12, "{overall}");
    assert!((overall[0]["worst_reduction"].as_f64().expect("a worst") + 1.0 / 9.0).abs() < 1e-12);
    assert_eq!((&overall[0]["worst_trace"], &overall[0]["mean_rank"]), (&"belady".into(), &1.5.into()));
    // The references stand beside any baseline, in JSON, table and report.
    let report = directory.path().join("r.html");
    let report = report.to_str().expect("its path is UTF-8");
    let three = ["--policy", "fifo,lru,adaptive", "--memory", "3p,4p", "--baseline", "adaptive"];
    let json = stdout(&[&both[..], &three, &["--format", "json", "--report", report]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let rows_of = json["verdict"]["overall"].as_array().expect("rows");
    assert_eq!(rows_of.len(), 2, "fifo and lru against adaptive");
    for row in rows_of {
        let other = if row["policy"] == "lru" { "fifo" } else { "lru" };
        let misses = |policy: &str| -> Vec<f64> {
            let runs = json["runs"].as_array().expect("runs").iter().filter(|run| run["policy"] == policy);
            runs.map(|run| run["misses"].as_f64().expect("a number")).collect()
        };
        let own = misses(row["policy"].as_str().expect("a name"));
        for reference in [other, "adaptive"] {
            let saved: Vec<f64> = own.iter().zip(misses(reference)).map(|(own, other)| 1.0 - own / other).collect();
            let against = &row["against"][reference];
            let mean = saved.iter().sum::<f64>() / saved.len() as f64;
            assert!((against["mean_reduction"].as_f64().expect("a mean") - mean).abs() < 1e-12, "{row}");
            let worst = saved.iter().copied().fold(f64::INFINITY, f64::min);
            assert_eq!(against["worst_reduction"].as_f64(), Some(worst), "{row}");
        }
    }
    let table = stdout(&[&both[..], &three].concat());
    assert!(table.contains("fifo: mean %") && table.contains("lru: mean %"), "{table}");
    let html = std::fs::read_to_string(report).expect("the report is there");
    assert!(html.contains("Over all traces") && html.contains("against fifo, mean"));
    // Which way of choosing held is said of adaptive alone, up to the last access.
    assert!(html.contains("</strong> chose by "));
    for run in json["runs"].as_array().expect("runs") {
        let last = run["leaders"].as_array().and_then(|leaders| leaders.last());
        assert_eq!(last.map(|last| &last["until"]), (run["policy"] == "adaptive").then_some(&run["accesses"]), "{run}");
    }
    let best = stdout(&["compare", &path, "--policy", "best", "--memory", "3p", "--format", "csv"]);
    let named: Vec<String> = rows(&best)[1..].iter().map(|row| row[1].clone()).collect();
    assert!(named.contains(&"lru".into()) && named.contains(&"opt".into()) && named.len() < 12, "{named:?}");
}

#[test]
fn object_traces_have_a_byte_miss_ratio() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("r.csv");
    // With one page, every access misses but the second to a; of 100 + 100 + 3000 bytes, 3100 miss.
    std::fs::write(&path, "key,size\na,100\na,100\nb,3000\n").expect("ours");
    let path = path.to_str().expect("its path is UTF-8");
    for policy in ["lru", "mglru", "classic", "fifo"] {
        let run = ["compare", path, "--policy", policy, "--memory", "1p", "--format", "csv", "--no-timing"];
        let rows = rows(&stdout(&run));
        let width = rows[0].len();
        assert_eq!(rows[0][width - 3..], ["bytes", "byte_misses", "byte_miss_ratio"]);
        assert_eq!(rows[1][width - 3..], ["3200", "3100", "0.96875"], "{policy}");
    }
    assert!(stdout(&["compare", path, "--policy", "lru,fifo", "--memory", "1p,2p"]).contains("by bytes:"));
}

#[test]
fn warm_up_is_not_counted() {
    let arguments = |warm_up: &str| {
        let common = ["compare", "--workload", "cyclic:pages=100,accesses=1000", "--policy", "lru,mglru"];
        rows(&stdout(&[&common[..], &["--memory", "100%", "--format", "csv", "--warm-up", warm_up]].concat()))
    };
    for warm_up in ["100", "10%"] {
        let rows = arguments(warm_up);
        assert_eq!((rows[1][3].as_str(), rows[1][6].as_str()), ("900", "0"), "{warm_up}");
        assert_eq!(rows[2][6], "0");
    }
    let output = refault(&["compare", "--workload", "cyclic:pages=9,accesses=10", "--warm-up", "10"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("nothing is left after the warm-up"));
}

#[test]
fn traces_are_named_apart_taken_in_part_and_read_from_standard_input() {
    let directory = TempDir::new().expect("a temporary directory");
    std::fs::create_dir(directory.path().join("a")).expect("ours");
    std::fs::create_dir(directory.path().join("b")).expect("ours");
    let paths = ["a/app.text", "b/app.csv", "b/app.text"].map(|name| directory.path().join(name));
    std::fs::write(&paths[0], "1\n2\n").expect("ours");
    std::fs::write(&paths[1], "page\n1\n").expect("ours");
    std::fs::write(&paths[2], "1\n2\n3\n").expect("ours");
    let paths = paths.map(|path| path.to_str().expect("its path is UTF-8").to_string());
    let run = ["--policy", "lru", "--memory", "1p", "--format", "csv"];
    let all = rows(&stdout(&[&["compare", &paths[0], &paths[1], &paths[2]][..], &run].concat()));
    let names: Vec<&str> = all[1..].iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, [&paths[0], "app.csv", &paths[2]]);
    let part = rows(&stdout(&[&["compare", &paths[2]][..], &run, &["--skip", "1", "--limit", "1"]].concat()));
    assert_eq!(part[1][3], "1");
    for command in ["compare", "mrc"] {
        let mut refault = Command::cargo_bin("refault").expect("the binary is built");
        let output = refault.args([command, "-"]).args(run).write_stdin("1\n2\n1\n").output().expect("it starts");
        assert_eq!(rows(&text(&output.stdout))[1][0], "stdin", "{}", text(&output.stderr));
    }
}

#[test]
fn wrong_usage_leads_to_the_right_page() {
    let line = |arguments: &[&str]| {
        let output = refault(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        text(&output.stderr)
    };
    assert!(line(&["compare", "--polcy", "lru"]).contains("see 'refault compare --help'"));
    assert!(line(&["trace", "info", "--bogus"]).contains("see 'refault trace info --help'"));
    assert!(line(&["comapre"]).contains("see 'refault --help'"));
    assert!(line(&["compare", "--policy", "mrglu"]).contains("did you mean 'mglru'?"));
    assert!(!line(&["compare", "nope.csv"]).contains("--trace-format"));
}

#[test]
fn kernels_policies_keep_to_a_memory_smaller_than_a_batch() {
    let sizes = "2p,5p,15p,30p,31p,32p";
    for workload in ["cyclic:pages=40,accesses=4000", "uniform:pages=40,accesses=4000,kind=fd"] {
        let json = stdout(&[
            "compare",
            "--workload",
            workload,
            "--policy",
            "kernel,opt",
            "--memory",
            sizes,
            "--format",
            "json",
        ]);
        let results: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let runs = results["runs"].as_array().expect("runs");
        for run in runs {
            assert_eq!(run["limit_overruns"], 0, "{run}");
            let opt = runs.iter().find(|opt| opt["policy"] == "opt" && opt["memory_pages"] == run["memory_pages"]);
            assert!(run["misses"].as_u64() >= opt.expect("a bound")["misses"].as_u64(), "{run}");
        }
    }
}

/// What a cluster finds is tested where there is one: with the Python package.
#[test]
fn without_the_python_package_a_cluster_is_refused_in_words() {
    let ask = |python: &str, more: &[&str]| {
        let mut command = Command::cargo_bin("refault").expect("the binary is built");
        command.env("REFAULT_PYTHON", python);
        command.args(["compare", "--workload", "zipf:pages=100,accesses=1000", "--dask", "tcp://127.0.0.1:9"]);
        command.args(more).output().expect("it starts")
    };
    let absent = ask("/nonexistent/python", &[]);
    assert_eq!(absent.status.code(), Some(2));
    assert!(text(&absent.stderr).contains("REFAULT_PYTHON"), "{}", text(&absent.stderr));
    // It starts, and answers nothing.
    let mute = ask("true", &[]);
    assert_eq!(mute.status.code(), Some(1));
    assert!(text(&mute.stderr).contains("no answer from the Python package"), "{}", text(&mute.stderr));
    for (more, named) in [
        (&["--jobs", "2"][..], "--jobs"),
        (&["--report", "r.html"], "--report"),
        (&["--warm-up", "10%"], "--warm-up"),
        (&["--from", "1s"], "--from"),
    ] {
        let refused = ask("true", more);
        assert_eq!(refused.status.code(), Some(2), "{more:?}");
        assert!(text(&refused.stderr).contains(named), "{}", text(&refused.stderr));
    }
}

#[test]
fn objects_come_and_go_whole_if_asked_to() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("objects.csv");
    // Three objects of 1 MiB in turn in 2 MiB: nothing hits, by objects or by bytes.
    let turns: String = (0..30).map(|at| format!("{at},{},1048576\n", at % 3 + 1)).collect();
    std::fs::write(&path, format!("time,object,size\n{turns}")).expect("written");
    let path = path.display().to_string();
    let of = |more: &[&str]| stdout(&[&["compare", &path, "--objects-whole", "--memory", "2M"][..], more].concat());
    let json: serde_json::Value = serde_json::from_str(&of(&["--policy", "lru", "--format", "json"])).expect("JSON");
    let run = &json["runs"][0];
    assert_eq!((&run["misses"], &run["byte_miss_ratio"]), (&30.into(), &1.0.into()), "{run}");
    assert_eq!((&json["traces"][0]["objects"]["whole"], &run["accesses"]), (&true.into(), &30.into()));
    let table = of(&[]);
    for shown in [
        "Objects come and go whole",
        "byte miss %",
        "gdsf",
        "hyperbolic",
        "lhd",
        "30 accesses to objects of 3 MiB in all",
    ] {
        assert!(table.contains(shown), "{shown}: {table}");
    }
    assert!(
        !table.contains("mglru") && !table.contains("Real kernels") && !table.contains("distinct pages"),
        "{table}"
    );
    assert!(table.contains("Policies that are no kernel's count none."), "of refaults: {table}");
    let refused = |more: &[&str]| {
        let output = refault(&[&["compare", "--objects-whole", "--memory", "2M"][..], more].concat());
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    assert!(refused(&[&path, "--policy", "mglru"]).contains("cannot hold objects of any size"));
    assert!(refused(&[&path, "--memory", "5000"]).contains("compare in 4096 or 8192"));
    assert!(refused(&["--workload", "zipf:pages=64,accesses=100"]).contains("not a trace of objects with sizes"));
}

#[test]
fn objects_that_come_whole_grow_and_may_say_no_size() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("objects.csv");
    // It is asked for in vain, written, found, grows, is found smaller, and says nothing.
    std::fs::write(&path, "object,size,op\na,,get\na,4000,set\na,4000,get\na,8000,set\na,50,get\na,-,get\n")
        .expect("written");
    let path = path.display().to_string();
    let of = |more: &[&str]| {
        let all = ["compare", "--objects-whole", "--memory", "2M", "--policy", "lru", "--format", "csv", &path];
        refault(&[&all[..], more].concat())
    };
    let output = of(&[]);
    let (lines, said) = (text(&output.stdout), text(&output.stderr));
    let fields: Vec<&str> = lines.lines().nth(1).expect("a run").split(',').collect();
    // The first counts for a page, in which 4000 bytes fit; 8000 are written anew.
    assert_eq!(fields[3..7], ["6", "2", "4", "2"], "{lines}");
    assert!(said.contains("2 records say no size: their objects are taken to be as large as before"), "{said}");
    assert!(said.contains("3 accesses find their object with another size than before"), "{said}");
    let strict = of(&["--strict"]);
    assert!(strict.status.code() == Some(2) && text(&strict.stderr).contains("refused by --strict"));
    // Sizes outlive --collapse.
    assert!(text(&of(&["--collapse"]).stdout).contains("objects,lru"));
}

#[test]
fn strict_refuses_objects_that_change_their_size() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("objects.csv");
    std::fs::write(&path, "object,size,op\na,10,get\na,20,set\n").expect("written");
    let path = path.display().to_string();
    let output = refault(&["compare", "--objects-whole", "--strict", "--memory", "2M", "--policy", "lru", &path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("refused by --strict: objects: 1 access finds its object"),
        "{}",
        text(&output.stderr)
    );
}

/// A sequential file of 4,000 pages, then every hundredth page of it.
fn scanned(directory: &TempDir) -> String {
    trace(directory, "scan.u64", (0..4000u64).chain((0..40).map(|number| number * 100)))
}

#[test]
fn readahead_is_told_beside_misses() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = scanned(&directory);
    let common = ["compare", "--trace", &path, "--kind", "fd", "--policy", "lru,mglru", "--memory", "500p"];
    let ahead = csv(&[&common[..], &["--readahead", "--format", "csv"]].concat());
    let column = |name: &str| ahead[0].iter().position(|field| field == name).expect("a column");
    // The first page of the scan, and each of those that are far apart; the scan's end may still be there.
    let misses: u64 = ahead[1][column("misses")].parse().expect("a number");
    assert!((30..=41).contains(&misses), "{misses}");
    let [reads, pages, unused] = ["file_reads", "pages_read_ahead", "pages_read_ahead_unused"]
        .map(|name| ahead[1][column(name)].parse::<u64>().expect("a number"));
    assert_eq!(reads, misses + pages);
    assert!(unused <= pages);
    let json = refault(&[&common[..], &["--readahead=16K", "--format", "json"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert!(json["runs"][0]["pages_read_ahead"].as_u64().expect("a number") > 3000);
    let table = stdout(&[&common[..], &["--readahead"]].concat());
    let header = table.lines().find(|line| line.contains("policy")).expect("a header");
    assert!(header.contains("read") && header.contains("unused"), "{table}");
    let many = stdout(&["compare", "--trace", &path, "--kind", "fd", "--policy", "lru", "--readahead"]);
    assert!(many.contains("pages read from files, asked for or ahead, in % of accesses:"), "{many}");
    let without = csv(&[&common[..], &["--format", "csv"]].concat());
    assert!(!without[0].iter().any(|field| field == "pages_read_ahead"));
}

#[test]
fn where_nothing_can_be_read_ahead_it_is_said() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = scanned(&directory);
    let objects = directory.path().join("objects.csv");
    std::fs::write(&objects, "time_s,key,size\n1,a,10\n2,b,10\n").expect("a file");
    let objects = objects.to_str().expect("a path");
    let refusals: [(&[&str], &str); 6] = [
        (&["--trace", &path, "--readahead"], "all of its accesses are to anonymous memory; --kind says otherwise"),
        (&["--trace", objects, "--readahead"], "a trace of objects, none of which lies beside another"),
        (&["--trace", &path, "--kind", "fd", "--readahead=5000"], "whole pages"),
        (&["--trace", &path, "--kind", "fd", "--readahead=0"], "whole pages"),
        (&["--trace", &path, "--kind", "fd", "--readahead", "--policy", "opt"], "not what is read ahead"),
        (&["--trace", objects, "--readahead", "--objects-whole"], "cannot be used with"),
    ];
    for (arguments, reason) in refusals {
        let output = refault(&[&["compare"][..], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(reason), "{arguments:?}: {}", text(&output.stderr));
    }
    let both = refault(&["compare", "--trace", &path, "--kind", "fd", "--readahead", "--policy", "opt,lru"]);
    assert!(both.status.success() && text(&both.stderr).contains("opt is left out"), "{}", text(&both.stderr));
}
