//! How a pager is made.

use std::time::Duration;

use refault_store::TieredStoreOptions;
use refault_store::codec::Codec;

use crate::accessed::AccessSource;
#[cfg(doc)]
use crate::pager::Pager;

/// Who resolves faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMode {
    /// Threads of the pager. Right for memory that system calls touch too. Some 10 µs per fault where the handler runs
    /// on the processor of the faulting thread.
    Handler {
        /// Threads, from 1 to 64.
        threads: usize,
    },
    /// The faulting thread, in a SIGBUS handler: some 5 µs per fault. A system call that touches a page which is not
    /// resident fails with EFAULT. So this is for callers that know their system calls and hold what they give them
    /// ([`Pager::pin_user_pages`]).
    InThread,
}

/// What happens when nothing can be evicted because the store is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    /// The budget is exceeded, which is counted and said once.
    Grow,
    /// The faulting thread waits until memory is discarded.
    Block,
    /// The program ends with a message.
    End,
}

/// How a pager is made.
#[derive(Clone, Debug)]
pub struct PagerOptions {
    /// The policy, `name{key=value,…}`: any that needs only accessed bits
    /// ([`refault_core::policy::FrontEnd::Pager`]).
    pub policy: String,
    /// The stores.
    pub store: TieredStoreOptions,
    /// Bytes of addresses that regions can be cut from.
    pub address_space: u64,
    /// Who resolves faults.
    pub fault_mode: FaultMode,
    /// How accesses are found out.
    pub access_source: AccessSource,
    /// What happens when the store is full.
    pub on_full: OnFull,
    /// Successors of sequential faults come along. Off where accesses are recorded: a page brought in is not one
    /// accessed.
    pub bring_successors: bool,
    /// Pages that stay in the pool for longer are stored one step colder in the background: compressed harder (zstd),
    /// then in the file. `None`: never.
    pub demote_after: Option<Duration>,
    /// The budget bounds what is stored in memory too, not only what is resident: as the pool of compressed pages
    /// grows, less may be resident, down to a 16th. The pool grows a moment before it is counted, so that the sum may
    /// be beyond the budget by what one round of eviction stores. The pager then has its budget alone: it sets the
    /// maximum.
    pub count_stored: bool,
}

impl Default for PagerOptions {
    fn default() -> PagerOptions {
        PagerOptions {
            policy: crate::DEFAULT_POLICY.to_owned(),
            store: TieredStoreOptions { pool_limit: 16 << 30, codec: Codec::Words, file: None },
            address_space: 64 << 30,
            fault_mode: FaultMode::Handler { threads: 1 },
            access_source: AccessSource::DropAndScan,
            on_full: OnFull::Grow,
            demote_after: Some(Duration::from_secs(30)),
            bring_successors: true,
            count_stored: false,
        }
    }
}
