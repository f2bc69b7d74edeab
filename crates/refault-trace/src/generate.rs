//! Generated workloads: the same specification gives the same accesses, for ever and on every machine.
//!
//! [`spec`] is what can be asked for, [`workload`] lists it with explanations, [`stream`] are the random numbers,
//! [`zipf`] the skewed ones, [`reader`] turns a specification into blocks of entries.

mod fill;
mod reader;
mod spec;
mod stream;
mod workload;
mod zipf;

pub use reader::GeneratorReader;
pub use spec::{Exponent, WorkloadSpec};
pub use workload::{Generator, Parameter, Workload, workloads};
