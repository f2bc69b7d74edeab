use refault_cache::{CacheOptions, PageCache};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = CacheOptions { memory: 64 << 20, policy: "s3fifo".into(), ..CacheOptions::default() };
    let cache = PageCache::new(&options)?;
    let file = cache.options().write(true).open("data".as_ref())?; // `cache.open` reads only
    let mut record = [0; 100];
    file.read_at(&mut record, 123_456)?; // from any number of threads
    let header = file.pin(0..64)?; // the bytes where they are, without a copy
    println!("{} bytes, {} hits", header.len(), cache.report().hits);
    file.prefetch(1 << 20..8 << 20); // in the background
    file.write_at(&record, 0)?; // on the device when it returns
    file.sync()?; // durable when it returns
    Ok(())
}
