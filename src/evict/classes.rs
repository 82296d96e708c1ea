//! Classes of evicted storages by union-find: a fast approximation of the evicted neighbourhood.
//!
//! Each evicted storage is a member of a class, whose root carries the sum of its members' costs.
//! Evicting a storage joins the classes of its evicted neighbours. Restoring a storage subtracts
//! its cost from the sum of its class. For speed, a class is never split, so it may have members
//! that are no longer connected.

use super::Lowered;
use super::forest::{Forest, NodeKey};
use crate::graph::{Graph, StorageKey};
use slotmap::SecondaryMap;
use smallvec::SmallVec;

/// Class of evicted storages.
#[derive(Debug, Default)]
struct Class {
    /// Sum of the costs of all members, up to rounding.
    cost: f64,
    /// Number of nodes that were joined, for union by size. The number never falls.
    size: u32,
    /// Candidates whose floor (lower bound of the cost around the candidate) must fall when `cost`
    /// falls.
    watchers: Vec<Watcher>,
}

impl Class {
    const fn singleton(cost: f64) -> Self {
        Self { cost, size: 1, watchers: Vec::new() }
    }
}

/// Candidate whose floor (lower bound of a cost) includes the cost of a class.
#[derive(Clone, Copy, Debug)]
struct Watcher {
    key: StorageKey,
    /// Value of [`Told::stamp`] when the candidate began to watch the class. If the candidate's
    /// stamp has changed since, the watcher is out of date.
    stamp: u64,
}

/// Node of an evicted storage, and the storage's cost in the class.
#[derive(Clone, Copy, Debug)]
struct Member {
    node: NodeKey,
    cost: f64,
}

#[derive(Debug, Default)]
pub(super) struct Classes {
    sets: Forest<Class>,
    /// Members, which are exactly the evicted storages.
    members: SecondaryMap<StorageKey, Member>,
}

impl Classes {
    /// Makes an evicted storage a member. Joins the classes of the storage and of its evicted
    /// sources and dependents.
    pub fn join(&mut self, key: StorageKey, graph: &Graph) {
        let cost = graph.own_cost(key);
        let node = self.sets.add(Class::singleton(cost));
        self.members.insert(key, Member { node, cost });
        let mut root = node;
        for other in graph.sources(key).chain(graph.dependents(key)).filter(|&o| o != key) {
            if let Some(member) = self.members.get(other) {
                let other = self.sets.root(member.node);
                root = self.union(root, other);
            }
        }
    }

    /// Removes a storage from its class, if it is in one. The remaining members stay in one class.
    pub fn leave(&mut self, key: StorageKey) {
        self.leave_telling(key, |_, _| false);
    }

    /// Removes a storage from its class. Calls `tell` with the removed cost for each watcher, a
    /// candidate whose floor includes the class. Watchers for which `tell` returns false are
    /// dropped.
    fn leave_telling(&mut self, key: StorageKey, mut tell: impl FnMut(Watcher, f64) -> bool) {
        if let Some(member) = self.members.remove(key) {
            let root = self.sets.root(member.node);
            let class = &mut self.sets[root];
            class.cost -= member.cost;
            class.watchers.retain(|&watcher| tell(watcher, member.cost));
            self.sets.release(member.node);
        }
    }

    /// Total cost of the distinct classes of `keys`.
    pub fn cost_of(&mut self, keys: impl Iterator<Item = StorageKey>) -> f64 {
        let roots = self.roots_of(keys);
        roots.iter().map(|&root| self.cost(root)).sum()
    }

    fn cost(&self, root: NodeKey) -> f64 {
        // Rounding may leave a tiny negative sum.
        self.sets[root].cost.max(0.0)
    }

    /// Roots of the distinct classes of `keys`.
    fn roots_of(&mut self, keys: impl Iterator<Item = StorageKey>) -> Roots {
        let mut roots = Roots::new();
        for key in keys {
            if let Some(member) = self.members.get(key) {
                let root = self.sets.root(member.node);
                if !roots.contains(&root) {
                    roots.push(root);
                }
            }
        }
        roots
    }

    fn union(&mut self, a: NodeKey, b: NodeKey) -> NodeKey {
        if a == b {
            return a;
        }
        let is_larger = self.sets[a].size >= self.sets[b].size;
        let (root, below) = if is_larger { (a, b) } else { (b, a) };
        self.sets.join(below, root);
        let Class { cost, size, watchers } = std::mem::take(&mut self.sets[below]);
        let kept = &mut self.sets[root];
        kept.cost += cost;
        kept.size += size;
        if kept.watchers.is_empty() {
            kept.watchers = watchers;
        } else {
            kept.watchers.extend(watchers);
        }
        root
    }
}

type Roots = SmallVec<[NodeKey; 4]>;

/// Classes, with a floor (lower bound) of the cost around each candidate whose score was computed.
///
/// An eviction only raises the costs of classes, so floors stay valid. When a member leaves a
/// class, the floors of all watchers of the class fall by the member's cost.
#[derive(Debug, Default)]
pub(super) struct WatchedClasses {
    classes: Classes,
    told: SecondaryMap<StorageKey, Told>,
    stamps: u64,
}

#[derive(Debug)]
struct Told {
    /// Lower bound of the present cost around the candidate, up to rounding.
    floor: f64,
    stamp: u64,
    /// Nodes of the classes that the candidate watches.
    watched: Roots,
}

impl WatchedClasses {
    /// Present cost of the classes around a candidate. Records the cost as the candidate's floor,
    /// the lower bound of later costs.
    pub fn cost(&mut self, candidate: StorageKey, graph: &Graph) -> f64 {
        let Self { classes, told, stamps } = self;
        let roots = classes.roots_of(graph.sources(candidate).chain(graph.dependents(candidate)));
        let cost = roots.iter().map(|&root| classes.cost(root)).sum();
        if roots.is_empty() && !told.contains_key(candidate) {
            return cost;
        }
        let entry = told.entry(candidate).expect("a candidate is not a stale key");
        let own = entry.or_insert_with(|| {
            *stamps += 1;
            Told { floor: 0.0, stamp: *stamps, watched: Roots::new() }
        });
        own.floor = cost;
        // Watched classes may have been joined or removed since the candidate's last score.
        own.watched.retain(|node| classes.sets.contains(*node));
        for node in &mut own.watched {
            *node = classes.sets.root(*node);
        }
        let stamp = own.stamp;
        let fresh: Roots = roots.into_iter().filter(|root| !own.watched.contains(root)).collect();
        own.watched.extend(fresh.iter().copied());
        for root in fresh {
            let watchers = &mut classes.sets[root].watchers;
            if watchers.len() == watchers.capacity() {
                // Remove watchers that are out of date, instead of making the list longer.
                watchers.retain(|w| told.get(w.key).is_some_and(|told| told.stamp == w.stamp));
            }
            watchers.push(Watcher { key: candidate, stamp });
        }
        cost
    }

    /// Lower bound of the cost around a candidate, read without a search.
    pub fn floor(&self, candidate: StorageKey) -> f64 {
        self.told.get(candidate).map_or(0.0, |told| told.floor)
    }

    pub fn did_evict(&mut self, key: StorageKey, graph: &Graph) {
        self.told.remove(key);
        self.classes.join(key, graph);
    }

    /// Removes a restored or deleted storage from its class, and lowers the candidates' floors
    /// (lower bounds of costs) that include the storage's cost.
    pub fn leave(&mut self, key: StorageKey, graph: &Graph, lowered: &mut Lowered) {
        let Self { classes, told, .. } = self;
        classes.leave_telling(key, |watcher, cost| match told.get_mut(watcher.key) {
            Some(told) if told.stamp == watcher.stamp => {
                told.floor = (told.floor - cost).max(0.0);
                lowered.push(watcher.key);
                true
            }
            _ => false,
        });
        if told.is_empty() {
            return;
        }
        // The floor of a neighbour of `key` may fall by the cost of the whole class, not only by
        // the cost of `key`.
        for neighbour in graph.sources(key).chain(graph.dependents(key)) {
            if told.remove(neighbour).is_some() {
                lowered.push(neighbour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slotmap::SlotMap;

    /// Makes a class for each cost. Without a graph, the tests join classes by hand.
    fn classes(costs: &[f64]) -> (Classes, Vec<StorageKey>) {
        let mut keys = SlotMap::<StorageKey, ()>::with_key();
        let mut classes = Classes::default();
        let keys = costs
            .iter()
            .map(|&cost| {
                let key = keys.insert(());
                let node = classes.sets.add(Class::singleton(cost));
                classes.members.insert(key, Member { node, cost });
                key
            })
            .collect();
        (classes, keys)
    }

    fn union(classes: &mut Classes, a: StorageKey, b: StorageKey) {
        let (a, b) = (classes.members[a].node, classes.members[b].node);
        let (a, b) = (classes.sets.root(a), classes.sets.root(b));
        classes.union(a, b);
    }

    #[test]
    fn a_class_outlives_its_root_and_is_counted_once() {
        let (mut c, k) = classes(&[1.0, 2.0, 4.0, 8.0]);
        union(&mut c, k[0], k[1]);
        union(&mut c, k[2], k[3]);
        assert_eq!(c.cost_of([k[0], k[1]].into_iter()), 3.0);
        union(&mut c, k[1], k[2]);
        assert_eq!(c.cost_of(k.iter().copied()), 15.0);
        c.leave(k[0]);
        assert_eq!(c.cost_of(k.iter().copied()), 14.0);
        assert_eq!(c.cost_of([k[3]].into_iter()), 14.0);
        for &key in &k {
            c.leave(key);
            c.leave(key);
        }
        assert_eq!(c.sets.len(), 0, "no node outlives its members");
    }

    #[test]
    fn coming_and_going_beside_one_that_stays_keeps_few_nodes() {
        let (mut c, k) = classes(&[1.0, 1.0]);
        for _ in 0..10_000 {
            union(&mut c, k[0], k[1]);
            c.leave(k[1]);
            let node = c.sets.add(Class::singleton(1.0));
            c.members.insert(k[1], Member { node, cost: 1.0 });
        }
        assert!(c.sets.len() < 8, "{} nodes", c.sets.len());
        assert!((c.cost_of([k[0]].into_iter()) - 1.0).abs() < 1e-9);
    }
}
