//! `refault mrc` from outside.

use std::collections::HashSet;

use crate::common::{refault, rows, stdout, text, trace};
use serde_json::Value;
use tempfile::TempDir;

const WORKLOAD: &str = "zipf:pages=4096,accesses=60000";
const SIZES: &str = "1p,17p,100p,10%,50%,90%,100%,200%";

#[test]
fn best_leaves_those_that_miss_least_and_many_policies_are_in_tables_of_readable_width() {
    let directory = TempDir::new().unwrap();
    let path = trace(&directory, "loop.u64", (0..5000).map(|n| n % 50));
    let all = stdout(&["mrc", &path, "--policy", "all", "--memory", "20p,40p"]);
    assert!(all.lines().all(|line| line.chars().count() <= 110), "{all}");
    assert_eq!(all.lines().filter(|line| line.starts_with(" memory")).count(), 4, "{all}");
    let best = stdout(&["mrc", &path, "--policy", "best", "--memory", "20p,40p", "--format", "csv"]);
    let policies: HashSet<String> = rows(&best).into_iter().skip(1).map(|row| row[1].clone()).collect();
    assert!(policies.contains("lru") && policies.contains("opt") && policies.len() < 8, "{policies:?}");
    assert!(!policies.contains("clock"), "a loop that does not fit: as bad as LRU: {policies:?}");
}

#[test]
fn lru_by_reuse_distances_is_lru_by_simulation() {
    let curve = rows(&stdout(&["mrc", "--workload", WORKLOAD, "--memory", SIZES, "--format", "csv"]));
    let policy = ["--policy", "lru", "--memory", SIZES, "--format", "csv"];
    let runs = rows(&stdout(&[&["compare", "--workload", WORKLOAD][..], &policy].concat()));
    let pick = |rows: &[Vec<String>], size: usize, ratio: usize| -> Vec<(String, String)> {
        rows[1..].iter().map(|row| (row[size].clone(), row[ratio].clone())).collect()
    };
    assert_eq!(curve.len(), 9);
    assert_eq!(pick(&curve, 2, 6), pick(&runs, 2, 7));
}

#[test]
fn simulated_curves_are_those_of_compare() {
    let curve = rows(&stdout(&[
        "mrc",
        "--workload",
        WORKLOAD,
        "--policy",
        "mglru,s3fifo",
        "--memory",
        "64p,1000p",
        "--format",
        "csv",
    ]));
    let policy = ["--policy", "mglru,s3fifo", "--memory", "64p,1000p", "--format", "csv"];
    let runs = rows(&stdout(&[&["compare", "--workload", WORKLOAD][..], &policy].concat()));
    let ratios = |rows: &[Vec<String>], at: usize| rows[1..].iter().map(|row| row[at].clone()).collect::<Vec<_>>();
    assert_eq!(ratios(&curve, 6), ratios(&runs, 7));
}

#[test]
fn answers_hold() {
    let json: Value =
        serde_json::from_str(&stdout(&["mrc", "--workload", WORKLOAD, "--misses", "20%,30%", "--format", "json"]))
            .expect("JSON");
    let enough = &json["curves"][0]["enough"][1];
    assert_eq!(enough["miss_ratio"], 0.3);
    let pages = enough["memory_pages"].as_u64().expect("30 % can be reached");
    let misses = |pages: u64| {
        let size = format!("{pages}p");
        let run = ["compare", "--workload", WORKLOAD, "--policy", "lru", "--memory", &size, "--format", "csv"];
        rows(&stdout(&run))[1][7].parse::<f64>().expect("a ratio")
    };
    assert!(misses(pages) <= 0.3 && misses(pages - 1) > 0.3);
}

#[test]
fn the_table_answers_how_much_memory_is_enough() {
    let directory = TempDir::new().expect("a temporary directory");
    // Two pages in turn, then a loop over eight: 2 + 6 first touches in 200 + 16 accesses.
    let pages = (0..200).map(|i| i % 2).chain((0..16).map(|i| i % 8));
    let path = trace(&directory, "small.u64", pages);
    let table = stdout(&["mrc", "--trace", &path, "--misses", "10%,1%"]);
    let expected = "\
Memory for each share of misses beyond first touches, which are 3.70 %:
  lru: 8 KiB gives ≤ 10 %
       32 KiB gives ≤ 1 %
       the knee is at 8 KiB (7.41 % misses in all)
";
    assert!(table.contains(expected), "{table}");
}

#[test]
fn a_looser_goal_never_needs_more_memory() {
    // First touches of 10 %, between the goals.
    let arguments = ["mrc", "--workload", "zipf:theta=0.8,pages=4096,accesses=30000", "--format", "json"];
    let json: Value = serde_json::from_str(&stdout(&arguments)).expect("JSON");
    let enough = json["curves"][0]["enough"].as_array().expect("answers");
    let memory: Vec<u64> = enough.iter().filter_map(|answer| answer["memory_pages"].as_u64()).collect();
    assert!(memory.len() >= 3 && memory.is_sorted_by(|tighter, looser| tighter >= looser), "{memory:?}");
    let beyond: Vec<&Value> = enough.iter().map(|answer| &answer["beyond_first_touches"]).collect();
    assert!(beyond.windows(2).all(|pair| pair[0] == pair[1]), "{beyond:?}");
}

#[test]
fn a_sample_that_would_be_slower_is_exact() {
    let exact = stdout(&["mrc", "--workload", WORKLOAD, "--memory", SIZES, "--format", "csv"]);
    let sampled = ["mrc", "--workload", WORKLOAD, "--memory", SIZES, "--format", "csv", "--sample", "50%"];
    assert_eq!(stdout(&sampled), exact);
}

#[test]
fn samples_estimate_within_their_error() {
    let workload = "zipf:theta=0.6,pages=65536,accesses=600000";
    let common = ["--workload", workload, "--policy", "lru,sieve", "--memory", "5%,20%,60%", "--format", "csv"];
    let exact = rows(&stdout(&[&["mrc"][..], &common].concat()));
    let sampled = rows(&stdout(&[&["mrc", "--sample", "5%"][..], &common].concat()));
    assert_eq!(exact.len(), sampled.len());
    for (exact, sampled) in exact[1..].iter().zip(&sampled[1..]) {
        let number = |row: &[String], at: usize| row[at].parse::<f64>().expect("a number");
        let (error, off) = (number(sampled, 7), (number(sampled, 6) - number(exact, 6)).abs());
        assert!(error > 0.0 && error < 0.02, "{sampled:?}");
        // Sizes differ a little, because the footprint is an estimate too.
        assert!(off <= 4.0 * error + 0.01, "{off} off by more than {error} allows: {exact:?} {sampled:?}");
    }
}

#[test]
fn a_knee_is_not_told_from_a_single_size() {
    let of = |memory: &str| {
        let workload = ["mrc", "--workload", "zipf:theta=0.8,pages=400,accesses=20000", "--policy", "lru,mglru"];
        stdout(&[&workload[..], &["--memory", memory]].concat())
    };
    let (one, several) = (of("100p"), of("40p,80p,120p,200p"));
    // LRU's curve is whole whatever is shown of it.
    assert_eq!((one.matches("the knee is at").count(), several.matches("the knee is at").count()), (1, 2), "{one}");
    assert!(one.contains("a knee is not told from fewer than 4 sizes"), "{one}");
}

#[test]
fn a_sample_says_whose_misses_it_cannot_tell_and_scales_what_counts_accesses() {
    let workload = "hotcold:pages=100K,accesses=500K,phases=4";
    let common = ["mrc", "--workload", workload, "--memory", "10000p,40000p", "--seed", "1"];
    let text = |policies: &str| stdout(&[&common[..], &["--sample", "2%", "--policy", policies]].concat());
    let said = "Of sieve, mglru that is the spread of the samples alone";
    assert!(text("lru,sieve,arc,mglru").contains(said), "{}", text("lru,sieve,arc,mglru"));
    assert!(!text("lru,arc,mq").contains("spread of the samples alone"));
    // mq's lifetime counts accesses: unscaled, its estimate is off by 20 points here.
    let csv = ["--policy", "mq,mq{lifetime=20000}", "--format", "csv"];
    let exact = rows(&stdout(&[&common[..], &csv].concat()));
    let sampled = rows(&stdout(&[&common[..], &csv, &["--sample", "2%"]].concat()));
    let number = |row: &[String], at: usize| row[at].parse::<f64>().expect("a number");
    for (exact, sampled) in exact[1..].iter().zip(&sampled[1..]) {
        assert_eq!(exact[..3], sampled[..3]);
        let (half, off) = (number(sampled, 8), (number(sampled, 6) - number(exact, 6)).abs());
        assert!(off <= half, "{off} off by more than {half}: {exact:?} {sampled:?}");
    }
}

#[test]
fn an_answer_from_a_sample_says_how_far_it_may_be_off() {
    let of = |pages: u32, sample: &[&str]| {
        let workload = format!("zipf:theta=0.8,pages={pages},accesses=100000");
        stdout(&[&["mrc", "--workload", &workload][..], sample].concat())
    };
    let few = of(400, &["--sample", "1%"]);
    assert!(few.contains("A sample has some 4 pages: with fewer than 1,000 chance decides."), "{few}");
    assert!(few.contains("the knee of the estimate is at ") && !few.contains("the knee is at"), "{few}");
    let answers: Vec<&str> = few.lines().filter(|line| line.contains(" gives ≤ ")).collect();
    assert!(answers.iter().any(|line| line.contains(" (95 %: ")), "{few}");
    let (many, exact) = (of(65_536, &["--sample", "5%"]), of(400, &[]));
    assert!(many.contains("Estimated from") && !many.contains("chance decides"), "{many}");
    assert!(exact.contains("the knee is at ") && !exact.contains("95 %"), "{exact}");
}

#[test]
fn a_report_has_the_curve_and_its_knee() {
    let directory = TempDir::new().expect("a temporary directory");
    let path = directory.path().join("curve.html");
    let path = path.to_str().expect("its path is UTF-8");
    stdout(&["mrc", "--workload", WORKLOAD, "--policy", "lru,opt", "--report", path]);
    let report = std::fs::read_to_string(path).expect("a report");
    assert!(report.contains("knee of lru") && report.contains("role=\"img\"") && !report.contains("http"));
}

#[test]
fn without_a_trace_there_is_nothing_to_draw() {
    for arguments in [&["mrc"][..], &["mrc", "--workload", WORKLOAD, "--sample", "0%"], &["mrc", "--misses", "x"]] {
        let output = refault(arguments);
        assert_eq!((output.status.code(), text(&output.stderr).lines().count()), (Some(2), 1));
    }
}
