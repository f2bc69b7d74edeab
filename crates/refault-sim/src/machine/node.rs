//! Memory nodes: frames, watermarks, and the state of background reclaim (spec: overview §3, §4.2).
//!
//! A node is one zone. Invariant: `free <= managed`; every resident page takes one frame of one node.
//!
//! Kernel: `__setup_per_zone_wmarks`, `__zone_watermark_ok` in `mm/page_alloc.c`; `pgdat_balanced` in `mm/vmscan.c`.
//!
//! ```
//! use refault_sim::machine::node::Watermarks;
//!
//! let marks = Watermarks::of(1 << 18, 1 << 18, 0, 10); // a node of 1 GiB with the kernel's defaults
//! assert!(marks.min < marks.low && marks.low < marks.high);
//! ```

/// Free-page marks of a node, in pages. A mark is met when *more* pages than it are free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below it, only reclaim itself may allocate.
    pub min: u64,
    /// Below it, background reclaim is woken.
    pub low: u64,
    /// Background reclaim stops above it.
    pub high: u64,
}

impl Watermarks {
    /// The marks of a node of `managed` pages among `total` pages of all nodes.
    ///
    /// `min_free_kbytes` 0 means the kernel's default for the size; `scale_factor` is `watermark_scale_factor`, in
    /// ten-thousandths.
    pub fn of(managed: u64, total: u64, min_free_kbytes: u64, scale_factor: u64) -> Watermarks {
        let kbytes = if min_free_kbytes == 0 { (total * 4 * 16).isqrt().clamp(128, 262_144) } else { min_free_kbytes };
        let pages_min = kbytes / 4;
        let min = pages_min * managed / total.max(1);
        let step = (min / 4).max(managed * scale_factor / 10_000);
        Watermarks { min, low: min + step, high: min + 2 * step }
    }
}

/// A memory node and its background reclaimer.
#[derive(Clone, Debug)]
pub struct Node {
    /// Frames it has.
    pub managed: u64,
    /// Frames that hold nothing.
    pub free: u64,
    /// Its marks.
    pub watermarks: Watermarks,
    /// Balance attempts in a row that reclaimed nothing; at 16 the node is given up until something is freed.
    pub failures: u32,
}

/// Failures at which background reclaim gives up.
pub const HOPELESS: u32 = 16;

impl Node {
    /// An empty node.
    pub fn new(managed: u64, watermarks: Watermarks) -> Node {
        Node { managed, free: managed, watermarks, failures: 0 }
    }

    /// Whether background reclaim may sleep.
    #[inline]
    pub fn is_balanced(&self) -> bool {
        self.free > self.watermarks.high
    }

    /// Whether background reclaim has given up.
    #[inline]
    pub fn is_hopeless(&self) -> bool {
        self.failures >= HOPELESS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_of_four_gibibytes_as_specified() {
        let marks = Watermarks::of(1_048_576, 1_048_576, 0, 10);
        assert_eq!(marks, Watermarks { min: 2048, low: 3096, high: 4144 });
    }

    #[test]
    fn two_nodes_share_the_reserve() {
        let marks = Watermarks::of(524_288, 1_048_576, 0, 10);
        assert_eq!(marks.min, 1024);
    }
}
