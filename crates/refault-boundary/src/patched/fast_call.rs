//! A thread's call from a patched site.

/// Bytes of them at most, in the compacted form.
const VECTOR_BYTES: usize = 2560;

#[repr(C, align(64))]
pub(super) struct Vectors([u8; VECTOR_BYTES]);

/// What a thread's block has for this.
#[repr(C)]
pub(crate) struct Fast {
    /// The block's own address: what tells it from whatever else `%gs` may point to.
    pub(super) block: usize,
    /// See the module.
    pub(super) phase: u32,
    /// The call holds memory: there is something to do after it.
    pub(super) is_holding: u32,
    /// The call is made, and the thread goes to its stub only to have its signals opened.
    pub(super) is_finished: u32,
    /// A signal or a wish for room waits: the thread leaves by a caught call.
    pub(super) detour: u32,
    /// The `syscall` of the stub.
    pub(super) slow: usize,
    pub(super) number: usize,
    pub(super) arguments: [usize; 6],
    pub(super) stack: usize,
    pub(super) result: i64,
    /// Signals that were sent again and are blocked until the thread has left.
    pub(super) postponed: u64,
    pub(super) wants_room: bool,
    pub(super) vectors: Vectors,
}

impl Fast {
    /// For a new thread of the block.
    pub(crate) fn begin(&mut self, block: usize) {
        (self.block, self.phase, self.is_finished, self.detour) = (block, 0, 0, 0);
        (self.postponed, self.wants_room) = (0, false);
    }
}
