//! `refault run` with either backend, and whether the kernel's works here.

use std::ffi::OsString;
use std::process::Command;

use refault_console::Failure;

use crate::live::tool;

/// Enough for a program that does nothing.
const PROBE: u64 = 64 << 20;

/// What keeps the budget of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// As `refault run` comes.
    Pager,
    /// `--backend kernel`.
    Kernel,
}

/// Command line of `refault run` with `total` bytes of memory in all, the pager's with these options; `--` and the
/// program are to be added.
pub fn refault(with: &[OsString], backend: Backend, total: u64) -> Result<Command, Failure> {
    let mut command = Command::new(tool::refault()?);
    command.args(["run", "--quiet", "--memory", &total.to_string()]);
    match backend {
        Backend::Pager => command.args(with),
        Backend::Kernel => command.args(["--backend", "kernel"]),
    };
    Ok(command)
}

/// Why this user can have no run under the kernel backend here, in the tool's own words.
///
/// # Errors
/// There is no tool.
pub fn obstacle() -> Result<Option<String>, Failure> {
    let mut command = Command::new(tool::refault()?);
    command.args(["run", "--quiet", "--memory", &PROBE.to_string(), "--backend", "kernel", "--", "true"]);
    let output = command.output().map_err(|error| Failure::failed("cannot run", "refault", error))?;
    Ok(refusal(output.status.success(), &String::from_utf8_lossy(&output.stderr)))
}

/// What a run that did not succeed has said.
fn refusal(is_success: bool, said: &str) -> Option<String> {
    let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed without a word");
    (!is_success).then(|| line.trim().strip_prefix("refault: ").unwrap_or(line.trim()).to_owned())
}

/// Processes that the kernel has killed for lack of memory, on the whole machine.
pub fn kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_run_is_told_in_the_tools_words() {
        let said = "\nrefault: kernel backend: cannot make a cgroup: /sys/fs/cgroup/memory: run it as root\nmore\n";
        let words = "kernel backend: cannot make a cgroup: /sys/fs/cgroup/memory: run it as root";
        assert_eq!(refusal(false, said).as_deref(), Some(words));
        assert_eq!(refusal(false, "").as_deref(), Some("it failed without a word"));
        assert_eq!(refusal(true, said), None);
    }
}
