//! Step marks. A mark is the end of one turn of the training loop.

use super::{Engine, StorageKey};
use crate::device::Device;
use crate::event::Event;
use crate::graph::Runs;
use smallvec::SmallVec;

/// Number of unheld storages beyond which a program that has not marked any step counts as a loop
/// without marks.
const MANY_UNHELD: usize = 1 << 14;

/// Number of unheld storages beyond which an out-of-memory error reports missing marks, if most
/// storages are unheld.
const SOME_UNHELD: usize = 1 << 10;

/// A mark counts as missing when more ops ran since the last mark than `MUCH_LONGER` times the ops
/// of the longest step.
const MUCH_LONGER: u64 = 8;

/// Numbers of ops between marks.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    /// Number of ops run before the last mark.
    before: u64,
    /// Number of ops in the step that had the most ops.
    longest: u64,
}

impl<D: Device> Engine<D> {
    /// Makes all replacements so far by [`Engine::replace`] final: no later failure undoes them.
    /// [`Engine::step`] includes a call of `confirm`. Call `confirm` when the step has no more
    /// commands.
    pub fn confirm(&mut self) {
        self.keep_replaced();
        self.failures.next_step();
    }

    /// Marks the end of a step.
    ///
    /// History may not cross a step through an unheld value. A tensor made from an unheld value of
    /// an earlier step becomes a leaf. If the newest state did not become a leaf, a loop that
    /// replaces its state (`w = w - lr * g`) would keep all earlier states. The newest state would
    /// be regenerated through all earlier states. A tensor that cannot be regenerated now keeps its
    /// history until the next step ends.
    pub fn step(&mut self) {
        self.step += 1;
        self.confirm();
        let ops = self.stats.ops;
        self.lengths.longest = self.lengths.longest.max(ops.saturating_sub(self.lengths.before));
        self.lengths.before = ops;
        self.take_times();
        self.store.space.ask_again();
        self.work.next_step();
        self.repeats.next_step();
        self.forget_lingering();
        let kept_before = std::mem::take(&mut self.keeps_history);
        for key in std::mem::take(&mut self.crossing) {
            if !self.crosses_steps(key) {
                continue;
            }
            let stays = !self.fit_as_leaves(&[key])
                || self.commit_storage(key).inspect_err(|e| self.keep_other_bits(e)).is_err();
            if stays {
                // A model has hundreds of such storages, step after step.
                if !kept_before && !self.keeps_history {
                    self.tell(Event::KeepsHistory { storage: key });
                }
                self.keeps_history = true;
                self.crossing.push(key);
            }
        }
        self.tell(Event::DidStep { step: self.step, used: self.store.space.used() });
    }

    /// Whether no op was run since the last mark.
    pub(super) fn is_between_steps(&self) -> bool {
        self.stats.ops == self.lengths.before
    }

    /// Removes deleted storages from the list of lingering dead storages: at both ends in every
    /// call, and everywhere when the list has doubled. Because of the removal at both ends, the
    /// list is empty if no lingering storage exists any more.
    fn forget_lingering(&mut self) {
        let storages = &self.store.graph.storages;
        let is_gone = |key: &StorageKey| !storages.contains_key(*key);
        while self.lingering.pop_front_if(|key| is_gone(key)).is_some() {}
        while self.lingering.pop_back_if(|key| is_gone(key)).is_some() {}
        if self.lingering.len() > 2 * self.lingered {
            self.lingering.retain(|key| !is_gone(key));
            self.lingered = self.lingering.len();
        }
    }

    /// Notes that the last handle of `key` was dropped while storages made from `key` still exist.
    /// Finds the held storages whose history now crosses a step, because only they are checked when
    /// the step ends. Returns whether `key` still exists. `key` is deleted if all storages made
    /// from it became leaves.
    pub(super) fn lost_last_handle(&mut self, key: StorageKey) -> bool {
        let mut oldest = self.store.graph.storage(key).born;
        for source in self.store.graph.sources(key) {
            let source = self.store.graph.storage(source);
            if source.handles == 0 {
                oldest = oldest.min(source.oldest);
            }
        }
        let storage = &mut self.store.graph.storages[key];
        storage.oldest = oldest;
        let is_usual = storage.runs == Runs::No && storage.producer.is_some();
        if !(is_usual && self.running.waits()) && self.bound_history(key) {
            return false;
        }
        // A storage of the current step has only dependents of the current step.
        if oldest != self.step {
            self.find_crossing(key, oldest);
        }
        true
    }

    /// Finds held storages made from `key`, whose history goes back to step `oldest`.
    #[inline(never)]
    fn find_crossing(&mut self, key: StorageKey, oldest: u64) {
        let mut stack: SmallVec<[StorageKey; 8]> = SmallVec::new();
        let mut next = Some(key);
        while let Some(key) = next {
            self.store.graph.storages[key].oldest = oldest;
            for dependent in self.store.graph.dependents(key) {
                self.walked += 1;
                let storage = self.store.graph.storage(dependent);
                if storage.handles > 0 && storage.born > oldest {
                    self.crossing.push(dependent);
                } else if storage.handles == 0 && storage.oldest > oldest {
                    stack.push(dependent);
                }
            }
            next = stack.pop();
        }
    }

    /// Whether `key` is held, and regenerating it goes through an unheld storage of an earlier
    /// step.
    fn crosses_steps(&self, key: StorageKey) -> bool {
        let Some(storage) = self.store.graph.storages.get(key) else { return false };
        let mut sources =
            self.store.graph.sources(key).map(|source| self.store.graph.storage(source));
        storage.handles > 0
            && sources.any(|source| source.handles == 0 && source.oldest < storage.born)
    }

    /// Number of unheld storages, if most storages are unheld and a step mark would free them. 0 in
    /// all other cases.
    pub(super) fn unmarked(&self) -> usize {
        let graph = &self.store.graph;
        let since = self.stats.ops.saturating_sub(self.lengths.before);
        let is_missing = self.step == 0 || since > MUCH_LONGER * self.lengths.longest;
        let unheld = graph.storages().filter(|(_, storage)| storage.handles == 0).count();
        let are_most = unheld > SOME_UNHELD && 2 * unheld > graph.storages.len();
        if is_missing && are_most { unheld } else { 0 }
    }

    /// Warns once if history seems to grow without end.
    pub(super) fn warn_of_missing_marks(&mut self) {
        let (tensors, storages, _) = self.store.graph.counts();
        if self.step == 0 && storages > tensors + MANY_UNHELD && !self.warned_of_marks {
            std::hint::cold_path();
            self.warned_of_marks = true;
            self.tell(Event::HistoryGrows { storages, tensors });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::HostTensor;
    use crate::cost::CostModelKind;
    use crate::device::sim::Sim;
    use crate::engine::{Engine, Settings, TensorKey};
    use crate::evict::PolicyKind;
    use crate::layout::Dims;
    use crate::ops::{Binary, Fill, Op};

    type SimEngine = Engine<Sim<Op, HostTensor>>;

    fn engine() -> SimEngine {
        let costs = CostModelKind::Flops.build();
        let policy = PolicyKind::DtrEq.build(0);
        Engine::new(Sim::cpu(1 << 40), Settings::default(), policy, costs).unwrap()
    }

    fn fill(engine: &mut SimEngine) -> TensorKey {
        engine.apply(Fill { shape: Dims::new(&[8]), value: 1.0 }.into(), &[]).unwrap()[0]
    }

    fn add(engine: &mut SimEngine, a: TensorKey, b: TensorKey) -> TensorKey {
        engine.apply(Binary::Add.into(), &[a, b]).unwrap()[0]
    }

    /// Regression test: with n tensors held, the end of a step took time in proportion to n * n.
    #[test]
    fn the_end_of_a_step_looks_at_no_more_than_what_changed() {
        for n in [1000, 16_000] {
            let mut engine = engine();
            let mut held = vec![fill(&mut engine)];
            for i in 0..n {
                let next = add(&mut engine, held[i], held[i / 2]);
                held.push(next);
                if i % 1000 == 0 {
                    engine.step();
                }
            }
            engine.step();
            assert_eq!((engine.walked, engine.crossing.len()), (0, 0), "all are held");
            // Delete every second tensor: each edge is visited once or twice.
            for i in (0..n).step_by(2) {
                engine.del(held[i]);
            }
            engine.step();
            assert!(engine.walked <= 8 * n as u64, "{} for {n}", engine.walked);
        }
    }

    /// Regression test: in a program that keeps each step's loss, every step took longer than the
    /// last.
    #[test]
    fn values_kept_from_earlier_steps_cost_later_steps_nothing() {
        let mut engine = engine();
        let mut state = fill(&mut engine);
        let mut losses = Vec::new();
        let mut walked = Vec::new();
        for _ in 0..2000 {
            let gradient = add(&mut engine, state, state);
            losses.push(add(&mut engine, gradient, state));
            let next = add(&mut engine, state, gradient);
            engine.del(gradient);
            engine.del(state);
            state = next;
            let before = engine.walked;
            engine.step();
            walked.push(engine.walked - before);
        }
        assert!(walked.iter().all(|&walked| walked <= 16), "{walked:?}");
        assert!(engine.crossing.is_empty());
        // Only the held losses and a few more storages remain.
        let (_, storages, paths) = engine.graph().counts();
        assert!(storages <= losses.len() + 8 && paths <= 8, "{storages} storages, {paths} paths");
    }
}
