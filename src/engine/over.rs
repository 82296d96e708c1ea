//! Ops that write over a value that can be restored ([`Outputs::Over`]).
//!
//! ```text
//!        conv           relu_
//! 9 MB ───────▶ 25 MB ────────▶ 25 MB      memory for one of the two, also in a rerun of `relu_`
//! ```
//!
//! The new value has a compute path of its own, unlike the new value of an update (`in_place.rs`),
//! which is a leaf. The old value keeps its compute path, and gives its block to the new value if
//! nothing needs the old value's bytes. Otherwise the op works on a copy of the old value.
//!
//! If the op fails, its handle still names the old value, which can be restored.

use super::apply::Inputs;
use super::in_place::Skipped;
use super::run::{Failed, Target};
use super::settings::Dead;
use super::{Engine, Keys, PathKey, StorageKey, TensorKey};
use crate::device::Device;
use crate::event::Cause;
use crate::layout::Layout;
use crate::op::{Operation as _, Outputs};
use crate::step::takes_over;
use crate::store::{Body, Work};
use smallvec::SmallVec;

/// Layouts of the inputs of an op that writes over its first input. The op finds the old value in
/// the output.
pub(super) fn over_layouts(looks: &[Layout], outputs: &[Layout]) -> SmallVec<[Layout; 4]> {
    let mut inputs = SmallVec::from_slice(looks);
    inputs[0] = outputs[0];
    inputs
}

impl<D: Device> Engine<D> {
    /// Whether the new value of the op's first input can be evicted: the op may run again, and the
    /// old value can be restored.
    pub(super) fn writes_over(&self, op: &D::Op, inputs: &Inputs, outputs: &Outputs) -> bool {
        *outputs == Outputs::Over
            && self.enabled
            && op.rematerializable()
            && self.store.graph.storage(inputs.storages[0]).producer.is_some()
    }

    /// Runs an op that writes over its first input, and consumes the input's key. If the op is
    /// skipped, the key stays valid and names the old value.
    pub(super) fn try_over(
        &mut self,
        op: D::Op,
        keys: &[TensorKey],
        inputs: Inputs,
    ) -> Result<Keys, Skipped> {
        let Inputs { storages: sources, layouts } = inputs;
        if let Some(error) = self.reason_among(&sources) {
            return Err(Skipped::known(self.skip(&op, error)));
        }
        if let Some(tape) = &mut self.store.tape {
            tape.spoil("an op wrote over a value that can be restored");
        }
        let layout = Outputs::Over.layout(0, |input| layouts[input]);
        let mut body = Body::new(Work::Op(op), layouts, [layout].into_iter());
        body.over = true;
        let made = self.add_storage(&layout);
        let key = self.store.graph.add_tensor(made, layout);
        let old = &self.store.graph.storages[sources[0]];
        let label = old.label.clone();
        self.store.graph.storages[made].label = label;
        let path = self.store.graph.add_path(sources.iter().copied(), [made].into_iter());
        let result = self.ensure(&sources).map_err(Failed::from).and_then(|()| {
            let result = self.run_path_of(path, &body, &sources);
            self.release_pins(&sources);
            result
        });
        let skipped =
            result.map_err(|failed| Skipped::new(self.skip_unless_launched(&body.work, failed)));
        self.store.bodies.insert(path, body);
        // A skipped op ends the new handle, and a run consumes the old one.
        self.del(if skipped.is_ok() { keys[0] } else { key });
        skipped.map(|()| Keys::from_slice(&[key]))
    }

    /// Chooses the destination of an op that writes over `sources[0]`: the old value's block if
    /// only this run needs the old value, and otherwise a copy.
    pub(super) fn over_target(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        sources: &[StorageKey],
        storage: StorageKey,
    ) -> Target {
        let copy = Target::CopyOf { input: 0, storage };
        let (old, again) = (sources[0], self.store.graph.path(path).ran);
        let of = self.store.graph.storage(old);
        let reads = sources.iter().filter(|source| **source == old).count();
        if of.producer.is_none() || of.pins != 1 {
            return copy;
        }
        let cause = match again {
            // The first run consumes a handle.
            false if takes_over(&body.inputs()[0], of.bytes, of.handles, reads) => Cause::Unheld,
            // The regeneration awaits the old value for this run. A run by a schedule awaits nothing,
            // because later runs of the schedule may read the old value.
            true if takes_over(&body.inputs()[0], of.bytes, of.handles + of.awaited, reads)
                && of.awaited == 1
                && self.settings.dead != Dead::Keep =>
            {
                Cause::Dead
            }
            _ => return copy,
        };
        let bytes = self.store.space.at_most(of.bytes);
        if self.evictor_keeps(old) && self.may_get(bytes) {
            return copy;
        }
        if self.verify.is_some() {
            self.keep_bits(old, cause);
        }
        Target::Over { old, storage, cause }
    }

    /// Finishes the output of a run that wrote over the block of `old`.
    #[inline(never)]
    pub(super) fn keep_over(
        &mut self,
        old: StorageKey,
        made: StorageKey,
        cause: Cause,
        cost: f64,
        again: bool,
    ) {
        self.store.hand_over(old, made);
        self.store.touch(made);
        self.tell_evicted(old, cause);
        if again {
            self.store.graph.storages[made].recomputed += 1;
            self.tell_regenerated(made, cost);
        }
    }
}
