//! The library as C sees it: the header is up to date, and a program in C and C++ finds everything, also under valgrind
//! and the address sanitizer.

mod common;
#[path = "library/injected.rs"]
mod injected;
// Its shells are for tests that look at each answer.
#[allow(dead_code)]
#[path = "common/sqlite.rs"]
mod shell;

use std::path::Path;
use std::process::{Command, Output};

use common::archive;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn header() -> String {
    let mut text = Vec::new();
    let config = cbindgen::Config::from_file(Path::new(HERE).join("cbindgen.toml")).expect("the configuration");
    cbindgen::Builder::new().with_crate(HERE).with_config(config).generate().expect("a header").write(&mut text);
    String::from_utf8(text).expect("text")
}

#[test]
fn the_header_is_that_of_the_sources() {
    let path = Path::new(HERE).join("include/refault.h");
    if std::env::var_os("REFAULT_WRITE_HEADER").is_some() {
        std::fs::write(&path, header()).expect("writes the header");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(committed, header(), "run this test with REFAULT_WRITE_HEADER=1, and commit include/refault.h");
}

fn ran(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}\n{err}", output.status);
    output
}

#[test]
fn a_program_in_c_and_in_cpp_finds_everything() {
    // Not on tmpfs, which does no direct I/O.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let prefix = directory.path().join("prefix");
    let script = Path::new(HERE).join("../../scripts/c-library");
    ran(Command::new(script).arg("--prefix").arg(&prefix).arg("--archive").arg(archive()));
    for file in [
        "lib/librefault.so",
        "lib/librefault.so.0",
        "lib/librefault.a",
        "include/refault.h",
        "share/man/man3/refault.3",
    ] {
        assert!(prefix.join(file).exists(), "{file}");
    }
    let pc = std::fs::read_to_string(prefix.join("lib/pkgconfig/refault.pc")).expect("a .pc file");
    assert!(pc.contains(&format!("prefix={}", prefix.display())) && pc.contains(env!("CARGO_PKG_VERSION")), "{pc}");
    let symbols = ran(Command::new("nm").args(["-D", "--defined-only"]).arg(prefix.join("lib/librefault.so")));
    let symbols = String::from_utf8(symbols.stdout).expect("text");
    assert!(symbols.contains("refault_file_read@@REFAULT_0"), "{symbols}");
    for line in symbols.lines() {
        assert!(line.contains(" refault_") || line.ends_with(" REFAULT_0"), "exported besides: {line}");
    }

    let strict = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread", "-g"];
    let program = |name: &str, compiler: &str, flags: &[&str]| {
        let out = directory.path().join(name);
        let source = Path::new(HERE).join("tests/c/smoke.c");
        let libraries = prefix.join("lib");
        let mut command = Command::new(compiler);
        command.args(flags).args(strict).arg("-I").arg(prefix.join("include")).arg(source).arg("-o").arg(&out);
        ran(command.arg("-L").arg(&libraries).arg("-lrefault").arg(format!("-Wl,-rpath,{}", libraries.display())));
        out
    };
    let here = directory.path();
    let c = program("c", "cc", &["-std=c11", "-x", "c"]);
    let cpp = program("cpp", "c++", &["-std=c++17", "-x", "c++"]);
    let sanitized = program("sanitized", "cc", &["-std=c11", "-fsanitize=address", "-x", "c"]);
    if refault_proves_regions() {
        ran(Command::new(&c).arg(here));
        ran(Command::new(&cpp).arg(here));
    }
    ran(Command::new(&c).arg(here).arg("without regions"));
    ran(Command::new(&sanitized).arg(here).arg("without regions"));
    if Command::new("valgrind").arg("--version").output().is_ok() {
        let options = ["--quiet", "--error-exitcode=9", "--errors-for-leak-kinds=definite", "--leak-check=full"];
        ran(Command::new("valgrind").args(options).arg(&c).arg(here).arg("without regions"));
    } else {
        assert!(std::env::var_os("REFAULT_REQUIRE").is_none(), "valgrind is not installed");
    }
    // The example of `docs/guide/cache.md`.
    let example = Path::new(HERE).join("examples/read.c");
    let shown = std::fs::read_to_string(&example).expect("the example");
    let page = std::fs::read_to_string(Path::new(HERE).join("../../docs/guide/cache.md")).expect("the page");
    assert!(page.contains(&format!("```c\n{shown}```")), "the page shows another example");
    let (out, libraries) = (here.join("example"), prefix.join("lib"));
    let mut command = Command::new("cc");
    command.args(["-std=c11"]).args(strict).arg("-I").arg(prefix.join("include")).arg(example).arg("-o").arg(&out);
    ran(command.arg("-L").arg(&libraries).arg("-lrefault").arg(format!("-Wl,-rpath,{}", libraries.display())));
    std::fs::write(here.join("data"), vec![7; 200_000]).expect("writes");
    assert_eq!(ran(Command::new(&out).current_dir(here)).stdout, b"100 bytes\n");
    // Static, as well.
    let out = directory.path().join("static");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-pthread", "-I"]).arg(prefix.join("include"));
    command.arg(Path::new(HERE).join("tests/c/smoke.c")).arg(prefix.join("lib/librefault.a"));
    ran(command.args(["-lgcc_s", "-lm", "-ldl", "-lrt", "-lutil", "-o"]).arg(&out));
    ran(Command::new(&out).arg(here).arg("without regions"));
}

#[test]
fn a_failure_while_a_thread_ends_is_a_status() {
    let directory = tempfile::tempdir().expect("a directory");
    let out = directory.path().join("thread_exit");
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(Path::new(HERE).join("include"));
    command.arg(Path::new(HERE).join("tests/c/thread_exit.c")).arg(archive());
    ran(command.args(["-lgcc_s", "-lm", "-ldl", "-lrt", "-lutil", "-o"]).arg(&out));
    let printed = String::from_utf8(ran(&mut Command::new(&out)).stdout).expect("text");
    assert_eq!(printed, "thread: bad handle\nthread's end: bad handle\njoined\n");
}

/// Whether memory under a budget can be had here.
fn refault_proves_regions() -> bool {
    let region = refault::region::Region::anonymous(4096, 1 << 20);
    assert!(region.is_ok() || std::env::var_os("REFAULT_REQUIRE").is_none(), "userfaultfd is not to be had");
    region.is_ok()
}
