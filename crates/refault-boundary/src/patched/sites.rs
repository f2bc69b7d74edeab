//! Call sites of libraries that jump to [`crate::patched::fast`] instead of being caught.
//!
//! A library that checks a call's result as libc does leaves room for a jump. `syscall` and what is done with the
//! result behind it ([`TAILS`]) are 6 bytes or 8, a jump is 5. A library's sites are rewritten once, while the process
//! has one thread: after [`MIN_CALLS`] calls from there, or right before its first further thread. So a process that
//! does little pays nothing, and no thread executes what is being rewritten. Each site has a stub near the libraries,
//! in addresses that are reserved before the program begins ([`reserve`]). A library further away stays as it is:
//!
//! ```text
//! site: jmp stub            stub: lea slow(%rip), %rcx
//!       (rest of the cmp)         jmp *entrance(%rip)
//! back: …                   slow: syscall                 (caught, as at the site)
//!                           tail: cmp $-4096, %rax        (what stood behind the site's)
//!                                 jmp back
//! ```
//!
//! Which library it is, and what its names are, does not matter; a site is taken only if nothing in the library jumps
//! to its tail. Invariants: who is behind a site's `syscall` when it is rewritten goes on at `tail`; the program never
//! sees an address of a stub. Cost: some 2 ms once, and a private copy of each page that has a frequent call (30 of
//! glibc 2.36's).

use std::sync::atomic::{AtomicUsize, Ordering};

use refault_linux::PAGE;
use refault_linux::calls::{MAX, SYS_mprotect};
use refault_linux::flags::{PROT_EXEC, PROT_READ, PROT_WRITE};
use refault_linux::sys;
use refault_store::noted;

use crate::frame::{self, Context, register};
use crate::memory::mappings::Mapping;
use crate::patched::switch;
use crate::thread::Thread;

/// `syscall`.
const CALL: [u8; 2] = [0x0f, 0x05];
/// What stands behind it: `cmp $-4096, %rax`, `cmp $-4095, %rax`, or `mov %eax, %edx; neg %edx`.
const TAILS: [&[u8]; 3] =
    [&[0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff], &[0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff], &[0x89, 0xc2, 0xf7, 0xda]];
/// Of them, the one that negates.
const NEGATES: usize = 2;
/// Caught calls of a process from one library after which it is worth it.
const MIN_CALLS: usize = 256;
/// Instead of that number: the library was looked at.
const TRIED: usize = usize::MAX / 2;
/// Libraries whose sites may be rewritten.
const MAX_PATCHED: usize = 4;
/// Libraries that are remembered: programs with plug-ins have some hundred, of which libc may be the last.
const MAX_LIBRARIES: usize = 256;
/// Bytes that all stubs may take. Those of glibc 2.36 take two pages.
const MAX_BYTES: usize = 256 << 10;
/// How far before a `syscall` its number is looked for.
const BACK: usize = 32;
/// Bytes of a stub, and where in it what lies.
const STUB: usize = 32;
const SLOW: usize = 13;
const TAIL: usize = 15;
/// Bytes of a jump.
const JUMP: usize = 5;

/// Executable mappings of files: start, end, and how many calls from there were caught.
static LIBRARIES: [[AtomicUsize; 3]; MAX_LIBRARIES] = [const { [const { AtomicUsize::new(0) }; 3] }; MAX_LIBRARIES];
/// The code that has patched sites, and the stubs, by library. Empty until there are some.
static PATCHED: [[AtomicUsize; 2]; MAX_PATCHED] = [const { [const { AtomicUsize::new(0) }; 2] }; MAX_PATCHED];
static STUBS: [[AtomicUsize; 2]; MAX_PATCHED] = [const { [const { AtomicUsize::new(0) }; 2] }; MAX_PATCHED];
/// What is left of the addresses that are reserved for stubs.
static ROOM: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Bytes that became private by it.
static BYTES: AtomicUsize = AtomicUsize::new(0);

fn range(of: &[AtomicUsize; 2]) -> std::ops::Range<usize> {
    of[0].load(Ordering::Relaxed)..of[1].load(Ordering::Relaxed)
}

/// Remembers what libraries there are. Before the program runs.
pub(crate) fn remember(maps: &[Mapping<'_>], own: (usize, usize)) {
    let is_library = |rest: &str| rest.starts_with("r-xp ") && rest.contains(" /");
    let others = maps.iter().filter(|(span, rest)| *span != own && is_library(rest));
    for ((span, _), [at, to, _]) in others.zip(&LIBRARIES) {
        at.store(span.0, Ordering::Relaxed);
        to.store(span.1, Ordering::Relaxed);
    }
}

/// Bytes of memory that the patches take.
pub(crate) fn bytes() -> usize {
    BYTES.load(Ordering::Relaxed)
}

/// A call was caught; `behind` is the instruction behind it.
pub(crate) fn caught(thread: &Thread, behind: usize) {
    if let Some([.., calls]) = library(behind) {
        let before = calls.fetch_add(1, Ordering::Relaxed);
        let is_worth_it = (MIN_CALLS..TRIED).contains(&before) && before.is_multiple_of(MIN_CALLS);
        if is_worth_it && !thread.is_vm_child && thread.is_last() {
            patch_around(behind);
        }
    }
}

/// A process of one thread is about to have another: later nothing can be patched. `behind` is the instruction behind
/// its call.
pub(crate) fn before_threads(behind: usize) {
    patch_around(behind);
}

/// The library in which an address lies. Calls come from the same one again and again.
fn library(address: usize) -> Option<&'static [AtomicUsize; 3]> {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    let is_in = |[start, end, _]: &[AtomicUsize; 3]| {
        (start.load(Ordering::Relaxed)..end.load(Ordering::Relaxed)).contains(&address)
    };
    let last = &LIBRARIES[LAST.load(Ordering::Relaxed)];
    if is_in(last) {
        return Some(last);
    }
    let found = LIBRARIES.iter().position(is_in)?;
    LAST.store(found, Ordering::Relaxed);
    Some(&LIBRARIES[found])
}

/// Whether an address is in a stub.
pub(crate) fn is_stub(address: usize) -> bool {
    STUBS.iter().any(|stubs| range(stubs).contains(&address))
}

/// The site whose stub has its `syscall` there.
pub(crate) fn of(slow: usize) -> usize {
    let stub = slow - SLOW;
    back(stub) - TAILS[kind(stub)].len() - CALL.len()
}

/// Which of [`TAILS`] a stub has.
fn kind(stub: usize) -> usize {
    // SAFETY: stubs stay mapped and are written once, and each has more bytes than the longest tail.
    let bytes = unsafe { std::slice::from_raw_parts((stub + TAIL) as *const u8, STUB - TAIL) };
    TAILS.iter().position(|tail| bytes.starts_with(tail)).unwrap_or(0)
}

/// Where a stub's last jump goes.
fn back(stub: usize) -> usize {
    let end = stub + TAIL + TAILS[kind(stub)].len() + JUMP;
    // SAFETY: stubs stay mapped and are written once.
    let distance = unsafe { ((end - 4) as *const i32).read_unaligned() };
    end.wrapping_add_signed(distance as isize)
}

/// The thread goes on behind the site of a stub, with a call's result.
pub(crate) fn put_behind(context: &mut Context, slow: usize, result: u64) {
    context.registers[register::RAX] = result;
    finish(context, slow - SLOW);
}

/// Does what a stub does after the call.
fn finish(context: &mut Context, stub: usize) {
    context.registers[register::RIP] = back(stub) as u64;
    let value = context.registers[register::RAX];
    match kind(stub) {
        NEGATES => {
            let value = value as u32;
            context.registers[register::RDX] = u64::from(value.wrapping_neg());
            set_flags(context, 0, u64::from(value), 32);
        }
        kind => set_flags(context, value, (kind as i64 - 4096) as u64, 64),
    }
}

/// A context in a stub becomes that of the same moment at its site.
pub(crate) fn show(context: &mut Context) {
    let at = context.registers[register::RIP] as usize;
    if !is_stub(at) {
        return;
    }
    let start = STUBS.iter().map(range).find(|stubs| stubs.contains(&at)).map_or(0, |stubs| stubs.start);
    let stub = at - (at - start) % STUB;
    let behind = TAIL + TAILS[kind(stub)].len();
    match at - stub {
        ..=SLOW => context.registers[register::RIP] = of(stub + SLOW) as u64,
        // What stands there can be done twice.
        offset if offset < behind => finish(context, stub),
        _ => context.registers[register::RIP] = back(stub) as u64,
    }
}

/// A thread that is to go on behind the `syscall` of a site that is patched by now goes on in the site's stub.
pub(crate) fn step_over(context: &mut Context) {
    let behind = context.registers[register::RIP] as usize;
    if PATCHED.iter().any(|code| range(code).contains(&behind))
        && let Some([0xe9, distance @ ..]) = frame::read::<[u8; 5]>(behind - 2)
    {
        let stub = (behind + 3).wrapping_add_signed(i32::from_le_bytes(distance) as isize);
        if is_stub(stub) {
            context.registers[register::RIP] = (stub + TAIL) as u64;
        }
    }
}

/// The flags after `b` was subtracted from `a`, both of `bits` bits.
fn set_flags(context: &mut Context, a: u64, b: u64, bits: u32) {
    const CARRY: u64 = 1;
    const PARITY: u64 = 4;
    const ADJUST: u64 = 0x10;
    const ZERO: u64 = 0x40;
    const SIGN: u64 = 0x80;
    const OVERFLOW: u64 = 0x800;
    let difference = a.wrapping_sub(b) & (u64::MAX >> (64 - bits));
    let sign = 1 << (bits - 1);
    let flags = [
        (CARRY, a < b),
        (PARITY, (difference as u8).count_ones().is_multiple_of(2)),
        (ADJUST, (a ^ b ^ difference) & ADJUST != 0),
        (ZERO, difference == 0),
        (SIGN, difference & sign != 0),
        (OVERFLOW, (a ^ b) & (a ^ difference) & sign != 0),
    ];
    for (flag, is_set) in flags {
        let all = &mut context.registers[register::FLAGS];
        *all = if is_set { *all | flag } else { *all & !flag };
    }
}

/// Patches the library in which an address lies. The process has one thread beside the observer.
fn patch_around(address: usize) {
    let Some([start, end, calls]) = library(address) else { return };
    if switch::is_on() && calls.swap(TRIED, Ordering::Relaxed) < TRIED && switch::has_compacted_states() {
        // The observer copies with the library's functions: it waits, in the agent's own code.
        let _observer = crate::process::observer::stand_still();
        patch(start.load(Ordering::Relaxed), end.load(Ordering::Relaxed));
    }
}

fn patch(start: usize, end: usize) {
    // SAFETY: a library's code, which is readable and stays as long as the process.
    let code = unsafe { std::slice::from_raw_parts(start as *const u8, end - start) };
    let mut sites = frequent(code);
    keep_safe(code, &mut sites);
    let bytes = (sites.len() * STUB + STUB).next_multiple_of(PAGE);
    let Some(free) = STUBS.iter().position(|stubs| range(stubs).is_empty()) else { return };
    if sites.is_empty() {
        return;
    }
    let Some(stubs) = take_near(start, end, bytes) else { return };
    write(stubs, &entrance().to_le_bytes());
    for (index, &site) in sites.iter().enumerate() {
        let tail = tail_at(&code[site + CALL.len()..]).unwrap_or(TAILS[0]);
        write_stub(stubs, stubs + STUB * (index + 1), start + site, tail);
    }
    const EXECUTABLE: usize = PROT_READ | PROT_EXEC;
    // SAFETY: what was reserved for it; the code of a library, which no other thread executes: there is only the
    // observer, which stands still. It stays executable where that is allowed: the compiler may have made what follows
    // call the library's `memset` or `memcpy`. None of their code is a site.
    unsafe {
        let writable = |rights| sys::call(SYS_mprotect, [start, end - start, rights, 0, 0, 0]) == 0;
        let may_be_written = writable(EXECUTABLE | PROT_WRITE) || writable(PROT_READ | PROT_WRITE);
        if sys::call(SYS_mprotect, [stubs, bytes, EXECUTABLE, 0, 0, 0]) != 0 || !may_be_written {
            return;
        }
    }
    STUBS[free][0].store(stubs, Ordering::Relaxed);
    STUBS[free][1].store(stubs + STUB * (sites.len() + 1), Ordering::Relaxed);
    PATCHED[free][0].store(start, Ordering::Relaxed);
    PATCHED[free][1].store(end, Ordering::Relaxed);
    let (mut pages, mut last) = (0, 0);
    for (index, site) in sites.iter().enumerate() {
        write_jump(start + site, stubs + STUB * (index + 1));
        for page in [start + site, start + site + 4].map(|byte| byte / PAGE) {
            pages += usize::from(page > last);
            last = page.max(last);
        }
    }
    // SAFETY: as it was.
    if unsafe { sys::call(SYS_mprotect, [start, end - start, EXECUTABLE, 0, 0, 0]) } != 0 {
        crate::library::report::end(format_args!("the code of a library cannot be made executable again"));
    }
    BYTES.fetch_add(pages * PAGE + bytes, Ordering::Relaxed);
}

/// Places of sites in `code` whose call is one that may be made from there, in order.
fn frequent(code: &[u8]) -> Vec<usize> {
    let mut sites = Vec::new();
    let mut at = 0;
    while at + CALL.len() <= code.len() {
        if code[at] == CALL[0]
            && let Some(tail) = code[at..].strip_prefix(&CALL).and_then(tail_at)
        {
            if number(&code[at.saturating_sub(BACK)..at]).is_some_and(switch::is_frequent) {
                sites.push(at);
            }
            at += CALL.len() + tail.len();
        } else {
            at += 1;
        }
    }
    sites
}

/// The tail with which code begins.
fn tail_at(code: &[u8]) -> Option<&'static [u8]> {
    TAILS.into_iter().find(|tail| code.starts_with(tail))
}

/// The number that the instructions before a `syscall` put into `%eax`, as far as bytes tell. A wrong answer costs
/// time, no more: the call is looked at again when it is made.
fn number(before: &[u8]) -> Option<usize> {
    const MOVE: u8 = 0xb8;
    if before.ends_with(&[0x31, 0xc0]) {
        return Some(0);
    }
    (0..before.len().saturating_sub(4)).rev().find_map(|at| {
        let [MOVE, a, b, 0, 0] = before[at..at + 5] else { return None };
        let number = usize::from(u16::from_le_bytes([a, b]));
        (number <= MAX).then_some(number)
    })
}

/// Leaves out the sites to whose tail something in `code` may jump.
fn keep_safe(code: &[u8], sites: &mut Vec<usize>) {
    let mut targets = Vec::new();
    let mut hit = |target: Option<usize>| {
        // Behind the call, and behind the first of two instructions.
        for before in [2, 4] {
            if let Some(site) = target.and_then(|target| target.checked_sub(before))
                && sites.binary_search(&site).is_ok()
            {
                targets.push(site);
            }
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

/// Reserves the addresses for stubs, before the program begins: what is mapped later may lie in a hole of the program's
/// memory, which it may unmap with all that is around it. Before anything large is mapped, so that libraries are near.
pub(crate) fn reserve() {
    let at = sys::map(MAX_BYTES);
    if at != 0 {
        noted::note(at, MAX_BYTES);
        ROOM[0].store(at, Ordering::Relaxed);
        ROOM[1].store(at + MAX_BYTES, Ordering::Relaxed);
    }
}

/// Memory for stubs within a jump of the whole library, if there is any left: as many bytes of zeros, whole pages.
fn take_near(start: usize, end: usize, bytes: usize) -> Option<usize> {
    const FURTHEST: usize = 1 << 31;
    let room = range(&ROOM);
    let is_near = end.max(room.end) - start.min(room.start) < FURTHEST;
    (is_near && room.len() >= bytes).then(|| {
        ROOM[0].store(room.start + bytes, Ordering::Relaxed);
        room.start
    })
}

fn write_stub(stubs: usize, stub: usize, site: usize, tail: &[u8]) {
    let distance = |to: usize, from: usize| (to.wrapping_sub(from) as i32).to_le_bytes();
    let (back, behind) = (site + CALL.len() + tail.len(), stub + TAIL + tail.len());
    write(stub, &[0x48, 0x8d, 0x0d, 6, 0, 0, 0, 0xff, 0x25]);
    write(stub + 9, &distance(stubs, stub + SLOW));
    write(stub + SLOW, &CALL);
    write(stub + TAIL, tail);
    write(behind, &[0xe9]);
    write(behind + 1, &distance(back, behind + JUMP));
}

fn write_jump(site: usize, stub: usize) {
    write(site, &[0xe9]);
    write(site + 1, &(stub.wrapping_sub(site + 5) as i32).to_le_bytes());
}

/// Writes byte by byte: a function that copies may lie in the code that cannot be executed at the moment.
fn write(to: usize, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller has made the memory writable, and no thread reads it.
        unsafe { ((to + index) as *mut u8).write_volatile(*byte) };
    }
}

/// Where stubs jump to.
fn entrance() -> usize {
    unsafe extern "C" {
        fn refault_fast();
    }
    refault_fast as *const () as usize
}
