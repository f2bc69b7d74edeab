//! The policies that can decide over live memory, by name.
//!
//! A program's accesses to its own memory are not reported one by one, so policies that must hear of every hit (LRU, ARC and
//! the like) cannot run here; they are refused by name.

use refault_core::Policy;
use refault_core::classic::Classic;
use refault_core::mglru::Mglru;
use refault_core::parameter::{Call, NoParameters, ParameterError, Parameters, fill};
use refault_core::policy::HitReport;
use refault_core::textbook::{Clock, Fifo, Lrfu, Sieve};

use crate::engine::{Reclaimer, Reclaiming};
use crate::pager::PagerError;

/// The names that [`crate::PagerOptions::policy`] takes, the default first; parameters may follow one: `name{key=value,…}`.
pub const POLICIES: &[&str] = &["mglru", "classic", "lrfu", "clock", "sieve", "fifo"];

/// Whether a policy has lists that schemes can sort.
pub(crate) fn sorts(policy: &str) -> bool {
    matches!(policy_name(policy), "mglru" | "classic")
}

/// The name in `name{key=value,…}`.
pub fn policy_name(policy: &str) -> &str {
    policy.split('{').next().unwrap_or_default().trim()
}

/// Whether there is such a policy for live memory, with such parameters.
///
/// # Errors
/// Says what is wrong, and what there is.
pub fn check_policy(policy: &str) -> Result<(), PagerError> {
    make(policy).map(drop)
}

/// The policy that `name{key=value,…}` stands for.
pub(crate) fn make(policy: &str) -> Result<Box<dyn Reclaimer>, PagerError> {
    let wrong = |why: String| PagerError::WrongPolicy(policy.to_owned(), why);
    let call = Call::parse(policy).map_err(wrong)?;
    let made = match call.name.as_str() {
        "fifo" => with(&call, |_: NoParameters| Fifo::default()),
        "lrfu" => with(&call, Lrfu::new),
        "clock" => with(&call, |_: NoParameters| Clock::default()),
        "sieve" => with(&call, |_: NoParameters| Sieve::default()),
        "mglru" => with(&call, Mglru::new),
        "classic" => with(&call, Classic::new),
        _ => return Err(PagerError::UnknownPolicy(policy.to_owned(), POLICIES.join(", "))),
    };
    made.map_err(|error| wrong(error.to_string()))
}

fn with<P: Policy + Send + 'static, A: Parameters>(
    call: &Call,
    new: impl Fn(A) -> P,
) -> Result<Box<dyn Reclaimer>, ParameterError> {
    const { assert!(!matches!(P::HITS, HitReport::EachAccess), "nobody reports each access to mapped memory") };
    Ok(Box::new(Reclaiming(new(fill(A::default(), call)?))))
}
