//! The published figures (spec: numbers-damon-freebsd §2), `[before, after]`.

/// Pages cached and reactivated of the build, and its pagers' counts, after seven iterations.
pub(super) const REACTIVATED: [f64; 2] = [21_628.0, 974.0];
pub(super) const CACHED: [f64; 2] = [1_488_937.0, 1_450_744.0];
pub(super) const SWAP_PAGEINS: [f64; 2] = [103.0, 82.0];
pub(super) const SWAP_PAGES_IN: [f64; 2] = [216.0, 214.0];
pub(super) const SWAP_PAGEOUTS: [f64; 2] = [722.0, 714.0];
pub(super) const SWAP_PAGES_OUT: [f64; 2] = [3660.0, 3755.0];
pub(super) const VNODE_PAGEINS: [f64; 2] = [71_410.0, 80_427.0];
pub(super) const VNODE_PAGES_IN: [f64; 2] = [327_242.0, 344_011.0];

/// One line of `time`: user, system and elapsed seconds, block input and output operations, major faults.
pub(super) type TimeLine = [f64; 6];

/// The seven iterations before.
pub(super) const BEFORE: [TimeLine; 7] = [
    [8107.638, 870.706, 1727.65, 39230.0, 22947.0, 30159.0],
    [8249.229, 1132.328, 1756.96, 21033.0, 23833.0, 24275.0],
    [8261.015, 1142.917, 1761.08, 21547.0, 23528.0, 26599.0],
    [8275.331, 1148.902, 1761.31, 20888.0, 23592.0, 26012.0],
    [8250.499, 1141.594, 1755.69, 19731.0, 24045.0, 25485.0],
    [8231.311, 1125.284, 1754.69, 21158.0, 23738.0, 27111.0],
    [8265.856, 1155.000, 1769.14, 21865.0, 23606.0, 30462.0],
];

/// The seven iterations after.
pub(super) const AFTER: [TimeLine; 7] = [
    [8106.276, 888.365, 1723.09, 39169.0, 23504.0, 28154.0],
    [8230.056, 1136.302, 1753.42, 21342.0, 23686.0, 26026.0],
    [8267.191, 1155.911, 1769.01, 21061.0, 24048.0, 26825.0],
    [8269.759, 1154.176, 1765.30, 21532.0, 23582.0, 27906.0],
    [8274.054, 1156.547, 1774.23, 21595.0, 23725.0, 30417.0],
    [8255.385, 1142.794, 1760.60, 21319.0, 24095.0, 28770.0],
    [8217.288, 1127.367, 1757.43, 21333.0, 23527.0, 30406.0],
];

/// Pages cached and reactivated of the database before; after, only that the share did not change.
pub(super) const DATABASE_CACHED: f64 = 1_147_411_011.0;
pub(super) const DATABASE_REACTIVATED: f64 = 5_311_258.0;
pub(super) const DATABASE_SHARE: [f64; 2] = [0.46, 0.46];
