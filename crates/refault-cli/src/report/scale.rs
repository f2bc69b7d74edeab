//! From figures to places on paper: nice ticks, linear and logarithmic scales.

use refault_console::text::{grouped, number};

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Equal differences, equal distances.
    Linear,
    /// Equal factors, equal distances. Values must be above 0.
    Logarithmic,
}

/// An axis: what it shows and from where to where.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is shown, with its unit: `memory (MiB)`.
    pub title: String,
    /// How values are spread.
    pub spread: Spread,
    /// Value at the origin.
    pub low: f64,
    /// Value at the far end, above `low`.
    pub high: f64,
    /// Where ticks are, with their labels.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From 0 to at least `high`, with about `count` round ticks.
    pub fn linear(title: &str, high: f64, count: usize, label: impl Fn(f64) -> String) -> Axis {
        let high = if high > 0.0 && high.is_finite() { high } else { 1.0 };
        let step = nice_step(high / count as f64);
        let steps = (high / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=steps as usize).map(|i| i as f64 * step).map(|value| (value, label(value))).collect();
        Axis { title: title.to_string(), spread: Spread::Linear, low: 0.0, high: step * steps, ticks }
    }

    /// From 0 to exactly `high`, ticks below it.
    pub fn exact(title: &str, high: f64, count: usize, label: impl Fn(f64) -> String) -> Axis {
        let mut axis = Axis::linear(title, high, count, label);
        axis.high = if high > 0.0 { high } else { 1.0 };
        axis.ticks.retain(|(value, _)| *value <= axis.high * 1.000_001);
        axis
    }

    /// Powers of two from `low` to `high`, both above 0.
    pub fn powers_of_two(title: &str, low: f64, high: f64, count: usize, label: impl Fn(f64) -> String) -> Axis {
        let (low, high) = (low.max(f64::MIN_POSITIVE), high.max(low * 2.0));
        let (first, last) = (low.log2().ceil() as i32, high.log2().floor() as i32);
        let every = ((last - first) as usize / count.max(1) + 1) as i32;
        let ticks =
            (first..=last).filter(|e| (last - e) % every == 0).map(|e| f64::from(e).exp2()).map(|v| (v, label(v)));
        Axis { title: title.to_string(), spread: Spread::Logarithmic, low, high, ticks: ticks.collect() }
    }

    /// Where a value lies: 0 at the origin, 1 at the far end; values outside are put at the ends.
    pub fn place(&self, value: f64) -> f64 {
        let at = match self.spread {
            Spread::Linear => (value - self.low) / (self.high - self.low),
            Spread::Logarithmic => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        at.clamp(0.0, 1.0)
    }
}

/// A figure at a tick: in groups of three digits, from a million on in millions.
pub fn tick(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{} M", number(value / 1e6)),
        v if v >= 1e4 => grouped(value.round() as u64),
        _ => number(value),
    }
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `step`.
fn nice_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    for factor in [1.0, 2.0, 2.5, 5.0] {
        if factor * power >= step * (1.0 - 1e-9) {
            return factor * power;
        }
    }
    10.0 * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_the_values() {
        let axis = Axis::linear("", 87.0, 5, |v| format!("{v}"));
        assert_eq!(axis.ticks.iter().map(|(v, _)| *v).collect::<Vec<_>>(), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!((axis.place(0.0), axis.place(50.0), axis.place(1e9)), (0.0, 0.5, 1.0));
        assert_eq!(Axis::linear("", 0.0, 5, |v| format!("{v}")).high, 1.0);
    }

    #[test]
    fn ticks_can_be_read() {
        assert_eq!([5.0, 9000.0, 150_000.0, 2_500_000.0].map(tick), ["5", "9000", "150,000", "2.5 M"]);
    }

    #[test]
    fn logarithmic_axes_tick_at_powers_of_two() {
        let axis = Axis::powers_of_two("", 3.0, 70.0, 9, |v| format!("{v}"));
        assert_eq!(axis.ticks.iter().map(|(v, _)| *v).collect::<Vec<_>>(), [4.0, 8.0, 16.0, 32.0, 64.0]);
        assert_eq!((axis.place(3.0), axis.place(70.0)), (0.0, 1.0));
    }
}
