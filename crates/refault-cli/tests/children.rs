//! Programs that a managed process executes start whatever they are, and what is not managed is named.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{compiled, skipped, text};
use tempfile::TempDir;

const READS_BACK: &str = include_str!("c/reads_back.c");
const LOSES_BLOCKS: &str = include_str!("c/loses_blocks.c");

/// A directory with programs, among them one that executes others.
struct Bench {
    directory: TempDir,
    executes: String,
}

impl Bench {
    fn new() -> Bench {
        let directory = tempfile::tempdir().expect("a directory");
        let executes = compiled(&directory, "executes", include_str!("c/executes.c"));
        Bench { directory, executes }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// A program that this compiler makes of a source with these options; `None`, and one line, if it makes none.
    fn build(&self, compiler: &str, options: &[&str], source: &str) -> Option<String> {
        let name = format!("{compiler}{}", options.concat().replace(['/', '=', ','], ""));
        let (program, file) = (self.path(&name), self.path(&format!("{name}.c")));
        std::fs::write(&file, source).expect("writes");
        let made = Command::new(compiler).args(["-O1", "-w", "-o", &program, &file]).args(options).output();
        if made.is_ok_and(|made| made.status.success()) {
            return Some(program);
        }
        refault_testing::skip(format_args!("{compiler} {} makes no program here", options.join(" ")));
        None
    }

    fn alone(&self, way: &str, environment: &str, words: &[&str]) -> Output {
        Command::new(&self.executes).args([way, environment]).args(words).output().expect("it starts")
    }

    fn managed(&self, way: &str, environment: &str, words: &[&str]) -> Output {
        under(&[&[&self.executes, way, environment], words].concat())
    }

    /// Runs a program as a child alone and managed, which must be the same but for lines of `refault`'s. What those said.
    fn same(&self, way: &str, environment: &str, words: &[&str]) -> String {
        let (alone, managed) = (self.alone(way, environment, words), self.managed(way, environment, words));
        let said = text(&managed.stderr);
        let (own, others): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with("refault: "));
        let shown = format!("{way} {environment} {words:?}: {} {said}", managed.status);
        assert_eq!(
            (managed.status.code(), text(&managed.stdout)),
            (alone.status.code(), text(&alone.stdout)),
            "{shown}"
        );
        assert_eq!(others.join("\n"), text(&alone.stderr).trim_end(), "{shown}");
        own.join("\n")
    }
}

fn under(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_refault"))
        .args(["run", "--backend", "pager", "--memory", "16M", "--"])
        .args(words)
        .output()
        .expect("starts")
}

#[test]
fn children_of_every_kind_start_and_the_unmanaged_are_named() {
    if skipped(&["gcc"]) {
        return;
    }
    let bench = Bench::new();
    let kinds = [
        ("gcc", &["-static"][..], "(statically linked)"),
        ("gcc", &["-static-pie"], "(statically linked)"),
        ("gcc", &["-m32"], "(32 bits)"),
        ("musl-gcc", &[], "(another libc)"),
        ("musl-gcc", &["-static"], "(statically linked)"),
    ];
    for (compiler, options, reason) in kinds {
        let Some(program) = bench.build(compiler, options, READS_BACK) else { continue };
        let first = under(&[&program, "1"]);
        assert_eq!(first.status.code(), Some(1), "{program}");
        assert!(text(&first.stderr).starts_with("refault: cannot be managed: "), "{}", text(&first.stderr));
        assert_eq!(text(&first.stderr).lines().count(), 1, "{}", text(&first.stderr));
        for way in ["execve", "execveat", "fexecve", "O_PATH", "posix_spawn", "vfork"] {
            let said = bench.same(way, "same", &[&program, "1"]);
            assert!(said.contains("refault: not managed: ") && said.contains(reason), "{way} {program}: {said}");
            assert!(!said.contains("times"), "{way} {program}: {said}");
        }
    }
}

/// A static emulator passes the agent on to the program that it emulates.
#[test]
fn what_an_unmanaged_emulator_runs_starts() {
    if skipped(&["gcc"]) {
        return;
    }
    let bench = Bench::new();
    let emulated = compiled(&bench.directory, "emulated", READS_BACK);
    let source = include_str!("c/has_no_userfaultfd.c");
    let Some(emulator) = bench.build("gcc", &["-static"], source) else { return };
    let said = bench.same("execve", "same", &[&emulator, &emulated, "1"]);
    assert!(said.contains("is emulated by a program that is not managed: it is not either"), "{said}");
}

#[test]
fn scripts_are_followed_to_their_interpreters() {
    if skipped(&["gcc"]) {
        return;
    }
    let bench = Bench::new();
    let Some(program) = bench.build("gcc", &["-static"], READS_BACK) else { return };
    let mut interpreter = program;
    for depth in 0..5 {
        let script = bench.path(&format!("script{depth}"));
        std::fs::write(&script, format!("#! {interpreter} 1\n")).expect("writes");
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("permits");
        interpreter = script;
    }
    let said = bench.same("execve", "same", &[&interpreter]);
    assert!(said.contains("not managed: script4 (statically linked)"), "{said}");
    let one_more = bench.path("one-more");
    std::fs::write(&one_more, format!("#!{interpreter}\n")).expect("writes");
    std::fs::set_permissions(&one_more, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("permits");
    assert!(!bench.same("execve", "same", &[&one_more]).contains("not managed"), "it was not executed");
}

#[test]
fn environments_of_their_own_are_named_and_other_preloads_stay() {
    if skipped(&["gcc"]) {
        return;
    }
    let bench = Bench::new();
    let program = compiled(&bench.directory, "program", READS_BACK);
    for way in ["execve", "fexecve", "posix_spawn", "vfork"] {
        let said = bench.same(way, "none", &[&program, "1"]);
        assert!(said.contains("not managed: program (another environment)"), "{way}: {said}");
        assert!(!bench.same(way, "same", &[&program, "1"]).contains("not managed"), "{way}");
    }
    let library = bench.build("gcc", &["-shared", "-fPIC"], "int first;").expect("a library");
    assert!(!bench.same("posix_spawn", &library, &[&program, "1"]).contains("not managed"));
    assert!(!bench.same("execve", "same", &["/lib64/ld-linux-x86-64.so.2", &program, "1"]).contains("not managed"));
}

/// Each sanitizer finds what it finds alone, as the first program and as a child.
#[test]
fn leak_checkers_find_as_much_as_alone() {
    if skipped(&["gcc"]) {
        return;
    }
    let bench = Bench::new();
    let kinds = [
        ("gcc", &["-O0", "-fsanitize=leak"][..]),
        ("gcc", &["-O0", "-fsanitize=address"]),
        ("gcc", &["-O0", "-fsanitize=address", "-static-libasan"]),
        ("clang", &["-O0", "-fsanitize=leak"]),
        ("clang", &["-O0", "-fsanitize=address"]),
    ];
    let found = |output: &Output| {
        let said = text(&output.stderr);
        let line = said.lines().find(|line| line.starts_with("SUMMARY: ")).unwrap_or("nothing").to_owned();
        (output.status.code(), text(&output.stdout), line)
    };
    for (compiler, options) in kinds {
        let Some(program) = bench.build(compiler, options, LOSES_BLOCKS) else { continue };
        for blocks in ["1", "1000"] {
            let alone = found(&Command::new(&program).arg(blocks).output().expect("it starts"));
            assert_ne!(alone.2, "nothing", "{program} finds nothing alone");
            assert_eq!(found(&under(&[&program, blocks])), alone, "{program} {blocks}");
            let child = under(&["sh", "-c", &format!("{program} {blocks}; exit $?")]);
            assert_eq!(found(&child), alone, "{program} {blocks} as a child: {}", text(&child.stderr));
        }
    }
}

/// The oldest glibc that has `memcpy` as compilers ask for it today is of 2011.
#[test]
fn the_library_needs_no_new_glibc() {
    if skipped(&["readelf"]) {
        return;
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_refault"));
    let library = binary.with_file_name("librefault_boundary.so");
    let library =
        if library.is_file() { library } else { binary.with_file_name("deps").join("librefault_boundary.so") };
    let read = Command::new("readelf").arg("-VW").arg(&library).output().expect("readelf starts");
    let said = text(&read.stdout);
    let versions = said.split("Version needs section").nth(1).unwrap_or_default();
    let number = |word: &str| -> Option<Vec<u32>> {
        word.strip_prefix("GLIBC_")?.split('.').map(|part| part.parse().ok()).collect()
    };
    let needs: Vec<Vec<u32>> = versions.split_whitespace().filter_map(number).collect();
    let most = number(refault_image::NEEDED_GLIBC).expect("a version");
    assert_eq!(needs.iter().max(), Some(&most), "{}: {said}", library.display());
    assert!(most <= vec![2, 28]);
    // What a sanitizer puts in their place would fault while the agent holds its lock.
    let symbols = Command::new("readelf").args(["-W", "--dyn-syms"]).arg(&library).output().expect("readelf starts");
    let symbols = text(&symbols.stdout);
    let wanted =
        symbols.lines().filter(|line| line.contains(" UND ")).filter_map(|line| line.split_whitespace().last());
    let moves = ["memcpy", "memmove", "memset", "memcmp", "bcmp", "strlen"];
    let named: Vec<&str> = wanted.filter(|name| moves.contains(&name.split('@').next().unwrap_or_default())).collect();
    assert_eq!(named, Vec::<&str>::new(), "the agent has its own");
}
