//! Runs an op piece by piece on a GPU.

#![allow(unsafe_code)]

use super::pieces::Pieces;
use crate::device::cuda::strides::Steps;
use crate::device::cuda::{Family, Gpu, Grid, Libraries, Operands, Ptr};
use crate::device::walk::Walk;
use crate::device::{DeviceError, Place};
use crate::layout::{DType, Layout, MAX_RANK};
use crate::ops::copy::cuda::copy;
use smallvec::SmallVec;
use std::ops::Range;

/// Largest number of scratch bytes for the operands that are cut. Pieces of this size keep a GPU
/// busy.
pub const MOST: u64 = 32 << 20;

pub(super) static FAMILY: Family = Family::new("bf16", include_str!("bf16.cu"));

impl Pieces<'_> {
    /// Bytes of workspace that a run needs on a GPU.
    pub(in crate::ops) fn cuda_workspace(&self, libraries: &Libraries) -> u64 {
        self.workspace(|inputs, outputs| self.kernel.cuda_workspace(libraries, inputs, outputs))
    }

    /// Runs the op's kernel on one piece after another.
    pub(in crate::ops) fn cuda(
        &self,
        gpu: &mut Gpu,
        run: &Operands<'_>,
    ) -> Result<(), DeviceError> {
        let start = run.workspace.start;
        let apart = |range: &Option<Range<u64>>, layout: &Layout| {
            range.as_ref().map(|range| Place { storage: start + range.start, layout: *layout })
        };
        let updates = self.kernel.updates(self.inputs.len());
        for (range, is_last) in self.ranges() {
            let is_first = range.start == 0;
            let [inputs, outputs] = self.layouts(&range);
            let mut places = [SmallVec::<[Place; 6]>::new(), SmallVec::new()];
            // Choose the address to which the kernel writes each output of the piece. For an
            // updated output, first copy the old value to the chosen address.
            for (i, given) in self.given.iter().enumerate() {
                let layout = given.made.cut().of(&self.outputs[i], &range);
                let there = Place { storage: run.outputs[i].storage, layout };
                let place = apart(&given.piece, &outputs[i]);
                if let Some(place) = place.as_ref().filter(|_| i < updates) {
                    cast(gpu, place, &there)?;
                }
                places[1].push(place.unwrap_or(there));
            }
            // Choose the address from which the kernel reads each input of the piece. If the input
            // must be copied, copy it to the chosen address.
            for (i, taken) in self.taken.iter().enumerate() {
                let layout = taken.cut.of(&self.inputs[i], &range);
                let there = Place { storage: run.inputs[i].storage, layout };
                let place = apart(&taken.copy, &inputs[i]);
                // An input that is not cut is copied only before the first piece.
                if let Some(place) = &place
                    && (is_first || taken.cut != super::Cut::Whole)
                {
                    cast(gpu, place, &there)?;
                }
                // The old value of an updated input is at the address of the output.
                let updated = (i < updates).then(|| places[1][i]);
                places[0].push(updated.or(place).unwrap_or(there));
            }
            let piece = Operands {
                inputs: &places[0],
                outputs: &places[1],
                workspace: start + self.scratch..run.workspace.end,
            };
            if outputs.iter().any(|layout| layout.elements() > 0) {
                self.kernel.cuda(gpu, &piece)?;
            }
            // Move the results from scratch to the outputs, or add the results up.
            for (i, given) in self.given.iter().enumerate() {
                if given.piece.is_none() {
                    continue;
                }
                let from = gpu.first(&places[1][i]);
                let output = &run.outputs[i];
                let layout = given.made.cut().of(&self.outputs[i], &range);
                let part = Place { storage: output.storage, layout };
                if !given.made.is_sum() {
                    // SAFETY: `from` is a piece of the output in scratch. `part` is the part of the
                    // output that the piece fills, so it has as many elements as the piece.
                    unsafe { put(gpu, &part, from)? };
                    continue;
                }
                let whole = Layout::contiguous(DType::F32, *output.layout.shape());
                let sum = apart(&given.sum, &whole);
                let total = gpu.first(sum.as_ref().unwrap_or(output));
                // SAFETY: the piece and the sum each have as many floats as the output; both lie in
                // the workspace or the output.
                unsafe { add(gpu, total, from, &whole, is_first)? };
                if is_last && sum.is_some() {
                    // SAFETY: `total` is a sum in scratch with as many floats as the output has
                    // elements.
                    unsafe { put(gpu, output, total)? };
                }
            }
        }
        Ok(())
    }
}

/// Copies the elements of `x` to `y`, packed and converted to the type of `y`.
pub(super) fn cast(gpu: &mut Gpu, y: &Place, x: &Place) -> Result<(), DeviceError> {
    let (mut out, from) = (gpu.first(y), gpu.first(x));
    let count = x.layout.elements();
    if count == 0 {
        return Ok(());
    }
    let kernel = match (x.layout.dtype(), y.layout.dtype()) {
        (DType::BF16, DType::F32) => "widen",
        (DType::F32, DType::BF16) => "narrow",
        // SAFETY: `x` is an operand. `y` is an output or scratch, and has as many elements as `x`.
        // The device has checked the operands.
        _ => return unsafe { copy(gpu, out, from, &x.layout) },
    };
    let walk = Walk::new(x.layout.shape(), [x.layout.strides()]);
    let (outer, inner) = walk.split_at_most(MAX_RANK);
    let each: u64 = inner.loops().iter().map(|&(size, _)| size as u64).product();
    let steps = Steps::new(&inner, 1);
    let [size_in, size_out] = [x, y].map(|place| place.layout.dtype().bytes() as u64);
    let mut outcome = Ok(());
    let [step] = outer.steps();
    outer.runs(0, count / each as usize, |_, len, [at]| {
        for j in 0..len {
            let x = from.plus((at + j * step) as u64 * size_in);
            if outcome.is_ok() {
                // SAFETY: the parameters are those that the kernel declares, and the device has
                // checked the operands. The kernel reads `each` elements within the layout of `x`,
                // and writes `each` elements from `out` on.
                outcome = unsafe {
                    gpu.launch(
                        FAMILY.counting(kernel, each),
                        Grid::of_threads(each),
                        &[&out, &x, &each, &steps],
                    )
                };
            }
            out = out.plus(each * size_out);
        }
    });
    outcome
}

/// Writes packed words to the elements of `y`, and rounds the words if `y` is `bf16`.
///
/// # Safety
/// The caller guarantees that the workspace has as many words at `from` as `y` has elements, and
/// that `y` is a part of an output.
unsafe fn put(gpu: &mut Gpu, y: &Place, from: Ptr) -> Result<(), DeviceError> {
    let count = y.layout.elements() as u64;
    if count == 0 {
        return Ok(());
    }
    let kernel = if y.layout.dtype() == DType::BF16 { "put_rounded" } else { "put_words" };
    // A part of a contiguous tensor needs at most three loops.
    let steps = Steps::new(&Walk::new(y.layout.shape(), [y.layout.strides()]), 1);
    let (out, kernel) = (gpu.first(y), FAMILY.counting(kernel, count));
    // SAFETY: the parameters are those that the kernel declares. The kernel reads `count` words, as
    // the caller guarantees, and writes within the layout of `y`, a part of an output.
    unsafe { gpu.launch(kernel, Grid::of_threads(count), &[&out, &from, &count, &steps]) }
}

/// Adds the result of a piece to a sum. The first piece overwrites the sum.
///
/// # Safety
/// The caller guarantees that both addresses have as many floats as `layout` says, in the workspace
/// or an output.
unsafe fn add(
    gpu: &mut Gpu,
    sum: Ptr,
    piece: Ptr,
    layout: &Layout,
    is_first: bool,
) -> Result<(), DeviceError> {
    let count = layout.elements() as u64;
    if is_first {
        // SAFETY: the caller guarantees that both addresses have as many floats as `layout` says.
        return unsafe { copy(gpu, sum, piece, layout) };
    }
    if count == 0 {
        return Ok(());
    }
    let grid = Grid::of_threads(count);
    // SAFETY: the parameters are those that the kernel declares. The kernel reads and writes
    // `count` floats, as the caller guarantees.
    unsafe { gpu.launch(FAMILY.counting("add_piece", count), grid, &[&sum, &piece, &count]) }
}
