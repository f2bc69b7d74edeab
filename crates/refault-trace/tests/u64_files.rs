//! `.u64` files: plain and packed, whole and broken.

use std::io::Write;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use refault_trace::write::{Compression, U64Writer};
use refault_trace::{Entry, Kind, Options, open};

fn read_all(path: &Path, options: &Options) -> Result<Vec<Entry>, String> {
    open(path, options).and_then(|mut reader| reader.read_to_end()).map_err(|error| error.to_string())
}

fn file(directory: &tempfile::TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).expect("a writable directory");
    path
}

fn bytes_of(entries: &[Entry]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.0.to_le_bytes()).collect()
}

fn sample(count: u64) -> Vec<Entry> {
    let kinds = [Kind::Anon, Kind::Fd, Kind::Mapped];
    (0..count).map(|i| Entry::new(i * i % 1009, kinds[i as usize % 3], i % 5 == 0)).collect()
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let kind = prop_oneof![Just(Kind::Anon), Just(Kind::Fd), Just(Kind::Mapped)];
    let entry =
        (0..=Entry::MAX_PAGE, kind, any::<bool>()).prop_map(|(page, kind, write)| Entry::new(page, kind, write));
    prop::collection::vec(entry, 1..500)
}

proptest! {
    #[test]
    fn what_is_written_is_read(entries in entries(), packing in 0..3usize) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join(["t.u64", "t.u64.zst", "t.u64.gz"][packing]);
        let mut writer = U64Writer::create(&path, Compression::of_path(&path)).expect("created");
        writer.write(&entries).expect("written");
        prop_assert_eq!(writer.finish().expect("finished"), entries.len() as u64);
        prop_assert_eq!(read_all(&path, &Options::default()), Ok(entries));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), packing in 0..3usize) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let magic: &[u8] = [&[][..], &[0x28, 0xB5, 0x2F, 0xFD], &[0x1F, 0x8B, 0x08]][packing];
        let path = file(&directory, "t.u64", &[magic, &bytes].concat());
        if let Err(error) = read_all(&path, &Options::default()) {
            prop_assert!(error.contains("t.u64") && !error.contains('\n'), "{}", error);
        }
    }
}

#[test]
fn many_frames_and_members_are_one_trace() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let entries = sample(200_000);
    let bytes = bytes_of(&entries);
    // Frames end in the middle of entries.
    let (mut zst, mut gz) = (Vec::new(), Vec::new());
    for part in bytes.chunks(300_001) {
        zst.extend(zstd::encode_all(part, 1).expect("packed"));
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(part).expect("packed");
        gz.extend(encoder.finish().expect("packed"));
    }
    // The names say nothing: magic decides.
    for (name, packed) in [("a.u64", zst), ("b.u64", gz), ("c.u64.zst", bytes)] {
        let path = file(&directory, name, &packed);
        assert_eq!(read_all(&path, &Options::default()).as_ref(), Ok(&entries), "{name}");
    }
}

#[test]
fn a_kind_is_given_to_entries_that_do_not_say_theirs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let entries = sample(100_000);
    let plain = file(&directory, "a.u64", &bytes_of(&entries));
    let packed = file(&directory, "a.u64.zst", &zstd::encode_all(&bytes_of(&entries)[..], 1).expect("packed"));
    let fd = Options { kind: Some(Kind::Fd), ..Options::default() };
    let expected: Vec<_> = entries
        .iter()
        .map(|entry| if entry.kind() == Some(Kind::Anon) { entry.with_kind(Kind::Fd) } else { *entry })
        .collect();
    assert_eq!(read_all(&plain, &fd).as_ref(), Ok(&expected));
    assert_eq!(read_all(&packed, &fd), Ok(expected));
}

#[test]
fn a_file_that_is_cut_short_while_it_is_read_is_an_error() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = file(&directory, "a.u64", &bytes_of(&sample(200_000)));
    let mut reader = open(&path, &Options::default()).expect("whole");
    let mut block = Vec::new();
    assert_eq!(reader.read_block(&mut block).ok(), Some(refault_trace::BLOCK_ENTRIES));
    let cut = std::fs::OpenOptions::new().write(true).open(&path).expect("ours");
    cut.set_len(1000).expect("ours");
    let error = reader.read_block(&mut block).expect_err("cut short").to_string();
    assert!(error.contains("offset 524288: the file was cut short while it was read; it had 1600000 bytes"), "{error}");
}

#[test]
fn broken_files_say_what_and_where() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let whole = bytes_of(&sample(1000));
    let with = |index: usize, entry: u64| {
        let mut bytes = whole.clone();
        bytes[index * 8..][..8].copy_from_slice(&entry.to_le_bytes());
        bytes
    };
    let zst = zstd::encode_all(&whole[..], 1).expect("packed");
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(&whole).expect("packed");
    let gz = gz.finish().expect("packed");
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("short.u64", whole[..7999].to_vec(), "offset 7992: truncated: 7 bytes"),
        ("reserved.u64", with(500, 1 << 63), "offset 4000: entry 0x8000000000000000 has a reserved bit"),
        ("kind.u64", with(999, 3 << 57), "offset 7992: entry 0x0600000000000000 is of kind 3"),
        ("empty.u64", Vec::new(), "is empty"),
        ("empty.u64.zst", zstd::encode_all(&[][..], 1).expect("packed"), "is empty"),
        ("short.u64.zst", zst[..zst.len() - 5].to_vec(), "offset "),
        ("short.u64.gz", gz[..gz.len() - 9].to_vec(), "offset "),
        ("bad.u64.zst", zst.iter().enumerate().map(|(i, b)| if i > 8 { b ^ 0xA5 } else { *b }).collect(), "offset "),
    ];
    for (name, bytes, expected) in cases {
        let path = file(&directory, name, &bytes);
        let error = read_all(&path, &Options::default()).expect_err(name);
        assert!(error.starts_with(path.to_str().expect("a plain path")), "{error}");
        assert!(error.contains(expected) && !error.contains('\n'), "{name}: {error}");
    }
    let error = read_all(directory.path(), &Options::default()).expect_err("a directory");
    assert!(error.ends_with("is a directory; name a trace file in it"), "{error}");
    let error = read_all(&directory.path().join("none.u64"), &Options::default()).expect_err("not there");
    assert!(error.ends_with("none.u64: no such file or directory"), "{error}");
}

#[test]
fn a_bomb_ends_early() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("an encoder");
    let zeros = vec![0; 1 << 20];
    for _ in 0..1100 {
        encoder.write_all(&zeros).expect("packed");
    }
    let bomb = encoder.finish().expect("packed");
    let path = file(&directory, "bomb.u64.zst", &bomb);
    let mut reader = open(&path, &Options::default()).expect("its start is harmless");
    let mut block = Vec::new();
    let error = loop {
        match reader.read_block(&mut block) {
            Ok(0) => panic!("unpacked {} bytes to the end", bomb.len()),
            Ok(_) => {}
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("unpacks to more than 20000 times its size"), "{error}");
    let mut options = Options::default();
    options.limits.decompressed_bytes = 1 << 20;
    let error = read_all(&path, &options).expect_err("beyond the limit");
    assert!(error.contains("unpacks to more than the limit of 1048576 bytes"), "{error}");
}
