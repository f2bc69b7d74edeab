//! What becomes of a program under `refault run`, from a look at its file: nothing is started.

use std::ffi::OsString;
use std::path::Path;

use refault_console::Failure;
use refault_image::{Image, Obstacle};
use refault_kernel::Places;

use super::{Finding, Status};
use crate::{launch, program};

/// What was found out about a program.
pub(super) struct Examined {
    pub(super) findings: Vec<Finding>,
    /// Why it cannot be managed, and what to do about it.
    pub(super) obstacle: Option<Failure>,
}

/// Looks at the program that is named first; what follows are its arguments.
///
/// # Errors
/// There is no such program.
pub(super) fn examine(words: &[OsString]) -> Result<Examined, Failure> {
    let path = launch::find_program(&words[0])?;
    let agent = program::agent_library();
    let found = program::look(&path, words, agent.as_deref());
    let mut findings = of(&path, &found);
    // As `refault run` chooses, unless it is told what to take.
    if found.as_ref().is_err_and(|found| program::is_the_kernels(*found)) {
        let kernel = super::kernel::finding();
        if refault_kernel::examine(&Places::default()).is_ok() {
            findings[0].status = Status::Limited;
            findings.push(kernel);
            return Ok(Examined { findings, obstacle: None });
        }
        findings.push(kernel);
    }
    let obstacle =
        found.err().map(|obstacle| Failure::failed("cannot be managed", path.display(), program::remedy(&obstacle)));
    findings.push(super::agent());
    findings.push(super::system_call());
    Ok(Examined { findings, obstacle })
}

fn of(path: &Path, found: &Result<Image, Obstacle>) -> Vec<Finding> {
    let place = path.display().to_string();
    let image = match found {
        Ok(image) => image,
        Err(obstacle) => {
            let remedy = program::remedy(obstacle);
            let (detail, improve) = remedy.split_once("; ").unwrap_or((&remedy, "give another program"));
            return vec![Finding::new("program", Status::Missing, format!("{place}: {detail}")).improve(improve)];
        }
    };
    let real = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let loaded = image.program.to_string();
    // A name that was cut says where it is all the same.
    let detail = if real.display().to_string().starts_with(&loaded) {
        format!("{place}: of 64 bits, dynamically linked")
    } else {
        format!("{place}: run by {loaded}, of 64 bits, dynamically linked")
    };
    let mut findings = vec![
        Finding::new("program", Status::Works, detail),
        Finding::new("loader", Status::Works, format!("{}: glibc's, which can load the agent", image.loader)),
    ];
    if let Some(first) = image.first {
        let detail = format!("{first} has to come first: it is preloaded before the agent");
        findings.push(Finding::new("sanitizer", Status::Works, detail));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_managed_is_missing_and_has_a_remedy() {
        let found = of(Path::new("/x"), &Err(Obstacle::Static));
        assert_eq!((found.len(), found[0].status), (1, Status::Missing));
        assert!(found[0].detail.contains("statically linked"), "{}", found[0].detail);
        assert_eq!(found[0].improve.as_deref(), Some("use a dynamically linked build"));
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let directory = tempfile::tempdir().expect("a directory");
        let script = directory.path().join("script");
        std::fs::write(&script, "#! /bin/sh -e\n").expect("a file");
        let found = examine(&[script.into_os_string()]).expect("it is there");
        assert!(found.obstacle.is_none() && found.findings[0].detail.contains("run by /"), "{:?}", found.findings);
        assert!(examine(&["/no/such/program".into()]).is_err());
        // Whatever a file is called stays on its line.
        let odd = directory.path().join("a\x1b[31m\nb");
        std::fs::write(&odd, "text\n").expect("a file");
        let found = examine(&[odd.into_os_string()]).expect("it is there");
        let detail = &found.findings[0].detail;
        assert!(detail.contains("a\\u{1b}[31m\\nb") && !detail.contains(char::is_control), "{detail}");
    }
}
