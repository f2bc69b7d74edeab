//! What a row of the table says.

use refault_linux::sockets::{ADDRESS, MMSGHDR, MSGHDR, UIO_MAXIOV};

use crate::frame;

/// Bytes of an address of a socket at most.
pub(super) const NAME: usize = ADDRESS;

/// How a call is made, and what becomes of mappings and signals by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// The kernel makes it as it stands, with its memory held and the program's signals open.
    Kernel,
    /// The kernel makes it at once: it neither waits nor names memory.
    AtOnce,
    /// The kernel makes it; what is larger than may be held goes in pieces.
    Transfer,
    /// The kernel makes it, unless it is about a descriptor of the agent's.
    Descriptor,
    /// The kernel makes it for all descriptors of a range but the agent's.
    DescriptorRange,
    /// The kernel makes it; the agent's descriptors are left out of what it lists.
    Folder,
    /// The agent: the table of signal actions is its own.
    Actions,
    /// The agent: the mask of the interrupted program changes.
    Mask,
    /// The agent: what waits for the program, with what the agent has kept for it.
    Pending,
    /// The agent: the program's alternate stack is noted, the kernel's stays the agent's.
    AlternateStack,
    /// The agent: the program goes on as the frame on its stack says.
    Return,
    /// The agent and the kernel: mappings change, and the engine's table with them.
    Mapping,
    /// The agent and the kernel: mappings move.
    Moving,
    /// The agent and the kernel, where the advice is on this memory.
    Advice,
    /// The agent and the kernel: pages are locked or unlocked.
    Lock,
    /// The same for all memory.
    LockAll,
    /// The same, unlocking.
    UnlockAll,
    /// The kernel, and the agent notes whether what is readable is executable.
    Personality,
    /// The kernel makes it and writes to the memory that it names later: that stays where it is for good.
    WrittenLater,
    /// The agent: a process or thread begins, with what it shares.
    Child,
    /// The agent: another program takes this one's place.
    Program,
    /// The agent: a thread ends.
    ThreadEnd,
    /// The agent: the process ends.
    ProcessEnd,
    /// The kernel; for a child that borrows this memory the agent shows the program's registers.
    Trace,
    /// The kernel, but for what the agent stands on and for filters.
    ProcessOption,
    /// The kernel, but for events of a userfaultfd.
    Device,
    /// The kernel; pages of another process of the tree that are out are brought in by that one's agent.
    OtherMemory,
    /// The kernel, and the agent gives the gs register to the program.
    Register,
    /// The kernel, and children may have other numbers from then on.
    Namespace,
    /// Nothing makes it: ENOSYS. The kernel would fill buffers after the call has returned.
    Absent,
}

/// Whether a call that says EFAULT may be made again, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twice {
    /// It names no memory.
    NoMemory,
    /// Yes: it changes nothing but what it answers.
    Asks,
    /// Yes: the kernel copies what it is given before it does anything.
    CopiesFirst,
    /// No: what it hands over is gone.
    Takes,
    /// No: a part may have been done.
    DoesPart,
    /// No: it has made or changed something by the time it says so.
    SaysAfter,
    /// No: the kernel may have written over its arguments.
    WritesArguments,
}

impl Twice {
    /// Whether it may.
    pub(crate) const fn is_allowed(self) -> bool {
        matches!(self, Twice::Asks | Twice::CopiesFirst)
    }
}

/// How many bytes a piece of memory has. Arguments are counted from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bytes {
    Fixed(usize),
    /// As an argument says.
    Arg(usize),
    /// As an argument of 32 bits says, this much at most: beyond it the kernel refuses.
    UpTo(usize, usize),
    /// As an argument says, and these more.
    Plus(usize, usize),
    /// Elements of this size, as an argument counts them.
    Times(usize, usize),
    /// As a word of 32 bits says that an argument points to.
    At(usize),
    /// A bit for each of an argument.
    Bits(usize),
    /// A byte for each page of an argument's bytes.
    Pages(usize),
}

impl Bytes {
    /// Elements of an array that the kernel takes at most: the program's descriptors, as it limits them.
    const MAX_ELEMENTS: usize = 1 << 20;
    /// Bytes that a word in memory may ask for.
    const MAX_AT: usize = 1 << 24;

    fn of(self, arguments: &[usize; 6]) -> usize {
        match self {
            Bytes::Fixed(bytes) => bytes,
            Bytes::Arg(at) => arguments[at],
            Bytes::UpTo(at, most) => (arguments[at] as u32 as usize).min(most),
            Bytes::Plus(at, more) => arguments[at].min(Self::MAX_AT) + more,
            Bytes::Times(at, size) => arguments[at].min(Self::MAX_ELEMENTS) * size,
            Bytes::At(at) => frame::read::<u32>(arguments[at]).unwrap_or(0).min(Self::MAX_AT as u32) as usize,
            Bytes::Bits(at) => arguments[at].min(Self::MAX_ELEMENTS).div_ceil(u64::BITS as usize) * size_of::<u64>(),
            Bytes::Pages(at) => arguments[at].div_ceil(refault_paging::PAGE),
        }
    }
}

/// A piece of memory: its address, its bytes, and whether the kernel writes there.
pub(crate) type Span = (usize, usize, bool);

/// Memory that a call names by an argument.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Memory {
    /// The kernel reads it.
    Reads(usize, Bytes),
    /// The kernel writes to it, or reads and writes.
    Writes(usize, Bytes),
    /// A string that ends with a zero.
    Text(usize),
    /// An array of vectors, how many, and whether the kernel writes where they point to.
    Vectors(usize, usize, bool),
    /// A message's header, and all that it leads to.
    Message(usize, bool),
    /// An array of such headers, and how many.
    Messages(usize, usize, bool),
    /// As the call's arguments say otherwise.
    Request(fn(&[usize; 6], &mut dyn FnMut(Span))),
    /// A mask of signals that holds while the call waits: one of the agent's takes its place.
    MaskMeanwhile(usize),
    /// The same by way of a pair of its address and its size.
    MaskByPair(usize),
    /// How long it waits at most: one of the agent's takes its place, which may be shortened.
    Wait(usize),
    /// How long it sleeps, and where it says what is left.
    Sleep(usize, usize),
    /// How long it waits at most, as an argument's number of milliseconds.
    Milliseconds(usize),
}

/// Bytes of a path, or of another string, at most.
pub(crate) const TEXT: usize = refault_paging::PAGE;
/// Vectors of a call, and messages of one, at most.
pub(crate) const MAX_VECTORS: usize = UIO_MAXIOV;
/// Bytes of a vector that are looked at.
pub(super) const MAX_VECTOR: usize = 1 << 40;
/// Bytes of what comes along with a message.
pub(crate) const MAX_CONTROL: usize = 1 << 24;

impl Memory {
    /// Shows each span.
    pub(crate) fn each(self, arguments: &[usize; 6], visit: &mut dyn FnMut(Span)) {
        match self {
            Memory::Reads(at, bytes) => visit((arguments[at], bytes.of(arguments), false)),
            Memory::Writes(at, bytes) => visit((arguments[at], bytes.of(arguments), true)),
            Memory::Text(at) => visit((arguments[at], TEXT, false)),
            Memory::Vectors(at, count, write) => vectors(arguments[at], arguments[count], write, visit),
            Memory::Message(at, write) => message(arguments[at], write, visit),
            Memory::Messages(at, count, write) => {
                let count = arguments[count].min(MAX_VECTORS);
                visit((arguments[at], count * MMSGHDR, true));
                (0..count).for_each(|index| {
                    message(arguments[at].wrapping_add(index * MMSGHDR), write, visit);
                });
            }
            Memory::Request(spans) => spans(arguments, visit),
            Memory::MaskMeanwhile(_) | Memory::MaskByPair(_) | Memory::Wait(_) => {}
            Memory::Sleep(..) | Memory::Milliseconds(_) => {}
        }
    }
}

pub(super) fn vectors(at: usize, count: usize, write: bool, visit: &mut dyn FnMut(Span)) {
    let count = count.min(MAX_VECTORS);
    visit((at, count * size_of::<[usize; 2]>(), false));
    frame::each_vector(at, count, |[start, bytes]| visit((start, bytes.min(MAX_VECTOR), write)));
}

/// What a message is, or what it is to be written to.
pub(crate) fn message(at: usize, write: bool, visit: &mut dyn FnMut(Span)) {
    visit((at, MSGHDR, write));
    let Some([name, name_bytes, parts, count, control, control_bytes, _]) = frame::read::<[usize; 7]>(at) else {
        return;
    };
    visit((name, (name_bytes as u32 as usize).min(NAME), write));
    vectors(parts, count, write, visit);
    visit((control, control_bytes.min(MAX_CONTROL), write));
}

/// What the agent knows of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) number: usize,
    pub(crate) by: By,
    pub(crate) twice: Twice,
    pub(crate) memory: &'static [Memory],
    /// It may be made from a patched site: nothing of its arguments need be replaced, or [`crate::calls::plain`] looks
    /// at them.
    pub(crate) jumps: bool,
}

pub(super) const fn row(number: usize, by: By, twice: Twice, memory: &'static [Memory]) -> Row {
    Row { number, by, twice, memory, jumps: false }
}

impl Row {
    pub(super) const fn jumps(self) -> Row {
        Row { jumps: true, ..self }
    }

    /// Shows each span of memory that a call with these arguments names.
    pub(crate) fn each(&self, arguments: &[usize; 6], visit: &mut dyn FnMut(Span)) {
        self.memory.iter().for_each(|memory| memory.each(arguments, visit));
    }
}
