//! Parts of traces, and what is written read back.

use std::fs::File;
use std::path::Path;

use refault_trace::write::{Block, OutputFormat, TraceWriter};
use refault_trace::{BLOCK_ENTRIES, Entry, ObjectsAs, Options, Part, Reading, Source, open_bytes};

fn convert(source: &Source, path: &Path) -> u64 {
    let format = OutputFormat::of_path(path).expect("a format");
    let mut writer = TraceWriter::new(File::create(path).expect("ours"), path, format).expect("ours");
    let (mut reader, mut block) = (source.open().expect("readable"), Vec::new());
    while reader.read_block(&mut block).expect("readable") > 0 {
        writer.write(Block::of(&*reader, &block)).expect("ours");
    }
    writer.finish().expect("ours")
}

fn all(source: &Source) -> (Vec<Entry>, Vec<u64>, Vec<u64>) {
    let (mut reader, mut block) = (source.open().expect("readable"), Vec::new());
    let (mut entries, mut bytes, mut times) = (Vec::new(), Vec::new(), Vec::new());
    while reader.read_block(&mut block).expect("readable") > 0 {
        assert!(block.len() <= BLOCK_ENTRIES);
        entries.extend_from_slice(&block);
        bytes.extend_from_slice(reader.block_bytes().unwrap_or_default());
        times.extend_from_slice(reader.block_times().unwrap_or_default());
    }
    (entries, bytes, times)
}

fn file(path: &Path) -> Source {
    Source::file(path, Options::default())
}

/// Timed requests, more than a block of them.
fn timed(directory: &Path) -> Source {
    let path = directory.join("timed.csv");
    let lines: String =
        (0..150_000u64).map(|i| format!("{},{},{},{}\n", i * 1000, i * i % 5003 * 4096, 1 + i % 9000, i % 2)).collect();
    std::fs::write(&path, format!("time_us,offset,size,write\n{lines}")).expect("ours");
    file(&path)
}

#[test]
fn csv_keeps_everything_also_when_it_is_packed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = timed(directory.path());
    let expected = all(&source);
    assert!(expected.1.len() == expected.0.len() && expected.2.len() == expected.0.len());
    for name in ["a.csv", "a.csv.zst", "a.csv.gz"] {
        let path = directory.path().join(name);
        assert_eq!(convert(&source, &path), expected.0.len() as u64);
        assert!(all(&file(&path)) == expected, "{name}");
    }
}

#[test]
fn oracle_general_says_when_a_page_comes_next() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Reuse at short and at long distance, beyond what the writer keeps back, and two pages of one number.
    let pages: Vec<u64> = (0..700_000u64).map(|i| if i % 3 == 0 { i % 7 } else { 100 + i % 300_007 }).collect();
    let mut entries: Vec<u64> = pages.clone();
    entries[5] |= 1 << 57;
    let path = directory.path().join("a.u64");
    let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_le_bytes()).collect();
    std::fs::write(&path, bytes).expect("ours");
    let output = directory.path().join("a.oracleGeneral");
    assert_eq!(convert(&file(&path), &output), entries.len() as u64);
    let written = std::fs::read(&output).expect("ours");
    let mut next_of = std::collections::HashMap::new();
    for (index, record) in written.chunks_exact(24).enumerate().rev() {
        let object = u64::from_le_bytes(record[4..12].try_into().expect("eight"));
        let next = i64::from_le_bytes(record[16..].try_into().expect("eight"));
        assert_eq!(object, if index == 5 { pages[5] | 1 << 63 } else { pages[index] }, "{index}");
        assert_eq!(u32::from_le_bytes(record[12..16].try_into().expect("four")), 4096);
        assert_eq!(next, next_of.insert(object, index as i64 + 1).unwrap_or(-1), "{index}");
    }
    let packed = directory.path().join("a.oracleGeneral.zst");
    convert(&file(&path), &packed);
    assert!(zstd::decode_all(File::open(&packed).expect("ours")).expect("packed") == written);
    assert_eq!(all(&file(&output)).0.len(), entries.len());
}

#[test]
fn rft_keeps_the_times_of_blocks() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = timed(directory.path());
    let path = directory.path().join("a.rft");
    convert(&source, &path);
    let span = |source: &Source| {
        let mut reader = source.open().expect("readable");
        reader.read_block(&mut Vec::new()).expect("readable");
        reader.block_time()
    };
    assert!(span(&source).is_some());
    assert_eq!(span(&file(&path)), span(&source));
}

#[test]
fn a_part_is_what_was_asked_for() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = timed(directory.path());
    let (entries, bytes, times) = all(&source);
    let take = |part: Part| all(&source.clone().part(part));
    let part = take(Part { skip: 70_000, limit: Some(100_000), ..Part::default() });
    assert!(part.0 == entries[70_000..170_000] && part.1 == bytes[70_000..170_000]);
    assert!(part.2 == times[70_000..170_000]);
    // A request of two pages has one time.
    let (from, to) = (10_000_000_000, 20_000_000_000);
    let inside = |index: &usize| (from..to).contains(&(times[*index] - times[0]));
    let expected: Vec<Entry> = (0..times.len()).filter(inside).map(|index| entries[index]).collect();
    let part = take(Part { from_ns: Some(from), to_ns: Some(to), ..Part::default() });
    assert!(part.0 == expected && !expected.is_empty());
    let part = take(Part { from_ns: Some(from), limit: Some(3), skip: 1, ..Part::default() });
    assert!(part.0 == expected[1..4]);

    let error = source.clone().part(Part { skip: u64::MAX, ..Part::default() }).open().and_then(|mut reader| {
        let mut block = Vec::new();
        reader.read_block(&mut block)
    });
    assert_eq!(
        error.expect_err("nothing is left").to_string(),
        "timed: has no accesses in the part that was asked for"
    );
    let path = directory.path().join("a.u64");
    convert(&source, &path);
    let untimed = file(&path).part(Part { from_ns: Some(1), ..Part::default() });
    let error = untimed.open().and_then(|mut reader| reader.read_block(&mut Vec::new()));
    assert!(error.expect_err("no times").to_string().contains("says no times"));
}

#[test]
fn accesses_are_counted_before_they_are_collapsed() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("a.text");
    std::fs::write(&path, "1\n1\n1\n2\n2\n3\n").expect("ours");
    let collapse = Options { collapse: true, ..Options::default() };
    let source = Source::file(&path, collapse.clone());
    let pages = |source: &Source| all(source).0.iter().map(|entry| entry.page()).collect::<Vec<_>>();
    assert_eq!(pages(&source), [1, 2, 3]);
    assert_eq!(pages(&source.part(Part { limit: Some(4), ..Part::default() })), [1, 2]);
    let mut reader = open_bytes("a.text", b"1\n1\n".to_vec(), &collapse).expect("readable");
    assert_eq!(reader.read_block(&mut Vec::new()).expect("readable"), 1);
}

#[test]
fn a_part_says_the_mean_of_its_own_objects() {
    let lines: String = (0..70_000).map(|at| format!("{at},{}\n", if at < 100 { 100 } else { 900_000 })).collect();
    let whole = |objects| {
        let options = Options { objects, ..Options::default() };
        open_part("t.csv", &format!("key,size\n{lines}"), &options, Part { limit: Some(100), ..Part::default() })
    };
    let reading = whole(ObjectsAs::OnePageEach);
    assert_eq!(reading.objects.and_then(|objects| objects.mean_bytes()), Some(100.0));
    assert!(
        reading.remarks[0]
            .to_string()
            .ends_with("(of what was read for the part: all before its end, and some behind it)")
    );
    // An object may be several accesses, so the mean is not told.
    let note = whole(ObjectsAs::Sized).note().expect("objects");
    assert!(note.starts_with("Each object has as many pages of 4 KiB as its size needs, and"), "{note}");
}

fn open_part(name: &str, text: &str, options: &Options, part: Part) -> Reading {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join(name);
    std::fs::write(&path, text).expect("ours");
    let mut reader = Source::file(&path, options.clone()).part(part).open().expect("readable");
    while reader.read_block(&mut Vec::new()).expect("readable") > 0 {}
    Reading::of(&*reader)
}

#[test]
fn sizes_that_are_not_known_are_empty_fields_of_csv() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("some.csv");
    std::fs::write(&path, "key,size,op\n7,,get\n7,70,set\n8,-1,get\n").expect("ours");
    let again = directory.path().join("again.csv");
    assert_eq!(convert(&file(&path), &again), 3);
    let text = std::fs::read_to_string(&again).expect("ours");
    assert_eq!(text, "object,kind,write,size\n7,fd,0,\n7,fd,1,70\n8,fd,0,\n");
    assert!(all(&file(&again)) == all(&file(&path)));
}
