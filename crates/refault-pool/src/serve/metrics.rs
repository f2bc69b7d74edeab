//! `/metrics`: the pools for Prometheus, in its own text and as OpenMetrics.
//!
//! Labels are `pool`, and for members `program`, `name` and `pid`, of which there are as many as members; ages are
//! five, and codes of answers a score. The page docs/reference/metrics.md lists the names.
//!
//! ```
//! use refault_pool::serve::metrics::{open, plain};
//! use refault_pool::serve::traffic::Figures;
//! use refault_pool::shared::protocol::Status;
//!
//! let status = Status { pool: "default".into(), memory_bytes: 1 << 30, ..Status::default() };
//! let text = open(&[status], &[], &Figures::default());
//! assert!(text.contains("refault_pool_memory_bytes{pool=\"default\"} 1073741824"));
//! assert!(text.ends_with("# EOF\n") && !plain(&text).contains("# EOF"));
//! ```

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use refault_core::statistics::{self, Statistic};

use super::traffic::{Figures as TrafficFigures, Kind};
use crate::shared::protocol::{AGES, MemberStatus, Status};

/// Name without prefix and unit, what it is, and the figure.
type Metric<T> = (&'static str, &'static str, fn(&T) -> u64);
/// What it is, and the figure.
type Figure<T> = (Statistic, fn(&T) -> u64);
/// The same of a group, where it is known.
type KnownMetric = (&'static str, &'static str, fn(&GroupFigures) -> Option<u64>);
type Labels = Vec<(&'static str, String)>;
type Sizes = Family<Labels, Gauge>;
type Shares = Family<Labels, Gauge<f64, AtomicU64>>;

/// OpenMetrics of pools, and of the window itself.
pub fn open(statuses: &[Status], groups: &[GroupFigures], traffic: &TrafficFigures) -> String {
    let mut registry = Registry::with_prefix("refault");
    pools(&mut registry, statuses);
    members(&mut registry, statuses);
    host(&mut registry, groups);
    window(&mut registry, traffic);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

/// The same in Prometheus's own text, version 0.0.4: there a counter's name is that of its samples, and neither units
/// nor an end are told.
pub fn plain(open: &str) -> String {
    let counter = |line: &str| Some(line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?.to_owned());
    let counters: HashSet<String> = open.lines().filter_map(counter).collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        let described = line.strip_prefix("# ").and_then(|rest| {
            let (kind, rest) = rest.split_once(' ')?;
            let (name, rest) = rest.split_once(' ')?;
            counters.contains(name).then(|| format!("# {kind} {name}_total {rest}"))
        });
        text.push_str(described.as_deref().unwrap_or(line));
        text.push('\n');
    }
    text
}

/// Groups of a host that have labels of their own: those that use most. The sums over all others stand under
/// [`OTHERS`], so the number of labels is bounded whatever groups there are.
pub const MAX_GROUPS: usize = 100;
/// The label of all groups beyond [`MAX_GROUPS`]; no path is called so.
pub const OTHERS: &str = "(others)";

/// The figures of a control group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupFigures {
    /// Its path, printable.
    pub group: String,
    /// Bytes charged to it and those below it.
    pub usage_bytes: u64,
    /// Bytes accessed in the longest window that is known.
    pub working_set_bytes: Option<u64>,
    /// The limit that would do.
    pub high_bytes: Option<u64>,
    /// Pages that came back soon after they were evicted.
    pub refaults: u64,
    /// Share of time in which something waited for memory.
    pub pressure: Option<f64>,
}

fn host(registry: &mut Registry, groups: &[GroupFigures]) {
    if groups.is_empty() {
        return;
    }
    let mut groups = groups.to_vec();
    groups.sort_by(|one, two| two.usage_bytes.cmp(&one.usage_bytes).then(one.group.cmp(&two.group)));
    let others = groups.split_off(groups.len().min(MAX_GROUPS));
    if !others.is_empty() {
        let sum = |figure: fn(&GroupFigures) -> u64| others.iter().map(figure).fold(0, u64::saturating_add);
        groups.push(GroupFigures {
            group: OTHERS.to_owned(),
            usage_bytes: sum(|group| group.usage_bytes),
            working_set_bytes: Some(sum(|group| group.working_set_bytes.unwrap_or(0))),
            high_bytes: Some(sum(|group| group.high_bytes.unwrap_or(0))),
            refaults: sum(|group| group.refaults),
            pressure: None,
        });
    }
    let labels = |group: &GroupFigures| vec![("group", group.group.clone())];
    let sizes: [KnownMetric; 3] = [
        ("host_usage", "Bytes charged to a control group and those below it", |group| Some(group.usage_bytes)),
        ("host_working_set", "Bytes accessed in the longest window that is known", |group| group.working_set_bytes),
        ("host_proposed_high", "The limit that would do", |group| group.high_bytes),
    ];
    for (name, help, figure) in sizes {
        let family = Sizes::default();
        for group in &groups {
            if let Some(bytes) = figure(group) {
                family.get_or_create(&labels(group)).set(bytes as i64);
            }
        }
        registry.register_with_unit(name, help, Unit::Bytes, family);
    }
    let refaults: Family<Labels, Counter> = Family::default();
    let pressure = Shares::default();
    for group in &groups {
        refaults.get_or_create(&labels(group)).inc_by(group.refaults);
        if let Some(share) = group.pressure {
            pressure.get_or_create(&labels(group)).set(share);
        }
    }
    registry.register("host_refaults", "Pages that came back soon after they were evicted", refaults);
    registry.register_with_unit(
        "host_pressure",
        "Share of time in which something waited for memory",
        Unit::Ratios,
        pressure,
    );
}

fn of_pool(status: &Status) -> Labels {
    vec![("pool", status.pool.clone())]
}

fn of_member(status: &Status, pid: u64, member: &MemberStatus) -> Labels {
    vec![
        ("pool", status.pool.clone()),
        ("program", member.program.clone()),
        ("name", member.name.clone()),
        ("pid", pid.to_string()),
    ]
}

fn pools(registry: &mut Registry, statuses: &[Status]) {
    let figures: [Metric<Status>; 3] = [
        ("pool_memory", "Bytes that the members may use together", |status| status.memory_bytes),
        ("pool_committed", "Bytes that members may be using", |status| status.committed_bytes),
        ("pool_charge", "Bytes that members use", |status| status.charge_bytes),
    ];
    for (name, help, figure) in figures {
        let family = Sizes::default();
        for status in statuses {
            family.get_or_create(&of_pool(status)).set(figure(status) as i64);
        }
        registry.register_with_unit(name, help, Unit::Bytes, family);
    }
}

fn members(registry: &mut Registry, statuses: &[Status]) {
    let all =
        || statuses.iter().flat_map(|status| status.members.iter().map(move |(pid, member)| (status, *pid, member)));
    let sizes: [Figure<MemberStatus>; 7] = [
        (statistics::GRANT, |member| member.grant_bytes),
        (statistics::CHARGE, |member| member.figures.charge),
        (statistics::PEAK, |member| member.figures.peak),
        (statistics::RESIDENT, |member| member.figures.resident),
        (statistics::COMPRESSED, |member| member.figures.compressed),
        (statistics::STORED_BYTES, |member| member.figures.stored),
        (statistics::ADVICE_BYTES, |member| member.figures.would_stop_refaulting_at.unwrap_or(member.grant_bytes)),
    ];
    for (statistic, figure) in sizes {
        let family = Sizes::default();
        all().for_each(|(status, pid, member)| {
            family.get_or_create(&of_member(status, pid, member)).set(figure(member) as i64);
        });
        registry.register_with_unit(of_members(statistic), statistic.meaning, Unit::Bytes, family);
    }
    let waited = Family::<Labels, Counter<f64, AtomicU64>>::default();
    all().for_each(|(status, pid, member)| {
        let seconds = member.figures.waited_in_all as f64 / 1e9;
        waited.get_or_create(&of_member(status, pid, member)).inc_by(seconds);
    });
    registry.register_with_unit(of_members(statistics::WAITED), statistics::WAITED.meaning, Unit::Seconds, waited);
    let ages = Sizes::default();
    let answers = Sizes::default();
    let policies = Shares::default();
    let pressure = Shares::default();
    for (status, pid, member) in all() {
        let labels = of_member(status, pid, member);
        answers.get_or_create(&labels).set(i64::from(member.answers));
        pressure.get_or_create(&labels).set(member.pressure);
        for (policy, times) in &member.figures.policies {
            let labels = [labels.clone(), vec![("policy", policy.clone())]].concat();
            policies.get_or_create(&labels).set(*times);
        }
        for (bytes, (age, _)) in status.bytes_by_age(member).into_iter().zip(AGES) {
            let labels = [labels.clone(), vec![("age", age.to_owned())]].concat();
            ages.get_or_create(&labels).set(bytes as i64);
        }
    }
    registry.register_with_unit(
        "member_generations",
        "Bytes by the age of their generation; the label is the upper bound",
        Unit::Bytes,
        ages,
    );
    registry.register("member_answers", "1 if the member answers within a second", answers);
    registry.register(
        "member_policy_faults_ratio",
        "Faults that another policy would have had lately for each of the member's own",
        policies,
    );
    let name = of_members(statistics::PRESSURE) + "_ratio";
    registry.register(name, statistics::PRESSURE.meaning, pressure);
    let counts: [Figure<MemberStatus>; 2] = [
        (statistics::FAULTS, |member| member.figures.faults),
        (statistics::REFAULTS, |member| member.figures.refaults),
    ];
    for (statistic, figure) in counts {
        let family = Family::<Labels, Counter>::default();
        all().for_each(|(status, pid, member)| {
            family.get_or_create(&of_member(status, pid, member)).inc_by(figure(member));
        });
        registry.register(of_members(statistic), statistic.meaning, family);
    }
}

/// The name of a member's metric, without the unit, which the registry adds.
fn of_members(statistic: Statistic) -> String {
    let name = statistic.name.trim_end_matches(statistic.unit.suffix()).trim_end_matches('_');
    format!("member_{name}")
}

/// What clients ask of the window.
fn window(registry: &mut Registry, traffic: &TrafficFigures) {
    let taken = Sizes::default();
    let refused = Family::<Labels, Counter>::default();
    for (kind, (count, by_limit)) in Kind::ALL.into_iter().zip(traffic.taken.into_iter().zip(traffic.refused)) {
        let labels = vec![("kind", kind.label().to_owned())];
        taken.get_or_create(&labels).set(count as i64);
        for (limit, count) in ["all", "client"].into_iter().zip(by_limit) {
            let labels = [labels.clone(), vec![("limit", limit.to_owned())]].concat();
            refused.get_or_create(&labels).inc_by(count);
        }
    }
    let answers = Family::<Labels, Counter>::default();
    for (code, count) in &traffic.answers {
        answers.get_or_create(&vec![("code", code.to_string())]).inc_by(*count);
    }
    registry.register("serve_connections", "Connections that are served", taken);
    registry.register("serve_refused", "Connections for which there was no place, in all or for one client", refused);
    registry.register("serve_answers", "Answers by their code", answers);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::ledger::{Figures, Terms};

    #[test]
    fn names_have_units_and_labels_are_escaped() {
        let figures =
            Figures { charge: 5, faults: 7, generations: vec![[0, 3], [99_500_000_000, 4]], ..Figures::default() };
        let figures = Figures { policies: vec![("lru".to_owned(), 1.5)], ..figures };
        let member = MemberStatus {
            program: "a\"b\n".to_owned(),
            name: "web".to_owned(),
            terms: Terms::default(),
            budget_bytes: None,
            grant_bytes: 9,
            committed_bytes: 9,
            answers: true,
            pressure: 0.25,
            figures,
        };
        let status = Status {
            pool: "p".to_owned(),
            memory_bytes: 10,
            now: 100_000_000_000,
            members: [(3, member)].into(),
            ..Status::default()
        };
        let traffic = TrafficFigures { taken: [2, 1], refused: [[0, 3], [0, 0]], answers: [(200, 9)].into() };
        let text = open(&[status], &[], &traffic);
        for line in [
            "refault_pool_memory_bytes{pool=\"p\"} 10",
            "refault_member_charge_bytes{pool=\"p\",program=\"a\\\"b\\n\",name=\"web\",pid=\"3\"} 5",
            "refault_member_would_stop_refaulting_at_bytes{pool=\"p\",program=\"a\\\"b\\n\",name=\"web\",pid=\"3\"} 9",
            "refault_member_faults_total{pool=\"p\",program=\"a\\\"b\\n\",name=\"web\",pid=\"3\"} 7",
            "refault_member_pressure_ratio{pool=\"p\",program=\"a\\\"b\\n\",name=\"web\",pid=\"3\"} 0.25",
            "refault_member_policy_faults_ratio{pool=\"p\",program=\"a\\\"b\\n\",name=\"web\",pid=\"3\",policy=\"lru\"} 1.5",
            "refault_member_generations_bytes{pool=\"p\",program=\"a\\\"b\\n\",name=\"web\",pid=\"3\",age=\"1s\"} 4",
            "refault_member_generations_bytes{pool=\"p\",program=\"a\\\"b\\n\",name=\"web\",pid=\"3\",age=\"10m\"} 3",
            "refault_serve_connections{kind=\"request\"} 2",
            "refault_serve_refused_total{kind=\"request\",limit=\"client\"} 3",
            "refault_serve_refused_total{kind=\"stream\",limit=\"all\"} 0",
            "refault_serve_answers_total{code=\"200\"} 9",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(text.contains("# TYPE refault_member_faults counter\n"));
        // Samples are the same; what describes a counter names its samples.
        let plain = plain(&text);
        let samples = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
        };
        assert_eq!(samples(&plain), samples(&text));
        for line in [
            "# TYPE refault_member_faults_total counter\n",
            "# HELP refault_member_faults_total ",
            "# TYPE refault_pool_memory_bytes gauge\n",
        ] {
            assert!(plain.contains(line), "{line} is not in\n{plain}");
        }
        assert!(!plain.contains("# UNIT") && !plain.contains("# EOF"));
    }

    #[test]
    fn however_many_groups_there_are_labels_are_bounded_and_sums_are_kept() {
        let group = |number: u64| GroupFigures {
            group: format!("/a\"b\\{number}"),
            usage_bytes: number,
            refaults: 1,
            ..GroupFigures::default()
        };
        let groups: Vec<GroupFigures> = (0..5000).map(group).collect();
        let text = open(&[], &groups, &TrafficFigures::default());
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("refault_host_usage_bytes{")).collect();
        assert_eq!(lines.len(), MAX_GROUPS + 1);
        let sum: u64 = lines.iter().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum();
        assert_eq!(sum, (0..5000).sum::<u64>());
        assert!(text.contains("refault_host_refaults_total{group=\"(others)\"} 4900"), "{text}");
        assert!(text.contains("group=\"/a\\\"b\\\\4999\""), "{}", lines[0]);
        assert!(!open(&[], &[], &TrafficFigures::default()).contains("refault_host_"));
    }
}
