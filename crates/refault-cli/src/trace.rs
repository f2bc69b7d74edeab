//! `refault trace`: what a trace holds, other formats, generated traces.

mod convert;
mod info;

pub use convert::unwritten;
pub use info::{bucket_range, heat_level};

use clap::{Args, Subcommand};

use refault_console::Failure;

#[derive(Args, Debug)]
#[command(after_help = "\
Read: rft, CSV with named columns, and u64: little-endian 64-bit entries, page number in bits 0-55, write in bit 56, kind
in bits 57-58. Of objects: libCacheSim's oracleGeneral and LCS, webcachesim's tr, Twitter, IBM object store, redis-cli
monitor. Of blocks: MSR, Alibaba, Tencent, SPC, SYSTOR, vscsi, blkparse, fio's iolog. Of memory: perf, damo, Valgrind's
lackey, Dinero, Pin. Keys or page numbers, one per line. Each may be packed by zstd, gzip, xz or lz4. Block traces are split into pages of 4 KiB.

Examples:
  refault trace info app.u64.zst
  refault trace convert requests.csv app.rft
  refault trace generate zipf:theta=1.2,pages=256K,accesses=10M zipf.u64.zst")]
/// Inspect, convert and generate traces
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand, Debug)]
enum TraceCommand {
    Info(info::InfoArgs),
    Convert(convert::ConvertArgs),
    Generate(convert::GenerateArgs),
}

/// Runs the command.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    match &args.command {
        TraceCommand::Info(args) => info::run(args),
        TraceCommand::Convert(args) => convert::run(args),
        TraceCommand::Generate(args) => convert::run_generate(args),
    }
}
