use super::classes::Classes;
use super::{Exponents, Policy, View};
use crate::event::{Event, Hears};
use crate::graph::StorageKey;

/// The evaluation function of MegEngine's dynamic DTR, which MegTaiChi calls DTE:
///
/// ```text
/// (neighbour cost + 1e-3)^a * 1.0001^recomputed / ((MiB + free neighbours' MiB)^b * (staleness + 1e-3)^c)
/// ```
///
/// The neighbours are the inputs and sibling outputs of the producer, with union-find classes. As in
/// MegEngine's code the tensor's own cost is left out by default; unlike there, `recomputed` counts.
#[derive(Debug, Default)]
pub struct MegEngine {
    exponents: Exponents,
    own_cost: bool,
    classes: Classes,
}

impl MegEngine {
    /// With exponents, and with or without the tensor's own cost.
    #[must_use]
    pub fn new(exponents: Exponents, own_cost: bool) -> Self {
        Self { exponents, own_cost, classes: Classes::default() }
    }
}

impl Policy for MegEngine {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let graph = view.graph;
        let own = if self.own_cost { graph.own_cost(candidate) } else { 0.0 };
        let around =
            self.classes.cost_of(graph.sources(candidate).chain(graph.siblings(candidate)));
        let free = view.free_neighbour_bytes(candidate) as f64 / f64::from(1 << 20);
        let again = 1.0001f64.powi(graph.storage(candidate).recomputed.min(1 << 20) as i32);
        let cost = own + around + 1e-3;
        let bytes = view.mebibytes(candidate) + free;
        let staleness = view.staleness(candidate) + 1e-3;
        if self.exponents == Exponents::default() {
            return cost * again / (bytes * staleness);
        }
        let Exponents { cost: a, bytes: b, staleness: c } = self.exponents;
        cost.powf(a) * again / (bytes.powf(b) * staleness.powf(c))
    }

    fn hears(&self) -> Hears {
        Hears::EVICTIONS
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        match *event {
            Event::DidEvict { storage, .. } => self.classes.join(storage, view.graph),
            Event::DidRegenerate { storage, .. } | Event::WillForget { storage } => {
                self.classes.leave(storage);
            }
            _ => {}
        }
    }
}
