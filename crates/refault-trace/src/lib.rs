//! Page access traces: formats, importers, workload generators and what can be told of a trace by itself.
//!
//! Whatever the source, a trace is a stream of [`Entry`]s: a page number with its kind and a write bit. A [`Source`]
//! names a file or a generated workload and can be opened any number of times; a [`TraceReader`] hands out blocks of
//! entries, so that a trace of any length needs the memory of one block.
//!
//! ```
//! # fn main() -> Result<(), refault_trace::TraceError> {
//! use refault_trace::Source;
//! let source = Source::workload("zipf:theta=1.2,pages=4096,accesses=100000".parse()?);
//! let mut reader = source.open()?;
//! let (mut buffer, mut writes) = (Vec::new(), 0);
//! loop {
//!     let block = reader.next_block(&mut buffer)?;
//!     if block.is_empty() {
//!         break;
//!     }
//!     writes += block.iter().filter(|entry| entry.write()).count();
//! }
//! # assert_eq!(writes, 0);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod collapse;
pub mod entry;
pub mod error;
mod facts;
mod formats;
pub mod generate;
pub mod heat_map;
mod input;
pub mod page_ids;
pub mod reader;
pub mod remark;
pub mod reuse;
pub mod reuse_parts;
pub mod rft;
pub mod select;
pub mod shards;
pub mod similar;
pub mod statistics;
mod strict;
pub mod write;

pub use entry::{Entry, Kind};
pub use error::{Place, TraceError};
pub use facts::{Facts, Format};
pub use formats::{CsvColumns, FoundBy, PAGE_BYTES, TimeUnit};
pub use generate::{GeneratorReader, WorkloadSpec, workloads};
pub use reader::{
    BLOCK_ENTRIES, Details, Limits, ObjectPages, ObjectsAs, OpenTrace, Options, Source, TimeSpan, TraceReader,
    UNKNOWN_BYTES, open, open_bytes,
};
pub use remark::{Doubt, Reading, Remark};
pub use select::Part;
