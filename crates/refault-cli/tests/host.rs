//! `refault host` on groups of this machine.

mod common;

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use common::{refault, rows, stdout, text};
use refault_testing::cgroup::Group;
use refault_testing::skip_required;
use serde_json::Value;

/// Control characters, an escape sequence, a right-to-left mark and what is not UTF-8 cannot all be in a group's name:
/// the kernel refuses line ends alone.
const HOSTILE: &str = "\x1b[31m\t\"<script>\u{202e}";

/// A group with a program in it, which ends with it.
struct Busy {
    group: Group,
    program: Child,
}

impl Busy {
    fn new(name: &str) -> Option<Busy> {
        let group = match Group::new(name) {
            Ok(group) => group,
            Err(error) => {
                skip_required(format_args!("no memory cgroup can be made: {error}"));
                return None;
            }
        };
        let program = group.command("sleep").arg("600").stdin(Stdio::null()).spawn().expect("sh is there");
        let busy = Busy { group, program };
        // Until the shell has entered the group.
        while std::fs::read_to_string(busy.group.directory().join("cgroup.procs")).is_ok_and(|text| text.is_empty()) {
            std::thread::yield_now();
        }
        Some(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Holds a value to a schema, as far as ours go: types, objects' properties, items, constants and choices.
fn conforms(value: &Value, schema: &Value, place: &str) {
    let is = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("{place}: no type {other}"),
    };
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        kind => kind.as_str().into_iter().collect(),
    };
    assert!(kinds.is_empty() || kinds.iter().any(|kind| is(kind)), "{place}: {value} is not {kinds:?}");
    assert!(schema.get("const").is_none_or(|only| only == value), "{place}: {value}");
    assert!(schema["enum"].as_array().is_none_or(|all| all.contains(value)), "{place}: {value}");
    assert!(schema["minimum"].as_f64().zip(value.as_f64()).is_none_or(|(least, value)| value >= least), "{place}");
    if let Some(items) = value.as_array() {
        items.iter().enumerate().for_each(|(at, item)| conforms(item, &schema["items"], &format!("{place}[{at}]")));
    }
    if let Some(object) = value.as_object() {
        let known = schema["properties"].as_object().expect("objects have properties");
        for (name, value) in object {
            let schema = known.get(name).unwrap_or_else(|| panic!("{place}: {name} is not described"));
            conforms(value, schema, &format!("{place}.{name}"));
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            assert!(object.contains_key(name), "{place}: {name} is missing");
        }
    }
}

#[test]
fn json_is_as_its_schema_says_and_names_cannot_break_it() {
    let Some(busy) = Busy::new(HOSTILE) else { return };
    let schema: Value = serde_json::from_str(&stdout(&["host", "--schema"])).expect("a schema");
    let shown = format!("{}", busy.group.path().escape_debug());
    // The part that stands as it is in both.
    let plain = shown.split('\\').next().expect("a first part").to_owned();
    let all: Value = serde_json::from_str(&stdout(&["host", "--once", "--ages", "100ms", "--json"])).expect("JSON");
    conforms(&all, &schema, "report");
    let groups = all["groups"].as_array().expect("groups");
    assert!(groups.iter().any(|group| group["kind"] == "host" && group["proposal"].is_null()), "{all}");
    let ours = groups.iter().find(|group| group["path"].as_str().is_some_and(|path| path.starts_with(&plain)));
    let ours = ours.expect("the group is listed");
    assert_eq!((&ours["program"], &ours["processes"]), (&"sleep".into(), &1.into()));
    assert!(ours["proposal"]["max_bytes"].as_u64() > ours["proposal"]["high_bytes"].as_u64(), "{ours}");
    let path = ours["path"].as_str().expect("text");
    assert!(path.contains("\\u{1b}") && path.contains("\\u{202e}") && !path.chars().any(char::is_control), "{path}");
    // The group is found by the name that is shown.
    for arguments in [&["--csv"][..], &[]] {
        let out = stdout(&[&["host", "--once", "--ages", "10ms,100ms", "--group", path], arguments].concat());
        assert!(!out.chars().any(|c| c.is_control() && c != '\n') && !out.contains('\u{202e}'), "{out:?}");
        assert!(out.lines().all(|line| line.chars().count() <= 100 || !arguments.is_empty()), "{out}");
        if !arguments.is_empty() {
            let all = rows(&out);
            assert_eq!((all.len(), all[1][1].as_str()), (2, path));
            assert_eq!(all[0].last().map(String::as_str), Some("within_100ms_bytes"));
        }
    }
}

/// What a group accesses is not known to who may not look at its processes: a limit of what is left would be too small.
#[test]
fn to_another_user_no_working_set_of_a_group_is_said() {
    if !rustix::process::geteuid().is_root() {
        skip_required(format_args!("another user's program can be started by root alone"));
        return;
    }
    let Some(busy) = Busy::new("of-root") else { return };
    let (_directory, binary) = for_everyone();
    // At itself it may look.
    let mut stranger = Command::new(&binary);
    stranger.args(["host", "--once", "--ages", "50ms", "--csv"]).uid(65534).gid(65534).current_dir("/");
    let output = stranger.output().expect("it starts");
    let (said, out) = (text(&output.stderr), text(&output.stdout));
    assert!(said.contains("no working set is known of") && said.contains("be root"), "{said}");
    let all = rows(&out);
    let column = |name: &str| all[0].iter().position(|title| title == name).expect("a column");
    let ours = all.iter().find(|row| row[column("path")] == busy.group.path()).expect("the group is listed");
    let seen = ["within_50ms_bytes", "high_bytes", "max_bytes"].map(|name| ours[column(name)].as_str());
    assert_eq!(seen, ["", "", ""], "{ours:?}");
    // Root may look.
    let all = rows(&stdout(&["host", "--once", "--ages", "50ms", "--csv", "--group", busy.group.path()]));
    assert!(!all[1][column("high_bytes")].is_empty(), "{all:?}");
}

/// The command in a directory that every user can read.
fn for_everyone() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let binary = directory.path().join("refault");
    std::fs::copy(env!("CARGO_BIN_EXE_refault"), &binary).expect("room");
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), everyone).expect("is ours");
    (directory, binary)
}

/// Processes that are not even listed: of version 1 those of another PID namespace, and those that /proc hides.
#[test]
fn of_groups_with_hidden_processes_no_working_set_is_said() {
    let Some(busy) = Busy::new("hidden") else { return };
    let (_directory, binary) = for_everyone();
    // Mounts need no way back: they are those of a namespace of mounts.
    let nested = ["unshare", "--pid", "--fork", "--mount-proc"];
    let hides =
        "mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups \"$@\"";
    let hidden = ["unshare", "--mount", "sh", "-c", hides, "sh"];
    for elsewhere in [&nested[..], &hidden] {
        let tried = Command::new(elsewhere[0]).args(&elsewhere[1..]).arg("true").output();
        if !tried.is_ok_and(|tried| tried.status.success()) {
            skip_required(format_args!("no namespace can be made: {elsewhere:?}"));
            continue;
        }
        let mut command = Command::new(elsewhere[0]);
        command.args(&elsewhere[1..]).arg(&binary).args(["host", "--once", "--ages", "50ms", "--csv"]);
        let output = command.current_dir("/").output().expect("it starts");
        let (said, all) = (text(&output.stderr), rows(&text(&output.stdout)));
        assert!(said.contains("no working set is known of"), "{elsewhere:?}: {said}");
        let column = |name: &str| all[0].iter().position(|title| title == name).expect("a column");
        let ours = all.iter().find(|row| row[column("path")] == busy.group.path()).expect("the group is listed");
        let seen = ["within_50ms_bytes", "high_bytes", "max_bytes"].map(|name| ours[column(name)].as_str());
        assert_eq!(seen, ["", "", ""], "{elsewhere:?}: {ours:?}");
        assert_ne!(ours[column("usage_bytes")], "", "the kernel says that much to all");
    }
}

#[test]
fn all_columns_fit_into_a_hundred() {
    let Some(busy) = Busy::new(&"long-name-".repeat(20)) else { return };
    let ages = "1ms,2ms,3ms,4ms,5ms";
    let out = stdout(&["host", "--once", "--ages", ages]);
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    assert!(out.contains("long-name-") && out.contains("accesses: "), "{out}");
    drop(busy);
}

#[test]
fn the_command_takes_less_than_30_mib_for_two_hundred_groups() {
    let Some(busy) = Busy::new("many") else { return };
    let below = busy.group.directory().to_owned();
    let directories: Vec<_> = (0..200).map(|number| below.join(format!("group-{number}"))).collect();
    directories.iter().for_each(|directory| std::fs::create_dir(directory).expect("a group"));
    let binary = assert_cmd::cargo::cargo_bin("refault");
    let history = tempfile::tempdir().expect("a directory");
    let output = Command::new("sh")
        .args(["-c", "ulimit -d 30720; \"$@\"", "sh"])
        .arg(binary)
        .args(["host", "--once", "--ages", "10ms,20ms", "--group", busy.group.path(), "--csv", "--history"])
        .arg(history.path().join("history.sqlite"))
        .output()
        .expect("sh is there");
    directories.iter().for_each(|directory| std::fs::remove_dir(directory).expect("empty"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(rows(&text(&output.stdout)).len(), 1 + 1 + 200);
}

#[test]
fn what_cannot_be_is_refused_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("text");
    std::fs::write(&file, "text ".repeat(999)).expect("room");
    let file = file.to_str().expect("UTF-8");
    for (arguments, code, words) in [
        (&["host", "--group", "/no-such-group", "--once"][..], 2, "no memory cgroup: /no-such-group"),
        (&["host", "--out", "x.csv"], 2, "add --once"),
        (&["host", "--once", "--history", file], 1, "no history"),
        (&["host", "--once", "--ages", "0s"], 2, "not above 0"),
        (&["host", "--once", "--json", "--csv"], 2, "cannot be used with"),
    ] {
        let output = refault(arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{arguments:?}: {said}");
    }
}
