//! Where accesses come from: trace files and generated workloads, as the command line names them.

pub mod kernels;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use refault_console::text::grouped;
use refault_console::{Failure, Outputs, ResultArgs, say};
use refault_lab::size::pages_text;
use refault_trace::{CsvColumns, Format, Kind, ObjectsAs, Options, Part, Reading, Source, WorkloadSpec};

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
pub struct ReadArgs {
    /// What the pages of a trace that does not say are taken for [default: anonymous memory for memory traces, file
    /// pages by read() for block and object traces]
    #[arg(long, value_name = "KIND", help_heading = READING)]
    pub kind: Option<KindName>,
    /// The format of the traces [default: by name and first bytes]
    #[arg(long, value_name = "FORMAT", value_parser = trace_format, help_heading = READING)]
    trace_format: Option<Format>,
    /// CSV columns by name or number: page=, address=, offset=, block=, object=, device=, size=, key_size=, count=,
    /// operation=, kind=, ttl=, time=, unread=, separator=. Units of time: time_s=, time_ms=, time_us=, time_ns=,
    /// filetime=. An empty size= reads none. Two columns name something together as in device=1+2 [default: the usual names]
    #[arg(long, value_name = "COLUMN=NAME,…", value_delimiter = ',', value_parser = csv_column, help_heading = READING)]
    columns: Vec<(String, String)>,
    /// An object has as many pages of its own as its size needs; one without a size is an error [default where memory is
    /// sized: if the trace says sizes; of trace info and convert: one page each]
    #[arg(long, help_heading = READING, conflicts_with = "objects_one_page_each")]
    objects_have_sizes: bool,
    /// An object is one page, whatever its size; memory is then a number of objects
    #[arg(long, help_heading = READING)]
    objects_one_page_each: bool,
    /// Leave out records of objects of size 0, as libCacheSim does [default: they are accesses]
    #[arg(long, help_heading = READING)]
    skip_size_zero: bool,
    /// Take the order of the file where its times go back [default: put in order by time, or refuse]
    #[arg(long, help_heading = READING)]
    file_order: bool,
    /// Refuse a trace of which anything was left out, reordered or assumed [default: say so, a line each]
    #[arg(long, help_heading = READING)]
    strict: bool,
    /// Bytes of the unit that block numbers count in; 512 folds disk blocks into pages [default: a page each]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = READING)]
    block_bytes: Option<u32>,
    /// Leave out the instruction fetches of a lackey trace
    #[arg(long, help_heading = READING)]
    skip_instructions: bool,
    /// Take successive accesses to one page as one
    #[arg(long, help_heading = READING)]
    collapse: bool,
    /// Leave out the first N accesses
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = PART)]
    skip: u64,
    /// Take at most N accesses
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = PART)]
    limit: Option<u64>,
    /// Take accesses from this time after the first one on, such as 90s, 5m or 1h
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true, help_heading = PART)]
    from: Option<u64>,
    /// Take accesses until this time after the first one
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true, help_heading = PART)]
    to: Option<u64>,
}

const READING: &str = "How traces are read";
const PART: &str = "Part of a trace";

/// Which accesses a command runs over.
#[derive(Args, Clone, Debug, Default)]
pub struct SourceArgs {
    /// Trace files; '-' is standard input; formats as in 'refault trace --help', packed by zstd, gzip, xz or lz4 too
    #[arg(value_name = "TRACE")]
    positional: Vec<PathBuf>,
    /// The same as an option; repeat for more
    #[arg(long = "trace", value_name = "FILE")]
    traces: Vec<PathBuf>,
    /// A generated workload such as zipf:theta=1.2,pages=262144; repeat for more; see 'refault workloads'
    #[arg(long = "workload", value_name = "SPEC")]
    workloads: Vec<String>,
    /// Seed of generated workloads that do not say theirs, and of samples
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    seed: Option<u64>,
    #[command(flatten)]
    pub read: ReadArgs,
    /// Objects are one page each to the reader, whatever the trace says: the command itself weighs them.
    #[arg(skip)]
    weighs_objects: bool,
}

impl ReadArgs {
    /// Whether what would be remarked on is refused.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Checks what was remarked on after a pass, which the reader itself did not know.
    ///
    /// # Errors
    /// The first remark, where remarks are refused.
    pub fn check_remarks(&self, trace: &str, reading: &Reading) -> Result<(), Failure> {
        match reading.remarks.first().filter(|_| self.strict) {
            Some(remark) => {
                Err(Failure::usage("refused by --strict", format_args!("{trace}: {remark}"), "leave --strict out"))
            }
            None => Ok(()),
        }
    }

    /// The same as the trace library wants it; `unsaid` is what objects are if no option says it.
    pub fn options(&self, unsaid: ObjectsAs) -> Options {
        let mut columns = CsvColumns::default();
        for (field, name) in &self.columns {
            columns.set(field, name).expect("invariant: the parser of the option has tried it");
        }
        Options {
            format: self.trace_format,
            kind: self.kind.map(Kind::from),
            columns,
            block_bytes: self.block_bytes,
            objects: match (self.objects_have_sizes, self.objects_one_page_each) {
                (true, _) => ObjectsAs::Sized,
                (false, true) => ObjectsAs::OnePageEach,
                (false, false) => unsaid,
            },
            skip_size_zero: self.skip_size_zero,
            file_order: self.file_order,
            strict: self.strict,
            skip_instructions: self.skip_instructions,
            collapse: self.collapse,
            ..Options::default()
        }
    }

    /// Which accesses to take.
    pub fn part(&self) -> Part {
        Part { skip: self.skip, limit: self.limit, from_ns: self.from, to_ns: self.to }
    }

    /// A file, read as asked for; `-` is standard input, which is stored first if it is to be read `again`.
    pub fn file(&self, path: &Path, again: bool, unsaid: ObjectsAs) -> Result<Source, Failure> {
        let mut options = self.options(unsaid);
        if path.as_os_str() != "-" {
            return Ok(Source::file(path, options).part(self.part()));
        }
        options.name = Some("stdin".to_owned());
        options.shown_as = Some(PathBuf::from("standard input"));
        let path = if again { stored_input()? } else { PathBuf::from("/dev/stdin") };
        Ok(Source::file(path, options).part(self.part()))
    }

    /// Fails if an option has no effect on any of the sources.
    pub fn check_effect(&self, sources: &[Source]) -> Result<(), Failure> {
        let mut formats = Vec::new();
        let objects = [Format::OracleGeneral, Format::Lcs, Format::Csv, Format::Twitter, Format::Tr, Format::Ibm];
        let all_objects = [&objects[..], &[Format::Keys, Format::Redis]].concat();
        let blocks = [Format::OracleGeneral, Format::Csv, Format::Lis, Format::Spc, Format::Tencent];
        let checks: [(&str, bool, &[Format]); 6] = [
            ("--skip-instructions", self.skip_instructions, &[Format::Lackey, Format::Dinero]),
            ("--objects-one-page-each", self.objects_one_page_each, &all_objects),
            ("--skip-size-zero", self.skip_size_zero, &objects),
            ("--columns", !self.columns.is_empty(), &[Format::Csv]),
            ("--objects-have-sizes", self.objects_have_sizes, &objects),
            ("--block-bytes", self.block_bytes.is_some(), &blocks),
        ];
        let given = [
            ("--trace-format", self.trace_format.is_some()),
            ("--collapse", self.collapse),
            ("--file-order", self.file_order),
        ];
        let none_given = checks.iter().all(|(_, given, _)| !given) && given.iter().all(|(_, given)| !given);
        // Looking at a pipe would take from it.
        if none_given || sources.iter().any(is_unknown_pipe) {
            return Ok(());
        }
        for source in sources {
            formats.extend(source.format()?.map(|(format, _)| format));
        }
        let idle = checks.iter().find(|(_, given, of)| *given && !formats.iter().any(|format| of.contains(format)));
        let idle = idle.map(|(option, ..)| (*option, "no trace here is of a format that it is for"));
        let unread = given.iter().find(|(_, given)| *given && formats.is_empty());
        match idle.or(unread.map(|(option, _)| (*option, "no trace file is read"))) {
            Some((option, why)) => {
                Err(Failure::usage("an option without effect", option, format!("{why}; leave it out")))
            }
            None => Ok(()),
        }
    }
}

/// Says on standard error what was left out or assumed of a trace, a line each.
pub fn say_remarks(trace: &str, reading: &Reading) {
    for remark in &reading.remarks {
        say(format_args!("{trace}: {remark}"));
    }
}

/// An amount of memory for people: bytes, or a number of objects where objects of whatever size are a page each.
pub fn memory_text(reading: &Reading, pages: u64) -> String {
    match (reading.counts_objects(), pages) {
        (false, _) => pages_text(pages),
        (true, 1) => "1 object".to_owned(),
        (true, objects) => format!("{} objects", grouped(objects)),
    }
}

/// Whether a source is no regular file and its format was not asked for.
fn is_unknown_pipe(source: &Source) -> bool {
    match source {
        Source::File { path, options } => {
            options.format.is_none() && std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
        }
        Source::Part { whole, .. } => is_unknown_pipe(whole),
        Source::Workload(_) | Source::Custom(_) => false,
    }
}

/// Standard input, stored in a file without a name that can be read again and again.
fn stored_input() -> Result<PathBuf, Failure> {
    use std::os::fd::IntoRawFd;
    let stored = tempfile::tempfile().and_then(|mut file| {
        std::io::copy(&mut std::io::stdin().lock(), &mut file)?;
        Ok(file)
    });
    let file = stored
        .map_err(|error| Failure::failed("cannot store standard input", std::env::temp_dir().display(), error))?;
    // Open until the program ends, because a source names its file by path.
    Ok(PathBuf::from(format!("/proc/self/fd/{}", file.into_raw_fd())))
}

impl SourceArgs {
    /// Whether neither file nor workload is named.
    pub fn is_empty(&self) -> bool {
        self.files().next().is_none() && self.workloads.is_empty()
    }

    fn files(&self) -> impl Iterator<Item = &PathBuf> {
        self.positional.iter().chain(&self.traces)
    }

    /// Fails if a trace is a pipe or the like, for commands that read a trace more than once.
    pub fn require_files(&self) -> Result<(), Failure> {
        self.files().try_for_each(|path| require_file(path))
    }

    /// The same sources for a command that weighs objects itself.
    pub fn weighing_objects(&self) -> SourceArgs {
        SourceArgs { weighs_objects: true, ..self.clone() }
    }

    /// How its traces are read.
    pub fn read(&self) -> &ReadArgs {
        &self.read
    }

    /// The seed asked for.
    pub fn seed(&self) -> Option<u64> {
        self.seed
    }

    /// The files and workloads, files first, each under a name of its own. Outputs will be kept apart from the files.
    pub fn sources(&self, outputs: &mut Outputs) -> Result<Vec<Source>, Failure> {
        let files: Vec<&PathBuf> = self.files().collect();
        if files.iter().filter(|path| path.as_os_str() == "-").count() > 1 {
            return Err(Failure::usage("standard input can be read once only", "'-' twice", "name it once"));
        }
        let mut sources = Vec::new();
        let mut named = BTreeSet::new();
        for path in files {
            // One file may have several names; what has no place of its own, as a pipe, is as it is named.
            if !named.insert(path.canonicalize().unwrap_or_else(|_| path.clone())) {
                if self.read.is_strict() {
                    return Err(Failure::usage(
                        "a trace that is named twice is read once",
                        path.display(),
                        "name it once",
                    ));
                }
                say(format_args!("{}: named twice: it is read once", path.display()));
                continue;
            }
            outputs.reads(path);
            let unsaid = if self.weighs_objects { ObjectsAs::OnePageEach } else { ObjectsAs::SizedIfKnown };
            sources.push(self.read.file(path, true, unsaid)?);
        }
        name_apart(&mut sources);
        for text in &self.workloads {
            let source = Source::workload(workload(text, self.read.kind, self.seed)?);
            sources.push(source.part(self.read.part()));
        }
        if self.is_empty() {
            sources = self.built_in()?;
        }
        self.read.check_effect(&sources)?;
        Ok(sources)
    }

    /// The built-in set, with this command line's seed.
    fn built_in(&self) -> Result<Vec<Source>, Failure> {
        let source = |text: &&str| Ok(Source::workload(workload(text, None, self.seed)?).part(self.read.part()));
        BUILT_IN.iter().map(source).collect()
    }
}

/// Gives files of one name longer names, as long as that tells them apart: with the extension, then with the path.
fn name_apart(sources: &mut [Source]) {
    let longer: [fn(&Path) -> String; 2] = [
        |path| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned(),
        |path| path.display().to_string(),
    ];
    for longer in longer {
        let names: Vec<String> = sources.iter().map(Source::name).collect();
        for (source, name) in sources.iter_mut().zip(&names) {
            if names.iter().filter(|other| *other == name).count() > 1 {
                rename(source, longer);
            }
        }
    }
}

fn rename(source: &mut Source, longer: fn(&Path) -> String) {
    match source {
        Source::File { path, options } => options.name = Some(longer(path)),
        Source::Part { whole, .. } => rename(whole, longer),
        Source::Workload(_) | Source::Custom(_) => {}
    }
}

/// Fails if a path is neither a file nor a directory, which reading will complain about: a pipe cannot be read again.
pub fn require_file(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() && !metadata.is_dir() => {
            let remedy = "name it '-' if it is standard input, or store it first with refault trace convert";
            Err(Failure::usage("a trace is read more than once, and this is not a file", path.display(), remedy))
        }
        _ => Ok(()),
    }
}

/// The options of a command that replays a trace many times: what of the results is written, and by how many threads
/// they come about.
#[derive(Args, Debug)]
pub struct RunsArgs {
    /// Leave out wall_seconds and accesses_per_second, the only figures that differ from run to run
    #[arg(long)]
    pub no_timing: bool,
    /// Where they go, and in which form.
    #[command(flatten)]
    pub result: ResultArgs,
    /// Write pictures and tables as one HTML file
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Threads; results do not depend on it [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
}

/// A time as 90s, 500ms, 5m or 1h, in nanoseconds; a bare number is seconds.
fn duration(text: &str) -> Result<u64, String> {
    let bare = text.ends_with(|last: char| last.is_ascii_digit());
    let text = if bare { format!("{text}s") } else { text.to_owned() };
    refault_config::units::time(&text, 1).map_err(str::to_owned)
}

fn trace_format(text: &str) -> Result<Format, String> {
    Format::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
        format!("there are {}", names.join(", "))
    })
}

fn csv_column(text: &str) -> Result<(String, String), String> {
    let (field, name) = text.split_once('=').ok_or("write COLUMN=NAME, such as block=lba")?;
    CsvColumns::default().set(field.trim(), name)?;
    Ok((field.trim().to_owned(), name.to_owned()))
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
        && !says(&["seed", "thread"])
    {
        spec.seed = seed;
    }
    Ok(spec)
}
