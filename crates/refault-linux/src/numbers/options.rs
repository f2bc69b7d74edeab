//! What a process may be told about itself: options of `prctl` and `arch_prctl`, modes of filters, and the first request
//! of `ptrace`.

macro_rules! options {
    ($($name:ident = $number:literal $text:literal,)*) => {
        $(#[doc = $text] pub const $name: usize = $number;)*
    };
}

options! {
    PR_SET_NAME = 15 "The thread's name.",
    PR_SET_SECCOMP = 22 "A filter of system calls.",
    PR_SET_TSC = 26 "Whether the processor's counter can be read.",
    PR_SET_MM = 35 "Where the process's parts lie.",
    PR_SET_SYSCALL_USER_DISPATCH = 59 "Calls from outside a range of code raise SIGSYS.",
    PR_SCHED_CORE = 62 "With whom the process shares a core.",
    PR_SET_VMA = 0x5356_4d41 "The name of a mapping.",
    PR_GET_AUXV = 0x4155_5856 "What the kernel has told the program at its start.",
    ARCH_SET_GS = 0x1001 "The base of the gs register.",
    ARCH_GET_GS = 0x1004 "The same, asked for.",
    SECCOMP_MODE_FILTER = 2 "Of PR_SET_SECCOMP: a program decides.",
    SECCOMP_SET_MODE_STRICT = 0 "Of seccomp: few calls are allowed.",
    SECCOMP_SET_MODE_FILTER = 1 "Of seccomp: a program decides.",
    PTRACE_TRACEME = 0 "The parent traces this process.",
}
