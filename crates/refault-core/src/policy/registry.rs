//! The one place where policies have names.
//!
//! [`POLICIES`] says what there is: parameters, defaults, variants, and which front-end can run what.
//! [`PolicySpec::parse`] reads `name{key=value,…}`. [`visit`] makes the policy and hands it to a [`Visitor`] with its
//! own type. So what the visitor does (a replay) is compiled for that policy alone. [`build`] makes a [`DynPolicy`].
//! Adding a policy is one entry in the macro call below.
//!
//! ```
//! use refault_core::policy::FrontEnd;
//! use refault_core::policy::registry::{POLICIES, names};
//! use refault_core::policy::PolicySpec;
//!
//! assert!(POLICIES.iter().any(|entry| entry.name == "mglru"));
//! assert_eq!(PolicySpec::parse("lru_gen")?.label, "mglru"); // an alias
//! let refused = PolicySpec::parse_for("opt", FrontEnd::PageCache).unwrap_err();
//! assert!(refused.to_string().contains("accesses to come"), "{refused}");
//! assert!(names(FrontEnd::Pager).contains("clock"));
//! # Ok::<(), refault_core::policy::PolicyError>(())
//! ```

use std::marker::PhantomData;
use std::sync::Arc;

pub use super::error::PolicyError;
use super::{Admission, Cyclic, DynPolicy, Erased, HitReport, Policy, cyclic};
use crate::memory::{Eviction, Memory, References};
use crate::page::{PageId, PageType, Shadow};
use crate::parameter::{Call, NoParameters, Parameter, ParameterError, Parameters, fill, parse_switch};
use crate::textbook::NextUse;
use crate::{
    Adaptive, AdaptiveMapped, AdaptiveParams, Classic, ClassicParams, Freebsd, FreebsdParams, Mglru, MglruParams,
    textbook,
};

/// Where a policy can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrontEnd {
    /// A trace under a limit.
    Replay,
    /// The simulated machine.
    Machine,
    /// The file page cache.
    PageCache,
    /// Live memory of a process.
    Pager,
    /// The experiment on free pools.
    FreePool,
}

impl FrontEnd {
    /// All, in the order in which they are listed.
    pub const ALL: [FrontEnd; 5] =
        [FrontEnd::Replay, FrontEnd::Machine, FrontEnd::PageCache, FrontEnd::Pager, FrontEnd::FreePool];

    /// As in a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            FrontEnd::Replay => "the replay",
            FrontEnd::Machine => "the simulated machine",
            FrontEnd::PageCache => "the page cache",
            FrontEnd::Pager => "the pager",
            FrontEnd::FreePool => "the free-pool experiment",
        }
    }
}

/// Where a policy comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// From a paper.
    Textbook,
    /// From a kernel.
    Kernel,
    /// This project's.
    Own,
    /// A bound that no program can reach, because it knows the future.
    Bound,
}

impl Family {
    /// As in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Textbook => "textbook",
            Family::Kernel => "kernel",
            Family::Own => "own",
            Family::Bound => "bound",
        }
    }
}

/// Why the free-pool experiment refuses what it sets itself.
const SET_BY_FREE_POOL: &str =
    "the experiment itself sets what becomes of evicted pages: name freebsd, without cache_pool or version=12";

/// Why a policy that is [`Fact::NeedsFuture`] cannot run where accesses come one by one.
pub const NEEDS_FUTURE: &str = "it must know all accesses to come, which only a replay of a whole trace does";

/// What front-ends must know of a policy beyond its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// It must know the trace's future ([`BuildContext::next_use`]).
    NeedsFuture,
    /// It hashes pages, and does so by their numbers in the trace if it is told them ([`BuildContext::page_numbers`]).
    HashesPages,
    /// What it keeps in a smaller memory it also keeps in a larger one, in order of last use: one pass of reuse
    /// distances gives all sizes.
    Stack,
    /// It frees frames up to targets of its own, whatever is asked for.
    OwnTargets,
    /// It keeps frames free for evicted pages by itself, so that these stay cached.
    CachesEvicted,
    /// It can hold objects of any size, which come and go whole: nothing of it counts pages of memory.
    Objects,
    /// A variant whose difference from another is set by the free-pool experiment itself.
    SetByFreePool,
    /// Its parameter of this name counts accesses.
    CountsAccesses(&'static str),
    /// In a smaller memory with a part of the pages it misses another share of accesses, by more than such parts differ:
    /// it works in batches of fixed size, has steps of time that are no parameter, or depends on where pages lie.
    NotInMiniature,
}

/// A policy as users meet it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyEntry {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// Other names for it, which are read and never written.
    pub aliases: &'static [&'static str],
    /// Where it comes from.
    pub family: Family,
    /// What it does, in a line.
    pub description: &'static str,
    /// Which of its published variants the default is, and how to have another.
    pub variant: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
    /// How it learns of hits.
    pub hits: HitReport,
    /// What else is to be known of it.
    pub facts: &'static [Fact],
    check: fn(&Call) -> Result<(), ParameterError>,
}

impl PolicyEntry {
    /// Whether something is true of it.
    pub fn is(&self, fact: Fact) -> bool {
        self.facts.contains(&fact)
    }

    /// Everything that can be set: its own parameters and those of the decorators that can be put around it.
    pub fn all_parameters(&self) -> impl Iterator<Item = &'static Parameter> {
        let decorators = if self.is(Fact::NeedsFuture) { &[] } else { cyclic::PARAMETERS };
        self.parameters.iter().chain(decorators)
    }

    fn check(&self, call: &Call) -> Result<(), PolicyError> {
        let wrong = |error| PolicyError::BadParameter(call.to_string(), error);
        let own = if self.is(Fact::NeedsFuture) { call.clone() } else { own_parameters(call) };
        (self.check)(&own).map_err(wrong)?;
        match call.arguments.iter().find(|(key, _)| key == "cyclic") {
            Some((key, value)) if parse_switch(value).is_none() => {
                Err(wrong(ParameterError::invalid(key, value, cyclic::PARAMETERS)))
            }
            _ => Ok(()),
        }
    }

    /// Why a front-end cannot run it, as half a sentence that goes on "… cannot run it: "; `None`: it can.
    pub fn refusal(&self, front_end: FrontEnd) -> Option<&'static str> {
        match front_end {
            FrontEnd::Replay => None,
            _ if self.is(Fact::NeedsFuture) => Some(NEEDS_FUTURE),
            FrontEnd::Pager if self.hits == HitReport::EachAccess => {
                Some("it must hear of each access, and accesses to mapped memory are not reported one by one")
            }
            FrontEnd::Pager if self.is(Fact::OwnTargets) => {
                Some("it frees frames up to targets of its own, and may free none when a budget is used up")
            }
            FrontEnd::FreePool if self.hits != HitReport::Kernel => {
                Some("it does not hear of accesses as the kernels' policies do, which the experiment compares")
            }
            FrontEnd::FreePool if self.is(Fact::SetByFreePool) => Some(SET_BY_FREE_POOL),
            _ => None,
        }
    }

    /// Bytes of metadata per page when all pages are resident, with default parameters. `None` for policies that need
    /// the future. Cost: the policy is made and given 65,536 pages.
    pub fn metadata_bytes_per_page(&'static self) -> Option<f64> {
        let spec = PolicySpec { label: self.name.to_owned(), entry: self, call: Call::default() };
        (!self.is(Fact::NeedsFuture)).then(|| visit(&spec, &BuildContext::default(), MeasureMetadata))
    }
}

/// A policy with its parameters as asked for, checked.
#[derive(Clone, Debug)]
pub struct PolicySpec {
    /// What was asked for, normalised: the `policy` field of results.
    pub label: String,
    /// The entry.
    pub entry: &'static PolicyEntry,
    /// The parameters.
    pub call: Call,
}

impl PolicySpec {
    /// Reads `name{key=value,…}`.
    ///
    /// # Errors
    /// It cannot be taken apart, there is no such policy, or it has no such parameter or value.
    pub fn parse(text: &str) -> Result<PolicySpec, PolicyError> {
        let mut call = Call::parse(text).map_err(PolicyError::Unreadable)?;
        let entry = entry(&call.name).ok_or_else(|| PolicyError::Unknown(call.name.clone()))?;
        call.name = entry.name.to_owned();
        entry.check(&call)?;
        Ok(PolicySpec { label: call.to_string(), entry, call })
    }

    /// The same for a front-end.
    ///
    /// # Errors
    /// Also if that cannot run it.
    pub fn parse_for(text: &str, front_end: FrontEnd) -> Result<PolicySpec, PolicyError> {
        let spec = PolicySpec::parse(text)?;
        spec.check(front_end)?;
        Ok(spec)
    }

    /// Whether a front-end can run it.
    ///
    /// # Errors
    /// [`PolicyError::Refused`] with the reason.
    pub fn check(&self, front_end: FrontEnd) -> Result<(), PolicyError> {
        let bypass = match front_end {
            FrontEnd::Replay => None,
            FrontEnd::Pager => Some(
                "with bypass=yes a reference is served while its page stays evicted, and a load or store of mapped memory \
                 needs its page",
            ),
            _ => Some("bypass=yes needs a front-end that serves references to evicted pages, as the replay does"),
        };
        let groups = matches!(front_end, FrontEnd::Machine | FrontEnd::FreePool);
        let cyclic = "cyclic=yes tells neither groups nor nodes apart";
        let reason = self.entry.refusal(front_end);
        let reason = reason.or(bypass.filter(|_| self.is_on("bypass")));
        let reason = reason.or((groups && self.is_on("cyclic")).then_some(cyclic));
        let reason =
            reason.or((front_end == FrontEnd::FreePool && self.names_cached_pages()).then_some(SET_BY_FREE_POOL));
        match reason {
            None => Ok(()),
            Some(reason) => Err(PolicyError::Refused { policy: self.label.clone(), front_end, reason }),
        }
    }

    /// Whether the arguments say what becomes of evicted pages: release 12 has no cached ones.
    fn names_cached_pages(&self) -> bool {
        self.entry.name == "freebsd"
            && self.call.arguments.iter().any(|(key, value)| key == "cache_pool" || (key == "version" && value == "12"))
    }

    /// The policy of an entry with all defaults.
    pub fn default_of(entry: &'static PolicyEntry) -> PolicySpec {
        PolicySpec {
            label: entry.name.to_owned(),
            entry,
            call: Call { name: entry.name.to_owned(), arguments: Vec::new() },
        }
    }

    /// The same policy for a part of the pages, above 0 and at most 1, which has as many fewer accesses. Its label stays.
    pub fn in_miniature(&self, part: f64) -> PolicySpec {
        let mut small = self.clone();
        for fact in self.entry.facts {
            let Fact::CountsAccesses(name) = *fact else { continue };
            let given = self.call.arguments.iter().position(|(key, _)| key == name);
            let default = self.entry.parameters.iter().find(|parameter| parameter.name == name);
            let value = given.map(|at| self.call.arguments[at].1.as_str()).or(default.map(|it| it.default));
            let Some(count) = value.and_then(|text| text.parse::<u64>().ok()) else { continue };
            let scaled = ((count as f64 * part).round() as u64).max(1).to_string();
            match given {
                Some(at) => small.call.arguments[at].1 = scaled,
                None => small.call.arguments.push((name.to_owned(), scaled)),
            }
        }
        small
    }

    /// Whether a switch is on, by the arguments or, without one, by the parameter's default.
    pub fn is_on(&self, switch: &str) -> bool {
        let given = self.call.arguments.iter().find(|(key, _)| key == switch).map(|(_, value)| value.as_str());
        let default = || self.entry.all_parameters().find(|p| p.name == switch).map(|p| p.default);
        given.or_else(default) == Some("yes")
    }
}

/// The entry of a name or an alias.
pub fn entry(name: &str) -> Option<&'static PolicyEntry> {
    POLICIES.iter().find(|entry| entry.name == name || entry.aliases.contains(&name))
}

/// The names that a front-end can run, separated by commas.
pub fn names(front_end: FrontEnd) -> String {
    let names = POLICIES.iter().filter(|entry| entry.refusal(front_end).is_none()).map(|entry| entry.name);
    names.collect::<Vec<_>>().join(", ")
}

/// The policies that a front-end can run, with their defaults, in the order of the table.
pub fn all(front_end: FrontEnd) -> impl Iterator<Item = PolicySpec> {
    POLICIES.iter().filter(move |entry| entry.refusal(front_end).is_none()).map(PolicySpec::default_of)
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
pub struct BuildContext {
    /// The trace's future, for policies that need it.
    pub next_use: Option<Arc<NextUse>>,
    /// The trace's page number for each page id, for policies that hash pages: without it they hash the ids.
    pub page_numbers: Option<Arc<[u64]>>,
}

impl BuildContext {
    fn future(&self) -> Arc<NextUse> {
        self.next_use.clone().expect("invariant: only a front-end that knows the future builds a policy that needs it")
    }
}

struct IntoBox<M>(PhantomData<M>);

impl<M: Memory + 'static> Visitor for IntoBox<M> {
    type Output = Box<dyn DynPolicy<M> + Send>;

    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Output {
        Box::new(policy)
    }
}

/// Makes a policy over one kind of memory from `name{key=value,…}`, for a front-end that does not know the future.
///
/// # Errors
/// As [`PolicySpec::parse`], and [`PolicyError::Refused`] for policies that this front-end cannot run, and for those
/// that need the future: use [`visit`] with a [`BuildContext`] for them.
pub fn build<M: Memory + 'static>(
    text: &str,
    front_end: FrontEnd,
) -> Result<Box<dyn DynPolicy<M> + Send>, PolicyError> {
    let spec = PolicySpec::parse_for(text, front_end)?;
    if spec.entry.is(Fact::NeedsFuture) {
        return Err(PolicyError::Refused { policy: spec.label, front_end, reason: NEEDS_FUTURE });
    }
    Ok(visit(&spec, &BuildContext::default(), IntoBox(PhantomData)))
}

macro_rules! policies {
    ($($name:literal $aliases:tt $family:ident $facts:tt $description:literal, $variant:literal,
       $policy:ty, $type:ty = $start:expr, |$parameters:ident, $context:ident| $new:expr;)*) => {
        /// Every policy, in the order in which they are listed and compared.
        pub static POLICIES: &[PolicyEntry] = &[$(PolicyEntry {
            name: $name,
            aliases: &$aliases,
            family: Family::$family,
            description: $description,
            variant: $variant,
            parameters: <$type>::LIST,
            hits: <$policy as Policy>::HITS,
            facts: &$facts,
            check: |call| fill::<$type>($start, call).map(|_| ()),
        }),*];

        /// Makes the policy of a specification and hands it to the visitor.
        ///
        /// # Panics
        /// If the policy needs the future and the context does not have it.
        pub fn visit<V: Visitor>(spec: &PolicySpec, context: &BuildContext, visitor: V) -> V::Output {
            match spec.entry.name {
                $($name => {
                    let $context = context;
                    let own = own_parameters(&spec.call);
                    let $parameters: $type = fill($start, &own).expect("invariant: a specification is checked");
                    let policy: $policy = $new;
                    visitor.visit(Cyclic::new(policy, spec.is_on("cyclic")))
                })*
                _ => unreachable!("invariant: a specification's entry is one of POLICIES"),
            }
        }

        /// The same for policies that can hold objects of any size ([`Fact::Objects`]), and compiled for these alone;
        /// `None` for others, and for those that look for cyclic scans of pages.
        pub fn visit_objects<V: Visitor>(spec: &PolicySpec, visitor: V) -> Option<V::Output> {
            if spec.is_on("cyclic") {
                return None;
            }
            let no_context = BuildContext::default();
            match spec.entry.name {
                $($name => {
                    if const { holds_objects(&$facts) } {
                        let $context = &no_context;
                        let $parameters: $type = fill($start, &own_parameters(&spec.call)).expect("invariant: a specification is checked");
                        let policy: $policy = $new;
                        Some(visitor.visit(policy))
                    } else {
                        None
                    }
                })*
                _ => None,
            }
        }
    };
}

/// Whether the facts of an entry say that it can hold objects.
const fn holds_objects(facts: &[Fact]) -> bool {
    let mut at = 0;
    while at < facts.len() {
        if matches!(facts[at], Fact::Objects) {
            return true;
        }
        at += 1;
    }
    false
}

/// A call without the parameters of decorators.
fn own_parameters(call: &Call) -> Call {
    let arguments = call.arguments.iter().filter(|(key, _)| cyclic::PARAMETERS.iter().all(|p| p.name != key));
    Call { name: call.name.clone(), arguments: arguments.cloned().collect() }
}

/// W-TinyLFU, hashing the trace's page numbers if they are known.
fn wtinylfu(parameters: textbook::WTinyLfuParams, context: &BuildContext) -> textbook::WTinyLfu {
    let policy = textbook::WTinyLfu::new(parameters);
    match &context.page_numbers {
        Some(numbers) => policy.with_keys(numbers.clone()),
        None => policy,
    }
}

use Fact::{
    CachesEvicted, CountsAccesses, HashesPages, NeedsFuture, NotInMiniature, Objects, OwnTargets, SetByFreePool, Stack,
};

policies! {
    "fifo" [] Textbook [Objects] "First in, first out; a hit does nothing.", "the only one",
        textbook::Fifo, NoParameters = NoParameters, |_none, _context| textbook::Fifo::default();
    "clock" ["second-chance"] Textbook [Objects] "FIFO with a second chance: a page found accessed goes round once more.",
        "the reference simulator's: one bit, clear on arrival",
        textbook::Clock, NoParameters = NoParameters, |_none, _context| textbook::Clock::default();
    "lru" [] Textbook [Stack, Objects] "Least recently used: a hit moves the page to the front.", "the only one",
        textbook::Lru, NoParameters = NoParameters, |_none, _context| textbook::Lru::default();
    "2q" ["two-queue"] Textbook [] "New pages pass a FIFO; those asked for again after leaving it enter an LRU.",
        "the reference simulator's, which is the paper's full version",
        textbook::TwoQueue, textbook::TwoQueueParams = Default::default(), |parameters, _context| textbook::TwoQueue::new(parameters);
    "arc" [] Textbook [] "Recency and frequency lists whose shares follow hits on what each evicted.", "the paper's",
        textbook::Arc, NoParameters = NoParameters, |_none, _context| textbook::Arc::default();
    "lirs" [] Textbook [] "Ranks pages by the distance between their last two uses; a small part of memory tries newcomers.",
        "the reference simulator's; the paper's is lirs{variant=paper}",
        textbook::Lirs, textbook::LirsParams = Default::default(), |parameters, _context| textbook::Lirs::new(parameters);
    "s3fifo" ["s3-fifo"] Textbook [] "A small FIFO filters one-hit wonders out of a main FIFO with reinsertion.",
        "the reference simulator's since December 2024; the paper's is s3fifo{variant=paper}",
        textbook::S3Fifo, textbook::S3FifoParams = Default::default(), |parameters, _context| textbook::S3Fifo::new(parameters);
    "sieve" [] Textbook [Objects, NotInMiniature] "A hand sweeps a FIFO from old to new and evicts what was not hit since its last visit.",
        "the paper's, which is the reference simulator's",
        textbook::Sieve, NoParameters = NoParameters, |_none, _context| textbook::Sieve::default();
    "slru" ["segmented-lru"] Textbook [] "A hit page is protected in a segment of its own; what was never hit goes first.",
        "the paper's, with 80 % of memory protected",
        textbook::Slru, textbook::SlruParams = Default::default(), |parameters, _context| textbook::Slru::new(parameters);
    "lfu" [] Textbook [Objects] "Evicts the page with the fewest accesses since it came in.", "counts do not outlive an eviction",
        Erased, textbook::LfuParams = Default::default(), |parameters, _context| Erased::new(textbook::Lfu::new(parameters));
    "lfuda" [] Textbook [Objects] "LFU with dynamic aging: the worth of the page evicted last is added to a page's accesses.",
        "the paper's, for pages of one size",
        Erased, textbook::LfuParams = textbook::LfuParams::with_aging(), |parameters, _context| Erased::new(textbook::Lfu::new(parameters));
    "lru-k" ["lruk", "lru-2"] Textbook [Objects] "Evicts the page whose K-th last access is longest ago.",
        "the paper's with K = 2, without a correlated reference period; others are lru-k{k=3}",
        Erased, textbook::LruKParams = Default::default(), |parameters, _context| Erased::new(textbook::LruK::new(parameters));
    "gdsf" [] Textbook [Objects] "Greedy-Dual-Size-Frequency: accesses times cost by size, on top of the worth of the page evicted last.",
        "the paper's with all costs 1; for pages it equals lfuda",
        Erased, NoParameters = NoParameters, |_none, _context| Erased::new(textbook::Gdsf::default());
    "mq" ["multi-queue"] Textbook [CountsAccesses("lifetime")] "LRU queues by the logarithm of a page's accesses; unused pages move down, evicted ones are remembered.",
        "the reference simulator's: a fixed lifetime, where the paper measures one",
        Erased, textbook::MqParams = Default::default(), |parameters, _context| Erased::new(textbook::Mq::new(parameters));
    "clock-pro" ["clockpro"] Textbook [] "LIRS by accessed bits: hot pages, cold ones and evicted cold ones on a clock with three hands.",
        "the paper's, its share of cold pages adaptive",
        textbook::ClockPro, NoParameters = NoParameters, |_none, _context| textbook::ClockPro::default();
    "hyperbolic" [] Textbook [Objects] "Evicts, of pages drawn at random, the one with the fewest accesses per time in memory.",
        "the paper's with 64 pages drawn, and all costs 1",
        Erased, textbook::HyperbolicParams = Default::default(), |parameters, _context| Erased::new(textbook::Hyperbolic::new(parameters));
    "lhd" [] Textbook [Objects, NotInMiniature] "Least hit density: evicts, of pages drawn at random, the one that promises the fewest hits per time.",
        "the authors' simulator's, with one application",
        Erased, textbook::LhdParams = Default::default(), |parameters, _context| Erased::new(textbook::Lhd::new(parameters));
    "lecar" [] Textbook [] "LRU or LFU, drawn for each eviction by weights that evictions move which were regretted.",
        "the authors' simulator's; of equally frequent pages the one used longest ago goes",
        Erased, textbook::LeCarParams = Default::default(), |parameters, _context| Erased::new(textbook::LeCar::new(parameters));
    "cacheus" [] Textbook [] "LeCaR with experts that resist scans and churn, and a learning rate that adapts.",
        "the authors' simulator's: SR-LRU and CR-LFU",
        Erased, textbook::CacheusParams = Default::default(), |parameters, _context| Erased::new(textbook::Cacheus::new(parameters));
    "lrfu" [] Textbook [] "Evicts the page with the lowest exponentially decayed count of references.",
        "the paper's, with references found out by accessed bits, at most one per interval",
        textbook::Lrfu, textbook::LrfuParams = Default::default(), |parameters, _context| textbook::Lrfu::new(parameters);
    "wtinylfu" ["w-tinylfu"] Textbook [HashesPages, NotInMiniature] "A small LRU window; its victims enter the main part only if a sketch has seen them more often.",
        "the reference simulator's: fixed window, no doorkeeper; the paper's is wtinylfu{variant=paper}",
        textbook::WTinyLfu, textbook::WTinyLfuParams = Default::default(), |parameters, context| wtinylfu(parameters, context);
    "adaptive" [] Own [] "Follows recency, reuse distance or frequency, whichever misses least of late; bounds its loss to LRU.",
        "told of each access; where only accessed bits are seen: adaptive-mapped",
        Adaptive, AdaptiveParams = Default::default(), |parameters, _context| Adaptive::new(parameters);
    "adaptive-mapped" [] Own [] "The same where only accessed bits are seen, which are looked at once per interval.",
        "sees accessed bits only",
        AdaptiveMapped, AdaptiveParams = Default::default(), |parameters, _context| AdaptiveMapped::new(parameters);
    "opt" ["belady", "min"] Bound [NeedsFuture] "Belady's bound: evicts the page that is needed again last. Knows the future.",
        "exact, on demand: the missed page is always brought in, as in the reference simulator",
        textbook::Opt, NoParameters = NoParameters, |_none, context| textbook::Opt::new(context.future());
    "classic" [] Kernel [NotInMiniature] "Active and inactive lists with the refault distance of mainline (multi-gen LRU off).",
        "Linux 6.12",
        Classic, ClassicParams = ClassicParams::default(), |parameters, _context| Classic::new(parameters);
    "classic-shadow" [] Kernel [NotInMiniature] "The two lists with the Shadow LRU redesign of the refault distance.",
        "the redesign as posted; the author's later tree is classic-shadow{per_type_age=yes}",
        Classic, ClassicParams = ClassicParams::shadow_lru(), |parameters, _context| Classic::new(parameters);
    "mglru" ["lru_gen"] Kernel [NotInMiniature] "Multi-gen LRU: generations by page-table walks, tiers by refaults of file-descriptor accesses.",
        "Linux 6.12; later rules are mglru{version=7.2}",
        Mglru, MglruParams = MglruParams::default(), |parameters, _context| Mglru::new(parameters);
    "mglru-refault" [] Kernel [NotInMiniature] "Multi-gen LRU with refaults judged by a clock of evictions, as the classic lists do.",
        "the redesign as posted; its later form is mglru-refault{refault=unified}",
        Mglru, MglruParams = MglruParams::with_refault_distance(), |parameters, _context| Mglru::new(parameters);
    "freebsd" [] Kernel [OwnTargets, CachesEvicted, NotInMiniature] "FreeBSD's page queues; evicted clean pages stay cached until their frame is reused.",
        "before the free pool of cached pages was retired in 2015; after: freebsd{cache_pool=no}",
        Freebsd, FreebsdParams = FreebsdParams::default(), |parameters, _context| Freebsd::new(parameters);
    "freebsd-nocache" [] Kernel [OwnTargets, SetByFreePool, NotInMiniature] "FreeBSD's page queues without cached pages: the daemon frees instead.",
        "as of mid June 2015",
        Freebsd, FreebsdParams = FreebsdParams::no_cache(), |parameters, _context| Freebsd::new(parameters);
}

/// Fills a memory with pages and asks what they cost.
struct MeasureMetadata;

impl Visitor for MeasureMetadata {
    type Output = f64;

    fn visit<P: Policy + Send + 'static>(self, mut policy: P) -> f64 {
        const PAGES: PageId = 1 << 16;
        policy.grow(PAGES as usize);
        policy.set_capacity(PAGES as usize);
        for page in 0..PAGES {
            policy.admit(page, &Admission::fault(PageType::Anon), &mut NothingGoes);
        }
        policy.metadata_bytes() as f64 / f64::from(PAGES)
    }
}

/// A memory in which everything stays.
struct NothingGoes;

impl Memory for NothingGoes {
    fn take_references(&mut self, _page: PageId) -> References {
        References::default()
    }
    fn evict(&mut self, _page: PageId, _shadow: Shadow) -> Eviction {
        Eviction::Kept
    }
    fn is_resident(&self, _page: PageId) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
