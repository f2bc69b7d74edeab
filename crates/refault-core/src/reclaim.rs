//! What the kernels' list systems share: page records, per-CPU batches, the batch stage and the control flow of
//! reclaim.
//!
//! Kernel: `mm/vmscan.c`; `mm/swap.c`.
//! Source: spec: overview §4 and §5.

pub mod batch_stage;
pub mod control;
pub mod cpu_batch;
pub mod hierarchy;
pub mod record;

pub use cpu_batch::CpuBatch;
pub use hierarchy::Hierarchy;
