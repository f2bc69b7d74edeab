//! Memory under a budget.

use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use refault::region::{Budget, Pager, PagerError, PagerOptions, Region};

use crate::handles::Table;
use crate::status::{
    Failure, REFAULT_BUSY, REFAULT_NO_ROOM, REFAULT_SYSTEM, give, guarded, path, refault_status, text,
};

/// A limit, in bytes, of the resident memory of the regions that share it.
pub type refault_budget = u64;
/// A range of memory under a budget.
pub type refault_region = u64;

static BUDGETS: Table<Pager> = Table::new(3, "budget");
static REGIONS: Table<Held> = Table::new(4, "region");

/// A region as handed out: everything but its bytes is reached through the lock, and the bytes are the caller's.
struct Held {
    address: usize,
    region: Mutex<Region>,
}

/// A budget's state at one moment.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct refault_budget_stats {
    /// Bytes that may be resident.
    pub budget_bytes: u64,
    /// Bytes that are.
    pub resident_bytes: u64,
    /// Bytes that the evicted pages take, compressed or in a file.
    pub stored_bytes: u64,
    /// Bytes of bookkeeping.
    pub metadata_bytes: u64,
    /// Faults on evicted pages since the start.
    pub faults: u64,
    /// Pages brought back since the start.
    pub pages_in: u64,
    /// Pages evicted with a write to a store since the start.
    pub pages_out: u64,
}

fn failure(error: PagerError) -> Failure {
    match &error {
        PagerError::NotPermitted(source) | PagerError::File { error: source, .. } => {
            Failure::system(source, error.to_string())
        }
        PagerError::MissingFeature(_) => Failure::new(REFAULT_SYSTEM, error.to_string()),
        PagerError::NoAddresses(_) => Failure::new(REFAULT_NO_ROOM, error.to_string()),
        PagerError::StillResident { .. } => Failure::new(REFAULT_BUSY, error.to_string()),
        _ => Failure::argument(error.to_string()),
    }
}

/// Makes a budget of `bytes` under a policy that needs only accessed bits, such as `"mglru"` or `"clock"`; null is the
/// default. What does not fit is compressed. Needs userfaultfd; the message of a failure says what permits it.
///
/// # Safety
/// `policy` is null or a string; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_budget_new(
    bytes: u64,
    policy: *const c_char,
    out: *mut refault_budget,
) -> refault_status {
    guarded(|| {
        if bytes < 4096 {
            return Err(Failure::argument(format!("a budget of {bytes} bytes is less than a page of 4096 bytes")));
        }
        // SAFETY: the caller's.
        unsafe { give(out, 0, "the budget")? };
        let mut options = PagerOptions::default();
        // SAFETY: the caller's.
        if let Some(policy) = unsafe { text(policy, "the policy") }? {
            options.policy = policy.to_owned();
        }
        let pager = Pager::new(Budget::new(bytes), options).map_err(failure)?;
        // SAFETY: as above.
        unsafe { give(out, BUDGETS.put(pager), "the budget") }
    })
}

/// Changes a budget, and returns when no more than that is resident; after a minute it gives up with `REFAULT_BUSY`.
#[unsafe(no_mangle)]
pub extern "C" fn refault_budget_resize(budget: refault_budget, bytes: u64) -> refault_status {
    guarded(|| BUDGETS.find(budget)?.resize(bytes, Duration::from_secs(60)).map_err(failure))
}

/// A budget's state now.
///
/// # Safety
/// `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_budget_stats_now(
    budget: refault_budget,
    out: *mut refault_budget_stats,
) -> refault_status {
    guarded(|| {
        let report = BUDGETS.find(budget)?.report();
        let stats = refault_budget_stats {
            budget_bytes: report.budget_bytes,
            resident_bytes: report.resident_bytes,
            stored_bytes: report.store.pool_bytes + report.store.file_bytes,
            metadata_bytes: report.metadata_bytes,
            faults: report.counters.pgmajfault,
            pages_in: report.counters.pswpin,
            pages_out: report.counters.pswpout,
        };
        // SAFETY: the caller's.
        unsafe { give(out, stats, "the state") }
    })
}

/// Ends the use of a budget. Its regions stay usable until they are freed.
#[unsafe(no_mangle)]
pub extern "C" fn refault_budget_free(budget: refault_budget) -> refault_status {
    guarded(|| BUDGETS.take(budget).map(drop))
}

/// Takes `bytes` of zeros under a budget; `address` gets where they are. They can be used like any memory, by any
/// thread, until the region is freed.
///
/// # Safety
/// `address` and `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_region_new(
    budget: refault_budget,
    bytes: usize,
    address: *mut *mut c_void,
    out: *mut refault_region,
) -> refault_status {
    guarded(|| {
        let region = BUDGETS.find(budget)?.region(bytes).map_err(failure)?;
        // SAFETY: the caller's.
        unsafe { hand_out(region, address, out) }
    })
}

/// The same with a file's contents, which are read when they are touched. What is written stays in memory.
///
/// # Safety
/// `file_path` is a string; `address` and `out` can be written to, and so can `bytes`, which gets the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_region_from_file(
    budget: refault_budget,
    file_path: *const c_char,
    address: *mut *mut c_void,
    bytes: *mut usize,
    out: *mut refault_region,
) -> refault_status {
    guarded(|| {
        // SAFETY: the caller's.
        let path = unsafe { path(file_path) }?;
        let region = BUDGETS.find(budget)?.file_region(&path).map_err(failure)?;
        // SAFETY: the caller's.
        unsafe {
            give(bytes, region.len(), "the length")?;
            hand_out(region, address, out)
        }
    })
}

/// Puts a region into the table.
///
/// # Safety
/// `address` and `out` are null or can be written to.
unsafe fn hand_out(mut region: Region, address: *mut *mut c_void, out: *mut refault_region) -> Result<(), Failure> {
    let start = region.as_mut_ptr();
    // SAFETY: the caller's.
    unsafe { give(address, start.cast(), "the address")? };
    // SAFETY: the caller's.
    unsafe { give(out, 0, "the region")? };
    let held = Held { address: start as usize, region: Mutex::new(region) };
    // SAFETY: as above, and it is not null.
    unsafe { give(out, REGIONS.put(held), "the region") }
}

/// Forgets the contents of all pages that lie wholly in a range of bytes of a region: they are zeros (or the file's)
/// again.
#[unsafe(no_mangle)]
pub extern "C" fn refault_region_discard(region: refault_region, offset: usize, length: usize) -> refault_status {
    with(region, offset, length, |region, range| {
        region.discard(range);
        Ok(())
    })
}

/// Brings a range of bytes in as far as the budget has room.
#[unsafe(no_mangle)]
pub extern "C" fn refault_region_prefetch(region: refault_region, offset: usize, length: usize) -> refault_status {
    with(region, offset, length, |region, range| {
        region.prefetch(range);
        Ok(())
    })
}

/// Brings a range of bytes in and keeps it until `refault_region_unpin`. Fails, with nothing pinned, if it does not
/// fit. Pages that are pinned twice are unpinned at once. Needed for what writes into a region past the program: direct
/// reads (O_DIRECT), io_uring's registered buffers, another process's process_vm_writev. What they write to a page that
/// is evicted meanwhile is lost, without an error.
#[unsafe(no_mangle)]
pub extern "C" fn refault_region_pin(region: refault_region, offset: usize, length: usize) -> refault_status {
    with(region, offset, length, |region, range| region.pin(range).map_err(failure))
}

/// Ends that.
#[unsafe(no_mangle)]
pub extern "C" fn refault_region_unpin(region: refault_region, offset: usize, length: usize) -> refault_status {
    with(region, offset, length, |region, range| {
        region.unpin(range);
        Ok(())
    })
}

/// Gives a region back. Its memory must not be used any more.
#[unsafe(no_mangle)]
pub extern "C" fn refault_region_free(region: refault_region) -> refault_status {
    guarded(|| REGIONS.take(region).map(drop))
}

fn with(
    region: refault_region,
    offset: usize,
    length: usize,
    work: impl FnOnce(&mut Region, std::ops::Range<usize>) -> Result<(), Failure>,
) -> refault_status {
    guarded(|| {
        let held = REGIONS.find(region)?;
        let mut region = held.region.lock().unwrap_or_else(PoisonError::into_inner);
        debug_assert_eq!(region.as_ptr() as usize, held.address, "invariant: a region does not move");
        match offset.checked_add(length).filter(|end| *end <= region.len()) {
            Some(end) => work(&mut region, offset..end),
            None => {
                let bytes = region.len();
                Err(Failure::argument(format!("{length} bytes at {offset} reach beyond the region of {bytes} bytes")))
            }
        }
    })
}
