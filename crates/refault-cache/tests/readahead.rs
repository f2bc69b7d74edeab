//! What is read ahead of a reader: pages that arrive carry the mark at which the next window is asked for, and windows
//! are as large as advice and memory allow.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::{MadeUp, PAGE};
use refault_cache::{Advice, Backing, CacheOptions, CachedFile, PageCache};

const PAGES: u64 = 4000;

/// A file of zeros, and the most pages that were read together.
fn zeros() -> (Box<dyn Backing>, Arc<AtomicUsize>) {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let fill = move |into: &mut [IoSliceMut<'_>], _| {
        seen.fetch_max(into.len(), Ordering::SeqCst);
        into.iter_mut().for_each(|slice| slice.fill(0));
    };
    (Box::new(MadeUp { pages: PAGES, fill }), most)
}

fn cache(frames: u64, read_ahead: u32) -> PageCache {
    let options = CacheOptions {
        memory: frames * PAGE as u64,
        policy: "lru".into(),
        read_ahead: Some(read_ahead),
        ..CacheOptions::default()
    };
    PageCache::new(&options).expect("a cache")
}

fn read_all(file: &CachedFile) {
    let mut page = [1; PAGE];
    for index in 0..PAGES {
        assert_eq!(file.read_at(&mut page, index * PAGE as u64).expect("reads"), PAGE);
    }
}

/// Each window is asked for when its reader arrives in the one before, so that no read misses after the second. Without
/// the mark on what comes with a miss, or on what comes in the background, a reader misses at the end of each window.
#[test]
fn a_reader_that_is_read_ahead_of_misses_no_more() {
    for read_ahead in [8, 64] {
        let cache = cache(2048, read_ahead);
        let file = cache.attach(zeros().0).expect("opens");
        read_all(&file);
        let report = cache.report();
        assert_eq!((report.misses, report.hits), (2, PAGES - 2), "windows of {read_ahead} pages");
        assert_eq!(report.read_ahead, PAGES - 2, "windows of {read_ahead} pages");
    }
}

/// Twice as large windows for a file that is read from beginning to end, but no more than an eighth of memory.
#[test]
fn windows_double_by_advice_as_far_as_memory_allows() {
    for (frames, advice, expected) in [
        (2048, Advice::Normal, 24),
        (2048, Advice::Sequential, 48),
        (256, Advice::Normal, 24),
        // An eighth.
        (256, Advice::Sequential, 32),
    ] {
        let (backing, most) = zeros();
        let file = cache(frames, 24).attach(backing).expect("opens");
        file.advise(advice);
        read_all(&file);
        assert_eq!(most.load(Ordering::SeqCst), expected, "{advice:?} with {frames} frames");
    }
}

/// Two windows of each stream wait for their reader: where memory is small they must not be all of it.
#[test]
fn windows_are_a_small_part_of_memory_where_nothing_is_said() {
    for (frames, expected) in [(64, 8), (1024, 32)] {
        let options = CacheOptions { memory: frames * PAGE as u64, policy: "lru".into(), ..CacheOptions::default() };
        let cache = PageCache::new(&options).expect("a cache");
        let (backing, most) = zeros();
        read_all(&cache.attach(backing).expect("opens"));
        assert_eq!(most.load(Ordering::SeqCst), expected, "{frames} frames");
    }
}

/// Reads under way, and the most there were at the same time.
#[derive(Default)]
struct UnderWay {
    reads: Mutex<(usize, usize)>,
    more: Condvar,
}

/// A file of zeros far away: a read takes long, unless another is under way besides.
struct Far(Arc<UnderWay>);

const LONG: Duration = Duration::from_millis(50);

impl Backing for Far {
    fn read(&self, into: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        self.read_many(&mut [(into.iter_mut().map(|slice| IoSliceMut::new(slice)).collect(), offset)]).remove(0)
    }

    fn read_many(&self, pieces: &mut [(Vec<IoSliceMut<'_>>, u64)]) -> Vec<io::Result<usize>> {
        let mut reads = self.0.reads.lock().expect("not poisoned");
        reads.0 += 1;
        reads.1 = reads.1.max(reads.0);
        self.0.more.notify_all();
        let (mut reads, _) = self.0.more.wait_timeout_while(reads, LONG, |reads| reads.0 < 2).expect("not poisoned");
        reads.0 -= 1;
        drop(reads);
        let fill = |slices: &mut Vec<IoSliceMut<'_>>| {
            slices.iter_mut().for_each(|slice| slice.fill(0));
            Ok(slices.iter().map(|slice| slice.len()).sum())
        };
        pieces.iter_mut().map(|(slices, _)| fill(slices)).collect()
    }

    fn reads_together(&self) -> bool {
        true
    }

    fn write(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<usize> {
        unreachable!("the test writes nothing")
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(PAGES * PAGE as u64)
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Who had to wait for a window has two under way from then on, which memory has room for.
#[test]
fn two_windows_are_under_way_to_a_reader_that_waits() {
    let under_way = Arc::new(UnderWay::default());
    let cache = cache(768, 96);
    let file = cache.attach(Box::new(Far(under_way.clone()))).expect("opens");
    read_all(&file);
    let report = cache.report();
    assert_eq!((report.misses, report.read_ahead), (2, PAGES - 2), "nothing is evicted before its reader came");
    assert_eq!(under_way.reads.lock().expect("not poisoned").1, 2);
}
