//! Specifications of workloads: what they may say, and what wrong ones are told.

use proptest::prelude::*;
use refault_trace::generate::{Exponent, Generator};
use refault_trace::{Kind, Source, WorkloadSpec, workloads};

fn parse(text: &str) -> Result<WorkloadSpec, String> {
    text.parse().map_err(|error: refault_trace::TraceError| error.to_string())
}

fn pages(spec: &str) -> Vec<(u64, bool, Kind)> {
    let mut reader = Source::workload(parse(spec).expect("valid")).open().expect("valid");
    let (mut all, mut block) = (Vec::new(), Vec::new());
    while reader.read_block(&mut block).expect("generators do not fail") > 0 {
        all.extend(block.iter().map(|entry| (entry.page(), entry.write(), entry.kind().expect("defined"))));
    }
    all
}

#[test]
fn every_workload_has_defaults_that_work_and_a_canonical_text() {
    for workload in workloads() {
        let spec = parse(workload.name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(spec.generator, workload.generator);
        assert_eq!(parse(&spec.to_string()), Ok(spec.clone()));
        let mut reader = Source::workload(spec.clone()).open().expect("valid");
        assert_eq!(reader.total(), Some(spec.accesses));
        let (mut block, mut accesses) = (Vec::new(), 0);
        while reader.read_block(&mut block).expect("generators do not fail") > 0 {
            accesses += block.len() as u64;
        }
        assert_eq!(accesses, spec.accesses, "{}", workload.name);
        for parameter in workload.parameters {
            let expected = format!(",{}=", parameter.name);
            let text = spec.to_string().replacen(':', ",", 1);
            assert!(text.contains(&expected), "{text} says its {}", parameter.name);
        }
    }
}

#[test]
fn keys_suffixes_and_other_spellings_are_understood() {
    let spec = parse("zipf:theta=1.2,pages=256K,n=10M,kind=fd,seed=7,writes=0.25").expect("valid");
    assert_eq!((spec.pages, spec.accesses, spec.seed, spec.kind), (262_144, 10 << 20, 7, Kind::Fd));
    assert_eq!((spec.theta, spec.write_sixteenths), (Exponent::Fifths(6), 4));
    assert_eq!(parse("zipf:s5=6,w16=4,type=1,pages=262144,accesses=10M,seed=7"), Ok(spec));
    assert_eq!(parse("zipf:theta=0.99").expect("valid").theta, Exponent::Real(0.99));
    assert_eq!(parse("hotcold:hot_share=0.875"), parse("hotcold:h16=14"));
    assert_eq!(parse("scanhot:pages=800").expect("valid").hot, 100, "a share of the pages given");
}

#[test]
fn wrong_specifications_name_the_right_form() {
    let cases = [
        ("zip", "no workload is called 'zip': did you mean 'zipf'? there are uniform, zipf, cyclic,"),
        ("uniform:hot=3", "'uniform' has no parameter 'hot': it takes pages, accesses, seed, kind, writes"),
        ("uniform:pages", "'pages' is not of the form key=value"),
        ("uniform:pages=-1", "pages=-1: expected a whole number, as 65536, 64K or 1M"),
        ("uniform:pages=99999999999G", "pages=99999999999G: expected a whole number"),
        ("uniform:pages=0", "pages must be from 1 to 72057594037927935, not 0"),
        ("uniform:n=0", "accesses must be from 1 to"),
        ("uniform:n=1,accesses=2", "accesses is given twice"),
        ("uniform:kind=file", "kind=file: kinds are anon, fd and mapped"),
        ("uniform:writes=0.3", "writes=0.3: expected a multiple of 1/16 from 0 to 1, as 0.25"),
        ("uniform:w16=17", "w16=17: must be from 0 to 16"),
        ("zipf:theta=nan", "theta=nan: must be from 0 to 10"),
        ("zipf:theta=x", "theta=x: expected a number such as 0.99"),
        ("zipf:pages=1G", "pages must be from 1 to 268435456, not 1073741824"),
        ("scanhot:pages=8,hot=8", "hot must be at least 1 and below pages (8), not 8"),
        ("mixed:apages=1,fpages=2,pages=4", "pages=4 is not apages + fpages; leave it out"),
        ("uniform\n:a\n=", "'uniform' has no parameter 'a': it takes"),
    ];
    for (text, expected) in cases {
        let error = parse(text).expect_err(text);
        assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
    }
    let too_heavy = parse("zipf:theta=0,pages=64M").expect("only its table fails");
    let error = Source::workload(too_heavy).open().err().expect("weights beyond 64 bits").to_string();
    assert!(error.ends_with("the weights of so many pages do not fit; fewer pages or a larger theta do"), "{error}");
}

#[test]
fn built_in_workloads_follow_their_descriptions() {
    let anon = |page, write| (page, write, Kind::Anon);
    assert_eq!(
        pages("hotthencyclic:pages=5,hot=2,rounds=2,accesses=9"),
        [0, 1, 0, 1, 2, 3, 4, 2, 3].map(|page| anon(page, false))
    );
    let filled = pages("fillrandom:pages=1000,accesses=70000,writes=0.5");
    assert!(filled[..1000].iter().enumerate().all(|(page, access)| *access == anon(page as u64, true)));
    let writes = filled[1000..].iter().filter(|access| access.1).count();
    assert!((34_000..35_000).contains(&writes) && filled.iter().all(|access| access.0 < 1000), "{writes}");
    let idle = pages("idleanon:apages=66000,fpages=7,accesses=67000");
    assert!(idle[..66_000].iter().enumerate().all(|(page, access)| *access == anon(page as u64, true)));
    assert!(idle[66_000..].iter().all(|access| access.2 == Kind::Fd && access.0 < 7 && !access.1));
    assert_eq!(parse("idleanon").expect("valid").generator, Generator::IdleAnon);
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}|(zipf|mixed|hotcold|twopass):([a-z0-9]{1,7}=[0-9KMG.]{0,6},){0,4}") {
        if let Err(error) = parse(&text) {
            prop_assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn canonical_text_says_everything(
        which in 0..10usize, pages in 2..1_000_000u64, accesses in 1..1_000_000u64, seed: u64, fifths in 0..50u8, sixteenths in 0..=16u64,
    ) {
        let mut spec = WorkloadSpec::new(workloads()[which].generator);
        let takes = |name: &str| workloads()[which].parameters.iter().any(|parameter| parameter.name == name);
        (spec.accesses, spec.seed) = (accesses, seed);
        if takes("pages") {
            (spec.pages, spec.hot) = (pages, (pages / 8).max(1));
        }
        if takes("theta") {
            spec.theta = Exponent::Fifths(fifths);
        }
        if takes("hot_share") {
            spec.hot_sixteenths = sixteenths;
        }
        prop_assert_eq!(parse(&spec.to_string()), Ok(spec));
    }
}
