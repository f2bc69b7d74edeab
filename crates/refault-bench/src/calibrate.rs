//! `refault-bench calibrate`: what the simulated machine's operations cost on this one.
//!
//! User-space stand-ins for the kernel's work, each named for the cost it calibrates: a read of a cached page is a
//! `read()` of one; a fault is the first touch of fresh memory; moving pages between lists, following a reverse map and
//! walking a table in order are the same memory accesses on records of the same size. The medians print as a `[costs]`
//! table that a scenario can take as it is, beside the defaults. Compression times are those of the LZ4 that the pager
//! uses, on pages like a heap's.

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use clap::Args;
use refault_sim::machine::costs::Costs;

use refault_console::Failure;
use refault_console::with_output;

use crate::random::Random;

/// Bytes of a page.
const PAGE: usize = 4096;
/// Records and table entries that are walked: more than any cache holds.
const RECORDS: usize = 1 << 22;
/// Times each measurement is repeated; the median counts.
const REPEATS: usize = 9;
/// Operations of one measurement.
const OPERATIONS: usize = 20_000;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault-bench calibrate                  a [costs] table for scenario files, with the defaults beside it
  refault-bench calibrate > costs.toml")]
/// Measure what the simulated machine's operations cost on this machine
pub struct CalibrateArgs {}

/// Nanoseconds per operation, median of the repeats.
fn median(mut run: impl FnMut() -> usize) -> u64 {
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let start = Instant::now();
            let operations = run();
            start.elapsed().as_nanos() as f64 / operations.max(1) as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[REPEATS / 2].round() as u64).max(1)
}

/// Runs the command.
pub fn run(_args: &CalibrateArgs) -> Result<(), Failure> {
    let defaults = Costs::default();
    let mut rows: Vec<(&str, u64, u64)> = vec![
        ("read_hit", read_hit()?, defaults.read_hit),
        ("fault", fault(), defaults.fault + defaults.zero_page),
        ("table_entry", table_entry(), defaults.table_entry),
    ];
    let order = shuffled(RECORDS);
    rows.push(("reverse_map", chase(&order), defaults.reverse_map));
    rows.push(("scan_page", records(&order, 1), defaults.scan_page));
    rows.push(("list_move", records(&order, 3), defaults.list_move));
    let (compress, decompress) = compression();
    with_output(None, |out| {
        writeln!(out, "# Medians of {REPEATS} on this machine; in comments the defaults that are shipped.\n[costs]")?;
        for (name, measured, default) in rows {
            writeln!(out, "{name} = {measured}  # {default}")?;
        }
        writeln!(out, "\n# Devices whose time is the CPU's: a copy of a page, and LZ4 on a page like a heap's.")?;
        writeln!(out, "# ramdisk read_page = {} ns", copy())?;
        writeln!(out, "# zram-lz4 write_page = {compress} ns, read_page = {decompress} ns")
    })
}

fn read_hit() -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::failed("cannot measure reads", "temporary directory", error);
    let path = std::env::temp_dir().join(format!("refault-calibrate-{}", std::process::id()));
    let pages = 256;
    std::fs::write(&path, vec![1u8; pages * PAGE]).map_err(failed)?;
    let opened = std::fs::File::open(&path);
    std::fs::remove_file(&path).map_err(failed)?;
    let file = opened.map_err(failed)?;
    let mut buffer = vec![0u8; PAGE];
    Ok(median(|| {
        for i in 0..OPERATIONS {
            // A failed read would only make the figure absurd, and the file is there.
            let _ = file.read_at(&mut buffer, (i * 7 % pages * PAGE) as u64);
        }
        black_box(&buffer);
        OPERATIONS
    }))
}

fn fault() -> u64 {
    let pages = 4096;
    median(|| {
        let mut fresh = vec![0u8; pages * PAGE];
        for page in 0..pages {
            fresh[page * PAGE] = 1;
        }
        black_box(&fresh);
        pages
    })
}

fn table_entry() -> u64 {
    let table = vec![1u64; RECORDS];
    median(|| {
        black_box(table.iter().filter(|entry| black_box(**entry) & 32 != 0).count());
        table.len()
    })
}

/// A random order of `0..n`, the same every time.
fn shuffled(n: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    let mut random = Random::new(1);
    for i in (1..n).rev() {
        order.swap(i, random.below(i + 1));
    }
    order
}

/// Two dependent look-ups: from a page to its object, from there to the entry.
fn chase(order: &[u32]) -> u64 {
    let mut at = 0u32;
    median(|| {
        for _ in 0..OPERATIONS {
            at = order[order[at as usize] as usize];
        }
        black_box(at);
        OPERATIONS
    })
}

/// Touches `touched` page records of 64 bytes per operation, in random order, as lists hold them.
fn records(order: &[u32], touched: usize) -> u64 {
    let mut records = vec![[0u64; 8]; RECORDS / 4];
    let mut at = 0;
    median(|| {
        for _ in 0..OPERATIONS {
            for _ in 0..touched {
                at = (at + 1) % order.len();
                records[order[at] as usize % (RECORDS / 4)][1] += 1;
            }
        }
        black_box(&records);
        OPERATIONS
    })
}

fn copy() -> u64 {
    let source = vec![1u8; RECORDS * 4];
    let mut target = vec![0u8; PAGE];
    let pages = source.len() / PAGE;
    median(|| {
        for i in 0..OPERATIONS {
            let page = i * 37 % pages * PAGE;
            target.copy_from_slice(&source[page..page + PAGE]);
            black_box(&target);
        }
        OPERATIONS
    })
}

/// Compression and decompression of a page of small integers, pointers and text, as heaps hold.
fn compression() -> (u64, u64) {
    let mut page = Vec::with_capacity(PAGE);
    let mut value = 0x7F00_1234_5000u64;
    while page.len() < PAGE {
        value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        page.extend_from_slice(&(0x7F00_1234_0000 | (value >> 48)).to_le_bytes());
        page.extend_from_slice(&(value >> 56).to_le_bytes());
        page.extend_from_slice(b"entry   ");
    }
    page.truncate(PAGE);
    let mut packed = vec![0u8; lz4_flex::block::get_maximum_output_size(PAGE)];
    let length = lz4_flex::block::compress_into(&page, &mut packed).unwrap_or(0);
    let mut output = vec![0u8; PAGE];
    let pages = OPERATIONS / 10;
    let mut scratch = packed.clone();
    let compress = median(|| {
        for _ in 0..pages {
            black_box(lz4_flex::block::compress_into(black_box(&page), &mut scratch).unwrap_or(0));
        }
        pages
    });
    let decompress = median(|| {
        for _ in 0..pages {
            black_box(lz4_flex::block::decompress_into(black_box(&packed[..length]), &mut output).unwrap_or(0));
        }
        pages
    });
    (compress, decompress)
}
