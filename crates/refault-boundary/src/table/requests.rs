//! Memory of calls that are several in one: what they name depends on what is asked.
//!
//! Each function is given the arguments and shows what the kernel reads and writes for them. Where a structure leads on
//! to more memory, its words are looked at when it has been shown: the caller has brought it in by then. Source: the
//! manual pages of section 2 and the kernel's user headers.

use refault_linux::END_OF_ADDRESSES;
use refault_linux::flags::*;
use refault_linux::options::*;
use refault_linux::requests::*;
use refault_linux::sockets::{SO_GET_FILTER, SOL_SOCKET};
use refault_paging::PAGE;

use super::{Span, TEXT, vectors};
use crate::frame;

type Visit<'a> = &'a mut dyn FnMut(Span);

const INT: usize = size_of::<i32>();
const WORD: usize = size_of::<usize>();
/// Words of a structure in which addresses are looked for.
const WORDS: usize = 64;
/// Bytes that are held where a word of a structure points to, if no word beside it says more.
const EACH: usize = 16 * PAGE;
/// What a word is taken for a number of bytes up to.
const MAX_EACH: u32 = 16 << 20;
/// Addresses of programs.
const ADDRESSES: std::ops::Range<usize> = PAGE..END_OF_ADDRESSES;

/// What the words of a structure lead to: each is taken for an address, and the largest of its halves that can be a
/// length for the bytes there.
pub(super) fn led_to(structure: usize, bytes: usize, visit: Visit) {
    let mut words = [0usize; WORDS];
    let mut count = 0;
    for (index, place) in words.iter_mut().enumerate().take(bytes / WORD) {
        let Some(word) = frame::read::<usize>(structure.wrapping_add(index * WORD)) else { break };
        (*place, count) = (word, index + 1);
    }
    let words = &words[..count];
    // A small word may be either.
    let numbers = words.iter().filter(|word| **word <= MAX_EACH as usize || !ADDRESSES.contains(word));
    let halves = numbers.flat_map(|word| [*word as u32, (word >> u32::BITS) as u32]);
    let longest = halves.filter(|half| *half <= MAX_EACH).max().unwrap_or(0) as usize;
    for word in words.iter().filter(|word| ADDRESSES.contains(word)) {
        visit((*word, EACH.max(longest), true));
    }
}

/// `setsockopt`. Options of 16 bytes and more may lead on: filters, tables of packet filters, groups of addresses.
pub(super) fn set_socket_option([_, _, _, value, bytes, _]: &[usize; 6], visit: Visit) {
    let bytes = (*bytes as u32 as usize).min(MAX_EACH as usize);
    visit((*value, bytes, false));
    if bytes >= 2 * WORD {
        led_to(*value, bytes, visit);
    }
}

/// `getsockopt`. Of a filter the length says how many instructions there is room for.
pub(super) fn socket_option([_, level, option, value, length, _]: &[usize; 6], visit: Visit) {
    visit((*length, INT, true));
    let bytes = frame::read::<u32>(*length).unwrap_or(0).min(MAX_EACH) as usize;
    let is_filter = (*level, *option) == (SOL_SOCKET, SO_GET_FILTER);
    visit((*value, if is_filter { bytes * INSTRUCTION } else { bytes }, true));
    if bytes >= 2 * WORD && !is_filter {
        led_to(*value, bytes, visit);
    }
}

/// `fcntl`.
pub(super) fn descriptor_option([_, command, value, ..]: &[usize; 6], visit: Visit) {
    const LOCK: usize = 32;
    let bytes = match *command as u32 as usize {
        F_GETLK | F_SETLK | F_SETLKW | F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW => LOCK,
        F_SETOWN_EX | F_GETOWN_EX | F_GETOWNER_UIDS => WORD,
        F_GET_RW_HINT..=F_SET_FILE_RW_HINT => WORD,
        // Numbers.
        _ => return,
    };
    visit((*value, bytes, true));
}

/// `prctl`. Most options are numbers; those that name memory name few bytes of it, but for the map of a process and
/// names.
pub(super) fn process_option([option, a, b, c, d, _]: &[usize; 6], visit: Visit) {
    /// A thread's name is the longest of what the others name.
    const NAME: usize = 16;
    match *option {
        PR_SET_MM => {
            visit((*b, (*c).min(EACH), true));
            led_to(*b, (*c).min(EACH), visit);
        }
        PR_GET_AUXV => visit((*a, (*b).min(EACH), true)),
        PR_SET_VMA => visit((*d, TEXT, false)),
        PR_SCHED_CORE => visit((*d, WORD, true)),
        PR_SET_SECCOMP => program_of_filter(*b, visit),
        _ => visit((*a, NAME, true)),
    }
}

/// `seccomp`.
pub(super) fn filter([_, _, program, ..]: &[usize; 6], visit: Visit) {
    program_of_filter(*program, visit);
}

/// A filter's length and instructions.
fn program_of_filter(at: usize, visit: Visit) {
    visit((at, 2 * WORD, true));
    if let Some([length, code]) = frame::read::<[usize; 2]>(at).filter(|_| ADDRESSES.contains(&at)) {
        visit((code, usize::from(length as u16) * INSTRUCTION, false));
    }
}

/// `semctl`: a structure, or a value of each semaphore of a set, of which there may be 32,000.
pub(super) fn semaphores([_, _, command, value, ..]: &[usize; 6], visit: Visit) {
    const VALUES: usize = 64 << 10;
    const OBJECT: usize = 128;
    match *command {
        GETALL | SETALL => visit((*value, VALUES, true)),
        SETVAL => {}
        _ => visit((*value, OBJECT, true)),
    }
}

/// `ptrace`: registers and what is like them, some by a vector.
pub(super) fn trace([request, _, address, data, ..]: &[usize; 6], visit: Visit) {
    visit((*data, PAGE, true));
    match *request {
        PTRACE_GETREGSET | PTRACE_SETREGSET => {
            if let Some([start, bytes]) = frame::read::<[usize; 2]>(*data) {
                visit((start, bytes.min(EACH), true));
            }
        }
        PTRACE_PEEKSIGINFO => {
            const SIGNAL_INFO: usize = 128;
            visit((*address, 2 * WORD, false));
            if let Some([_, count]) = frame::read::<[usize; 2]>(*address) {
                visit((*data, (count >> u32::BITS).min(PAGE) * SIGNAL_INFO, true));
            }
        }
        _ => {}
    }
}

/// `futex`: the word, a second one, and a time, as the operation has them.
pub(super) fn futex([word, operation, _, time, second, _]: &[usize; 6], visit: Visit) {
    let operation = operation & FUTEX_OPERATION;
    visit((*word, INT, true));
    if matches!(operation, FUTEX_WAIT | FUTEX_LOCK_PI | FUTEX_WAIT_BITSET | FUTEX_WAIT_REQUEUE_PI | FUTEX_LOCK_PI2) {
        visit((*time, 2 * WORD, false));
    }
    if matches!(
        operation,
        FUTEX_REQUEUE | FUTEX_CMP_REQUEUE | FUTEX_WAKE_OP | FUTEX_WAIT_REQUEUE_PI | FUTEX_CMP_REQUEUE_PI
    ) {
        visit((*second, INT, true));
    }
}

/// Of `futex_waitv` and `futex_requeue`: an array of words that are waited for.
const WAITER: usize = 24;

/// `futex_waitv`.
pub(super) fn futexes([waiters, count, ..]: &[usize; 6], visit: Visit) {
    const MAX_WAITERS: usize = 128;
    waited_for(*waiters, (*count).min(MAX_WAITERS), visit);
}

/// `futex_requeue`.
pub(super) fn futex_pair([waiters, ..]: &[usize; 6], visit: Visit) {
    waited_for(*waiters, 2, visit);
}

fn waited_for(waiters: usize, count: usize, visit: Visit) {
    visit((waiters, count * WAITER, false));
    for index in 0..count {
        if let Some([_, word, _]) = frame::read::<[usize; 3]>(waiters.wrapping_add(index * WAITER)) {
            visit((word, WORD, true));
        }
    }
}

/// `mq_notify`: what a thread is to be told may lie elsewhere.
pub(super) fn notification([_, event, ..]: &[usize; 6], visit: Visit) {
    const EVENT: usize = 64;
    const COOKIE: usize = 32;
    visit((*event, EVENT, false));
    if let Some(cookie) = frame::read::<usize>(*event) {
        visit((cookie, COOKIE, false));
    }
}

/// `kexec_load`.
pub(super) fn kernel_parts([_, count, parts, ..]: &[usize; 6], visit: Visit) {
    const PART: usize = 32;
    const MAX_PARTS: usize = 16;
    let count = (*count).min(MAX_PARTS);
    visit((*parts, count * PART, false));
    for index in 0..count {
        if let Some([start, bytes]) = frame::read::<[usize; 2]>(parts.wrapping_add(index * PART)) {
            visit((start, bytes, false));
        }
    }
}

/// `keyctl`, by its operation.
pub(super) fn keys([operation, a, b, c, d, _]: &[usize; 6], visit: Visit) {
    /// Values of keys are shorter.
    const VALUE: usize = 1 << 20;
    const PARAMETERS: usize = 32;
    match *operation {
        KEYCTL_JOIN_SESSION_KEYRING => visit((*a, TEXT, false)),
        KEYCTL_UPDATE | KEYCTL_INSTANTIATE => visit((*b, (*c).min(VALUE), false)),
        KEYCTL_DESCRIBE | KEYCTL_READ | KEYCTL_GET_SECURITY => visit((*b, (*c).min(VALUE), true)),
        KEYCTL_SEARCH | KEYCTL_RESTRICT_KEYRING => [b, c].into_iter().for_each(|text| visit((*text, TEXT, false))),
        KEYCTL_INSTANTIATE_IOV => vectors(*b, *c, false, visit),
        KEYCTL_DH_COMPUTE => {
            visit((*a, PARAMETERS, false));
            visit((*b, (*c).min(VALUE), true));
            visit((*d, 2 * PARAMETERS, false));
            led_to(*d, PARAMETERS, visit);
        }
        KEYCTL_PKEY_QUERY => {
            visit((*c, TEXT, false));
            visit((*d, 2 * PARAMETERS, true));
        }
        KEYCTL_PKEY_ENCRYPT..=KEYCTL_PKEY_VERIFY => {
            visit((*a, PARAMETERS, false));
            visit((*b, TEXT, false));
            // The key's number, bytes in, bytes out: the second of them is what a signature is checked against.
            let [first, second] = frame::read::<[u32; 3]>(*a).map_or([0, 0], |[_, first, second]| [first, second]);
            visit((*c, first.min(MAX_EACH) as usize, false));
            visit((*d, second.min(MAX_EACH) as usize, true));
        }
        KEYCTL_CAPABILITIES => visit((*a, (*b).min(TEXT), true)),
        _ => {}
    }
}

/// A structure that says its own size in a word of 32 bits at this place, and in which the kernel may say another.
fn sized(at: usize, place: usize, visit: Visit) {
    const MIN: usize = 64;
    visit((at, MIN, true));
    let bytes = frame::read::<u32>(at.wrapping_add(place)).unwrap_or(0) as usize;
    visit((at, bytes.min(PAGE), true));
}

/// `perf_event_open`.
pub(super) fn counter([attributes, ..]: &[usize; 6], visit: Visit) {
    const ATTRIBUTES: usize = 128;
    sized(*attributes, INT, visit);
    // A probe is named by a text.
    led_to(*attributes, ATTRIBUTES, visit);
}

/// `sched_setattr`.
pub(super) fn scheduling([_, attributes, ..]: &[usize; 6], visit: Visit) {
    sized(*attributes, 0, visit);
}

/// `fsconfig`: a text, or bytes.
pub(super) fn mount_option([_, command, key, value, bytes, _]: &[usize; 6], visit: Visit) {
    visit((*key, TEXT, false));
    if *command as u32 as usize == FSCONFIG_SET_BINARY {
        visit((*value, (*bytes as u32).min(MAX_EACH) as usize, false));
    } else {
        visit((*value, TEXT, false));
    }
}

/// `process_vm_readv` and `process_vm_writev`: the other side too, where it is this memory.
pub(super) fn memory_of_process([process, _, _, parts, count, _]: &[usize; 6], visit: Visit) {
    if crate::mapping::advice::has_this_memory(*process as i32) {
        vectors(*parts, *count, true, visit);
    } else {
        visit((*parts, (*count).min(super::MAX_VECTORS) * 2 * WORD, false));
    }
}

/// `setxattrat` and `getxattrat`: a value's address and bytes.
pub(super) fn attribute_of_file([_, _, _, _, value, bytes]: &[usize; 6], visit: Visit) {
    visit((*value, (*bytes).min(PAGE), false));
    if let Some([start, bytes]) = frame::read::<[usize; 2]>(*value) {
        visit((start, (bytes as u32).min(MAX_EACH) as usize, true));
    }
}
