//! What the agent has for each thread of the program: a stack for its handlers, and at its top what it knows of the
//! thread.
//!
//! To the kernel, the stack is the thread's alternate signal stack. So a handler finds its thread from its own stack
//! pointer: no thread-locals. What the program believes to be its alternate stack is kept here.
//!
//! Invariants: a block belongs to one thread from its clone to its end; blocks are aligned to their size; the lowest
//! page of a block is no memory. Cost: 256 KiB of addresses per thread, some 12 KiB of memory.

use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use refault_linux::calls::{SYS_mprotect, SYS_sigaltstack};
use refault_linux::lock::Lock;
use refault_linux::{PAGE, sys};

use crate::files::progress::Progress;
use crate::frame::{AlternateStack, Context, Frame, Info, register};
use crate::memory::area;
use crate::patched::fast_call::Fast;
use crate::process::environment::Environment;
use crate::signals::sets::Actions;

/// Bytes of a block.
pub(crate) const BLOCK: usize = 256 << 10;
/// Where a block's [`Thread`] lies in it.
pub(crate) const TOP: usize = BLOCK - size_of::<Thread>();
/// Blocks that are mapped at once.
const GROUP: usize = 16;

const EINTR: u64 = -4i64 as u64;

/// Whether a call that waits was ended to let its thread make room, and is about to be made again or was. A signal of
/// the program's that comes before it is would have found it waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remade {
    No,
    /// Signals end it: it is never made again behind them.
    Ends,
    /// It is made again behind signals whose actions say so.
    Restarts,
}

impl Remade {
    /// After a request that has interrupted a call at these two instructions.
    pub(crate) fn after_a_request(self, context: &Context, call: u64, after: u64) -> Remade {
        let registers = &context.registers;
        if registers[register::RIP] == after && registers[register::RAX] == EINTR {
            Remade::Ends
        } else if registers[register::RIP] == call && was_made(context, after) && self == Remade::No {
            // It was made, and the kernel has put it back before its instruction.
            Remade::Restarts
        } else {
            self
        }
    }

    /// Whether a call was made that is at its instruction.
    pub(crate) fn was_made(self, context: &Context, after: u64) -> bool {
        self != Remade::No || was_made(context, after)
    }

    /// What the call says, when a signal with these flags of its action comes right before it is made again. `None`: it
    /// is made again behind the signal.
    pub(crate) fn said(self, restarts: bool) -> Option<u64> {
        let ends = match self {
            Remade::No => false,
            Remade::Ends => true,
            Remade::Restarts => !restarts,
        };
        ends.then_some(EINTR)
    }
}

/// Whether a call was made that the kernel has put back before its instruction: `syscall` leaves in RCX what follows,
/// and for `int 0x80` nothing says it, so it is taken for made.
fn was_made(context: &Context, after: u64) -> bool {
    let is_gate = crate::frame::Window::of(after as usize).is_some_and(|window| window.is_gate);
    is_gate || context.registers[register::RCX] == after
}

/// A signal that is put aside until a call is over, and the timer that ends the call ([`crate::signals::early`]).
pub(crate) struct Early {
    pub(crate) info: Info,
    pub(crate) timer: i32,
}

/// See the module.
#[repr(C)]
pub(crate) struct Thread {
    /// 1 while a thread has the block. First, because the last instructions of a thread clear it.
    pub(crate) used: AtomicU32,
    /// The alternate stack that the program has asked for.
    pub(crate) alternate: AlternateStack,
    /// While a call waits with the program's signals open: the frame of the interrupted program.
    pub(crate) waiting: *mut Frame,
    /// What the agent was last entered with from the program, by a signal: true as long as the thread is on its stack
    /// here.
    pub(crate) entered: *const Context,
    /// The mask with which it waits, where the call brings one.
    pub(crate) waiting_mask: Option<u64>,
    /// How far a call has come that is made in pieces.
    pub(crate) progress: Progress,
    /// Its call came by `int 0x80`: its number is one of 32 bits.
    pub(crate) is_of_32_bits: bool,
    /// It was asked for memory in a call that had done something, which is over for that reason.
    pub(crate) was_asked: bool,
    /// It was asked while its call waited, which is made again for that reason.
    pub(crate) remade: Remade,
    /// The buffers of such a call.
    pub(crate) vectors: Vec<[usize; 2]>,
    /// When a call that waits for a number of milliseconds began to, in nanoseconds.
    pub(crate) began: u64,
    /// Signals that the program has blocked and that stay open for the agent.
    pub(crate) hidden: u64,
    /// Those of them that were sent meanwhile, and what each said: they wait until the program opens them.
    pub(crate) kept: AtomicU64,
    pub(crate) kept_infos: [Info; 3],
    /// What came right before its call was made.
    pub(crate) early: Option<Early>,
    /// Ranges that the call in progress needs.
    pub(crate) holds: Vec<(usize, usize)>,
    /// What the program starts with that it is about to become.
    pub(crate) environment: Environment,
    /// The program's signal actions: shared by all threads but a child that shares memory only.
    pub(crate) actions: *mut Actions,
    /// It shares the memory of its parent and is no thread of it.
    pub(crate) is_vm_child: bool,
    /// Its calls come to the agent.
    pub(crate) is_dispatched: bool,
    /// The head of its list of robust mutexes, or 0.
    pub(crate) robust: AtomicUsize,
    /// The block that was used before this one.
    before: *const Thread,
    /// The faults in a row that found their page there.
    pub(crate) spurious: (usize, u32),
    /// Its call from a patched site.
    pub(crate) fast: Fast,
}

static BLOCKS: Lock<Vec<usize>> = Lock::new(Vec::new());
/// Blocks that were ever used.
static TOUCHED_BLOCKS: AtomicUsize = AtomicUsize::new(0);
/// The block that was used last of those that ever were: the others follow by [`Thread::before`].
static NEWEST: AtomicPtr<Thread> = AtomicPtr::new(std::ptr::null_mut());
/// Bytes that handlers touch of a block.
const TOUCHED: usize = 24 << 10;

impl Thread {
    /// The thread on whose agent's stack an address lies.
    pub(crate) fn of(address: usize) -> &'static mut Thread {
        let block = address & !(BLOCK - 1);
        // SAFETY: handlers run on blocks only, and each thread uses its own.
        unsafe { &mut *Thread::top(block) }
    }

    /// Whether an address lies in a block.
    pub(crate) fn has_block(address: usize) -> bool {
        BLOCKS.lock().contains(&(address & !(BLOCK - 1)))
    }

    /// Whether an address lies in a block that a thread has, or has had. Takes no lock.
    pub(crate) fn was_given(address: usize) -> bool {
        let wanted = Thread::top(address & !(BLOCK - 1)).cast_const();
        let mut top: *const Thread = NEWEST.load(Ordering::Acquire);
        // SAFETY: as for [`Thread::each`].
        while let Some(thread) = unsafe { top.as_ref() } {
            if std::ptr::eq(thread, wanted) {
                return true;
            }
            top = thread.before;
        }
        false
    }

    fn top(block: usize) -> *mut Thread {
        (block + TOP) as *mut Thread
    }

    /// A block for a new thread; `None` without memory.
    pub(crate) fn new(actions: *mut Actions) -> Option<&'static mut Thread> {
        let mut blocks = BLOCKS.lock();
        for (index, block) in blocks.iter().enumerate() {
            // SAFETY: blocks are never unmapped, and their state is an atomic.
            let used = unsafe { &(*Thread::top(*block)).used };
            if used.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                if TOUCHED_BLOCKS.fetch_max(index + 1, Ordering::Relaxed) <= index {
                    // Only now: 16 of these would be a tenth of what a short program costs.
                    // SAFETY: the lowest page of a block that no thread has used yet.
                    unsafe { sys::call(SYS_mprotect, [*block, PAGE, 0, 0, 0, 0]) };
                    let top = Thread::top(*block);
                    // SAFETY: as above; the lock is held, so that none comes between.
                    unsafe { (*top).before = NEWEST.load(Ordering::Relaxed) };
                    NEWEST.store(top, Ordering::Release);
                }
                // SAFETY: it is ours now; what its last holder had is whole.
                let thread = unsafe { &mut *Thread::top(*block) };
                thread.begin(actions);
                return Some(thread);
            }
        }
        // What handlers leave on their stacks may be a key, and says nothing to a debugger: the area is in no core.
        let at = area::take((GROUP + 1) * BLOCK);
        if at == 0 {
            return None;
        }
        let first = at.next_multiple_of(BLOCK);
        blocks.extend((first..first + GROUP * BLOCK).step_by(BLOCK));
        drop(blocks);
        Thread::new(actions)
    }

    fn begin(&mut self, actions: *mut Actions) {
        self.alternate = AlternateStack { flags: 2, ..AlternateStack::default() };
        self.waiting = std::ptr::null_mut();
        self.entered = std::ptr::null();
        self.waiting_mask = None;
        self.early = None;
        self.robust.store(0, Ordering::Relaxed);
        self.progress = Progress::default();
        self.is_of_32_bits = false;
        self.hidden = 0;
        self.kept.store(0, Ordering::Relaxed);
        // SAFETY: a block that was never used is zeros, which is no vector: write without dropping what is there. One
        // that was used left an empty vector or one whose memory is few bytes.
        unsafe {
            std::ptr::write(&raw mut self.holds, Vec::new());
            std::ptr::write(&raw mut self.vectors, Vec::new());
            std::ptr::write(&raw mut self.environment, Environment::default());
        }
        self.actions = actions;
        self.is_vm_child = false;
        self.is_dispatched = true;
        self.spurious = (0, 0);
        let block = std::ptr::from_ref(self) as usize & !(BLOCK - 1);
        self.fast.begin(block);
    }

    /// The stack: start and bytes.
    pub(crate) fn stack(&self) -> (usize, usize) {
        let top = std::ptr::from_ref(self) as usize;
        let block = top & !(BLOCK - 1);
        (block + PAGE, top - block - PAGE)
    }

    /// Whether what was interrupted is the agent: it alone runs on the block's stack.
    pub(crate) fn is_at_work(&self, context: &Context) -> bool {
        let (start, bytes) = self.stack();
        (start..=start + bytes).contains(&(context.registers[register::RSP] as usize))
    }

    /// Where the frame is that the thread entered the agent with whose stack pointer this is; `None` if it is on no
    /// stack of the agent's.
    pub(crate) fn entered_with(pointer: usize) -> Option<usize> {
        let block = pointer & !(BLOCK - 1);
        // SAFETY: blocks are never unmapped; the field is a word that its thread writes whole.
        let entered = Thread::has_block(pointer)
            .then(|| unsafe { std::ptr::read_volatile(&raw const (*Thread::top(block)).entered) })?;
        (block..block + BLOCK).contains(&(entered as usize)).then_some(entered as usize)
    }

    /// Bytes of memory that the blocks take, by what handlers touch of them as a rule.
    pub(crate) fn bytes() -> usize {
        TOUCHED_BLOCKS.load(Ordering::Relaxed) * TOUCHED
    }

    /// Gives the block to others. The thread is not on it any more.
    pub(crate) fn end(&mut self) {
        self.holds = Vec::new();
        self.vectors = Vec::new();
        self.environment = Environment::default();
        self.used.store(0, Ordering::Release);
    }

    /// Whether the process has no other thread of the program's.
    pub(crate) fn is_last(&self) -> bool {
        let tops = BLOCKS.lock();
        let others = tops.iter().map(|block| Thread::top(*block)).filter(|top| !std::ptr::eq(*top, self));
        // SAFETY: blocks are never unmapped, and their state is an atomic.
        others.into_iter().all(|top| unsafe { (*top).used.load(Ordering::Relaxed) } == 0)
    }

    /// Shows each thread, without a lock: some may begin or end meanwhile.
    pub(crate) fn each(visit: &mut dyn FnMut(&Thread)) {
        let mut top: *const Thread = NEWEST.load(Ordering::Acquire);
        // SAFETY: blocks are never unmapped, and what they are found by is written before they are found.
        while let Some(thread) = unsafe { top.as_ref() } {
            if thread.used.load(Ordering::Relaxed) != 0 {
                visit(thread);
            }
            top = thread.before;
        }
    }

    /// In a forked child only this thread is left, and no signal is pending for it.
    pub(crate) fn only(&self) {
        self.kept.store(0, Ordering::Relaxed);
        self.robust.store(0, Ordering::Relaxed);
        for block in BLOCKS.lock().iter() {
            let top = Thread::top(*block);
            if !std::ptr::eq(top, self) {
                // SAFETY: blocks are never unmapped; its thread does not exist here.
                unsafe { (*top).used.store(0, Ordering::Relaxed) };
            }
        }
    }

    /// No thread takes or gives blocks while the result lives: for the moment of a fork.
    pub(crate) fn stand_still() -> refault_linux::lock::Held<'static, Vec<usize>> {
        BLOCKS.lock()
    }

    /// Makes the block's stack the alternate stack of the thread that calls.
    pub(crate) fn install_stack(&self) {
        let (start, bytes) = self.stack();
        let stack = AlternateStack { start, flags: 0, unused: 0, bytes };
        // SAFETY: the stack is this thread's own.
        unsafe { sys::call(SYS_sigaltstack, [&raw const stack as usize, 0, 0, 0, 0, 0]) };
    }

    /// The signal actions of the program.
    pub(crate) fn actions(&mut self) -> &mut Actions {
        // SAFETY: actions live as long as the process; concurrent changes are made by whole words, as they would be in
        // the kernel.
        unsafe { &mut *self.actions }
    }
}
