//! MegEngine 1.4's choice of what to evict, to the letter.

mod sets;

use super::{Exponents, Policy, View};
use crate::event::{Cause, Event, Hears};
use crate::graph::{Graph, PathKey, StorageKey};
use sets::Sets;
use slotmap::SecondaryMap;

/// The evaluation function of MegEngine 1.4 as its code has it, to compare with. [`MegEngine`](super::MegEngine)
/// is the one to use.
///
/// ```text
/// (cost around + 1e-3)^a * 1.0001^reruns / ((MiB + free neighbours' MiB)^b * (staleness + 1e-3)^c)
/// ```
///
/// The cost around a tensor is a sum over its neighbours that are evicted: the inputs and the other outputs of
/// its producer. Each adds the cost of its set, or its own if that is more. Sets are kept by union-find: evicting
/// a tensor joins its set with those of its evicted neighbours; bringing it back takes its cost out of the root
/// and makes a root of it. The code counts the cost of an op in bytes read and written, and its clock in 1e8 of
/// those, as [`CostModelKind::Bytes`](crate::CostModelKind::Bytes) does; so the costs of the engine are
/// multiplied by 1e8, whatever the cost model. Reruns count, as in 1.4; in later versions they do not.
/// [`ArticleConstants`] has all the numbers.
///
/// # Kept faults
///
/// - Users are no neighbours, though the text beside the code says so. A tensor's own cost does not count.
/// - A neighbour counts once for each time it is an input, and a set once for each neighbour in it.
/// - Beside a cost in bytes, 1e-3 is nothing. Without evicted neighbours it is all there is: such tensors go first,
///   ranked by bytes and staleness alone.
/// - When a root comes back, the rest of its set keeps it as root: what is left of their sum is replaced by the cost
///   of the one that came back, and they are joined with whatever joins that one.
/// - When another node comes back that nodes still point to, those leave the set with it, while the old root goes
///   on counting their costs. Which ones point to it depends on where roots were looked for before.
/// - So a set may count resident tensors, or one tensor twice, and its cost may fall below 0; then the neighbour's
///   own cost stands in.
/// - Only what the search chose is joined with its neighbours, not what went by deletion or by a user's wish.
/// - Costs of deleted tensors stay in the sums of their sets.
/// - A rerun of a path counts for all its outputs, for those that were resident, too.
///
/// # Faults that cannot occur here
///
/// Recursion to the depth of a set, or of a history; views that keep evicted bytes alive, as storages are evicted;
/// ties broken by the order of a hash table; candidates of one device only.
///
/// # What the engine decides
///
/// The cost model, the clock, and which tensors are candidates. An input counts as used when the run that reads it
/// comes up; in MegEngine, when it has been brought back for that run. A tensor's cost is that of its first
/// eviction; there it is written once and never changes, as it does here under a cost model that learns.
#[derive(Debug, Default)]
pub struct MegEngineArticle {
    constants: ArticleConstants,
    sets: Sets,
    /// How often a path ran again. Slots of paths that are gone are used again.
    reruns: SecondaryMap<PathKey, u32>,
}

/// The numbers in [`MegEngineArticle`]. The default is those of MegEngine 1.4.
///
/// ```
/// use remat::evict::{ArticleConstants, MegEngineArticle};
/// # fn main() -> Result<(), remat::Error> {
/// // Costs in the units of the clock.
/// let constants = ArticleConstants { cost_scale: 1.0, ..ArticleConstants::default() };
/// let policy = MegEngineArticle::new(constants);
/// let runtime = remat::Runtime::builder().budget("4MiB").policy(policy).cpu()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArticleConstants {
    /// `param_cost`, `param_mem` and `param_time`: 1 each.
    pub exponents: Exponents,
    /// `param_recompute_times`, to the power of the reruns: 1.0001.
    pub rerun_factor: f64,
    /// Added to the cost around, in units of costs: 1e-3.
    pub cost_offset: f64,
    /// Added to the staleness, in units of the clock: 1e-3.
    pub staleness_offset: f64,
    /// Units of costs in one of the clock: 1e8.
    pub cost_scale: f64,
    /// Bytes in a unit of memory: 1024^2.
    pub memory_unit: f64,
}

impl Default for ArticleConstants {
    fn default() -> Self {
        Self {
            exponents: Exponents::default(),
            rerun_factor: 1.0001,
            cost_offset: 1e-3,
            staleness_offset: 1e-3,
            cost_scale: 1e8,
            memory_unit: f64::from(1 << 20),
        }
    }
}

impl MegEngineArticle {
    /// With constants of your own.
    #[must_use]
    pub fn new(constants: ArticleConstants) -> Self {
        Self { constants, ..Self::default() }
    }

    /// If `key` is in no set yet, it gets its own, with the cost of its producer.
    fn add(&mut self, key: StorageKey, graph: &Graph) {
        self.sets.add(key, || graph.own_cost(key) * self.constants.cost_scale);
    }

    fn cost_around(&mut self, key: StorageKey, graph: &Graph) -> f64 {
        let mut cost = 0.0;
        let neighbours = evicted_sources(key, graph).chain(evicted_outputs(key, graph));
        for neighbour in neighbours {
            self.add(neighbour, graph);
            cost += self.sets.cost_at(neighbour);
        }
        cost
    }

    /// Joins the set of `key`, which was just evicted, with those of its evicted neighbours.
    fn join_around(&mut self, key: StorageKey, graph: &Graph) {
        for source in evicted_sources(key, graph) {
            self.add(source, graph);
            self.sets.join(source, key);
        }
        // It is joined with itself, too: that looks for its root, as the code does.
        for output in evicted_outputs(key, graph) {
            self.add(output, graph);
            self.sets.join(key, output);
        }
    }

    fn reruns(&self, key: StorageKey, graph: &Graph) -> u32 {
        let path = graph.storage(key).producer;
        path.and_then(|path| self.reruns.get(path)).copied().unwrap_or(0)
    }
}

/// The evicted ones of what the producer of `key` reads, repeats included.
fn evicted_sources(key: StorageKey, graph: &Graph) -> impl Iterator<Item = StorageKey> {
    graph.sources(key).filter(|&source| graph.is_evicted(source))
}

/// The evicted ones of what the producer of `key` makes, `key` among them.
fn evicted_outputs(key: StorageKey, graph: &Graph) -> impl Iterator<Item = StorageKey> {
    let path = graph.storage(key).producer.into_iter();
    let outputs = path.flat_map(|path| graph.path(path).outputs.iter().flatten().copied());
    outputs.filter(|&output| graph.is_evicted(output))
}

impl Policy for MegEngineArticle {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let around = self.cost_around(candidate, view.graph);
        let reruns = self.reruns(candidate, view.graph);
        let bytes = view.graph.storage(candidate).bytes + view.free_neighbour_bytes(candidate);
        let staleness = view.now - view.graph.storage(candidate).last_used;
        let ArticleConstants { exponents, rerun_factor, cost_offset, staleness_offset, .. } =
            self.constants;
        let memory = bytes as f64 / self.constants.memory_unit;
        (around + cost_offset).powf(exponents.cost) * rerun_factor.powf(f64::from(reruns))
            / (memory.powf(exponents.bytes)
                * (staleness + staleness_offset).powf(exponents.staleness))
    }

    fn hears(&self) -> Hears {
        Hears::EVICTIONS.and(Hears::RUNS).and(Hears::DELETIONS)
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        let graph = view.graph;
        match *event {
            Event::DidEvict { storage, cause, .. } => {
                self.add(storage, graph);
                // Only what the search chose joins sets.
                if matches!(cause, Cause::Room | Cause::Threshold) {
                    self.join_around(storage, graph);
                }
            }
            Event::DidRegenerate { storage, .. } => self.sets.regenerate(storage),
            Event::DidRun { path: Some(path), again: true, .. } => {
                if let Some(entry) = self.reruns.entry(path) {
                    *entry.or_insert(0) += 1;
                }
            }
            Event::DidDelete { storage } | Event::WillForget { storage } => {
                self.sets.forget(storage);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostTensor;
    use crate::cost::CostModelKind;
    use crate::device::sim::Sim;
    use crate::engine::{Engine, Settings};
    use crate::evict::ByScore;
    use crate::layout::Dims;
    use crate::ops::{Binary, Fill, Op};
    use crate::sync::Mutex;
    use std::sync::Arc;

    /// Takes each eviction for one that the search chose.
    #[derive(Debug)]
    struct Chosen(Arc<Mutex<MegEngineArticle>>);

    impl Policy for Chosen {
        fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
            self.0.lock().unwrap().score(candidate, view)
        }

        fn on(&mut self, event: &Event, view: View<'_>) {
            let mut event = *event;
            if let Event::DidEvict { cause, .. } = &mut event {
                *cause = Cause::Room;
            }
            self.0.lock().unwrap().on(&event, view);
        }
    }

    /// Resident or evicted, what is deleted leaves nothing behind, though nodes point to each other.
    #[test]
    fn sets_hold_no_more_than_the_tables_do() {
        let policy = Arc::<Mutex<MegEngineArticle>>::default();
        let chosen = Box::new(ByScore::new(Chosen(Arc::clone(&policy))));
        let costs = CostModelKind::Bytes.build();
        let sim = Sim::<Op, HostTensor>::cpu(1 << 40);
        let mut engine = Engine::new(sim, Settings::default(), chosen, costs).unwrap();
        for round in 0..2000 {
            let x = engine.apply(Fill { shape: Dims::new(&[8]), value: 1.0 }.into(), &[]).unwrap();
            let mut made = vec![x[0]];
            for i in 0..4 {
                let inputs = [made[i], made[i / 2]];
                made.push(engine.apply(Binary::Add.into(), &inputs).unwrap()[0]);
            }
            for &key in &made {
                assert!(engine.drop_now(key).unwrap());
            }
            // Brings some of them back, or all, or none.
            if let Some(&key) = made.get(round % 6) {
                engine.get(key).unwrap();
            }
            made.into_iter().for_each(|key| engine.del(key));
            assert_eq!(engine.graph().counts(), (0, 0, 0));
            let (members, nodes) = policy.lock().unwrap().sets.len();
            assert!(members <= 100 && nodes <= 200, "{members} members, {nodes} nodes");
        }
    }
}
