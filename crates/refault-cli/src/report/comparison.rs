//! The report of `refault compare`: for each trace the miss ratios by memory size, and for each size the misses and
//! the generations over time.

use maud::{Markup, html};

use super::chart::{Figure, Group, Series, Shape};
use super::scale::Axis;
use super::{memory, memory_unit, name_parts, page, write};
use crate::source::kernels::Kernels;
use crate::source::memory_text;
use crate::tables::{accesses_text, short_name, widest};
use refault_console::text::number;
use refault_console::text::{grouped, percent_format};
use refault_console::{Failure, Output};
use refault_core::policy::registry::{Family, POLICIES};
use refault_lab::results::{leaders_of, policies_of, sizes_of};
use refault_lab::size::pages_text;
use refault_lab::sweep::{Run, TraceRuns};
use refault_lab::verdict::Verdict;
use refault_trace::Reading;

/// Lines from which on groups of them can be shown alone.
const MIN_IN_GROUPS: usize = 5;

/// Writes the report of a comparison.
pub fn write_comparison(
    output: Output,
    results: &[TraceRuns],
    verdict: &Verdict,
    kernels: &[Kernels],
) -> Result<(), Failure> {
    let series = results.iter().map(|trace| policies_of(trace).len()).max().unwrap_or(0);
    write(output, page("refault: policies compared", series, body(results, verdict, kernels)))
}

fn body(results: &[TraceRuns], verdict: &Verdict, kernels: &[Kernels]) -> Markup {
    html! {
        h1 { "Reclaim policies compared" }
        p.lead {
            "refault " (env!("CARGO_PKG_VERSION")) ": what each policy would have missed on "
            (results.len()) @if results.len() == 1 { " trace" } @else { " traces" }
            ", at each memory size. A page is 4 KiB."
        }
        (answer(verdict, results))
        (summary(verdict, results))
        (definitions())
        h2 { "Trace by trace" }
        @for (index, trace) in results.iter().enumerate() {
            (trace_section(index, trace, results.len() == 1, kernels.get(index)))
        }
    }
}

/// Of each trace and size: who misses least, what the baseline misses and what no policy can do without.
fn answer(verdict: &Verdict, results: &[TraceRuns]) -> Markup {
    let percent = percent_format(results.iter().flat_map(|trace| &trace.runs).map(Run::miss_ratio));
    html! {
        div.scroll tabindex="0" {
            table.rows {
                caption {
                    "Fewest misses without knowing the future, those of " (verdict.baseline) ", and the bound, in 100 accesses."
                }
                thead { tr { @for head in ["trace", "memory", "fewest misses", "%", &verdict.baseline, "bound"] { th scope="col" { (head) } } } }
                tbody {
                    @for trace in results {
                        @for pages in sizes_of(trace) {
                            @let at = |is_one: &dyn Fn(&Run) -> bool| {
                                let runs = trace.runs.iter().filter(|run| run.memory_pages == pages && is_one(run));
                                runs.min_by_key(|run| run.outcome.misses)
                            };
                            @let of = |run: Option<&Run>| run.map_or("–".to_owned(), |run| percent(run.miss_ratio()));
                            @let best = at(&|run| !run.needs_future);
                            tr {
                                th scope="row" { (short_name(results, &trace.trace)) }
                                td { (memory_text(&trace.reading, pages)) }
                                td { (best.map_or("–", |run| run.policy.as_str())) }
                                td.best { (of(best)) }
                                td { (of(at(&|run| run.policy == verdict.baseline))) }
                                td { (of(at(&|run| run.needs_future))) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// What each policy saves over all traces, and where it saves least.
fn summary(verdict: &Verdict, results: &[TraceRuns]) -> Markup {
    let traces = results.len();
    let memory = |trace: &str, pages: u64| {
        let found = results.iter().find(|runs| runs.trace == trace);
        found.map_or_else(|| pages_text(pages), |runs| memory_text(&runs.reading, pages))
    };
    let references = widest(verdict);
    html! {
        @if !verdict.overall.is_empty() {
            h2 { "Over all traces" }
            p {
                "The part of another policy's misses that a policy saves (%), over " (traces)
                " traces at each memory size: the mean, and the place where it saves least. Negative figures are losses."
            }
            div.scroll tabindex="0" {
                table {
                    thead {
                        tr {
                            th scope="col" { "policy" }
                            @for name in &references {
                                th scope="col" { "against " (name) ", mean" }
                                th scope="col" { "worst" }
                                th scope="col" { "worst at" }
                            }
                            th scope="col" { "mean rank" }
                        }
                    }
                    tbody {
                        @for overall in &verdict.overall {
                            tr {
                                th scope="row" { (overall.policy) }
                                @for name in &references {
                                    @if let Some(saved) = overall.against.iter().find(|saved| saved.baseline == *name) {
                                        td { (format!("{:.1}", saved.mean_reduction * 100.0)) }
                                        td { (format!("{:.1}", saved.worst.0 * 100.0)) }
                                        td { (memory(&saved.worst.1, saved.worst.2)) " of " (name_parts(&saved.worst.1).0) }
                                    } @else { td {} td {} td {} }
                                }
                                td { (format!("{:.1}", overall.mean_rank)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn definitions() -> Markup {
    html! {
        details {
            summary { "What the words and figures mean" }
            dl {
                dt { "access" } dd { "One reference to one page, as the trace lists it." }
                dt { "miss (accesses)" }
                dd { "An access that does not find its page in memory. The first access to a page is one." }
                dt { "miss ratio (%)" } dd { "Misses in 100 accesses." }
                dt { "memory (MiB)" } dd { "The limit on resident pages, times 4 KiB; metadata is not counted." }
                dt { "refault (pages)" } dd { "A miss on a page that was evicted and whose slot still remembers it (workingset_refault)." }
                dt { "pgscan, pgsteal (pages)" } dd { "Pages examined for eviction, and pages evicted." }
                dt { "metadata (bytes per page)" }
                dd { "What the policy and the simulated memory keep, by distinct page of the trace." }
                dt { "generation" } dd { "A group of pages of similar age in the multi-generational policies; the oldest is evicted from." }
                dt { "opt" } dd { "Belady's bound: it knows the future, so no program can run it." }
            }
        }
    }
}

/// A trace, shown when it is asked for.
fn trace_section(index: usize, trace: &TraceRuns, open: bool, kernels: Option<&Kernels>) -> Markup {
    let sizes = sizes_of(trace);
    let (name, parameters) = name_parts(&trace.trace);
    let middle = sizes.get(sizes.len().saturating_sub(1) / 2).copied();
    html! {
        details.trace open[open] {
            summary { (name) @if !parameters.is_empty() { " " small { (parameters) } } }
            p.lead {
                (accesses_text(&trace.reading, trace.accesses, trace.distinct_pages))
                ", " (grouped(trace.distinct_anon)) " of them anonymous."
            }
            (super::read_as(&trace.reading))
            @if let Some(kernels) = kernels { (super::real_kernels(&kernels.text(&trace.reading))) }
            @if sizes.len() > 1 { div.grid2 { (ratio_figure(index, trace, &sizes).markup_with(&groups(trace, &sizes))) div { (ratio_table(trace, &sizes)) } } }
            @for pages in &sizes {
                details.size open[Some(*pages) == middle] {
                    summary { "With " (memory_text(&trace.reading, *pages)) " of memory (" (grouped(*pages)) " pages)" }
                    (size_section(index, trace, *pages))
                }
            }
        }
    }
}

/// Lines worth looking at alone: those that miss least at one of the sizes, with the bound; and the kernels'.
fn groups(trace: &TraceRuns, sizes: &[u64]) -> Vec<Group> {
    let policies = policies_of(trace);
    if policies.len() < MIN_IN_GROUPS {
        return Vec::new();
    }
    let knows_future = |policy: &str| run_of(trace, policy, sizes[0]).needs_future;
    let is_best = |policy: &str| {
        sizes.iter().any(|pages| {
            let least = trace.runs.iter().filter(|run| run.memory_pages == *pages && !run.needs_future);
            least.map(|run| run.outcome.misses).min() == Some(run_of(trace, policy, *pages).outcome.misses)
        })
    };
    let is_kernels = |policy: &str| {
        let name = policy.split('{').next().unwrap_or(policy);
        POLICIES.iter().any(|entry| entry.name == name && entry.family == Family::Kernel)
    };
    let those = |is_one: &dyn Fn(&str) -> bool| {
        policies.iter().enumerate().filter(|(_, policy)| is_one(policy)).map(|(index, _)| index).collect::<Vec<_>>()
    };
    vec![
        Group {
            name: "fewest misses, and the bound",
            series: those(&|policy| knows_future(policy) || is_best(policy)),
        },
        Group { name: "kernels", series: those(&is_kernels) },
    ]
}

fn ratio_figure(index: usize, trace: &TraceRuns, sizes: &[u64]) -> Figure {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    let series: Vec<Series> = policies_of(trace)
        .iter()
        .enumerate()
        .map(|(look, policy)| {
            let points = sorted
                .iter()
                .map(|pages| (memory(&trace.reading, *pages), run_of(trace, policy, *pages).miss_ratio() * 100.0));
            Series { name: policy.to_string(), look, points: points.collect() }
        })
        .collect();
    let highest = trace.runs.iter().map(Run::miss_ratio).fold(0.0, f64::max) * 100.0;
    let [low, high] = [sorted[0], sorted[sorted.len() - 1]].map(|pages| memory(&trace.reading, pages));
    let unit = memory_unit(&trace.reading);
    let x = if high > low * 30.0 {
        Axis::powers_of_two(&format!("memory ({unit}, logarithmic)"), low, high, 6, number)
    } else {
        Axis::exact(&format!("memory ({unit})"), high, 5, number)
    };
    let ends: Vec<String> = [sorted[0], sorted[sorted.len() - 1]].iter().map(|pages| extremes(trace, *pages)).collect();
    Figure {
        id: format!("ratio-{index}"),
        title: "Miss ratio by memory size".into(),
        description: ends.join(" "),
        definition: "Misses in 100 accesses, first touches included, by memory limit.".into(),
        x,
        y: Axis::linear("miss ratio (%)", highest, 5, number),
        series,
        x_label: number,
        y_label: |y| format!("{y:.4}"),
        shape: Shape::Lines,
        marks: Vec::new(),
    }
}

/// "With 1 MiB, misses range from 12.00 % (opt) to 30.00 % (fifo)."
fn extremes(trace: &TraceRuns, pages: u64) -> String {
    let mut runs: Vec<&Run> = trace.runs.iter().filter(|run| run.memory_pages == pages).collect();
    runs.sort_by_key(|run| run.outcome.misses);
    match (runs.first(), runs.last()) {
        (Some(best), Some(worst)) => format!(
            "With {}, the miss ratio ranges from {:.2} % ({}) to {:.2} % ({}).",
            memory_text(&trace.reading, pages),
            best.miss_ratio() * 100.0,
            best.policy,
            worst.miss_ratio() * 100.0,
            worst.policy
        ),
        _ => String::new(),
    }
}

fn ratio_table(trace: &TraceRuns, sizes: &[u64]) -> Markup {
    let fewest = |pages: u64| {
        let runs = trace.runs.iter().filter(|run| run.memory_pages == pages && !run.needs_future);
        runs.map(|run| run.outcome.misses).min()
    };
    let percent = percent_format(trace.runs.iter().map(Run::miss_ratio));
    html! {
        div.scroll tabindex="0" {
            table {
                caption { "Misses in 100 accesses. Bold: fewest at that size without knowing the future." }
                thead { tr { th scope="col" { "policy" } @for pages in sizes { th scope="col" { (memory_text(&trace.reading, *pages)) } } } }
                tbody {
                    @for policy in policies_of(trace) {
                        tr {
                            th scope="row" { (policy) }
                            @for pages in sizes {
                                @let run = run_of(trace, policy, *pages);
                                @let best = !run.needs_future && fewest(*pages) == Some(run.outcome.misses);
                                td.best[best] { (percent(run.miss_ratio())) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn size_section(index: usize, trace: &TraceRuns, pages: u64) -> Markup {
    let runs: Vec<&Run> = trace.runs.iter().filter(|run| run.memory_pages == pages).collect();
    html! {
        div.grid2 {
            @if runs.iter().any(|run| run.samples.len() > 1) {
                (time_figure(index, &runs, pages).markup_with(&groups(trace, &[pages])))
            }
            @for (number, run) in runs.iter().enumerate() {
                @if run.samples.iter().any(|sample| !sample.generations.is_empty()) {
                    (generations_figure(index, number, run, &trace.reading).markup())
                }
            }
        }
        @for run in &runs {
            @let leaders = leaders_of(run);
            @if !leaders.is_empty() { (leaders_list(run, &leaders)) }
        }
        (counters_table(&runs, trace.distinct_pages))
    }
}

/// Which way of choosing held at each time.
fn leaders_list(run: &Run, leaders: &[(u64, &str)]) -> Markup {
    const SHOWN: usize = 40;
    let share = |way: &str| {
        let mut before = 0;
        let held = leaders.iter().map(|(until, leader)| {
            let length = until - std::mem::replace(&mut before, *until);
            if *leader == way { length } else { 0 }
        });
        held.sum::<u64>() as f64 * 100.0 / leaders.last().map_or(1, |last| last.0.max(1)) as f64
    };
    let ways: std::collections::BTreeSet<&str> = leaders.iter().map(|(_, leader)| *leader).collect();
    html! {
        p {
            strong { (run.policy) } " chose by "
            @for (index, way) in ways.iter().enumerate() {
                @if index > 0 { ", " } (way) (format!(" {:.0} % of the time", share(way)))
            }
            ", as sampled. In turn, each with the millions of accesses until which it led: "
            @for (index, (until, leader)) in leaders.iter().take(SHOWN).enumerate() {
                @if index > 0 { ", " } (leader) " " (format!("{:.3}", *until as f64 / 1e6))
            }
            @if leaders.len() > SHOWN { (format!(", and {} changes more", leaders.len() - SHOWN)) }
            "."
        }
    }
}

fn time_figure(index: usize, runs: &[&Run], pages: u64) -> Figure {
    let series: Vec<Series> = runs
        .iter()
        .enumerate()
        .map(|(look, run)| {
            let mut before = (0, 0);
            let points = run.samples.iter().map(|sample| {
                let (accesses, misses) = (sample.accesses - before.0, sample.misses - before.1);
                before = (sample.accesses, sample.misses);
                (sample.accesses as f64 / 1e6, misses as f64 * 100.0 / accesses.max(1) as f64)
            });
            Series { name: run.policy.clone(), look, points: points.collect() }
        })
        .collect();
    let highest = series.iter().flat_map(|series| &series.points).fold(0.0f64, |high, (_, y)| high.max(*y));
    let last = runs.iter().map(|run| run.outcome.accesses).max().unwrap_or(1) as f64 / 1e6;
    Figure {
        id: format!("time-{index}-{pages}"),
        title: "Misses over time".into(),
        description: runs
            .iter()
            .map(|run| format!("{}: {:.2} % over the whole trace.", run.policy, run.miss_ratio() * 100.0))
            .collect::<Vec<_>>()
            .join(" "),
        definition: "Misses in 100 accesses of each interval, by the number of accesses at its end.".into(),
        x: Axis::exact("time (million accesses)", last, 5, number),
        y: Axis::linear("miss ratio (%)", highest, 5, number),
        series,
        x_label: |x| format!("{x:.3}"),
        y_label: |y| format!("{y:.4}"),
        shape: Shape::Lines,
        marks: Vec::new(),
    }
}

fn generations_figure(index: usize, number_of_run: usize, run: &Run, reading: &Reading) -> Figure {
    let most = run.samples.iter().map(|sample| sample.generations.len()).max().unwrap_or(0);
    // Counted from the youngest, because the oldest come and go.
    let series: Vec<Series> = (0..most)
        .rev()
        .map(|age| {
            let points = run.samples.iter().map(|sample| {
                let generation = sample.generations.len().checked_sub(age + 1).map(|at| sample.generations[at]);
                let pages = generation.map_or(0, |generation| generation.pages[0] + generation.pages[1]);
                (sample.accesses as f64 / 1e6, memory(reading, pages))
            });
            let name = if age == 0 { "youngest generation".into() } else { format!("{age} older") };
            Series { name, look: age, points: points.collect() }
        })
        .collect();
    let highest = run.samples.iter().map(|sample| sample.generations.iter().map(|g| g.pages[0] + g.pages[1]).sum());
    let highest = memory(reading, highest.max().unwrap_or(0));
    let unit = memory_unit(reading);
    let created = run.outcome.counters.generations_created;
    Figure {
        id: format!("generations-{index}-{number_of_run}-{}", run.memory_pages),
        title: format!("Sizes of the generations: {}", run.policy),
        description: format!("{} generations were created; at most {most} exist at a time.", grouped(created)),
        definition: format!("Memory in each generation ({unit}), anonymous and file pages together, youngest on top."),
        x: Axis::exact("time (million accesses)", run.outcome.accesses as f64 / 1e6, 5, number),
        y: Axis::linear(&format!("memory ({unit})"), highest, 5, number),
        series,
        x_label: |x| format!("{x:.3}"),
        y_label: |y| format!("{y:.2}"),
        shape: Shape::Stacked,
        marks: Vec::new(),
    }
}

fn counters_table(runs: &[&Run], distinct_pages: u64) -> Markup {
    let names = refault_core::Counters::NAMES;
    let shown: Vec<usize> =
        (0..names.len()).filter(|at| runs.iter().any(|run| run.outcome.counters.values()[*at] != 0)).collect();
    html! {
        details {
            summary { "All counters" }
            div.scroll tabindex="0" {
                table {
                    caption { "Events in pages, counted as /proc/vmstat counts them; counters that are 0 everywhere are left out." }
                    thead {
                        tr {
                            th scope="col" { "policy" } th scope="col" { "misses (accesses)" }
                            @for at in &shown { th scope="col" { (names[*at]) } }
                            th scope="col" { "metadata (bytes per page)" } th scope="col" { "speed (million accesses/s)" }
                        }
                    }
                    tbody {
                        @for run in runs {
                            tr {
                                th scope="row" { (run.policy) } td { (grouped(run.outcome.misses)) }
                                @for at in &shown { td { (grouped(run.outcome.counters.values()[*at])) } }
                                td { (format!("{:.1}", run.metadata_bytes as f64 / distinct_pages.max(1) as f64)) }
                                td { (format!("{:.1}", run.accesses_per_second() / 1e6)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn run_of<'a>(trace: &'a TraceRuns, policy: &str, pages: u64) -> &'a Run {
    let run = trace.runs.iter().find(|run| run.policy == policy && run.memory_pages == pages);
    run.expect("invariant: a sweep runs every policy at every size")
}
