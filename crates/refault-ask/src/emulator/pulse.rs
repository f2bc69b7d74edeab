//! Has a guest run a program under a limit that pulses, without and with DAMON's module that sorts lists.

use refault_lab::LabError;
use refault_lab::experiments::lru_sort::VARIANTS;

use super::{Accelerator, COMMAND_LINE, Idle, Machine, OWN_MEMORY, answers, temporary_directory, write_initial};
use crate::job::pulse::Pulse;
use crate::job::{Counters, Lists};
use crate::kernel::Kernel;

/// Bytes of a guest's memory: the program, its swap, and the kernel's own. The monitor watches all of it.
pub fn memory(pulse: &Pulse, initial: u64) -> u64 {
    OWN_MEMORY + initial + 2 * pulse.pages * 4096
}

/// Asks a kernel about a program: for each kind of lists, the counters of
/// [`crate::job::pulse::COUNTERS`] for each of [`VARIANTS`], in their order. `progress` hears the share that is done.
///
/// # Errors
/// There is no qemu, the kernel does not begin, or it has no module that sorts; what it said is in the sentence.
pub fn ask(
    kernel: &Kernel,
    pulse: &Pulse,
    lists: &[Lists],
    progress: &dyn Fn(f64),
) -> Result<(Accelerator, Vec<Vec<Counters>>), LabError> {
    let directory = temporary_directory()?;
    let initial = write_initial(directory.path(), kernel, &pulse.to_string(), lists)?;
    let machine = Machine {
        directory: directory.path(),
        kernel,
        memory: memory(pulse, initial),
        drives: Vec::new(),
        command_line: format!("{COMMAND_LINE} transparent_hugepage=never"),
        idle: Idle::SkippedAtSpeed,
        patience: None,
    };
    let runs = lists.len() * VARIANTS.len();
    let length = pulse.pulsed()?.length() as f64 / 1e9;
    let (accelerator, answered) = answers(&machine, runs, &|ended, seconds| {
        progress((ended as f64 + (seconds as f64 / length).min(1.0)) / runs as f64);
    })?;
    let counters: Vec<Counters> = answered.into_iter().map(|run| run.counters).collect();
    Ok((accelerator, counters.chunks(VARIANTS.len()).map(<[Counters]>::to_vec).collect()))
}
