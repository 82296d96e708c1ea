//! Running values: small values whose history is long and keeps growing, such as a sum of losses in
//! a loop without marks of steps.
//!
//! ```text
//! batch ──▶ loss ──▶ total + loss ──▶ total + loss ──▶ total
//! dropped   dropped  dropped          dropped          held: all earlier values are kept, to regenerate it
//! ```
//!
//! A mark of a step, or a commit, turns a running value into a leaf and deletes the value's
//! history. This module does the same for programs that neither mark steps nor commit. A running
//! value must be small compared with the budget, and very many other values must be needed to
//! restore it. A history also counts as long if it keeps many bytes of uploads, or of unheld
//! leaves. For example, an update in place may have turned losses into leaves, whose handles were
//! then dropped. When the last handle of a running value is dropped, small held values made from
//! that value become leaves at once.
//!
//! Leaves cannot be evicted, so this module limits the total size of the leaves that it makes, and
//! never makes a large value a leaf. A plain chain, in which each value is made only from the
//! previous value, is not a sum and keeps its history.
//!
//! Searches of histories cost a constant time per op on average. A search is repeated only when the
//! number of storages or the bytes kept exceed twice their amount at the last search, plus a
//! constant.

use super::{Engine, StorageKey};
use crate::device::Device;
use crate::graph::{Residence, Runs};
use rustc_hash::FxHashMap;

/// Constant in the rule for the next search of histories: the number of storages must exceed twice
/// the number at the last search by `MANY`.
const MANY: usize = 1 << 12;

/// Minimum number of storages of a long history.
const LONG: usize = 1 << 10;

/// Minimum of `History::entries` plus `History::shared` for a history that counts as a sum.
const ENTRIES: usize = 16;

/// Minimum ratio of the budget to the size of a value that counts as small.
const SMALL: u64 = 256;

/// Size limit in bytes of a value that counts as small, under any budget.
const LARGE: u64 = 1 << 20;

/// Limit on the total bytes of leaves made by this module, as a multiple of the largest size that
/// counts as small. Beyond the limit, the module makes no further leaf.
const LEAVES: u64 = 4;

/// Limit on the number of edges visited to find the values made from a running value.
const NEAR: usize = 64;

/// Number of values that lose their last handle between two checks of how much histories keep
/// ([`Engine::keeps_much`]).
const TURNS: u32 = 16;

/// Storages and bytes that existed at the last search of histories, and counters until the next
/// search.
#[derive(Debug, Default)]
pub(super) struct Running {
    storages: usize,
    host_bytes: u64,
    /// Bytes of unheld leaves at the last search.
    unheld: u64,
    /// Bytes of unheld leaves now.
    unheld_now: u64,
    /// Number of further values that must lose their last handle before the next check.
    turns: u32,
    /// Total bytes of the existing leaves that this module made.
    leaves: u64,
    /// Total number of storages and edges visited so far.
    pub walked: u64,
}

/// Size of a history, excluding the parts already counted for newer values.
#[derive(Debug, Default)]
struct History {
    storages: usize,
    host_bytes: u64,
    leaf_bytes: u64,
    /// Number of beginnings of the history: held inputs, leaves, and paths without inputs.
    entries: usize,
    /// Number of storages at which the history joins the history of another sum.
    shared: usize,
}

impl Running {
    /// Counts a value that lost its last handle. Returns true if the next call of
    /// [`Engine::keeps_much`] is not due yet.
    #[inline]
    pub fn waits(&mut self) -> bool {
        let left = self.turns.checked_sub(1);
        self.turns = left.unwrap_or(0);
        left.is_some()
    }
}

impl<D: Device> Engine<D> {
    /// Notes that the last handle of `key` was dropped while values made from `key` still exist.
    /// Cuts long histories if they keep much. Returns whether `key` was deleted together with a
    /// history that was cut.
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
        // No history is cut while a turn is recorded on a tape or repeated by a script, because a
        // turn by plan cuts no history.
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

    /// Whether storages, host bytes or bytes of unheld leaves exceed twice their amount at the last
    /// search, plus a constant.
    fn keeps_much(&mut self) -> bool {
        let (storages, host_bytes) = (self.store.graph.storages.len(), self.store.host_bytes);
        let (capacity, running) = (self.store.space.capacity(), &mut self.running);
        running.turns = TURNS;
        // Many of the storages and bytes counted at the last search may have been deleted since.
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

    /// Notes that a storage is about to be deleted.
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

    /// Makes leaves of the held values that were made from `key`, which is a running value without
    /// handles.
    fn pass_on(&mut self, key: StorageKey) {
        let (heirs, edges) = self.store.graph.heirs(key, NEAR);
        self.running.walked += edges as u64;
        for heir in heirs {
            self.run_on(heir);
        }
    }

    /// Makes a leaf of a running value, if the value is resident and small, and the limit on leaves
    /// allows it.
    fn run_on(&mut self, key: StorageKey) {
        // The value may have been deleted when an earlier value became a leaf.
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

    /// Finds running values by their histories. Visits small held values, newest first, so that
    /// each storage is visited once.
    fn look_at_histories(&mut self) {
        let graph = &self.store.graph;
        let mut small: Vec<(u64, StorageKey)> = graph
            .storages()
            .filter(|(_, storage)| storage.handles > 0 && self.is_small(storage.bytes))
            .filter_map(|(key, storage)| Some((graph.path(storage.producer?).sequence, key)))
            .collect();
        small.sort_unstable_by(|one, other| other.cmp(one));
        // For each storage, the number of the value in whose history it was found.
        let mut seen: FxHashMap<StorageKey, usize> = FxHashMap::default();
        // Walk the histories. Collect the values whose history is long and is that of a sum.
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

    /// Walks the unheld part of the history of `key` that no earlier walk visited. `sums` has the
    /// numbers of the running values found so far.
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
                // A path without inputs is an upload, or an op without inputs such as a random op.
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
