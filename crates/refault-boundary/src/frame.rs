//! What the kernel leaves on the stack of a signal handler, and the few instructions that cannot be written in Rust.
//!
//! Source: the x86-64 kernel's signal frame and system-call convention.

use std::arch::global_asm;

use refault_linux::calls::{SYS_exit, SYS_rt_sigprocmask, SYS_rt_sigreturn};
use refault_linux::signals::{
    FP_XSTATE_MAGIC1, FPSTATE_BYTES, FPSTATE_LEGACY, FPSTATE_MAGIC, FPSTATE_MXCSR, MXCSR_DEFAULT, SET_BYTES, SI_QUEUE,
    SI_USER, SIG_SETMASK,
};

/// Places of registers in [`Context::registers`].
pub(crate) mod register {
    pub(crate) const R8: usize = 0;
    pub(crate) const R9: usize = 1;
    pub(crate) const R10: usize = 2;
    pub(crate) const R11: usize = 3;
    pub(crate) const R12: usize = 4;
    pub(crate) const R13: usize = 5;
    pub(crate) const R14: usize = 6;
    pub(crate) const R15: usize = 7;
    pub(crate) const RDI: usize = 8;
    pub(crate) const RSI: usize = 9;
    pub(crate) const RBP: usize = 10;
    pub(crate) const RBX: usize = 11;
    pub(crate) const RDX: usize = 12;
    pub(crate) const RAX: usize = 13;
    pub(crate) const RCX: usize = 14;
    pub(crate) const RSP: usize = 15;
    pub(crate) const RIP: usize = 16;
    pub(crate) const FLAGS: usize = 17;
    pub(crate) const ERROR: usize = 19;
}

/// Bytes of the vector state of any processor, and more.
pub(crate) const MAX_VECTOR_BYTES: usize = 64 << 10;
/// What its address is a multiple of.
pub(crate) const VECTORS_LIE_AT: usize = 64;

/// The instruction `syscall`, as a word, and its bytes. That of `int $0x80` has as many.
pub(crate) const SYSCALL: u16 = u16::from_le_bytes([0x0f, 0x05]);
pub(crate) const SYSCALL_BYTES: usize = size_of::<u16>();

/// Where a call's arguments are.
pub(crate) const ARGUMENTS: [usize; 6] =
    [register::RDI, register::RSI, register::RDX, register::R10, register::R8, register::R9];

/// An alternate stack, as `sigaltstack` has it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AlternateStack {
    pub(crate) start: usize,
    pub(crate) flags: u32,
    pub(crate) unused: u32,
    pub(crate) bytes: usize,
}

/// The interrupted thread.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(crate) flags: u64,
    pub(crate) link: u64,
    pub(crate) stack: AlternateStack,
    pub(crate) registers: [u64; 23],
    /// Floating-point and vector state, somewhere above.
    pub(crate) vectors: usize,
    pub(crate) reserved: [u64; 8],
    pub(crate) mask: u64,
}

/// What the signal says.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Info {
    pub(crate) signal: i32,
    pub(crate) error: i32,
    pub(crate) code: i32,
    pub(crate) pad: i32,
    pub(crate) address: usize,
    pub(crate) rest: [u64; 13],
}

impl Info {
    /// Whether a SIGSYS is the tree's request for room.
    pub(crate) fn asks_for_room(&self) -> bool {
        // Where the user's queue of signals is full, the kernel says neither what a signal is about nor who sent it.
        let is_nameless = self.code == SI_USER && self.address == 0;
        is_nameless || self.code == SI_QUEUE && self.rest[0] as usize == refault_paging::tree::MAKE_ROOM
    }
}

/// The whole, as it lies on the stack.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) restorer: usize,
    pub(crate) context: Context,
    pub(crate) info: Info,
}

const _: () = assert!(size_of::<Context>() == 304 && size_of::<Info>() == 128 && size_of::<Frame>() == 440);

impl Context {
    /// Bytes of the vector state, as the kernel says in it.
    pub(crate) fn vector_bytes(&self) -> usize {
        if self.vectors == 0 {
            return 0;
        }
        // SAFETY: the kernel wrote at least the first part there, in which it says what there is.
        let (magic, bytes) = unsafe {
            let at = |place: usize| ((self.vectors + place) as *const u32).read();
            (at(FPSTATE_MAGIC), at(FPSTATE_BYTES))
        };
        let all = (bytes as usize).clamp(FPSTATE_LEGACY, MAX_VECTOR_BYTES);
        if magic == FP_XSTATE_MAGIC1 { all } else { FPSTATE_LEGACY }
    }

    /// The vector state is that of a fresh thread.
    pub(crate) fn clear_vectors(&mut self) {
        if self.vector_bytes() > FPSTATE_LEGACY {
            // SAFETY: both lie in what there is; the header of the extended state, which says what of it is not as in a
            // fresh thread, follows the first part.
            unsafe {
                ((self.vectors + FPSTATE_LEGACY) as *mut u64).write(0);
                ((self.vectors + FPSTATE_MXCSR) as *mut u32).write(MXCSR_DEFAULT);
            }
        }
    }
}

global_asm!(
    ".text",
    ".globl refault_restorer, refault_resume, refault_waiting_call, refault_window_call, refault_window_after, refault_window_end",
    ".globl refault_gate_call, refault_gate_window_call, refault_gate_window_after, refault_gate_window_end",
    ".hidden refault_gate_call, refault_gate_window_call, refault_gate_window_after, refault_gate_window_end",
    ".globl refault_safe_copy, refault_safe_copy_end, refault_safe_copy_failed, refault_end_thread",
    ".hidden refault_restorer, refault_resume, refault_waiting_call, refault_window_call, refault_window_after, refault_window_end",
    ".hidden refault_safe_copy, refault_safe_copy_end, refault_safe_copy_failed, refault_end_thread",
    // Return from a handler.
    "refault_restorer:",
    "  mov ${rt_sigreturn}, %eax",
    "  syscall",
    "  ud2",
    // refault_resume(context): leave everything here and go on as the context says.
    "refault_resume:",
    "  mov %rdi, %rsp",
    "  mov ${rt_sigreturn}, %eax",
    "  syscall",
    "  ud2",
    // refault_waiting_call(number, &arguments, &mask, &all): makes a call with the program's signals open.
    "refault_waiting_call:",
    "  push %rbx",
    "  push %r12",
    "  push %r13",
    "  mov %rdi, %rbx",
    "  mov %rsi, %r12",
    "  mov %rcx, %r13",
    "  mov %rdx, %rsi",
    "  mov ${setmask}, %edi",
    "  xor %edx, %edx",
    "  mov ${set_bytes}, %r10d",
    "  mov ${rt_sigprocmask}, %eax",
    "  syscall",
    "  mov 0(%r12), %rdi",
    "  mov 8(%r12), %rsi",
    "  mov 16(%r12), %rdx",
    "  mov 24(%r12), %r10",
    "  mov 32(%r12), %r8",
    "  mov 40(%r12), %r9",
    "  mov %rbx, %rax",
    "refault_window_call:",
    "  syscall",
    "refault_window_after:",
    "  mov %rax, %r12",
    "  mov %r13, %rsi",
    "  mov ${setmask}, %edi",
    "  xor %edx, %edx",
    "  mov ${set_bytes}, %r10d",
    "  mov ${rt_sigprocmask}, %eax",
    "  syscall",
    "refault_window_end:",
    "  mov %r12, %rax",
    "  pop %r13",
    "  pop %r12",
    "  pop %rbx",
    "  ret",
    // refault_gate_call(number, &arguments, &mask, &all): the same for a call of 32 bits, by `int 0x80`.
    "refault_gate_call:",
    "  push %rbx",
    "  push %rbp",
    "  push %r12",
    "  push %r13",
    "  push %r14",
    "  mov %rdi, %r14",
    "  mov %rsi, %r12",
    "  mov %rcx, %r13",
    "  mov %rdx, %rsi",
    "  mov ${setmask}, %edi",
    "  xor %edx, %edx",
    "  mov ${set_bytes}, %r10d",
    "  mov ${rt_sigprocmask}, %eax",
    "  syscall",
    "  mov 0(%r12), %rbx",
    "  mov 8(%r12), %rcx",
    "  mov 16(%r12), %rdx",
    "  mov 24(%r12), %rsi",
    "  mov 32(%r12), %rdi",
    "  mov 40(%r12), %rbp",
    "  mov %r14, %rax",
    "refault_gate_window_call:",
    "  int $0x80",
    "refault_gate_window_after:",
    "  mov %rax, %r12",
    "  mov %r13, %rsi",
    "  mov ${setmask}, %edi",
    "  xor %edx, %edx",
    "  mov ${set_bytes}, %r10d",
    "  mov ${rt_sigprocmask}, %eax",
    "  syscall",
    "refault_gate_window_end:",
    "  mov %r12, %rax",
    "  pop %r14",
    "  pop %r13",
    "  pop %r12",
    "  pop %rbp",
    "  pop %rbx",
    "  ret",
    // refault_safe_copy(to, from, bytes): 0, or 1 if part of the memory is not there.
    "refault_safe_copy:",
    "  mov %rdx, %rcx",
    "  rep movsb",
    "refault_safe_copy_end:",
    "  xor %eax, %eax",
    "  ret",
    "refault_safe_copy_failed:",
    "  mov $1, %eax",
    "  ret",
    // refault_end_thread(&state, status): another thread may take the stack at once.
    "refault_end_thread:",
    "  mov %rdi, %rcx",
    "  mov %rsi, %rdi",
    "  movl $0, (%rcx)",
    "  mov ${exit}, %eax",
    "  syscall",
    "  ud2",
    rt_sigreturn = const SYS_rt_sigreturn,
    rt_sigprocmask = const SYS_rt_sigprocmask,
    setmask = const SIG_SETMASK,
    set_bytes = const SET_BYTES,
    exit = const SYS_exit,
    options(att_syntax)
);

unsafe extern "C" {
    pub(crate) fn refault_restorer();
    pub(crate) fn refault_resume(context: *const Context) -> !;
    pub(crate) fn refault_waiting_call(
        number: usize,
        arguments: *const [usize; 6],
        mask: *const u64,
        all: *const u64,
        thread: *mut u8,
    ) -> isize;
    pub(crate) fn refault_gate_call(
        number: usize,
        arguments: *const [usize; 6],
        mask: *const u64,
        all: *const u64,
        thread: *mut u8,
    ) -> isize;
    pub(crate) fn refault_gate_window_call();
    pub(crate) fn refault_gate_window_after();
    pub(crate) fn refault_gate_window_end();
    pub(crate) fn refault_window_call();
    pub(crate) fn refault_window_after();
    pub(crate) fn refault_window_end();
    pub(crate) fn refault_clone(number: usize, a: usize, b: usize, c: usize, d: usize, e: usize, child: usize)
    -> isize;
    pub(crate) fn refault_safe_copy(to: usize, from: usize, bytes: usize) -> i32;
    pub(crate) fn refault_safe_copy_end();
    pub(crate) fn refault_safe_copy_failed();
    pub(crate) fn refault_end_thread(state: *const u32, status: usize) -> !;
}

/// The instructions around a call that waits with the program's signals open: its beginning, the call, what follows,
/// and the end.
#[derive(Clone, Copy)]
pub(crate) struct Window {
    begin: usize,
    pub(crate) call: usize,
    pub(crate) after: usize,
    end: usize,
    /// It is of a call by `int 0x80`.
    pub(crate) is_gate: bool,
}

impl Window {
    /// The window in which an instruction is.
    pub(crate) fn of(instruction: usize) -> Option<Window> {
        let usual = Window {
            begin: refault_waiting_call as *const () as usize,
            call: refault_window_call as *const () as usize,
            after: refault_window_after as *const () as usize,
            end: refault_window_end as *const () as usize,
            is_gate: false,
        };
        let gate = Window {
            begin: refault_gate_call as *const () as usize,
            call: refault_gate_window_call as *const () as usize,
            after: refault_gate_window_after as *const () as usize,
            end: refault_gate_window_end as *const () as usize,
            is_gate: true,
        };
        [usual, gate].into_iter().find(|window| (window.begin..=window.end).contains(&instruction))
    }
}

/// Copies to or from the program's memory. False if part of it is not there.
pub(crate) fn copy(to: usize, from: usize, bytes: usize) -> bool {
    // SAFETY: a fault in the copy is found out by the signal handler and ends it.
    unsafe { refault_safe_copy(to, from, bytes) == 0 }
}

/// Reads a value of the program's.
pub(crate) fn read<T: Copy>(from: usize) -> Option<T> {
    let mut value = std::mem::MaybeUninit::<T>::uninit();
    // SAFETY: the types read are plain words, and all bytes were copied.
    copy(value.as_mut_ptr() as usize, from, size_of::<T>()).then(|| unsafe { value.assume_init() })
}

/// Writes a value to the program's memory.
pub(crate) fn write<T: Copy>(to: usize, value: &T) -> bool {
    copy(to, std::ptr::from_ref(value) as usize, size_of::<T>())
}

/// Reads vectors of a call (start and bytes), some at a time, and shows each. False if part of them is not there.
pub(crate) fn each_vector(vectors: usize, count: usize, mut visit: impl FnMut([usize; 2])) -> bool {
    const VECTOR: usize = size_of::<[usize; 2]>();
    let mut some = [[0usize; 2]; 8];
    for first in (0..count).step_by(some.len()) {
        let now = (count - first).min(some.len());
        if !copy(some.as_mut_ptr() as usize, vectors.wrapping_add(first * VECTOR), now * VECTOR) {
            return false;
        }
        some[..now].iter().for_each(|vector| visit(*vector));
    }
    true
}
