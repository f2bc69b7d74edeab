//! Integration tests, linked once: a module per file.

mod fio_blocks;
mod importers;
mod objects;
mod parts_and_writers;
mod published_sequences;
mod real_tools;
mod recorded_formats;
mod reference;
mod remarks;
mod remarks_of_lines;
mod rft;
mod samples;
mod shared_oracles;
mod statistics;
mod u64_files;
mod workload_specs;
