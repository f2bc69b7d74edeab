//! Has the linker fold functions that are equal, where it can: a release build of the command is some 3 % smaller.
//!
//! lld and mold can, GNU ld refuses the option. So an empty program is linked first. No function of ours is told from
//! another by its address. Cost: a third of a second.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const FOLD: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("PROFILE").is_some_and(|profile| profile == "release") && can_fold() {
        println!("cargo:rustc-link-arg-bin=refault={FOLD}");
    }
}

/// Whether an empty program can be linked so, by the compiler, linker and flags that this build has.
fn can_fold() -> bool {
    let of_cargo = |name| env::var_os(name).unwrap_or_default();
    let directory = PathBuf::from(of_cargo("OUT_DIR"));
    let source = directory.join("empty.rs");
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut compiler = Command::new(of_cargo("RUSTC"));
    compiler.arg("--target").arg(of_cargo("TARGET")).arg("--out-dir").arg(&directory).arg(source);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut option = OsString::from("linker=");
        option.push(linker);
        compiler.arg("-C").arg(option);
    }
    // Separated by this, since a flag may have spaces.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    compiler.args(flags.split('\u{1f}').filter(|flag| !flag.is_empty()));
    compiler.arg("-C").arg(format!("link-arg={FOLD}"));
    compiler.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
