//! Threads on CPUs: one queue, time slices, and what each thread's state means for memory pressure.
//!
//! Kernel: `psi_task_change` in `kernel/sched/psi.c`.

use super::pressure::activity;
use super::{Event, Machine, SLICE};

/// A CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct Cpu {
    /// What it runs.
    pub running: Option<usize>,
    /// When the running thread gives way to waiting ones.
    pub slice_end: u64,
    /// Idle since; may be a little ahead of the clock.
    pub idle_since: u64,
    /// Time it was not idle, up to the last change.
    pub busy: u64,
    /// Start of the current busy stretch.
    busy_since: u64,
}

/// What the scheduler knows of a task or a kswapd.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    /// The CPU it runs on or ran on last.
    pub cpu: usize,
    /// See [`activity`].
    pub activity: u8,
    /// Asleep: on no CPU and not in the queue.
    pub asleep: bool,
    /// Number of its current or last sleep, so that a late alarm is known as such.
    pub sleep: u64,
    /// CPU time used.
    pub cpu_time: u64,
}

impl Thread {
    pub fn new(cpu: usize) -> Thread {
        Thread { cpu, activity: 0, asleep: true, sleep: 0, cpu_time: 0 }
    }
}

impl Machine {
    /// Tells the pressure clocks that a thread does something else from now on.
    #[inline]
    pub(super) fn set_activity(&mut self, thread: usize, at: u64, to: u8) {
        let state = &mut self.threads[thread];
        if state.activity != to {
            self.pressure.change(state.cpu, at, state.activity, to);
            state.activity = to;
        }
    }

    /// A sleeping thread can run.
    pub(super) fn wake(&mut self, thread: usize, at: u64) {
        if !self.threads[thread].asleep {
            return;
        }
        self.threads[thread].asleep = false;
        self.threads[thread].sleep += 1;
        self.set_activity(thread, at, activity::RUNNING);
        let last = self.threads[thread].cpu;
        let idle = if self.cpus[last].running.is_none() {
            Some(last)
        } else {
            self.cpus.iter().position(|cpu| cpu.running.is_none())
        };
        match idle {
            Some(cpu) => self.start(cpu, thread, at.max(self.cpus[cpu].idle_since)),
            None => self.run_queue.push_back(thread),
        }
    }

    fn start(&mut self, cpu: usize, thread: usize, at: u64) {
        let state = &self.threads[thread];
        if state.cpu != cpu {
            let activity = state.activity;
            self.pressure.change(state.cpu, at, activity, 0);
            self.pressure.change(cpu, at, 0, activity);
            self.threads[thread].cpu = cpu;
        }
        let begins = at + self.memory.costs.context_switch;
        let state = &mut self.cpus[cpu];
        if state.running.is_none() {
            state.busy_since = at;
        }
        state.running = Some(thread);
        state.slice_end = begins + SLICE;
        self.at(begins, Event::Cpu(cpu));
    }

    /// The thread on `cpu` leaves it; the next one gets it.
    fn release(&mut self, cpu: usize, at: u64) {
        let state = &mut self.cpus[cpu];
        state.busy += at.saturating_sub(state.busy_since);
        state.busy_since = at;
        state.running = None;
        state.idle_since = at;
        if let Some(next) = self.run_queue.pop_front() {
            self.start(cpu, next, at);
        }
    }

    /// The thread on `cpu` sleeps from `at` until `until` (`u64::MAX`: until it is woken).
    pub(super) fn sleep(&mut self, cpu: usize, at: u64, until: u64, activity: u8) {
        let thread = self.cpus[cpu].running.expect("invariant: only a running thread can go to sleep");
        self.set_activity(thread, at, activity);
        let state = &mut self.threads[thread];
        state.asleep = true;
        state.sleep += 1;
        let sleep = state.sleep;
        if until != u64::MAX {
            self.at(until.max(at), Event::Wake(thread, sleep));
        }
        self.release(cpu, at);
    }

    /// The thread on `cpu` lets waiting ones go first, if its slice is over. True if it did.
    pub(super) fn yield_cpu(&mut self, cpu: usize, at: u64) -> bool {
        if self.run_queue.is_empty() || at < self.cpus[cpu].slice_end {
            return false;
        }
        if let Some(thread) = self.cpus[cpu].running {
            self.run_queue.push_back(thread);
            self.release(cpu, at);
        }
        true
    }

    /// The thread on this CPU goes on.
    pub(super) fn run_cpu(&mut self, cpu: usize) {
        let thread = self.cpus[cpu].running.expect("invariant: a CPU's event means that a thread runs on it");
        if thread < self.tasks.len() {
            self.run_task(cpu, thread);
        } else if thread < self.tasks.len() + self.kswapds.len() {
            self.run_kswapd(cpu, thread - self.tasks.len());
        } else {
            self.run_kdamond(cpu, thread);
        }
    }

    /// Time CPU `cpu` was busy until now.
    pub(super) fn busy_time(&self, cpu: usize) -> u64 {
        let state = &self.cpus[cpu];
        state.busy + if state.running.is_some() { self.now.saturating_sub(state.busy_since) } else { 0 }
    }
}
