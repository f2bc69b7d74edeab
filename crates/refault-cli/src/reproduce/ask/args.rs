//! What `refault ask` is given.

use std::path::PathBuf;

use clap::Args;
use refault_ask::job::Lists;
use refault_console::ResultArgs;
use refault_lab::size::Size;

use crate::source::ReadArgs;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  refault ask --kernel 6.12 uniform:pages=16384,accesses=200000,kind=fd
  refault ask --kernel 6.12,7.2 --memory 33% fio:random_distribution=zipf:0.5,norandommap=1,size=4m,numjobs=12
  refault ask --kernel 6.12 --lists generations --memory 64M app.rft --out app.csv
  refault ask --kernel ./linux-image-6.12.117+deb13-amd64.deb app.u64
  refault ask --kernel 6.12,7.2 --memory 24M -- fio --name=r --rw=randread --size=48m --filename=/tmp/data
  refault ask --kernel 6.12 --memory 32M --with /usr/lib/python3.11 -- python3 analysis.py
  refault ask --kernel 6.12,7.2 lru-sort:parsec3/canneal

A version is fetched from Debian with curl and kept in the cache, as answers about workloads are. A kernel in several
packages is named by all of them, joined by ':'. Needs qemu-system-x86_64, and mkfs.ext4 for programs; no root.

A program finds in the guest what it is loaded with, files that its arguments name, and what --with names. It has a disk
with 2 GiB of room, swap compressed in memory, 127.0.0.1, and nothing else.")]
/// Ask real kernels, in an emulator, what they do with a workload or a program, and print their counters; of a workload
/// beside the model's
pub struct AskArgs {
    /// Kernels: a version (6.12), a Debian package, or an image
    #[arg(long = "kernel", value_name = "VERSION|FILE,…", value_delimiter = ',', required = true)]
    pub(super) kernels: Vec<String>,
    /// Which lists pages are on
    #[arg(long, value_enum, default_value = "both")]
    pub(super) lists: ListsArg,
    /// How much of the workload may be in memory: a share of its pages, pages or bytes [default: 50%]; of a program: the
    /// memory.max of its group
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<Size>,
    /// Accesses at the start that are not counted
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) warm_up: u64,
    /// The kernel's inclination to swap
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=200))]
    pub(super) swappiness: u64,
    /// Ask again what was asked before, of the newest kernel of the version
    #[arg(long)]
    pub(super) again: bool,
    /// Print every counter instead of those that decide
    #[arg(long)]
    pub(super) all: bool,
    /// A file or directory that the program needs, or another program
    #[arg(long, value_name = "PATH", requires = "program")]
    pub(super) with: Vec<PathBuf>,
    /// Minutes after which the guest of a program is stopped
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1440))]
    pub(super) minutes: u64,
    /// A workload such as fio:random_distribution=zipf:1.2 (see 'refault workloads'), or a trace
    #[arg(value_name = "WORKLOAD|TRACE", required_unless_present = "program")]
    pub(super) workload: Option<String>,
    /// A program of this machine, with its arguments
    #[arg(last = true, value_name = "PROGRAM", conflicts_with_all = OF_WORKLOADS)]
    pub(super) program: Vec<String>,
    #[command(flatten)]
    pub(super) read: ReadArgs,
    #[command(flatten)]
    pub(super) result: ResultArgs,
}

/// Lists that pages may be on.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListsArg {
    /// An active and an inactive list
    Classic,
    /// The multi-gen LRU
    Generations,
    /// One after the other
    Both,
}

impl ListsArg {
    /// Each of them.
    pub(super) fn all(self) -> Vec<Lists> {
        match self {
            ListsArg::Classic => vec![Lists::Classic],
            ListsArg::Generations => vec![Lists::Generations],
            ListsArg::Both => vec![Lists::Classic, Lists::Generations],
        }
    }
}

/// Arguments that say something of a workload, and nothing of a program.
const OF_WORKLOADS: [&str; 17] = [
    "workload",
    "warm_up",
    "kind",
    "trace_format",
    "columns",
    "objects_have_sizes",
    "objects_one_page_each",
    "skip_size_zero",
    "file_order",
    "strict",
    "block_bytes",
    "skip_instructions",
    "collapse",
    "skip",
    "limit",
    "from",
    "to",
];
