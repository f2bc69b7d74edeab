//! The one place where policies have names.
//!
//! [`POLICIES`] says what there is, with parameters, defaults and variants; [`visit`] builds one and hands it to a
//! [`Visitor`] with its own type, so that whatever the visitor does (a replay, a page cache) is compiled for that
//! policy alone. Adding a policy is one entry in the macro call below.

use refault_core::{Classic, ClassicParams, Policy, textbook};

use crate::failure::Failure;
use crate::parameters::{Call, Parameter, Range, Values, split_list};

/// A policy as users meet it.
#[derive(Clone, Copy, Debug)]
pub struct PolicyEntry {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// textbook, kernel or bound: what it is compared with.
    pub family: &'static str,
    /// What it does, in a line.
    pub description: &'static str,
    /// Which of its published variants the default is, and how to have another.
    pub variant: &'static str,
    /// What can be set.
    pub parameters: &'static [Parameter],
    /// Whether it must know the trace's future (OPT), so that no program could run it.
    pub needs_future: bool,
}

/// A policy with its parameters as asked for, checked.
#[derive(Clone, Debug)]
pub struct PolicySpec {
    /// What was asked for, normalised: the `policy` field of results.
    pub label: String,
    /// The entry.
    pub entry: &'static PolicyEntry,
    values: Values,
}

/// Something to be done with a policy of whatever type.
pub trait Visitor {
    /// What it answers.
    type Output;
    /// Does it.
    fn visit<P: Policy + Send + 'static>(self, policy: P) -> Self::Output;
}

macro_rules! policies {
    ($($name:literal, $family:literal, $future:literal, $description:literal, $variant:literal,
       [$($parameter:expr),* $(,)?], |$values:ident| $policy:expr;)*) => {
        /// Every policy, in the order in which they are listed and compared.
        pub const POLICIES: &[PolicyEntry] = &[$(PolicyEntry {
            name: $name,
            family: $family,
            description: $description,
            variant: $variant,
            parameters: &[$($parameter),*],
            needs_future: $future,
        }),*];

        /// Makes the policy of a specification and hands it to the visitor.
        pub fn visit<V: Visitor>(spec: &PolicySpec, visitor: V) -> V::Output {
            match spec.entry.name {
                $($name => {
                    let $values = &spec.values;
                    let _ = $values;
                    visitor.visit($policy)
                })*
                _ => unreachable!("invariant: a specification's entry is one of POLICIES"),
            }
        }
    };
}

const SWAPPINESS: Parameter = Parameter {
    name: "swappiness",
    default: "60",
    range: Range::Integer(0, 200),
    meaning: "how willingly anonymous pages are swapped rather than file pages dropped; 100 is even-handed",
};

fn classic(values: &Values) -> Classic {
    Classic::new(ClassicParams { swappiness: values.integer("swappiness") as u16, ..ClassicParams::default() })
}

const PER_TYPE_AGE: Parameter = Parameter {
    name: "per_type_age",
    default: "no",
    range: Range::Choice(&["no", "yes"]),
    meaning: "one clock for each of anon and file, as the author's later tree has it, instead of one for both",
};

fn classic_shadow(values: &Values) -> Classic {
    Classic::new(ClassicParams {
        swappiness: values.integer("swappiness") as u16,
        per_type_age: values.text("per_type_age") == "yes",
        ..ClassicParams::shadow_lru()
    })
}

policies! {
    "fifo", "textbook", false, "First in, first out; a hit does nothing.",
        "the only one", [], |values| textbook::Fifo::default();
    "clock", "textbook", false, "FIFO with a second chance: a page found accessed goes round once more.",
        "the reference simulator's: one bit, clear on arrival", [], |values| textbook::Clock::default();
    "lru", "textbook", false, "Least recently used: a hit moves the page to the front.",
        "the only one", [], |values| textbook::Lru::default();
    "classic", "kernel", false, "Active and inactive lists with mainline's refault distance (Linux 6.12, multi-gen LRU off).",
        "mainline; the Shadow LRU redesign is classic-shadow",
        [SWAPPINESS], |values| classic(values);
    "classic-shadow", "kernel", false, "The two lists with the Shadow LRU redesign of refault distance.",
        "the redesign; mainline is classic",
        [SWAPPINESS, PER_TYPE_AGE], |values| classic_shadow(values);
}

/// Reads `lru,mglru{tiers=1}`: one failure names what is wrong and lists what there is.
pub fn parse_policies(lists: &[String]) -> Result<Vec<PolicySpec>, Failure> {
    let mut specs: Vec<PolicySpec> = Vec::new();
    for text in lists.iter().flat_map(|list| split_list(list)) {
        let spec = parse_policy(text)?;
        if specs.iter().all(|other| other.label != spec.label) {
            specs.push(spec);
        }
    }
    if specs.is_empty() {
        return Err(Failure::usage("no policy named", "--policy", format!("name some of {}", names())));
    }
    Ok(specs)
}

/// All policies with their defaults.
pub fn all_policies() -> Vec<PolicySpec> {
    POLICIES.iter().map(|entry| parse_policy(entry.name).expect("invariant: defaults are in range")).collect()
}

fn parse_policy(text: &str) -> Result<PolicySpec, Failure> {
    let call = Call::parse(text).map_err(|what| Failure::Usage(format!("cannot read policy: {what}")))?;
    let Some(entry) = POLICIES.iter().find(|entry| entry.name == call.name) else {
        return Err(Failure::usage("unknown policy", format!("'{}'", call.name), format!("choose from {}", names())));
    };
    let values = Values::check(&call, entry.parameters)
        .map_err(|what| Failure::usage("bad parameter", what, "see 'refault policies'"))?;
    Ok(PolicySpec { label: call.to_string(), entry, values })
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
        for spec in all_policies() {
            assert!(visit(&spec, MetadataBytes) > 0, "{}", spec.label);
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
        let failure = parse_policies(&["nope".into()]).unwrap_err();
        let Failure::Usage(line) = failure else { panic!("not a usage failure") };
        assert!(line.contains("'nope'") && line.contains("fifo"), "{line}");
    }

    #[test]
    fn a_policy_named_twice_runs_once() {
        assert_eq!(parse_policies(&["fifo,fifo".into(), "fifo{}".into()]).expect("known").len(), 1);
    }
}
