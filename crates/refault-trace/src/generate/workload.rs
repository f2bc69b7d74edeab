//! Which workloads there are and what their parameters mean.

/// How the next page is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Generator {
    /// Every page equally likely.
    Uniform,
    /// Few pages often, many rarely.
    Zipf,
    /// All pages in turn, again and again.
    Cyclic,
    /// A hot set that moves, over a uniform background.
    HotCold,
    /// A hot set beside a cyclic scan.
    ScanHot,
    /// A hot set beside a stream of pages that are each read twice.
    TwoPass,
    /// Zipf over anonymous memory beside a cyclic file scan.
    Mixed,
    /// A hot set read repeatedly, then a loop over other pages.
    HotThenCyclic,
    /// Everything written once in order, then random accesses.
    FillRandom,
    /// Anonymous memory written once and left alone, then random file reads.
    IdleAnon,
    /// The jobs of fio.
    Fio,
}

/// A key of a specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The key.
    pub name: &'static str,
    /// Other spellings, those of the published generator.
    pub aliases: &'static [&'static str],
    /// What it is, with its unit.
    pub meaning: &'static str,
    /// What it is if not given.
    pub default: &'static str,
}

/// A workload, as `refault workloads` lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// What comes before the colon of a specification.
    pub name: &'static str,
    /// What it does and what it is for, in one sentence.
    pub purpose: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
    /// How pages are chosen.
    pub generator: Generator,
}

/// All workloads.
pub const fn workloads() -> &'static [Workload] {
    &WORKLOADS
}

impl Generator {
    /// The entry of [`workloads`].
    pub fn workload(self) -> &'static Workload {
        WORKLOADS.iter().find(|workload| workload.generator == self).expect("invariant: every generator is listed")
    }
}

const PAGES: Parameter = Parameter { name: "pages", aliases: &[], meaning: "pages to choose from", default: "65536" };
const ACCESSES: Parameter =
    Parameter { name: "accesses", aliases: &["n"], meaning: "length of the trace", default: "1000000" };
const SEED: Parameter = Parameter { name: "seed", aliases: &[], meaning: "seed of all random numbers", default: "1" };
const KIND: Parameter = Parameter {
    name: "kind",
    aliases: &["type"],
    meaning: "anon (memory), fd (file by read()) or mapped (file by mmap)",
    default: "anon",
};
const WRITES: Parameter = Parameter {
    name: "writes",
    aliases: &["w16"],
    meaning: "share of the accesses to anonymous memory that write, a multiple of 1/16 (w16: in 16ths)",
    default: "0",
};
const THETA: Parameter = Parameter {
    name: "theta",
    aliases: &["s5"],
    meaning: "exponent: the page of rank i is drawn in proportion to 1/i^theta (s5: in fifths)",
    default: "1",
};
const HOT: Parameter = Parameter { name: "hot", aliases: &[], meaning: "pages of the hot set", default: "pages/8" };
const HOT_SHARE: Parameter = Parameter {
    name: "hot_share",
    aliases: &["h16"],
    meaning: "share of the accesses that go to the hot set, a multiple of 1/16 (h16: in 16ths)",
    default: "0.75",
};
const ANON_SHARE: Parameter = Parameter {
    name: "hot_share",
    aliases: &["h16"],
    meaning: "share of the accesses that go to anonymous memory, a multiple of 1/16 (h16: in 16ths)",
    default: "0.75",
};
const PHASES: Parameter = Parameter {
    name: "phases",
    aliases: &[],
    meaning: "how many hot sets follow each other over the length of the trace",
    default: "1",
};
const GAP: Parameter = Parameter {
    name: "gap",
    aliases: &[],
    meaning: "pages of the stream between the first and the second read of a page",
    default: "64",
};
const ROUNDS: Parameter =
    Parameter { name: "rounds", aliases: &[], meaning: "how often the hot set is read first", default: "8" };
const ANON_PAGES: Parameter =
    Parameter { name: "apages", aliases: &[], meaning: "pages of anonymous memory", default: "32768" };
const FILE_PAGES: Parameter =
    Parameter { name: "fpages", aliases: &[], meaning: "pages of the file", default: "32768" };

const WORKLOADS: [Workload; 11] = [
    Workload {
        name: "uniform",
        purpose: "Every page is equally likely: no policy can do better than another, so what differs is cost.",
        parameters: &[PAGES, ACCESSES, SEED, KIND, WRITES],
        generator: Generator::Uniform,
    },
    Workload {
        name: "zipf",
        purpose: "Few pages are used often and many rarely, as in key-value stores and caches: rewards knowing frequency.",
        parameters: &[PAGES, ACCESSES, THETA, SEED, KIND, WRITES],
        generator: Generator::Zipf,
    },
    Workload {
        name: "cyclic",
        purpose: "All pages in turn, again and again: recency evicts each page just before it is used.",
        parameters: &[PAGES, ACCESSES, SEED, KIND, WRITES],
        generator: Generator::Cyclic,
    },
    Workload {
        name: "hotcold",
        purpose: "A hot set that moves from phase to phase over a uniform background: rewards quick adaptation.",
        parameters: &[PAGES, ACCESSES, HOT, HOT_SHARE, PHASES, SEED, KIND, WRITES],
        generator: Generator::HotCold,
    },
    Workload {
        name: "scanhot",
        purpose: "A hot set beside a cyclic scan of all other pages: rewards resistance to scans.",
        parameters: &[PAGES, ACCESSES, HOT, HOT_SHARE, SEED, KIND, WRITES],
        generator: Generator::ScanHot,
    },
    Workload {
        name: "twopass",
        purpose: "A hot set beside a stream whose pages are each read twice, close together: punishes trust in a second use.",
        parameters: &[PAGES, ACCESSES, HOT, HOT_SHARE, GAP, SEED, KIND, WRITES],
        generator: Generator::TwoPass,
    },
    Workload {
        name: "mixed",
        purpose: "Zipf over anonymous memory beside a cyclic read of a file: shows how the two types are balanced.",
        parameters: &[ANON_PAGES, FILE_PAGES, ACCESSES, ANON_SHARE, THETA, SEED, WRITES],
        generator: Generator::Mixed,
    },
    Workload {
        name: "hotthencyclic",
        purpose: "A hot set read several times, then a loop over other pages that does not fit: does the old set make room?",
        parameters: &[PAGES, ACCESSES, HOT, ROUNDS, SEED, KIND, WRITES],
        generator: Generator::HotThenCyclic,
    },
    Workload {
        name: "fillrandom",
        purpose: "Everything is written once in order, as a store being loaded, then used at random.",
        parameters: &[PAGES, ACCESSES, SEED, KIND, WRITES],
        generator: Generator::FillRandom,
    },
    Workload {
        name: "idleanon",
        purpose: "Anonymous memory written once and left alone, then random reads of a larger file: is the idle part given up?",
        parameters: &[ANON_PAGES, FILE_PAGES, ACCESSES, SEED],
        generator: Generator::IdleAnon,
    },
    Workload {
        name: "fio",
        purpose: "What fio 3.33 asks for with the same options, block by block: published runs, and a check of a real machine.",
        parameters: super::fio::PARAMETERS,
        generator: Generator::Fio,
    },
];
