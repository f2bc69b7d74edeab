//! The 24 workloads as phase models of our own, and what each rests on.
//!
//! Footprints and run times are the published ones (spec: numbers-damon-freebsd §1.1b, §1.4). The split into hot, swept
//! and cold memory follows from what the programs do. Bienia et al., "The PARSEC Benchmark Suite" (PACT 2008), and Woo
//! et al., "The SPLASH-2 Programs" (ISCA 1995), describe that. Numbers of frames, steps and passes are those of the
//! native inputs. Nothing was adjusted to the published results under pressure.

use super::program::{Law, Part, Phase};

/// A model.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Suite and name, as in the published table.
    pub name: &'static str,
    /// The cycle of phases after the memory is filled.
    pub phases: &'static [Phase],
    /// What the split rests on.
    pub basis: &'static str,
}

const fn cold(share: f64) -> Part {
    Part { share, law: Law::Cold }
}

const fn sweep(share: f64, period: f64) -> Part {
    Part { share, law: Law::Sweep { period } }
}

const fn random(share: f64, rate: f64) -> Part {
    Part { share, law: Law::Random { rate } }
}

macro_rules! workloads {
    ($($name:literal, $basis:literal, [$($seconds:expr => [$($part:expr),*]),*];)*) => {
        /// All of them, in the order of the published table.
        pub const WORKLOADS: [Workload; 24] = [$(Workload {
            name: $name,
            phases: &[$(Phase { seconds: $seconds, parts: &[$($part),*] }),*],
            basis: $basis,
        }),*];
    };
}

const ALWAYS: f64 = f64::INFINITY;

workloads! {
    "parsec3/blackscholes",
    "100 passes over the option arrays (28 bytes an option); the parsed records (36 bytes) are copied once and left",
    [ALWAYS => [cold(0.56), sweep(0.44, 1.2)]];
    "parsec3/bodytrack",
    "261 frames: images come into the same buffers, the body model is hot, calibration and masks are set-up",
    [ALWAYS => [cold(0.3), sweep(0.45, 0.49), random(0.25, 200.0)]];
    "parsec3/canneal",
    "random swaps over the whole netlist, half a million per second with some 20 neighbours each; names are set-up",
    [ALWAYS => [cold(0.1), random(0.9, 50.0)]];
    "parsec3/dedup",
    "a pipeline: chunks are written once, the hash table is probed at random, buffers are reused",
    [ALWAYS => [cold(0.7), random(0.2, 0.5), sweep(0.1, 1.0)]];
    "parsec3/facesim",
    "conjugate-gradient iterations sweep the mesh; assembly structures are set-up",
    [ALWAYS => [cold(0.4), sweep(0.6, 0.35)]];
    "parsec3/fluidanimate",
    "500 frames sweep the cells; cells without fluid stay untouched",
    [ALWAYS => [cold(0.25), sweep(0.75, 0.68)]];
    "parsec3/freqmine",
    "7 % of the memory is in use after the tree is built (spec: numbers-damon-freebsd §3, proactive reclaim)",
    [ALWAYS => [cold(0.93), random(0.07, 20.0)]];
    "parsec3/raytrace",
    "200 frames of one scene: the top of the hierarchy is hot, visible triangles are met now and then, most never",
    [ALWAYS => [cold(0.6), random(0.3, 1.0), random(0.1, 100.0)]];
    "parsec3/streamcluster",
    "each candidate centre costs a pass over one block of 200 000 points of 128 dimensions; centres are hot",
    [ALWAYS => [sweep(0.93, 0.03), random(0.07, 500.0)]];
    "parsec3/swaptions",
    "paths of one swaption at a time in small buffers; the rest is the process itself",
    [ALWAYS => [cold(0.6), random(0.4, 1000.0)]];
    "parsec3/vips",
    "strips of an image go through a pipeline of reused regions",
    [ALWAYS => [cold(0.3), sweep(0.5, 2.0), random(0.2, 300.0)]];
    "parsec3/x264",
    "512 frames: reference frames are searched, lookahead frames swept, tables hot",
    [ALWAYS => [cold(0.25), sweep(0.5, 1.0), random(0.25, 50.0)]];
    "splash2x/barnes",
    "forces walk the tree from the root: the top is hot, bodies and leaves are met once per step and nearby; old steps cold",
    [ALWAYS => [cold(0.4), random(0.5, 1.0), random(0.1, 100.0)]];
    "splash2x/fft",
    "six-step: two matrices and the roots are swept by transposes and row passes, some four times per run",
    [ALWAYS => [sweep(1.0, 15.0)]];
    "splash2x/lu_cb",
    "each of 512 steps sweeps the trailing matrix, which shrinks (the shrinking is shortened to a cycle of 24 s)",
    [8.0 => [sweep(1.0, 0.26)], 8.0 => [cold(0.35), sweep(0.65, 0.2)], 8.0 => [cold(0.7), sweep(0.3, 0.1)]];
    "splash2x/lu_ncb",
    "as lu_cb with rows of blocks apart: a step meets every page of the trailing rows more often",
    [8.0 => [sweep(1.0, 0.15)], 8.0 => [cold(0.3), sweep(0.7, 0.12)], 8.0 => [cold(0.6), sweep(0.4, 0.08)]];
    "splash2x/ocean_cp",
    "each time step sweeps some 25 grids; a few are used at the start and end only",
    [ALWAYS => [cold(0.15), sweep(0.85, 1.5)]];
    "splash2x/ocean_ncp",
    "as ocean_cp with grids apart from their owners: slower sweeps",
    [ALWAYS => [cold(0.15), sweep(0.85, 3.0)]];
    "splash2x/radiosity",
    "task queues and patches are hot, interaction lists met now and then; pools are allocated for the worst case",
    [ALWAYS => [cold(0.6), random(0.3, 5.0), random(0.1, 100.0)]];
    "splash2x/radix",
    "three passes read one key array in order and write the other all over",
    [ALWAYS => [sweep(0.5, 6.0), random(0.5, 0.3)]];
    "splash2x/raytrace",
    "a small scene: the grid is hot, most of the memory is set-up",
    [ALWAYS => [cold(0.7), random(0.3, 50.0)]];
    "splash2x/volrend",
    "the octree hides most of the volume from the rays",
    [ALWAYS => [cold(0.65), random(0.35, 20.0)]];
    "splash2x/water_nsquared",
    "each step pairs every molecule with every other: repeated sweeps",
    [ALWAYS => [cold(0.15), sweep(0.85, 0.02)]];
    "splash2x/water_spatial",
    "each step sweeps the cells; spare room for moving molecules is cold",
    [ALWAYS => [cold(0.2), sweep(0.8, 2.0)]];
}

#[cfg(test)]
mod tests {
    use super::super::published::TABLE;
    use super::*;

    #[test]
    fn models_stand_in_the_order_of_the_table_and_cover_their_memory() {
        for (workload, row) in WORKLOADS.iter().zip(&TABLE) {
            assert_eq!(workload.name, row.name);
            for phase in workload.phases {
                let share: f64 = phase.parts.iter().map(|part| part.share).sum();
                assert!((share - 1.0).abs() < 1e-9, "{}", workload.name);
            }
        }
    }
}
