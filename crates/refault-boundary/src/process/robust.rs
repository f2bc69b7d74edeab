//! The threads' lists of robust mutexes, which the kernel walks when a thread ends.
//!
//! Invariant: a list is read only where the engine says that its memory is there. Cost: see
//! [`refault_paging::Engine::looks_at_lists_with`].

use refault_linux::calls::SYS_get_robust_list;
use refault_linux::sys;
use std::sync::atomic::Ordering;

use crate::frame;
use crate::thread::Thread;

/// Mutexes of one list that the kernel looks at, at most.
const MAX_MUTEXES: usize = 2048;
/// What a list begins with: the first mutex's place in it, how far its word lies from that, and the place of one that is
/// being locked or unlocked.
type Head = [usize; 3];
/// Of a place: its mutex inherits priorities.
const INHERITS: usize = 1;

/// The thread that calls has this list, whose head lies at an address.
pub(crate) fn has(thread: &Thread, head: usize) {
    thread.robust.store(head, Ordering::Relaxed);
}

/// Asks the kernel for the list that the thread that calls has.
pub(crate) fn look(thread: &Thread) {
    let (mut head, mut bytes) = (0usize, 0usize);
    // SAFETY: writes two words.
    unsafe { sys::call(SYS_get_robust_list, [0, &raw mut head as usize, &raw mut bytes as usize, 0, 0, 0]) };
    has(thread, head);
}

/// Shows the addresses that the kernel looks at in all lists, as [`refault_paging::Walk`] has it.
pub(crate) fn walk(is_there: &dyn Fn(usize) -> bool, visit: &mut dyn FnMut(usize)) {
    Thread::each(&mut |thread| {
        let head = thread.robust.load(Ordering::Relaxed);
        let is_whole = |address: usize, bytes: usize| is_there(address) && is_there(address.wrapping_add(bytes - 1));
        if head == 0 || !is_whole(head, size_of::<Head>()) {
            return;
        }
        let Some([mut place, distance, pending]) = frame::read::<Head>(head) else { return };
        let mut shows = |place: usize| {
            for at in [place, place.wrapping_add(distance)] {
                visit(at);
                visit(at.wrapping_add(size_of::<usize>() - 1));
            }
        };
        if pending & !INHERITS != 0 {
            shows(pending & !INHERITS);
        }
        for _ in 0..MAX_MUTEXES {
            let at = place & !INHERITS;
            if at == 0 || at == head {
                break;
            }
            shows(at);
            let next = is_whole(at, size_of::<usize>()).then(|| frame::read::<usize>(at)).flatten();
            let Some(next) = next else { break };
            place = next;
        }
    });
}
