//! Policies by name, step by step.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use refault::lab::stepper::Stepper;
use refault::policy::FrontEnd;
use refault::policy::registry::names;
use refault::trace::Kind;

use crate::handles::Table;
use crate::status::{Failure, give, guarded, refault_status, text};

/// A policy over a memory of a few pages.
pub type refault_policy = u64;

static POLICIES: Table<Stepper> = Table::new(5, "policy");

/// The names of all policies, separated by commas.
#[unsafe(no_mangle)]
pub extern "C" fn refault_policy_names() -> *const c_char {
    static NAMES: OnceLock<CString> = OnceLock::new();
    NAMES.get_or_init(|| CString::new(names(FrontEnd::Replay)).unwrap_or_default()).as_ptr()
}

/// Makes a policy over a memory of `memory_pages`, for pages numbered from 0 to below `pages`, which are read through a
/// descriptor.
///
/// # Safety
/// `name` is a string; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_policy_new(
    name: *const c_char,
    memory_pages: u64,
    pages: u64,
    out: *mut refault_policy,
) -> refault_status {
    guarded(|| {
        // SAFETY: the caller's.
        let name = unsafe { text(name, "the policy") }?.ok_or_else(|| Failure::argument("the policy is null"))?;
        let stepper =
            Stepper::new(name, memory_pages, pages, Kind::Fd).map_err(|error| Failure::argument(error.to_string()))?;
        // SAFETY: the caller's.
        unsafe { give(out, 0, "the policy")? };
        // SAFETY: as above, and it is not null.
        unsafe { give(out, POLICIES.put(stepper), "the policy") }
    })
}

/// Accesses a page; `hit` gets whether it was in memory.
///
/// # Safety
/// `hit` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_policy_access(
    policy: refault_policy,
    page: u64,
    write: bool,
    hit: *mut bool,
) -> refault_status {
    guarded(|| {
        let was = POLICIES.find(policy)?.access(page, write).map_err(|error| Failure::argument(error.to_string()))?;
        // SAFETY: the caller's.
        unsafe { give(hit, was, "whether it was a hit") }
    })
}

/// A counter: `accesses`, `hits`, `misses`, or one of `/proc/vmstat`'s names.
///
/// # Safety
/// `name` is a string; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_policy_counter(
    policy: refault_policy,
    name: *const c_char,
    out: *mut u64,
) -> refault_status {
    guarded(|| {
        // SAFETY: the caller's.
        let name = unsafe { text(name, "the counter") }?.ok_or_else(|| Failure::argument("the counter is null"))?;
        let counters = POLICIES.find(policy)?.counters();
        let found = counters.iter().find(|(known, _)| *known == name);
        let (_, value) = found.ok_or_else(|| Failure::argument(format!("there is no counter '{name}'")))?;
        // SAFETY: the caller's.
        unsafe { give(out, *value, "the counter") }
    })
}

/// Ends the use of a policy.
#[unsafe(no_mangle)]
pub extern "C" fn refault_policy_free(policy: refault_policy) -> refault_status {
    guarded(|| POLICIES.take(policy).map(drop))
}
