//! One policy, step by step: for teaching and for looking closely.

use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use refault::policy::FrontEnd;
use refault::policy::registry::{BuildContext, Fact, PolicySpec, Visitor, visit};
use refault::sim::flat_memory::Swap;
use refault::sim::{Access, Layout, LayoutBuilder, Limits, Replay};
use refault::trace::{Entry, Kind};

use crate::traces::kind_of;

/// More pages are for a trace, not for steps by hand.
const MAX_PAGES: u64 = 1 << 24;

/// A replay of whatever policy.
trait Step: Send {
    fn access(&mut self, access: Access) -> bool;
    fn is_resident(&self, page: u64) -> bool;
    fn counters(&self) -> Vec<(&'static str, u64)>;
}

impl<P: refault::Policy + Send> Step for Replay<P> {
    fn access(&mut self, access: Access) -> bool {
        let before = self.outcome().misses;
        self.run(std::slice::from_ref(&access));
        self.outcome().misses == before
    }

    fn is_resident(&self, page: u64) -> bool {
        self.memory().is_resident(page as u32)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let outcome = self.outcome();
        let own = [("accesses", outcome.accesses), ("hits", outcome.hits), ("misses", outcome.misses)];
        let names = refault::Counters::NAMES.iter().copied();
        own.into_iter().chain(names.zip(outcome.counters.values().iter().copied())).collect()
    }
}

struct Start<'a> {
    layout: &'a Layout,
    limits: Limits,
}

impl Visitor for Start<'_> {
    type Output = Box<dyn Step>;

    fn visit<P: refault::Policy + Send + 'static>(self, policy: P) -> Box<dyn Step> {
        Box::new(Replay::new(self.layout, policy, self.limits))
    }
}

struct Inside {
    step: Box<dyn Step>,
    /// All accesses so far, from which a second memory in the same state can be made.
    history: Vec<Access>,
}

/// A policy over a memory of a fixed number of pages.
#[pyclass(frozen, module = "refault._refault")]
pub struct Policy {
    spec: PolicySpec,
    layout: Layout,
    limits: Limits,
    pages: u64,
    kind: Kind,
    inside: Mutex<Inside>,
}

impl Policy {
    fn start(spec: &PolicySpec, layout: &Layout, limits: Limits) -> Box<dyn Step> {
        visit(spec, &BuildContext::default(), Start { layout, limits })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn entry(&self, page: u64, write: bool) -> Access {
        let mut accesses = Vec::with_capacity(1);
        self.layout.translate(&[Entry::new(page, self.kind, write)], &mut accesses);
        accesses[0]
    }

    fn id(&self, page: u64) -> u64 {
        u64::from(self.entry(page, false).page())
    }
}

#[pymethods]
impl Policy {
    #[new]
    fn new(name: &str, memory_pages: u64, pages: u64, kind: &str) -> PyResult<Policy> {
        let wrong = |error: refault::policy::PolicyError| PyValueError::new_err(error.to_string());
        let spec = PolicySpec::parse_for(name, FrontEnd::Replay).map_err(wrong)?;
        if spec.entry.is(Fact::NeedsFuture) {
            let name = &spec.label;
            return Err(PyValueError::new_err(format!("'{name}' must know all accesses to come: use refault.compare")));
        }
        let kind = kind_of(kind)?;
        if !(1..=MAX_PAGES).contains(&pages) || !(1..=MAX_PAGES).contains(&memory_pages) {
            return Err(PyValueError::new_err(format!("memory_pages and pages are from 1 to {MAX_PAGES}")));
        }
        let mut builder = LayoutBuilder::new();
        // One page more than can be named: the newcomer of `next_victims`.
        let entries: Vec<Entry> = (0..=pages).map(|page| Entry::new(page, kind, false)).collect();
        builder.observe(&entries);
        let layout = builder.finish().map_err(|error| PyValueError::new_err(error.to_string()))?;
        let swap = Swap::default();
        let limits = Limits { memory_pages: memory_pages as usize, swap };
        let inside = Inside { step: Policy::start(&spec, &layout, limits), history: Vec::new() };
        Ok(Policy { spec, layout, limits, pages, kind, inside: Mutex::new(inside) })
    }

    #[getter]
    fn name(&self) -> &str {
        &self.spec.label
    }

    /// Accesses a page; whether it was in memory.
    fn access(&self, page: u64, write: bool) -> PyResult<bool> {
        if page >= self.pages {
            return Err(PyIndexError::new_err(format!("page {page} of {}", self.pages)));
        }
        let access = self.entry(page, write);
        let mut inside = self.inside();
        inside.history.push(access);
        Ok(inside.step.access(access))
    }

    /// The pages in memory, ascending.
    fn resident(&self) -> Vec<u64> {
        let inside = self.inside();
        (0..self.pages).filter(|page| inside.step.is_resident(self.id(*page))).collect()
    }

    /// The pages that would leave if one more came in. All accesses are replayed in a second memory.
    fn next_victims(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| {
            let inside = self.inside();
            let mut twin = Policy::start(&self.spec, &self.layout, self.limits);
            inside.history.iter().for_each(|access| {
                twin.access(*access);
            });
            twin.access(self.entry(self.pages, false));
            let left = |page: &u64| inside.step.is_resident(self.id(*page)) && !twin.is_resident(self.id(*page));
            (0..self.pages).filter(left).collect()
        })
    }

    /// Accesses, hits, misses, and the policy's counters.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inside().step.counters()
    }
}
