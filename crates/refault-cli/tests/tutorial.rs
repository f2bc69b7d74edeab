//! The way of the tutorial, with a smaller program: Valgrind's lackey into `refault trace convert`, and the trace
//! compared.

use std::process::{Command, Stdio};

use crate::common::{rows, stdout, text};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_program_recorded_with_valgrind_can_be_compared() {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=lackey", "--trace-mem=yes", "true"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut recorder = match valgrind.spawn() {
        Ok(recorder) => recorder,
        Err(error) => {
            refault_testing::skip_required(format_args!("valgrind does not start: {error}"));
            return;
        }
    };
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("true.rft");
    let path = path.to_str().expect("its path is UTF-8");
    let log = recorder.stderr.take().expect("it is piped");
    let output = Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["trace", "convert", "--trace-format", "lackey", "--collapse", "/dev/stdin", path])
        .stdin(log)
        .output()
        .expect("it starts");
    assert!(recorder.wait().expect("valgrind ends").success());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let info: Value = serde_json::from_str(&stdout(&["trace", "info", "--format", "json", path])).expect("JSON");
    let number = |key: &str| info[key].as_u64().expect("a count");
    assert!(number("accesses") > 10_000 && number("writes") > 1000 && number("distinct_pages") > 30, "{info}");
    let runs =
        stdout(&["compare", "--trace", path, "--memory", "20%,80%", "--policy", "lru,mglru,opt", "--format", "csv"]);
    assert_eq!(rows(&runs).len(), 7);
}
