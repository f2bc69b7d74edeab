//! The unwinder that the standard library asks for, and that the agent never needs: so the library names no libgcc.
//!
//! The loader has one library fewer to find, map and relocate each time that a program is executed. A program that
//! unwinds (C++ exceptions, `pthread_cancel`, Rust's panics) has its own, loaded when it would be without the agent. A
//! panic of the agent's ends the process before anything is unwound (`start`); one that comes earlier finds no frames,
//! so that the standard library says so and aborts.
//!
//! Invariant: the names are hidden. No code outside the library sees them, and its frames have their own tables for
//! debuggers. Not in the crate's tests, which unwind.

use std::arch::global_asm;

/// `_URC_END_OF_STACK`: no frame catches it.
const END_OF_STACK: i32 = 5;

macro_rules! without_unwinding {
    ($($name:literal),* $(,)?) => {
        global_asm!(
            ".text",
            ".p2align 4",
            $(concat!(".globl ", $name), concat!(".hidden ", $name), concat!(".type ", $name, ", @function"), concat!($name, ":"),)*
            "  mov ${end}, %eax",
            "  ret",
            end = const END_OF_STACK,
            options(att_syntax),
        );
    };
}

without_unwinding!(
    "_Unwind_Backtrace",
    "_Unwind_DeleteException",
    "_Unwind_FindEnclosingFunction",
    "_Unwind_GetCFA",
    "_Unwind_GetDataRelBase",
    "_Unwind_GetGR",
    "_Unwind_GetIP",
    "_Unwind_GetIPInfo",
    "_Unwind_GetLanguageSpecificData",
    "_Unwind_GetRegionStart",
    "_Unwind_GetTextRelBase",
    "_Unwind_RaiseException",
    "_Unwind_SetGR",
    "_Unwind_SetIP",
);

// A landing pad goes on unwinding by it, and does not expect it to return: no landing pad is ever reached.
global_asm!(
    ".text",
    ".globl _Unwind_Resume",
    ".hidden _Unwind_Resume",
    ".type _Unwind_Resume, @function",
    "_Unwind_Resume:",
    "  ud2",
);
