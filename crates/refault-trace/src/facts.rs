//! The formats, and what is to be known of each: one table, which commands, detection and the reference read.

use std::path::Path;

use crate::formats::strip_compression;

macro_rules! formats {
    ($($(#[$doc:meta])* $variant:ident {
        name: $name:literal, extensions: $extensions:expr, by_contents: $contents:literal, times: $times:literal,
        sizes: $sizes:literal, writes: $writes:literal, of: $of:literal, by: $by:literal,
    })*) => {
        /// How a trace file is written.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Format {
            $($(#[$doc])* $variant,)*
        }

        impl Format {
            /// All formats.
            pub const ALL: [Format; [$($name),*].len()] = [$(Format::$variant),*];

            /// What is to be known of it.
            pub const fn facts(self) -> Facts {
                match self {
                    $(Format::$variant => Facts {
                        name: $name,
                        extensions: &$extensions,
                        by_contents: $contents,
                        times: $times,
                        sizes: $sizes,
                        writes: $writes,
                        of: $of,
                        by: $by,
                    },)*
                }
            }
        }
    };
}

/// What is to be known of a format.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// The name on the command line.
    pub name: &'static str,
    /// Extensions of files, before that of what packed them.
    pub extensions: &'static [&'static str],
    /// By what contents it is found, or `no`.
    pub by_contents: &'static str,
    /// The unit of its times, or `no`.
    pub times: &'static str,
    /// Whether it says sizes.
    pub sizes: &'static str,
    /// Whether it says which accesses write.
    pub writes: &'static str,
    /// What its accesses are to.
    pub of: &'static str,
    /// Who or what writes it.
    pub by: &'static str,
}

formats! {
    /// Little-endian 64-bit entries, as [`crate::Entry`] lays them out.
    U64 {
        name: "u64", extensions: ["u64"], by_contents: "no", times: "no", sizes: "no", writes: "yes", of: "pages",
        by: "`refault trace convert`",
    }
    /// refault's own, described in `docs/reference/rft.md`.
    Rft {
        name: "rft", extensions: ["rft"], by_contents: "its mark", times: "by block", sizes: "no", writes: "yes",
        of: "pages", by: "`refault record`, `refault trace convert`",
    }
    /// libCacheSim's 24-byte records: u32 time in seconds, u64 object, u32 size, i64 next access.
    OracleGeneral {
        name: "oracleGeneral", extensions: ["oracleGeneral"], by_contents: "no", times: "seconds", sizes: "yes",
        writes: "no", of: "objects", by: "libCacheSim",
    }
    /// libCacheSim's own format, in all versions.
    Lcs {
        name: "lcs", extensions: ["lcs"], by_contents: "its mark", times: "seconds", sizes: "yes",
        writes: "from version 2 on", of: "objects", by: "libCacheSim",
    }
    /// Values in columns with names, or with numbers for names.
    Csv {
        name: "csv", extensions: ["csv", "tsv"], by_contents: "usual names of columns", times: "if a column",
        sizes: "if a column", writes: "if a column", of: "what its columns say",
        by: "spreadsheets, scripts; CacheLib, SYSTOR '17, MSR and Wikipedia with their headers",
    }
    /// What `valgrind --tool=lackey --trace-mem=yes` prints.
    Lackey {
        name: "lackey", extensions: ["lackey"], by_contents: "yes", times: "no", sizes: "no", writes: "yes",
        of: "addresses", by: "`valgrind --tool=lackey --trace-mem=yes`",
    }
    /// Dinero's traces: label, address.
    Dinero {
        name: "dinero", extensions: ["dinero", "din"], by_contents: "no", times: "no", sizes: "no", writes: "yes",
        of: "addresses", by: "Dinero IV and tools around it",
    }
    /// What Pin's example tool pinatrace prints.
    Pin {
        name: "pin", extensions: ["pin"], by_contents: "yes", times: "no", sizes: "no", writes: "yes",
        of: "addresses", by: "Pin's `pinatrace`",
    }
    /// One page number per line, decimal or `0x` hexadecimal.
    Text {
        name: "text", extensions: ["text"], by_contents: "one number per line", times: "no", sizes: "no",
        writes: "no", of: "pages", by: "scripts",
    }
    /// One key of an object per line.
    Keys {
        name: "keys", extensions: ["keys"], by_contents: "no", times: "no", sizes: "no", writes: "no", of: "objects",
        by: "scripts, access logs that were cut",
    }
    /// What `redis-cli monitor` prints.
    Redis {
        name: "redis", extensions: ["redis"], by_contents: "yes", times: "microseconds", sizes: "no", writes: "yes",
        of: "objects", by: "`redis-cli monitor`",
    }
    /// The block traces of the ARC paper: start, count, ignored, request number.
    Lis {
        name: "lis", extensions: ["lis"], by_contents: "four numbers per line, the third 0, the fourth not falling",
        times: "no", sizes: "no", writes: "no", of: "blocks", by: "the authors of ARC",
    }
    /// Time, object, size and features, parted by blanks.
    Tr {
        name: "tr", extensions: ["tr"], by_contents: "three numbers or more per line, the first not falling",
        times: "seconds", sizes: "yes", writes: "no", of: "objects", by: "webcachesim, LRB; Wikipedia's CDN of 2018",
    }
    /// The traces of IBM's object store.
    Ibm {
        name: "ibm", extensions: ["ibm"], by_contents: "`REST.` in the second column", times: "milliseconds",
        sizes: "yes", writes: "yes", of: "objects", by: "SNIA, IBM's object store",
    }
    /// The MSR Cambridge block traces: timestamp, host, disk, type, offset, size, latency.
    Msr {
        name: "msr", extensions: ["msr"], by_contents: "yes", times: "100 ns", sizes: "yes", writes: "yes",
        of: "blocks of several disks", by: "SNIA, MSR Cambridge",
    }
    /// Alibaba's block traces: device, operation, offset, length, microseconds.
    Alibaba {
        name: "alibaba", extensions: ["alibaba"], by_contents: "yes", times: "microseconds", sizes: "yes",
        writes: "yes", of: "blocks of several disks", by: "Alibaba's cloud",
    }
    /// Tencent's block traces: seconds, first sector, sectors, 0 or 1, volume.
    Tencent {
        name: "tencent", extensions: ["tencent"], by_contents: "yes", times: "seconds", sizes: "yes", writes: "yes",
        of: "blocks of several disks", by: "SNIA, Tencent's cloud",
    }
    /// The Storage Performance Council's: unit, first sector, bytes, operation, seconds.
    Spc {
        name: "spc", extensions: ["spc"], by_contents: "yes", times: "seconds", sizes: "yes", writes: "yes",
        of: "blocks of several disks", by: "UMass (Financial1, WebSearch1)",
    }
    /// What `blkparse` prints.
    Blkparse {
        name: "blkparse", extensions: ["blkparse"], by_contents: "yes", times: "nanoseconds", sizes: "yes",
        writes: "yes", of: "blocks of several disks", by: "`blkparse -i DEVICE`",
    }
    /// What fio writes of its I/O, in versions 2 and 3.
    Iolog {
        name: "iolog", extensions: ["iolog"], by_contents: "its first line", times: "microseconds in version 3",
        sizes: "yes", writes: "yes", of: "blocks of several files", by: "`fio --write_iolog`",
    }
    /// What `perf script` and `perf mem report -D` print of memory accesses.
    Perf {
        name: "perf", extensions: ["perf"], by_contents: "yes", times: "if printed", sizes: "no",
        writes: "if the event says", of: "addresses", by: "`perf script`, `perf mem report -D`",
    }
    /// Twitter's public traces of cache clusters.
    Twitter {
        name: "twitter", extensions: ["twitter"], by_contents: "yes", times: "seconds", sizes: "yes", writes: "yes",
        of: "objects", by: "Twitter's cache clusters",
    }
    /// VMware's `vscsiStats` traces, as CloudPhysics published them; both versions.
    Vscsi {
        name: "vscsi", extensions: ["vscsi"], by_contents: "yes", times: "microseconds", sizes: "yes", writes: "yes",
        of: "blocks", by: "VMware's `vscsiStats`, CloudPhysics",
    }
    /// What damo records of DAMON.
    Damo {
        name: "damo", extensions: ["damo"], by_contents: "yes", times: "snapshots", sizes: "no", writes: "no",
        of: "addresses of several targets", by: "`damo record`",
    }
}

impl Format {
    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The format with a name of the command line, whatever its case.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// The format that a file's name says by its extension, before that of what packed it; whatever its case.
    pub fn of_name(path: &Path) -> Option<Format> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let name = strip_compression(&name);
        if name.contains(".oraclegeneral") {
            return Some(Format::OracleGeneral);
        }
        let (_, extension) = name.rsplit_once('.')?;
        let has = |format: &Format| format.facts().extensions.iter().any(|known| known.eq_ignore_ascii_case(extension));
        Format::ALL.into_iter().find(has)
    }

    /// Whether the contents leave no doubt about it.
    pub(crate) const fn has_mark(self) -> bool {
        matches!(self, Format::Rft | Format::Lcs | Format::Iolog | Format::Damo)
    }

    /// Whether files of it are called `.csv`.
    pub(crate) const fn may_be_called_csv(self) -> bool {
        matches!(
            self,
            Format::Msr | Format::Twitter | Format::Alibaba | Format::Tencent | Format::Spc | Format::Tr | Format::Ibm
        )
    }

    /// The table of all formats, as the reference has it.
    pub fn table() -> String {
        let mut table = String::from(
            "| format | extension | found by contents | accesses to | times | sizes | writes | written by |\n\
             |---|---|---|---|---|---|---|---|\n",
        );
        for format in Format::ALL {
            let Facts { name, extensions, by_contents, times, sizes, writes, of, by } = format.facts();
            let extensions: Vec<String> = extensions.iter().map(|extension| format!("`.{extension}`")).collect();
            let extensions = extensions.join(", ");
            table +=
                &format!("| `{name}` | {extensions} | {by_contents} | {of} | {times} | {sizes} | {writes} | {by} |\n");
        }
        table
    }
}
