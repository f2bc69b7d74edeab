//! Which counters are compared with those of real kernels.

use refault_core::Counters;

/// Counters under the names of the kernels' tables, as the lists of a kernel count them.
pub fn compared(kernel: &str, lists: &str, c: &Counters) -> [(&'static str, u64); 7] {
    // 6.1's generations count a refault only if it is recent, which others count as an activation (spec: workingset §7).
    let [refaults_anon, refaults_file] = match (kernel, lists) {
        ("6.1", "mglru") => [c.workingset_activate_anon, c.workingset_activate_file],
        _ => [c.workingset_refault_anon, c.workingset_refault_file],
    };
    [
        ("pgscan", c.pgscan),
        ("pgsteal", c.pgsteal),
        ("pgactivate", c.pgactivate),
        ("pgdeactivate", c.pgdeactivate),
        ("pgrefill", c.pgrefill),
        ("workingset_refault_anon", refaults_anon),
        ("workingset_refault_file", refaults_file),
    ]
}
