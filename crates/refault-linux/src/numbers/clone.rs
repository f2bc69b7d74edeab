//! What a child shares with its parent: the flags of `clone` and `clone3`, one row each.

/// A flag of `clone` or `clone3`.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// Its name.
    pub name: &'static str,
    /// Its bit.
    pub bit: u64,
    /// Whether `clone` takes it too, whose flags have 32 bits.
    pub by_clone: bool,
    /// What it asks for.
    pub asks: &'static str,
}

macro_rules! flags {
    ($($name:ident = $bit:literal $calls:ident $asks:literal,)*) => {
        $(#[doc = $asks] pub const $name: u64 = $bit;)*
        /// All of them. The lowest byte of `clone`'s flags is the signal of the child's end, but for
        /// [`CLONE_NEWTIME`], which `clone3` takes there.
        pub const FLAGS: &[Flag] =
            &[$(Flag { name: stringify!($name), bit: $bit, by_clone: flags!(@$calls), asks: $asks },)*];
    };
    (@both) => { true };
    (@clone3) => { false };
}

flags! {
    CLONE_NEWTIME = 0x80 clone3 "A namespace of clocks of its own.",
    CLONE_VM = 0x100 both "One memory for both.",
    CLONE_FS = 0x200 both "One root, working directory and umask for both.",
    CLONE_FILES = 0x400 both "One table of descriptors for both.",
    CLONE_SIGHAND = 0x800 both "One table of signal actions for both; needs CLONE_VM.",
    CLONE_PIDFD = 0x1000 both "A descriptor of the child for the parent.",
    CLONE_PTRACE = 0x2000 both "Who traces the parent traces the child.",
    CLONE_VFORK = 0x4000 both "The parent waits until the child ends or executes a program.",
    CLONE_PARENT = 0x8000 both "The child has its parent's parent.",
    CLONE_THREAD = 0x1_0000 both "A thread of the same process; needs CLONE_SIGHAND.",
    CLONE_NEWNS = 0x2_0000 both "A namespace of mounts of its own.",
    CLONE_SYSVSEM = 0x4_0000 both "One list of undo values of semaphores for both.",
    CLONE_SETTLS = 0x8_0000 both "A thread pointer of its own.",
    CLONE_PARENT_SETTID = 0x10_0000 both "The child's number is written to the parent's memory.",
    CLONE_CHILD_CLEARTID = 0x20_0000 both "The child's number is cleared in its memory when it ends.",
    CLONE_DETACHED = 0x40_0000 both "Nothing any more; clone3 refuses it.",
    CLONE_UNTRACED = 0x80_0000 both "Who traces the parent cannot make the kernel trace the child.",
    CLONE_CHILD_SETTID = 0x100_0000 both "The child's number is written to its memory.",
    CLONE_NEWCGROUP = 0x200_0000 both "A namespace of control groups of its own.",
    CLONE_NEWUTS = 0x400_0000 both "A namespace of host names of its own.",
    CLONE_NEWIPC = 0x800_0000 both "A namespace of System V objects of its own.",
    CLONE_NEWUSER = 0x1000_0000 both "A namespace of users of its own.",
    CLONE_NEWPID = 0x2000_0000 both "A namespace of process numbers of its own.",
    CLONE_NEWNET = 0x4000_0000 both "A namespace of networks of its own.",
    CLONE_IO = 0x8000_0000 both "One context of block I/O for both.",
    CLONE_CLEAR_SIGHAND = 0x1_0000_0000 clone3 "The child handles no signal; what is ignored stays ignored.",
    CLONE_INTO_CGROUP = 0x2_0000_0000 clone3 "The child begins in the control group of a descriptor.",
    CLONE_AUTOREAP = 0x4_0000_0000 clone3 "The child needs no wait.",
    CLONE_NNP = 0x8_0000_0000 clone3 "The child cannot get new privileges.",
    CLONE_PIDFD_AUTOKILL = 0x10_0000_0000 clone3 "The child ends when its descriptor is closed.",
    CLONE_EMPTY_MNTNS = 0x20_0000_0000 clone3 "A namespace of mounts with nothing but a root.",
}

/// Of the flags of `clone`: the signal of the child's end.
pub const CSIGNAL: u64 = 0xff;
