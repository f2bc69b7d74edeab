//! Advice on memory: `madvise`, and `process_madvise` on this process.
//!
//! Each piece of a range is the kernel's to judge: the same call that the program has made is made for it, so that what
//! is refused alone is refused here, with the same number. What an advice does to contents, the engine's table follows.
//!
//! Invariants: a page that was discarded is zeros from then on, wherever it was; the kernel and the table change under
//! one lock; a list of ranges is advised in order, up to the first that is refused. Cost: for a descriptor of a
//! process, one or two calls more that find out whose it is.

use std::ffi::CString;

use refault_linux::advice::*;
use refault_linux::calls::*;
use refault_linux::errno::ENOMEM;
use refault_linux::files::{PID_FS_MAGIC, Stat};
use refault_linux::flags::{PIDFD_SELF_THREAD, PIDFD_SELF_THREAD_GROUP};
use refault_linux::mappings::Mappings;
use refault_linux::sockets::UIO_MAXIOV;
use refault_linux::{END_OF_ADDRESSES, proc, sys};
use refault_paging::{Marks, Order, PAGE};

use crate::calls::make::plain;
use crate::engine_lock::{Paging, paging};
use crate::frame;
use crate::mapping::managed::{bring_in, make, pages};

/// Of a huge page.
const HUGE: usize = 2 << 20;
/// What names this process in the place of a descriptor.
const SELF: [i32; 2] = [PIDFD_SELF_THREAD as i32, PIDFD_SELF_THREAD_GROUP as i32];
/// Ranges of one call, and bytes of them.
const MAX_RANGES: usize = UIO_MAXIOV;
const MAX_BYTES: usize = 0x7fff_f000;

/// By which call the program gives its advice, and the kernel is asked.
#[derive(Clone, Copy)]
enum By {
    /// `madvise`.
    Address,
    /// `process_madvise` of this process, by this descriptor, with these flags.
    Descriptor(usize, usize),
}

impl By {
    /// 0, or the kernel's number.
    fn advise(self, start: usize, bytes: usize, advice: usize) -> isize {
        match self {
            By::Address => make(SYS_madvise, [start, bytes, advice, 0, 0, 0]),
            By::Descriptor(descriptor, flags) => {
                let range = [start, bytes];
                make(SYS_process_madvise, [descriptor, range.as_ptr() as usize, 1, advice, flags, 0]).min(0)
            }
        }
    }
}

/// `madvise`.
pub(crate) fn advise([start, bytes, advice, ..]: [usize; 6]) -> isize {
    advise_by(By::Address, start, bytes, advice as u32 as usize)
}

/// `process_madvise`. `None`: it is not for this process's memory, or the kernel refuses the list of ranges whole.
pub(crate) fn advise_list([descriptor, ranges, count, advice, flags, _]: [usize; 6]) -> Option<isize> {
    if flags as u32 != 0 || count > MAX_RANGES || !is_of_this_memory(descriptor) {
        return None;
    }
    let mut list = Vec::with_capacity(count);
    let (mut left, mut is_sound) = (MAX_BYTES, true);
    let is_there = frame::each_vector(ranges, count, |[start, bytes]| {
        is_sound &= bytes <= isize::MAX as usize && start.checked_add(bytes).is_some_and(|end| end <= END_OF_ADDRESSES);
        let taken = bytes.min(left);
        left -= taken;
        list.push((start, taken));
    });
    if !is_there || !is_sound {
        return None;
    }
    let by = By::Descriptor(descriptor, flags);
    let mut advised = 0;
    for (start, bytes) in list.into_iter().filter(|(_, bytes)| *bytes > 0) {
        let error = advise_by(by, start, bytes, advice as u32 as usize);
        if error < 0 {
            return Some(if advised > 0 { advised } else { error });
        }
        advised += bytes as isize;
    }
    if advised == 0 {
        // Nothing to advise on: what the kernel says of the rest.
        return Some(plain(SYS_process_madvise, [descriptor, 0, 0, advice, flags, 0]));
    }
    Some(advised)
}

/// Whether a descriptor of a process (a pidfd) is of one that has this memory: this process, a thread of it, or one
/// that borrows it.
fn is_of_this_memory(descriptor: usize) -> bool {
    if SELF.contains(&(descriptor as i32)) {
        return true;
    }
    is_this_process(descriptor) || process_of(descriptor).is_some_and(has_this_memory)
}

/// Whether a process or thread has this memory: this process, a thread of it, or one that borrows it.
pub(crate) fn has_this_memory(named: i32) -> bool {
    let own = sys::process_id();
    named == own || is_thread_of_this_process(named) || named > 0 && sys::shares_memory(named, own)
}

/// Whether a descriptor is of this process, where the kernel has a file for each (Linux 6.9).
fn is_this_process(descriptor: usize) -> bool {
    if sys::file_system(descriptor) != Some(PID_FS_MAGIC) {
        return false;
    }
    let own = plain(SYS_pidfd_open, [sys::process_id() as usize, 0, 0, 0, 0, 0]);
    if own < 0 {
        return false;
    }
    let [of_this, of_that] =
        [own as usize, descriptor].map(|descriptor| sys::status(descriptor).ok().as_ref().map(Stat::identity));
    plain(SYS_close, [own as usize, 0, 0, 0, 0, 0]);
    of_this == of_that
}

/// The process or thread that a descriptor names, as this process numbers them.
fn process_of(descriptor: usize) -> Option<i32> {
    let path = CString::new(format!("/proc/self/fdinfo/{}", descriptor as i32)).ok()?;
    let text = proc::read(&path)?;
    text.lines().find_map(|line| line.strip_prefix("Pid:")).and_then(|number| number.trim().parse().ok())
}

fn is_thread_of_this_process(thread: i32) -> bool {
    const SIGNAL_NONE: usize = 0;
    let is_number = thread > 0;
    is_number && plain(SYS_tgkill, [sys::process_id() as usize, thread as usize, SIGNAL_NONE, 0, 0, 0]) == 0
}

fn advise_by(by: By, start: usize, bytes: usize, advice: usize) -> isize {
    let mut paging = paging();
    let length = pages(bytes);
    if !paging.manages(start, length) || !start.is_multiple_of(PAGE) {
        if matches!(advice, MADV_POPULATE_READ | MADV_POPULATE_WRITE) {
            // It may wait for a thread of the program's that serves its userfaultfd.
            drop(paging);
        }
        return by.advise(start, bytes, advice);
    }
    if start.checked_add(length).is_none() {
        return by.advise(start, bytes, advice);
    }
    // These stay where they are. By a descriptor, not each kernel knows the advice, and each part is to be asked of it.
    let discards = matches!(advice, MADV_FREE | MADV_DONTNEED | MADV_DONTNEED_LOCKED);
    let held = if discards && matches!(by, By::Address) { paging.held(start, length) } else { Vec::new() };
    match advice {
        // What is managed and freed lazily is freed now: that is allowed, and the memory is wanted. The rest of the
        // range, and whether it can be freed at all, is the kernel's.
        MADV_FREE => {
            advise_each(by, &mut paging, start, length, advice, &held, |paging, from, bytes| {
                discard(paging, from, bytes, &held, |from, bytes| _ = by.advise(from, bytes, MADV_DONTNEED));
            })
            .0
        }
        MADV_DONTNEED | MADV_DONTNEED_LOCKED | MADV_REMOVE => {
            advise_each(by, &mut paging, start, length, advice, &held, |paging, from, bytes| {
                discard(paging, from, bytes, &held, |_, _| ());
            })
            .0
        }
        MADV_DONTFORK | MADV_DOFORK => {
            advise_each(by, &mut paging, start, length, advice, &held, |paging, from, bytes| {
                paging.change(from, bytes, |attributes| attributes.not_in_children = advice == MADV_DONTFORK);
            })
            .0
        }
        MADV_WIPEONFORK | MADV_KEEPONFORK => {
            advise_each(by, &mut paging, start, length, advice, &held, |paging, from, bytes| {
                paging.change(from, bytes, |attributes| attributes.zeros_in_children = advice == MADV_WIPEONFORK);
            })
            .0
        }
        MADV_NORMAL | MADV_RANDOM | MADV_SEQUENTIAL | MADV_DONTDUMP | MADV_DODUMP => {
            let mark = |marks: &mut Marks| match advice {
                MADV_RANDOM => marks.order = Order::Random,
                MADV_SEQUENTIAL => marks.order = Order::Sequential,
                MADV_NORMAL => marks.order = Order::Normal,
                _ => marks.not_in_cores = advice == MADV_DONTDUMP,
            };
            // A range that is refused may be marked so in part.
            let (answer, refused) =
                advise_each(by, &mut paging, start, length, advice, &held, |paging, from, bytes| {
                    paging.change(from, bytes, |attributes| mark(&mut attributes.marks));
                });
            if let Some((from, bytes)) = refused {
                paging.may_be_marked(from, bytes, mark);
            }
            answer
        }
        MADV_POPULATE_READ | MADV_POPULATE_WRITE => {
            bring_in(&mut paging, start, length, advice == MADV_POPULATE_WRITE, |at, piece| {
                by.advise(at, piece, advice)
            })
        }
        // Of a page that is out there is nothing to poison or to put elsewhere.
        MADV_HWPOISON | MADV_SOFT_OFFLINE => {
            bring_in(&mut paging, start, length, false, |at, piece| by.advise(at, piece, advice))
        }
        MADV_COLLAPSE => collapse(by, &mut paging, start, length),
        // What is cold the policy finds out; the kernel only looks whether the range is there.
        MADV_PAGEOUT => by.advise(start, bytes, MADV_COLD),
        MADV_GUARD_INSTALL | MADV_GUARD_REMOVE => {
            advise_each(by, &mut paging, start, length, advice, &held, |paging, from, bytes| {
                paging.change(from, bytes, |attributes| attributes.guard = advice == MADV_GUARD_INSTALL);
                if advice == MADV_GUARD_INSTALL {
                    paging.discard(from, bytes);
                }
            })
            .0
        }
        _ => by.advise(start, bytes, advice),
    }
}

/// Gives advice on the managed parts of a range and what lies between them, in order, and says which managed parts have
/// taken it. The kernel is not asked about `held` pages. As the kernel does, what is not mapped is passed over and said
/// at the end, and any other error ends it: what lies before the mapping that cannot take the advice has taken it.
/// Returns the managed part that was refused, too: its start and bytes.
fn advise_each(
    by: By,
    paging: &mut Paging,
    start: usize,
    bytes: usize,
    advice: usize,
    held: &[usize],
    taken: impl Fn(&mut Paging, usize, usize),
) -> (isize, Option<(usize, usize)>) {
    let (mut answer, mut refused) = (0, None);
    let advise = |from: usize, to: usize| {
        let errors = between(from, to, held).map(|(from, to)| by.advise(from, to - from, advice));
        errors.fold(0, |first, error| if first == 0 { error } else { first })
    };
    let mut at = start;
    for (from, to, _) in paging.parts(start, bytes) {
        let between = advise(at, from);
        answer = if between == 0 { answer } else { between };
        if between != 0 && between != ENOMEM {
            return (answer, refused);
        }
        let error = advise(from, to);
        if error == 0 {
            taken(paging, from, to - from);
        } else {
            answer = error;
            // It may be several mappings, of which the first have taken it.
            let reached = advise_mappings(from, to, &advise, |from, to| taken(paging, from, to - from));
            refused = Some((reached, to - reached));
            if error != ENOMEM {
                return (answer, refused);
            }
        }
        at = to;
    }
    let error = advise(at, start + bytes);
    (if error == 0 { answer } else { error }, refused)
}

/// What lies between two addresses and is none of these pages.
fn between(from: usize, to: usize, pages: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let within = pages.iter().copied().filter(move |page| (from..to).contains(page));
    let starts = std::iter::once(from).chain(within.clone().map(|page| page + PAGE));
    starts.zip(within.chain(std::iter::once(to))).filter(|(from, to)| from < to)
}

/// A managed part is zeros from now on. `also` is done to what is not `held`; what is stays where it is and is cleared.
fn discard(paging: &mut Paging, start: usize, bytes: usize, held: &[usize], also: impl Fn(usize, usize)) {
    for (from, to) in between(start, start + bytes, held) {
        also(from, to - from);
        paging.discard(from, to - from);
    }
    let within = held.iter().filter(|address| (start..start + bytes).contains(address));
    within.for_each(|address| paging.clear(*address));
}

/// Gives advice again on a managed part that was refused somewhere, one mapping after the other. Returns where it is
/// refused. Where the kernel does not say what the mappings are, that is the beginning.
fn advise_mappings(
    from: usize,
    to: usize,
    advise: &impl Fn(usize, usize) -> isize,
    mut taken: impl FnMut(usize, usize),
) -> usize {
    let Some(mappings) = Mappings::open() else { return from };
    let mut at = from;
    while at < to
        && let Some(end) = mappings.end_of(at)
    {
        let end = end.min(to);
        if advise(at, end) != 0 {
            break;
        }
        taken(at, end);
        at = end;
    }
    at
}

/// Makes huge pages of what has contents, one after the other; what is out of it is brought in before. As the kernel
/// does, one that cannot be made is passed over and said at the end.
fn collapse(by: By, paging: &mut Paging, start: usize, bytes: usize) -> isize {
    let end = start + bytes;
    let (first, last) = (start.next_multiple_of(HUGE), end & !(HUGE - 1));
    if first >= last || !paging.any_contents(first, last - first) {
        return by.advise(start, bytes, MADV_COLLAPSE);
    }
    let mut answer = 0;
    for at in (first..last).step_by(HUGE) {
        let is_used = paging.any_contents(at, HUGE);
        if is_used {
            paging.hold(at, HUGE, true);
        }
        let error = by.advise(at, HUGE, MADV_COLLAPSE);
        if is_used {
            paging.release(at, HUGE);
        }
        answer = if error == 0 { answer } else { error };
        if error == ENOMEM {
            break;
        }
    }
    answer
}
