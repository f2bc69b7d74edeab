//! fio's option `random_distribution`.

use std::fmt;

/// Zones that a law may have: each has at least one of a hundred accesses.
const PERCENT: u64 = 100;

/// How a job chooses its next block.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Distribution {
    /// Every block equally likely.
    Random,
    /// In proportion to 1/rank^theta.
    Zipf { theta: f64, center: Option<f64> },
    /// Pareto's law of that power.
    Pareto { power: f64, center: Option<f64> },
    /// The mean of twelve draws and a deviation, in percent of the blocks.
    Normal { deviation: f64, center: Option<f64> },
    /// Shares of the accesses for shares of the file, both in percent.
    Zoned(Vec<[u64; 2]>),
}

impl Distribution {
    /// Reads the option's value as fio does.
    pub(super) fn parse(text: &str) -> Result<Distribution, String> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        if name == "zoned" {
            return zones(rest).map(Distribution::Zoned);
        }
        if name == "random" && rest.is_empty() {
            return Ok(Distribution::Random);
        }
        let mut numbers = rest.split(':').filter(|number| !number.is_empty()).map(|number| {
            let parsed = number.parse::<f64>().ok().filter(|value| value.is_finite());
            parsed.ok_or_else(|| format!("'{number}' is not a number"))
        });
        let (first, center) = (numbers.next().transpose()?, numbers.next().transpose()?);
        if numbers.next().is_some() {
            return Err("expected at most a number and a centre behind the name".into());
        }
        if center.is_some_and(|center| !(0.0..=1.0).contains(&center)) {
            return Err("the centre must be from 0 to 1".into());
        }
        let of = |default: f64, taken: fn(f64) -> bool, range: &str| {
            let value = first.unwrap_or(default);
            if taken(value) { Ok(value) } else { Err(format!("{name} takes {range}, not {value}")) }
        };
        match name {
            "zipf" => {
                let theta = of(DEFAULT_THETA, |theta| (0.0..=MAX_THETA).contains(&theta) && theta != 1.0, THETAS)?;
                Ok(Distribution::Zipf { theta, center })
            }
            "pareto" => {
                let power = of(DEFAULT_POWER, |power| power > 0.0 && power < 1.0, "a number between 0 and 1")?;
                Ok(Distribution::Pareto { power, center })
            }
            "normal" => {
                let whole = 0.0..=PERCENT as f64;
                let deviation = first.unwrap_or(0.0);
                if !whole.contains(&deviation) {
                    return Err(format!("normal takes a number from 0 to 100, not {deviation}"));
                }
                Ok(Distribution::Normal { deviation, center })
            }
            _ => Err("there are random, zipf:THETA, pareto:POWER, normal:PERCENT, each with :CENTRE, and \
                      zoned:ACCESSES/SIZE:..."
                .into()),
        }
    }
}

const DEFAULT_THETA: f64 = 1.1;
const DEFAULT_POWER: f64 = 0.2;
const MAX_THETA: f64 = 100.0;
const THETAS: &str = "a number from 0 to 100 other than 1";

/// The pairs of a zoned law.
fn zones(text: &str) -> Result<Vec<[u64; 2]>, String> {
    let percent = |text: &str| text.parse::<u64>().ok().filter(|percent| *percent <= PERCENT);
    let pair = |text: &str| {
        let (accesses, size) = text.split_once('/')?;
        Some([percent(accesses)?, percent(size)?])
    };
    let zones = text
        .split(':')
        .filter(|zone| !zone.is_empty())
        .map(|zone| pair(zone).ok_or_else(|| format!("'{zone}' is not ACCESSES/SIZE, both in percent, as 60/10")));
    let zones = zones.collect::<Result<Vec<_>, _>>()?;
    let sum = |which: usize| zones.iter().map(|zone| zone[which]).sum::<u64>();
    if sum(0) != PERCENT {
        return Err(format!("the shares of the accesses make {} percent, not 100", sum(0)));
    }
    if sum(1) > PERCENT {
        return Err(format!("the shares of the file make {} percent, more than 100", sum(1)));
    }
    Ok(zones)
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number, center) = match self {
            Distribution::Random => return write!(f, "random"),
            Distribution::Zipf { theta, center } => ("zipf", theta, center),
            Distribution::Pareto { power, center } => ("pareto", power, center),
            Distribution::Normal { deviation, center } => ("normal", deviation, center),
            Distribution::Zoned(zones) => {
                write!(f, "zoned")?;
                return zones.iter().try_for_each(|[accesses, size]| write!(f, ":{accesses}/{size}"));
            }
        };
        write!(f, "{name}:{number}")?;
        center.map_or(Ok(()), |center| write!(f, ":{center}"))
    }
}
