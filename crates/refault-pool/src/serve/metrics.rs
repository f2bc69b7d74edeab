//! `/metrics`: the pools in OpenMetrics text, which Prometheus reads.
//!
//! Labels are `pool`, and for members `program` and `pid`, of which there are as many as members; ages are five. The
//! page docs/guide/pool.md lists the names.
//!
//! ```
//! use refault_pool::serve::metrics::text;
//! use refault_pool::shared::protocol::Status;
//!
//! let status = Status { pool: "default".into(), memory_bytes: 1 << 30, ..Status::default() };
//! assert!(text(&[status]).contains("refault_pool_memory_bytes{pool=\"default\"} 1073741824"));
//! ```

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use refault_core::statistics::{self, Statistic};
use std::sync::atomic::AtomicU64;

use crate::shared::protocol::{AGES, MemberStatus, Status};

/// What the answer says that it is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Name without prefix and unit, what it is, and the figure.
type Metric<T> = (&'static str, &'static str, fn(&T) -> u64);
/// What it is, and the figure.
type Figure<T> = (Statistic, fn(&T) -> u64);
type Labels = Vec<(&'static str, String)>;
type Sizes = Family<Labels, Gauge>;
type Shares = Family<Labels, Gauge<f64, AtomicU64>>;

/// The text for pools.
pub fn text(statuses: &[Status]) -> String {
    let mut registry = Registry::with_prefix("refault");
    pools(&mut registry, statuses);
    members(&mut registry, statuses);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

fn of_pool(status: &Status) -> Labels {
    vec![("pool", status.pool.clone())]
}

fn of_member(status: &Status, pid: u64, member: &MemberStatus) -> Labels {
    vec![("pool", status.pool.clone()), ("program", member.program.clone()), ("pid", pid.to_string())]
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
        "Bytes by the age of their generation, below so much",
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
            terms: Terms::default(),
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
        let text = text(&[status]);
        for line in [
            "refault_pool_memory_bytes{pool=\"p\"} 10",
            "refault_member_charge_bytes{pool=\"p\",program=\"a\\\"b\\n\",pid=\"3\"} 5",
            "refault_member_would_stop_refaulting_at_bytes{pool=\"p\",program=\"a\\\"b\\n\",pid=\"3\"} 9",
            "refault_member_faults_total{pool=\"p\",program=\"a\\\"b\\n\",pid=\"3\"} 7",
            "refault_member_pressure_ratio{pool=\"p\",program=\"a\\\"b\\n\",pid=\"3\"} 0.25",
            "refault_member_policy_faults_ratio{pool=\"p\",program=\"a\\\"b\\n\",pid=\"3\",policy=\"lru\"} 1.5",
            "refault_member_generations_bytes{pool=\"p\",program=\"a\\\"b\\n\",pid=\"3\",age=\"1s\"} 4",
            "refault_member_generations_bytes{pool=\"p\",program=\"a\\\"b\\n\",pid=\"3\",age=\"10m\"} 3",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
