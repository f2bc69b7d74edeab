//! Generated workloads: the same specification gives the same accesses, for ever and on every machine.
//!
//! [`spec`] is what can be asked for, and [`workload`] lists it with explanations. [`stream`] are the random numbers,
//! [`zipf`] the skewed ones, [`fio`] another program's jobs. [`reader`] turns a specification into blocks of entries.
//!
//! ```
//! use refault_trace::{Source, WorkloadSpec};
//!
//! let spec: WorkloadSpec = "cyclic:pages=100,accesses=1000".parse()?;
//! let mut reader = Source::workload(spec).open()?;
//! let mut buffer = Vec::new();
//! assert_eq!(reader.next_block(&mut buffer)?.len(), 1000);
//! # Ok::<(), refault_trace::TraceError>(())
//! ```

mod fill;
mod fio;
mod reader;
mod spec;
mod stream;
mod workload;
mod zipf;

pub use fio::FioJobs;
pub use reader::GeneratorReader;
pub use spec::{Exponent, WorkloadSpec};
pub use workload::{Generator, Parameter, Workload, workloads};
