//! A program that is a server: it is started, a load uses it, which is what is timed, and it is ended by SIGTERM.
//!
//! Nothing is waited for without end. A server has a time in which it must be ready, and a check of that has the same.
//! A load has a time when the server has all memory; under a budget it has what the caller gives, as any program has. A
//! server that ends ends the load with it.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use refault_console::{Failure, say};

use super::trial::{Group, How, LOOK, Runner, failed, temporary};

/// How long a server may take to end.
const END: Duration = Duration::from_secs(30);
/// Between looks at whether a server is ready.
const READY_LOOK: Duration = Duration::from_millis(20);

/// What uses a server, and how long that and the server's start may take.
#[derive(Clone, Debug)]
pub struct Server {
    /// The shell command that uses it.
    pub load: String,
    /// The shell command that succeeds when the server is ready; `None`: it is when it listens on a socket.
    pub ready: Option<String>,
    /// How long it may take to be ready.
    pub ready_timeout: Duration,
    /// How long the load may take where nothing else bounds it.
    pub load_timeout: Duration,
}

impl Runner {
    /// Times the load against a server that was just started, and ends the server; `None` if it was given up.
    pub(super) fn serve(
        &self,
        group: &mut Group,
        server: &Server,
        how: How<'_>,
        give_up: Option<Duration>,
        words: File,
    ) -> Result<Option<f64>, Failure> {
        if !self.becomes_ready(group, server, how, &words)? {
            return Ok(None);
        }
        let output = temporary()?;
        let start = Instant::now();
        let mut client = Group::new(spawn(&server.load, Stdio::from(copy(&output)?))?);
        let limit = give_up.unwrap_or(server.load_timeout);
        let first = self.first_end(&mut [&mut client, group], Some(start + limit))?;
        let seconds = start.elapsed().as_secs_f64();
        let seconds = match first {
            // A load that has ended because the server did says nothing of its own.
            _ if group.status()?.is_some() => {
                client.kill();
                let Some(status) = group.status()? else { unreachable!("it has ended") };
                let what = format!("the server ended {how}, before its load did");
                return Err(failed(what, &self.command_line(), status, words));
            }
            Some((_, status)) if status.success() => Some(seconds),
            Some((_, status)) => {
                return Err(failed(format!("the load failed with the server {how}"), &server.load, status, output));
            }
            None => {
                client.kill();
                if give_up.is_none() {
                    let what = format!("the load did not end in {}", text(limit));
                    let remedy = "it was ended; --load-timeout says how long it may take";
                    return Err(Failure::failed(what, &server.load, remedy));
                }
                None
            }
        };
        // The last line of its statistics may be one of the regular ones.
        std::thread::sleep(2 * LOOK);
        group.ask_to_end();
        self.until_end(group, Some(Instant::now() + END))?;
        Ok(seconds)
    }

    /// Waits until the server can be used; `false` if it does not get there under a budget, which is then too little.
    fn becomes_ready(&self, group: &mut Group, server: &Server, how: How<'_>, words: &File) -> Result<bool, Failure> {
        let until = Instant::now() + server.ready_timeout;
        loop {
            if let Some(status) = group.status()? {
                let hint = if status.success() { " (tell it to stay in the foreground)" } else { "" };
                let what = format!("the server ended {how} before it could be used{hint}");
                return Err(failed(what, &self.command_line(), status, copy(words)?));
            }
            let ready = match &server.ready {
                Some(ready) => self.succeeds(ready, until)?,
                None => group.is_listening(),
            };
            if ready {
                return Ok(true);
            }
            if Instant::now() >= until {
                break;
            }
            self.check_interrupt()?;
            std::thread::sleep(READY_LOOK);
        }
        let what = match &server.ready {
            Some(ready) => format!("'{ready}' did not succeed in {}", text(server.ready_timeout)),
            None => format!("the server does not listen after {}", text(server.ready_timeout)),
        };
        if matches!(how, How::Under(_)) {
            say(format_args!("{how} {what}: this run counts as one that was ended"));
            return Ok(false);
        }
        let remedy = match &server.ready {
            Some(_) => "--ready-timeout says how long it may take",
            None => {
                "--ready 'COMMAND' names a command that succeeds as soon as it can be used, --ready-timeout how long \
                     that may take"
            }
        };
        Err(Failure::failed(what, self.command_line(), remedy))
    }

    /// Whether a check succeeds; one that goes on is ended when the time is over.
    fn succeeds(&self, check: &str, until: Instant) -> Result<bool, Failure> {
        let mut group = Group::new(spawn(check, Stdio::null())?);
        Ok(self.until_end(&mut group, Some(until))?.is_some_and(|status| status.success()))
    }
}

/// A command of a person's, in a group of its own, silent on standard output.
fn spawn(text: &str, errors: Stdio) -> Result<Child, Failure> {
    let mut command = Command::new("sh");
    command.args(["-c", text]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).process_group(0);
    command.spawn().map_err(|error| Failure::failed("cannot execute", text, error))
}

fn copy(file: &File) -> Result<File, Failure> {
    file.try_clone().map_err(|error| Failure::write("a temporary file", &error))
}

/// Such as `30 s` or `250 ms`.
fn text(time: Duration) -> String {
    let milliseconds = time.as_millis();
    if milliseconds.is_multiple_of(1000) { format!("{} s", milliseconds / 1000) } else { format!("{milliseconds} ms") }
}
