//! Memory contents during the recorded run, not during a replay.

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
/// use remat::unstable::lab::{Trace, plot};
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
    /// Samples of memory over the cost of the run, for plots. Each line of the recording gives one
    /// sample, except the first and the last line.
    pub timeline: Timeline,
    /// Peak of the bytes in use. Workspaces are included up to the end of the last step; later
    /// workspaces are not recorded.
    pub peak_bytes: u64,
    /// Number of steps that ended.
    pub steps: u64,
    /// Number of ops, uploads included, views excluded.
    pub ops: u64,
    /// Cost of the first runs of all ops.
    pub base_cost: f64,
    /// Total cost of all reruns.
    pub recompute_cost: f64,
    /// Number and bytes of evicted storages, by cause.
    pub evictions: BTreeMap<Cause, Tally>,
    /// Number and bytes of regenerated storages.
    pub regenerations: Tally,
    /// Number and bytes of regenerated storages, by the op that made the storage. The op with the
    /// most regenerations comes first.
    pub regenerated_ops: Vec<(Arc<str>, Tally)>,
}

/// Number of events on storages, and the total bytes of these storages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of events.
    pub times: u64,
    /// Total bytes of the storages.
    pub bytes: u64,
}

impl Tally {
    fn add(&mut self, bytes: u64) {
        self.times += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Reason why a trace has no [`History`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoHistory {
    /// A log of the DTR paper.
    #[error(
        "a log of the DTR paper does not say what was in memory; `remat simulate --plot` draws a replay"
    )]
    Log,
    /// The recording was made by an earlier version of the program, or some of its lines lack the
    /// number of bytes in use.
    #[error(
        "this recording does not say what was in memory, unlike recordings from version 3 on; record the run anew, \
         or draw a \
         replay with `remat simulate --plot`"
    )]
    Unknown,
    /// The trace has repeated steps, which were not recorded: see
    /// [`Trace::repeat_step`](super::Trace::repeat_step).
    #[error(
        "a trace with steps added by `repeat_step` has no history, because these steps were not recorded; call \
         `history` before `repeat_step`"
    )]
    Repeated,
}

/// Tracks the memory contents of a recorded run, line by line.
#[derive(Debug, Default)]
pub(super) struct Historian {
    history: History,
    /// Tensor, deleted or not -> position of its storage.
    storage_of: FxHashMap<TensorId, u32>,
    /// Tensors replaced in the current step. The old values of replaced tensors are held until the
    /// step ends.
    replaced: Vec<TensorId>,
    storages: Vec<Storage>,
    ops: Vec<(Arc<str>, Tally)>,
    op_index: FxHashMap<Arc<str>, u32>,
    /// Total bytes of the evicted storages that a handle holds.
    evicted: u64,
    /// [`History::base_cost`] before the last command.
    cost_before: f64,
}

#[derive(Debug)]
struct Storage {
    /// Number of tensors on the storage that are not deleted.
    handles: u32,
    /// Bytes of the storage if the storage is evicted; `None` otherwise.
    evicted: Option<u64>,
    /// Position in `ops` of the op that made the storage.
    op: u32,
}

/// Error of a line without the number of bytes in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

impl Historian {
    pub fn new(timeline: Timeline) -> Self {
        Self { history: History { timeline, ..History::default() }, ..Self::default() }
    }

    /// Processes one line. The line must be valid: every tensor that the line names was made by an
    /// earlier line.
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

    /// Cost of all work so far, reruns included.
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
        // Each update counts as a new storage here, even if the update overwrote the bytes of the
        // old value.
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
            // A postponed storage was never resident. The command that should make the storage has
            // not run yet, so the cost of the command is subtracted.
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
        // With cause `Unheld`, the last handle of the storage is about to be deleted. The bytes of
        // a storage that is about to be deleted do not count as evicted.
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
