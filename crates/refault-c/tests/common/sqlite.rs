//! What the tests of the SQLite extension share: the extension, and SQLite's shell driven through pipes, each a process
//! of its own.

use std::fmt::Display;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::common::archive;

/// Far longer than any statement here takes: who has not answered by then never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory that is not on tmpfs, which does no direct I/O.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// The extension, built once for all tests of the program; `None` where SQLite is not installed.
pub fn extension() -> Option<&'static Path> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let there =
        Path::new("/usr/include/sqlite3ext.h").exists() && Command::new("sqlite3").arg("-version").output().is_ok();
    if !there {
        refault_testing::skip_required("sqlite3 and libsqlite3-dev are not installed");
        return None;
    }
    let build = || {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!(env!("CARGO_CRATE_NAME"), "-extension"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/sqlite-extension");
        let built = Command::new(script).arg("--out").arg(&out).arg("--archive").arg(archive()).output().expect("runs");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        out.join("refault_vfs.so")
    };
    Some(BUILT.get_or_init(build))
}

/// SQLite's shell, a process of its own. Dropped, it is killed.
pub struct Shell {
    child: Child,
    input: Option<ChildStdin>,
    /// What it prints, errors among it, line by line.
    lines: Receiver<String>,
}

impl Shell {
    /// A shell without a database, with the variables of its environment that it is to have.
    pub fn start(environment: &[(&str, &str)]) -> Self {
        let (output, end) = std::io::pipe().expect("a pipe");
        let mut command = Command::new("sqlite3");
        command.args(["-batch", ":memory:"]).envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(end.try_clone().expect("a descriptor")).stderr(end);
        let mut child = command.spawn().expect("sqlite3 starts");
        drop(command); // and with it our ends of the pipe
        let input = child.stdin.take();
        Self { child, input, lines: lines(output) }
    }

    /// A shell with a database open: through refault's VFS if there is an extension, through the default one otherwise.
    pub fn open(extension: Option<&Path>, database: &Path) -> Self {
        Self::open_with(extension, database, &[("REFAULT_MEMORY", "1048576")])
    }

    /// [`Shell::open`] with variables of the environment.
    pub fn open_with(extension: Option<&Path>, database: &Path, environment: &[(&str, &str)]) -> Self {
        let mut shell = Self::start(environment);
        match extension {
            Some(extension) => {
                shell.load(extension);
                shell.expect(&open(database, "vfs=refault"), "");
            }
            None => shell.expect(&open(database, ""), ""),
        }
        // Who finds a lock waits.
        shell.expect(".timeout 30000", "");
        shell
    }

    /// Loads refault's extension.
    pub fn load(&mut self, extension: &Path) {
        self.expect(&format!(".load {} sqlite3_refaultvfs_init", extension.display()), "");
    }

    /// Sends statements or the shell's own commands, a line each, without waiting for them.
    pub fn send(&mut self, script: impl Display) {
        let input = self.input.as_mut().expect("invariant: there until the end");
        writeln!(input, "{script}").and_then(|()| input.flush()).expect("the shell runs");
    }

    /// The next line that it prints, `None` if it ends.
    ///
    /// # Panics
    /// If it does neither.
    pub fn line(&mut self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("the shell hangs"),
            line => line.ok(),
        }
    }

    /// What it prints up to the answer to [`Shell::send`]'s `.print done`.
    pub fn answer(&mut self) -> String {
        let mut answer = Vec::new();
        loop {
            match self.line() {
                Some(line) if line == "done" => return answer.join("\n"),
                Some(line) => answer.push(line),
                None => panic!("the shell has ended ({:?}): {}", self.child.wait(), answer.join("\n")),
            }
        }
    }

    /// What it prints of these statements, errors among it.
    pub fn ask(&mut self, script: impl Display) -> String {
        self.send(format_args!("{script}\n.print done"));
        self.answer()
    }

    /// Sends statements that are to print just this.
    #[track_caller]
    pub fn expect(&mut self, script: &str, answer: &str) {
        assert_eq!(self.ask(script), answer, "{script}");
    }

    /// Lets it close its databases and end.
    ///
    /// # Panics
    /// If a statement has failed.
    #[track_caller]
    pub fn close(mut self) {
        drop(self.input.take());
        assert_eq!(self.line(), None, "it has nothing more to say");
        assert!(self.child.wait().expect("ends").success(), "a statement has failed");
    }

    /// Kills it as it is, with nothing closed.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a script prints that a shell of its own runs, which then closes the database; see [`Shell::open`].
///
/// # Panics
/// If a statement fails.
#[track_caller]
pub fn run(extension: Option<&Path>, database: &Path, script: &str) -> String {
    let mut shell = Shell::open(extension, database);
    let printed = shell.ask(script);
    assert!(!printed.lines().any(|line| line.contains("rror near line ")), "{printed}");
    shell.close();
    printed
}

/// The shell's command that opens a database with parameters of a URI.
pub fn open(database: &Path, parameters: &str) -> String {
    format!(".open 'file:{}?{parameters}'", database.display())
}

fn lines(output: PipeReader) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            // The test may have ended.
            if line.is_ok_and(|line| sender.send(line).is_err()) {
                return;
            }
        }
    });
    receiver
}
