//! Counters under the names of `/proc/vmstat`, counted when spec: overview §6 says.
//!
//! Kernel: `enum vm_event_item` in `include/linux/vm_event_item.h`; `vmstat_text` in `mm/vmstat.c`.
//!
//! ```
//! use refault_core::Counters;
//!
//! let mut counters = Counters { pgscan: 64, pgsteal: 32, ..Counters::default() };
//! let earlier = counters;
//! counters.add(&Counters { pgsteal: 8, ..Counters::default() });
//! assert_eq!(counters.since(&earlier).pgsteal, 8);
//! assert!(Counters::NAMES.contains(&"workingset_refault_anon"));
//! ```

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Event counts since the start. All are pages unless said otherwise. One struct for all front-ends.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// The names in the order of [`Counters::values`]: the columns of every table.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// The values in the order of [`Counters::NAMES`].
            pub fn values(&self) -> [u64; Self::NAMES.len()] { [$(self.$name),*] }

            /// Sets the counter of this name; false if there is none.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)*
                    _ => return false,
                }
                true
            }

            /// Adds `other` to each counter: a front-end's own counts and its policy's make one row.
            pub fn add(&mut self, other: &Counters) { $(self.$name += other.$name;)* }

            /// What happened between `earlier` and now.
            pub fn since(&self, earlier: &Counters) -> Counters {
                Counters { $($name: self.$name - earlier.$name,)* }
            }
        }
    };
}

counters! {
    /// Page faults that had to start I/O.
    pgmajfault,
    /// Anonymous pages brought back whose slot still held a shadow entry.
    workingset_refault_anon,
    /// File pages brought back whose slot still held a shadow entry.
    workingset_refault_file,
    /// Anonymous refaults judged close (classic) or recent (multi-gen LRU).
    workingset_activate_anon,
    /// File refaults judged close (classic) or recent (multi-gen LRU).
    workingset_activate_file,
    /// Activated anonymous refaults of pages that had been active before.
    workingset_restore_anon,
    /// Activated file refaults of pages that had been active before.
    workingset_restore_file,
    /// Nodes of a file's tree that reclaim freed, each with the shadow entries of up to 64 pages.
    workingset_nodereclaim,
    /// Pages examined for eviction.
    pgscan,
    /// Anonymous part of `pgscan`.
    pgscan_anon,
    /// File part of `pgscan`.
    pgscan_file,
    /// Pages evicted.
    pgsteal,
    /// Anonymous part of `pgsteal`.
    pgsteal_anon,
    /// File part of `pgsteal`.
    pgsteal_file,
    /// Moves to the active list (classic) or to the youngest generation while being examined (multi-gen LRU).
    pgactivate,
    /// Moves from the active to the inactive list.
    pgdeactivate,
    /// Active pages examined (classic); pages sorted instead of isolated (multi-gen LRU).
    pgrefill,
    /// Pages moved to the tail when their write ended.
    pgrotated,
    /// Pages read from swap.
    pswpin,
    /// Pages written to swap.
    pswpout,
    /// File pages read from their file.
    file_reads,
    /// File pages written to their file by reclaim.
    nr_vmscan_write,
    /// Dirty file pages that reclaim came upon and left to be freed when their write ends.
    nr_vmscan_immediate_reclaim,
    /// Pages passed over because they could not be isolated (multi-gen LRU).
    pgskip,
    /// Times the limit was hit and pages were reclaimed for it.
    limit_hits,
    /// Times the limit could not be kept: nothing could be evicted, and the page was let in all the same.
    limit_overruns,
    /// Pages moved by the aging of generations or found young by a page-table walk.
    walk_promoted,
    /// Page-table entries looked at by page-table walks.
    walk_entries,
    /// Neighbouring page-table entries looked at around a young one.
    look_around_entries,
    /// Pages whose reverse map was walked for a reference check.
    reference_checks,
    /// Generations created.
    generations_created,
    /// Evicted pages whose frame kept their contents until it was reused.
    pages_cached,
    /// Cached pages that came back before their frame was reused: no I/O.
    pages_reactivated,
    /// References served while the page stayed evicted: counted among the misses, although nothing is loaded or
    /// evicted.
    bypassed,
}
