//! Memory under a budget.
//!
//! A [`Region`] is plain memory with a stable address whose resident part stays within a [`Budget`]. What does not fit
//! is compressed or written to a file ([`refault_store`]) and comes back when it is touched; a policy of
//! [`refault_core`] decides what goes. Faults are served with userfaultfd, by threads of the pager or in the faulting
//! thread itself ([`FaultMode`]).
//!
//! ```text
//! program ── touch ──▶ kernel ── message ──▶ handler ── read ──▶ store
//!                        ▲                      │ report            ▲
//!                        └── copy, wake ────────┤                   │ compress, write
//!                                               ▼                   │
//!                                   policy ── victims ──▶ evictor ──┘
//! ```
//!
//! Sequences of faults bring what follows along, and a thread of its own reads ahead of them ([`read_ahead`]).
//!
//! Sequences of faults bring along what follows them, and where handlers serve faults a thread of its own reads ahead.
//!
//! Invariants: no write is lost, whatever is evicted when; a page that cannot be brought back raises SIGBUS where it is
//! touched, never zeros or old contents; nothing is allocated and no lock is held across compression or I/O while a
//! fault waits; no thread of the pager touches managed memory.
//!
//! ```no_run
//! use refault_pager::{Budget, Pager, PagerOptions};
//!
//! // 64 MiB stay resident, whatever the regions hold; the rest is compressed.
//! let budget = Budget::new(64 << 20);
//! let pager = Pager::new(budget, PagerOptions::default())?;
//! println!("accesses are found by {:?}", pager.access_source());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod accessed;
mod affinity;
mod arena;
mod at_fork;
mod budget;
mod copies;
mod demote;
mod descriptor;
mod distance;
mod engine;
mod evict;
mod exact_accesses;
mod fault;
mod fault_kind;
mod fault_scratch;
mod fork;
mod fork_gate;
mod in_thread;
pub mod kernel_gives;
mod latency;
mod mlock;
mod options;
pub mod pagemap;
mod pager;
mod pending_sigbus;
mod pin_slots;
mod policies;
mod pressure;
pub mod probe;
mod proc_stat;
mod pte_lock;
mod ranges;
mod read_ahead;
mod region;
mod report;
mod signals;
mod state;
mod streams;
mod table;
mod threads;
pub mod uffd;
mod user_buffer;
mod zap;

mod sync {
    //! What the state word and the pin slots are made of; models in `tests` put other atomics here.
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
}

pub use accessed::AccessSource;
pub use budget::{Budget, BudgetBounds};
pub use fault_kind::FaultKind;
pub use fork::ForkTicket;
pub use latency::{Counts as HistogramCounts, Latencies};
pub use options::{FaultMode, OnFull, PagerOptions};
pub use pager::{Pager, PagerError};
pub use policies::{DEFAULT_POLICY, check_policy};
pub use refault_store::PAGE_SIZE;
pub use region::{Hint, Region};
pub use report::{FaultTimes, Report};
pub use signals::BlockedSignals;
pub use user_buffer::{PinGuard, UserBuffer};
