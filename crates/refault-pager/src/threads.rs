//! The pager's threads: handlers, which wait for faults, the evictor, which keeps a reserve, the reader
//! ([`crate::read_ahead`]), and the keeper of the descriptor ([`keeper`]).
//!
//! All signals are blocked in them (but SIGBUS where faults are served in the thread). A program's signal handler could
//! touch managed memory, and a thread that serves faults must never fault. A panic in one of them ends the program with
//! a message: a hang would be worse.
//!
//! A handler blocks in `read` rather than polling. A lone one stays with the thread that faults ([`crate::affinity`]).

mod keeper;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::thread::futex;

pub(crate) use self::keeper::{CLOSED, Keeper};

use crate::affinity::HandlerAffinity;
use crate::demote::{Round, TICK};
use crate::fault_kind::FaultKind;
use crate::fault_scratch::FaultScratch;
use crate::options::FaultMode;
use crate::pager::Inner;
use crate::signals::BlockedSignals;
use crate::uffd::Message;

/// Messages read at once.
const MESSAGES: usize = 16;

/// Starts all threads of a pager. Also in a child after a fork, where none of the parent's run.
pub(crate) fn start(inner: &Arc<Inner>) -> io::Result<()> {
    let mut threads = inner.threads.lock().expect("invariant: nothing panics under this lock");
    let signals = BlockedSignals::new(inner.options.fault_mode);
    inner.uffd.set_blocking(false)?;
    let handlers = match inner.options.fault_mode {
        FaultMode::Handler { threads } => threads.clamp(1, MAX_HANDLERS),
        FaultMode::InThread => {
            crate::in_thread::register(inner);
            0
        }
    };
    // Returns only when all threads run, so that what a thread does first is done before memory is managed.
    let running = Arc::new(AtomicUsize::new(0));
    let hello = |running: &AtomicUsize| {
        prefer();
        running.fetch_add(1, Ordering::Release);
    };
    for _ in 0..handlers {
        let (inner, running) = (inner.clone(), running.clone());
        let worker = FaultScratch::new();
        let body = move || {
            hello(&running);
            drop(running);
            end_on_panic(|| handle(&inner, handlers == 1, worker));
        };
        threads.push(std::thread::Builder::new().name("refault-handler".to_owned()).spawn(body)?);
    }
    let (evictor, evictor_runs) = (inner.clone(), running.clone());
    let worker = FaultScratch::new();
    let body = move || {
        hello(&evictor_runs);
        drop(evictor_runs);
        end_on_panic(|| keep_reserve(&evictor, worker));
    };
    threads.push(std::thread::Builder::new().name("refault-evictor".to_owned()).spawn(body)?);
    let reads_ahead = inner.reads_ahead();
    if reads_ahead {
        let (reader, reader_runs) = (inner.clone(), running.clone());
        let worker = FaultScratch::new();
        let body = move || {
            hello(&reader_runs);
            drop(reader_runs);
            end_on_panic(|| reader.keep_reading(worker));
        };
        threads.push(std::thread::Builder::new().name("refault-reader".to_owned()).spawn(body)?);
    }
    let (keeping, keeper_runs) = (inner.clone(), running.clone());
    let body = move || {
        let kept = keeper::Kept { keeper: &keeping.keeper, uffd: &keeping.uffd, stopping: &keeping.stopping };
        let last = (1..=RESERVED_PAGES).map(|from_end| keeping.arena.address(keeping.arena.pages() - from_end));
        let hello = || {
            keeper_runs.fetch_add(1, Ordering::Release);
        };
        end_on_panic(|| kept.keep(hello, last));
    };
    threads.push(std::thread::Builder::new().name("refault-keeper".to_owned()).spawn(body)?);
    serve_until(inner, || running.load(Ordering::Acquire) == handlers + 2 + usize::from(reads_ahead));
    inner.uffd.set_blocking(true)?;
    drop(signals);
    Ok(())
}

/// Serves faults in this thread until all others run. The C library touches the program's memory when a thread starts
/// (the locale's tables, for one). In the child of a fork that memory may be evicted while no handler runs yet.
fn serve_until(inner: &Inner, all_run: impl Fn() -> bool) {
    let mut messages = [Message::EMPTY; MESSAGES];
    let mut worker = FaultScratch::new();
    while !all_run() {
        let Ok(count) = inner.uffd.read(&mut messages) else {
            std::thread::sleep(std::time::Duration::from_micros(50));
            continue;
        };
        for fault in messages[..count].iter().filter_map(Message::fault) {
            if let Some(page) = inner.arena.page_at(fault.address) {
                let _gate = inner.enter();
                inner.fault(page, Some(fault.address), fault.write, &mut worker);
            }
        }
    }
}

/// Asks the scheduler to prefer this thread: what it does is short and others wait for it. A high priority needs
/// permission; without it there are short slices: since Linux 6.12 a thread that wakes with a shorter slice preempts
/// one with a longer slice.
fn prefer() {
    /// `struct sched_attr` in its first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    const SLICE_NS: u64 = 100_000;
    const NICE: i32 = -3;
    // SAFETY: reads the nice value of this thread.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    for nice in [nice.min(NICE), nice] {
        let attributes = Attributes {
            size: size_of::<Attributes>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags: 0,
            nice,
            priority: 0,
            runtime: SLICE_NS,
            deadline: 0,
            period: 0,
        };
        // SAFETY: the structure is the one this call takes; it concerns this thread only.
        if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } == 0 {
            return;
        }
    }
}

/// Ends all threads and waits for them.
pub(crate) fn stop(inner: &Arc<Inner>) {
    inner.stopping.store(true, Ordering::SeqCst);
    wake_evictor(inner);
    inner.read_ahead.wake();
    let threads = std::mem::take(&mut *inner.threads.lock().expect("invariant: nothing panics under this lock"));
    if let FaultMode::Handler { threads: handlers } = inner.options.fault_mode {
        for index in 0..handlers.clamp(1, MAX_HANDLERS) {
            // A handler leaves its `read` only for a message, so it gets one: a fault on a page kept for that.
            let page = inner.arena.pages() - 1 - index as u32;
            // SAFETY: the last pages of the arena are never handed out; a handler that sees the stop maps this one.
            unsafe { (inner.arena.address(page) as *const u8).read_volatile() };
        }
    } else {
        crate::in_thread::unregister(inner);
    }
    inner.keeper.stop();
    for thread in threads {
        let _ = thread.join();
    }
}

fn handle(inner: &Inner, alone: bool, mut worker: FaultScratch) {
    let mut messages = [Message::EMPTY; MESSAGES];
    let mut affinity = HandlerAffinity::new(alone);
    loop {
        let count = match inner.uffd.read(&mut messages) {
            Ok(count) => count,
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
            // Only until all threads run.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
                std::thread::sleep(std::time::Duration::from_micros(50));
                continue;
            }
            Err(error) if crate::uffd::is_closed(&error) => return end_if_touched(inner),
            Err(error) => crate::report::end_for("reading fault messages", &error),
        };
        for fault in messages[..count].iter().filter_map(Message::fault) {
            let start = Instant::now();
            let Some(page) = inner.arena.page_at(fault.address) else { continue };
            if inner.stopping.load(Ordering::SeqCst) && page >= inner.arena.pages() - RESERVED_PAGES {
                let address = inner.arena.address(page);
                match inner.uffd.zero(address, refault_store::PAGE_SIZE) {
                    Err(error) if crate::uffd::is_closed(&error) => return end_if_touched(inner),
                    Err(_) => drop(inner.uffd.wake(address, refault_store::PAGE_SIZE)),
                    Ok(()) => {}
                }
                // Whatever interrupts the waiting thread makes it fault again, and another handler hears of that.
                let bit = 1 << (inner.arena.pages() - 1 - page);
                if inner.stopped.fetch_or(bit, Ordering::SeqCst) & bit == 0 {
                    return;
                }
                continue;
            }
            let origin = FaultKind::from(inner.word(page).load());
            {
                let _gate = inner.enter();
                inner.fault(page, Some(fault.address), fault.write, &mut worker);
            }
            inner.fault_latency.record(origin, start.elapsed());
            affinity.saw(fault.thread, start);
        }
    }
}

/// What is left for a handler once the program has closed the descriptors.
fn end_if_touched(inner: &Inner) {
    if inner.keeper.sees_a_fault() {
        crate::report::end(CLOSED);
    }
}

/// Pages at the end of an arena that no region gets: one a handler, to end it with.
pub(crate) const RESERVED_PAGES: u32 = u64::BITS;
/// So no more handlers than that.
const MAX_HANDLERS: usize = RESERVED_PAGES as usize;

fn keep_reserve(inner: &Arc<Inner>, mut worker: FaultScratch) {
    let mut fruitless = 0;
    let mut round = Round::default();
    while !inner.stopping.load(Ordering::SeqCst) {
        let freed = {
            let _gate = inner.enter();
            inner.count_stored();
            let (budget, room) = inner.budget.tightest();
            if room >= 2 * inner.reserve() {
                None
            } else {
                let freed = budget.victim().map_or(0, |victim| victim.reclaim(inner.reclaim_goal(), &mut worker));
                inner.note_oldest_birth();
                Some(freed)
            }
        };
        // Between two rounds, or all at once while there is room.
        let drops = {
            let _gate = inner.enter();
            inner.drop_some()
        };
        match freed {
            // No progress: longer and longer pauses, up to 10 ms.
            Some(0) => {
                fruitless = (fruitless + 1).min(20);
                std::thread::sleep(std::time::Duration::from_micros(500 * fruitless));
            }
            Some(_) => fruitless = 0,
            None if drops => {}
            None => {
                inner.evictor_signal.store(0, Ordering::SeqCst);
                // A thread that charged between the look and the store is seen here; later ones find the signal down.
                let is_idle = inner.budget.tightest().1 >= inner.reserve();
                if is_idle && !inner.stopping.load(Ordering::SeqCst) {
                    let demotes = inner.options.demote_after.filter(|_| inner.store.usage().pool_pages > 0);
                    let tick = rustix::fs::Timespec { tv_sec: 0, tv_nsec: TICK.as_nanos() as i64 };
                    let timeout = demotes.map(|_| &tick);
                    let woken = futex::wait(&inner.evictor_signal, futex::Flags::PRIVATE, 0, timeout);
                    if let (Err(rustix::io::Errno::TIMEDOUT), Some(after)) = (woken, demotes) {
                        let _gate = inner.enter();
                        inner.demote_some(after, &mut round, &mut worker);
                    }
                }
            }
        }
    }
}

/// Lets the evictor work. Costs an atomic load while it already does.
pub(crate) fn wake_evictor(inner: &Inner) {
    if inner.evictor_signal.load(Ordering::SeqCst) == 0 && inner.evictor_signal.swap(1, Ordering::SeqCst) == 0 {
        let _ = futex::wake(&inner.evictor_signal, futex::Flags::PRIVATE, 1);
    }
}

fn end_on_panic(body: impl FnOnce()) {
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
        crate::report::end("a thread of the pager died; without it the program would hang");
    }
}
