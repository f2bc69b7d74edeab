//! Reading a file through a cache of one's own: 64 MiB of file, 16 MiB of cache, some pages hot.
//!
//! `cargo run --release --example page_cache -- mglru`. Needs a file system with direct I/O in the current directory.

use std::io::Write;

use refault::cache::{CacheOptions, PageCache};

const PAGE: u64 = 4096;
const PAGES: u64 = 16_384;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut file = tempfile::NamedTempFile::new_in(".")?;
    for page in 0..PAGES {
        file.write_all(&page.to_le_bytes().repeat(PAGE as usize / 8))?;
    }
    file.as_file().sync_all()?;

    let policy = std::env::args().nth(1).unwrap_or_else(|| "s3fifo".into());
    let cache = PageCache::new(&CacheOptions { memory: 16 << 20, policy, ..CacheOptions::default() })?;
    let cached = cache.open(file.path())?;
    let mut buffer = [0; PAGE as usize];
    let mut state = 1_u64;
    for _ in 0..50_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = state >> 33;
        // Four reads of five go to an eighth of the file.
        let page = if random % 5 < 4 { random / 5 % (PAGES / 8) } else { random / 5 % PAGES };
        cached.read_at(&mut buffer, page * PAGE)?;
        assert_eq!(buffer[..8], page.to_le_bytes());
    }
    let report = cache.report();
    let ratio = report.hits as f64 / (report.hits + report.misses) as f64;
    println!("{:.1} % of reads were hits; {} pages read from the device", 100.0 * ratio, report.counters.file_reads);
    Ok(())
}
