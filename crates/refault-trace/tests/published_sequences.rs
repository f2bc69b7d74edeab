//! The generators produce the sequences that real kernels were measured on, bit by bit.
//!
//! Accesses, distinct pages and FNV-1a-64 of the entries, as printed by the generator those measurements used.

use std::collections::HashSet;

use refault_trace::{Source, WorkloadSpec};

fn fingerprint(spec: &str) -> (u64, usize, u64) {
    let spec: WorkloadSpec = spec.parse().unwrap_or_else(|error| panic!("{error}"));
    let mut reader = Source::workload(spec).open().expect("a valid workload");
    let (mut block, mut seen) = (Vec::new(), HashSet::new());
    let (mut accesses, mut hash) = (0, 0xCBF2_9CE4_8422_2325u64);
    while reader.read_block(&mut block).expect("generators do not fail") > 0 {
        accesses += block.len() as u64;
        for entry in &block {
            seen.insert(entry.0 & !refault_trace::Entry::WRITE);
            for byte in entry.0.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3);
            }
        }
    }
    (accesses, seen.len(), hash)
}

#[test]
fn sequences_are_the_published_ones() {
    let rows = [
        ("uniform:pages=16384,n=262144,seed=101,w16=4", 262_144, 16384, 0xdad5_0518_6c19_b1c8),
        ("zipf:s5=4,pages=16384,n=524288,seed=102,w16=4", 524_288, 16383, 0xc5e4_824c_a2b3_6c78),
        ("zipf:theta=1,pages=32K,accesses=512K,seed=103,writes=0.25", 524_288, 30204, 0xe86b_a0aa_7804_38b3),
        ("cyclic:pages=16384,n=163840,seed=105,w16=4", 163_840, 16384, 0x6693_81c6_63b1_6909),
        ("hotcold:pages=32768,n=524288,hot=4096,h16=14,phases=4,seed=106,w16=4", 524_288, 30477, 0xeb40_0a18_fcf4_044e),
        ("zipf:theta=1.2,pages=16384,n=393216,kind=fd,seed=108", 393_216, 13060, 0xc245_6d90_762e_a815),
        ("zipf:theta=1.0,pages=16384,n=262144,kind=mapped,seed=109", 262_144, 15308, 0x02af_3a48_77a1_5f0c),
        ("scanhot:pages=16384,n=131072,hot=2458,hot_share=0.75,type=1,seed=110", 131_072, 16384, 0x9cc2_0859_526b_9357),
        ("twopass:pages=32768,n=229376,hot=4096,h16=12,gap=64,type=1,seed=111", 229_376, 32768, 0x2870_8923_3168_875a),
        (
            "mixed:apages=16384,fpages=8192,pages=24576,s5=5,n=163840,h16=12,seed=112,w16=4",
            163_840,
            20878,
            0x7776_3b4c_4bac_8d71,
        ),
    ];
    for (spec, accesses, distinct, hash) in rows {
        assert_eq!(fingerprint(spec), (accesses, distinct, hash), "{spec}");
    }
}
