//! More data than memory: 256 MiB of numbers of which 64 MiB stay resident.
//!
//! `cargo run --release --example region`. Needs Linux with userfaultfd; `refault doctor` says whether that is there.

use std::time::Instant;

use refault::region::Region;

const BYTES: usize = 256 << 20;
const BUDGET: u64 = 64 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut region = Region::anonymous(BYTES, BUDGET)?;
    let start = Instant::now();
    for (index, word) in region.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(index as u64 / 7).to_le_bytes());
    }
    let words = region.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let sum: u64 = words.sum();
    println!("sum {sum} after {:.2} s", start.elapsed().as_secs_f64());
    let used = region.pager().budget().used_bytes();
    println!("{} of {} MiB resident, the budget is {} MiB", used >> 20, BYTES >> 20, BUDGET >> 20);
    assert!(used <= BUDGET);
    Ok(())
}
