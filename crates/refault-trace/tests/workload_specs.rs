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
        (
            "fio:pages=4",
            "'fio' has no parameter 'pages': it takes rw, random_distribution, bs, size, io_size, number_ios,",
        ),
        ("fio:randseed=7", "randseed is not taken: blocks are those of fio's default, randrepeat=1"),
        ("fio:randrepeat=0", "randrepeat is not taken"),
        ("fio:allrandrepeat=1", "allrandrepeat is not taken"),
        ("fio:runtime=60", "runtime ends by the clock, which a trace has not; io_size, number_ios and loops say"),
        ("fio:ioengine=psync", "ioengine does not change which blocks are asked for; leave it out"),
        ("fio:rw=randrw", "rw=randrw: expected randread, randwrite, read or write"),
        ("fio:size=24x", "size=24x: expected a whole number, as 4096, 4k or 24m"),
        ("fio:size=16777216T", "size=16777216T: expected a whole number"),
        ("fio:size=0", "size / bs must be from 1 to 4294967295, not 0"),
        ("fio:size=5k", "size must be a multiple of bs (4096), not 5120"),
        ("fio:size=64m,bs=6k", "bs must be a multiple of 4096 or a divisor from 512 on, not 6144"),
        ("fio:bs=0", "bs must be a multiple of 4096 or a divisor from 512 on, not 0"),
        ("fio:numjobs=0", "numjobs must be from 1 to 65536, not 0"),
        ("fio:numjobs=3,job=3", "job must be from 0 to 2, not 3"),
        ("fio:thread=0", "thread must be from 1 to 4294967295, not 0"),
        ("fio:loops=0", "loops must be from 1 to"),
        (
            "fio:loops=2,io_size=1g",
            "loops and an io_size beyond size do not go together: fio 3.33 ends such jobs early",
        ),
        ("fio:size=8T", "the map of 2147483648 blocks is too large: 268435456 fit, norandommap=1 has no map"),
        ("fio:norandommap=yes", "norandommap=yes: expected 0 or 1"),
        ("fio:filename=a:b", "filename=a:b: one file is taken, not a list"),
        ("fio:random_distribution=gauss:2", "there are random, zipf:THETA, pareto:POWER, normal:PERCENT"),
        ("fio:random_distribution=zipf:1", "zipf takes a number from 0 to 100 other than 1, not 1"),
        ("fio:random_distribution=zipf:x", "'x' is not a number"),
        ("fio:random_distribution=zipf:nan", "'nan' is not a number"),
        ("fio:random_distribution=zipf:0.9:2", "the centre must be from 0 to 1"),
        ("fio:random_distribution=zipf:0.9:0:1", "expected at most a number and a centre"),
        ("fio:random_distribution=pareto:1", "pareto takes a number between 0 and 1, not 1"),
        ("fio:random_distribution=normal:101", "normal takes a number from 0 to 100, not 101"),
        ("fio:random_distribution=normal:5,size=8k", "a normal law needs 64 blocks: with fewer fio 3.33 may hang"),
        ("fio:random_distribution=zoned:50/5", "the shares of the accesses make 50 percent, not 100"),
        ("fio:random_distribution=zoned:50/50:50/60", "the shares of the file make 110 percent, more than 100"),
        ("fio:random_distribution=zoned:100", "'100' is not ACCESSES/SIZE, both in percent, as 60/10"),
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

#[test]
fn options_of_fio_are_understood() {
    let spec =
        parse("fio:rw=randwrite,random_distribution=zoned:60/10:40/90,bs=16k,size=24M,offset=1m,numjobs=3,kind=mapped")
            .expect("valid");
    assert_eq!((spec.pages, spec.accesses, spec.kind), (25 * 256 * 3, 24 * 256 * 3, Kind::Mapped));
    assert_eq!(parse(&spec.to_string()), Ok(spec));
    let named = parse("fio:name=a,directory=d/e,norandommap,number_ios=7,numjobs=2,job=1,thread=9").expect("valid");
    assert_eq!((named.accesses, named.seed), (7, 9));
    assert_eq!(parse(&named.to_string()), Ok(named));
    for law in ["zipf:1.2:0.25", "pareto:0.3", "normal:20:0.5", "zipf", "normal", "pareto", "random"] {
        let spec = parse(&format!("fio:random_distribution={law},filename=f,numjobs=4")).expect(law);
        assert_eq!((spec.pages, spec.accesses), (65_536, 4 * 65_536), "one file");
        assert_eq!(parse(&spec.to_string()), Ok(spec));
    }
    assert!(
        pages("fio:rw=randwrite,size=1m,kind=anon")
            .iter()
            .all(|(page, write, kind)| { *page < 256 && *write && *kind == Kind::Anon })
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,60}|(zipf|mixed|hotcold|twopass|fio):([a-z0-9]{1,7}=[0-9KMG.]{0,6},){0,4}") {
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
