//! Where results go, and in which form: nothing that was there before is lost.
//!
//! A command claims its outputs before it works. A claim fails if the path is the same file as an input or another
//! output (by inode, so also through links). It fails if a file of another kind lies there (unless `--force`), or if
//! nothing can be written there. What is written goes to a file without a name in the same directory, which gets its
//! name when it is whole: a command that fails or is interrupted leaves the old file as it was, and nothing else. Where
//! the file system has no such files, one with a name of its own stands in, and is removed unless the command is
//! killed. Pipes and devices are written as they are.
//!
//! ```
//! use std::path::Path;
//!
//! use refault_console::{Format, format_of};
//!
//! assert_eq!(format_of(Some(Path::new("runs.json"))), Format::Json); // a name without --format decides
//! ```

mod contents;
mod unnamed;

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
pub use contents::Contents;
use unnamed::Unnamed;

/// How results are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    Table,
    /// One row per run, with a header.
    Csv,
    /// One object with all runs.
    Json,
}

/// The option of every command that writes files.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub struct ForceArgs {
    /// Replace an output file even if it is of another kind than what is to be written
    #[arg(long)]
    pub force: bool,
}

/// The options of a command that has one result.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ResultArgs {
    /// How to write the results [default: by the name of --out, else table]
    #[arg(long, value_enum, ignore_case = true)]
    pub format: Option<Format>,
    /// Write the results to a file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Whether a file of another kind is replaced.
    #[command(flatten)]
    pub force: ForceArgs,
}

impl ResultArgs {
    /// The files of a command that writes this result.
    pub fn outputs(&self) -> Outputs {
        Outputs::new(self.force)
    }

    /// The form of the result, and the file that it goes to, if it goes to one.
    ///
    /// # Errors
    /// As [`Outputs::claim`].
    pub fn claim(&self, outputs: &mut Outputs) -> Result<(Format, Option<Output>), Failure> {
        let format = self.format.unwrap_or_else(|| format_of(self.out.as_deref()));
        Ok((format, outputs.claim("--out", self.out.as_deref(), format.into())?))
    }
}

/// The files that a command reads and writes.
#[derive(Debug, Default)]
pub struct Outputs {
    force: bool,
    /// How each is called, and which file it is.
    taken: Vec<(String, Identity)>,
}

/// Which file a path means: its inode, or, as long as there is none, its name in its directory.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Identity {
    Inode(u64, u64),
    Name(PathBuf),
}

/// A file to be written.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A file that becomes the one at this path.
    Beside(Unnamed, PathBuf),
    /// A pipe or a device.
    Itself(File),
}

impl Outputs {
    /// For a command that reads nothing yet.
    pub fn new(force: ForceArgs) -> Outputs {
        Outputs { force: force.force, taken: Vec::new() }
    }

    /// Notes a file that is read.
    pub fn reads(&mut self, path: &Path) {
        if let Ok(metadata) = std::fs::metadata(path)
            && is_kept(&metadata)
        {
            self.taken.push(("an input".to_owned(), inode(&metadata)));
        }
    }

    /// Claims the file that `option` names, if it names one.
    ///
    /// # Errors
    /// As the module says: the path cannot be used (exit code 2) or nothing can be written there (1).
    pub fn claim(&mut self, option: &str, path: Option<&Path>, contents: Contents) -> Result<Option<Output>, Failure> {
        let Some(path) = path else { return Ok(None) };
        let place = match self.check(option, path, contents)? {
            Some(target) => {
                Place::Beside(Unnamed::beside(&target).map_err(|error| Failure::write(path.display(), &error))?, target)
            }
            None => {
                let file = File::options().write(true).open(path);
                Place::Itself(file.map_err(|error| Failure::write(path.display(), &error))?)
            }
        };
        Ok(Some(Output { path: path.to_owned(), place }))
    }

    /// Checks a path that another program writes to, and answers the file behind its links; `None` for pipes and
    /// devices.
    ///
    /// # Errors
    /// As [`Outputs::claim`].
    pub fn check(&mut self, option: &str, path: &Path, contents: Contents) -> Result<Option<PathBuf>, Failure> {
        let metadata = std::fs::metadata(path).ok();
        if metadata.as_ref().is_some_and(Metadata::is_dir) {
            return Err(Failure::usage(format!("{option} names a directory"), path.display(), "name a file in it"));
        }
        if metadata.as_ref().is_some_and(|metadata| !is_kept(metadata)) {
            return Ok(None);
        }
        let target = resolved(path).map_err(|error| Failure::write(path.display(), &error))?;
        let identity = metadata.as_ref().map_or_else(|| Identity::Name(target.clone()), inode);
        if let Some((other, _)) = self.taken.iter().find(|(_, taken)| *taken == identity) {
            let what = format!("{option} is the same file as {other}");
            return Err(Failure::usage(what, path.display(), "choose another name for the output"));
        }
        if let Some(named) = contents.is_misnamed(path).filter(|_| !self.force) {
            let what = format!("{option} would write {} to a file that is named as {named}", contents.name());
            let remedy = "end its name in .txt, .csv or .json, see --help for what writes the other, or add --force";
            return Err(Failure::usage(what, path.display(), remedy));
        }
        if metadata.is_some() && !self.force {
            let head = contents::head(&target).map_err(|error| Failure::write(path.display(), &error))?;
            if !contents.may_replace(&head, &target) {
                let what = format!("{option} would replace a file that is not {}", contents.name());
                return Err(Failure::usage(what, path.display(), "choose another name, or add --force"));
            }
        }
        self.taken.push((option.to_owned(), identity));
        Ok(Some(target))
    }
}

impl Output {
    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file to write to; it is not there for others before [`Output::commit`].
    pub fn file(&self) -> &File {
        match &self.place {
            Place::Beside(file, _) => file.file(),
            Place::Itself(file) => file,
        }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn commit(self) -> Result<(), Failure> {
        match self.place {
            Place::Beside(file, target) => {
                file.persist(&target).map_err(|error| Failure::write(self.path.display(), &error))
            }
            Place::Itself(_) => Ok(()),
        }
    }

    /// Writes and commits.
    ///
    /// # Errors
    /// The device is full or failed; then the file that was there stays.
    pub fn write(self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
        let mut out = BufWriter::new(self.file());
        let written = write(&mut out).and_then(|()| out.flush());
        drop(out);
        written.map_err(|error| Failure::write(self.path.display(), &error))?;
        self.commit()
    }
}

/// Writes results to an output, or to standard output if there is none: all that a command prints goes through here, its
/// help too.
///
/// # Errors
/// As [`Output::write`]; a reader that has gone away is [`Failure::BrokenPipe`].
pub fn with_output(
    output: Option<Output>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    match output {
        Some(output) => output.write(write),
        None => {
            let written = standard_output().and_then(|file| {
                let mut out = BufWriter::new(file);
                write(&mut out).and_then(|()| out.flush())
            });
            written.map_err(|error| Failure::write("standard output", &error))
        }
    }
}

/// Standard output as a file: to the standard library's own, what cannot be written to counts as written.
fn standard_output() -> io::Result<File> {
    io::stdout().as_fd().try_clone_to_owned().map(File::from)
}

/// The format that a file's name suggests.
pub fn format_of(out: Option<&Path>) -> Format {
    match out.and_then(Path::extension).and_then(|extension| extension.to_str()) {
        Some("csv") => Format::Csv,
        Some("json") => Format::Json,
        _ => Format::Table,
    }
}

/// Whether a file keeps what is written to it: not a pipe, not a device.
fn is_kept(metadata: &Metadata) -> bool {
    metadata.is_file()
}

fn inode(metadata: &Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    Identity::Inode(metadata.dev(), metadata.ino())
}

/// The file behind links, which may not exist yet.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Ok(link) = path.read_link() {
                let beside = path.parent().unwrap_or(Path::new(""));
                return resolved(&beside.join(link));
            }
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
            Ok(directory.canonicalize()?.join(name))
        }
        resolved => resolved,
    }
}
