//! The preloaded agent: gives an unmodified program's heap and large anonymous mappings managed memory.
//!
//! `refault run` puts this library into `LD_PRELOAD` and its settings into `REFAULT_AGENT`. It stands in for `malloc` and its
//! family (an allocator whose memory comes from the pager), for `mmap` and its family (large private anonymous mappings
//! come from the pager), and for `close` (so that a program that closes everything leaves the pager its descriptors).
//! Around `fork` it makes the child's memory the child's own.
//!
//! Invariants: the agent's own memory ([`heap`]) never comes from the pager, nor does anything that its threads touch; what
//! the agent does not manage it passes on to the kernel or to libc unchanged; nothing is ever written to the program's
//! standard output.

mod advice;
mod config;
mod control;
mod credentials;
mod descriptors;
mod forks;
mod heap;
mod inside;
mod libc_code;
mod libc_state;
mod limits;
mod malloc;
mod mappings;
mod operators;
mod output;
mod own_threads;
mod pressure;
mod recording;
mod signals;
mod stacks;
mod statistics;
mod system_calls;
mod thread_tables;
mod watching;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use refault_pager::{BlockedSignals, Budget, FaultMode, Pager};

#[global_allocator]
static HEAP: heap::AgentHeap = heap::AgentHeap;

pub(crate) struct Agent {
    pub(crate) pager: Pager,
    pub(crate) config: config::Config,
}

static AGENT: OnceLock<Agent> = OnceLock::new();
/// Set when [`AGENT`] is there, so that the paths of `malloc` need one load.
static READY: AtomicBool = AtomicBool::new(false);

/// While it lives, nothing is managed: the agent's threads are starting, and no other thread runs.
pub(crate) struct Unmanaged;

impl Unmanaged {
    pub(crate) fn begin() -> Unmanaged {
        READY.store(false, Ordering::Release);
        Unmanaged
    }
}

impl Drop for Unmanaged {
    fn drop(&mut self) {
        READY.store(true, Ordering::Release);
    }
}

/// The agent, once it has started.
pub(crate) fn agent() -> Option<&'static Agent> {
    if READY.load(Ordering::Acquire) { AGENT.get() } else { None }
}

/// Blocks the signals that must not interrupt this thread now.
pub(crate) fn block_signals() -> BlockedSignals {
    // Before the agent has started nobody knows how faults will be served.
    BlockedSignals::new(AGENT.get().map_or(FaultMode::InThread, |agent| agent.config.fault_mode))
}

/// The agent, once it has started, also while it is [`Unmanaged`].
pub(crate) fn started() -> Option<&'static Agent> {
    AGENT.get()
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;

extern "C" fn start() {
    let Some(text) = std::env::var_os("REFAULT_AGENT") else { return };
    let config = match config::Config::parse(&text) {
        Ok(config) => config,
        Err(why) => end(&format!("REFAULT_AGENT is not understood: {why}; it is written by `refault run`")),
    };
    if !config.children {
        // SAFETY: no other thread runs yet that could read the environment.
        unsafe {
            std::env::remove_var("LD_PRELOAD");
            std::env::remove_var("REFAULT_AGENT");
        }
    }
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u64);
    if config.end_with.is_some() && config.end_with == parent {
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    }
    malloc::configure();
    malloc::find_next();
    signals::register();
    libc_state::find();
    libc_code::find_loader();
    let opening = descriptors::Opening::begin();
    if let Some(device) = config.device.as_ref().and_then(|device| device.take(config.children)) {
        refault_pager::uffd::use_device(device.into());
    }
    let pager = match Pager::new(Budget::new(config.memory), config.pager_options()) {
        Ok(pager) => pager,
        Err(error) => end(&error.to_string()),
    };
    let _ = AGENT.set(Agent { pager, config });
    let agent = AGENT.get().expect("invariant: just set");
    start_observers(agent);
    drop(opening);
    forks::register();
    if agent.config.in_thread() {
        libc_code::find();
        system_calls::take_care();
    }
    READY.store(true, Ordering::Release);
    malloc::reserve(agent.config.memory);
}

/// Starts who looks on: statistics and the budget's control, recorder, monitor. Also in a forked child. What cannot be
/// started is said; the program goes on without.
pub(crate) fn start_observers(agent: &'static Agent) {
    for (what, started) in [
        ("there are no statistics, and the budget stays as it is", statistics::start(agent)),
        ("there is no record", recording::start(agent)),
        ("nothing is monitored", watching::start(agent)),
    ] {
        if let Err(error) = started {
            forks::say(&format!("{what} of process {}: no thread can be started: {error}", std::process::id()));
        }
    }
}

extern "C" fn finish() {
    if let Some(agent) = agent() {
        inside::run(agent, move || {
            recording::write_last(agent);
            statistics::write_last(agent);
        });
    }
}

/// Says why on standard error and ends the program: going on without the limit would be a lie.
pub(crate) fn end(message: &str) -> ! {
    let line = format!("refault: {message}\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
    // SAFETY: ends the process at once; nothing is to be flushed.
    unsafe { libc::_exit(1) }
}
