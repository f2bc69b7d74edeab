//! The one place where policies have names.
//!
//! [`POLICIES`] says what there is, with parameters, defaults and variants; [`visit`] builds one and hands it to a
//! [`Visitor`] with its own type, so that whatever the visitor does (a replay, a page cache) is compiled for that
//! policy alone. Adding a policy is one entry in the macro call below.

use std::sync::Arc;

use refault_core::parameter::{NoParameters, Parameter, ParameterError, Parameters};
use refault_core::textbook::NextUse;
use refault_core::{Classic, ClassicParams, Freebsd, FreebsdParams, Mglru, MglruParams, Policy, textbook};

use crate::error::LabError;
use crate::parameters::{Call, fill, split_list};

/// A policy as users meet it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyEntry {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// textbook, kernel, or bound for one that knows the future.
    pub family: &'static str,
    /// What it does, in a line.
    pub description: &'static str,
    /// Which of its published variants the default is, and how to have another.
    pub variant: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
    check: fn(&Call) -> Result<(), ParameterError>,
}

impl PolicyEntry {
    /// Whether it must know the trace's future, so that no program could run it.
    pub fn needs_future(&self) -> bool {
        self.family == "bound"
    }
}

/// A policy with its parameters as asked for, checked.
#[derive(Clone, Debug)]
pub struct PolicySpec {
    /// What was asked for, normalised: the `policy` field of results.
    pub label: String,
    /// The entry.
    pub entry: &'static PolicyEntry,
    call: Call,
}

/// Something to be done with a policy of whatever type.
pub trait Visitor {
    /// What it answers.
    type Output;
    /// Does it.
    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Output;
}

/// What a policy is told when it is made.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// The trace's future, for policies that need it.
    pub next_use: Option<Arc<NextUse>>,
    /// The trace's page number for each page id, for policies that hash pages: without it they hash the ids.
    pub page_numbers: Option<Arc<[u64]>>,
}

impl Circumstances {
    fn future(&self) -> Arc<NextUse> {
        self.next_use.clone().expect("invariant: whoever builds a policy that needs the future knows it")
    }
}

macro_rules! policies {
    ($($name:literal, $family:literal, $description:literal, $variant:literal,
       |$parameters:ident: $type:ty = $start:expr, $circumstances:ident| $policy:expr;)*) => {
        /// Every policy, in the order in which they are listed and compared.
        pub const POLICIES: &[PolicyEntry] = &[$(PolicyEntry {
            name: $name,
            family: $family,
            description: $description,
            variant: $variant,
            parameters: <$type>::LIST,
            check: |call| fill::<$type>($start, call).map(|_| ()),
        }),*];

        /// Makes the policy of a specification and hands it to the visitor.
        pub fn visit<V: Visitor>(spec: &PolicySpec, circumstances: &Circumstances, visitor: V) -> V::Output {
            match spec.entry.name {
                $($name => {
                    let $circumstances = circumstances;
                    let $parameters: $type = fill($start, &spec.call).expect("invariant: a specification is checked");
                    visitor.visit($policy)
                })*
                _ => unreachable!("invariant: a specification's entry is one of POLICIES"),
            }
        }
    };
}

/// W-TinyLFU, hashing the trace's page numbers if they are known.
fn wtinylfu(parameters: textbook::WTinyLfuParams, told: &Circumstances) -> textbook::WTinyLfu {
    let policy = textbook::WTinyLfu::new(parameters);
    match &told.page_numbers {
        Some(numbers) => policy.with_keys(numbers.clone()),
        None => policy,
    }
}

policies! {
    "fifo", "textbook", "First in, first out; a hit does nothing.", "the only one",
        |_none: NoParameters = NoParameters, _told| textbook::Fifo::default();
    "clock", "textbook", "FIFO with a second chance: a page found accessed goes round once more.",
        "the reference simulator's: one bit, clear on arrival",
        |_none: NoParameters = NoParameters, _told| textbook::Clock::default();
    "lru", "textbook", "Least recently used: a hit moves the page to the front.", "the only one",
        |_none: NoParameters = NoParameters, _told| textbook::Lru::default();
    "2q", "textbook", "New pages pass a FIFO; those asked for again after leaving it enter an LRU.",
        "the reference simulator's, which is the paper's full version",
        |parameters: textbook::TwoQueueParams = textbook::TwoQueueParams::default(), _told| textbook::TwoQueue::new(parameters);
    "arc", "textbook", "Recency and frequency lists whose shares follow hits on what each evicted.", "the paper's",
        |_none: NoParameters = NoParameters, _told| textbook::Arc::default();
    "lirs", "textbook", "Ranks pages by the distance between their last two uses; a small part of memory tries newcomers.",
        "the reference simulator's; the paper's is lirs{variant=paper}",
        |parameters: textbook::LirsParams = textbook::LirsParams::default(), _told| textbook::Lirs::new(parameters);
    "s3fifo", "textbook", "A small FIFO filters one-hit wonders out of a main FIFO with reinsertion.",
        "the reference simulator's since December 2024; the paper's is s3fifo{variant=paper}",
        |parameters: textbook::S3FifoParams = textbook::S3FifoParams::default(), _told| textbook::S3Fifo::new(parameters);
    "sieve", "textbook", "A hand sweeps a FIFO from old to new and evicts what was not hit since its last visit.",
        "the paper's, which is the reference simulator's",
        |_none: NoParameters = NoParameters, _told| textbook::Sieve::default();
    "lrfu", "textbook", "Each reference counts, less the longer it is ago; the page whose references count least goes.",
        "the paper's, with references found out by accessed bits, at most one an interval",
        |parameters: textbook::LrfuParams = textbook::LrfuParams::default(), _told| textbook::Lrfu::new(parameters);
    "wtinylfu", "textbook", "A small LRU window; its victims enter the main part only if a sketch has seen them more often.",
        "the reference simulator's: fixed window, no doorkeeper; the paper's is wtinylfu{variant=paper}",
        |parameters: textbook::WTinyLfuParams = textbook::WTinyLfuParams::default(), told| wtinylfu(parameters, told);
    "opt", "bound", "Belady's bound: evicts the page that is needed again last. Knows the future.",
        "exact, on demand: the missed page is always brought in, as in the reference simulator",
        |_none: NoParameters = NoParameters, told| textbook::Opt::new(told.future());
    "classic", "kernel", "Active and inactive lists with the refault distance of mainline (multi-gen LRU off).",
        "Linux 6.12",
        |parameters: ClassicParams = ClassicParams::default(), _told| Classic::new(parameters);
    "classic-shadow", "kernel", "The two lists with the Shadow LRU redesign of the refault distance.",
        "the redesign as posted; the author's later tree is classic-shadow{per_type_age=yes}",
        |parameters: ClassicParams = ClassicParams::shadow_lru(), _told| Classic::new(parameters);
    "mglru", "kernel", "Multi-gen LRU: generations by page-table walks, tiers by refaults of file-descriptor accesses.",
        "Linux 6.12; later rules are mglru{version=7.2}",
        |parameters: MglruParams = MglruParams::default(), _told| Mglru::new(parameters);
    "mglru-refault", "kernel", "Multi-gen LRU with refaults judged by a clock of evictions, as the classic lists do.",
        "the redesign as posted; its later form is mglru-refault{refault=unified}",
        |parameters: MglruParams = MglruParams::with_refault_distance(), _told| Mglru::new(parameters);
    "freebsd", "kernel", "FreeBSD's page queues; evicted clean pages stay findable until their frame is reused.",
        "before the free pool of cached pages was retired in 2015; after: freebsd{cache_pool=no}",
        |parameters: FreebsdParams = FreebsdParams::default(), _told| Freebsd::new(parameters);
    "freebsd-nocache", "kernel", "FreeBSD's page queues without cached pages: the daemon frees instead.",
        "as of mid June 2015",
        |parameters: FreebsdParams = FreebsdParams::no_cache(), _told| Freebsd::new(parameters);
}

/// Reads `lru,mglru{tiers=1}`: one failure names what is wrong and lists what there is.
pub fn parse_policies(lists: &[String]) -> Result<Vec<PolicySpec>, LabError> {
    let mut specs: Vec<PolicySpec> = Vec::new();
    for text in lists.iter().flat_map(|list| split_list(list)) {
        let spec = parse_policy(text)?;
        if specs.iter().all(|other| other.label != spec.label) {
            specs.push(spec);
        }
    }
    if specs.is_empty() {
        return Err(LabError::request("no policy named", "--policy", format!("name some of {}", names())));
    }
    Ok(specs)
}

/// All policies with their defaults.
pub fn all_policies() -> Vec<PolicySpec> {
    POLICIES.iter().map(|entry| parse_policy(entry.name).expect("invariant: defaults are in range")).collect()
}

fn parse_policy(text: &str) -> Result<PolicySpec, LabError> {
    let call = Call::parse(text).map_err(|what| LabError::request("cannot read policy", text, what))?;
    let Some(entry) = POLICIES.iter().find(|entry| entry.name == call.name) else {
        return Err(LabError::request(
            "unknown policy",
            format!("'{}'", call.name),
            format!("choose from {}", names()),
        ));
    };
    (entry.check)(&call).map_err(|error| {
        LabError::request("bad parameter", format!("'{call}'"), format!("{error}; see 'refault policies'"))
    })?;
    Ok(PolicySpec { label: call.to_string(), entry, call })
}

fn names() -> String {
    POLICIES.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct MetadataBytes;
    impl Visitor for MetadataBytes {
        type Output = usize;
        fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> usize {
            policy.grow(64);
            policy.metadata_bytes()
        }
    }

    #[test]
    fn every_policy_is_built_from_its_defaults() {
        let next_use = NextUse::new(vec![0, 1, 0]).expect("short");
        let told = Circumstances { next_use: Some(Arc::new(next_use)), ..Circumstances::default() };
        for spec in all_policies() {
            assert!(visit(&spec, &told, MetadataBytes) > 0, "{}", spec.label);
        }
    }

    #[test]
    fn names_are_unique() {
        for (i, entry) in POLICIES.iter().enumerate() {
            assert!(POLICIES[..i].iter().all(|other| other.name != entry.name), "{}", entry.name);
        }
    }

    #[test]
    fn unknown_names_list_the_known() {
        let line = parse_policies(&["nope".into()]).unwrap_err().to_string();
        assert!(line.contains("'nope'") && line.contains("fifo"), "{line}");
    }

    #[test]
    fn a_policy_named_twice_runs_once() {
        assert_eq!(parse_policies(&["fifo,fifo".into(), "fifo{}".into()]).expect("known").len(), 1);
    }
}
