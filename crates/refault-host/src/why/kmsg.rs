//! Reads what the kernel's log holds now.

use std::io;
use std::path::Path;

use rustix::fs::{Mode, OFlags};

/// The kernel's log.
pub const FILE: &str = "/dev/kmsg";
/// The kernel hands out one record for each read, and none is longer.
const MAX_RECORD: usize = 8192;

/// All records that the log holds, a line each; records that are overwritten meanwhile are left out.
///
/// # Errors
/// This user may not read it.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let log = rustix::fs::open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let (mut all, mut record) = (Vec::new(), vec![0; MAX_RECORD]);
    loop {
        match rustix::io::read(&log, &mut record) {
            Ok(0) | Err(rustix::io::Errno::AGAIN) => return Ok(all),
            Ok(count) => all.extend_from_slice(&record[..count]),
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
