//! `refault-stress`, short: every store and policy once, and what it says. Long: `refault-stress --hours 8`.

use std::path::Path;
use std::process::Command;

const STRESS: &str = env!("CARGO_BIN_EXE_refault-stress");

/// Why nothing can be run under a budget here, if nothing can. The program lies beside this one where the whole
/// workspace was built.
fn obstacle() -> Option<&'static str> {
    let refault = Path::new(STRESS).with_file_name("refault");
    if !refault.is_file() {
        return Some("refault is not built: cargo test --workspace builds it");
    }
    let found = refault_pager::probe::Capabilities::probe().userfaultfd;
    found.is_err().then_some("no userfaultfd here: 'refault doctor' says why")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn nothing_is_lost_in_any_store_and_under_any_policy() {
    if let Some(obstacle) = obstacle() {
        return refault_testing::skip_required(obstacle);
    }
    let arguments = ["--rounds", "1", "--turn", "0.1", "--size", "6", "--seed", "1"];
    let output = Command::new(STRESS).args(arguments).output().expect("it starts");
    let said = text(&output.stdout);
    assert!(output.status.success() && said.ends_with("nothing was lost\n"), "{said}{}", text(&output.stderr));
    let turns: Vec<&str> = said.lines().filter(|line| line.starts_with("seed ")).collect();
    assert_eq!(turns.len(), 6, "{said}");
    for turn in turns {
        assert!(!turn.contains(" 0 pages evicted") && !turn.contains(" 0 brought back"), "{turn}");
    }
}

#[test]
fn usage_errors_are_one_line() {
    let run = |arguments: &[&str]| {
        let output = Command::new(STRESS).args(arguments).output().expect("it starts");
        (output.status.code(), text(&output.stderr))
    };
    let (code, line) = run(&["--only", "no such way"]);
    assert!(code == Some(1) && line.lines().count() == 1, "{line}");
    assert_eq!(run(&["--seconds", "many"]).0, Some(2));
    assert_eq!(run(&["--seconds", "1", "--rounds", "1"]).0, Some(2));
}
