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
//! A failed op leaves its handle with the old value, which can be restored.

use super::apply::Inputs;
use super::in_place::Skipped;
use super::run::{Blocks, Failed, Order, Target};
use super::settings::Dead;
use super::{Engine, Keys, Layouts, PathKey, StorageKey, TensorKey};
use crate::device::Device;
use crate::event::Cause;
use crate::op::{Operation as _, Outputs};
use crate::step::takes_over;
use crate::store::{Body, Work};

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

    /// Runs a path that writes over its first input, with all inputs resident and pinned.
    #[inline(never)]
    pub(super) fn run_over(
        &mut self,
        path: PathKey,
        body: &Body<D>,
        sources: &[StorageKey],
    ) -> Result<(), Failed> {
        let result = match (self.meet_threshold(), self.store.graph.path(path).outputs[0]) {
            (Ok(()), Some(made)) => self.run_over_to(made, path, body, sources),
            (Ok(()), None) => unreachable!("a path without an output never runs"),
            (Err(error), _) => Err(error.into()),
        };
        if let Some(tape) = &mut self.store.tape {
            tape.end_run();
            tape.spoil("an op wrote over a value");
        }
        result
    }

    fn run_over_to(
        &mut self,
        made: StorageKey,
        path: PathKey,
        body: &Body<D>,
        sources: &[StorageKey],
    ) -> Result<(), Failed> {
        let (old, again) = (sources[0], self.store.graph.path(path).ran);
        let verifies = again && self.verifies();
        if verifies {
            self.before_again(path, body, &[Target::Storage(made)])?;
        }
        let gives = self.gives_block(body, sources, again);
        if let Some(cause) = gives
            && self.verify.is_some()
        {
            self.keep_bits(old, cause);
        }
        let targets = [match gives {
            Some(_) => Target::Storage(old),
            None => Target::CopyOf { input: 0, storage: made },
        }];
        let (work, outputs) = (&body.work, body.outputs());
        // The op finds the old value in the output.
        let mut inputs = Layouts::from_slice(body.inputs());
        inputs[0] = outputs[0];
        let order = Order {
            work,
            path: Some(path),
            sources,
            inputs: &inputs,
            looks: body.inputs(),
            targets: &targets,
            outputs,
            scratch: self.scratch_bytes(work, &inputs, outputs)?,
            again,
            in_place: true,
        };
        let mut blocks = Blocks::new();
        let cost = self.run_or_give_up(&order, &mut blocks)?;
        match gives {
            Some(cause) => self.keep_over(old, made, cause, cost, again),
            None => self.keep_made(&targets, &blocks, cost, again),
        }
        self.did_run(path, cost, again);
        if verifies {
            self.after_again(path, body, &[Target::Storage(made)]).map_err(Failed::after)?;
        }
        Ok(())
    }

    /// Whether the old value `sources[0]` gives its block to the new value, because only this run
    /// needs the old value. Returns the cause of the old value's eviction; `None` if the op works on
    /// a copy.
    fn gives_block(
        &mut self,
        body: &Body<D>,
        sources: &[StorageKey],
        again: bool,
    ) -> Option<Cause> {
        let (old, look) = (sources[0], &body.inputs()[0]);
        let of = self.store.graph.storage(old);
        let reads = sources.iter().filter(|source| **source == old).count();
        // The first run consumes a handle. A regeneration awaits the old value for this run. A run by
        // a schedule awaits nothing, because later runs of the schedule may read the old value.
        let (cause, awaits) = if again { (Cause::Dead, 1) } else { (Cause::Unheld, 0) };
        let needs = of.handles + of.awaited;
        if of.producer.is_none()
            || of.pins != 1
            || of.awaited != awaits
            || !takes_over(look, of.bytes, needs, reads)
            || again && self.settings.dead == Dead::Keep
        {
            return None;
        }
        let bytes = self.store.space.at_most(of.bytes);
        if self.evictor_keeps(old) && self.may_get(bytes) {
            return None;
        }
        Some(cause)
    }

    /// Finishes the output of a run that wrote over the block of `old`.
    fn keep_over(
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
