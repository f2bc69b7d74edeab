//! The published results, row by row: means of 25 repeats (spec: numbers-damon-freebsd §1.1b), and the table of sizes
//! that the limits came from (spec: numbers-damon-freebsd §1.4).

/// One workload's published row.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    /// Suite and name.
    pub name: &'static str,
    /// Average resident size in KiB that the limits were computed from.
    pub rss_kib: u64,
    /// Run time in s without pressure, under pressure, under pressure with sorting.
    pub runtime: [f64; 3],
    /// Major faults under pressure, without and with sorting.
    pub major_faults: [f64; 2],
    /// Stall in ms under pressure, without and with sorting.
    pub stall_ms: [f64; 2],
    /// The monitor's share of one CPU in percent.
    pub worker_percent: f64,
    /// Standard deviation of the run time in s under pressure, without and with sorting.
    pub deviation: [f64; 2],
}

impl Published {
    /// Relative half width of the 95 % interval of the published change of run time, from its 25 repeats.
    pub fn runtime_noise(&self) -> f64 {
        let relative = |at: usize| self.deviation[at] / self.runtime[at + 1];
        2.06 * relative(0).hypot(relative(1)) / 25f64.sqrt()
    }
}

/// Mean run times in s: without pressure, under pressure, with sorting.
pub const RUNTIME: [f64; 3] = [190.06, 292.83, 281.87];
/// Mean major faults of the same three.
pub const MAJOR_FAULTS: [f64; 3] = [852.55, 8_769_420.0, 7_525_040.0];
/// Mean stall in µs of the same three.
pub const STALL_US: [f64; 3] = [106_911.0, 6_943_420.0, 6_220_920.0];
/// The monitor's mean share of one CPU in percent.
pub const WORKER_PERCENT: f64 = 2.61;

macro_rules! table {
    ($($name:literal $rss:literal $orig:literal $mprs:literal $plrus:literal $f1:literal $f2:literal $s1:literal $s2:literal $cpu:literal $d1:literal $d2:literal;)*) => {
        /// The 24 workloads in the order of the document.
        pub const TABLE: [Published; 24] = [$(Published {
            name: $name,
            rss_kib: $rss,
            runtime: [$orig, $mprs, $plrus],
            major_faults: [$f1, $f2],
            stall_ms: [$s1, $s2],
            worker_percent: $cpu,
            deviation: [$d1, $d2],
        }),*];
    };
}

table! {
    "parsec3/blackscholes" 586064 139.48 139.42 140.14 386.0 2062.0 85.0 98.0 2.38 0.51 0.65;
    "parsec3/bodytrack" 32426 126.91 127.05 127.75 40695.0 48911.0 371.0 370.0 2.37 0.78 0.85;
    "parsec3/canneal" 843855 200.94 346.51 349.44 6482694.0 6174680.0 16038.0 15604.0 3.83 19.37 21.60;
    "parsec3/dedup" 1171423 18.18 18.89 19.29 1353.0 2550.0 71.0 72.0 1.16 0.40 0.39;
    "parsec3/facesim" 311780 344.63 350.86 352.77 20429.0 21374.0 70.0 70.0 2.58 7.08 5.75;
    "parsec3/fluidanimate" 531966 338.01 340.29 343.07 320221.0 430100.0 2307.0 2656.0 2.57 5.60 5.27;
    "parsec3/freqmine" 552523 435.75 436.92 437.41 10322.0 12252.0 101.0 102.0 2.62 2.62 2.03;
    "parsec3/raytrace" 889642 183.93 187.39 188.11 52213.0 56630.0 183.0 200.0 2.49 3.82 3.24;
    "parsec3/streamcluster" 110978 666.68 2771.92 2467.70 190689617.0 160414320.0 124421.0 106839.0 3.17 496.68 799.70;
    "parsec3/swaptions" 5762 221.11 221.09 220.72 515.0 3401.0 2.0 20.0 2.51 1.52 1.84;
    "parsec3/vips" 31964 100.61 102.04 103.44 35423.0 47062.0 1715.0 2037.0 2.24 0.87 0.85;
    "parsec3/x264" 81766 118.23 126.89 129.55 310560.0 337961.0 4159.0 4064.0 2.39 8.64 11.19;
    "splash2x/barnes" 1216190 130.66 136.57 137.42 193163.0 186623.0 321.0 367.0 2.62 2.19 2.06;
    "splash2x/fft" 9853371 60.54 98.82 98.88 3015479.0 3114016.0 248.0 162.0 2.37 4.58 3.58;
    "splash2x/lu_cb" 511426 132.52 135.21 135.39 289261.0 285537.0 797.0 722.0 2.44 0.86 0.62;
    "splash2x/lu_ncb" 511054 150.83 153.65 155.88 326881.0 323349.0 901.0 796.0 5.25 2.38 1.93;
    "splash2x/ocean_cp" 3399306 84.27 104.87 109.23 2207951.0 2360336.0 3188.0 3319.0 2.46 5.85 6.08;
    "splash2x/ocean_ncp" 3922976 157.47 220.35 231.74 3858107.0 4070325.0 8083.0 8353.0 2.62 9.30 8.44;
    "splash2x/radiosity" 1470337 142.35 143.76 144.23 21754.0 39284.0 33.0 37.0 2.45 1.45 1.06;
    "splash2x/radix" 2406228 51.02 79.91 81.72 1784823.0 1859767.0 1398.0 1743.0 2.31 3.83 3.62;
    "splash2x/raytrace" 23314 132.92 134.35 135.58 2753.0 8016.0 3.0 21.0 2.44 2.21 1.99;
    "splash2x/volrend" 44236 120.45 120.79 120.80 477.0 2294.0 26.0 22.0 2.41 0.87 0.71;
    "splash2x/water_nsquared" 29446 370.33 387.51 391.62 64591.0 86186.0 340.0 329.0 2.63 7.33 6.39;
    "splash2x/water_spatial" 664232 133.50 142.76 142.93 735702.0 714560.0 1782.0 1299.0 2.46 3.15 2.57;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_add_up_to_the_published_means() {
        let mean = |value: fn(&Published) -> f64| TABLE.iter().map(value).sum::<f64>() / 24.0;
        for (index, published) in RUNTIME.into_iter().enumerate() {
            let ours = TABLE.iter().map(|row| row.runtime[index]).sum::<f64>() / 24.0;
            assert!((ours - published).abs() < 0.01, "{ours} {published}");
        }
        assert!((mean(|row| row.major_faults[0]) / MAJOR_FAULTS[1] - 1.0).abs() < 1e-3);
        assert!((mean(|row| row.stall_ms[1]) * 1000.0 / STALL_US[2] - 1.0).abs() < 1e-3);
        assert!((mean(|row| row.worker_percent) - WORKER_PERCENT).abs() < 0.02);
    }
}
