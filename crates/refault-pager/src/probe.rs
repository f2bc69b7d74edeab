//! What this machine offers a pager. Asked on throw-away descriptors, never guessed from a version number.

use std::io;

use crate::pagemap::{PageMap, ScanMethod};
use crate::uffd::{Access, Uffd};

/// What was found.
#[derive(Debug)]
pub struct Capabilities {
    /// Feature bits that the kernel's userfaultfd offers and how it was opened, or why it was refused.
    pub userfaultfd: io::Result<(u64, Access)>,
    /// How present pages are found, or why not.
    pub scan: io::Result<ScanMethod>,
    /// Whether io_uring may be used.
    pub io_uring: io::Result<()>,
}

impl Capabilities {
    /// Asks the running kernel.
    pub fn probe() -> Capabilities {
        Capabilities {
            userfaultfd: Uffd::offered_features(),
            scan: PageMap::open().map(|map| map.method()),
            io_uring: refault_store::FileDevice::io_uring_available(),
        }
    }
}
