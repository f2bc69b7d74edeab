//! The `.rft` format: round trips, seeking, times, and every kind of damage.

use std::path::{Path, PathBuf};

use proptest::prelude::*;
use refault_trace::rft::{RftReader, RftWriter, block};
use refault_trace::{BLOCK_ENTRIES, Entry, Kind, Options, TimeSpan, TraceReader, open, open_bytes};

fn entries(most: usize) -> impl Strategy<Value = Vec<Entry>> {
    let kind = prop_oneof![Just(Kind::Anon), Just(Kind::Fd), Just(Kind::Mapped)];
    let page = prop_oneof![0..1000u64, 0..=Entry::MAX_PAGE];
    let entry = (page, kind, any::<bool>()).prop_map(|(page, kind, write)| Entry::new(page, kind, write));
    let alike = (prop::collection::vec(0..2000u64, 1..most), any::<bool>())
        .prop_map(|(pages, write)| pages.into_iter().map(|page| Entry::new(page, Kind::Fd, write)).collect());
    prop_oneof![prop::collection::vec(entry, 1..most), alike]
}

/// Several blocks, the last one short.
fn long_trace() -> Vec<Entry> {
    (0..BLOCK_ENTRIES as u64 * 2 + 777).map(|i| Entry::new(i * i % 10_007, Kind::Fd, i % 7 == 0)).collect()
}

fn written(directory: &Path, entries: &[Entry]) -> PathBuf {
    let path = directory.join("t.rft");
    let mut writer = RftWriter::create(&path).expect("created");
    writer.add_metadata("source", "a test");
    for part in entries.chunks(1000) {
        writer.write(part).expect("written");
    }
    assert_eq!(writer.finish().expect("finished"), entries.len() as u64);
    path
}

fn rest(reader: &mut dyn TraceReader) -> Result<Vec<Entry>, String> {
    reader.read_to_end().map_err(|error| error.to_string())
}

fn read(bytes: Vec<u8>) -> Result<Vec<Entry>, String> {
    let mut reader = open_bytes("t.rft", bytes, &Options::default()).map_err(|error| error.to_string())?;
    rest(&mut *reader)
}

proptest! {
    #[test]
    fn blocks_come_back(entries in entries(300)) {
        let (mut bytes, mut decoded) = (Vec::new(), Vec::new());
        block::encode(&entries, &mut bytes);
        prop_assert_eq!(block::decode(&bytes, entries.len(), &mut decoded), Ok(()));
        prop_assert_eq!(decoded, entries);
    }

    #[test]
    fn no_bytes_make_the_block_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), count in 1..60usize) {
        let mut decoded = Vec::new();
        if block::decode(&bytes, count, &mut decoded).is_ok() {
            prop_assert_eq!(decoded.len(), count);
            prop_assert!(decoded.iter().all(|entry| entry.kind().is_some()));
        }
    }

    #[test]
    fn traces_come_back_and_damage_is_noticed(
        entries in entries(300), at in any::<prop::sample::Index>(), flip in 1..=255u8, cut in any::<prop::sample::Index>(),
    ) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let bytes = std::fs::read(written(directory.path(), &entries)).expect("readable");
        prop_assert_eq!(read(bytes.clone()), Ok(entries.clone()));
        let mut damaged = bytes.clone();
        let at = at.index(bytes.len());
        damaged[at] ^= flip;
        let error = read(damaged).expect_err("every byte is covered");
        prop_assert!(!error.contains('\n'), "{}", error);
        let error = read(bytes[..cut.index(bytes.len())].to_vec()).expect_err("cut short");
        prop_assert!(error.starts_with("t.rft: ") && !error.contains('\n'), "{}", error);
    }
}

#[test]
fn long_traces_come_back_from_any_access() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let entries = long_trace();
    let path = written(directory.path(), &entries);
    let mut reader = open(&path, &Options::default()).expect("whole");
    assert_eq!(reader.total(), Some(entries.len() as u64));
    assert_eq!(rest(&mut *reader).as_ref(), Ok(&entries));
    let mut reader = RftReader::open(&path).expect("whole");
    assert_eq!(reader.footer().metadata, [("source".to_owned(), "a test".to_owned())]);
    assert_eq!(reader.footer().blocks.len(), 3);
    let pages = || entries[..BLOCK_ENTRIES].iter().map(|entry| entry.page());
    let first = reader.footer().blocks[0];
    assert_eq!((Some(first.min_page), Some(first.max_page)), (pages().min(), pages().max()));
    for access in [0, 1, BLOCK_ENTRIES - 1, BLOCK_ENTRIES, BLOCK_ENTRIES * 2 + 1, entries.len() - 1, entries.len()] {
        reader.seek(access as u64);
        assert_eq!(rest(&mut reader).as_deref(), Ok(&entries[access..]), "from {access}");
    }
    let packed = zstd::encode_all(&std::fs::read(&path).expect("readable")[..], 1).expect("packed");
    assert_eq!(read(packed), Ok(entries), "packed again");
}

#[test]
fn intervals_keep_their_times() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("t.rft");
    let mut writer = RftWriter::create(&path).expect("created");
    let (a, b) = (Entry::new(1, Kind::Anon, false), Entry::new(2, Kind::Anon, true));
    let times = [(0, 99), (100, 199)].map(|(first_ns, last_ns)| TimeSpan { first_ns, last_ns });
    writer.write_timed(&[a], times[0]).expect("written");
    writer.write_timed(&[a, b], times[1]).expect("written");
    writer.write(&[b]).expect("written");
    assert_eq!(writer.finish().expect("finished"), 4);
    let mut reader = open(&path, &Options { kind: Some(Kind::Mapped), ..Options::default() }).expect("whole");
    let mut block = Vec::new();
    for (entries, time) in [(vec![a], Some(times[0])), (vec![a, b], Some(times[1])), (vec![b], None)] {
        reader.read_block(&mut block).expect("whole");
        let mapped: Vec<_> = entries.iter().map(|entry| entry.with_kind(Kind::Mapped)).collect();
        assert_eq!((&block, reader.block_time()), (&mapped, time));
    }
}

#[test]
fn damage_is_named() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let bytes = std::fs::read(written(directory.path(), &long_trace())).expect("readable");
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        bytes
    };
    let cases = [
        (bytes[..10].to_vec(), "t.rft: offset 0: truncated: too short for the header of an .rft trace"),
        (with(0, 0), "t.rft: offset 0: does not start as an .rft trace does"),
        (with(8, 9), "t.rft: offset 8: is of version 9 of the .rft format; this program reads version 1"),
        (with(100, bytes[100] ^ 1), "t.rft: offset 16: block 0: checksum does not match; the file is damaged"),
        (with(19, 0xFF), "t.rft: offset 16: block 0: the block's lengths are absurd"),
    ];
    for (bytes, expected) in cases {
        let error = read(bytes).expect_err(expected);
        assert!(error.starts_with(expected), "{error}");
    }
    let cut = bytes.len() - 1;
    let expected = format!(
        "t.rft: offset {cut}: truncated: the footer is missing, so writing was cut short; record or convert it again"
    );
    assert_eq!(read(bytes[..cut].to_vec()), Err(expected));
    let length = bytes.len() - 24;
    let error = read(with(length + 6, 1)).expect_err("an absurd length");
    assert!(error.contains("bytes is absurd"), "{error}");
    let error = read(with(length - 1, b'!')).expect_err("a damaged footer");
    assert!(error.ends_with("the footer's checksum does not match; the file is damaged"), "{error}");
}

#[test]
fn a_file_that_was_never_finished_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("t.rft");
    let mut writer = RftWriter::create(&path).expect("created");
    writer.write(&long_trace()).expect("written");
    drop(writer);
    let error = open(&path, &Options::default()).err().expect("no footer").to_string();
    assert!(error.contains("the footer is missing"), "{error}");
    let empty = directory.path().join("empty.rft");
    RftWriter::create(&empty).expect("created").finish().expect("finished");
    let error = open(&empty, &Options::default()).err().expect("no accesses").to_string();
    assert!(error.ends_with("has no accesses"), "{error}");
}

/// The bytes of a small file, so that the format cannot change without its version: regenerate only with a new one.
#[test]
fn version_one_stays_readable() {
    let pinned: Vec<u8> = include!("rft_version_one.in");
    let expected = vec![
        Entry::new(5, Kind::Anon, true),
        Entry::new(3, Kind::Anon, true),
        Entry::new(1 << 40, Kind::Mapped, false),
    ];
    assert_eq!(read(pinned), Ok(expected));
}

#[test]
fn bytes_that_belong_to_no_block_are_refused() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let pages = |pages: u64, seed: u64| -> Vec<Entry> {
        (0..3000u64).map(|i| Entry::new((i * i + seed) % pages, Kind::Anon, false)).collect()
    };
    let bytes = |entries: &[Entry]| std::fs::read(written(directory.path(), entries)).expect("ours");
    let (one, other) = (bytes(&pages(100, 1)), bytes(&pages(100, 2)));
    let error = read([one.clone(), other].concat()).expect_err("two files in one");
    assert!(error.contains("bytes that belong to no block"), "{error}");
    assert!(read(one.clone()).is_ok());
    // Between the blocks of a longer trace, with an index that knows nothing of it.
    let whole = bytes(&long_trace());
    let path = written(directory.path(), &long_trace());
    let footer = RftReader::open(&path).expect("whole").footer().clone();
    let second = footer.blocks[1].offset as usize;
    let frame_bytes = |offset: usize| u32::from_le_bytes(whole[offset..offset + 4].try_into().expect("four")) as usize;
    assert_eq!(16 + 24 + frame_bytes(16), second, "blocks follow each other");
    // A block of another trace of equal length in the place of the first: the index has other pages.
    let mut alike = pages(100, 9);
    let narrow = bytes(&alike);
    alike.iter_mut().for_each(|entry| *entry = Entry::new(entry.page() + 1, Kind::Anon, false));
    let shifted = bytes(&alike);
    let (end, shifted_end) = (24 + 16 + frame_len(&narrow), 24 + 16 + frame_len(&shifted));
    let grafted = [&shifted[..shifted_end], &narrow[end..]].concat();
    let error = read(grafted).expect_err("a block of another trace");
    let expected = if end == shifted_end { "not those of the index" } else { "the footer" };
    assert!(error.contains(expected) || error.contains("belong to no block"), "{error}");
}

/// Packed bytes of the first block.
fn frame_len(file: &[u8]) -> usize {
    u32::from_le_bytes(file[16..20].try_into().expect("four")) as usize
}
