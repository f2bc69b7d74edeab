//! Why a machine, or a user's rights, do not allow for this way of running programs.

use std::io;
use std::path::{Path, PathBuf};

/// What is in the way, found before a program starts.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The kernel has no memory controller, or it is not mounted.
    #[error("no memory cgroup")]
    NoController,
    /// A group cannot be made here.
    #[error("no permission to make a cgroup")]
    NoPermission {
        /// The group in which it was tried.
        place: PathBuf,
    },
    /// The controller cannot be handed on to a new group because of the processes in this one.
    #[error("the cgroup is busy")]
    Busy {
        /// The group that has processes.
        place: PathBuf,
    },
    /// There is neither zram nor other swap.
    #[error("no swap is possible")]
    NoZram,
    /// There is zram, and this user may not use it; there is no other swap.
    #[error("no permission to make a zram device")]
    NoZramPermission {
        /// The file that was refused.
        place: PathBuf,
    },
    /// A step failed that should not.
    #[error("{what}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// Where.
        place: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl Refusal {
    pub(crate) fn failed(what: &'static str, place: &Path, error: io::Error) -> Refusal {
        Refusal::Failed { what, place: place.to_owned(), error }
    }

    /// The file, group or file system that it is about.
    pub fn place(&self) -> String {
        match self {
            Refusal::NoController => "/proc/self/cgroup".to_owned(),
            Refusal::NoZram => "/sys/class/zram-control".to_owned(),
            Refusal::NoPermission { place } | Refusal::Busy { place } | Refusal::NoZramPermission { place } => {
                place.display().to_string()
            }
            Refusal::Failed { place, .. } => place.display().to_string(),
        }
    }

    /// What to do about it.
    pub fn remedy(&self) -> String {
        match self {
            Refusal::NoController => "boot a kernel with CONFIG_MEMCG, and mount its cgroups".to_owned(),
            Refusal::NoPermission { .. } | Refusal::Busy { .. } => {
                "`systemd-run --user --scope -p Delegate=yes` before the command would give it, or root".to_owned()
            }
            Refusal::NoZram => "sudo modprobe zram, or boot a kernel with CONFIG_ZRAM".to_owned(),
            Refusal::NoZramPermission { .. } => {
                "run it as root, or have root add swap: zram or a file, with zswap on".to_owned()
            }
            Refusal::Failed { error, .. } => error.to_string(),
        }
    }
}
