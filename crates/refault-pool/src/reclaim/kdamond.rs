//! A thread of the kernel's monitor, DAMON, of our own.
//!
//! Only an unused kdamond is taken: one that is off and has no context, or the first one where there is none. The
//! number of kdamonds is never changed while there are any. The kernel refuses that while one runs, and throws all
//! their settings away otherwise. What was set is taken back when it is dropped.
//!
//! ```
//! use std::path::Path;
//!
//! use refault_pool::reclaim::kdamond::{Kdamond, SYSFS};
//!
//! match Kdamond::claim(Path::new(SYSFS)) {
//!     Ok(kdamond) => println!("{} is ours", kdamond.path("").display()),
//!     Err(refusal) => println!("{refusal}"),
//! }
//! ```

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel shows its monitors.
pub const SYSFS: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Why no kdamond can be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Refusal {
    /// What is so.
    pub why: String,
    /// What might help, as the beginning of a sentence; may be empty.
    pub first: &'static str,
}

/// A kdamond.
#[derive(Debug)]
pub struct Kdamond {
    root: PathBuf,
    index: u64,
    /// There was none before.
    made: bool,
}

impl Kdamond {
    /// Takes a free one.
    ///
    /// # Errors
    /// There is no DAMON, no right to use it, or no kdamond that may be used.
    pub fn claim(root: &Path) -> Result<Kdamond, Refusal> {
        let refuse = |why: &str, first| Err(Refusal { why: why.to_owned(), first });
        if !root.is_dir() {
            return refuse("this kernel has no DAMON in sysfs", "");
        }
        let count = match std::fs::read_to_string(root.join("nr_kdamonds")) {
            Ok(text) => text.trim().parse::<u64>().unwrap_or(0),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return refuse("only root may use DAMON", "run as root, or ");
            }
            Err(error) => return refuse(&format!("{}: {error}", root.display()), ""),
        };
        let read = |index: u64, file: &str| {
            std::fs::read_to_string(root.join(index.to_string()).join(file)).map(|text| text.trim().to_owned())
        };
        let is_off = |index: u64| read(index, "state").is_ok_and(|state| state == "off");
        let is_free =
            |index: &u64| is_off(*index) && read(*index, "contexts/nr_contexts").is_ok_and(|count| count == "0");
        let (index, made) = match (0..count).find(is_free) {
            Some(index) => (index, false),
            None if count == 0 => {
                if let Err(error) = std::fs::write(root.join("nr_kdamonds"), "1") {
                    // The kernel's modules run kdamonds that are not listed here.
                    return refuse(&format!("a kdamond cannot be made: {error}"), "stop DAMON's modules, or ");
                }
                (0, true)
            }
            None if (0..count).all(is_off) => {
                return refuse("all kdamonds hold settings of other programs", "clear one (contexts/nr_contexts), or ");
            }
            None => {
                return refuse(
                    "a kdamond is in use on this machine and is not touched, and no further one can be added while it runs",
                    "",
                );
            }
        };
        Ok(Kdamond { root: root.to_owned(), index, made })
    }

    /// One of its files or directories.
    pub fn path(&self, file: &str) -> PathBuf {
        self.root.join(self.index.to_string()).join(file)
    }

    /// Sets something.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn write(&self, file: &str, value: impl Display) -> io::Result<()> {
        std::fs::write(self.path(file), value.to_string())
    }

    /// A number that it shows.
    pub fn number(&self, file: &str) -> Option<u64> {
        std::fs::read_to_string(self.path(file)).ok()?.trim().parse().ok()
    }

    /// Gives this scheme, which is there, no bounds on size, accesses and age.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn take_any_region(&self, scheme: usize) -> io::Result<()> {
        let pattern = format!("contexts/0/schemes/{scheme}/access_pattern");
        for (bounds, most) in [("sz", u64::MAX), ("nr_accesses", u32::MAX.into()), ("age", u32::MAX.into())] {
            self.write(&format!("{pattern}/{bounds}/min"), 0)?;
            self.write(&format!("{pattern}/{bounds}/max"), most)?;
        }
        Ok(())
    }
}

impl Drop for Kdamond {
    fn drop(&mut self) {
        // Off first: settings of a running kdamond cannot be taken away.
        let _ = self.write("state", "off");
        let _ = self.write("contexts/nr_contexts", 0);
        let count = std::fs::read_to_string(self.root.join("nr_kdamonds"));
        if self.made && count.is_ok_and(|count| count.trim() == "1") {
            let _ = std::fs::write(self.root.join("nr_kdamonds"), "0");
        }
    }
}
