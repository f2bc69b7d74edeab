//! Members under `min` and `low` that sleep, want more than there is, fork and lie: where each ends, held to where it
//! ended in real kernels (`protections.csv` of `refault-testing`; `scripts/dev/protections` makes it again).
//!
//! The steps are done twice: by the policies alone, access by access, and by the groups of the simulated machine.

use std::collections::BTreeMap;

use refault_core::{Classic, ClassicParams, Mglru, MglruParams, Policy};
use refault_sim::machine::Machine;
use refault_sim::machine::report::Sample;
use refault_sim::machine::scenario::Scenario;
use refault_testing::{kernel_protections, kernel_table};

use super::{Workload, ours, workloads};

/// Pages of a member by its name.
type Ends = BTreeMap<String, f64>;

/// Where members ended in the kernel.
fn theirs(lists: &str, cell: &str) -> Ends {
    let table = kernel_table("protections.csv");
    let rows = table.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
    let rows = rows.filter(|row| row[0] == "6.12" && row[1] == lists && row[2] == cell);
    rows.map(|row| (row[3].to_owned(), row[4].parse().expect("pages"))).collect()
}

/// The policies alone.
fn alone<P: Policy>(steps: &str, workloads: &BTreeMap<String, Workload>, policy: P) -> Ends {
    let rows = ours(steps, workloads, |_| policy);
    let rows = rows.into_iter().filter(|row| row.record == "end" && row.group != "p");
    means(rows.map(|row| (row.group, row.values["usage"])))
}

/// The simulated machine: its tasks are not told when to run, so what `run`s once begins in the order of the steps, and
/// what takes turns goes on until the end.
fn machine<P: Policy + Send + 'static>(steps: &str, workloads: &BTreeMap<String, Workload>, policy: P) -> Ends {
    let (text, recorded) = scenario(steps, workloads);
    let scenario = Scenario::parse(&text, "steps.toml").expect("a scenario");
    let report = Machine::new(scenario.config, policy).expect("a machine").run().expect("it runs");
    assert!(report.kills.is_empty());
    let ends = report.samples.iter().filter(|sample| sample.at + SAMPLE_US * 1000 >= recorded * 1000);
    let members = |sample: &Sample| -> Vec<(String, f64)> {
        let of = report.groups.iter().zip(&sample.usage);
        of.filter_map(|(group, usage)| Some((group.name.strip_prefix("/p/")?.to_owned(), *usage as f64))).collect()
    };
    means(ends.flat_map(members))
}

/// The mean of all that each member had.
fn means(had: impl Iterator<Item = (String, f64)>) -> Ends {
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    had.for_each(|(name, pages)| all.entry(name).or_default().push(pages));
    all.into_iter().map(|(name, pages)| (name, pages.iter().sum::<f64>() / pages.len() as f64)).collect()
}

/// Time of an access. A miss takes a tenth of it at most, so that members make accesses at the same rate, as in turns.
const ACCESS_US: u64 = 100;
/// Time between two looks at the machine's groups.
const SAMPLE_US: u64 = 50_000;
/// How far an end may lie from the kernel's.
const WITHIN: f64 = 0.05;

/// And the time, in microseconds, from which on ends are recorded.
fn scenario(steps: &str, workloads: &BTreeMap<String, Workload>) -> (String, u64) {
    let lines = || steps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let named = |words: &[&str], key: &str| {
        words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('=').map(str::to_owned))
    };
    let workload = |words: &[&str]| &workloads[&named(words, "workload").expect("a workload")];
    let number = |word: &str| word.parse::<u64>().expect("a number");
    let tasks: BTreeMap<String, u64> = lines()
        .filter(|words| words.first() == Some(&"task"))
        .map(|words| (words[1].to_owned(), workload(&words).anon))
        .collect();
    let (mut starts, mut now, mut recorded) = (BTreeMap::new(), 0, None);
    for words in lines() {
        match *words {
            ["run", task, "all"] => {
                starts.insert(task.to_owned(), (now, true));
                now += tasks[task] * ACCESS_US;
            }
            ["turns", count, each, ref tasks @ ..] => {
                tasks.iter().for_each(|task| _ = starts.entry((*task).to_owned()).or_insert((now, false)));
                now += number(count) * number(each) * ACCESS_US;
            }
            ["record", "end"] => recorded = recorded.or(Some(now)),
            _ => {}
        }
    }
    let mut text = format!(
        "[machine]\ncpus = 4\nmemory = \"512M\"\nswap = \"512M\"\nswap_device = \"zram-lz4\"\npage_cluster = 0\nsample = \"{SAMPLE_US}us\"\n\
         duration = \"{now}us\"\n"
    );
    for words in lines() {
        match *words {
            ["group", name, ..] => {
                let above = named(&words, "parent").map_or(String::new(), |parent| format!("/{parent}"));
                text += &format!("[[group]]\nname = \"{above}/{name}\"\n");
                for key in ["max", "low", "min"] {
                    text += &named(&words, key).map_or(String::new(), |pages| format!("{key} = \"{pages}p\"\n"));
                }
            }
            ["task", name, ..] => {
                let arguments = workload(&words).arguments.strip_prefix("kind=").expect("a kind");
                let spec = arguments.replacen(' ', ":", 1).replace(' ', ",");
                let (start, sleeps) = starts[name];
                let group = named(&words, "group").expect("a group");
                text += &format!("[[task]]\nname = \"{name}\"\ngroup = \"/p/{group}\"\n");
                text += &format!("start = \"{start}us\"\ncpu = \"{ACCESS_US}us\"\nrounds = 1000\n");
                text += &format!("[[task.workload]]\nspec = \"{spec}\"\n");
                if sleeps {
                    text += "[[task.workload]]\nspec = \"cyclic:pages=1,accesses=1\"\npause = \"1000s\"\n";
                }
            }
            _ => {}
        }
    }
    (text, recorded.expect("an end"))
}

/// Members with the same protections that do the same: how they share what is left to them is chance, so they are
/// compared by their sum.
fn alike(steps: &str, workloads: &BTreeMap<String, Workload>) -> Vec<Vec<String>> {
    let mut sets: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let lines = || steps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    for group in lines().filter(|words| words.first() == Some(&"group") && words[1] != "p") {
        let of_group = format!("group={}", group[1]);
        let tasks = lines().filter(|words| words.first() == Some(&"task") && words[2] == of_group);
        let pages: Vec<u64> = tasks.map(|words| workloads[&words[3]["workload=".len()..]].anon).collect();
        sets.entry(format!("{:?} {pages:?}", &group[2..])).or_default().push(group[1].to_owned());
    }
    sets.into_values().collect()
}

#[test]
fn members_end_where_the_kernels_members_end() {
    let workloads = &workloads();
    let mut compared = 0;
    for (cell, steps) in kernel_protections() {
        for lists in ["classic", "mglru"] {
            let (alone, machine) = if lists == "classic" {
                let policy = || Classic::new(ClassicParams::default());
                (alone(&steps, workloads, policy()), machine(&steps, workloads, policy()))
            } else {
                let policy = || Mglru::new(MglruParams::default());
                (alone(&steps, workloads, policy()), machine(&steps, workloads, policy()))
            };
            let theirs = theirs(lists, &cell);
            assert!(!theirs.is_empty(), "{cell} {lists} is not recorded");
            for (group, kernel) in &theirs {
                println!(
                    "{cell} {lists} {group}: kernel {kernel}, alone {:.0}, machine {:.0}",
                    alone[group], machine[group]
                );
            }
            for together in alike(&steps, workloads) {
                let [kernel, alone, machine] =
                    [&theirs, &alone, &machine].map(|ends| together.iter().map(|group| ends[group]).sum::<f64>());
                for (ours, of) in [(alone, "the policy alone"), (machine, "the machine")] {
                    let off = ours / kernel - 1.0;
                    assert!(off.abs() <= WITHIN, "{cell} {lists} {together:?}: {of} has {ours}, the kernel {kernel}");
                }
                compared += 1;
            }
        }
    }
    assert!(compared >= 36, "only {compared} were compared");
}
