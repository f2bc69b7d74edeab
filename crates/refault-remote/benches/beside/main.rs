//! Objects over HTTP, read through this crate, by `object_store` alone and by fsspec: time, requests and bytes of the same
//! work. `scripts/dev/beside-remote` runs it with an environment that has fsspec:
//!
//! ```text
//! cargo bench -p refault-remote --bench beside -- --runs 1            # without fsspec
//! scripts/dev/beside-remote                                               # with it
//! ```

#[path = "../../tests/common/mod.rs"]
mod common;
mod rounds;
mod sides;
mod table;
mod work;

use std::process::ExitCode;
use std::time::Duration;

use refault_remote::RemoteOptions;
use rounds::Settings;
use work::Size;

const USAGE: &str =
    "beside [--object-mib 256] [--reads 1000] [--scan-mib 32] [--memory-mib 16] [--latency-ms 20] [--mb-per-second 100]
       [--request-kib 8192] [--runs 3] [--only random|three|scan] [--python PATH, one with fsspec and aiohttp] [--json]";

fn settings(mut arguments: impl Iterator<Item = String>) -> Option<(Settings, bool)> {
    let size = Size { object: 256 << 20, reads: 1000, scanned: 32 << 20 };
    let latency = Duration::from_millis(20);
    let mut settings = Settings {
        size,
        memory: 16 << 20,
        latency,
        pace: 100_000_000,
        request: RemoteOptions::default().request,
        runs: 3,
        only: None,
        python: None,
    };
    let mut json = false;
    while let Some(name) = arguments.next() {
        let mut number = |most: u64| arguments.next()?.parse().ok().filter(|number| (1..=most).contains(number));
        const MAX_MIB: u64 = 16 << 10;
        match name.as_str() {
            "--object-mib" => settings.size.object = number(MAX_MIB)? << 20,
            "--reads" => settings.size.reads = number(1 << 30)?,
            "--scan-mib" => settings.size.scanned = number(MAX_MIB)? << 20,
            "--memory-mib" => settings.memory = number(MAX_MIB)? << 20,
            "--latency-ms" => settings.latency = Duration::from_millis(number(60_000)?),
            "--mb-per-second" => settings.pace = number(1_000_000)? * 1_000_000,
            "--request-kib" => settings.request = number(1 << 20)? << 10,
            "--runs" => settings.runs = number(1000)? as u32,
            "--python" => settings.python = Some(arguments.next()?.into()),
            "--only" => settings.only = Some(arguments.next()?),
            "--json" => json = true,
            // What cargo says to benchmarks.
            "--bench" => {}
            _ => return None,
        }
    }
    (settings.size.scanned <= settings.size.object).then_some((settings, json))
}

fn main() -> ExitCode {
    let Some((settings, json)) = settings(std::env::args().skip(1)) else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    match rounds::run(&settings, |text| eprintln!("{text}")) {
        Ok((text, rows)) if json => println!("{}", table::json(&text, &rows)),
        Ok((text, rows)) => println!("{text}\n{}", table::markdown(&rows)),
        Err(error) => {
            eprintln!("beside: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
