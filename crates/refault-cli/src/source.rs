//! Where accesses come from: trace files and generated workloads, as the command line names them.

use std::path::{Path, PathBuf};

use clap::Args;
use refault_console::Failure;
use refault_trace::{CsvColumns, Format, Kind, Options, Source, WorkloadSpec};

/// The workloads of a comparison that names none: small, each with one thing to show.
pub const BUILT_IN: [&str; 6] = [
    "zipf:theta=1,pages=16384,accesses=400000,kind=mapped",
    "zipf:theta=1.2,pages=16384,accesses=400000,kind=fd",
    "hotcold:pages=16384,accesses=400000,hot=2048,hot_share=0.875,phases=4,writes=0.25",
    "scanhot:pages=16384,accesses=400000,hot=2458,kind=fd",
    "twopass:pages=32768,accesses=400000,hot=4096,kind=fd",
    "mixed:apages=16384,fpages=8192,accesses=400000,writes=0.25",
];

/// A kind of access as named by `--kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KindName {
    /// Anonymous memory.
    Anon,
    /// A file by read() and write().
    Fd,
    /// A file through a mapping.
    Mapped,
}

impl From<KindName> for Kind {
    fn from(name: KindName) -> Kind {
        match name {
            KindName::Anon => Kind::Anon,
            KindName::Fd => Kind::Fd,
            KindName::Mapped => Kind::Mapped,
        }
    }
}

/// What a trace file does not say about itself.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "How traces are read")]
pub struct ReadArgs {
    /// What the pages of a trace that does not say are taken for [default: anonymous memory for memory traces, file pages
    /// by read() for block traces]
    #[arg(long, value_name = "KIND")]
    pub kind: Option<KindName>,
    /// The format of the traces [default: by name and first bytes]
    #[arg(long, value_name = "FORMAT", value_parser = trace_format)]
    trace_format: Option<Format>,
    /// Bytes of the unit that .lis and oracleGeneral count in; 512 folds disk blocks into pages [default: a page each]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=4096))]
    block_bytes: Option<u32>,
    /// Leave out the instruction fetches of a lackey trace
    #[arg(long)]
    skip_instructions: bool,
    /// Take successive lackey accesses to one page as one
    #[arg(long)]
    collapse: bool,
    /// Names of CSV columns: page=, address=, offset=, size=, operation=, kind=, time= [default: the usual ones]
    #[arg(long, value_name = "COLUMN=NAME,…", value_delimiter = ',', value_parser = csv_column)]
    columns: Vec<(CsvField, String)>,
}

/// A column of a CSV trace that can be named.
#[derive(Clone, Copy, Debug)]
enum CsvField {
    Page,
    Address,
    Offset,
    Size,
    Operation,
    Kind,
    Time,
}

/// Which accesses a command runs over.
#[derive(Args, Clone, Debug, Default)]
pub struct SourceArgs {
    /// A trace file; repeat for more (.u64, .rft, oracleGeneral, CSV, lackey, text, ARC .lis, MSR; .zst and .gz too)
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// A generated workload such as zipf:theta=1.2,pages=262144; repeat for more; see 'refault workloads'
    #[arg(long = "workload", value_name = "SPEC")]
    workloads: Vec<String>,
    /// Seed of generated workloads that do not say theirs, and of samples
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    read: ReadArgs,
}

impl ReadArgs {
    /// The same as the trace library wants it.
    pub fn options(&self) -> Options {
        let mut columns = CsvColumns::default();
        for (field, name) in &self.columns {
            let column = match field {
                CsvField::Page => &mut columns.page,
                CsvField::Address => &mut columns.address,
                CsvField::Offset => &mut columns.offset,
                CsvField::Size => &mut columns.size,
                CsvField::Operation => &mut columns.operation,
                CsvField::Kind => &mut columns.kind,
                CsvField::Time => &mut columns.time,
            };
            *column = Some(name.clone());
        }
        Options {
            format: self.trace_format,
            kind: self.kind.map(Kind::from),
            columns,
            block_bytes: self.block_bytes,
            skip_instructions: self.skip_instructions,
            collapse: self.collapse,
            ..Options::default()
        }
    }
}

impl SourceArgs {
    /// Whether neither file nor workload is named.
    pub fn is_empty(&self) -> bool {
        self.traces.is_empty() && self.workloads.is_empty()
    }

    /// Fails if a trace is a pipe or the like, for commands that read a trace more than once.
    pub fn require_files(&self) -> Result<(), Failure> {
        self.traces.iter().try_for_each(|path| require_file(path))
    }

    /// The seed asked for.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// The files and workloads, files first.
    pub fn sources(&self) -> Result<Vec<Source>, Failure> {
        let options = self.read.options();
        let mut sources: Vec<Source> = self.traces.iter().map(|path| Source::file(path, options.clone())).collect();
        for text in &self.workloads {
            sources.push(Source::workload(workload(text, self.read.kind, self.seed)?));
        }
        Ok(sources)
    }

    /// The built-in set, with this command line's seed.
    pub fn built_in(&self) -> Result<Vec<Source>, Failure> {
        BUILT_IN.iter().map(|text| Ok(Source::workload(workload(text, None, self.seed)?))).collect()
    }
}

/// Fails if a path is neither a file nor a directory, which reading will complain about: a pipe cannot be read again.
pub fn require_file(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
            let remedy = "store it first: refault trace convert --trace-format FORMAT /dev/stdin trace.rft";
            Err(Failure::usage("a trace is read more than once, and this is no file", path.display(), remedy))
        }
        _ => Ok(()),
    }
}

fn trace_format(text: &str) -> Result<Format, String> {
    Format::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

fn csv_column(text: &str) -> Result<(CsvField, String), String> {
    let (field, name) = text.split_once('=').ok_or("write COLUMN=NAME, such as page=lba")?;
    let field = match field.trim() {
        "page" => CsvField::Page,
        "address" => CsvField::Address,
        "offset" => CsvField::Offset,
        "size" => CsvField::Size,
        "operation" => CsvField::Operation,
        "kind" => CsvField::Kind,
        "time" => CsvField::Time,
        _ => return Err("columns are page, address, offset, size, operation, kind and time".to_string()),
    };
    Ok((field, name.to_string()))
}

/// A workload with the command line's kind and seed, where the specification does not say its own.
pub fn workload(text: &str, kind: Option<KindName>, seed: Option<u64>) -> Result<WorkloadSpec, Failure> {
    let mut spec: WorkloadSpec = text.parse()?;
    let says = |keys: &[&str]| {
        let parameters = text.split_once(':').map_or("", |(_, parameters)| parameters);
        parameters.split(',').any(|item| item.split_once('=').is_some_and(|(key, _)| keys.contains(&key.trim())))
    };
    if let Some(kind) = kind
        && !says(&["kind", "type"])
    {
        spec.kind = kind.into();
    }
    if let Some(seed) = seed
        && !says(&["seed"])
    {
        spec.seed = seed;
    }
    Ok(spec)
}
