//! What other tools record: blkparse, perf, Twitter's and VMware's public traces, damo.

use std::io::Write;

use refault_trace::{Entry, Kind, ObjectsAs, Options, TimeSpan, open_bytes};

/// Accesses and the span of time of their first block.
fn read(name: &str, bytes: &[u8]) -> Result<(Vec<Entry>, Option<TimeSpan>), String> {
    read_with(name, bytes, &Options::default())
}

fn read_with(name: &str, bytes: &[u8], options: &Options) -> Result<(Vec<Entry>, Option<TimeSpan>), String> {
    let mut reader = open_bytes(name, bytes.to_vec(), options).map_err(|error| error.to_string())?;
    let (mut all, mut block, mut time) = (Vec::new(), Vec::new(), None);
    while reader.read_block(&mut block).map_err(|error| error.to_string())? > 0 {
        all.extend_from_slice(&block);
        time = time.or(reader.block_time());
    }
    Ok((all, time))
}

fn entries(kind: Kind, pages: &[(u64, bool)]) -> Vec<Entry> {
    pages.iter().map(|(page, write)| Entry::new(*page, kind, *write)).collect()
}

const BLKPARSE: &[u8] = b"\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  G   W 223490 + 8 [kjournald]
  8,16   1        1     1.500000000  1000  Q  RA 0 + 16 [cat]
  8,0    3        9     2.000000000   697  Q   D 8 + 8 [fstrim]
  8,0    3       10     2.100000000   697  Q FWS [jbd2]
  8,0    3       11     2.200000000   697  C   W 223490 + 8 [0]
CPU0 (8,0):
 Reads Queued:           1,        8KiB\t Writes Queued:           1,        4KiB
Throughput (R/W): 0KiB/s / 0KiB/s
";

#[test]
fn blkparse_takes_what_was_queued() {
    // 223490 * 512 = 114426880 = page 27936 and 1024 bytes, so eight sectors touch two pages.
    let expected = entries(Kind::Fd, &[(27_936, true), (27_937, true), (1 << 44, false), ((1 << 44) + 1, false)]);
    let time = TimeSpan { first_ns: 0, last_ns: 1_500_000_000 };
    for name in ["t.blkparse", "by its contents"] {
        assert_eq!(read(name, BLKPARSE), Ok((expected.clone(), Some(time))), "{name}");
    }
    assert!(
        read("t.blkparse", b"CPU0 (8,0):\n")
            .is_err_and(|error| error.contains("has no accesses: no line is an event Q, D or C"))
    );
}

#[test]
fn perf_script_lines_are_samples() {
    let text = b"\
ls 12345 [001] 1234.567890:          1 cpu/mem-loads,ldlat=30/P:     7ffd12345678 |OP LOAD|LVL L1 hit|
my prog 12345 [001] 1235.567890:     1 cpu/mem-stores/P:     7ffd12346678
ls 12345/12346 1236.0:     page-faults:     0
\tffffffff81000000 [unknown] ([kernel.kallsyms])

ls 12345 [001] 1237.000001: exceptions:page_fault_user: address=0x5000 ip=0x401000 error_code=0x6
ls 12345 [001] 1238.000001: exceptions:page_fault_user: address=0x6fff ip=0x401000 error_code=0x4
";
    let expected = entries(Kind::Anon, &[(0x0007_ffd1_2345, false), (0x0007_ffd1_2346, true), (5, true), (6, false)]);
    let time = TimeSpan { first_ns: 1_234_567_890_000, last_ns: 1_238_000_001_000 };
    for name in ["t.perf", "by its contents"] {
        assert_eq!(read(name, text), Ok((expected.clone(), Some(time))), "{name}");
    }
}

#[test]
fn perf_mem_reports_are_samples() {
    let text = b"\
# PID, TID, IP, ADDR, LOCAL WEIGHT, DSRC, SYMBOL
 77 77 0x401000 0x7f0000001008 12 0x5080021 /bin/ls:main
 77 77 0x401000 0x7f0000002008 0 0x5080044 /bin/ls:main
";
    let expected = entries(Kind::Anon, &[(0x0007_f000_0001, false), (0x0007_f000_0002, true)]);
    for name in ["t.perf", "by its contents"] {
        assert_eq!(read(name, text), Ok((expected.clone(), None)), "{name}");
    }
    let error = read("t.perf", b"# PID, TID, IP, ADDR, DSRC\n1 2 3\n").expect_err("too few columns");
    assert_eq!(error, "t.perf: line 2: '1 2 3' has no address in its column");
}

const TWITTER: &[u8] = b"\
0,user:17,7,4000,4,get,0
0,a,b,3,100,4,set,600
1,user:17,7,4000,4,delete,0
2,user:17,7,4000,5,gets,0
";

#[test]
fn twitter_keys_are_objects() {
    for name in ["cluster01.csv", "cluster01.twitter", "by its contents"] {
        let (accesses, time) = read(name, TWITTER).expect("readable");
        assert_eq!(accesses.len(), 3, "{name}: the deletion is no access");
        assert_eq!((accesses[0], accesses[1].write()), (accesses[2], true), "{name}");
        assert_ne!(accesses[0].page(), accesses[1].page(), "{name}: a key may hold a comma");
        assert_eq!(time, Some(TimeSpan { first_ns: 0, last_ns: 2_000_000_000 }));
    }
    let mut reader = open_bytes("c.twitter", TWITTER.to_vec(), &Options::default()).expect("readable");
    reader.read_block(&mut Vec::new()).expect("readable");
    assert_eq!(reader.block_bytes(), Some(&[4007, 103, 4007][..]));
    let sized = Options { objects: ObjectsAs::Sized, ..Options::default() };
    let large = b"0,k,1,8192,4,get,0\n0,l,1,1,4,get,0\n0,k,1,8192,4,get,0\n";
    let (accesses, _) = read_with("c.twitter", large, &sized).expect("readable");
    assert_eq!(accesses.iter().map(|entry| entry.page()).collect::<Vec<_>>(), [0, 1, 2, 3, 0, 1, 2]);
    let error = read("c.twitter", b"0,k,1,2,3,touch,0\n").expect_err("no such operation");
    assert_eq!(error, "c.twitter: line 1: operation 'touch' is none of a Twitter trace");
}

fn v1(command: u16, block: u64, bytes: u32, microseconds: u64) -> Vec<u8> {
    let head = [1u32.to_le_bytes(), bytes.to_le_bytes(), 1u32.to_le_bytes()].concat();
    let marks = [command.to_le_bytes(), 0x0101u16.to_le_bytes()].concat();
    [head, marks, block.to_le_bytes().to_vec(), microseconds.to_le_bytes().to_vec()].concat()
}

fn v2(command: u16, block: u64, bytes: u32, microseconds: u64) -> Vec<u8> {
    let marks = [command.to_le_bytes(), 0x0204u16.to_le_bytes()].concat();
    let counts = [1u32.to_le_bytes(), bytes.to_le_bytes(), 1u32.to_le_bytes()].concat();
    [marks, counts, block.to_le_bytes().to_vec(), microseconds.to_le_bytes().to_vec(), vec![9; 8]].concat()
}

#[test]
fn vscsi_traces_of_both_versions_are_read() {
    let expected = entries(Kind::Fd, &[(1, false), (1, true), (2, true)]);
    let time = TimeSpan { first_ns: 5000, last_ns: 9000 };
    for record in [v1 as fn(u16, u64, u32, u64) -> Vec<u8>, v2] {
        // A read of eight blocks, an UNMAP, a write of eight blocks that crosses a page.
        let trace = [record(0x28, 8, 4096, 5), record(0x42, 8, 0, 6), record(0x8A, 15, 4096, 9)].concat();
        for name in ["w01.vscsi", "by its contents"] {
            assert_eq!(read(name, &trace), Ok((expected.clone(), Some(time))), "{name}");
        }
        let torn = read("w01.vscsi", &trace[..trace.len() - 3]).expect_err("torn");
        assert!(torn.contains("truncated: "), "{torn}");
        let mixed = [trace.clone(), vec![0; 40]].concat();
        assert!(read("w01.vscsi", &mixed).is_err_and(|error| error.contains("is not of version")));
    }
    let error = read("w01.vscsi", &[7; 80]).expect_err("nothing of the kind");
    assert!(error.contains("neither version 1 nor version 2"), "{error}");
}

const DAMO: &str = r#"[
  {"kdamond_idx": 0, "context_idx": 0, "intervals": null, "target_id": 0, "snapshots": [
    {"start_time": "0 ns", "end_time": "2,000 ns", "regions": [
      {"start": "4,096", "end": "12,288", "nr_accesses": {"samples": "3", "percent": "15 %"}, "age": null},
      {"start": "12,288", "end": "999,999,999", "nr_accesses": {"samples": "0", "percent": "0 %"}, "age": null}]}]},
  {"target_id": 1, "snapshots": [
    {"start_time": 0, "end_time": 1000, "regions": [{"start": 4096, "end": 8192, "nr_accesses": {"samples": 1}}]}]}
]"#;

#[test]
fn damo_snapshots_become_accesses_in_order_of_time() {
    // Target 1 was seen first; it lies in the second range because it stands second.
    let expected = entries(Kind::Anon, &[((1 << 44) + 1, false), (1, false), (2, false)]);
    let time = TimeSpan { first_ns: 1000, last_ns: 2000 };
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(DAMO.as_bytes()).expect("packed");
    let packed = packed.finish().expect("packed");
    for (name, bytes) in [("damon.data", DAMO.as_bytes()), ("damon.data", &packed), ("x.damo", &packed)] {
        assert_eq!(read(name, bytes), Ok((expected.clone(), Some(time))), "{name}");
    }
    let error = read("x.damo", b"[{\"target_id\": 0}]").expect_err("no snapshots");
    assert_eq!(error, "x.damo: offset 0: a record has no 'snapshots'");
    let error = read("x.damo", b"[{").expect_err("cut");
    assert!(error.starts_with("x.damo: offset 0: is no JSON: "), "{error}");
}

#[test]
fn damon_events_of_perf_script_are_read() {
    let text = b"\
kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated: target_id=18446623435582458880 nr_regions=17 140731667070976-140731667075072: 4 3
kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated: target_id=18446623435582458880 nr_regions=17 140731667075072-140731668037632: 0 3
kdamond.0  4452 [000] 82878.315633: damon:damon_aggregated: target_id=7 nr_regions=1 0-1: 1
";
    let expected = entries(Kind::Anon, &[(140_731_667_070_976 / 4096, false), (1 << 44, false)]);
    for name in ["t.damo", "by its contents"] {
        let (accesses, time) = read(name, text).expect("readable");
        assert_eq!((&accesses, time.expect("timed").first_ns), (&expected, 82_877_315_633_000), "{name}");
    }
}

#[test]
fn a_u64_trace_that_looks_like_zlib_is_a_u64_trace() {
    let bytes: Vec<u8> = [0x9C78u64, 0x9C78, 1].iter().flat_map(|page| page.to_le_bytes()).collect();
    assert_eq!(read("t.u64", &bytes).map(|(accesses, _)| accesses.len()), Ok(3));
}
