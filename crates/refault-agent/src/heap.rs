//! The agent's own heap: memory that the pager does not manage.
//!
//! A dlmalloc over one reserved range, so that an address says whose it is. It serves the agent's Rust code, what libc
//! allocates in the agent's threads ([`own_this_thread`]), and what the program allocates before the agent has started.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

use dlmalloc::{Allocator, Dlmalloc};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;

use crate::stacks;

/// Bytes reserved at most. Takes memory only where it is used; the policy's tables of a 64 GiB arena need about 1 GiB of it.
const MOST_RESERVED: u64 = 16 << 30;

/// Core dumps walk what was ever used, in steps of this many bytes, and not the whole reservation.
const DUMP_STEP: usize = 16 << 20;

static BASE: AtomicUsize = AtomicUsize::new(0);
/// Bytes reserved.
static RESERVED: AtomicUsize = AtomicUsize::new(0);
static USED: AtomicUsize = AtomicUsize::new(0);

struct Range;

// SAFETY: hands out disjoint, zeroed, never reused pieces of one private mapping; it is only called under the heap's lock.
unsafe impl Allocator for Range {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        let mut base = BASE.load(Ordering::Acquire);
        if base == 0 {
            let reserved = crate::limits::heap_bytes(MOST_RESERVED) as usize;
            // SAFETY: a fresh mapping at an address that the kernel chooses.
            let mapped = unsafe {
                rustix::mm::mmap_anonymous(
                    std::ptr::null_mut(),
                    reserved,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )
            };
            let Ok(mapped) = mapped else { crate::limits::end_without_addresses() };
            base = mapped as usize;
            // SAFETY: advice on the mapping just made that changes no contents. Refusal costs time when a core is dumped.
            let _ = unsafe { rustix::mm::madvise(mapped, reserved, Advice::LinuxDontDump) };
            RESERVED.store(reserved, Ordering::Release);
            BASE.store(base, Ordering::Release);
        }
        let size = size.next_multiple_of(64 << 10);
        let start = USED.load(Ordering::Relaxed);
        if start + size > RESERVED.load(Ordering::Relaxed) {
            return (std::ptr::null_mut(), 0, 0);
        }
        USED.store(start + size, Ordering::Relaxed);
        let (dumped, end) = (start.next_multiple_of(DUMP_STEP), (start + size).next_multiple_of(DUMP_STEP));
        if dumped < end {
            // SAFETY: as above; the steps divide the reservation.
            let _ = unsafe { rustix::mm::madvise((base + dumped) as *mut _, end - dumped, Advice::LinuxDoDump) };
        }
        ((base + start) as *mut u8, size, 0)
    }
    fn remap(&self, _ptr: *mut u8, _old: usize, _new: usize, _can_move: bool) -> *mut u8 {
        std::ptr::null_mut()
    }
    fn free_part(&self, _ptr: *mut u8, _old: usize, _new: usize) -> bool {
        false
    }
    fn free(&self, _ptr: *mut u8, _size: usize) -> bool {
        false
    }
    fn can_release_part(&self, _flags: u32) -> bool {
        false
    }
    fn allocates_zeros(&self) -> bool {
        true
    }
    fn page_size(&self) -> usize {
        4096
    }
}

struct Locked {
    /// 0 free, 1 held, 2 held with waiters.
    lock: AtomicU32,
    heap: UnsafeCell<Dlmalloc<Range>>,
}

// SAFETY: the heap is used only under the lock.
unsafe impl Sync for Locked {}

static LOCKED: Locked = Locked { lock: AtomicU32::new(0), heap: UnsafeCell::new(Dlmalloc::new_with_allocator(Range)) };

/// Takes the heap's lock; also around a fork, so that the child's heap is whole.
pub(crate) fn lock() {
    if LOCKED.lock.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        return;
    }
    while LOCKED.lock.swap(2, Ordering::Acquire) != 0 {
        let _ = futex::wait(&LOCKED.lock, futex::Flags::PRIVATE, 2, None);
    }
}

/// Gives it back.
pub(crate) fn unlock() {
    if LOCKED.lock.swap(0, Ordering::Release) == 2 {
        let _ = futex::wake(&LOCKED.lock, futex::Flags::PRIVATE, 1);
    }
}

fn with_heap<T>(work: impl FnOnce(&mut Dlmalloc<Range>) -> T) -> T {
    // Whoever serves faults may want memory meanwhile: a signal handler that waits for one now would wait for itself, and so would
    // this thread on its own evicted stack.
    let _signals = crate::block_signals();
    match crate::started() {
        Some(agent) => stacks::off_managed(agent, move || with_heap_here(work)),
        None => with_heap_here(work),
    }
}

fn with_heap_here<T>(work: impl FnOnce(&mut Dlmalloc<Range>) -> T) -> T {
    lock();
    // SAFETY: the lock is held, and `work` does not come back here.
    let result = work(unsafe { &mut *LOCKED.heap.get() });
    unlock();
    result
}

/// Whether an address lies in the agent's heap.
pub(crate) fn owns(address: usize) -> bool {
    let base = BASE.load(Ordering::Acquire);
    base != 0 && address.wrapping_sub(base) < RESERVED.load(Ordering::Relaxed)
}

/// Allocates like `malloc`, with an alignment.
pub(crate) fn allocate(size: usize, align: usize) -> *mut u8 {
    // The size is kept in front of the block for `usable_size`.
    let align = align.max(16);
    // SAFETY: size and alignment are valid for dlmalloc (a power of two, checked by the callers).
    let block = with_heap(|heap| unsafe { heap.malloc(size.saturating_add(align), align) });
    if block.is_null() {
        return block;
    }
    // SAFETY: the block has `align` (at least 16) bytes in front of what is returned.
    unsafe {
        let user = block.add(align);
        user.cast::<[usize; 2]>().sub(1).write([size, align]);
        user
    }
}

/// The size that was asked for.
///
/// # Safety
/// The pointer came from [`allocate`] and was not freed.
pub(crate) unsafe fn size(pointer: *mut u8) -> usize {
    // SAFETY: written by `allocate`.
    unsafe { pointer.cast::<[usize; 2]>().sub(1).read()[0] }
}

/// Frees what [`allocate`] returned.
///
/// # Safety
/// The pointer came from [`allocate`], was not freed, and is not used any more.
pub(crate) unsafe fn free(pointer: *mut u8) {
    // SAFETY: written by `allocate`; the block starts `align` bytes before.
    unsafe {
        let [size, align] = pointer.cast::<[usize; 2]>().sub(1).read();
        with_heap(|heap| heap.free(pointer.sub(align), size + align, align));
    }
}

/// The agent's Rust code allocates here.
pub(crate) struct AgentHeap;

// SAFETY: dlmalloc under a lock; sizes and alignments are passed through unchanged.
unsafe impl GlobalAlloc for AgentHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: a layout's size and alignment are valid.
        with_heap(|heap| unsafe { heap.malloc(layout.size(), layout.align()) })
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: promised by the caller.
        with_heap(|heap| unsafe { heap.free(pointer, layout.size(), layout.align()) });
    }
}

/// The agent's threads: what they allocate (thread-local tables of libc, above all) must never be managed, because they touch
/// it while they serve faults.
static OWN_THREADS: [AtomicUsize; 32] = [const { AtomicUsize::new(0) }; 32];
static OWN_COUNT: AtomicUsize = AtomicUsize::new(0);
/// The kernel's ids of the same threads.
static OWN_IDS: [AtomicI32; 32] = [const { AtomicI32::new(0) }; 32];

/// Says that this thread is one of the agent's, for ever.
pub(crate) fn own_this_thread() {
    let free = OWN_THREADS
        .iter()
        .position(|slot| slot.compare_exchange(0, this_thread(), Ordering::SeqCst, Ordering::SeqCst).is_ok());
    let Some(free) = free else { crate::end("the agent has more threads than it has room for") };
    crate::libc_state::forget_this_thread();
    OWN_IDS[free].store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
    OWN_COUNT.fetch_max(free + 1, Ordering::SeqCst);
}

/// The kernel's ids of the agent's threads.
pub(crate) fn own_thread_ids() -> impl Iterator<Item = i32> {
    OWN_IDS[..OWN_COUNT.load(Ordering::SeqCst)].iter().map(|id| id.load(Ordering::SeqCst)).filter(|id| *id != 0)
}

/// Threads of the program that behave like the agent's own for a moment; 0: a free place.
static FOR_A_MOMENT: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];
/// How many there are, so that nobody looks at the places in vain.
static MOMENTS: AtomicUsize = AtomicUsize::new(0);

/// While it lives, what this thread allocates is not managed: it is needed where nobody may serve faults.
pub(crate) struct OwnForAMoment {
    /// `None`: this thread is already one of the agent's own.
    place: Option<usize>,
}

impl OwnForAMoment {
    pub(crate) fn begin() -> OwnForAMoment {
        if is_own_thread() {
            return OwnForAMoment { place: None };
        }
        MOMENTS.fetch_add(1, Ordering::SeqCst);
        let take =
            |place: &AtomicUsize| place.compare_exchange(0, this_thread(), Ordering::SeqCst, Ordering::SeqCst).is_ok();
        loop {
            // More threads at once than places: the others are done soon.
            match FOR_A_MOMENT.iter().position(take) {
                Some(place) => return OwnForAMoment { place: Some(place) },
                None => std::thread::yield_now(),
            }
        }
    }
}

impl Drop for OwnForAMoment {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            FOR_A_MOMENT[place].store(0, Ordering::SeqCst);
            MOMENTS.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// In a forked child none of them runs.
pub(crate) fn disown_threads() {
    stacks::forget();
    OWN_COUNT.store(0, Ordering::SeqCst);
    MOMENTS.store(0, Ordering::SeqCst);
    FOR_A_MOMENT.iter().for_each(|place| place.store(0, Ordering::SeqCst));
    OWN_THREADS.iter().for_each(|slot| slot.store(0, Ordering::SeqCst));
    OWN_IDS.iter().for_each(|slot| slot.store(0, Ordering::SeqCst));
}

/// Whether this is one of the agent's threads, or behaves like one for a moment.
pub(crate) fn is_own_thread() -> bool {
    let this = this_thread();
    let is_this = |place: &AtomicUsize| place.load(Ordering::Relaxed) == this;
    if MOMENTS.load(Ordering::Relaxed) != 0 && FOR_A_MOMENT.iter().any(is_this) {
        return true;
    }
    OWN_THREADS[..OWN_COUNT.load(Ordering::Relaxed)].iter().any(is_this)
}

fn this_thread() -> usize {
    // SAFETY: always succeeds.
    unsafe { libc::pthread_self() as usize }
}
