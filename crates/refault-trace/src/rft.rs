//! refault's own trace format `.rft`: small, seekable, checked. `docs/reference/rft.md` describes it byte by byte.
//!
//! A header, blocks of up to 65 536 entries, and a footer that says where the blocks lie. [`layout`] holds the fixed
//! parts and the footer, [`block`] the coding of entries, [`RftWriter`] and [`RftReader`] put them together.
//!
//! Invariants: a block decodes alone; whatever is read was checked by a checksum first, and lengths are bounded before
//! anything is allocated. Cost: one block of memory; see the module [`block`] for time.
//!
//! ```
//! use refault_trace::rft::{RftReader, RftWriter};
//! use refault_trace::{Entry, Kind, TraceReader};
//!
//! let path = std::env::temp_dir().join(format!("refault-doc-{}.rft", std::process::id()));
//! let mut writer = RftWriter::create(&path)?;
//! writer.write(&[Entry::new(5, Kind::Fd, false)])?;
//! writer.finish()?;
//! assert_eq!(RftReader::open(&path)?.footer().accesses(), 1);
//! # std::fs::remove_file(&path).expect("it was written");
//! # Ok::<(), refault_trace::TraceError>(())
//! ```

pub mod block;
mod layout;
mod reader;
mod writer;

pub(crate) use layout::MAGIC;
pub use layout::{BlockIndex, Footer, Metadata};
pub use reader::RftReader;
pub use writer::RftWriter;
