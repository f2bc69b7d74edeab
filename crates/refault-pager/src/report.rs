//! What the pager says: counters for programs, lines for people.
//!
//! Lines go to standard error by one `write`, without allocating, because some are written while a fault waits.

use std::fmt::{Arguments, Write};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use refault_core::Counters;
use refault_core::policy::GenerationSize;
use refault_store::{PAGE_SIZE, Usage};

use crate::fault_kind::FaultKind;
use crate::latency::{Counts as HistogramCounts, Latencies};
use crate::pager::Pager;
use crate::table::PageTable;

/// A pager's state at one moment. Counts are pages since the start unless said otherwise.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes that may be resident, and stored in memory if that counts ([`crate::PagerOptions::count_stored`]).
    pub budget_bytes: u64,
    /// Bytes that are resident.
    pub resident_bytes: u64,
    /// What the stores hold and occupy.
    pub store: Usage,
    /// Bytes of bookkeeping: page table, shadows, policy.
    pub metadata_bytes: u64,
    /// Pages that ever belonged to a region.
    pub managed_pages: u64,
    /// The policy's counters, under their `/proc/vmstat` names, with the pager's swap I/O and major faults.
    pub counters: Counters,
    /// First touches, filled with zeros or from the region's file.
    pub zero_fills: u64,
    /// Pages brought in ahead of faults in sequence.
    pub prefetched: u64,
    /// Those of them that another thread read while the program went on.
    pub read_ahead: u64,
    /// First writes to pages that were equal to their slot.
    pub protect_faults: u64,
    /// Pages evicted without a write, because they were equal to their slot.
    pub clean_evictions: u64,
    /// Pages that had kept their copy in the pool and gave it up unwritten: they stayed for long, or the store was
    /// full.
    pub copies_given_up: u64,
    /// Times a fault had to evict because the reserve was used up.
    pub direct_reclaims: u64,
    /// Times the store refused a page.
    pub store_refusals: u64,
    /// Pages discarded by the program.
    pub discarded: u64,
    /// Pages whose contents did not come back.
    pub lost: u64,
    /// Pages of the ranges that count as cyclic now, because they were seen to be.
    pub cyclic_pages: u64,
    /// How often a range was found to be cyclic.
    pub cycles_found: u64,
    /// Times a stored page was stored one step colder.
    pub demoted: u64,
    /// Faults served, and how long they took.
    pub faults: FaultTimes,
    /// The same by what they had to do.
    pub faults_by_origin: [(FaultKind, FaultTimes); FaultKind::ALL.len()],
    /// Microseconds in which at least one thread waited for memory: a page that comes back, or room.
    pub some_us: u64,
    /// Refault distances of the followed pages, in pages: how much more memory would have kept each.
    pub distances: HistogramCounts,
    /// Generations, oldest first, empty for policies without.
    pub generations: Vec<GenerationSize>,
    /// The pager's clock, in the unit of the births of generations (nanoseconds).
    pub now: u64,
}

/// How long faults took: from reading a fault's message to its resolution. The wake-ups around it are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultTimes {
    /// How many.
    pub count: u64,
    /// Median, nanoseconds, to an eighth.
    pub p50_ns: u64,
    /// 99th percentile, nanoseconds, to an eighth.
    pub p99_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

impl FaultTimes {
    fn of(latencies: &Latencies) -> FaultTimes {
        FaultTimes {
            count: latencies.count(),
            p50_ns: latencies.quantile(0.5),
            p99_ns: latencies.quantile(0.99),
            max_ns: latencies.maximum(),
        }
    }
}

impl Pager {
    /// The state now. Allocates; takes the policy's lock for a moment.
    pub fn report(&self) -> Report {
        let inner = self.inner();
        let _gate = inner.enter();
        let (mut counters, generations, now, policy_bytes, cyclic_pages, cycles_found) = {
            let mut engine = inner.engine();
            inner.take_reports(&mut engine);
            let (pages, found) = engine
                .cyclic_scans()
                .map_or((0, 0), |scans| (scans.ranges().map(|(first, end)| end - first).sum(), scans.found()));
            (engine.counters(), engine.generations(), engine.now(), engine.metadata_bytes(), pages, found)
        };
        let counts = &inner.counts;
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        counters.limit_overruns += load(&counts.limit_overruns);
        counters.pgmajfault += load(&counts.fills);
        counters.pswpin += load(&counts.fills) + load(&counts.prefetched);
        counters.pswpout += load(&counts.stored);
        let managed_pages = u64::from(inner.arena.high());
        let fault_latency = inner.fault_latency.snapshot();
        Report {
            budget_bytes: inner.bound_bytes(),
            resident_bytes: inner.budget.used_bytes(),
            store: inner.store.usage(),
            metadata_bytes: policy_bytes as u64
                + managed_pages * PageTable::BYTES_PER_PAGE as u64
                + inner.distances.bytes(managed_pages)
                + inner.copies.bytes(),
            managed_pages,
            counters,
            zero_fills: load(&counts.zero_fills),
            prefetched: load(&counts.prefetched),
            read_ahead: load(&counts.read_ahead),
            protect_faults: load(&counts.protect_faults),
            clean_evictions: load(&counts.clean_evictions),
            copies_given_up: load(&counts.copies_given_up),
            direct_reclaims: load(&counts.direct_reclaims),
            store_refusals: load(&counts.refused),
            discarded: load(&counts.discarded),
            lost: load(&counts.lost),
            cyclic_pages,
            cycles_found,
            demoted: load(&counts.demoted),
            faults: FaultTimes::of(&fault_latency.all()),
            faults_by_origin: FaultKind::ALL.map(|origin| (origin, FaultTimes::of(fault_latency.of(origin)))),
            some_us: inner.pressure.some_ns() / 1000,
            distances: inner.distances.histogram().counts(),
            generations,
            now,
        }
    }

    /// Whether a thread waits for memory at this moment.
    pub fn is_stalled(&self) -> bool {
        self.inner().pressure.is_stalled()
    }

    /// One line for people: the policy, how accesses are found out, the stores.
    pub fn describe(&self) -> String {
        let inner = self.inner();
        format!(
            "{} over {} MiB, accesses by {:?}, {:?}, {}",
            inner.options.policy,
            (inner.budget.maximum_pages() * PAGE_SIZE as u64) >> 20,
            self.access_source(),
            inner.options.fault_mode,
            inner.store_description
        )
    }
}

struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let take = text.len().min(self.bytes.len() - 1 - self.len);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// Writes one line to standard error.
pub(crate) fn say(message: Arguments<'_>) {
    let mut line = Line { bytes: [0; 512], len: 0 };
    let _ = write!(line, "refault: {message}");
    line.bytes[line.len] = b'\n';
    let _ = rustix::io::write(rustix::stdio::stderr(), &line.bytes[..line.len + 1]);
}

/// Says why and ends the program at once.
pub(crate) fn end(message: &str) -> ! {
    end_with(format_args!("{message}"))
}

/// Ends the program, because the pager cannot go on: `what` failed.
pub(crate) fn end_for(what: &str, error: &io::Error) -> ! {
    if crate::uffd::is_closed(error) {
        // In a forked child that has closed what it does not know, `exec` follows.
        std::thread::sleep(PATIENCE);
        end(crate::threads::CLOSED)
    }
    end_with(format_args!("{what} failed: {}", refault_store::ErrorNumber::from(error)))
}

/// How long an `exec` may take to follow.
const PATIENCE: Duration = Duration::from_secs(1);

/// Says why and ends the program at once.
pub(crate) fn end_with(message: Arguments<'_>) -> ! {
    say(message);
    // The program may have a handler for that, which would touch memory that no thread brings in any more.
    crate::signals::reset(libc::SIGABRT);
    std::process::abort()
}
