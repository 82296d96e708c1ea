//! Commands are read into a step.

use super::CapturedProgram;
use crate::layout::Layout;
use crate::op::Outputs;
use crate::plan::{Capture, CaptureError, CapturedBuffer, CapturedOp};
use crate::program::{Apply, Command, RecordedCommand, RecordedOp, TensorId};
use std::fmt::Write as _;

/// Attributes that change from step to step by design: the learning rate, which update it is, and what random numbers are
/// counted by.
const CHANGING: [&str; 3] = ["lr", "step", "counter"];

/// Bytes that tensors look at.
struct Storage {
    bytes: u64,
    /// Tensors that look at it.
    handles: u32,
    /// Whether it is there before the step.
    before: bool,
    /// Its number in the step, once an op has named it.
    buffer: Option<usize>,
}

/// What commands so far have done.
pub(super) struct Reader {
    granule: u64,
    /// Tensor -> its storage, and how it looks at it.
    tensors: Vec<(usize, Layout)>,
    storages: Vec<Storage>,
    /// Buffer -> its storage.
    named: Vec<usize>,
    /// Those of the step; none before it has begun.
    ops: Option<Vec<CapturedOp>>,
    /// Command of the step -> its op.
    commands: Vec<Option<usize>>,
}

impl Reader {
    pub fn new(granule: u64) -> Result<Self, CaptureError> {
        if !granule.is_power_of_two() {
            return Err(CaptureError::Alignment { buffer: 0, align: granule });
        }
        let (tensors, storages, named, commands) = (vec![], vec![], vec![], vec![]);
        Ok(Self { granule, tensors, storages, named, ops: None, commands })
    }

    /// The step begins with the next command.
    pub fn begin(&mut self) {
        self.storages.iter_mut().for_each(|storage| storage.before = storage.handles > 0);
        self.ops = Some(vec![]);
    }

    /// The step is over. Tensors without a buffer have the number of none.
    pub fn finish(mut self) -> Result<CapturedProgram, CaptureError> {
        // What no op names, in an order that does not depend on the steps before.
        let idle = self.storages.iter().enumerate();
        let idle = idle.filter(|(_, storage)| storage.before && storage.buffer.is_none());
        let mut idle: Vec<_> = idle.map(|(at, one)| (one.handles > 0, one.bytes, at)).collect();
        idle.sort_unstable();
        idle.into_iter().for_each(|(.., storage)| _ = self.name(storage));
        let buffer = |&storage: &usize| {
            let Storage { bytes, before, handles, .. } = self.storages[storage];
            CapturedBuffer { bytes, align: self.granule, before, after: handles > 0 }
        };
        let buffers = self.named.iter().map(buffer).collect();
        let capture = Capture::new(buffers, self.ops.unwrap_or_default())?;
        let of = |&(storage, _): &(usize, Layout)| {
            let Storage { buffer, .. } = self.storages[storage];
            buffer.unwrap_or(usize::MAX)
        };
        let buffers = self.tensors.iter().map(of).collect();
        Ok(CapturedProgram { capture, ops: self.commands, buffers })
    }

    /// The next command.
    pub fn command(&mut self, command: &RecordedCommand) {
        let ops = self.ops.as_ref().map_or(0, Vec::len);
        match command {
            Command::Put { host, leaf, .. } => {
                let made = self.make(host.layout);
                match host.cost {
                    None => self.storages[made].before = true,
                    Some(cost) => self.op(CapturedOp {
                        attributes: host.layout.to_string().into(),
                        makes: vec![made],
                        rematerializable: !leaf,
                        ..CapturedOp::new("put").costs(cost)
                    }),
                }
            }
            Command::Apply(call) => self.apply(call),
            Command::UpdateAll(calls) => self.update(calls),
            &Command::Replace { value, .. } => self.look(value, self.tensors[value.index()].1),
            &Command::Get(tensor) => {
                let reads = vec![self.storage(tensor)];
                let get = CapturedOp::new("get").reads(reads);
                self.op(CapturedOp { waits: true, rematerializable: false, ..get });
            }
            _ => {}
        }
        command.ends(|tensor| {
            let storage = self.storage(tensor);
            self.storages[storage].handles -= 1;
        });
        if let Some(after) = &self.ops {
            self.commands.push((after.len() > ops).then_some(ops));
        }
    }

    fn apply(&mut self, call: &Apply<RecordedOp>) {
        let op = |reads, makes, attributes: String| CapturedOp {
            name: call.op.name.clone(),
            attributes: attributes.into(),
            reads,
            makes,
            updates: vec![],
            workspace: call.op.workspace,
            cost: call.op.cost,
            rematerializable: call.op.rematerializable,
            waits: false,
        };
        match &call.outputs {
            Outputs::Updates { .. } => self.update(std::slice::from_ref(call)),
            Outputs::Views(looks) => {
                for look in looks {
                    self.look(call.inputs[look.input], look.layout);
                }
                // Nothing is read, so what is looked at need not be there.
                if call.op.cost > 0.0 {
                    let passes = op(vec![], vec![], self.attributes(call));
                    self.op(CapturedOp { rematerializable: false, ..passes });
                }
            }
            Outputs::Fresh(layouts) => {
                let attributes = self.attributes(call);
                let reads = distinct(call.inputs.iter().map(|&input| self.storage(input)));
                let makes = layouts.iter().map(|&layout| self.make(layout)).collect();
                self.op(op(reads, makes, attributes));
            }
        }
    }

    /// One or more updates, all of whose inputs are there from the first to the last.
    fn update(&mut self, calls: &[Apply<RecordedOp>]) {
        let inputs = || calls.iter().flat_map(|call| &call.inputs);
        let read: Vec<usize> = inputs().map(|&input| self.storage(input)).collect();
        let (mut updates, mut makes) = (vec![], vec![]);
        let attributes: Vec<String> = calls.iter().map(|call| self.attributes(call)).collect();
        for call in calls {
            let targets = call.outputs.targets();
            for (input, &target) in call.inputs.iter().take(targets).enumerate() {
                let (old, layout) = self.tensors[target.index()];
                let is_whole = self.round(layout.bytes()) == self.storages[old].bytes;
                let is_held_once = self.storages[old].handles == 1
                    && read.iter().filter(|&&other| other == old).count() == 1;
                let is_consumed = call.consumed.contains(input);
                if is_consumed && layout.offset() == 0 && is_whole && is_held_once {
                    updates.push(old);
                    self.look(target, layout);
                } else {
                    makes.push(self.make(layout));
                }
            }
            let fresh = call.outputs.written().map_or(&[][..], |(_, fresh)| fresh);
            makes.extend(fresh.iter().map(|&layout| self.make(layout)));
        }
        let name = match calls {
            [call] => call.op.name.clone(),
            _ => "update_all".into(),
        };
        let reads = read.into_iter().filter(|storage| !updates.contains(storage));
        self.op(CapturedOp {
            name,
            attributes: attributes.join("; ").into(),
            reads: distinct(reads),
            makes,
            updates,
            workspace: calls.iter().map(|call| call.op.workspace).max().unwrap_or(0),
            cost: calls.iter().map(|call| call.op.cost).sum(),
            rematerializable: false,
            waits: false,
        });
    }

    /// What an op is, but for what changes: its attributes, and what its operands look like.
    fn attributes(&self, call: &Apply<RecordedOp>) -> String {
        let mut text = lasting(call.op.attributes.as_deref().unwrap_or(""));
        for input in &call.inputs {
            _ = write!(text, " {}", self.tensors[input.index()].1);
        }
        let fresh = call.outputs.written().map_or(&[][..], |(_, fresh)| fresh);
        for layout in fresh {
            _ = write!(text, " -> {layout}");
        }
        text
    }

    /// Adds an op over storages to the step, if that has begun.
    fn op(&mut self, mut op: CapturedOp) {
        if self.ops.is_none() {
            return;
        }
        let lists = [&mut op.reads, &mut op.updates, &mut op.makes];
        for storage in lists.into_iter().flatten() {
            *storage = self.name(*storage);
        }
        if let Some(ops) = &mut self.ops {
            ops.push(op);
        }
    }

    /// The number of a storage in the step.
    fn name(&mut self, storage: usize) -> usize {
        *self.storages[storage].buffer.get_or_insert_with(|| {
            self.named.push(storage);
            self.named.len() - 1
        })
    }

    /// The next tensor has a storage of its own.
    fn make(&mut self, layout: Layout) -> usize {
        let storage = self.storages.len();
        self.tensors.push((storage, layout));
        let bytes = self.round(layout.bytes());
        self.storages.push(Storage { bytes, handles: 1, before: false, buffer: None });
        storage
    }

    /// The next tensor looks at the storage of this one.
    fn look(&mut self, tensor: TensorId, layout: Layout) {
        let storage = self.storage(tensor);
        self.storages[storage].handles += 1;
        self.tensors.push((storage, layout));
    }

    fn storage(&self, tensor: TensorId) -> usize {
        self.tensors[tensor.index()].0
    }

    /// What bytes take. More than there are addresses is refused at the end.
    fn round(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.granule).unwrap_or(u64::MAX)
    }
}

/// Each once, in the order in which they come.
fn distinct(storages: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut distinct = vec![];
    for storage in storages {
        if !distinct.contains(&storage) {
            distinct.push(storage);
        }
    }
    distinct
}

/// Attributes as JSON without those that change. Text that is none stays as it is.
pub(super) fn lasting(attributes: &str) -> String {
    let mut text = attributes.to_owned();
    for name in CHANGING {
        let key = format!("\"{name}\":");
        if let Some(at) = text.find(&key) {
            let value = &text[at + key.len()..];
            let length = value.find([',', '}']).unwrap_or(value.len());
            text.replace_range(at..at + key.len() + length, "");
        }
    }
    text
}
