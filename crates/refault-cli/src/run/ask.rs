//! Asks processes of the tree to give memory up that others lack, or to hold what others read and write of it. Says
//! which process comes first.
//!
//! A process gives way when it faults or enters the kernel. One that does neither is asked by a signal that it does not
//! see ([`MAKE_ROOM`]). The signal is sent to a thread that runs, or one in a call that can be made again without any
//! difference. Processes whose threads all wait in other calls keep what they have.
//!
//! A thread of this command sleeps until a process of the tree says that it lacks memory. Cost: some tens of
//! microseconds per request, one per millisecond at most; a process that does not give is asked less and less often.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use refault_linux::calls::*;
use refault_paging::Shared;
use refault_paging::tree::{MAKE_ROOM, OWN_THREAD};

/// Between two looks at who has too much.
const BETWEEN: Duration = Duration::from_millis(1);
/// The first and the longest pause before a process that was asked is asked again.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Asks, from now on, the processes that have memory which others of the tree lack; calls `plead` when one waits for
/// what a pool protects. The calling thread's signals are to be blocked.
pub(super) fn begin(shared: &'static Shared, plead: impl Fn() + Send + 'static) {
    let serve = move || {
        let mut asked: BTreeMap<i32, Pause> = BTreeMap::new();
        loop {
            refault_linux::sys::wait_everywhere(&shared.asked, 0);
            shared.asked.store(0, Ordering::Release);
            if shared.pleads() {
                plead();
            }
            shared.pass_token(refault_linux::sys::now(), refault_linux::sys::time_run);
            let with_too_much: Vec<(i32, i64)> = shared.with_too_much().collect();
            asked.retain(|process, _| with_too_much.iter().any(|(other, _)| other == process));
            for (process, charged) in with_too_much {
                if asked.entry(process).or_insert_with(Pause::new).is_over(charged) {
                    for_room(shared, process);
                }
            }
            shared.visited().for_each(|process| for_room(shared, process));
            std::thread::sleep(BETWEEN);
        }
    };
    // Without it processes give way only when they fault or enter the kernel.
    let _ = std::thread::Builder::new().name("ask".to_owned()).stack_size(128 << 10).spawn(serve);
}

/// When a process may be asked again.
struct Pause {
    due: Instant,
    pause: Duration,
    /// Pages that it had when it was asked.
    charged: i64,
}

impl Pause {
    fn new() -> Pause {
        Pause { due: Instant::now(), pause: FIRST_PAUSE, charged: i64::MAX }
    }

    fn is_over(&mut self, charged: i64) -> bool {
        let now = Instant::now();
        if now < self.due {
            return false;
        }
        self.pause = if charged < self.charged { FIRST_PAUSE } else { (self.pause * 2).min(MAX_PAUSE) };
        (self.due, self.charged) = (now + self.pause, charged);
        true
    }
}

/// Asks a process, if it has a thread that can be asked.
pub(super) fn for_room(shared: &Shared, process: i32) {
    shared.while_it_stays(process, || {
        if let Some(thread) = thread_to_ask(process) {
            super::child::queue(process, thread, libc::SIGSYS, MAKE_ROOM);
        }
    });
}

fn thread_to_ask(process: i32) -> Option<i32> {
    let mut running = None;
    for task in std::fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten() {
        let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // That one hears no signals.
        if stat
            .split_once(" (")
            .is_some_and(|(_, rest)| rest.strip_prefix(OWN_THREAD).is_some_and(|rest| rest.starts_with(')')))
        {
            continue;
        }
        match refault_linux::proc::stat_state(stat.as_bytes()) {
            Some(b'S')
                if can_be_made_again(&std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default()) =>
            {
                return Some(thread);
            }
            Some(b'R') => running = Some(thread),
            _ => {}
        }
    }
    running
}

/// Whether a call that a thread waits in can be ended and made again. `/proc/PID/task/TID/syscall` has the call. Made
/// again it must be the same, or go on where it was: the agent knows what it has done, and how long it still has to
/// wait.
#[expect(non_upper_case_globals, reason = "the kernel's names of calls")]
fn can_be_made_again(line: &str) -> bool {
    const MSG_DONTWAIT: u64 = 0x40;
    const MSG_WAITALL: u64 = 0x100;
    const MSG_NOSIGNAL: u64 = 0x4000;
    const MSG_MORE: u64 = 0x8000;
    const SENT: u64 = MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE;
    const FUTEX_OPERATION: u64 = 127;
    const FUTEX_WAIT: u64 = 0;
    const FUTEX_WAIT_BITSET: u64 = 9;
    let mut words = line.split_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<usize>().ok()) else { return false };
    let mut arguments = [0u64; 6];
    for argument in &mut arguments {
        let word = words.next().and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
        let Some(word) = word else { return false };
        *argument = word;
    }
    let [_, b, c, d, ..] = arguments;
    match number {
        SYS_read | SYS_readv | SYS_accept | SYS_accept4 | SYS_wait4 | SYS_waitid | SYS_pause => true,
        SYS_rt_sigsuspend | SYS_rt_sigtimedwait | SYS_msgsnd | SYS_msgrcv | SYS_semop | SYS_semtimedop => true,
        SYS_write | SYS_writev => true,
        // Without more than that asks for.
        SYS_sendto => d & !SENT == 0,
        SYS_recvfrom => d & MSG_WAITALL == 0,
        SYS_recvmsg => c & MSG_WAITALL == 0,
        // The kernel says what is left of the time.
        SYS_select | SYS_pselect6 | SYS_ppoll => true,
        // The agent does.
        SYS_poll | SYS_epoll_wait | SYS_epoll_pwait | SYS_epoll_pwait2 | SYS_nanosleep | SYS_clock_nanosleep => true,
        // As long as no thread wakes it, for a while, or until a moment.
        SYS_futex => matches!(b & FUTEX_OPERATION, FUTEX_WAIT | FUTEX_WAIT_BITSET),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_change_nothing_are_made_again() {
        let call = |number: usize, arguments: [usize; 6]| {
            let words: Vec<String> = arguments.iter().map(|word| format!("{word:#x}")).collect();
            can_be_made_again(&format!("{number} {} 0x7ffd0 0x7f12\n", words.join(" ")))
        };
        let [private_wait, private_wait_bitset, lock_pi] = [128, 137, 134];
        let [oob, wait_all, no_signal] = [1, 0x100, 0x4000];
        assert!(call(SYS_wait4, [7, 0, 0, 0, 0, 0]) && call(SYS_recvfrom, [3, 0, 0, 0, 0, 0]));
        assert!(!call(SYS_recvfrom, [3, 0, 0, wait_all, 0, 0]));
        assert!(
            call(SYS_futex, [1, private_wait, 0, 99, 0, 0]) && call(SYS_futex, [1, private_wait_bitset, 0, 99, 0, 0])
        );
        // May have it by then.
        assert!(!call(SYS_futex, [1, lock_pi, 0, 0, 0, 0]));
        // Urgent data are the end of what is sent.
        assert!(call(SYS_write, [0; 6]) && call(SYS_sendto, [3, 0, 9, no_signal, 0, 0]));
        assert!(!call(SYS_sendto, [3, 0, 9, oob, 0, 0]));
        // Has begun; running, and ended.
        assert!(!call(SYS_connect, [0; 6]) && !can_be_made_again("running\n") && !can_be_made_again(""));
        assert!(!can_be_made_again("-1 0x7ffd0 0x7f12\n"));
    }

    #[test]
    fn who_does_not_give_is_asked_less_and_less() {
        let mut pause = Pause::new();
        assert!(pause.is_over(100) && !pause.is_over(100));
        pause.due = Instant::now();
        assert!(pause.is_over(100));
        assert_eq!(pause.pause, FIRST_PAUSE * 2);
        pause.due = Instant::now();
        assert!(pause.is_over(50));
        assert_eq!(pause.pause, FIRST_PAUSE);
    }
}
