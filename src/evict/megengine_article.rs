//! Policy that evicts exactly as MegEngine 1.4 does.

mod sets;

use super::{Exponents, Policy, View};
use crate::event::{Cause, Event, Hears};
use crate::graph::{Graph, PathKey, StorageKey};
use sets::Sets;
use slotmap::SecondaryMap;

/// Evaluation function of MegEngine 1.4 exactly as in its code, for comparison. For training, use
/// [`MegEngine`](super::MegEngine).
///
/// ```text
/// (cost around + 1e-3)^a * 1.0001^reruns / ((MiB + free neighbours' MiB)^b * (staleness + 1e-3)^c)
/// ```
///
/// The cost around a tensor is a sum over its evicted neighbours: the inputs and the other outputs
/// of its producer. Each neighbour adds the cost of its set, or its own cost if that is higher.
/// Each evicted tensor belongs to a set, kept by union-find. Evicting a tensor joins its set with
/// the sets of its evicted neighbours. Restoring a tensor subtracts its cost from the root of its
/// set, and makes the tensor's node a root.
///
/// The code counts the cost of an op in bytes read and written, and its clock in units of 1e8
/// bytes, as [`CostModelKind::Bytes`](crate::CostModelKind::Bytes) does. To match MegEngine's
/// units, the costs of the engine are multiplied by 1e8, under any cost model. Reruns raise the
/// score, as in MegEngine 1.4; in later versions of MegEngine they have no effect.
/// [`ArticleConstants`] has all constants.
///
/// # Kept faults
///
/// - Users of a tensor are not neighbours, although the text beside the code says that they are. A
///   tensor's own cost does not count.
/// - A neighbour counts once for each time that it is an input. A set counts once for each
///   neighbour in it.
/// - The summand 1e-3 is negligible beside a cost in bytes. For a tensor without evicted
///   neighbours, 1e-3 is the whole cost. Tensors without evicted neighbours are thus evicted first,
///   ranked only by bytes and staleness.
/// - When a root is restored, the other members of its set keep it as root. The remaining sum is
///   replaced by the cost of the restored tensor. Later joins with that tensor's set also join the
///   other members of the old set.
/// - When a node that is not a root is restored, the nodes that point to it leave the set with it.
///   The old root still counts the costs of the nodes that left. Earlier look-ups of roots
///   determine which nodes point to a node.
/// - Because of the last two faults, a set may count resident tensors, or count a tensor twice. The
///   cost of a set may also fall below 0; the neighbour's own cost is then used in its place.
/// - Only tensors that the search chose are joined with their neighbours. Tensors evicted by
///   deletion or at the user's request join no set.
/// - Costs of deleted tensors stay in the sums of their sets.
/// - A rerun of a path counts for all its outputs, even for outputs that were resident.
///
/// # Faults that cannot occur here
///
/// The engine has no recursion to the depth of a set or of a history, as MegEngine has. A storage
/// is evicted with all its views; in MegEngine, views keep evicted bytes allocated. MegEngine
/// breaks ties by the order of a hash table, and has candidates from only one device; the engine
/// does neither.
///
/// # Parts that the engine decides
///
/// The engine decides the cost model, the clock, and which tensors are candidates. Here an input
/// counts as used when the run that reads it is next. In MegEngine, an input counts as used when it
/// has been restored for that run. A tensor's cost is the cost of its op at the tensor's first
/// eviction. Later changes of an op's cost have no effect. In MegEngine a cost is written once and
/// never changes.
#[derive(Debug, Default)]
pub struct MegEngineArticle {
    constants: ArticleConstants,
    sets: Sets,
    /// Number of reruns of each path. A new path may reuse the slot of a removed path.
    reruns: SecondaryMap<PathKey, u32>,
}

/// Constants of [`MegEngineArticle`]. The default has the values of MegEngine 1.4.
///
/// ```
/// use remat::evict::ArticleConstants;
/// use remat::unstable::evict::MegEngineArticle;
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
    /// `param_recompute_times`, raised to the number of reruns: 1.0001.
    pub rerun_factor: f64,
    /// Summand added to the cost around, in units of cost: 1e-3.
    pub cost_offset: f64,
    /// Summand added to the staleness, in units of the clock: 1e-3.
    pub staleness_offset: f64,
    /// Units of cost in one unit of the clock: 1e8.
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
    /// Builds the policy with other constants.
    #[must_use]
    pub fn new(constants: ArticleConstants) -> Self {
        Self { constants, ..Self::default() }
    }

    /// Makes a set of only `key`, with the cost of its producer, unless `key` is already in a set.
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

    /// Joins the set of a just evicted storage with the sets of its evicted neighbours.
    fn join_around(&mut self, key: StorageKey, graph: &Graph) {
        for source in evicted_sources(key, graph) {
            self.add(source, graph);
            self.sets.join(source, key);
        }
        // Joining `key` with itself looks up its root, as MegEngine's code does.
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

/// Evicted inputs of the producer of `key`, repeats included.
fn evicted_sources(key: StorageKey, graph: &Graph) -> impl Iterator<Item = StorageKey> {
    graph.sources(key).filter(|&source| graph.is_evicted(source))
}

/// Evicted outputs of the producer of `key`, `key` included if it is evicted.
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
                // An evicted storage joins its neighbours' sets only if the search chose the
                // eviction.
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

    /// Policy that treats every eviction as chosen by the search.
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

    /// A deleted storage leaves no entry in the sets, whether it was resident or evicted, although
    /// nodes point to each other.
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
            // Regenerate some, all, or none of the storages.
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
