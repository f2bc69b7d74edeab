//! Asks kernels from the command line, as `refault ask` does, without the rest of the program:
//!
//!     ask CACHE KERNEL,… LISTS,… LIMIT WARM_UP WORKLOAD…
//!     ask CACHE KERNEL,… LISTS,… pulse PAGES:SECONDS PROGRAM…

use std::path::Path;

use refault_ask::answers::pulses;
use refault_ask::answers::{Answer, keep};
use refault_ask::emulator::ask;
use refault_ask::job::pulse::Pulse;
use refault_ask::job::{Job, Lists};
use refault_ask::kernel::Kernel;
use refault_ask::sequence::Sequence;
use refault_trace::Source;

fn pulsed(kernel: &Kernel, lists: &[Lists], pulse: Pulse, cache: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let begun = std::time::Instant::now();
    let (accelerator, answers) = refault_ask::emulator::pulse::ask(kernel, &pulse, lists, &|_| {})?;
    for (lists, counters) in lists.iter().zip(answers) {
        println!("{} {} {}: {counters:?}", kernel.release, lists.name(), pulse.program);
        let (kernel, by) = (kernel.release.clone(), accelerator.name().to_owned());
        pulses::keep(cache, &[pulses::Answer { kernel, lists: *lists, pulse: pulse.clone(), by, counters }])?;
    }
    eprintln!("{:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    refault_ask::guest::run_if_guest();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [cache, kernels, lists, limits, warm_up, workloads @ ..] = &words[..] else {
        return Err("ask CACHE KERNEL,… LISTS,… LIMIT,… WARM_UP WORKLOAD…".into());
    };
    let cache = Path::new(cache);
    let lists: Vec<Lists> = lists.split(',').map(str::parse).collect::<Result<_, _>>()?;
    for name in kernels.split(',') {
        let kernel = Kernel::find(name, cache, false, &|line| eprintln!("{line}"))?;
        if limits == "pulse" {
            let (pages, seconds) = warm_up.split_once(':').ok_or("PAGES:SECONDS")?;
            for program in workloads {
                let (pages, seconds) = (pages.parse()?, seconds.parse()?);
                let pulse = Pulse { program: program.clone(), pages, seconds, seed: 1, swappiness: 60 };
                pulsed(&kernel, &lists, pulse, cache)?;
            }
            continue;
        }
        for workload in workloads {
            let sequence = Sequence::read(&Source::workload(workload.parse()?))?;
            for limit in limits.split(',') {
                let limit = match limit.strip_suffix('%') {
                    Some(share) => sequence.distinct * share.parse::<u64>()? / 100,
                    None => limit.parse()?,
                };
                let job = Job {
                    limit,
                    swappiness: 60,
                    anon: sequence.anon,
                    file: sequence.file,
                    mapped: sequence.mapped,
                    accesses: sequence.entries.len() as u64,
                    warm_up: warm_up.parse()?,
                };
                let begun = std::time::Instant::now();
                let answered = ask(&kernel, &job, &lists, &sequence.entries, &|_| {})?;
                for (lists, counters) in lists.iter().zip(answered.counters) {
                    println!("{} {} {workload} {limit}: {counters:?}", kernel.release, lists.name());
                    let answer = Answer {
                        kernel: kernel.release.clone(),
                        lists: *lists,
                        workload: workload.clone(),
                        digest: sequence.digest,
                        accesses: job.accesses,
                        distinct: sequence.distinct,
                        warm_up: job.warm_up,
                        limit,
                        swappiness: job.swappiness,
                        by: answered.accelerator.name().to_owned(),
                        counters,
                    };
                    keep(cache, &[answer])?;
                }
                eprintln!("{:.1} s", begun.elapsed().as_secs_f64());
            }
        }
    }
    Ok(())
}
