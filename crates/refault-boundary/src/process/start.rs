//! How the agent starts in a program, and how it ends with it.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use refault_linux::calls::{SYS_close, SYS_mmap, SYS_open, SYS_openat};
use refault_linux::errno::{EBADF, ENOSYS};
use refault_linux::files::{S_IRUSR, S_IWUSR};
use refault_linux::flags::{
    MAP_ANONYMOUS, MAP_SHARED, O_CLOEXEC, O_DIRECT, O_DIRECTORY, O_PATH, O_RDWR, O_TMPFILE, PROT_READ, PROT_WRITE,
};
use refault_linux::signals::SIGNALS;
use refault_linux::uffd::Uffd;
use refault_linux::{proc, sys};
use refault_paging::settings::AgentSettings;
use refault_paging::stores::{Files, Stores};
use refault_paging::{Account, Attributes, Engine, EngineOptions, PAGE, Shared};
use refault_store::noted;

use crate::engine_lock;
use crate::files::descriptors;
use crate::files::memory_files;
use crate::library::report;
use crate::mapping::memory_calls;
use crate::memory::addresses::{addresses_for_own, addresses_for_pool};
use crate::memory::area;
use crate::memory::heap;
use crate::memory::mappings;
use crate::memory::mappings::Mapping;
use crate::memory::seen;
use crate::patched::fast;
use crate::patched::sites;
use crate::patched::switch;
use crate::process::adoption;
use crate::process::execution;
use crate::process::observer;
use crate::process::owner::{borrows_memory, has_borrowers, has_shared_descriptors, owns_memory};
use crate::process::robust;
use crate::signals;
use crate::signals::sets::Actions;
use crate::thread::Thread;
use crate::user_dispatch;

/// Takes the program over. Called by the loader, before the program's own code.
pub(crate) fn begin(settings: &AgentSettings) -> Result<(), String> {
    if is_traced() {
        leave_alone(settings);
        report::say(format_args!("process {} is traced (by a debugger): it is not managed", sys::process_id()));
        return Ok(());
    }
    if adoption::is_impossible() {
        leave_alone(settings);
        let process = sys::process_id();
        report::say(format_args!(
            "process {process} is not managed: a library has started a thread before that no signal reaches; --backend kernel holds it"
        ));
        return Ok(());
    }
    // A panic's own way of speaking goes through libc, whose calls would come back to the agent.
    std::panic::set_hook(Box::new(|panic| report::end(format_args!("a fault of the agent's own: {panic}"))));
    let text = proc::read(proc::MAPS).unwrap_or_default();
    let maps: Vec<Mapping<'_>> = proc::mappings(&text).collect();
    if is_emulated(&maps) {
        leave_alone(settings);
        report::say(format_args!("process {} runs in valgrind: it is not managed", sys::process_id()));
        return Ok(());
    }
    let (start, end) = own_code(&maps).ok_or("the agent's code is not found")?;
    user_dispatch::set_code(start, end);
    if let Some(library) = &settings.library {
        execution::set_library(library);
    }
    report::use_descriptor(descriptors::copy_of(report::STANDARD_ERROR));
    let uffd = match Uffd::open() {
        Ok(uffd) => uffd,
        Err(_) if is_managed_from_outside(settings) => {
            let process = sys::process_id();
            report::say(format_args!("process {process} is emulated: it is managed with its emulator's memory"));
            return Ok(());
        }
        // The command has found that the kernel has it.
        Err(ENOSYS) => {
            leave_alone(settings);
            let process = sys::process_id();
            report::say(format_args!("process {process} is emulated by a program that is not managed: it is not either"));
            return Ok(());
        }
        Err(error) if descriptors::are_lacking(error) => {
            return Err("no descriptor is left for userfaultfd: a program needs four more when it is managed (ulimit -n)".to_owned());
        }
        Err(_) => return Err("userfaultfd is refused: the system-call filter of this container must allow `userfaultfd`, or the kernel is older than 6.8".to_owned()),
    };
    let uffd = Uffd::from_descriptor(descriptors::adopt(uffd.descriptor()));
    let shared = segment(settings)?;
    // SAFETY: the segment stays mapped.
    let account = unsafe { Account::join(shared, settings.own.then_some(settings.memory / PAGE as u64)) };
    let is_fast = fast::is_possible();
    if is_fast {
        sites::reserve();
    }
    let maker =
        settings.file.as_deref().and_then(Directory::open).map(|directory| Box::new(directory) as Box<dyn Files>);
    // A budget beyond every machine's memory stands for none, and needs no more addresses than this.
    let memory = settings.memory.min(4 << 40);
    let pool = addresses_for_pool(memory);
    let store = Stores::new(pool, memory, maker, (memory * 16).clamp(4 << 30, 256 << 30))
        .map_err(|_| "no addresses are left for the compressed pool")?;
    let options =
        EngineOptions { policy: settings.policy.clone(), store, account, resident_only: settings.resident_only };
    for ((start, end), _) in &maps {
        seen::note(*start, end - start);
    }
    area::reserve(addresses_for_own(memory));
    let mut engine = Box::new(Engine::new(uffd, options, own_bytes)?);
    engine.looks_at_own_with(touched_bytes);
    engine.looks_at_lists_with(robust::walk);
    engine_lock::begin(engine);
    owns_memory();
    memory_calls::look_at_personality();
    let actions = Box::leak(Box::new(Actions([crate::signals::sets::Action::default(); SIGNALS + 1])));
    let thread = Thread::new(actions).ok_or("no addresses are left for stacks")?;
    signals::adopt(thread);
    thread.install_stack();
    robust::look(thread);
    if is_fast {
        sites::remember(&maps, (start, end));
        fast::install(thread);
        switch::turn_on();
    }
    signals::install(actions, crate::entry::on_signal as *const () as usize);
    adoption::all(actions)?;
    // Not before: a thread that faults must have a handler for that.
    manage_reserved(&maps);
    observer::begin(settings)?;
    mappings::remember(&maps, start);
    memory_files::look_at_inherited();
    if user_dispatch::dispatch_on() != 0 {
        return Err("this kernel lacks Syscall User Dispatch (Linux 5.11 and later have it)".to_owned());
    }
    Ok(())
}

/// This process is not managed, and what it executes is not either.
fn leave_alone(settings: &AgentSettings) {
    if let Some(library) = &settings.library {
        execution::withdraw(library);
    }
}

/// Addresses that were reserved before the program is taken over, by an allocator of its own that the loader or a
/// library has called: what it uses later is managed. What it uses already is not, nor are small pieces, such as guards
/// of stacks.
fn manage_reserved(maps: &[Mapping<'_>]) {
    const MIN_BYTES: usize = 1 << 20;
    let is_reserved =
        |(start, end): &proc::Span, rest: &str| rest.trim_end() == "---p 00000000 00:00 0" && end - start >= MIN_BYTES;
    let reserved: Vec<_> = maps.iter().filter(|(span, rest)| is_reserved(span, rest)).collect();
    if reserved.is_empty() {
        return;
    }
    // The allocator may have gone on.
    let sizes = proc::read(proc::SMAPS).unwrap_or_default();
    let mut paging = engine_lock::paging();
    for ((start, end), rest) in proc::empty_mappings(&sizes) {
        let is_new = !paging.manages(start, end - start);
        if is_new
            && is_reserved(&(start, end), rest)
            && reserved.iter().any(|((from, to), _)| *from <= start && end <= *to)
        {
            paging.manage(start, end - start, Attributes::default());
        }
    }
}

/// Bytes of this library's data that are private to a process, and of what the program had before it was taken over.
const FIXED: usize = 192 << 10;

/// Bytes of memory that the agent takes beside the program's pages, parked, compressed or not.
fn own_bytes() -> usize {
    FIXED + heap::bytes() + Thread::bytes() + sites::bytes()
}

/// Those of them, and of the stores' tables, that were ever touched. Cost: a walk through the page tables.
fn touched_bytes() -> usize {
    FIXED + area::touched() + sites::bytes()
}

/// Where the files are made: open from the start, so that a program may change its user or root.
struct Directory(i32);

impl Directory {
    fn open(path: &OsStr) -> Option<Directory> {
        let path = CString::new(path.as_bytes()).ok()?;
        const FLAGS: usize = O_PATH | O_DIRECTORY | O_CLOEXEC;
        // SAFETY: opens a directory.
        let descriptor = unsafe { sys::call(SYS_open, [path.as_ptr() as usize, FLAGS, 0, 0, 0, 0]) };
        (descriptor >= 0).then(|| Directory(descriptors::adopt(descriptor as i32)))
    }
}

impl Files for Directory {
    fn close(&mut self, descriptor: i32) {
        if borrows_memory() || has_shared_descriptors() {
            // The owner's stays open, and the agent's; another process's too.
            return;
        }
        descriptors::closed(descriptor);
        // SAFETY: it was made here and is used no more.
        unsafe { sys::call(SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
    }

    fn create(&mut self) -> Option<i32> {
        // A child that shares memory has descriptors of its own: what it opens, its parent has not, and the other way
        // round.
        if borrows_memory() || has_borrowers() {
            return None;
        }
        const FLAGS: usize = O_TMPFILE | O_CLOEXEC | O_RDWR;
        const MODE: usize = (S_IRUSR | S_IWUSR) as usize;
        // With direct I/O, so that no page of it stays in memory; without, where there is none.
        [FLAGS | O_DIRECT, FLAGS].into_iter().find_map(|flags| {
            // SAFETY: makes an unnamed file.
            let descriptor =
                unsafe { sys::call(SYS_openat, [self.0 as usize, c".".as_ptr() as usize, flags, MODE, 0, 0]) };
            (descriptor >= 0).then(|| descriptors::adopt(descriptor as i32))
        })
    }
}

/// The segment that the tree shares, or one of this process and its forked children alone.
fn segment(settings: &AgentSettings) -> Result<*const Shared, &'static str> {
    if let Some(descriptor) = settings.segment {
        descriptors::keep(descriptor);
        if let Ok(shared) = Shared::map(descriptor) {
            return Ok(shared);
        }
    }
    const RIGHTS: usize = PROT_READ | PROT_WRITE;
    // SAFETY: a fresh shared anonymous mapping.
    let at = unsafe { sys::call(SYS_mmap, [0, Shared::BYTES, RIGHTS, MAP_SHARED | MAP_ANONYMOUS, usize::MAX, 0]) };
    if at <= 0 {
        return Err("no addresses are left");
    }
    noted::note(at as usize, Shared::BYTES);
    let shared = at as *const Shared;
    // SAFETY: zeros are a good start.
    unsafe { (*shared).limit.store(settings.memory / PAGE as u64, Ordering::Relaxed) };
    // SAFETY: as above.
    unsafe { &*shared }.is_in_this_namespace();
    Ok(shared)
}

/// Whether another process traces this one: each of the agent's signals would stop it.
fn is_traced() -> bool {
    let status = proc::read(proc::STATUS).unwrap_or_default();
    proc::status_field(&status, "TracerPid").is_some_and(|pid| pid != "0")
}

/// Whether valgrind runs this process: its processor is not the machine's, and it knows few of the calls that are
/// needed.
fn is_emulated(maps: &[Mapping<'_>]) -> bool {
    maps.iter().any(|(_, rest)| rest.contains("/vgpreload_core"))
}

/// Whether an agent is at work in this process already: in a program that emulates a processor, and a kernel without a
/// userfaultfd, for this one. It hides its descriptors, the segment's among them. What this one maps the emulator maps,
/// and so it is managed.
fn is_managed_from_outside(settings: &AgentSettings) -> bool {
    settings.segment.is_some_and(|descriptor| Shared::map(descriptor).is_err_and(|error| error as isize == -EBADF))
}

/// The executable segment of this library.
fn own_code(maps: &[Mapping<'_>]) -> Option<(usize, usize)> {
    let here = own_code as *const () as usize;
    maps.iter().map(|(span, _)| *span).find(|(start, end)| (*start..*end).contains(&here))
}
