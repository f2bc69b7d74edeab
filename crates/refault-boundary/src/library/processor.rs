//! Questions of the agent's own to the processor (`cpuid`), in a program that has forbidden itself to ask it.
//!
//! Libraries that the agent is made of ask at any time what the processor can do; the kernel answers with SIGSEGV then.
//! Cost: three calls per question.

use std::arch::x86_64::__cpuid_count;

use refault_linux::calls::SYS_arch_prctl;
use refault_linux::options::ARCH_SET_CPUID;
use refault_linux::sys;

use crate::frame::{self, Context, register};
use crate::user_dispatch;

/// The instruction.
const CPUID: u16 = u16::from_le_bytes([0x0f, 0xa2]);

/// Answers such a question in the processor's place. False if a fault was none.
pub(crate) fn answer(context: &mut Context) -> bool {
    use register::{RAX, RBX, RCX, RDX, RIP};
    let at = context.registers[RIP] as usize;
    if !user_dispatch::is_own_code(at) || frame::read::<u16>(at) != Some(CPUID) {
        return false;
    }
    let allow = |on: bool| {
        // SAFETY: says whether this thread may execute the instruction.
        unsafe { sys::call(SYS_arch_prctl, [ARCH_SET_CPUID, usize::from(on), 0, 0, 0, 0]) }
    };
    if allow(true) != 0 {
        return false;
    }
    let answer = __cpuid_count(context.registers[RAX] as u32, context.registers[RCX] as u32);
    allow(false);
    for (place, word) in [(RAX, answer.eax), (RBX, answer.ebx), (RCX, answer.ecx), (RDX, answer.edx)] {
        context.registers[place] = u64::from(word);
    }
    context.registers[RIP] += size_of::<u16>() as u64;
    true
}
