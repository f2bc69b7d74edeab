//! `refault trace convert` and `refault trace generate`: the formats that can be written are `.u64` and `.rft`.

use std::path::{Path, PathBuf};

use clap::Args;
use refault_trace::Entry;
use refault_trace::rft::RftWriter;
use refault_trace::write::{Compression, U64Writer};

use crate::source::{KindName, ReadArgs, workload};
use refault_console::Failure;
use refault_console::Progress;
use refault_console::text::grouped;
use refault_trace::Source;

#[derive(Args, Debug)]
#[command(after_help = "\
The output's name says its format: .rft (compact, seekable), .u64, .u64.zst or .u64.gz.

Examples:
  refault trace convert requests.csv app.rft
  refault trace convert --collapse lackey.log.gz app.u64.zst
  refault trace convert --kind mapped old.u64 new.u64")]
/// Write a trace in another format
pub struct ConvertArgs {
    /// The trace to read
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT")]
    output: PathBuf,
    #[command(flatten)]
    read: ReadArgs,
}

#[derive(Args, Debug)]
#[command(after_help = "\
The same specification gives the same accesses, on every machine. The output's name says its format: .rft, .u64,
.u64.zst or .u64.gz.

Examples:
  refault trace generate zipf:theta=1.2,pages=256K,accesses=10M,kind=fd zipf.u64
  refault trace generate scanhot:pages=64K,hot=8K --seed 7 scan.rft")]
/// Write a generated workload as a trace
pub struct GenerateArgs {
    /// The workload; see 'refault workloads'
    #[arg(value_name = "SPEC")]
    workload: String,
    /// The file to write
    #[arg(value_name = "OUT")]
    output: PathBuf,
    /// The kind of accesses, if the workload does not say
    #[arg(long, value_name = "KIND")]
    kind: Option<KindName>,
    /// The seed, if the workload does not say
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Runs `refault trace convert`.
pub fn run(args: &ConvertArgs) -> Result<(), Failure> {
    if same_file(&args.input, &args.output) {
        let remedy = "choose another name for the output";
        return Err(Failure::usage("input and output are the same file", args.output.display(), remedy));
    }
    copy(&Source::file(&args.input, args.read.options()), &args.output)
}

/// Runs `refault trace generate`.
pub fn run_generate(args: &GenerateArgs) -> Result<(), Failure> {
    copy(&Source::workload(workload(&args.workload, args.kind, args.seed)?), &args.output)
}

enum Writer {
    U64(U64Writer),
    Rft(Box<RftWriter>),
}

impl Writer {
    fn create(path: &Path, origin: &str) -> Result<Writer, Failure> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let compression = Compression::of_path(path);
        let stem = name.trim_end_matches(".zst").trim_end_matches(".gz");
        if name.ends_with(".rft") {
            let mut writer = RftWriter::create(path).map_err(|error| written(&error))?;
            writer.add_metadata("source", origin);
            writer.add_metadata("writer", concat!("refault ", env!("CARGO_PKG_VERSION")));
            Ok(Writer::Rft(Box::new(writer)))
        } else if stem.ends_with(".u64") {
            Ok(Writer::U64(U64Writer::create(path, compression).map_err(|error| written(&error))?))
        } else {
            let remedy = "name it .rft, .u64, .u64.zst or .u64.gz";
            Err(Failure::usage("cannot tell the output's format", path.display(), remedy))
        }
    }

    fn write(&mut self, entries: &[Entry]) -> Result<(), Failure> {
        match self {
            Writer::U64(writer) => writer.write(entries),
            Writer::Rft(writer) => writer.write(entries),
        }
        .map_err(|error| written(&error))
    }

    fn finish(self) -> Result<u64, Failure> {
        match self {
            Writer::U64(writer) => writer.finish(),
            Writer::Rft(writer) => writer.finish(),
        }
        .map_err(|error| written(&error))
    }
}

fn written(error: &refault_trace::TraceError) -> Failure {
    Failure::failed("cannot write", error, "choose another place or make room")
}

fn copy(source: &Source, output: &Path) -> Result<(), Failure> {
    let mut reader = source.open()?;
    let mut writer = Writer::create(output, &source.name())?;
    let result = copy_entries(reader.as_mut(), &mut writer).and_then(|()| writer.finish());
    match result {
        Ok(accesses) => {
            eprintln!("refault: {} accesses written to {}", grouped(accesses), output.display());
            Ok(())
        }
        Err(failure) => {
            // Half a trace would be taken for a whole one.
            let _ = std::fs::remove_file(output);
            Err(failure)
        }
    }
}

fn copy_entries(reader: &mut dyn refault_trace::TraceReader, writer: &mut Writer) -> Result<(), Failure> {
    let progress = Progress::new("writing");
    progress.add(reader.total().unwrap_or(0));
    let mut buffer = Vec::new();
    loop {
        let block = reader.next_block(&mut buffer)?;
        if block.is_empty() {
            return Ok(());
        }
        writer.write(block)?;
        progress.advance(block.len() as u64);
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
