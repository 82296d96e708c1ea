//! What memory held during the run that made a recording: as it was, not replayed.

use super::plot::{Sample, Timeline};
use crate::command::{Apply, Command, RecordedCommand, RecordedOp, TensorId};
use crate::driver::{Entry, Setting};
use crate::event::Cause;
use crate::op::Outputs;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The memory of a recorded run.
///
/// ```
/// use remat::lab::{Trace, plot};
///
/// let recording = r#"{"event":"begin","version":3,"cost_model":"flops","budget":64}
/// {"event":"put","tensor":0,"bytes":48,"cost":1.0,"used":48}
/// {"event":"evict","tensor":0,"bytes":48,"cause":"wish","used":0}
/// {"event":"drop","tensor":0,"used":0}
/// {"event":"regenerate","tensor":0,"bytes":48,"cost":1.0,"used":48}
/// {"event":"get","tensor":0,"used":48}
/// {"event":"end"}"#;
/// let trace = Trace::read(recording.as_bytes(), "small.jsonl")?;
/// let history = trace.history().expect("it is of version 3");
/// assert_eq!((history.peak_bytes, history.regenerations.bytes), (48, 48));
/// assert!(plot::memory(&history.timeline)?.starts_with("<svg"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Memory over the cost of the run, to draw: a sample for each line of the recording but the first and the last.
    pub timeline: Timeline,
    /// Most bytes in use at once: workspaces included up to the end of the last step, and without them after it.
    pub peak_bytes: u64,
    /// Ends of steps.
    pub steps: u64,
    /// Ops, uploads included; views not.
    pub ops: u64,
    /// What they cost when they ran for the first time.
    pub base_cost: f64,
    /// What running them again cost.
    pub recompute_cost: f64,
    /// Storages whose bytes went, by cause.
    pub evictions: BTreeMap<Cause, Tally>,
    /// Storages brought back.
    pub regenerations: Tally,
    /// Of each op that made some of those: how many, most first.
    pub regenerated_ops: Vec<(Arc<str>, Tally)>,
}

/// How often something happened to storages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How often.
    pub times: u64,
    /// Bytes of all those storages together.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.times += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Why there is no [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoHistory {
    /// A log of the DTR paper.
    #[error(
        "a log of the DTR paper does not say what was in memory; `remat simulate --plot` draws a replay"
    )]
    Log,
    /// A recording of an earlier program, or one whose lines do not say what was in use.
    #[error(
        "this recording does not say what was in memory, as those of version 3 do; record the run anew, or draw a \
         replay with `remat simulate --plot`"
    )]
    Unknown,
    /// See [`Trace::repeat_step`](super::Trace::repeat_step).
    #[error("steps that are repeated were not recorded")]
    Repeated,
}

/// Follows a recording line by line.
#[derive(Debug, Default)]
pub(super) struct Historian {
    history: History,
    /// Tensor, deleted or not -> position of its storage.
    storage_of: FxHashMap<TensorId, u32>,
    /// What was replaced in this step: it is kept until the step ends.
    replaced: Vec<TensorId>,
    storages: Vec<Storage>,
    ops: Vec<(Arc<str>, Tally)>,
    op_index: FxHashMap<Arc<str>, u32>,
    /// Bytes of evicted storages that are held.
    evicted: u64,
    /// [`History::base_cost`] before the last command.
    cost_before: f64,
}

#[derive(Debug)]
struct Storage {
    /// Tensors that look at it and are not deleted.
    handles: u32,
    /// Bytes that were evicted, if they are.
    evicted: Option<u64>,
    /// Position of the op that made it.
    op: u32,
}

/// A line that does not say what was in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

impl Historian {
    pub fn new(timeline: Timeline) -> Self {
        Self { history: History { timeline, ..History::default() }, ..Self::default() }
    }

    /// Goes on by a line that makes sense: what it speaks of was made before.
    pub fn on(&mut self, entry: &Entry) -> Result<(), Unknown> {
        let mut regenerated = 0;
        let mut cost = 0.0;
        let used = match entry {
            Entry::Begin { .. } | Entry::End => return Ok(()),
            Entry::Did { command, used, peak } => {
                cost = command.cost();
                self.history.peak_bytes = self.history.peak_bytes.max(peak.unwrap_or(0));
                self.did(command);
                *used
            }
            Entry::Set { setting, failed, used } => {
                if let (Setting::Budget(bytes), false) = (setting, failed) {
                    let at = self.clock();
                    self.history.timeline.budgets.push((at, *bytes));
                }
                Some(*used)
            }
            &Entry::Evict { tensor, bytes, cause, used } => {
                self.evict(tensor, bytes, cause);
                Some(used)
            }
            &Entry::Regenerate { tensor, bytes, cost, used } => {
                self.history.recompute_cost += cost;
                self.regenerate(tensor, bytes);
                regenerated = bytes;
                Some(used)
            }
        };
        let used = used.ok_or(Unknown)?;
        if matches!(entry, Entry::Did { .. }) {
            self.cost_before = self.history.base_cost;
            self.history.base_cost += cost;
        }
        self.history.peak_bytes = self.history.peak_bytes.max(used);
        let sample = Sample { at: self.clock(), used, evicted: self.evicted, regenerated };
        self.history.timeline.samples.push(sample);
        Ok(())
    }

    /// Cost of everything so far.
    fn clock(&self) -> f64 {
        self.history.base_cost + self.history.recompute_cost
    }

    pub fn finish(self) -> History {
        let Self { mut history, mut ops, .. } = self;
        ops.retain(|(_, tally)| tally.times > 0);
        ops.sort_by(|(a, x), (b, y)| (y.times, y.bytes).cmp(&(x.times, x.bytes)).then(a.cmp(b)));
        history.regenerated_ops = ops;
        history
    }

    fn did(&mut self, command: &RecordedCommand) {
        match *command {
            Command::Put { tensor, .. } => {
                self.history.ops += 1;
                self.add(tensor, "put");
            }
            Command::Replace { target, consumed, value, made } => {
                self.look(made, value);
                if consumed {
                    self.replaced.push(target);
                }
            }
            Command::Del(tensor) => self.release(tensor),
            Command::Step | Command::Confirm => {
                self.history.steps += u64::from(matches!(command, Command::Step));
                std::mem::take(&mut self.replaced).into_iter().for_each(|old| self.release(old));
            }
            _ => command.calls().iter().for_each(|call| self.apply(call)),
        }
    }

    fn apply(&mut self, call: &Apply<RecordedOp>) {
        if let Outputs::Views(looks) = &call.outputs {
            for (made, look) in call.outputs().zip(looks) {
                self.look(made, call.inputs[look.input]);
            }
            return;
        }
        self.history.ops += 1;
        // An update is a leaf, whether it took its storage over or not.
        call.outputs().for_each(|made| self.add(made, &call.op.name));
        call.ended().for_each(|old| self.release(old));
    }

    fn look(&mut self, made: TensorId, at: TensorId) {
        let storage = self.storage_of[&at];
        self.hold(storage);
        self.storage_of.insert(made, storage);
    }

    fn add(&mut self, tensor: TensorId, op: &str) {
        let op = match self.op_index.get(op) {
            Some(&index) => index,
            None => {
                let (name, index) = (Arc::<str>::from(op), self.ops.len() as u32);
                self.op_index.insert(Arc::clone(&name), index);
                self.ops.push((name, Tally::default()));
                index
            }
        };
        self.storage_of.insert(tensor, self.storages.len() as u32);
        self.storages.push(Storage { handles: 1, evicted: None, op });
    }

    fn hold(&mut self, storage: u32) {
        let storage = &mut self.storages[storage as usize];
        if storage.handles == 0 {
            self.evicted = self.evicted.saturating_add(storage.evicted.unwrap_or(0));
        }
        storage.handles += 1;
    }

    fn release(&mut self, tensor: TensorId) {
        let storage = &mut self.storages[self.storage_of[&tensor] as usize];
        if storage.handles == 0 {
            return;
        }
        storage.handles -= 1;
        if storage.handles == 0 {
            self.evicted = self.evicted.saturating_sub(storage.evicted.unwrap_or(0));
        }
    }

    fn evict(&mut self, tensor: TensorId, bytes: u64, cause: Cause) {
        match cause {
            // It never was there, and did not cost anything yet.
            Cause::Postponed => {
                self.history.base_cost = self.cost_before;
                let at = self.clock();
                if let Some(sample) = self.history.timeline.samples.last_mut() {
                    sample.at = at;
                }
            }
            _ => self.history.evictions.entry(cause).or_default().add(bytes),
        }
        let storage = &mut self.storages[self.storage_of[&tensor] as usize];
        let before = storage.evicted.replace(bytes);
        // Its last handle is about to be deleted.
        if storage.handles > 0 && cause != Cause::Unheld {
            self.evicted = self.evicted.saturating_sub(before.unwrap_or(0)).saturating_add(bytes);
        } else {
            storage.handles = 0;
        }
    }

    fn regenerate(&mut self, tensor: TensorId, bytes: u64) {
        let storage = &mut self.storages[self.storage_of[&tensor] as usize];
        let evicted = storage.evicted.take().unwrap_or(0);
        if storage.handles > 0 {
            self.evicted = self.evicted.saturating_sub(evicted);
        }
        self.history.regenerations.add(bytes);
        self.ops[storage.op as usize].1.add(bytes);
    }
}
