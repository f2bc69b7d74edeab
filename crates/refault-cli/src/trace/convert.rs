//! `refault trace convert` and `refault trace generate`.

use std::path::{Path, PathBuf};

use clap::Args;
use refault_trace::write::{Block, OutputFormat, TraceWriter};

use crate::source::{KindName, ReadArgs, say_remarks, workload};
use refault_console::text::grouped;
use refault_console::{Contents, Failure, ForceArgs, Outputs, Progress, say};
use refault_trace::{ObjectsAs, Reading, Source, TraceError, UNKNOWN_BYTES};

#[derive(Args, Debug)]
#[command(after_help = "\
The output's name says its format: .rft (compact, seekable), .u64, .csv or .oracleGeneral, the last three also with .zst
or .gz. '-' reads standard input. Only .csv and .oracleGeneral keep the sizes of accesses.

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
    #[command(flatten)]
    force: ForceArgs,
}

#[derive(Args, Debug)]
#[command(after_help = "\
The same specification gives the same accesses, on every machine. The output's name says its format: .rft, .u64, .csv
or .oracleGeneral, the last three also with .zst or .gz.

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
    #[command(flatten)]
    force: ForceArgs,
}

/// Runs `refault trace convert`.
pub fn run(args: &ConvertArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::new(args.force);
    outputs.reads(&args.input);
    let source = args.read.file(&args.input, false, ObjectsAs::OnePageEach)?;
    if std::fs::metadata(&args.input).is_ok_and(|metadata| metadata.is_file()) {
        args.read.check_effect(std::slice::from_ref(&source))?;
    }
    copy(&source, &args.output, &mut outputs, args.read.is_strict())
}

/// Runs `refault trace generate`.
pub fn run_generate(args: &GenerateArgs) -> Result<(), Failure> {
    let source = Source::workload(workload(&args.workload, args.kind, args.seed)?);
    copy(&source, &args.output, &mut Outputs::new(args.force), false)
}

fn copy(source: &Source, path: &Path, outputs: &mut Outputs, strict: bool) -> Result<(), Failure> {
    let format = OutputFormat::of_path(path).ok_or_else(|| {
        let remedy = "name it .rft, .u64, .csv or .oracleGeneral, the last three also with .zst or .gz";
        Failure::usage("cannot tell the output's format", path.display(), remedy)
    })?;
    let mut reader = source.open()?;
    let output = outputs.claim("the output", Some(path), Contents::Trace(format))?;
    let output = output.expect("invariant: a path was given");
    let file = output.file().try_clone().map_err(|error| Failure::write(path.display(), &error))?;
    let mut writer = TraceWriter::new(file, path, format).map_err(|error| unwritten(&error))?;
    writer.add_metadata("source", &source.name());
    writer.add_metadata("writer", concat!("refault ", env!("CARGO_PKG_VERSION")));
    let progress = Progress::new("writing");
    progress.add(reader.total().unwrap_or(0));
    let (mut entries, mut lost) = (Vec::new(), Lost::default());
    while reader.read_block(&mut entries)? > 0 {
        lost.count(format, Block::of(&*reader, &entries));
        writer.write(Block::of(&*reader, &entries)).map_err(|error| unwritten(&error))?;
        progress.advance(entries.len() as u64);
    }
    say_remarks(&source.name(), &Reading::of(&*reader));
    if let Some(lost) = lost.described() {
        let lost = format!("{lost}: .csv keeps all");
        if strict {
            return Err(Failure::usage("refused by --strict", path.display(), lost));
        }
        say(format_args!("{}: {lost}", path.display()));
    }
    let accesses = writer.finish().map_err(|error| unwritten(&error))?;
    drop(progress);
    output.commit()?;
    say(format_args!("{} accesses written to {}", grouped(accesses), path.display()));
    Ok(())
}

/// What the format of a file has no place for, in accesses.
#[derive(Default)]
struct Lost {
    sizes: u64,
    times: u64,
    writes: u64,
    /// Sizes that nothing says, where a number must stand.
    unknown_sizes: u64,
}

impl Lost {
    fn count(&mut self, format: OutputFormat, block: Block) {
        let all = block.entries.len() as u64;
        let [no_sizes, no_times, no_writes] = match format {
            OutputFormat::Csv => [false; 3],
            OutputFormat::Rft => [true, false, false],
            OutputFormat::U64 => [true, true, false],
            OutputFormat::OracleGeneral => [false, false, true],
        };
        let sizes = block.bytes.unwrap_or_default();
        let unknown = sizes.iter().filter(|bytes| **bytes == UNKNOWN_BYTES).count() as u64;
        self.sizes += if no_sizes { sizes.len() as u64 - unknown } else { 0 };
        self.unknown_sizes += if format == OutputFormat::OracleGeneral { unknown } else { 0 };
        self.times += if no_times && block.time.is_some() { all } else { 0 };
        let writes = block.entries.iter().filter(|entry| entry.write()).count() as u64;
        self.writes += if no_writes { writes } else { 0 };
    }

    /// In words; `None` if nothing is lost.
    fn described(&self) -> Option<String> {
        let parts = [
            ("sizes", self.sizes, ""),
            ("times", self.times, ""),
            ("writes", self.writes, ""),
            ("unknown sizes", self.unknown_sizes, " (written as 4096 bytes)"),
        ];
        let lost: Vec<String> = parts
            .iter()
            .filter(|(_, count, _)| *count > 0)
            .map(|(what, count, instead)| format!("{what} of {} accesses{instead}", grouped(*count)))
            .collect();
        (!lost.is_empty()).then(|| format!("its format has no place for {}", lost.join(", ")))
    }
}

/// A trace could not be written.
pub fn unwritten(error: &TraceError) -> Failure {
    let remedy = match error {
        TraceError::Open { .. } | TraceError::Io { .. } => "choose another place or make room",
        _ => "write it in another format",
    };
    Failure::failed("cannot write", error, remedy)
}
