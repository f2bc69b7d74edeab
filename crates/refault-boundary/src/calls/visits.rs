//! Memory of other processes of the tree, read and written through the kernel: `process_vm_readv`, `process_vm_writev`,
//! and files of `/proc` that are it ([`crate::files::memory_files`]).
//!
//! The kernel makes the call a piece at a time. Where it stops at a page that is out, the agent asks the process that
//! has the page to hold it ([`refault_paging::tree::visit`]). Then it makes the piece again.
//!
//! Invariants: what is allowed is the kernel's to say, by the first piece; a process that does not come (it is stopped,
//! or not in the tree) leaves what the kernel said. Cost: a call per 256 KiB; a signal and a wait of about a
//! millisecond for each in which the kernel stops.

use refault_linux::calls::SYS_process_vm_readv;
use refault_linux::errno::EFAULT;
use refault_paging::tree::visit::Visitor;

use crate::calls::make::plain;
use crate::engine_lock;
use crate::frame;
use crate::mapping::managed::most_held;
use crate::table::MAX_VECTORS;
use crate::thread::Thread;

/// Bytes of a piece at most, which the other process holds beside all that it has.
const MAX_PIECE: usize = 256 << 10;

/// A visitor whose range is held.
struct Guest {
    visitor: Visitor<'static>,
    /// Whether any of it is managed, and so held.
    is_held: bool,
}

impl Guest {
    /// Holds the range of a process that waits for one, if there is any.
    fn received() -> Option<Guest> {
        let mut paging = engine_lock::paging();
        let visitor = paging.account().visitor()?;
        let is_held = paging.manages(visitor.start, visitor.bytes);
        if is_held {
            paging.hold_for_call(visitor.start, visitor.bytes, visitor.writes);
        }
        drop(paging);
        visitor.arrives();
        Some(Guest { visitor, is_held })
    }

    /// Lets its range go when it has made its call.
    fn see_off(self) {
        let (start, bytes) = (self.visitor.start, self.visitor.bytes);
        self.visitor.leaves();
        if self.is_held {
            engine_lock::paging().release(start, bytes);
        }
    }
}

/// This thread was asked for what others of the tree lack: gives room, and holds what they want to read or write.
pub(crate) fn answer() {
    engine_lock::paging().give_room();
    receive();
}

/// Processes of the tree wait for memory of this one: holds it until they have made their calls.
pub(crate) fn receive() {
    while let Some(guest) = Guest::received() {
        guest.see_off();
    }
}

/// Makes a call while another process of the tree holds a range for it. `None`: it does not. Who visits this process
/// meanwhile is received at once, and seen off behind the call.
pub(crate) fn visiting<T>(
    process: i32,
    start: usize,
    bytes: usize,
    writes: bool,
    make: impl FnOnce() -> T,
) -> Option<T> {
    let mut guests = Vec::new();
    let visit = engine_lock::segment()?.visit(process, start, bytes, writes, || guests.extend(Guest::received()));
    let made = visit.is_some().then(make);
    drop(visit);
    guests.into_iter().for_each(Guest::see_off);
    made
}

/// Bytes from an address that one visit may be about.
pub(crate) fn piece(start: usize, bytes: usize) -> usize {
    bytes.min(MAX_PIECE - start % refault_paging::PAGE)
}

/// `process_vm_readv` or `process_vm_writev` of another process of the tree, in pieces. `None`: it is of none, or the
/// kernel refuses it whole.
pub(crate) fn serve(thread: &mut Thread, number: usize, arguments: [usize; 6]) -> Option<isize> {
    let [process, own, own_count, others, others_count, flags] = arguments;
    let named = process as i32;
    if flags != 0 || crate::mapping::advice::has_this_memory(named) {
        return None;
    }
    let process = in_the_tree(named)?;
    engine_lock::hold(thread, own, own_count.min(MAX_VECTORS) * size_of::<[usize; 2]>(), false);
    engine_lock::hold(thread, others, others_count.min(MAX_VECTORS) * size_of::<[usize; 2]>(), false);
    let lists = vectors(own, own_count).zip(vectors(others, others_count));
    engine_lock::release(thread);
    let (own, others) = lists?;
    let total = bytes_of(&own).min(bytes_of(&others));
    let (mut done, mut result, reads) = (0, 0, number == SYS_process_vm_readv);
    while done < total {
        let (Some(here), Some(there)) = (behind(&own, done), behind(&others, done)) else { break };
        let bytes = piece(there[0], here[1].min(there[1])).min(most_held());
        engine_lock::hold(thread, here[0], bytes, reads);
        let (here, there) = ([here[0], bytes], [there[0], bytes]);
        let mut part = arguments;
        (part[1], part[2]) = (here.as_ptr() as usize, 1);
        (part[3], part[4]) = (there.as_ptr() as usize, 1);
        result = plain(number, part);
        if result == EFAULT {
            result = visiting(process, there[0], bytes, !reads, || plain(number, part)).unwrap_or(result);
        }
        engine_lock::release(thread);
        if result <= 0 {
            break;
        }
        // A piece ends where a page is out.
        done += result as usize;
    }
    // Of a list without bytes the kernel says what it thinks of the process.
    (total > 0).then_some(if done > 0 { done as isize } else { result })
}

/// The process of the tree that a process or thread belongs to, by its number here.
pub(crate) fn in_the_tree(named: i32) -> Option<i32> {
    let segment = engine_lock::segment()?;
    let is_there = |process: &i32| segment.has_process(*process);
    Some(named).filter(is_there).or_else(|| refault_linux::proc::process_of_thread(named).filter(is_there))
}

/// A call's array of vectors, without those that are empty.
fn vectors(at: usize, count: usize) -> Option<Vec<[usize; 2]>> {
    let mut list = Vec::new();
    let is_there = count <= MAX_VECTORS
        && frame::each_vector(at, count, |vector: [usize; 2]| {
            if vector[1] > 0 {
                list.push(vector);
            }
        });
    is_there.then_some(list)
}

fn bytes_of(vectors: &[[usize; 2]]) -> usize {
    vectors.iter().fold(0, |sum, [_, bytes]| sum.saturating_add(*bytes))
}

/// What is left of the vector that `done` bytes of a list end in.
fn behind(vectors: &[[usize; 2]], mut done: usize) -> Option<[usize; 2]> {
    for [start, bytes] in vectors {
        if done < *bytes {
            return Some([start.checked_add(done)?, bytes - done]);
        }
        done -= bytes;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_on_where_its_first_bytes_end() {
        let list = [[0x1000, 10], [0x5000, 3]];
        assert_eq!(bytes_of(&list), 13);
        let rest = [0, 9, 10, 12, 13].map(|done| behind(&list, done));
        assert_eq!(rest, [Some([0x1000, 10]), Some([0x1009, 1]), Some([0x5000, 3]), Some([0x5002, 1]), None]);
        assert_eq!(bytes_of(&[[0, usize::MAX], [0, 5]]), usize::MAX);
        assert_eq!(behind(&[[usize::MAX, 5]], 2), None);
    }

    #[test]
    fn pieces_end_at_pages() {
        assert_eq!((piece(0x1000, 10), piece(0x1000, usize::MAX)), (10, MAX_PIECE));
        assert_eq!((0x1fff + piece(0x1fff, usize::MAX)) % refault_paging::PAGE, 0);
    }
}
