//! Call sites of libraries that jump to [`crate::fast`] instead of being caught.
//!
//! A library that checks a call's result as libc does leaves room for a jump: `syscall` and the comparison with the lowest
//! error number behind it are 8 bytes, a jump is 5. The sites of one library, that from which calls come, are rewritten
//! once: when a process with one thread has made [`MANY_CALLS`] calls, or is about to start its first thread. So a
//! process that does little pays nothing, and nobody executes what is being rewritten. Each site has a stub in memory near
//! the library:
//!
//! ```text
//! site: jmp stub            stub: lea slow(%rip), %rcx
//!       (rest of the cmp)         jmp *entrance(%rip)
//! back: …                   slow: syscall                 (caught, as at the site)
//!                           tail: cmp $-4096, %rax
//!                                 jmp back
//! ```
//!
//! Which library it is, and what its names are, does not matter; a site is taken only if nothing in the library jumps to its
//! comparison. Invariants: who is behind a site's `syscall` when it is rewritten goes on at `tail`; the program never
//! sees an address of a stub. Cost: some 2 ms once, and a private copy of each page that has a frequent call (18 of glibc
//! 2.36's).

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use refault_paging::sys::{self, nr};

use crate::frame::{self, Context, register};
use crate::thread::Thread;
use crate::{calls, fast};

/// `syscall; cmp $-4096, %rax`.
const PATTERN: [u8; 8] = [0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff];
/// Caught calls of a process after which it is worth it.
const MANY_CALLS: u32 = 256;
/// Libraries that are remembered.
const MANY: usize = 32;
/// How far before a `syscall` its number is looked for.
const BACK: usize = 32;
/// Bytes of a stub, and where in it what lies.
const STUB: usize = 32;
const SLOW: usize = 13;
const TAIL: usize = 15;
const BEHIND: usize = 21;
const END: usize = 26;
/// The lowest value that is an error.
const LOWEST_ERROR: u64 = -4096i64 as u64;
const PAGE: usize = 4096;

/// Executable mappings of files: start, end, and whether they were looked at.
static LIBRARIES: [[AtomicUsize; 3]; MANY] = [const { [const { AtomicUsize::new(0) }; 3] }; MANY];
/// The code that has patched sites, and the stubs. Empty until there are some.
static PATCHED: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
static STUBS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Bytes that became private by it.
static BYTES: AtomicUsize = AtomicUsize::new(0);
/// Calls that were caught.
static CAUGHT: AtomicU32 = AtomicU32::new(0);

fn range(of: &[AtomicUsize; 2]) -> std::ops::Range<usize> {
    of[0].load(Ordering::Relaxed)..of[1].load(Ordering::Relaxed)
}

/// Remembers what libraries there are, from the text of `/proc/self/maps`. Before the program runs.
pub(crate) fn remember(maps: &str, own: (usize, usize)) {
    let mut free = LIBRARIES.iter();
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some("r-xp"), Some(path)) = (words.next(), words.next(), words.nth(3)) else { continue };
        let ends = range.split_once('-').map(|(start, end)| [start, end].map(|end| usize::from_str_radix(end, 16)));
        if let Some([Ok(start), Ok(end)]) = ends
            && path.starts_with('/')
            && start != own.0
            && let Some([at, to, _]) = free.next()
        {
            at.store(start, Ordering::Relaxed);
            to.store(end, Ordering::Relaxed);
        }
    }
}

/// Bytes of memory that the patches take.
pub(crate) fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// A call was caught; `behind` is the instruction behind it.
pub(crate) fn caught(thread: &Thread, behind: usize) {
    let before = CAUGHT.fetch_add(1, Ordering::Relaxed);
    if before >= MANY_CALLS
        && before.is_multiple_of(MANY_CALLS)
        && !is_done()
        && !thread.is_vm_child
        && thread.is_last()
    {
        patch_around(behind);
    }
}

/// A process of one thread is about to have another: later nothing can be patched. `behind` is the instruction behind its
/// call.
pub(crate) fn before_threads(behind: usize) {
    if !is_done() {
        patch_around(behind);
    }
}

fn is_done() -> bool {
    !range(&PATCHED).is_empty() || !fast::is_on()
}

/// Whether an address is in a stub.
pub(crate) fn is_stub(address: usize) -> bool {
    range(&STUBS).contains(&address)
}

/// The site whose stub has its `syscall` there.
pub(crate) fn of(slow: usize) -> usize {
    back(slow - SLOW) - PATTERN.len()
}

/// Where a stub's last jump goes.
fn back(stub: usize) -> usize {
    // SAFETY: stubs stay mapped and are written once.
    let distance = unsafe { ((stub + END - 4) as *const i32).read_unaligned() };
    (stub + END).wrapping_add_signed(distance as isize)
}

/// The thread goes on behind the site of a stub, with a call's result.
pub(crate) fn put_behind(context: &mut Context, slow: usize, result: u64) {
    context.registers[register::RAX] = result;
    context.registers[register::RIP] = back(slow - SLOW) as u64;
    compare(context);
}

/// A context in a stub becomes that of the same moment at its site.
pub(crate) fn show(context: &mut Context) {
    let at = context.registers[register::RIP] as usize;
    if !is_stub(at) {
        return;
    }
    let start = range(&STUBS).start;
    let stub = at - (at - start) % STUB;
    match at - stub {
        ..=SLOW => context.registers[register::RIP] = of(stub + SLOW) as u64,
        TAIL => {
            context.registers[register::RIP] = back(stub) as u64;
            compare(context);
        }
        _ => context.registers[register::RIP] = back(stub) as u64,
    }
}

/// A thread that is to go on behind the `syscall` of a site that is patched by now goes on in the site's stub.
pub(crate) fn step_over(context: &mut Context) {
    let behind = context.registers[register::RIP] as usize;
    if range(&PATCHED).contains(&behind)
        && let Some([0xe9, distance @ ..]) = frame::read::<[u8; 5]>(behind - 2)
    {
        let stub = (behind + 3).wrapping_add_signed(i32::from_le_bytes(distance) as isize);
        if is_stub(stub) {
            context.registers[register::RIP] = (stub + TAIL) as u64;
        }
    }
}

/// The flags after the comparison with the lowest error.
fn compare(context: &mut Context) {
    const CARRY: u64 = 1;
    const PARITY: u64 = 4;
    const ADJUST: u64 = 0x10;
    const ZERO: u64 = 0x40;
    const SIGN: u64 = 0x80;
    const OVERFLOW: u64 = 0x800;
    let value = context.registers[register::RAX];
    let difference = value.wrapping_sub(LOWEST_ERROR);
    let flags = [
        (CARRY, value < LOWEST_ERROR),
        (PARITY, (difference as u8).count_ones().is_multiple_of(2)),
        (ADJUST, (value ^ LOWEST_ERROR ^ difference) & ADJUST != 0),
        (ZERO, difference == 0),
        (SIGN, difference >> 63 != 0),
        (OVERFLOW, ((value ^ LOWEST_ERROR) & (value ^ difference)) >> 63 != 0),
    ];
    for (flag, is_set) in flags {
        let all = &mut context.registers[register::FLAGS];
        *all = if is_set { *all | flag } else { *all & !flag };
    }
}

/// Patches the library in which an address lies. The process has one thread beside the observer.
fn patch_around(address: usize) {
    for [start, end, is_tried] in &LIBRARIES {
        let (start, end) = (start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
        if (start..end).contains(&address) {
            if is_tried.swap(1, Ordering::Relaxed) == 0 {
                // The observer copies with the library's functions: it waits, in the agent's own code.
                let _observer = crate::observer::stand_still();
                patch(start, end);
            }
            return;
        }
    }
}

fn patch(start: usize, end: usize) {
    // SAFETY: a library's code, which is readable and stays as long as the process.
    let code = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
    let mut sites = frequent(code);
    keep_safe(code, &mut sites);
    let bytes = (sites.len() * STUB + STUB).next_multiple_of(PAGE);
    if sites.is_empty() {
        return;
    }
    let Some(stubs) = map_near(start, end, bytes) else { return };
    write(stubs, &fast::entrance().to_le_bytes());
    for (index, site) in sites.iter().enumerate() {
        write_stub(stubs, stubs + STUB * (index + 1), start + site + PATTERN.len());
    }
    // SAFETY: the mapping made above; the code of a library, which nobody executes: this is the only thread but for the
    // observer, which stands still, and the agent calls nothing of it meanwhile.
    unsafe {
        if sys::call(nr::MPROTECT, [stubs, bytes, 5, 0, 0, 0]) != 0
            || sys::call(nr::MPROTECT, [start, end - start, 3, 0, 0, 0]) != 0
        {
            sys::unmap(stubs, bytes);
            return;
        }
    }
    STUBS[0].store(stubs, Ordering::Relaxed);
    STUBS[1].store(stubs + STUB * (sites.len() + 1), Ordering::Relaxed);
    PATCHED[0].store(start, Ordering::Relaxed);
    PATCHED[1].store(end, Ordering::Relaxed);
    let (mut pages, mut last) = (0, 0);
    for (index, site) in sites.iter().enumerate() {
        write_jump(start + site, stubs + STUB * (index + 1));
        for page in [start + site, start + site + 4].map(|byte| byte / PAGE) {
            pages += usize::from(page > last);
            last = page.max(last);
        }
    }
    // SAFETY: as it was.
    if unsafe { sys::call(nr::MPROTECT, [start, end - start, 5, 0, 0, 0]) } != 0 {
        crate::report::end(format_args!("the code of a library cannot be made executable again"));
    }
    BYTES.store(pages * PAGE + bytes, Ordering::Relaxed);
}

/// Places of sites in `code` whose call is one that may be made from there, in order.
fn frequent(code: &[u8]) -> Vec<usize> {
    let mut sites = Vec::new();
    let mut at = 0;
    while at + PATTERN.len() <= code.len() {
        if code[at] == PATTERN[0] && code[at..at + PATTERN.len()] == PATTERN {
            let is_frequent =
                number(&code[at.saturating_sub(BACK)..at]).is_some_and(|number| calls::is_plain(number, [0; 6]));
            if is_frequent {
                sites.push(at);
            }
            at += PATTERN.len();
        } else {
            at += 1;
        }
    }
    sites
}

/// The number that the instructions before a `syscall` put into `%eax`, as far as bytes tell. A wrong answer costs time, no
/// more: the call is looked at again when it is made.
fn number(before: &[u8]) -> Option<usize> {
    const MOVE: u8 = 0xb8;
    if before.ends_with(&[0x31, 0xc0]) {
        return Some(0);
    }
    (0..before.len().saturating_sub(4)).rev().find_map(|at| {
        let [MOVE, a, b, 0, 0] = before[at..at + 5] else { return None };
        let number = usize::from(u16::from_le_bytes([a, b]));
        (number < 512).then_some(number)
    })
}

/// Leaves out the sites to whose comparison something in `code` may jump.
fn keep_safe(code: &[u8], sites: &mut Vec<usize>) {
    let mut targets = Vec::new();
    let mut hit = |target: Option<usize>| {
        if let Some(site) = target.and_then(|target| target.checked_sub(2))
            && sites.binary_search(&site).is_ok()
        {
            targets.push(site);
        }
    };
    for at in 0..code.len().saturating_sub(6) {
        let long = match code[at] {
            0xe8 | 0xe9 => at + 5,
            0x0f if code[at + 1] & 0xf0 == 0x80 => at + 6,
            0x70..=0x7f | 0xe0..=0xe3 | 0xeb => {
                hit((at + 2).checked_add_signed(code[at + 1] as i8 as isize));
                continue;
            }
            _ => continue,
        };
        let distance = i32::from_le_bytes([code[long - 4], code[long - 3], code[long - 2], code[long - 1]]);
        hit(long.checked_add_signed(distance as isize));
    }
    sites.retain(|site| !targets.contains(site));
}

/// Memory within a jump of the whole library.
fn map_near(start: usize, end: usize, bytes: usize) -> Option<usize> {
    const STEP: usize = 1 << 20;
    const FURTHEST: usize = 1 << 30;
    // MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE
    const FLAGS: usize = 0x10_0022;
    let places =
        (1..FURTHEST / STEP).flat_map(|steps| [end.checked_add(steps * STEP), start.checked_sub(steps * STEP)]);
    places.flatten().find(|place| {
        // SAFETY: a fresh mapping that replaces none.
        unsafe { sys::call(nr::MMAP, [*place, bytes, 3, FLAGS, usize::MAX, 0]) == *place as isize }
    })
}

fn write_stub(stubs: usize, stub: usize, back: usize) {
    let distance = |to: usize, from: usize| (to.wrapping_sub(from) as i32).to_le_bytes();
    write(stub, &[0x48, 0x8d, 0x0d, 6, 0, 0, 0, 0xff, 0x25]);
    write(stub + 9, &distance(stubs, stub + SLOW));
    write(stub + SLOW, &PATTERN);
    write(stub + BEHIND, &[0xe9]);
    write(stub + END - 4, &distance(back, stub + END));
}

fn write_jump(site: usize, stub: usize) {
    write(site, &[0xe9]);
    write(site + 1, &(stub.wrapping_sub(site + 5) as i32).to_le_bytes());
}

/// Writes byte by byte: a function that copies may lie in the code that cannot be executed at the moment.
fn write(to: usize, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller has made the memory writable, and nobody reads it.
        unsafe { ((to + index) as *mut u8).write_volatile(*byte) };
    }
}
