//! Reader that turns recorded commands into a capture, which describes a step by its ops and
//! buffers.

#[cfg(test)]
mod tests;

use crate::command::{Apply, Command, RecordedCommand, RecordedOp, RecordedProgram};
use crate::step;
use remat_plan::{Capture, CaptureError, CapturedBuffer, CapturedOp};
use std::fmt::Write as _;
use std::ops::Range;

/// Names of attributes that differ from step to step: the learning rate, the number of the update,
/// and the counter of random numbers.
const CHANGING: [&str; 3] = ["lr", "step", "counter"];

/// A whole program as one step, with the ops and buffers of its commands and tensors.
#[derive(Debug)]
pub struct CapturedProgram {
    /// Ops and buffers of the step.
    pub capture: Capture,
    /// Command -> its op in the step; `None` if the command does nothing on a device.
    pub ops: Vec<Option<usize>>,
    /// Tensor -> its buffer; `usize::MAX` if the tensor has no buffer.
    pub buffers: Vec<usize>,
}

impl RecordedProgram {
    /// Range of the commands of each step. A step ends with a [`Command::Step`], which belongs to
    /// the step. Commands before the first [`Command::Step`] belong to the first step; commands
    /// after the last one belong to no step. Time: O(commands).
    #[must_use]
    pub fn steps(&self) -> Vec<Range<usize>> {
        let ends = self.commands().iter().enumerate();
        let ends = ends.filter(|(_, command)| matches!(command, Command::Step));
        let mut begin = 0;
        ends.map(|(at, _)| std::mem::replace(&mut begin, at + 1)..at + 1).collect()
    }

    /// Reads a range of commands as one step. Sizes are rounded up to multiples of `granule`, a
    /// power of two.
    ///
    /// The range is usually one of [`steps`](Self::steps). For a log of the DTR paper, the range is
    /// the whole program. For a running program, a [`Turn`](crate::program::Turn) holds the
    /// commands, and the step begins at [`Turn::begin`](crate::program::Turn::begin).
    ///
    /// Calls, uploads (`put`) and reads by the host (`get`, for which the host waits) become ops. A
    /// command with several updates becomes one op (`update_all`). A value from before the
    /// recording counts as a value from before the step. A view becomes no op unless it has a cost,
    /// as in the logs of the paper. A view with a cost becomes an op without buffers, because the
    /// storage behind the view need not be resident.
    ///
    /// An update is in place if the engine would update in place: no other tensor holds the old
    /// value, and the value fills its storage. Any other update makes a new buffer.
    ///
    /// Buffers are numbered in the order in which ops name them. Buffers that no op names come
    /// last: first the buffers that the step frees, by size, then the buffers that stay, by size.
    /// The order is fixed, so that two repetitions of a step have no
    /// [difference](Capture::difference).
    ///
    /// Time: O(commands up to the end of the step).
    ///
    /// # Errors
    ///
    /// [`CaptureError`] if the granule is not a power of two, or if a cost is negative or not
    /// finite. [`CaptureError`] also if all buffers and workspaces together have 2^64 bytes or
    /// more.
    ///
    /// # Panics
    ///
    /// If the range is not within the commands.
    pub fn capture(&self, commands: Range<usize>, granule: u64) -> Result<Capture, CaptureError> {
        let mut reader = Reader::new(granule)?;
        self.commands()[..commands.start].iter().for_each(|command| reader.command(command));
        reader.begin();
        self.commands()[commands].iter().for_each(|command| reader.command(command));
        Ok(reader.finish()?.capture)
    }

    /// Reads all commands as one step: see [`capture`](Self::capture).
    ///
    /// # Errors
    ///
    /// Errors of [`capture`](Self::capture).
    pub fn capture_whole(&self, granule: u64) -> Result<CapturedProgram, CaptureError> {
        let mut reader = Reader::new(granule)?;
        reader.begin();
        self.commands().iter().for_each(|command| reader.command(command));
        reader.finish()
    }
}

/// A block of bytes that one or more tensors share.
#[derive(Clone, Copy, Debug)]
struct Storage {
    /// Latest value of the storage.
    value: u32,
    /// Whether the storage exists before the step.
    before: bool,
    /// Number of the buffer in the step; `None` until an op names the storage.
    buffer: Option<usize>,
}

/// State of the reader after the commands that were read so far.
struct Reader {
    granule: u64,
    values: step::Reader,
    storages: Vec<Storage>,
    /// Tensor -> number of its storage.
    tensors: Vec<usize>,
    /// Buffer -> number of its storage.
    named: Vec<usize>,
    /// Ops of the step; `None` before the step has begun.
    ops: Option<Vec<CapturedOp>>,
    /// Command of the step -> position of its op; `None` if the command has no op.
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

    /// Begins the step. The next command is the first command of the step.
    fn begin(&mut self) {
        for storage in &mut self.storages {
            storage.before = self.values.is_held(storage.value);
        }
        self.ops = Some(vec![]);
    }

    /// Ends the step. Tensors without a buffer get the number `usize::MAX`.
    fn finish(mut self) -> Result<CapturedProgram, CaptureError> {
        // Buffers that no op names get their numbers in an order that does not depend on earlier
        // steps.
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

    /// Reads the next command.
    fn command(&mut self, command: &RecordedCommand) {
        // Take the attributes before the command changes the inputs that they describe.
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
        // A put without a cost stands for a value that was made before the recording began.
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

    /// Attributes that are equal in each repetition of the step. For each call, the text has the
    /// attributes outside of `CHANGING`, and the layouts of inputs and outputs.
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

    /// Adds an op whose operands are numbers of storages. Replaces the numbers of storages by
    /// numbers of buffers, and returns the position of the op.
    fn add(&mut self, mut op: CapturedOp) -> usize {
        let lists = [&mut op.reads, &mut op.updates, &mut op.makes];
        for storage in lists.into_iter().flatten() {
            *storage = self.name(*storage);
        }
        let ops = self.ops.get_or_insert_default();
        ops.push(op);
        ops.len() - 1
    }

    /// Number of the storage's buffer in the step. A storage that no op has named yet gets a buffer
    /// with the next number.
    fn name(&mut self, storage: usize) -> usize {
        *self.storages[storage].buffer.get_or_insert_with(|| {
            self.named.push(storage);
            self.named.len() - 1
        })
    }

    /// Bytes of a storage, rounded up to the granule. If the rounding overflows, the result is
    /// `u64::MAX`, which [`Capture::new`] refuses.
    fn bytes(&self, storage: Storage) -> u64 {
        let bytes = self.values.bytes(storage.value);
        bytes.checked_next_multiple_of(self.granule).unwrap_or(u64::MAX)
    }
}

/// Op that stands for a command, without its buffers; `None` if the command does nothing on a
/// device.
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
        rematerializable: first.op.rematerializable && !is_view && !first.outputs.are_updates(),
        ..match more {
            [] => CapturedOp::new(first.op.name.clone()).costs(cost),
            _ => CapturedOp::new("update_all").costs(cost),
        }
    })
}

/// Removes the attributes in `CHANGING` from attributes in JSON text. All other text is unchanged.
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
