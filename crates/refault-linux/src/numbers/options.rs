//! What a process may be told about itself: options of `prctl` and `arch_prctl`, modes of filters, and requests of
//! `ptrace`.

crate::numbers::constants! {
    usize;
    PR_SET_NAME = 15, "The thread's name.";
    PR_SET_SECCOMP = 22, "A filter of system calls.";
    PR_SET_TSC = 26, "Whether the processor's counter can be read.";
    PR_SET_MM = 35, "Where the process's parts lie.";
    PR_SET_SYSCALL_USER_DISPATCH = 59, "Calls from outside a range of code raise SIGSYS.";
    PR_SCHED_CORE = 62, "With whom the process shares a core.";
    PR_SET_VMA = 0x5356_4d41, "The name of a mapping.";
    PR_GET_AUXV = 0x4155_5856, "What the kernel has told the program at its start.";
    ARCH_SET_CPUID = 0x1012, "Whether the processor says what it can do.";
    ARCH_SET_GS = 0x1001, "The base of the gs register.";
    ARCH_GET_GS = 0x1004, "The same, asked for.";
    SECCOMP_MODE_FILTER = 2, "Of PR_SET_SECCOMP: a program decides.";
    SECCOMP_SET_MODE_STRICT = 0, "Of seccomp: few calls are allowed.";
    SECCOMP_SET_MODE_FILTER = 1, "Of seccomp: a program decides.";
    PTRACE_TRACEME = 0, "The parent traces this process.";
    PTRACE_GETREGS = 12, "The general registers.";
    PTRACE_ATTACH = 16, "A thread stops and is traced.";
    PTRACE_GETREGSET = 0x4204, "A set of registers, by a vector.";
    PTRACE_SETREGSET = 0x4205, "Sets one.";
    PTRACE_PEEKSIGINFO = 0x4209, "Signals that wait.";
    NT_PRSTATUS = 1, "The set that the general registers are.";
    PR_SYS_DISPATCH_OFF = 0, "Of PR_SET_SYSCALL_USER_DISPATCH: no calls.";
    PR_SYS_DISPATCH_ON = 1, "Of PR_SET_SYSCALL_USER_DISPATCH: those from outside a range.";
    AT_HWCAP2 = 26, "What a processor can do, second part: of what the kernel has told a program.";
    HWCAP2_FSGSBASE = 2, "Programs may set the bases of fs and gs.";
    AUDIT_ARCH_I386 = 0x4000_0003, "Of a call: by the gate of 32 bits.";
}
