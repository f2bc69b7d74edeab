use super::*;
use crate::codec::tests::sample_page;
use crate::faulty::{FaultPlan, FaultyDevice};
use proptest::prelude::*;

fn options(pages: u64) -> FileStoreOptions {
    FileStoreOptions { limit: pages * PAGE_SIZE as u64, encrypt: false, engine: None }
}

fn device(engine: Option<IoEngine>) -> Box<dyn Device> {
    Box::new(FileDevice::create(&std::env::temp_dir(), engine).expect("a file in the temporary directory"))
}

fn put(store: &FileStore, pages: &[Page]) -> Vec<Result<Slot, StoreError>> {
    let mut slots = vec![Err(StoreError::Full(NAME)); pages.len()];
    store.write(&pages.iter().collect::<Vec<_>>(), &mut Scratch::new(), &mut slots);
    slots
}

fn sample_pages(count: u64) -> Vec<Page> {
    (0..count).map(|seed| sample_page(seed, 16)).collect()
}

#[test]
fn both_engines_return_what_was_written() {
    for engine in [Some(IoEngine::Uring), Some(IoEngine::Psync), None] {
        for encrypt in [false, true] {
            let Ok(device) = FileDevice::create(&std::env::temp_dir(), engine) else {
                refault_testing::skip_required(format_args!("{engine:?} is not available here"));
                continue;
            };
            let options = FileStoreOptions { encrypt, ..options(400) };
            let store = FileStore::on(Box::new(device), &options).expect("makes");
            let pages = sample_pages(300);
            let slots = put(&store, &pages);
            let mut back = Page::ZERO;
            for (slot, page) in slots.iter().zip(&pages) {
                store.read(slot.expect("stored"), &mut back, &mut Scratch::new()).expect("reads");
                assert!(back.0 == page.0);
            }
            assert_eq!(store.usage().file_pages, 300);
            slots.into_iter().for_each(|slot| store.release(slot.expect("stored")));
            assert_eq!(store.usage(), Usage::default());
        }
    }
}

#[test]
fn a_file_whose_pages_come_and_go_does_not_grow() {
    let store = FileStore::on(device(None), &options(1 << 20)).expect("makes");
    let pages = sample_pages(32);
    let mut held = std::collections::VecDeque::new();
    for _ in 0..1000 {
        held.extend(put(&store, &pages).into_iter().map(|slot| slot.expect("stored")));
        if held.len() > 640 {
            held.drain(..32).for_each(|slot| store.release(slot));
        }
    }
    // 672 pages at most at a time, 32,000 in all.
    let most = MIN_WORDS as u64 * 64 * size_of::<Seal>() as u64;
    assert!(store.seal_bytes() <= most, "{} bytes", store.seal_bytes());
}

#[test]
fn a_full_store_says_so_before_the_file_is_full_and_slots_come_back() {
    let store = FileStore::on(device(None), &options(100)).expect("makes");
    let pages = sample_pages(101);
    let slots = put(&store, &pages);
    assert!(slots[..100].iter().all(Result::is_ok));
    assert_eq!(slots[100], Err(StoreError::Full(NAME)));
    for slot in &slots[..50] {
        store.release(slot.expect("stored"));
    }
    assert!(put(&store, &pages[..50]).iter().all(Result::is_ok));
    assert!(put(&store, &pages[..1])[0].is_err());
}

/// Remembers holes and lets the bytes be looked at.
struct Spy {
    inner: Box<dyn Device>,
    punched: std::sync::Arc<AtomicU64>,
    seen: std::sync::Arc<Mutex<Vec<u8>>>,
}

impl Device for Spy {
    unsafe fn write(&self, jobs: &mut [Job]) {
        for job in jobs.iter() {
            // SAFETY: promised by the caller.
            let bytes = unsafe { std::slice::from_raw_parts(job.buffer, job.len) };
            self.seen.lock().expect("no panic").extend_from_slice(bytes);
        }
        // SAFETY: passed on.
        unsafe { self.inner.write(jobs) };
    }
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(offset, buffer)
    }
    fn punch(&self, offset: u64, len: u64) {
        self.punched.fetch_add(len, Ordering::Relaxed);
        self.inner.punch(offset, len);
    }
    fn after_fork(&self, pieces: &mut dyn Iterator<Item = (u64, usize)>) -> io::Result<()> {
        self.inner.after_fork(pieces)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[test]
fn freed_runs_are_punched_out_and_plain_text_never_reaches_the_device() {
    let (punched, seen) = Default::default();
    let spy = Spy { inner: device(None), punched, seen };
    let (punched, seen) = (spy.punched.clone(), spy.seen.clone());
    let store = FileStore::on(Box::new(spy), &FileStoreOptions { encrypt: true, ..options(200) }).expect("makes");
    let mut secret = Page::ZERO;
    secret.0[..32].copy_from_slice(b"the key to the safe is under the");
    let pages = vec![secret; 128];
    let slots = put(&store, &pages);
    {
        let seen = seen.lock().expect("no panic");
        assert_eq!(seen.len(), 128 * PAGE_SIZE);
        assert!(!seen.windows(16).any(|w| w == b"the key to the s"));
        // The same page twice is not the same bytes twice.
        assert_ne!(seen[..PAGE_SIZE], seen[PAGE_SIZE..2 * PAGE_SIZE]);
    }
    slots.into_iter().for_each(|slot| store.release(slot.expect("stored")));
    assert_eq!(punched.load(Ordering::Relaxed), 128 * PAGE_SIZE as u64);
}

#[test]
fn the_file_is_private_and_has_no_name() {
    let directory = std::env::temp_dir().join(format!("refault-store-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("makes a directory");
    let device = FileDevice::create(&directory, None).expect("makes");
    let left = std::fs::read_dir(&directory).expect("lists").count();
    std::fs::remove_dir(&directory).expect("is empty");
    assert_eq!(left, 0);
    drop(device);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Whatever the device does: a page that was said to be stored comes back whole or as an error, never as other
    /// bytes. With only reported faults it comes back.
    #[test]
    fn a_faulty_device_never_yields_other_bytes(
        seed: u64, encrypt: bool, silent: bool,
        rounds in proptest::collection::vec((1u64..100, any::<u64>()), 1..8),
    ) {
        let rate = 3000;
        let hidden = if silent { rate } else { 0 };
        let plan = FaultPlan {
            seed, write_error: rate, no_space: rate, short_write: rate * 3, short_read: rate,
            read_error: rate, torn_write: hidden, lost_write: hidden, bit_flip: hidden, delay: None,
        };
        let device = FaultyDevice::new(device(None), plan);
        let store = FileStore::on(Box::new(device), &FileStoreOptions { encrypt, ..options(300) }).expect("makes");
        let mut scratch = Scratch::new();
        let mut live: Vec<(Slot, Page)> = Vec::new();
        for (count, seed) in rounds {
            let pages: Vec<Page> = (0..count).map(|n| sample_page(seed ^ n, 16)).collect();
            let slots = put(&store, &pages);
            live.extend(slots.into_iter().zip(pages).filter_map(|(slot, page)| slot.ok().map(|slot| (slot, page))));
            let mut back = Page::ZERO;
            let mut kept = Vec::new();
            for (slot, page) in live.drain(..) {
                match store.read(slot, &mut back, &mut scratch) {
                    Ok(()) => prop_assert!(back.0 == page.0),
                    Err(StoreError::Checksum(_)) => prop_assert!(silent),
                    Err(StoreError::Io { operation, .. }) => prop_assert_eq!(operation, "read"),
                    Err(other) => prop_assert!(false, "{other}"),
                }
                if page.0[0] & 1 == 0 { store.release(slot) } else { kept.push((slot, page)) }
            }
            live = kept;
            prop_assert_eq!(store.usage().file_pages as usize, live.len());
        }
    }
}
