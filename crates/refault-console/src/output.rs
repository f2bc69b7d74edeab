//! Where results go, and in which form.

use std::io::Write;
use std::path::Path;

use crate::failure::Failure;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    Table,
    /// One row a run, with a header.
    Csv,
    /// One object with all runs.
    Json,
}

/// Where results go: a file or standard output.
pub fn with_output(
    path: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), Failure> {
    let (place, result) = match path {
        None => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            ("standard output".to_string(), write(&mut out).and_then(|()| out.flush()))
        }
        Some(path) => {
            let written = std::fs::File::create(path).and_then(|file| {
                let mut out = std::io::BufWriter::new(file);
                write(&mut out)?;
                out.flush()
            });
            (path.display().to_string(), written)
        }
    };
    result.map_err(|error| Failure::write(place, &error))
}

/// The format that a file's name suggests.
pub fn format_of(out: Option<&Path>) -> Format {
    match out.and_then(Path::extension).and_then(|extension| extension.to_str()) {
        Some("csv") => Format::Csv,
        Some("json") => Format::Json,
        _ => Format::Table,
    }
}
