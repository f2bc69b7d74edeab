//! The pictures of a scenario's run: counters over time.

use refault_core::frames::MAX_ORDER;
use refault_core::policy::GenerationSize;
use refault_sim::machine::report::{Report, Sample};

use crate::experiment::{Chart, Series};

/// Generations, pressure, refaults, CPU in reclaim, free memory and throughput over time. Without samples they are empty.
pub fn charts(report: &Report) -> Vec<Chart> {
    let samples = &report.samples;
    let line = |name: &str, value: &dyn Fn(&Sample) -> f64| Series {
        name: name.into(),
        points: samples.iter().map(|sample| (sample.at as f64 / 1e9, value(sample))).collect(),
    };
    let rate = |name: &str, count: &dyn Fn(&Sample) -> u64| {
        let points = samples.windows(2).map(|pair| {
            let seconds = (pair[1].at - pair[0].at) as f64 / 1e9;
            (pair[1].at as f64 / 1e9, (count(&pair[1]) - count(&pair[0])) as f64 / seconds)
        });
        Series { name: name.into(), points: points.collect() }
    };
    let chart = |title: &str, y: &str, stacked: bool, series: Vec<Series>| Chart {
        title: title.into(),
        x_axis: "simulated time, s".into(),
        y_axis: y.into(),
        stacked,
        series,
    };
    let mut charts = Vec::new();
    let generations = samples.iter().flat_map(|sample| &sample.generations).map(Vec::len).max().unwrap_or(0);
    if generations > 0 {
        // The youngest on top, as everywhere.
        let bands = (0..generations).rev().map(|age| {
            let name = if age == 0 { "youngest".to_string() } else { format!("{age} older") };
            line(&name, &|sample| sample.generations.iter().map(|list| by_age(list, age)).sum::<u64>() as f64)
        });
        charts.push(chart("Generations", "pages, all groups and both types", true, bands.collect()));
    }
    charts.push(chart(
        "Memory pressure",
        "percent of the last 10 s",
        false,
        vec![line("some", &|s| s.some.averages[0]), line("full", &|s| s.full.averages[0])],
    ));
    charts.push(chart(
        "Refaults",
        "pages per second",
        false,
        vec![
            rate("anon", &|s| s.counters.workingset_refault_anon),
            rate("file", &|s| s.counters.workingset_refault_file),
        ],
    ));
    charts.push(chart(
        "CPU in reclaim",
        "CPUs",
        false,
        ["kswapd", "direct", "limit"]
            .iter()
            .enumerate()
            .map(|(who, name)| {
                let mut series = rate(name, &|s| s.ledgers[who].total());
                series.points.iter_mut().for_each(|point| point.1 /= 1e9);
                series
            })
            .collect(),
    ));
    if report.frames.is_some() {
        charts.extend(frames_charts(&chart, &line, &rate));
    }
    charts.push(chart("Throughput", "operations per second", false, vec![rate("all tasks", &|s| s.operations)]));
    charts
}

/// A picture from title, unit, whether series are stacked, and series.
type Draw<'a> = dyn Fn(&str, &str, bool, Vec<Series>) -> Chart + 'a;
/// A series from its name and what it shows of a sample.
type Over<'a, T> = dyn Fn(&str, &dyn Fn(&Sample) -> T) -> Series + 'a;

/// Free memory by order, how much of it large requests cannot use, and requests that were not met.
fn frames_charts(chart: &Draw, line: &Over<f64>, rate: &Over<u64>) -> Vec<Chart> {
    let free = |sample: &Sample| sample.frames.map(|frames| frames.free).unwrap_or_default();
    let by_order = (0..=MAX_ORDER as usize)
        .map(|order| line(&format!("order {order}"), &|s| (free(s).blocks[order] << order) as f64));
    let unusable = [2, 4, 6, 9].map(|order| line(&format!("order {order}"), &|s| free(s).unusable_free_index(order)));
    let counts = |sample: &Sample| sample.frames.map(|frames| frames.counts).unwrap_or_default();
    let missed = vec![
        rate("huge pages not given", &|s| counts(s).thp_fault_fallback),
        rate("buffers after reclaim", &|s| counts(s).buffers_stalled),
        rate("buffers not given", &|s| counts(s).buffers_failed),
    ];
    vec![
        chart("Free memory by order of its blocks", "pages", true, by_order.collect()),
        chart("Free memory that a request of an order cannot use", "share, 0 to 1", false, unusable.into()),
        chart("Requests for more than one frame", "requests per second", false, missed),
    ]
}

/// Pages of the generation `age` steps older than the youngest.
fn by_age(generations: &[GenerationSize], age: usize) -> u64 {
    generations.iter().rev().nth(age).map_or(0, |generation| generation.pages.iter().sum())
}
