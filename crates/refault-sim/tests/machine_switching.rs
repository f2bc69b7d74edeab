//! `lru_gen/enabled` and `lru_gen_full` of a simulated machine, through scenario files.

use refault_core::policy::PolicySpec;
use refault_sim::machine::report::Report;
use refault_sim::machine::scenario::Scenario;
use refault_sim::named;

/// Anonymous memory and a file that together are twice memory.
const RIVALS: &str = r#"
[machine]
memory = "32M"
swap = "64M"
swap_device = "zram-lz4"
[[file]]
name = "data"
size = "64M"
[[task]]
name = "heap"
[[task.workload]]
spec = "zipf:theta=0.8,pages=8000,accesses=300000,writes=0.5,kind=anon"
[[task]]
name = "reader"
[[task.workload]]
spec = "zipf:theta=0.9,pages=16000,accesses=300000,kind=fd,seed=2"
file = "data"
"#;

fn run(policy: &str, events: &str) -> Report {
    let scenario = Scenario::parse(&format!("{RIVALS}{events}"), "s.toml").expect("a scenario");
    let spec = PolicySpec::parse(policy).expect("a policy");
    named::machine(&spec, scenario.config).expect("a machine").run().expect("no traces")
}

fn switched(at: &str, to: &str) -> String {
    format!("[[event]]\nat = \"{at}\"\nlru_gen_enabled = \"{to}\"\n")
}

#[test]
fn switching_before_the_first_page_is_beginning_with_the_other_lists() {
    let [generations, classic] = ["mglru", "classic"].map(|policy| run(policy, "").counters);
    assert_ne!(generations, classic, "the two differ, so that equality says something");
    assert_eq!(run("classic", &switched("0s", "y")).counters, generations);
    assert_eq!(run("mglru", &switched("0s", "n")).counters, classic);
    assert_eq!(run("mglru", &switched("0s", "0x0007")).counters, generations);
}

#[test]
fn switching_in_between_leaves_work_of_both_kinds() {
    let generations = run("mglru", "");
    let early = format!("{}ns", generations.elapsed / 8);
    let there = run("mglru", &switched(&early, "n"));
    // Only the classic lists deactivate.
    assert_eq!(generations.counters.pgdeactivate, 0);
    assert!(there.counters.pgdeactivate > 100, "{} pages deactivated", there.counters.pgdeactivate);
    let list = format!("[[event]]\nat = \"{early}\"\nlist = true\n");
    let listed = run("mglru", &(list.clone() + &switched(&early, "n") + &list));
    let pages = |at: usize| -> u64 {
        let lines = listed.listings[at].text.lines().skip(2).map(|line| line.split_whitespace().skip(2));
        lines.flatten().map(|pages| pages.parse::<u64>().expect("pages")).sum()
    };
    assert!(pages(0) > 4000 && pages(1) == 0, "{} pages in generations, then {}", pages(0), pages(1));
    let twice = run("mglru", &(switched(&early, "n") + &switched(&early, "n")));
    assert_eq!(twice.counters, there.counters, "writing what holds already changes nothing");
}

#[test]
fn walks_end_when_their_bit_is_cleared() {
    let walked = |events: &str| run("mglru", events).counters.walk_entries;
    let (with, without) = (walked(""), walked(&switched("0s", "1")));
    assert!(with > 10_000 && without == 0, "{with} entries looked at, {without} with walks off");
}

#[test]
fn policies_without_both_lists_are_refused() {
    let scenario = Scenario::parse(&format!("{RIVALS}{}", switched("1s", "y")), "s.toml").expect("a scenario");
    let spec = PolicySpec::parse("sieve").expect("a policy");
    let error = named::machine(&spec, scenario.config).err().expect("refused");
    assert!(error.contains("mglru or classic"), "{error}");
    let error = Scenario::parse(&format!("{RIVALS}{}", switched("1s", "perhaps")), "s.toml").expect_err("no number");
    assert_eq!((error.line, error.key.as_str()), (20, "lru_gen_enabled"));
}

#[test]
fn the_full_listing_has_tiers_and_walks() {
    let end = run("mglru", "").elapsed * 9 / 10;
    let report = run("mglru", &format!("[[event]]\nat = \"{end}ns\"\nlist = true\nlist_full = true\n"));
    let [brief, full] = [0, 1].map(|at: usize| report.listings[at].text.clone());
    let lines: Vec<&str> = full.lines().collect();
    // A line of sizes and one for each of four tiers, four generations, and the walks at the youngest.
    assert_eq!(lines.len(), 2 + 4 * 5 + 1, "{full}");
    let of = |letter: char| -> u64 {
        let words = full.split_whitespace().filter_map(|word| word.strip_suffix(letter));
        words.filter_map(|number| number.parse::<u64>().ok()).sum()
    };
    // Everything that was ever evicted is in the counts of the oldest generation or in the averages.
    for letter in ['R', 'T', 'r', 'e'] {
        assert!(of(letter) > 0, "{letter}: {full}");
    }
    let walks: Vec<u64> = lines[lines.len() - 1]
        .split_whitespace()
        .zip("TYFA".chars())
        .map(|(word, letter)| word.strip_suffix(letter).expect("its letter").parse().expect("a number"))
        .collect();
    let [total, young, found, added] = walks[..] else { panic!("{full}") };
    assert!(young > 0 && young < total && total <= report.counters.walk_entries, "{full}");
    assert!(added > 0 && found <= total, "{full}");
    // What the brief listing has is in the full one, where generations that have left the window are marked.
    for line in brief.lines().skip(2) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let same = lines.iter().find(|line| line.split_whitespace().next() == Some(words[0])).expect("it is listed");
        assert!(same.contains(words[3]), "{same:?} and {line:?}");
    }
}
