//! Running values: small ones whose history is long and grows on, such as a sum of losses where no step is marked.
//!
//! ```text
//! batch ──▶ loss ──▶ total + loss ──▶ total + loss ──▶ total
//! gone      gone     gone             gone             held: all before it stays, to bring it back
//! ```
//!
//! A mark of a step, or a commit, makes a leaf of such a value, and its history goes. Without one, that is done here: for
//! what is small beside the budget and could only be brought back through very many others, or through many bytes of the
//! host, or of leaves that nobody holds: such as losses that an update in place has made leaves. What is made from it next, in its stead, becomes a leaf at once.
//!
//! Leaves cannot be evicted. So all that are made here together take little of the budget, and nothing larger than that
//! is cut. A mere chain, each value of which is made from the last one, keeps its history: what is made from one value only is
//! no sum.
//!
//! Histories are looked at when twice as much is kept as after the last look, and so much more as a long one has: so an
//! op costs no more on average.

use super::{Engine, StorageKey};
use crate::device::Device;
use crate::graph::{Residence, Runs};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// So many storages more are kept, before histories are looked at.
const MANY: usize = 1 << 12;

/// A history is long with so many storages.
const LONG: usize = 1 << 10;

/// It is that of a sum if it begins at so many places, or is shared at so many with that of one.
const ENTRIES: usize = 16;

/// The budget is at least so many times a value that is small beside it.
const SMALL: u64 = 256;

/// No more than this is small beside any budget.
const LARGE: u64 = 1 << 20;

/// So many small values may be made leaves at a time.
const LEAVES: u64 = 4;

/// So many edges are gone along at most to find what is made from a running value in its stead.
const NEAR: usize = 64;

/// Values that nobody holds any more until what is kept is compared again with what was.
const TURNS: u32 = 16;

/// What was kept when histories were last looked at.
#[derive(Debug, Default)]
pub(super) struct Running {
    storages: usize,
    host_bytes: u64,
    /// Bytes of leaves that nobody holds.
    unheld: u64,
    /// Bytes of such leaves now.
    unheld_now: u64,
    /// Values that nobody holds any more until that is compared with what there is.
    turns: u32,
    /// Bytes of those that were made leaves here, and are there.
    leaves: u64,
    /// Storages looked at, ever.
    pub walked: u64,
}

/// What is known of a history.
#[derive(Debug, Default)]
struct History {
    storages: usize,
    host_bytes: u64,
    leaf_bytes: u64,
    /// Where it begins: at values that somebody holds, or that are made from none.
    entries: usize,
    /// Where it is that of another value, too.
    shared: usize,
}

impl Running {
    /// Whether it is too soon to compare. Counts values that nobody holds any more.
    #[inline]
    pub fn waits(&mut self) -> bool {
        let left = self.turns.checked_sub(1);
        self.turns = left.unwrap_or(0);
        left.is_some()
    }
}

impl<D: Device> Engine<D> {
    /// The last handle of `key` went, and it is kept because others are made from it. Whether it has gone with histories
    /// that were cut.
    #[inline(never)]
    pub(super) fn bound_history(&mut self, key: StorageKey) -> bool {
        self.warn_of_missing_marks();
        let storage = &mut self.store.graph.storages[key];
        let runs = storage.runs;
        if storage.producer.is_none() && matches!(storage.residence, Residence::Resident(_)) {
            storage.left_as_leaf = true;
            self.running.unheld_now += self.store.space.at_most(storage.bytes);
        }
        let is_much = self.keeps_much();
        // What is written down and done again by plan is not cut: then it is not cut there either.
        let cuts = (runs != Runs::No || is_much)
            && self.store.tape.is_none()
            && self.store.script.is_none();
        if cuts {
            std::hint::cold_path();
            if runs != Runs::No {
                self.pass_on(key);
            }
            if is_much {
                self.look_at_histories();
            }
        }
        cuts && !self.store.graph.storages.contains_key(key)
    }

    /// Whether twice as much is kept as at the last look, or as is left of that, and so much more as a long history has.
    fn keeps_much(&mut self) -> bool {
        let (storages, host_bytes) = (self.store.graph.storages.len(), self.store.host_bytes);
        let (capacity, running) = (self.store.space.capacity(), &mut self.running);
        running.turns = TURNS;
        // Much of that may have gone since.
        if storages < running.storages / 4 {
            running.storages = storages;
        }
        if host_bytes < running.host_bytes / 4 {
            running.host_bytes = host_bytes;
        }
        if running.unheld_now < running.unheld / 4 {
            running.unheld = running.unheld_now;
        }
        storages > 2 * running.storages + MANY
            || host_bytes > 2 * running.host_bytes + capacity
            || running.unheld_now > 2 * running.unheld + capacity / 4
    }

    /// A running value is about to go.
    #[inline]
    pub(super) fn running_goes(&mut self, key: StorageKey) {
        if self.running.leaves == 0 && self.running.unheld_now == 0 {
            return;
        }
        let storage = self.store.graph.storage(key);
        let (bytes, running) = (self.store.space.at_most(storage.bytes), &mut self.running);
        let of = |wanted: bool| if wanted { bytes } else { 0 };
        running.leaves = running.leaves.saturating_sub(of(storage.runs == Runs::AsLeaf));
        running.unheld_now = running.unheld_now.saturating_sub(of(storage.left_as_leaf));
    }

    /// What is made from a running value that nobody holds any more runs on in its stead.
    fn pass_on(&mut self, key: StorageKey) {
        let mut heirs: SmallVec<[StorageKey; 8]> = SmallVec::new();
        let mut seen: SmallVec<[StorageKey; 8]> = SmallVec::from_elem(key, 1);
        let (mut next, mut edges) = (0, 0);
        while let Some(&at) = seen.get(next)
            && edges < NEAR
        {
            next += 1;
            for dependent in self.store.graph.dependents(at).take(NEAR) {
                edges += 1;
                let is_held = self.store.graph.storage(dependent).handles > 0;
                let known = if is_held { &mut heirs } else { &mut seen };
                if !known.contains(&dependent) {
                    known.push(dependent);
                }
            }
        }
        self.running.walked += edges as u64;
        for heir in heirs {
            self.run_on(heir);
        }
    }

    /// Makes a leaf of a running value, if it is there and small.
    fn run_on(&mut self, key: StorageKey) {
        // With the one before it may have gone its reason.
        let Some(storage) = self.store.graph.storages.get(key) else { return };
        if storage.handles == 0 || storage.producer.is_none() || !self.is_small(storage.bytes) {
            return;
        }
        let bytes = self.store.space.at_most(storage.bytes);
        let most = LEAVES * (self.store.space.capacity() / SMALL).min(LARGE);
        let fits = self.running.leaves <= most
            && self.store.graph.is_resident(key)
            && self.fit_as_leaves(&[key]);
        self.store.graph.storages[key].runs = if fits { Runs::AsLeaf } else { Runs::Still };
        if fits {
            self.running.leaves += bytes;
            self.make_leaf(key);
        }
    }

    fn is_small(&self, bytes: u64) -> bool {
        self.store.space.at_most(bytes) <= (self.store.space.capacity() / SMALL).min(LARGE)
    }

    /// Finds running values, by their histories: those of what is small and held, the newest first, so that each storage is
    /// looked at once.
    fn look_at_histories(&mut self) {
        let graph = &self.store.graph;
        let mut small: Vec<(u64, StorageKey)> = graph
            .storages()
            .filter(|(_, storage)| storage.handles > 0 && self.is_small(storage.bytes))
            .filter_map(|(key, storage)| Some((graph.path(storage.producer?).sequence, key)))
            .collect();
        small.sort_unstable_by(|one, other| other.cmp(one));
        // Whether the history is that of a sum.
        let mut seen: FxHashMap<StorageKey, usize> = FxHashMap::default();
        let mut sums = Vec::new();
        for (number, &(_, key)) in small.iter().enumerate() {
            let history = self.history_of(key, number, &sums, &mut seen);
            let is_long = history.storages >= LONG
                || history.host_bytes > self.store.space.capacity() / 2
                || history.leaf_bytes > self.store.space.capacity() / 8
                || history.shared >= ENTRIES;
            if is_long && history.entries + history.shared >= ENTRIES {
                sums.push(number);
            }
        }
        self.running.walked += seen.len() as u64;
        for number in sums {
            self.run_on(small[number].1);
        }
        self.running.storages = self.store.graph.storages.len();
        self.running.host_bytes = self.store.host_bytes;
        self.running.unheld = self.running.unheld_now;
    }

    /// What nobody holds of the history of `key`, and nobody has seen yet. `sums` are those of the values before it that are
    /// running ones.
    fn history_of(
        &self,
        key: StorageKey,
        number: usize,
        sums: &[usize],
        seen: &mut FxHashMap<StorageKey, usize>,
    ) -> History {
        let graph = &self.store.graph;
        let mut history = History::default();
        let mut stack = vec![key];
        while let Some(at) = stack.pop() {
            let Some(path) = graph.storage(at).producer else {
                history.entries += 1;
                history.leaf_bytes += self.store.space.at_most(graph.storage(at).bytes);
                continue;
            };
            let inputs = &graph.path(path).inputs;
            if inputs.is_empty() {
                history.entries += 1;
                // Only values of the host have no op that makes them.
                history.host_bytes += self.store.host_bytes_of(path);
            }
            for edge in inputs {
                if graph.storage(edge.storage).handles > 0 {
                    history.entries += 1;
                    continue;
                }
                match seen.get(&edge.storage) {
                    Some(other) if *other == number => {}
                    Some(other) => history.shared += usize::from(sums.binary_search(other).is_ok()),
                    None => {
                        seen.insert(edge.storage, number);
                        history.storages += 1;
                        stack.push(edge.storage);
                    }
                }
            }
        }
        history
    }
}
