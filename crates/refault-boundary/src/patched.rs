//! Sites of calls that are patched to jump to the agent.

pub(crate) mod fast;
pub(crate) mod fast_call;
pub(crate) mod sites;
