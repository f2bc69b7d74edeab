//! `refault why`: real kills in a control group of this machine, and logs of other hosts.

mod common;

use std::process::Stdio;

use common::{refault, rows, stdout, text};
use refault_testing::cgroup::Group;
use refault_testing::{skip, skip_required};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const HOST_LOG: &str = include_str!("logs/host_out_of_memory.log");

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[&["why", "--json"], arguments].concat())).expect("JSON")
}

/// Lets a program ask for more than its group may have, and answers its process.
fn killed(group: &Group, script: &str) -> u32 {
    group.write(&["memory.limit_in_bytes", "memory.max"], "25165824").expect("a limit");
    let mut program = group.command("python3").args(["-c", script]).stderr(Stdio::null()).spawn().expect("sh is there");
    let pid = program.id();
    let ended = program.wait().expect("it ends");
    assert!(!ended.success(), "it was to be killed");
    pid
}

#[test]
fn a_real_kill_is_told_with_its_group_its_limit_and_its_remedy() {
    let group = match Group::new("why") {
        Ok(group) => group,
        Err(error) => return skip_required(format_args!("no memory cgroup can be made: {error}")),
    };
    if std::fs::File::open("/dev/kmsg").is_err() {
        return skip_required("the kernel's log cannot be read");
    }
    // A name that would forge lines, if the kernel and we let it.
    let script =
        "open('/proc/self/comm','w').write('a) \\x1b[1m(7')\nall = []\nwhile True: all.append(bytearray(1 << 20))";
    let pid = killed(&group, script);
    let all = json(&["--last", "50"]);
    let kills = all["kills"].as_array().expect("kills");
    let Some(kill) = kills.iter().find(|kill| kill["group"] == group.path()) else {
        return skip(format_args!("the kernel's log was flooded meanwhile: {all}"));
    };
    assert_eq!((&kill["killer"], &kill["limit"]), (&"kernel".into(), &"group".into()));
    assert_eq!((&kill["victim"]["pid"], &kill["victim_group"]), (&pid.into(), &group.path().into()));
    let name = kill["victim"]["name"].as_str().expect("a name");
    assert!(name.starts_with("a) ") && !name.chars().any(char::is_control), "{name:?}");
    assert_eq!(kill["memory"]["limit_bytes"], 24 * MIB);
    assert!(kill["victim"]["anonymous_bytes"].as_u64() > Some(10 * MIB), "{kill}");
    assert!(kill["stat"]["anonymous_bytes"].as_u64() > Some(10 * MIB), "{kill}");
    let chosen = kill["would_choose"].as_array().expect("choices");
    let by =
        |rule: &str| chosen.iter().find(|choice| choice["rule"] == rule).expect("the rule is there")["pid"].clone();
    assert_eq!((by("kernel"), by("lmkd"), by("systemd-oomd")), (pid.into(), pid.into(), Value::Null));
    let verdicts = kill["prevented_by"].as_array().expect("verdicts");
    let said = |remedy: &str| verdicts.iter().find(|verdict| verdict["remedy"] == remedy);
    let limit = said("limit").expect("a limit would have helped")["words"].as_str().expect("words");
    assert!(limit.contains("24.0 MiB") && limit.contains("cannot be said"), "{limit}");
    assert!(said("swap").is_some() && said("min_ttl").is_none(), "{kill}");
    assert!(all["counted"].as_array().is_some_and(|all| all.iter().any(|one| one["group"] == group.path())), "{all}");
    let table = stdout(&["why", "--last", "50"]);
    assert!(table.contains(&format!("for the limit of {}", group.path())), "{table}");
    assert!(!table.chars().any(|c| c.is_control() && c != '\n'), "{table:?}");
}

#[test]
fn the_history_says_whether_a_limit_would_have_lasted() {
    let group = match Group::new("leak") {
        Ok(group) => group,
        Err(error) => return skip_required(format_args!("no memory cgroup can be made: {error}")),
    };
    let directory = tempfile::tempdir().expect("a directory");
    let history = directory.path().join("history.sqlite");
    let history = history.to_str().expect("UTF-8");
    // The group grows between looks, and then asks for too much.
    let script = "import sys\nall = []\nfor line in sys.stdin:\n    all.append(bytearray(b'x' * int(line)))\n    print('ok', flush=True)";
    group.write(&["memory.limit_in_bytes", "memory.max"], "41943040").expect("a limit");
    let mut program = group.command("python3");
    let program = program.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = program.spawn().expect("sh is there");
    let mut orders = program.stdin.take().expect("a pipe");
    let mut answers = std::io::BufReader::new(program.stdout.take().expect("a pipe"));
    for _ in 0..4 {
        use std::io::{BufRead, Write};
        writeln!(orders, "{}", 4 << 20).expect("it listens");
        let mut line = String::new();
        answers.read_line(&mut line).expect("it answers");
        assert_eq!(line, "ok\n");
        stdout(&["host", "--once", "--ages", "1s", "--group", group.path(), "--history", history]);
    }
    {
        use std::io::Write;
        let _ = writeln!(orders, "{}", 64 << 20);
    }
    drop(orders);
    assert!(!program.wait().expect("it ends").success());
    let all = json(&["--last", "50", "--history", history]);
    let kills = all["kills"].as_array().expect("kills");
    let Some(kill) = kills.iter().find(|kill| kill["group"] == group.path()) else {
        return skip(format_args!("the kernel's log was flooded meanwhile: {all}"));
    };
    assert!(kill["recorded_usage_bytes"].as_u64() > Some(16 * MIB), "{kill}");
    let limit = kill["prevented_by"][0]["words"].as_str().expect("words");
    assert!(limit.contains("no limit for long") && limit.contains("per minute"), "{limit}");
}

#[test]
fn logs_of_other_hosts_are_read_and_what_they_do_not_say_is_not_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("log");
    std::fs::write(&path, HOST_LOG).expect("room");
    let path = path.to_str().expect("UTF-8");
    let all = json(&["--log", path]);
    let kills = all["kills"].as_array().expect("kills");
    assert_eq!(kills.len(), 4, "{all}");
    let host = &kills[0];
    assert_eq!((&host["limit"], &host["victim"]["name"]), (&"host".into(), &"java".into()));
    assert_eq!(host["swap"]["limit_bytes"], 1_048_572 * 1024);
    // The browser's oom_score_adj was raised; without it the database would have gone.
    let chosen = |rule: &str, kill: &Value| {
        let all = kill["would_choose"].as_array().expect("choices").clone();
        all.into_iter().find(|choice| choice["rule"] == rule).expect("the rule is there")
    };
    let adjusted = &kills[1];
    assert_eq!(adjusted["victim"]["name"], "browser");
    assert_eq!(chosen("kernel without oom_score_adj", adjusted)["words"], "postgres");
    assert_eq!(chosen("lmkd", adjusted)["words"], "browser");
    let remedies: Vec<&Value> =
        adjusted["prevented_by"].as_array().expect("verdicts").iter().map(|one| &one["remedy"]).collect();
    assert!(remedies.contains(&&"policy".into()), "{adjusted}");
    assert_eq!(
        (&kills[2]["killer"], &kills[2]["group"]),
        (&"systemd-oomd".into(), &"/user.slice/user-1000.slice/user@1000.service".into())
    );
    assert_eq!((&kills[3]["killer"], &kills[3]["victim"]["pid"]), (&"earlyoom".into(), &5678.into()));
    for kill in &kills[2..] {
        assert_eq!(kill["prevented_by"][0]["remedy"], "nothing", "{kill}");
    }
    assert_eq!(rows(&stdout(&["why", "--log", path, "--format", "csv", "--last", "2"])).len(), 3);
    std::fs::write(directory.path().join("log"), "nothing happened\n").expect("room");
    assert!(stdout(&["why", "--log", path]).contains("no kills"));
    for (arguments, words) in [
        (&["why", "--log", "/no/such/file"][..], "cannot read: /no/such/file"),
        (&["why", "--history", "/no/such/file"], "no history: /no/such/file"),
        (&["why", "--log", path, "--last", "0"], "0 is not in 1.."),
    ] {
        let output = refault(arguments);
        assert!(output.status.code() == Some(2) && text(&output.stderr).contains(words), "{}", text(&output.stderr));
    }
}
