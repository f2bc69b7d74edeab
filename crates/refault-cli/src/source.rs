//! Where accesses come from: trace files and generated workloads, as the command line names them.

use std::path::PathBuf;

use refault_trace::{Kind, Options, TraceError, WorkloadSpec};
pub use refault_trace::{Source, TraceReader};

use crate::failure::Failure;

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

impl From<TraceError> for Failure {
    fn from(error: TraceError) -> Failure {
        match &error {
            TraceError::Workload { .. } => Failure::usage("cannot use workload", error, "see 'refault workloads'"),
            _ => Failure::usage("cannot read trace", error, "see 'refault trace --help' for what can be read"),
        }
    }
}

/// The files and workloads of a command line, files first.
pub fn sources(
    traces: &[PathBuf],
    workloads: &[String],
    kind: Option<KindName>,
    seed: Option<u64>,
) -> Result<Vec<Source>, Failure> {
    let options = Options { kind: kind.map(Kind::from), ..Options::default() };
    let mut sources: Vec<Source> = traces.iter().map(|path| Source::file(path, options.clone())).collect();
    for text in workloads {
        sources.push(Source::workload(workload(text, kind, seed)?));
    }
    Ok(sources)
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

/// The built-in set.
pub fn built_in(seed: Option<u64>) -> Result<Vec<Source>, Failure> {
    BUILT_IN.iter().map(|text| Ok(Source::workload(workload(text, None, seed)?))).collect()
}
