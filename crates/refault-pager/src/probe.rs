//! What this machine offers a pager. Asked on throw-away descriptors, never guessed from a version number.
//!
//! ```
//! use refault_pager::probe::Capabilities;
//!
//! match Capabilities::probe().userfaultfd {
//!     Ok(_) => println!("regions work here"),
//!     Err(why) => println!("no userfaultfd: {why}"),
//! }
//! ```

use std::io;

use crate::pagemap::{PageMap, ScanMethod};
use crate::uffd::{Access, Uffd, feature};
use crate::{AccessSource, FaultMode, PagerError, PagerOptions};

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

impl AccessSource {
    /// All that programs can be run with, best first. Read-write-protect tracking is not among them: whether the kernel
    /// offers it is asked and reported ([`Capabilities::offers_read_write_protect`]).
    pub const ALL: [AccessSource; 2] = [AccessSource::DropAndScan, AccessSource::RefaultOnly];

    /// The name on the command line and in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            AccessSource::DropAndScan => "drop-and-scan",
            AccessSource::RefaultOnly => "refault-only",
            AccessSource::Exact => "exact",
        }
    }

    /// The source of a name.
    pub fn by_name(name: &str) -> Option<AccessSource> {
        AccessSource::ALL.into_iter().find(|source| source.name() == name)
    }
}

impl Capabilities {
    /// Whether the kernel's answer to `UFFDIO_API` offers tracking of accesses by read-write protection. `None`: it
    /// could not be asked.
    pub fn offers_read_write_protect(&self) -> Option<bool> {
        const NEEDED: u64 = feature::RWP | feature::RWP_ASYNC;
        self.userfaultfd.as_ref().ok().map(|(offered, _)| offered & NEEDED == NEEDED)
    }

    /// What a pager that wants `source` will use here.
    pub fn access_source(&self, source: AccessSource) -> AccessSource {
        if self.scan.is_ok() { source } else { AccessSource::RefaultOnly }
    }
}

/// A userfaultfd with the features that a pager needs.
pub(crate) fn open(options: &PagerOptions) -> Result<Uffd, PagerError> {
    let capabilities = Capabilities::probe();
    let (offered, _) = match capabilities.userfaultfd {
        Ok(offered) => offered,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) => {
            return Err(PagerError::System("opening a userfaultfd", error));
        }
        Err(error) => return Err(PagerError::NotPermitted(error)),
    };
    let mut wanted = feature::PAGEFAULT_FLAG_WP | feature::MISSING_SHMEM | feature::WP_HUGETLBFS_SHMEM;
    if options.fault_mode == FaultMode::InThread {
        wanted |= feature::SIGBUS;
    }
    for (bit, name) in feature::NAMES {
        if wanted & bit != 0 && offered & bit == 0 {
            return Err(PagerError::MissingFeature(name));
        }
    }
    wanted |= offered & (feature::POISON | feature::THREAD_ID | feature::EXACT_ADDRESS);
    Uffd::new(wanted).map_err(PagerError::NotPermitted)
}
