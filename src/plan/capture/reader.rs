//! Commands are read into a step that can be ordered and planned.

#[cfg(test)]
mod tests;

use super::{Capture, CaptureError, CapturedBuffer, CapturedOp};
use crate::command::{Apply, Command, RecordedCommand, RecordedOp, RecordedProgram};
use crate::step;
use std::fmt::Write as _;
use std::ops::Range;

/// Attributes that change from step to step by design: the learning rate, which update it is, and what random numbers are
/// counted by.
const CHANGING: [&str; 3] = ["lr", "step", "counter"];

/// A whole program as one step, and what its commands and tensors are in it.
#[derive(Debug)]
pub struct CapturedProgram {
    /// The step.
    pub capture: Capture,
    /// Command -> its op; `None` for one that does nothing on a device.
    pub ops: Vec<Option<usize>>,
    /// Tensor -> its buffer.
    pub buffers: Vec<usize>,
}

impl RecordedProgram {
    /// The commands of each step: from after one end of a step up to and with the next. What comes before the first end
    /// belongs to the first step; what comes after the last is in none. O(commands).
    #[must_use]
    pub fn steps(&self) -> Vec<Range<usize>> {
        let ends = self.commands().iter().enumerate();
        let ends = ends.filter(|(_, command)| matches!(command, Command::Step));
        let mut begin = 0;
        ends.map(|(at, _)| std::mem::replace(&mut begin, at + 1)..at + 1).collect()
    }

    /// These commands as one step, where bytes are had in multiples of `granule`, a power of two, only. They are those
    /// between two ends of a step ([`steps`](Self::steps)), or all of a log of the DTR paper. Of a program that runs, a
    /// [`Turn`](crate::program::Turn) is such a recording: its step begins at [`Turn::begin`](crate::program::Turn::begin).
    ///
    /// Ops are ops, uploads (`put`) and reads by the host (`get`, for which it waits). Several updates at once are one op
    /// (`update_all`). A value that was there before the recording began is there before the step. Views are no ops, unless
    /// they cost something, as in the logs of the paper: then they are ops that read and make nothing, for what is looked at
    /// need not be there. An update is in place where the engine would have it so: nobody else holds the old value, which is
    /// all of its storage; otherwise it makes another buffer.
    ///
    /// Buffers are numbered as the ops name them; then come those that no op names, by what becomes of them and by size. So
    /// two steps that repeat have no [difference](Capture::difference).
    ///
    /// O(commands up to the end of the step).
    ///
    /// # Errors
    ///
    /// A granule that is no power of two; costs that are no numbers; 2^64 bytes or more.
    ///
    /// # Panics
    ///
    /// If the range is not within the commands, as with any slice.
    pub fn capture(&self, commands: Range<usize>, granule: u64) -> Result<Capture, CaptureError> {
        let mut reader = Reader::new(granule)?;
        self.commands()[..commands.start].iter().for_each(|command| reader.command(command));
        reader.begin();
        self.commands()[commands].iter().for_each(|command| reader.command(command));
        Ok(reader.finish()?.capture)
    }

    /// All commands as one step: see [`capture`](Self::capture).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn capture_whole(&self, granule: u64) -> Result<CapturedProgram, CaptureError> {
        let mut reader = Reader::new(granule)?;
        reader.begin();
        self.commands().iter().for_each(|command| reader.command(command));
        reader.finish()
    }
}

/// Bytes that tensors look at.
#[derive(Clone, Copy, Debug)]
struct Storage {
    /// Its latest value.
    value: u32,
    /// Whether it is there before the step.
    before: bool,
    /// Its number in the step, once an op has named it.
    buffer: Option<usize>,
}

/// What commands so far have done.
struct Reader {
    granule: u64,
    values: step::Reader,
    storages: Vec<Storage>,
    /// Tensor -> its storage.
    tensors: Vec<usize>,
    /// Buffer -> its storage.
    named: Vec<usize>,
    /// Those of the step; none before it has begun.
    ops: Option<Vec<CapturedOp>>,
    /// Command of the step -> its op.
    commands: Vec<Option<usize>>,
}

impl Reader {
    fn new(granule: u64) -> Result<Self, CaptureError> {
        if !granule.is_power_of_two() {
            return Err(CaptureError::Alignment { buffer: 0, align: granule });
        }
        let (storages, tensors, named, commands) = (vec![], vec![], vec![], vec![]);
        let values = step::Reader::default();
        Ok(Self { granule, values, storages, tensors, named, ops: None, commands })
    }

    /// The step begins with the next command.
    fn begin(&mut self) {
        for storage in &mut self.storages {
            storage.before = self.values.is_held(storage.value);
        }
        self.ops = Some(vec![]);
    }

    /// The step is over. Tensors without a buffer have the number of none.
    fn finish(mut self) -> Result<CapturedProgram, CaptureError> {
        // What no op names, in an order that does not depend on the steps before.
        let idle = self.storages.iter().enumerate();
        let idle = idle.filter(|(_, storage)| storage.before && storage.buffer.is_none());
        let key = |(at, &storage): (usize, &Storage)| {
            (self.values.is_held(storage.value), self.bytes(storage), at)
        };
        let mut idle: Vec<_> = idle.map(key).collect();
        idle.sort_unstable();
        idle.into_iter().for_each(|(.., storage)| _ = self.name(storage));
        let buffer = |&storage: &usize| {
            let storage = self.storages[storage];
            let (bytes, after) = (self.bytes(storage), self.values.is_held(storage.value));
            CapturedBuffer { bytes, align: self.granule, before: storage.before, after }
        };
        let buffers = self.named.iter().map(buffer).collect();
        let capture = Capture::new(buffers, self.ops.unwrap_or_default())?;
        let of = |&storage: &usize| self.storages[storage].buffer.unwrap_or(usize::MAX);
        let buffers = self.tensors.iter().map(of).collect();
        Ok(CapturedProgram { capture, ops: self.commands, buffers })
    }

    /// The next command.
    fn command(&mut self, command: &RecordedCommand) {
        // As its inputs are before it.
        let attributes = self.ops.is_some().then(|| self.attributes(command));
        let deed = self.values.read(command, |host| host.layout);
        let (mut makes, mut updates) = (vec![], vec![]);
        for made in deed.makes {
            let storage = self.values.storage(made.value) as usize;
            if made.in_place {
                updates.push(storage);
                self.storages[storage].value = made.value;
            } else {
                makes.push(storage);
                self.storages.push(Storage { value: made.value, before: false, buffer: None });
            }
        }
        let storage = |value: u32| self.values.storage(value) as usize;
        self.tensors.extend(deed.outputs.into_iter().map(storage));
        let reads = deed.reads.into_iter().map(storage);
        let reads = reads.filter(|storage| !updates.contains(storage)).collect();
        // It was there before the recording began.
        if matches!(command, Command::Put { host, .. } if host.cost.is_none()) {
            self.storages[makes[0]].before = true;
        }
        let Some(attributes) = attributes else { return };
        let op = op(command).map(|op| {
            let attributes = attributes.into();
            self.add(CapturedOp { attributes, reads, makes, updates, ..op })
        });
        self.commands.push(op);
    }

    /// What is the same each time: of each call its attributes, and what its operands look like.
    fn attributes(&self, command: &RecordedCommand) -> String {
        if let Command::Put { host, .. } = command {
            return host.layout.to_string();
        }
        let of = |call: &Apply<RecordedOp>| {
            let mut text = lasting(call.op.attributes.as_deref().unwrap_or(""));
            for &input in &call.inputs {
                _ = write!(text, " {}", self.values.layout(input));
            }
            let fresh = call.outputs.written().map_or(&[][..], |(_, fresh)| fresh);
            for layout in fresh {
                _ = write!(text, " -> {layout}");
            }
            text
        };
        command.calls().iter().map(of).collect::<Vec<_>>().join("; ")
    }

    /// Adds an op over storages. Returns its number.
    fn add(&mut self, mut op: CapturedOp) -> usize {
        let lists = [&mut op.reads, &mut op.updates, &mut op.makes];
        for storage in lists.into_iter().flatten() {
            *storage = self.name(*storage);
        }
        let ops = self.ops.get_or_insert_default();
        ops.push(op);
        ops.len() - 1
    }

    /// The number of a storage in the step.
    fn name(&mut self, storage: usize) -> usize {
        *self.storages[storage].buffer.get_or_insert_with(|| {
            self.named.push(storage);
            self.named.len() - 1
        })
    }

    /// What a storage takes. More than there are addresses is refused at the end.
    fn bytes(&self, storage: Storage) -> u64 {
        let bytes = self.values.bytes(storage.value);
        bytes.checked_next_multiple_of(self.granule).unwrap_or(u64::MAX)
    }
}

/// What a command is as an op, but for its buffers; `None` if it does nothing on a device.
fn op(command: &RecordedCommand) -> Option<CapturedOp> {
    let calls = match command {
        Command::Put { host, leaf, .. } => {
            let put = CapturedOp::new("put").costs(host.cost?);
            return Some(CapturedOp { rematerializable: !leaf, ..put });
        }
        Command::Get(_) => {
            let get = CapturedOp::new("get");
            return Some(CapturedOp { waits: true, rematerializable: false, ..get });
        }
        command => command.calls(),
    };
    let (first, more) = calls.split_first()?;
    let is_view = first.outputs.written().is_none();
    let cost = calls.iter().map(|call| call.op.cost).sum();
    if is_view && cost == 0.0 {
        return None;
    }
    Some(CapturedOp {
        workspace: calls.iter().map(|call| call.op.workspace).max().unwrap_or(0),
        rematerializable: first.op.rematerializable && !is_view && first.outputs.targets() == 0,
        ..match more {
            [] => CapturedOp::new(first.op.name.clone()).costs(cost),
            _ => CapturedOp::new("update_all").costs(cost),
        }
    })
}

/// Attributes as JSON without those that change. Text that is none stays as it is.
fn lasting(attributes: &str) -> String {
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
