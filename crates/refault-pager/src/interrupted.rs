//! A thread that a SIGBUS has interrupted at an access to memory: its registers and its code.
//!
//! Invariant: what is carried out is the instruction that has faulted: the bytes that it accesses begin where the processor says
//! that the fault was. Elsewhere than on x86-64 no instruction is known and every page comes in.

use refault_store::Page;

pub(crate) use here::{Interrupted, allow_unaligned, prepare};

#[cfg(target_arch = "x86_64")]
mod here {
    use std::sync::atomic::{AtomicBool, Ordering};

    use refault_store::PAGE_SIZE;

    use super::Page;
    use crate::instruction::{Instruction, LONGEST, Registers, decode};

    /// Where general registers are in a context, by their number in instructions.
    const GENERAL: [i32; 16] = [
        libc::REG_RAX,
        libc::REG_RCX,
        libc::REG_RDX,
        libc::REG_RBX,
        libc::REG_RSP,
        libc::REG_RBP,
        libc::REG_RSI,
        libc::REG_RDI,
        libc::REG_R8,
        libc::REG_R9,
        libc::REG_R10,
        libc::REG_R11,
        libc::REG_R12,
        libc::REG_R13,
        libc::REG_R14,
        libc::REG_R15,
    ];

    const PAGE_FAULT: i64 = 14;
    /// Bit of a page fault's code: it was an instruction that was to be read.
    const OF_CODE: i64 = 16;
    /// Flags of a thread that steps through itself, or that does without unaligned accesses: the processor has more to do for
    /// it than the instruction.
    const WATCHED: i64 = 1 << 8 | UNALIGNED;
    const UNALIGNED: i64 = 1 << 18;
    /// The flag by which the instruction that faulted, when it is repeated, does not stop at a breakpoint that it has stopped at.
    const RESUMES: i64 = 1 << 16;
    const OF_A_WRITE: i64 = 2;
    /// The selector of 64-bit code.
    const LONG_MODE: i64 = 0x33;

    /// Code may be protected by keys, and signal handlers may not read what is.
    static HAS_KEYS: AtomicBool = AtomicBool::new(false);

    /// Finds out what must be known before the first fault.
    pub(crate) fn prepare() {
        const OSPKE: u32 = 1 << 4;
        let highest = std::arch::x86_64::__cpuid(0).eax;
        let keys = highest >= 7 && std::arch::x86_64::__cpuid_count(7, 0).ecx & OSPKE != 0;
        HAS_KEYS.store(keys, Ordering::Relaxed);
    }

    /// The registers that the kernel puts back when the handler returns.
    struct Context<'a>(&'a mut libc::ucontext_t);

    impl Context<'_> {
        fn raw(&self, register: i32) -> i64 {
            self.0.uc_mcontext.gregs[register as usize]
        }
    }

    impl Registers for Context<'_> {
        fn general(&self, number: u8) -> u64 {
            self.raw(GENERAL[usize::from(number)]) as u64
        }
        fn set_general(&mut self, number: u8, value: u64) {
            self.0.uc_mcontext.gregs[GENERAL[usize::from(number)] as usize] = value as i64;
        }
        fn instruction(&self) -> u64 {
            self.raw(libc::REG_RIP) as u64
        }
        fn set_instruction(&mut self, address: u64) {
            self.0.uc_mcontext.gregs[libc::REG_RIP as usize] = address as i64;
        }
        fn flags(&self) -> u64 {
            self.raw(libc::REG_EFL) as u64
        }
        fn set_flags(&mut self, flags: u64) {
            self.0.uc_mcontext.gregs[libc::REG_EFL as usize] = flags as i64;
        }
        fn set_vector(&mut self, number: u8, value: [u8; 16]) -> bool {
            // SAFETY: null, or the state that the kernel has put on this handler's stack and puts back.
            let Some(state) = (unsafe { self.0.uc_mcontext.fpregs.as_mut() }) else { return false };
            for (element, bytes) in state._xmm[usize::from(number)].element.iter_mut().zip(value.chunks_exact(4)) {
                *element = u32::from_le_bytes(bytes.try_into().expect("invariant: four bytes"));
            }
            true
        }
    }

    /// An instruction that waits for its bytes.
    pub(crate) struct Interrupted<'a> {
        context: Context<'a>,
        instruction: Instruction,
        /// Where its bytes lie in their page.
        offset: usize,
    }

    impl Interrupted<'_> {
        /// The instruction that has faulted at `address`; `None` if it is not one that can be carried out here.
        ///
        /// # Safety
        /// `context` is what the kernel has given to the handler of a SIGBUS, and nobody else uses it.
        pub(crate) unsafe fn new(context: *mut libc::c_void, address: usize) -> Option<Self> {
            // SAFETY: promised by the caller.
            let context = Context(unsafe { &mut *context.cast() });
            let is_data = context.raw(libc::REG_TRAPNO) == PAGE_FAULT
                && context.raw(libc::REG_ERR) & OF_CODE == 0
                && context.raw(libc::REG_EFL) & WATCHED == 0
                && context.raw(libc::REG_CSGSFS) & 0xffff == LONG_MODE;
            if !is_data {
                return None;
            }
            // What comes behind the page may not be there.
            let at = context.instruction() as usize;
            let mut code = [0; LONGEST];
            let code = &mut code[..LONGEST.min(PAGE_SIZE - at % PAGE_SIZE)];
            // SAFETY: the thread is executing this page.
            if !unsafe { read_code(at, code) } {
                return None;
            }
            let instruction = decode(code)?;
            let offset = address % PAGE_SIZE;
            let is_it = instruction.address(&context) == address as u64
                && offset + instruction.bytes() <= PAGE_SIZE
                && instruction.writes() == (context.raw(libc::REG_ERR) & OF_A_WRITE != 0);
            is_it.then_some(Interrupted { context, instruction, offset })
        }

        pub(crate) fn writes(&self) -> bool {
            self.instruction.writes()
        }

        /// A number that is mostly another for another instruction of the program, and for one that writes zero: where a list ends it is
        /// walked, elsewhere an item is taken out of it, by the same instruction.
        pub(crate) fn hash(&self) -> u32 {
            let written = self.instruction.written(&self.context);
            let zero = self.writes() && written[..self.instruction.bytes()].iter().all(|byte| *byte == 0);
            let signature = self.context.instruction() << 1 | u64::from(zero);
            (signature.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32
        }

        /// Gives one that reads the bytes of its page, and ends it. False if it cannot use them: then nothing is done.
        pub(crate) fn read(&mut self, page: &Page) -> bool {
            let bytes = &page.0[self.offset..self.offset + self.instruction.bytes()];
            let done = self.instruction.read(bytes, &mut self.context);
            if done {
                self.resume();
            }
            done
        }

        /// Writes what one that writes has for its page.
        pub(crate) fn write(&self, page: &mut Page) {
            let bytes = self.instruction.bytes();
            page.0[self.offset..self.offset + bytes].copy_from_slice(&self.instruction.written(&self.context)[..bytes]);
        }

        /// Ends one whose write was done.
        pub(crate) fn end(&mut self) {
            self.instruction.end(&mut self.context);
            self.resume();
        }

        fn resume(&mut self) {
            let flags = self.context.flags() & !(RESUMES as u64);
            self.context.set_flags(flags);
        }
    }

    /// Lets the handler of a signal access memory as it likes, although the thread that it has interrupted must not: handlers
    /// begin with that flag, and a fault of the handler's own would be one of the pager's.
    ///
    /// # Safety
    /// `context` is what the kernel has given to the handler.
    pub(crate) unsafe fn allow_unaligned(context: *mut libc::c_void) {
        // SAFETY: promised by the caller; the flag is this thread's and has no other effect.
        unsafe {
            if (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] & UNALIGNED != 0 {
                std::arch::asm!("pushfq", "and dword ptr [rsp], {keep}", "popfq", keep = const !(UNALIGNED as i32));
            }
        }
    }

    /// # Safety
    /// The bytes belong to a page that the interrupted thread is executing.
    unsafe fn read_code(at: usize, code: &mut [u8]) -> bool {
        if !HAS_KEYS.load(Ordering::Relaxed) {
            // SAFETY: executable memory is readable where there are no keys. (It may be evicted, and comes in then.)
            unsafe { std::ptr::copy_nonoverlapping(at as *const u8, code.as_mut_ptr(), code.len()) };
            return true;
        }
        let to = libc::iovec { iov_base: code.as_mut_ptr().cast(), iov_len: code.len() };
        let from = libc::iovec { iov_base: at as *mut _, iov_len: code.len() };
        // By the thread's id: the process's is that of its first thread, which may have ended.
        // SAFETY: both lists hold one range, and the first is a live buffer.
        let read = unsafe { libc::process_vm_readv(libc::gettid(), &to, 1, &from, 1, 0) };
        read == code.len() as isize
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod here {
    use std::convert::Infallible;
    use std::marker::PhantomData;

    use super::Page;

    pub(crate) fn prepare() {}

    pub(crate) unsafe fn allow_unaligned(_: *mut libc::c_void) {}

    /// Of this there is none.
    pub(crate) struct Interrupted<'a>(Infallible, PhantomData<&'a ()>);

    impl Interrupted<'_> {
        pub(crate) unsafe fn new(_: *mut libc::c_void, _: usize) -> Option<Self> {
            None
        }

        pub(crate) fn writes(&self) -> bool {
            match self.0 {}
        }

        pub(crate) fn hash(&self) -> u32 {
            match self.0 {}
        }

        pub(crate) fn read(&mut self, _: &Page) -> bool {
            match self.0 {}
        }

        pub(crate) fn write(&self, _: &mut Page) {
            match self.0 {}
        }

        pub(crate) fn end(&mut self) {
            match self.0 {}
        }
    }
}
