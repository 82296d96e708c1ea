//! The only code that derives the effects of a command: which values it reads, makes and frees.

#[cfg(test)]
mod tests;

use super::takes_over;
use crate::command::{Apply, Command, TensorId};
use crate::layout::Layout;
#[cfg(doc)]
use crate::op::Outputs;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Numbers of values, counted in the order in which the values are made.
pub(crate) type Values = SmallVec<[u32; 4]>;

/// Reads commands in order, and tracks the value of each tensor.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// Value and layout of each tensor. Tensors that were deleted or consumed are removed.
    tensors: FxHashMap<TensorId, (u32, Layout)>,
    values: Vec<Value>,
    storages: u32,
}

/// A value: the content of a storage between two updates.
#[derive(Clone, Copy, Debug)]
struct Value {
    /// Bytes of the storage.
    bytes: u64,
    storage: u32,
    /// Number of live tensors with the value.
    handles: u32,
}

/// Effects of a command on values.
#[derive(Debug, Default)]
pub(crate) struct Deed {
    /// Values that must be resident for the command, each once, in the order of inputs.
    pub reads: Values,
    /// Values that the command makes, in order.
    pub makes: SmallVec<[Made; 2]>,
    /// Value of each output tensor, in order.
    pub outputs: SmallVec<[u32; 2]>,
    /// Values whose last tensor ended with the command.
    pub gone: SmallVec<[u32; 2]>,
}

/// A value that a command makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub value: u32,
    /// Whether the value takes over the storage of its target.
    pub in_place: bool,
    /// Whether the value takes over the block of the value that its op writes over
    /// ([`Outputs::Over`]).
    pub over: bool,
}

impl Reader {
    /// Adds a tensor with a new storage that no command makes. Returns the value of the tensor.
    pub fn add(&mut self, tensor: TensorId, layout: Layout) -> u32 {
        let storage = self.new_storage();
        self.make(tensor, layout, layout.bytes(), storage)
    }

    /// Adds a tensor with the value of the tensor `of`. Returns the value; `None` if `of` is
    /// unknown.
    pub fn look(&mut self, tensor: TensorId, of: TensorId, layout: Layout) -> Option<u32> {
        let value = self.value(of)?;
        self.values[value as usize].handles += 1;
        self.tensors.insert(tensor, (value, layout));
        Some(value)
    }

    /// The value of a tensor; `None` for an unused number.
    pub fn value(&self, tensor: TensorId) -> Option<u32> {
        self.tensors.get(&tensor).map(|look| look.0)
    }

    /// The layout of a tensor; 0 bytes for an unused number.
    pub fn layout(&self, tensor: TensorId) -> Layout {
        self.tensors.get(&tensor).map_or_else(|| Layout::raw(0), |look| look.1)
    }

    /// Layouts of a call's inputs.
    pub fn inputs<O>(&self, call: &Apply<O>) -> SmallVec<[Layout; 4]> {
        call.inputs.iter().map(|&input| self.layout(input)).collect()
    }

    /// Number of values made so far.
    #[cfg(test)]
    pub const fn values(&self) -> usize {
        self.values.len()
    }

    /// Bytes of the storage of a value.
    pub fn bytes(&self, value: u32) -> u64 {
        self.values[value as usize].bytes
    }

    /// Number of a value's storage, counted in the order in which storages are made.
    pub fn storage(&self, value: u32) -> u32 {
        self.values[value as usize].storage
    }

    /// Whether a live tensor has a value.
    pub fn is_held(&self, value: u32) -> bool {
        self.values[value as usize].handles > 0
    }

    /// Reads the next command. `put` gives the layout of a host value.
    ///
    /// A command may name unknown tensors. Reads of unknown tensors are left out, and a view of an
    /// unknown tensor is a new value of 0 bytes.
    pub fn read<O, H>(&mut self, command: &Command<O, H>, put: impl FnOnce(&H) -> Layout) -> Deed {
        let mut deed = Deed::default();
        let mut named = Values::new();
        // A view reads no bytes.
        if command.calls().iter().all(|call| call.outputs.written().is_some()) {
            command.reads(|tensor| named.extend(self.value(tensor)));
        }
        for &value in &named {
            if !deed.reads.contains(&value) {
                deed.reads.push(value);
            }
        }
        match *command {
            Command::Put { tensor, ref host, .. } => {
                let value = self.add(tensor, put(host));
                deed.made(value);
            }
            Command::Replace { value, made, .. } => {
                let layout = self.layout(value);
                self.look_into(&mut deed, made, value, layout);
            }
            _ => self.calls(&mut deed, command.calls(), &named),
        }
        command.ends(|tensor| {
            if let Some((value, _)) = self.tensors.remove(&tensor) {
                let handles = &mut self.values[value as usize].handles;
                *handles -= 1;
                if *handles == 0 {
                    deed.gone.push(value);
                }
            }
        });
        deed
    }

    /// Reads the calls of a command. All inputs of the command stay live until its last call.
    /// `named` has the values of all inputs, repeats included.
    fn calls<O>(&mut self, deed: &mut Deed, calls: &[Apply<O>], named: &[u32]) {
        for call in calls {
            for (tensor, look) in call.outputs().zip(call.outputs.views()) {
                let of = call.inputs.get(look.input).copied();
                self.look_into(deed, tensor, of.unwrap_or(tensor), look.layout);
            }
            if call.outputs.written().is_none() {
                continue;
            }
            for (output, tensor) in call.outputs().enumerate() {
                let input = |input: usize| {
                    call.inputs.get(input).map_or_else(|| Layout::raw(0), |&of| self.layout(of))
                };
                let old = call.inputs.get(output).filter(|_| output < call.outputs.targets());
                let taken = old
                    .and_then(|&old| self.taken_over(old, call.consumed.contains(output), named));
                let layout = call.outputs.layout(output, input);
                let is_update = call.outputs.are_updates();
                let (bytes, storage) = match taken {
                    Some(old) if is_update => (self.bytes(old), self.storage(old)),
                    _ => (layout.bytes(), self.new_storage()),
                };
                let value = self.make(tensor, layout, bytes, storage);
                let (in_place, over) =
                    (taken.is_some() && is_update, taken.is_some() && !is_update);
                deed.makes.push(Made { value, in_place, over });
                deed.outputs.push(value);
            }
        }
    }

    /// The old value of `target`, if an update takes over its storage; `None` if the update makes a
    /// new storage. `named` has the values of all inputs of the command.
    fn taken_over(&self, target: TensorId, is_given: bool, named: &[u32]) -> Option<u32> {
        let (old, layout) = self.tensors.get(&target)?;
        let Value { bytes, handles, .. } = self.values[*old as usize];
        let reads = named.iter().filter(|value| *value == old).count();
        takes_over(layout, bytes, handles + u32::from(!is_given), reads).then_some(*old)
    }

    fn look_into(&mut self, deed: &mut Deed, tensor: TensorId, of: TensorId, layout: Layout) {
        match self.look(tensor, of, layout) {
            Some(value) => deed.outputs.push(value),
            None => {
                let value = self.add(tensor, Layout::raw(0));
                deed.made(value);
            }
        }
    }

    fn new_storage(&mut self) -> u32 {
        self.storages += 1;
        self.storages - 1
    }

    fn make(&mut self, tensor: TensorId, layout: Layout, bytes: u64, storage: u32) -> u32 {
        let value = self.values.len() as u32;
        self.values.push(Value { bytes, storage, handles: 1 });
        self.tensors.insert(tensor, (value, layout));
        value
    }
}

impl Deed {
    fn made(&mut self, value: u32) {
        self.makes.push(Made { value, in_place: false, over: false });
        self.outputs.push(value);
    }
}
