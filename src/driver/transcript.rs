//! Commands of a running program, copied with new tensor numbers, so that another engine can run
//! them.

use super::books::Books;
use crate::command::{
    Apply, Command, RecordedCommand, RecordedOp, RecordedProgram, RecordedValue, TensorId,
};
use crate::device::Device;
use crate::graph::StorageKey;
use crate::layout::Layout;
use crate::op::{Look, Outputs};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// A program, with a map from the driver's tensor numbers to the program's. See the [module](self)
/// documentation.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    pub program: RecordedProgram,
    /// Number in the driver -> number in the program.
    tensors: FxHashMap<TensorId, TensorId>,
    /// Whether the program refused a command, because the command names a tensor that the program
    /// lacks.
    pub is_lost: bool,
}

impl Transcript {
    /// Appends a command that names tensors by their numbers in the driver.
    pub fn push(&mut self, command: &RecordedCommand) {
        let next = self.program.next();
        let mut made = 0;
        command.makes(|tensor| {
            self.tensors.insert(tensor, next.plus(made));
            made += 1;
        });
        // An unknown tensor gets a number that names no tensor, so the program refuses the command.
        let now = |tensor| self.tensors.get(&tensor).copied().unwrap_or(next);
        self.add(command.clone().renumbered(now));
        command.ends(|tensor| _ = self.tensors.remove(&tensor));
    }

    /// Whether the program has a tensor for this tensor number of the driver.
    pub fn knows(&self, tensor: TensorId) -> bool {
        self.tensors.contains_key(&tensor)
    }

    /// Appends a command that names tensors by their numbers in the program.
    pub fn add(&mut self, command: RecordedCommand) {
        self.is_lost |= self.program.push(command).is_err();
    }

    /// Appends a put of `bytes` bytes in place of a value made earlier. The put is a constant: its
    /// value cannot be recomputed. The element type is that of `look`, if given.
    pub fn put_constant(&mut self, bytes: u64, look: Option<&Layout>) -> TensorId {
        let tensor = self.program.next();
        let host = look.map(Layout::dtype).map_or_else(
            || RecordedValue::constant(bytes),
            |dtype| {
                let elements = bytes as usize / dtype.bytes();
                RecordedValue::there(Layout::contiguous(dtype, [elements]))
            },
        );
        self.add(Command::Put { tensor, host: Arc::new(host), leaf: false });
        tensor
    }

    /// Appends a view for each tensor of the driver whose storage has a root, then deletes the
    /// roots. `roots` maps a storage to the program's tensor for it. Calls `with` for each view and
    /// its storage.
    pub fn look<D: Device>(
        &mut self,
        books: &Books<D>,
        roots: &FxHashMap<StorageKey, TensorId>,
        mut with: impl FnMut(TensorId, StorageKey),
    ) {
        let mut tensors: Vec<_> = books.tensors.iter().collect();
        tensors.sort_unstable();
        let mut seen: Vec<TensorId> = Vec::new();
        for (tensor, key) in tensors {
            let Some(info) = books.engine.graph().tensor(key) else { continue };
            let Some(&root) = roots.get(&info.storage) else { continue };
            let looks = [Look { input: 0, layout: info.layout }];
            let op = RecordedOp { flops: Some(0.0), ..RecordedOp::new("look", 0.0) };
            let made = self.program.next();
            let outputs = Outputs::Views(looks.into_iter().collect());
            self.add(Command::Apply(Apply::new(op, &[root][..], outputs, made)));
            self.tensors.insert(tensor, made);
            with(made, info.storage);
            seen.push(root);
        }
        seen.sort_unstable();
        seen.dedup();
        seen.into_iter().for_each(|root| self.add(Command::Del(root)));
    }
}
