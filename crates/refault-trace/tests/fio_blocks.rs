//! The workload `fio` beside fio itself: the same options, the same blocks.
//!
//! `samples/fio-3.33-blocks.txt` has what fio 3.33 of Debian 12 asked for, in its own logs; where that version is
//! installed, fio is asked again.

use std::path::Path;
use std::process::Command;

use refault_testing::skip_required;
use refault_trace::{Source, WorkloadSpec};

const RECORDED: &str = include_str!("samples/fio-3.33-blocks.txt");

/// A row of the record: options, number of pages, their digest and the first of them.
fn recorded() -> impl Iterator<Item = (&'static str, usize, u64, Vec<u64>)> {
    RECORDED.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let mut fields = line.split(' ');
        let mut field = || fields.next().expect("four fields");
        let (options, count, digest) = (field(), field(), field());
        let first = field().split(',').map(|page| page.parse().expect("a page")).collect();
        (options, count.parse().expect("a number"), u64::from_str_radix(digest, 16).expect("a digest"), first)
    })
}

/// FNV-1a of the pages, eight bytes each.
fn digest(pages: &[u64]) -> u64 {
    let bytes = pages.iter().flat_map(|page| page.to_le_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// What refault generates.
fn generated(options: &str) -> Vec<u64> {
    let spec: WorkloadSpec = format!("fio:{options}").parse().unwrap_or_else(|error| panic!("{error}"));
    let entries = Source::workload(spec).open().and_then(|mut reader| reader.read_to_end()).expect("generated");
    entries.iter().map(|entry| entry.page()).collect()
}

fn jobs(options: &str) -> u64 {
    let given = options.split(',').find_map(|option| option.strip_prefix("numjobs="));
    given.map_or(1, |jobs| jobs.parse().expect("a number"))
}

/// The jobs one after another, as logs have them.
fn generated_by_job(options: &str) -> Vec<u64> {
    (0..jobs(options)).flat_map(|job| generated(&format!("{options},job={job}"))).collect()
}

/// What fio asks for with these options, job by job.
fn asked_by_fio(options: &str, place: &Path) -> Vec<u64> {
    let log = place.join("log");
    let written = Command::new("fio")
        .current_dir(place)
        .args(["--name=refault", "--ioengine=null", "--output=out"])
        .arg(format!("--write_iolog={}", log.display()))
        .args(options.split(',').map(|option| format!("--{option}")))
        .output()
        .expect("fio runs");
    assert!(written.status.success(), "fio {options}: {}", String::from_utf8_lossy(&written.stderr));
    let text = std::fs::read_to_string(&log).expect("a log");
    std::fs::remove_file(&log).expect("ours");
    let mut by_job = vec![Vec::new(); jobs(options) as usize];
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, file, "read" | "write", offset, length] = fields[..] else { continue };
        let [offset, length] = [offset, length].map(|number| number.parse::<u64>().expect("a number"));
        let job: usize = file.rsplit('.').nth(1).and_then(|job| job.parse().ok()).unwrap_or(0);
        by_job[job].extend(offset / 4096..(offset + length).div_ceil(4096));
    }
    by_job.concat()
}

#[test]
fn blocks_are_those_of_fio_3_33s_logs() {
    let mut rows = 0;
    for (options, count, recorded, first) in recorded() {
        let pages = generated_by_job(options);
        assert_eq!(&pages[..first.len()], first, "{options}");
        assert_eq!((pages.len(), digest(&pages)), (count, recorded), "{options}");
        rows += 1;
    }
    assert!(rows > 25, "{rows} rows");
}

#[test]
fn the_installed_fio_asks_for_the_same_blocks() {
    let version = match Command::new("fio").arg("--version").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => return skip_required(format!("fio does not run: {error}")),
    };
    if version != "fio-3.33" {
        return refault_testing::skip(format!("{version} is not fio-3.33"));
    }
    let place = tempfile::tempdir().expect("a folder");
    let more = [
        "rw=randread,random_distribution=zipf:0.7,size=1m,filename=another",
        "rw=randread,random_distribution=normal:33,size=1m,filename=x",
        "rw=randwrite,random_distribution=pareto:0.4,size=3m,number_ios=700,offset=1m",
    ];
    for options in recorded().map(|row| row.0).chain(more) {
        let (ours, theirs) = (generated_by_job(options), asked_by_fio(options, place.path()));
        assert_eq!(ours.len(), theirs.len(), "{options}");
        let differs = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
        assert_eq!(differs, None, "{options}: the first that differs");
    }
}

/// Each file has pages of its own behind those of the files before it; a named file is all jobs'.
#[test]
fn jobs_take_turns() {
    let options = "random_distribution=zipf:0.5,size=4m,io_size=40k,numjobs=3";
    let jobs = [0, 1, 2].map(|job| generated(&format!("{options},job={job}")));
    let expected: Vec<u64> = (0..30).map(|at| jobs[at % 3][at / 3] + at as u64 % 3 * 1024).collect();
    assert_eq!(generated(options), expected);
    let shared = generated(&format!("{options},filename=one"));
    assert!(shared.len() == 30 && shared.iter().all(|page| *page < 1024));
    assert_eq!(generated("rw=read,size=24k,bs=8k,offset=8k,numjobs=2"), [2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15]);
    assert_eq!(generated("rw=write,size=8k,bs=1k,io_size=6k,loops=2"), [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0]);
}

/// fio's `random` begins each pass with the same seed: all passes are alike, unless blocks may repeat.
#[test]
fn passes_of_random_are_alike() {
    let pages = generated("size=4m,io_size=12m");
    assert_eq!((&pages[..1024], &pages[..1024]), (&pages[1024..2048], &pages[2048..]));
    let mut once = pages[..1024].to_vec();
    once.sort_unstable();
    assert!(once.into_iter().eq(0..1024));
    let repeating = generated("size=4m,io_size=12m,norandommap");
    assert!(repeating[..1024] != repeating[1024..2048]);
}

/// The ranks of 6,144 blocks fall on 5,054 of them, of which 60,000 draws of `zipf:0.5` touch 5,050; a law without
/// collisions touches all but a few.
#[test]
fn ranks_collide() {
    let mut touched = vec![false; 6144];
    for page in generated("random_distribution=zipf:0.5,size=24m,io_size=240000k") {
        touched[page as usize] = true;
    }
    assert_eq!(touched.iter().filter(|touched| **touched).count(), 5050);
}
