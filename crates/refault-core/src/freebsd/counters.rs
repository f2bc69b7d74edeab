//! Event counts under the names of `vmstat -s` (spec: freebsd §7).
//!
//! Kernel: `struct vmmeter` in `sys/sys/vmmeter.h`.

macro_rules! vm_counters {
    ($($(#[$doc:meta])* $name:ident = $label:literal,)*) => {
        /// Event counts since the start. The page daemon's are counted by the policy, those of faults, pagers and
        /// cached pages by the front-end.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct VmCounters { $($(#[$doc])* pub $name: u64,)* }

        impl VmCounters {
            /// Labels as they are printed, in the order of [`VmCounters::values`].
            pub const LABELS: &'static [&'static str] = &[$($label),*];

            /// The values in the order of [`VmCounters::LABELS`].
            pub fn values(&self) -> [u64; Self::LABELS.len()] { [$(self.$name),*] }

            /// Adds `other` to each count.
            pub fn add(&mut self, other: &VmCounters) { $(self.$name += other.$name;)* }

            /// What happened between `earlier` and now.
            pub fn since(&self, earlier: &VmCounters) -> VmCounters {
                VmCounters { $($name: self.$name - earlier.$name,)* }
            }
        }
    };
}

vm_counters! {
    /// Cached pages that came back to the same object and index.
    pages_reactivated = "pages reactivated",
    /// Pages cached.
    pages_cached = "pages cached",
    /// Read requests to swap.
    swap_pageins = "swap pager pageins",
    /// Pages of those.
    swap_pages_in = "swap pager pages paged in",
    /// Write requests to swap.
    swap_pageouts = "swap pager pageouts",
    /// Pages of those.
    swap_pages_out = "swap pager pages paged out",
    /// Read operations of files by faults.
    vnode_pageins = "vnode pager pageins",
    /// Pages of those.
    vnode_pages_in = "vnode pager pages paged in",
    /// Times the page daemon was woken, and passes after the first.
    page_daemon_wakeups = "page daemon wakeups",
    /// Pages the page daemon looked at on either queue.
    page_daemon_pages = "pages examined by the page daemon",
    /// Pages freed.
    pages_freed = "pages freed",
    /// Faults of any kind.
    faults = "total VM faults taken",
    /// Faults that called a pager.
    hard_faults = "page ins",
    /// Pages filled with zeros.
    zero_fills = "zero fill pages zeroed",
}
