//! The operands of a run, as slices.

use super::region::{Exclusive, Region, Shared};
use super::{Kernels, elements, elements_mut, words_of};
use crate::device::{Call, DeviceError, Place};
use crate::layout::Layout;
use bytemuck::Pod;
use smallvec::SmallVec;
use std::ops::Range;

/// What an op runs on. A slice starts with the first element of its tensor, and goes on to the last one, with whatever
/// lies between if it is not contiguous; strides count from there. Outputs are packed, and are overwritten
/// entirely.
#[derive(Debug)]
pub struct Operands<'a> {
    inputs: &'a [Place],
    outputs: &'a [Place],
    read: Shared<'a>,
    write: Exclusive<'a>,
    workspace: &'a mut [u32],
}

impl<'a> Operands<'a> {
    /// What a call runs on, lent by the memory.
    pub(super) fn lend<O: Kernels>(
        call: &'a Call<'_, O>,
        region: &'a mut Region,
    ) -> Result<Self, DeviceError> {
        let ranges = |places: &[Place]| {
            places.iter().map(words_of).collect::<Result<SmallVec<[Range<u64>; 6]>, _>>()
        };
        // Old values of in-place outputs are found in the outputs.
        let mut shared = ranges(call.inputs)?;
        shared
            .iter_mut()
            .take(call.op.updates(call.inputs.len()))
            .for_each(|range| range.end = range.start);
        let mut exclusive = ranges(call.outputs)?;
        exclusive.push(call.workspace.clone());
        let (read, mut write) = region.lend(&shared, &exclusive)?;
        let workspace = write.pop().unwrap_or_default();
        Ok(Self { inputs: call.inputs, outputs: call.outputs, read, write, workspace })
    }

    /// What a part of a run goes on: as an op runs another in its place, on operands of its own. The slices begin with the
    /// first element of each; a word is four bytes.
    pub(crate) fn over(
        [inputs, outputs]: [&'a [Place]; 2],
        read: SmallVec<[&'a [u32]; 6]>,
        write: SmallVec<[&'a mut [u32]; 6]>,
        workspace: &'a mut [u32],
    ) -> Self {
        Self { inputs, outputs, read, write, workspace }
    }

    /// All inputs and outputs.
    pub(crate) fn places(&self) -> impl Iterator<Item = &'a Place> + use<'a> {
        self.inputs.iter().chain(self.outputs)
    }

    /// How the inputs and the outputs lie.
    pub(crate) fn layouts(&self) -> [SmallVec<[Layout; 6]>; 2] {
        [self.inputs, self.outputs].map(|all| all.iter().map(|place| place.layout).collect())
    }

    /// How an input lies.
    ///
    /// # Panics
    /// If there are fewer inputs.
    #[must_use]
    pub fn input(&self, i: usize) -> &'a Layout {
        &self.inputs[i].layout
    }

    /// How an output lies.
    ///
    /// # Panics
    /// If there are fewer outputs.
    #[must_use]
    pub fn output(&self, i: usize) -> &'a Layout {
        &self.outputs[i].layout
    }

    /// How many inputs there are.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The elements of an input. Empty for what is updated in place: its old value is in the output.
    /// Those of a [`DType::Bool`](crate::DType::Bool) are read as `u8`: they are 0 or 1.
    ///
    /// # Panics
    /// If there are fewer inputs, or its bytes are no elements of this type.
    #[must_use]
    pub fn read<T: Pod>(&self, i: usize) -> &'a [T] {
        elements(self.read[i], &self.inputs[i])
    }

    /// The elements of the first inputs, all floats.
    ///
    /// # Panics
    /// If there are fewer inputs.
    #[must_use]
    pub fn floats<const N: usize>(&self) -> [&'a [f32]; N] {
        std::array::from_fn(|i| self.read(i))
    }

    /// The elements of an output, once.
    /// Those of a [`DType::Bool`](crate::DType::Bool) are written as `u8`: 0 or 1, or reading them is an error.
    ///
    /// # Panics
    /// If there are fewer outputs, or its bytes are no elements of this type.
    pub fn write<T: Pod>(&mut self, i: usize) -> &'a mut [T] {
        elements_mut(std::mem::take(&mut self.write[i]), &self.outputs[i])
    }

    /// The elements of the first outputs, all floats, once.
    ///
    /// # Panics
    /// If there are fewer outputs.
    pub fn outputs<const N: usize>(&mut self) -> [&'a mut [f32]; N] {
        std::array::from_fn(|i| self.write(i))
    }

    /// The workspace, once: as many bytes as were asked for, with anything in them.
    pub fn workspace<T: Pod>(&mut self) -> &'a mut [T] {
        match std::mem::take(&mut self.workspace) {
            // Nowhere, and so not where elements of this type would be.
            [] => &mut [],
            words => bytemuck::cast_slice_mut(words),
        }
    }
}
