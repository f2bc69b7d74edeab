//! `refault ask … lru-sort:PROGRAM`: what real kernels do with a program under a limit that pulses, beside the document
//! and the model. They run it without and with DAMON's module that sorts lists.

use std::io::Write;
use std::time::Instant;

use refault_ask::answers::pulses::{self, Answer};
use refault_ask::emulator::pulse::ask;
use refault_ask::job::pulse::{COUNTERS, Pulse};
use refault_ask::kernel::{Kernel, version_of};
use refault_console::text::{align_numbers, cell as shown, grouped, plain_table};
use refault_console::{Failure, Format, Progress, say, with_output};
use refault_lab::experiment::Values;
use refault_lab::experiments::lru_sort::pulsed::{METRICS, published_pages};
use refault_lab::experiments::lru_sort::{VARIANTS, Variant};
use refault_lab::size::{Bytes, PAGE_BYTES};

use super::args::AskArgs;

/// How a workload begins that is one of these programs.
pub(super) const PREFIX: &str = "lru-sort:";
/// Pages that a program has unless it has fewer in the document, and seconds that it runs: three pulses.
const PAGES: u64 = (16 << 20) / PAGE_BYTES;
const SECONDS: u64 = 33;
/// Counters that a table shows below the document's figures, if they are not 0 everywhere.
const SHOWN: [&str; 10] = [
    "pswpin",
    "workingset_refault_anon",
    "workingset_activate_anon",
    "pgscan",
    "pgsteal",
    "pressure_full_us",
    "oom",
    "limits_given_up",
    "hot_bytes",
    "cold_bytes",
];

/// What the document and the model have beside a kernel's figure.
struct Beside {
    published: Option<Values>,
    model: Option<Values>,
}

/// Runs the command about a program, told as `NAME[,memory=16M][,seconds=33][,seed=1]`.
pub(super) fn run(args: &AskArgs, told: &str) -> Result<(), Failure> {
    let mut outputs = args.result.outputs();
    let (format, out) = args.result.claim(&mut outputs)?;
    let pulse = pulse(args, told)?;
    let cache = refault_ask::cache_directory();
    let mut answers = Vec::new();
    for kernel in &args.kernels {
        answers.extend(answered(args, kernel, &pulse, &cache)?);
    }
    let mut all = Vec::new();
    for answer in answers {
        let (pulsed, model) = (pulse.pulsed()?, answer.model()?);
        let of = |metric: &str| Beside {
            published: pulsed.published(metric),
            model: model.as_ref().and_then(|model| model.values(metric)),
        };
        let beside: Vec<Beside> = METRICS.iter().map(|(metric, _)| of(metric)).collect();
        all.push((answer, beside));
    }
    with_output(out, |out| match format {
        Format::Table => write_table(out, &pulse, &all),
        Format::Csv => write_csv(out, &all),
        Format::Json => write_json(out, &pulse, &all),
    })
}

fn pulse(args: &AskArgs, told: &str) -> Result<Pulse, Failure> {
    let place = format!("{PREFIX}{told}");
    let wrong =
        |what: &str| Failure::usage(what, &place, format!("write {PREFIX}PROGRAM[,memory=16M][,seconds=33][,seed=1]"));
    if args.memory.is_some() || args.warm_up > 0 {
        return Err(wrong("its limit follows from its memory, and all of it is counted"));
    }
    let mut words = told.split(',');
    let program = words.next().unwrap_or_default().to_owned();
    let pages = published_pages(&program).map_or(PAGES, |pages| pages.min(PAGES));
    let mut pulse = Pulse { program, pages, seconds: SECONDS, seed: 1, swappiness: args.swappiness };
    for word in words {
        let (name, value) = word.split_once('=').ok_or_else(|| wrong("an option without a value"))?;
        let amount = || value.parse::<u64>().map_err(|_| wrong("not a number"));
        match name {
            "memory" => {
                let bytes: Bytes = value.parse().map_err(|why: String| wrong(&why))?;
                pulse.pages = bytes.0 / PAGE_BYTES;
            }
            "seconds" => pulse.seconds = amount()?,
            "seed" => pulse.seed = amount()?,
            _ => return Err(wrong("no such option")),
        }
    }
    pulse.pulsed()?;
    Ok(pulse)
}

/// The answers of one kernel: those that are known, or all asked for now.
fn answered(args: &AskArgs, name: &str, pulse: &Pulse, cache: &std::path::Path) -> Result<Vec<Answer>, Failure> {
    let lists = args.lists.all();
    let known = |kernel: &str| -> Result<Vec<Answer>, Failure> {
        let mut found = Vec::new();
        for lists in lists.iter().filter(|_| !args.again) {
            found.extend(pulses::find(cache, kernel, *lists, pulse)?);
        }
        Ok(found)
    };
    let found = known(name)?;
    if found.len() == lists.len() {
        say(format_args!("kernel {name} was asked this before: its answer is shown (--again asks again)"));
        return Ok(found);
    }
    let kernel = Kernel::find(name, cache, args.again, &|line| say(line))?;
    let found = known(&kernel.release)?;
    if found.len() == lists.len() {
        return Ok(found);
    }
    say(format_args!("{} runs {} in {} variants; that takes minutes", kernel.release, pulse.program, VARIANTS.len()));
    let (progress, begun) = (Progress::part("asking"), Instant::now());
    let (accelerator, answers) = ask(&kernel, pulse, &lists, &|part| progress.set(part))?;
    drop(progress);
    let by = accelerator.name();
    say(format_args!("{} answered in {:.0} s ({by})", kernel.release, begun.elapsed().as_secs_f64()));
    let answers: Vec<Answer> = answers
        .into_iter()
        .zip(&lists)
        .map(|(counters, lists)| Answer {
            kernel: kernel.release.clone(),
            lists: *lists,
            pulse: pulse.clone(),
            by: by.to_owned(),
            counters,
        })
        .collect();
    pulses::keep(cache, &answers)?;
    Ok(answers)
}

/// What decides of a figure: the ratio, or the level where there is none.
fn figure(values: Option<Values>) -> Option<f64> {
    values.and_then(|values| if values.before.is_some() { values.ratio } else { values.after })
}

const HEADINGS: [&str; 10] = [
    "kernel",
    "lists",
    "figure",
    "no pressure",
    "pressure",
    "never sorted",
    "sorted",
    "published",
    "kernel's",
    "model's",
];

fn write_table(out: &mut dyn Write, pulse: &Pulse, all: &[(Answer, Vec<Beside>)]) -> std::io::Result<()> {
    let mut table = plain_table();
    table.set_header(HEADINGS);
    for (answer, beside) in all {
        let first = [version_of(&answer.kernel), answer.lists.name()].map(str::to_owned);
        for ((metric, unit), beside) in METRICS.iter().zip(beside) {
            let mut cells = first.to_vec();
            cells.push(format!("{metric} ({unit})"));
            cells.extend(IN_ORDER.map(|variant| shown(answer.metric(variant, metric))));
            cells.extend([beside.published, answer.values(metric), beside.model].map(|values| shown(figure(values))));
            table.add_row(cells);
        }
        for name in SHOWN {
            let value = |variant: Variant| {
                let at = VARIANTS.iter().position(|of| *of == variant);
                at.and_then(|at| answer.counters[at].get(name)).map(|value| *value as f64)
            };
            if VARIANTS.iter().all(|variant| value(*variant).is_none_or(|value| value == 0.0)) {
                continue;
            }
            let mut cells = first.to_vec();
            cells.push(name.to_owned());
            cells.extend(IN_ORDER.map(|variant| shown(value(variant))));
            let ratio = match (value(Variant::Mprs), value(Variant::Plrus)) {
                (Some(before), Some(after)) if before > 0.0 => Some(after / before),
                _ => None,
            };
            cells.extend(["–".to_owned(), shown(ratio), "–".to_owned()]);
            table.add_row(cells);
        }
    }
    align_numbers(&mut table);
    writeln!(out, "{}", table.trim_fmt())?;
    writeln!(
        out,
        "\n{}: {} pages, {} s of its own time; its limit is 75 % of them for 1 s, then 200 % for 10 s.\n\
         published, kernel's and model's are sorted over pressure, and of the monitor the level. never sorted: the module\n\
         samples and finds nothing. The document's machine had 130 GiB, many processors and limits of cgroup v1.\n\
         The model has classic lists alone. 'refault reproduce lru-sort --here' measures programs of this machine.",
        pulse.program,
        grouped(pulse.pages),
        pulse.seconds
    )
}

/// The variants as the table has them: what sorting is compared with stands before it.
const IN_ORDER: [Variant; 4] = [Variant::Orig, Variant::Mprs, Variant::Null, Variant::Plrus];

fn write_csv(out: &mut dyn Write, all: &[(Answer, Vec<Beside>)]) -> std::io::Result<()> {
    let mut csv = csv::Writer::from_writer(out);
    csv.write_record([
        "kernel",
        "lists",
        "program",
        "pages",
        "seconds",
        "seed",
        "swappiness",
        "by",
        "figure",
        "orig",
        "mprs",
        "null",
        "plrus",
        "published",
        "kernel_ratio",
        "model",
    ])?;
    for (answer, beside) in all {
        let text = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let pulse = &answer.pulse;
        let keys = || {
            let numbers = [pulse.pages, pulse.seconds, pulse.seed, pulse.swappiness].map(|number| number.to_string());
            let mut keys = vec![answer.kernel.clone(), answer.lists.name().to_owned(), pulse.program.clone()];
            keys.extend(numbers);
            keys.push(answer.by.clone());
            keys
        };
        for ((metric, _), beside) in METRICS.iter().zip(beside) {
            let mut record = keys();
            record.push((*metric).to_owned());
            record.extend(IN_ORDER.map(|variant| text(answer.metric(variant, metric))));
            record.extend([beside.published, answer.values(metric), beside.model].map(|values| text(figure(values))));
            csv.write_record(record)?;
        }
        for name in COUNTERS {
            let mut record = keys();
            record.push(name.to_owned());
            record.extend(IN_ORDER.map(|variant| {
                let at = VARIANTS.iter().position(|of| *of == variant);
                at.and_then(|at| answer.counters[at].get(name)).map_or(String::new(), u64::to_string)
            }));
            record.extend([String::new(), String::new(), String::new()]);
            csv.write_record(record)?;
        }
    }
    csv.flush()
}

fn write_json(out: &mut dyn Write, pulse: &Pulse, all: &[(Answer, Vec<Beside>)]) -> std::io::Result<()> {
    let values = |values: Option<Values>| serde_json::to_value(values).unwrap_or_default();
    let answers: Vec<serde_json::Value> = all
        .iter()
        .map(|(answer, beside)| {
            let figures: serde_json::Map<String, serde_json::Value> = METRICS
                .iter()
                .zip(beside)
                .map(|((metric, _), beside)| {
                    let of = serde_json::json!({
                        "published": values(beside.published),
                        "kernel": values(answer.values(metric)),
                        "model": values(beside.model),
                    });
                    ((*metric).to_owned(), of)
                })
                .collect();
            let counters: serde_json::Map<String, serde_json::Value> = VARIANTS
                .iter()
                .zip(&answer.counters)
                .map(|(variant, counters)| (variant.name().to_owned(), serde_json::json!(counters)))
                .collect();
            serde_json::json!({
                "kernel": answer.kernel,
                "lists": answer.lists.name(),
                "by": answer.by,
                "figures": figures,
                "counters": counters,
            })
        })
        .collect();
    let answer = serde_json::json!({
        "program": pulse.program,
        "pages": pulse.pages,
        "seconds": pulse.seconds,
        "seed": pulse.seed,
        "swappiness": pulse.swappiness,
        "answers": answers,
    });
    serde_json::to_writer(&mut *out, &answer)?;
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_ratios_are_told_apart() {
        assert_eq!(figure(Some(Values::of(4.0, 2.0))), Some(0.5));
        assert_eq!(figure(Some(Values::after_only(2.6))), Some(2.6));
        assert_eq!(figure(Some(Values::of(0.0, 2.0))), None, "nothing to be compared with");
    }
}
