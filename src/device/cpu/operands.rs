//! Operands of a run, as slices.

use super::region::{Exclusive, Region, Shared};
use super::{Kernels, elements, elements_mut, words_of};
use crate::device::{Call, DeviceError, Place};
use crate::layout::Layout;
use bytemuck::Pod;
use smallvec::SmallVec;
use std::ops::Range;

/// Operands of one run, each as a slice. A slice starts with the first element of its tensor and
/// ends with the last element. If the tensor is not contiguous, the slice includes the elements of
/// the storage between the tensor's elements. Index 0 of a slice is the first element of the
/// tensor, whatever the offset of the layout. Outputs are packed, and the op must overwrite all
/// their elements.
#[derive(Debug)]
pub struct Operands<'a> {
    inputs: &'a [Place],
    outputs: &'a [Place],
    read: Shared<'a>,
    write: Exclusive<'a>,
    workspace: &'a mut [u32],
}

impl<'a> Operands<'a> {
    /// Borrows the operands of a call from the memory.
    pub(super) fn lend<O: Kernels>(
        call: &'a Call<'_, O>,
        region: &'a mut Region,
    ) -> Result<Self, DeviceError> {
        // Lend no slice for an input that is updated in place, because kernels read the old value
        // from the output.
        let updated = call.op.updates(call.inputs.len());
        let shared = call.inputs.iter().enumerate().map(|(i, place)| {
            let Range { start, end } = words_of(place)?;
            Ok(start..if i < updated { start } else { end })
        });
        let exclusive = call.outputs.iter().map(words_of);
        let workspace = std::iter::once(Ok(call.workspace.clone()));
        let (read, mut write) = region.lend(shared, exclusive.chain(workspace))?;
        let workspace = write.pop().unwrap_or_default();
        Ok(Self { inputs: call.inputs, outputs: call.outputs, read, write, workspace })
    }

    /// Makes operands from slices of four-byte words, for an op that runs another op on its own
    /// operands. Each slice begins at the first element of its tensor.
    pub(crate) fn over(
        [inputs, outputs]: [&'a [Place]; 2],
        read: SmallVec<[&'a [u32]; 6]>,
        write: SmallVec<[&'a mut [u32]; 6]>,
        workspace: &'a mut [u32],
    ) -> Self {
        Self { inputs, outputs, read, write, workspace }
    }

    /// Places of all inputs, followed by the places of all outputs.
    pub(crate) fn places(&self) -> impl Iterator<Item = &'a Place> + use<'a> {
        self.inputs.iter().chain(self.outputs)
    }

    /// Layouts of the inputs, and of the outputs.
    pub(crate) fn layouts(&self) -> [SmallVec<[Layout; 6]>; 2] {
        [self.inputs, self.outputs].map(|all| all.iter().map(|place| place.layout).collect())
    }

    /// Layout of input `i`.
    ///
    /// # Panics
    /// Panics if `i` is not below the number of inputs.
    #[must_use]
    pub fn input(&self, i: usize) -> &'a Layout {
        &self.inputs[i].layout
    }

    /// Layout of output `i`.
    ///
    /// # Panics
    /// Panics if `i` is not below the number of outputs.
    #[must_use]
    pub fn output(&self, i: usize) -> &'a Layout {
        &self.outputs[i].layout
    }

    /// Number of inputs.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Elements of input `i`. The slice is empty if the op updates the input in place, because the
    /// output then contains the old value. Elements of a [`DType::Bool`](crate::DType::Bool) are
    /// read as `u8`: 0 or 1.
    ///
    /// # Panics
    /// Panics if `i` is not below the number of inputs, or its bytes are not elements of type `T`.
    #[must_use]
    pub fn read<T: Pod>(&self, i: usize) -> &'a [T] {
        elements(self.read[i], &self.inputs[i])
    }

    /// Elements of the first `N` inputs, all floats.
    ///
    /// # Panics
    /// Panics if there are fewer than `N` inputs.
    #[must_use]
    pub fn floats<const N: usize>(&self) -> [&'a [f32]; N] {
        std::array::from_fn(|i| self.read(i))
    }

    /// Elements of output `i`. A second call for output `i` returns an empty slice. Elements of a
    /// [`DType::Bool`](crate::DType::Bool) are written as `u8`: 0 or 1. If the kernel writes any
    /// other number to an element, a later read of the tensor fails.
    ///
    /// # Panics
    /// Panics if `i` is not below the number of outputs, or its bytes are not elements of type `T`.
    pub fn write<T: Pod>(&mut self, i: usize) -> &'a mut [T] {
        elements_mut(std::mem::take(&mut self.write[i]), &self.outputs[i])
    }

    /// Elements of the first `N` outputs, all floats. A second call returns empty slices.
    ///
    /// # Panics
    /// Panics if there are fewer than `N` outputs.
    pub fn outputs<const N: usize>(&mut self) -> [&'a mut [f32]; N] {
        std::array::from_fn(|i| self.write(i))
    }

    /// Workspace of the run: as many bytes as [`Kernels::cpu_workspace`] returned. The contents are
    /// undefined. Only the first call returns the workspace; a second call returns an empty slice.
    pub fn workspace<T: Pod>(&mut self) -> &'a mut [T] {
        match std::mem::take(&mut self.workspace) {
            // Do not cast an empty slice: its address is dangling, and may not be aligned for `T`.
            [] => &mut [],
            words => bytemuck::cast_slice_mut(words),
        }
    }
}
