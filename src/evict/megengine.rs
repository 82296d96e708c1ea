use super::classes::Classes;
use super::{Exponents, Policy, View};
use crate::event::{Event, Hears};
use crate::graph::StorageKey;

/// Evaluation function of MegEngine's dynamic DTR, which MegTaiChi calls DTE:
///
/// ```text
/// (neighbour cost + 1e-3)^a * rerun_factor^recomputed / ((MiB + free neighbours' MiB)^b * (staleness + 1e-3)^c)
/// ```
///
/// The neighbours of a tensor are the inputs and the other outputs of its producer. The cost of the
/// neighbours is summed over union-find classes. The tensor's own cost is left out by default, as
/// in MegEngine's code. The factor `rerun_factor^recomputed` is included, as in MegEngine 1.4.
/// Later versions of MegEngine leave the factor out.
///
/// # Differences from the article
///
/// [`MegEngineArticle`](super::MegEngineArticle) computes bit for bit the scores of the code in the
/// article on MegEngine 1.4. In random programs with many edge cases, the two policies evict
/// different tensors at about 37 % of the choices (`tests/megengine_article.rs`). The edge cases
/// are:
///
/// | | here | in the article |
/// |---|---|---|
/// | an evicted tensor joins its class with those of | evicted inputs, and evicted tensors made of it | evicted inputs and other outputs of its producer |
/// | what joins classes | every eviction | those that the search chose, not those by the user's wish |
/// | a class counts | once | once for each neighbour in it, and each time that one is an input |
/// | a class that costs less than the neighbour alone | counts as it is | counts as the neighbour's own cost |
/// | a restored tensor | leaves its class, and the rest stays together | may take others along, or still represent them |
/// | a tensor that is deleted | takes its cost out of its class | leaves its cost there |
/// | `recomputed` | number of times that the tensor was restored | number of reruns of its op, for all outputs |
/// | 1e-3 beside costs | matters: costs are in units of the clock | negligible: costs are 1e8 times as large |
#[derive(Debug)]
pub struct MegEngine {
    exponents: Exponents,
    own_cost: bool,
    rerun_factor: f64,
    classes: Classes,
}

impl Default for MegEngine {
    fn default() -> Self {
        Self::new(Exponents::default(), false)
    }
}

impl MegEngine {
    /// MegEngine's factor for each rerun.
    pub const RERUN_FACTOR: f64 = 1.0001;

    /// Builds the policy with the given exponents, with or without the tensor's own cost.
    #[must_use]
    pub fn new(exponents: Exponents, own_cost: bool) -> Self {
        let rerun_factor = Self::RERUN_FACTOR;
        Self { exponents, own_cost, rerun_factor, classes: Classes::default() }
    }

    /// Sets the factor for each time that a tensor was recomputed. Default:
    /// [`MegEngine::RERUN_FACTOR`].
    #[must_use]
    pub fn rerun_factor(self, rerun_factor: f64) -> Self {
        Self { rerun_factor, ..self }
    }
}

impl Policy for MegEngine {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let graph = view.graph;
        let own = if self.own_cost { graph.own_cost(candidate) } else { 0.0 };
        let around =
            self.classes.cost_of(graph.sources(candidate).chain(graph.siblings(candidate)));
        let free = view.free_neighbour_bytes(candidate) as f64 / f64::from(1 << 20);
        let again = self.rerun_factor.powi(graph.storage(candidate).recomputed.min(1 << 20) as i32);
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
