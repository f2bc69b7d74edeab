//! `cargo bench -p refault-cli`: the speed table of `refault bench sim`.

use std::process::Command;

fn main() {
    let status = Command::new(env!("CARGO_BIN_EXE_refault")).args(["bench", "sim"]).status();
    assert!(status.expect("the binary starts").success());
}
