//! The monotonic clock, read without a system call where the processor's counter runs evenly.
//!
//! A fault looks at the clock several times, and a call for it costs a quarter of a microsecond or more here. So the
//! counter is read instead, and its rate is taken from the kernel's clock, which is asked again every [`MAX_TICKS`].
//! The counter is used only where the processor says that it is invariant: one rate, through all states of sleep.
//!
//! Invariants: the clock is never behind what it has said before. It is off by the error of the rate over
//! [`MAX_TICKS`], which is less than a microsecond. To that is added half of the time that the call for the kernel's
//! clock took, [`MAX_CALL`] at most. Cost: 20 to 50 ns.
//! Source: Intel SDM volume 3, "Invariant TSC"; CPUID leaf 0x8000_0007.
//!
//! ```
//! use refault_linux::clock::now;
//!
//! let before = now();
//! assert!(now() >= before);
//! ```

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::sys;

/// Ticks after which the kernel's clock is asked again: some 100 µs.
const MAX_TICKS: u64 = 1 << 18;
/// Ticks between which clock and counter are of one moment: a thread that was interrupted there knows neither well.
const MAX_CALL: u64 = 1 << 15;
/// Nanoseconds over which a rate is measured, at least; and after which it is measured anew.
const MIN_SPAN: u64 = 2_000_000;
const MAX_SPAN: u64 = 1_000_000_000;

const UNKNOWN: u32 = 0;
const STEADY: u32 = 1;
const UNUSABLE: u32 = 2;

static COUNTER: AtomicU32 = AtomicU32::new(UNKNOWN);
/// How often it was asked for the time before it looked whether the counter can be used.
static ASKED: AtomicU32 = AtomicU32::new(0);
/// Questions for the time after which it looks. To ask a virtual processor what it is costs as much as a hundred calls.
/// A program that ends soon asks for the time less often.
const MAX_ASKED: u32 = 64;
/// Odd while the words below are written.
static VERSION: AtomicU32 = AtomicU32::new(0);
/// A moment by the counter and by the clock.
static TICKS: AtomicU64 = AtomicU64::new(0);
static NANOSECONDS: AtomicU64 = AtomicU64::new(0);
/// Nanoseconds per tick, times 2^32; 0: not measured yet.
static RATE: AtomicU64 = AtomicU64::new(0);
/// Where the measurement of the rate began.
static FIRST_TICKS: AtomicU64 = AtomicU64::new(0);
static FIRST_NANOSECONDS: AtomicU64 = AtomicU64::new(0);
/// The latest that was said.
static LATEST: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds of the monotonic clock.
pub fn now() -> u64 {
    if !is_steady() {
        return sys::clock();
    }
    let ticks = ticks();
    let now = extrapolated(ticks).unwrap_or_else(asked);
    LATEST.fetch_max(now, Ordering::Relaxed).max(now)
}

/// The program forbids itself to read the counter, which would end it here too.
pub fn forget_counter() {
    COUNTER.store(UNUSABLE, Ordering::Relaxed);
}

fn is_steady() -> bool {
    match COUNTER.load(Ordering::Relaxed) {
        UNKNOWN if ASKED.fetch_add(1, Ordering::Relaxed) < MAX_ASKED => false,
        UNKNOWN => {
            let found = if is_invariant() { STEADY } else { UNUSABLE };
            COUNTER.store(found, Ordering::Relaxed);
            found == STEADY
        }
        known => known == STEADY,
    }
}

#[cfg(target_arch = "x86_64")]
fn is_invariant() -> bool {
    use core::arch::x86_64::__cpuid;
    const EXTENDED: u32 = 0x8000_0000;
    __cpuid(EXTENDED).eax >= EXTENDED + 7 && __cpuid(EXTENDED + 7).edx & (1 << 8) != 0
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: x86-64 has the instruction; a program that forbids it says so, see `forget_counter`.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
fn is_invariant() -> bool {
    false
}

#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

/// The time by the counter; `None` if the clock must be asked.
fn extrapolated(ticks: u64) -> Option<u64> {
    let version = VERSION.load(Ordering::Acquire);
    let (then, nanoseconds) = (TICKS.load(Ordering::Relaxed), NANOSECONDS.load(Ordering::Relaxed));
    let rate = RATE.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    if version & 1 != 0 || VERSION.load(Ordering::Relaxed) != version || rate == 0 {
        return None;
    }
    // Of another processor, whose counter is a little behind, the difference is huge.
    let passed = ticks.wrapping_sub(then);
    (passed < MAX_TICKS).then(|| nanoseconds + scaled(passed, rate))
}

fn scaled(ticks: u64, rate: u64) -> u64 {
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

/// Asks the clock, and notes what it says unless another thread is just noting it.
fn asked() -> u64 {
    let before = ticks();
    let nanoseconds = sys::clock();
    let call = ticks().wrapping_sub(before);
    if call > MAX_CALL {
        return nanoseconds;
    }
    let ticks = before + call / 2;
    let version = VERSION.load(Ordering::Relaxed);
    if version & 1 != 0 || VERSION.compare_exchange(version, version + 1, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        return nanoseconds;
    }
    fence(Ordering::Release);
    let first = (FIRST_TICKS.load(Ordering::Relaxed), FIRST_NANOSECONDS.load(Ordering::Relaxed));
    let (span, span_ticks) = (nanoseconds.saturating_sub(first.1), ticks.saturating_sub(first.0));
    let is_due = span >= if RATE.load(Ordering::Relaxed) == 0 { MIN_SPAN } else { MAX_SPAN };
    if first.1 == 0 {
        FIRST_TICKS.store(ticks, Ordering::Relaxed);
        FIRST_NANOSECONDS.store(nanoseconds, Ordering::Relaxed);
    } else if is_due && span_ticks > 0 {
        RATE.store(((u128::from(span) << 32) / u128::from(span_ticks)) as u64, Ordering::Relaxed);
        if span >= MAX_SPAN {
            FIRST_TICKS.store(ticks, Ordering::Relaxed);
            FIRST_NANOSECONDS.store(nanoseconds, Ordering::Relaxed);
        }
    }
    TICKS.store(ticks, Ordering::Relaxed);
    NANOSECONDS.store(nanoseconds, Ordering::Relaxed);
    VERSION.store(version + 2, Ordering::Release);
    nanoseconds
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn the_time_is_the_kernels_and_never_goes_back() {
        let threads: Vec<_> = (0..3)
            .map(|_| {
                std::thread::spawn(|| {
                    let mut last = 0;
                    let end = sys::clock() + 200_000_000;
                    loop {
                        let (before, now, after) = (sys::clock(), now(), sys::clock());
                        assert!(now >= last, "{now} after {last}");
                        assert!(now + 100_000 >= before, "{} ns behind", before - now);
                        assert!(now <= after + 100_000, "{} ns ahead", now - after);
                        last = now;
                        if now > end {
                            return;
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no thread saw a wrong time"));
    }

    #[test]
    fn ticks_are_scaled() {
        assert_eq!(scaled(3000, (1u64 << 32) / 3), 999);
        assert_eq!(scaled(MAX_TICKS, 1 << 32), MAX_TICKS);
    }
}
