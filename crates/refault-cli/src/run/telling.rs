//! What a run says when it has ended: the last lines, and `--summary`.

use std::ffi::OsString;
use std::path::Path;

use refault_console::{Contents, Failure, Output, Outputs, say};

use super::summary::Summary;

/// Where it is said.
pub(super) struct Telling {
    output: Option<Output>,
    quiet: bool,
}

impl Telling {
    /// Looks at the files that were named, before the program starts.
    ///
    /// # Errors
    /// One of them cannot be written.
    pub(super) fn begin(
        program: &[OsString],
        summary: Option<&Path>,
        stats: Option<&Path>,
        control: Option<&Path>,
        quiet: bool,
    ) -> Result<Telling, Failure> {
        let mut outputs = Outputs::default();
        program.iter().for_each(|argument| outputs.reads(Path::new(argument)));
        let output = outputs.claim("--summary", summary, Contents::Json)?;
        if let Some(stats) = stats {
            outputs.check("--stats", stats, Contents::Json)?;
        }
        if let Some(directory) = control.and_then(Path::parent).filter(|place| !place.as_os_str().is_empty())
            && !directory.is_dir()
        {
            let remedy = "--memory-control needs a file in a directory that exists";
            return Err(Failure::usage("not a directory", directory.display(), remedy));
        }
        Ok(Telling { output, quiet })
    }

    /// Says it.
    ///
    /// # Errors
    /// The summary cannot be written.
    pub(super) fn end(self, summary: &Summary) -> Result<(), Failure> {
        if !self.quiet {
            say(summary.line());
            summary.warnings().iter().for_each(say);
        }
        let Some(output) = self.output else { return Ok(()) };
        output.write(|out| {
            serde_json::to_writer_pretty(&mut *out, &summary.to_json())?;
            out.write_all(b"\n")
        })
    }
}
