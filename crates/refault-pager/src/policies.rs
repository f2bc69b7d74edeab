//! The policies that can decide over live memory: those of the core's registry that need only accessed bits.

use refault_core::DynPolicy;
use refault_core::policy::registry::{BuildContext, FrontEnd, PolicySpec, Visitor, visit};
use refault_core::policy::{Policy, PolicyError};

use crate::engine::PagedMemory;

/// The policy of [`crate::PagerOptions`] unless another is named.
pub const DEFAULT_POLICY: &str = "mglru{cyclic=yes}";

/// Reads `name{key=value,…}` for live memory.
///
/// # Errors
/// Says what is wrong, and what there is.
pub fn check_policy(policy: &str) -> Result<PolicySpec, PolicyError> {
    PolicySpec::parse_for(policy, FrontEnd::Pager)
}

/// A policy over the pager's memory.
pub(crate) type PagerPolicy = Box<dyn DynPolicy<PagedMemory> + Send>;

/// The policy that `name{key=value,…}` stands for.
pub(crate) fn make(policy: &str) -> Result<PagerPolicy, PolicyError> {
    struct IntoBox;
    impl Visitor for IntoBox {
        type Output = PagerPolicy;
        fn visit<P: Policy + Send + 'static>(self, policy: P) -> PagerPolicy {
            Box::new(policy)
        }
    }
    let spec = check_policy(policy)?;
    Ok(visit(&spec, &BuildContext::default(), IntoBox))
}
