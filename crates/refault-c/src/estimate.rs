//! Estimates of what a live cache of objects would miss at other sizes and under other policies.

use std::ffi::c_char;
use std::sync::{Mutex, MutexGuard, PoisonError};

use refault::estimate::Estimator;

use crate::handles::Table;
use crate::status::{Failure, give, guarded, refault_status, text};

/// An estimator: it is told of accesses, and says what caches would have missed.
pub type refault_estimator = u64;

/// What a cache would have missed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct refault_estimate {
    /// The size of the cache in bytes.
    pub cache_bytes: u64,
    /// Misses per access, 0 to 1, first touches included.
    pub miss_ratio: f64,
    /// Bytes missed per byte asked for, 0 to 1.
    pub byte_miss_ratio: f64,
}

static ESTIMATORS: Table<Mutex<Estimator>> = Table::new(6, "estimator");

fn locked(estimator: &Mutex<Estimator>) -> MutexGuard<'_, Estimator> {
    estimator.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers of the caller.
///
/// # Safety
/// `numbers` is null, or `count` numbers can be read there during the call.
unsafe fn numbers<'a>(numbers: *const u64, count: usize, what: &str) -> Result<&'a [u64], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if numbers.is_null() {
        return Err(Failure::argument(format!("{what}: the pointer is null")));
    }
    // SAFETY: the caller's, and it is not null.
    Ok(unsafe { std::slice::from_raw_parts(numbers, count) })
}

/// Makes an estimator in at most 2 MiB for policies, separated by commas (`lru`, `fifo`, `clock`, `s3fifo`), at `caches`
/// sizes of the cache in bytes, 1 to 16.
///
/// # Safety
/// `policies` is a string; `cache_bytes` has `caches` numbers; `out` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_estimator_new(
    policies: *const c_char,
    cache_bytes: *const u64,
    caches: usize,
    out: *mut refault_estimator,
) -> refault_status {
    guarded(|| {
        // SAFETY: the caller's.
        let names = unsafe { text(policies, "the policies") }?;
        let names = names.ok_or_else(|| Failure::argument("the policies are null"))?;
        let names: Vec<&str> = names.split(',').map(str::trim).collect();
        // SAFETY: the caller's.
        let cache_bytes = unsafe { numbers(cache_bytes, caches, "the sizes of the cache") }?;
        let estimator = Estimator::new(&names, cache_bytes).map_err(|error| Failure::argument(error.to_string()))?;
        // SAFETY: the caller's.
        unsafe { give(out, 0, "the estimator")? };
        // SAFETY: as above, and it is not null.
        unsafe { give(out, ESTIMATORS.put(Mutex::new(estimator)), "the estimator") }
    })
}

/// Tells of `count` accesses in their order: each object's number or hash, and its size in bytes. A call costs some
/// 50 ns beside the accesses, so tell of many at a time.
///
/// # Safety
/// `objects` and `sizes` have `count` numbers each.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_estimator_accessed(
    estimator: refault_estimator,
    objects: *const u64,
    sizes: *const u64,
    count: usize,
) -> refault_status {
    guarded(|| {
        let estimator = ESTIMATORS.find(estimator)?;
        // SAFETY: the caller's.
        let (objects, sizes) =
            unsafe { (numbers(objects, count, "the objects")?, numbers(sizes, count, "the sizes")?) };
        let mut estimator = locked(&estimator);
        objects.iter().zip(sizes).for_each(|(object, size)| estimator.access(*object, *size));
        Ok(())
    })
}

/// The estimates of one policy, for each size of the cache in the order in which they were given.
///
/// # Safety
/// `policy` is a string; `out` can be written to as many times as there are sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn refault_estimator_read(
    estimator: refault_estimator,
    policy: *const c_char,
    out: *mut refault_estimate,
) -> refault_status {
    guarded(|| {
        let estimator = ESTIMATORS.find(estimator)?;
        // SAFETY: the caller's.
        let policy = unsafe { text(policy, "the policy") }?.ok_or_else(|| Failure::argument("the policy is null"))?;
        let estimates = locked(&estimator).estimates();
        let mut found = estimates.iter().filter(|estimate| estimate.policy == policy).peekable();
        if found.peek().is_none() {
            return Err(Failure::argument(format!("the estimator was not made for '{policy}'")));
        }
        for (at, estimate) in found.enumerate() {
            let read = refault_estimate {
                cache_bytes: estimate.cache_bytes,
                miss_ratio: estimate.miss_ratio,
                byte_miss_ratio: estimate.byte_miss_ratio,
            };
            // SAFETY: the caller's: there is one place per size. Null is refused before it is written to.
            unsafe { give(if out.is_null() { out } else { out.add(at) }, read, "the estimates")? };
        }
        Ok(())
    })
}

/// Counts from now on, with the caches as they are.
#[unsafe(no_mangle)]
pub extern "C" fn refault_estimator_restart(estimator: refault_estimator) -> refault_status {
    guarded(|| {
        locked(&*ESTIMATORS.find(estimator)?).restart();
        Ok(())
    })
}

/// Ends the use of an estimator.
#[unsafe(no_mangle)]
pub extern "C" fn refault_estimator_free(estimator: refault_estimator) -> refault_status {
    guarded(|| ESTIMATORS.take(estimator).map(drop))
}
