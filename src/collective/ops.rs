//! Ops of collectives.
//!
//! Each runs once, on the CPU. A rank that skips an op takes part with its failure instead.

use super::FabricError;
use super::header::{Header, Kind, Status};
use super::ranks::Ranks;
use crate::device::{DeviceError, cpu};
use crate::layout::{DType, Dims, Layout};
use crate::ops::CustomOp;
use crate::sync::atomic::AtomicBool;
use rustc_hash::FxHasher;
use std::error::Error;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

/// Bytes of an `f32`.
const FLOAT_BYTES: usize = size_of::<f32>();

/// Parts that all collectives have.
#[derive(Clone)]
struct Call {
    ranks: Ranks,
    /// Hash of the name of the tensor.
    tensor: u64,
    kind: Kind,
}

impl Call {
    fn new(ranks: &Ranks, name: &str, kind: Kind) -> Self {
        let mut hasher = FxHasher::default();
        name.hash(&mut hasher);
        Self { ranks: ranks.clone(), tensor: hasher.finish(), kind }
    }

    fn header(&self, dtype: DType, bytes: u64) -> Header {
        Header { number: 0, kind: self.kind, dtype, bytes, tensor: self.tensor }
    }

    /// Begins the collective for an input of this layout.
    fn begin(
        &self,
        input: &Layout,
        status: Status,
        any: Option<&AtomicBool>,
    ) -> Result<(), DeviceError> {
        self.ranks.begin(self.header(input.dtype(), input.bytes()), status, any)
    }

    fn skip(&self, why: &(dyn Error + 'static)) {
        self.ranks.skip(self.header(DType::F32, 0), &why.to_string());
    }

    /// Number of elements of `bytes` bytes of each rank that pass through the buffer at once.
    fn piece(&self, bytes: usize) -> usize {
        (self.ranks.buffer() / self.ranks.size() / bytes).max(1)
    }

    /// Bytes of a buffer for pieces of up to `elements` elements of `bytes` bytes of each rank, for
    /// `sets` such sets of pieces.
    fn workspace(&self, elements: usize, bytes: usize, sets: usize) -> u64 {
        let bytes = elements.min(self.piece(bytes)) * bytes * self.ranks.size() * sets;
        // The device lends whole elements of four bytes.
        bytes.next_multiple_of(FLOAT_BYTES) as u64
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ops with equal texts are equal. The rank is left out, so that recordings of ranks agree.
        write!(f, "{} of {:x}", self.kind, self.tensor)
    }
}

fn lost(error: FabricError) -> DeviceError {
    DeviceError::new(error.0)
}

/// Adds the pieces of the other ranks to the piece of rank 0, in the order of the ranks.
fn add_all(sum: &mut [f32], others: &[f32]) {
    for piece in others.chunks_exact(sum.len().max(1)) {
        sum.iter_mut().zip(piece).for_each(|(sum, x)| *sum += x);
    }
}

/// Checks the one input of an op: floats, or any type.
fn only(inputs: &[Layout], floats: bool) -> Result<&Layout, String> {
    match inputs {
        [input] if floats && input.dtype() != DType::F32 => {
            Err(format!("takes f32, {} was given; cast the tensor", input.dtype()))
        }
        [input] => Ok(input),
        _ => Err(format!("takes 1 input, {} were given", inputs.len())),
    }
}

/// Sum or mean of a tensor over all ranks, in place; see [`Ranks::all_reduce`].
///
/// Input: `x`, f32. The new value of `x` is `x_0 + x_1 + .. + x_(N-1)`, summed in this order, and
/// divided by `N` if the op averages. `x_r` is the tensor of rank `r`.
#[derive(Clone)]
pub(super) struct AllReduce {
    call: Call,
    status: Status,
    any: Option<Arc<AtomicBool>>,
}

impl AllReduce {
    pub(super) fn new(ranks: &Ranks, name: &str, mean: bool) -> Self {
        let kind = if mean { Kind::Mean } else { Kind::Sum };
        Self { call: Call::new(ranks, name, kind), status: Status::Ready, any: None }
    }

    /// Says that this rank has no value of its own: its tensor is zeros. When the op has run, `any`
    /// says whether another rank has a value.
    pub fn empty(mut self, any: &Arc<AtomicBool>) -> Self {
        (self.status, self.any) = (Status::Empty, Some(Arc::clone(any)));
        self
    }
}

impl fmt::Debug for AllReduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({:?})", self.call, self.status)
    }
}

impl CustomOp for AllReduce {
    fn name(&self) -> &str {
        "all_reduce"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        only(inputs, true).map(|_| Vec::new())
    }

    fn once(&self) -> bool {
        true
    }

    fn updates(&self, _inputs: usize) -> usize {
        1
    }

    fn skipped(&self, why: &(dyn Error + 'static)) {
        self.call.skip(why);
    }

    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        let size = self.call.ranks.size();
        // Pieces of all ranks, and two rows for the last elements, of which some ranks have none.
        let each = (inputs[0].elements() / size).min(self.call.piece(FLOAT_BYTES));
        ((each + 2) * size * FLOAT_BYTES) as u64
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let size = self.call.ranks.size();
        self.call.begin(operands.output(0), self.status, self.any.as_deref())?;
        let values: &mut [f32] = operands.write(0);
        let workspace: &mut [f32] = operands.workspace();
        let (last, buffer) = workspace.split_at_mut(size);
        let even = values.len() / size * size;
        for values in values[..even].chunks_mut(self.call.piece(FLOAT_BYTES) * size) {
            self.sum_pieces(values, &mut buffer[..values.len()])?;
        }
        let rest = &mut values[even..];
        if !rest.is_empty() {
            last[..rest.len()].copy_from_slice(rest);
            last[rest.len()..].fill(0.0);
            self.sum_pieces(last, &mut buffer[..size])?;
            rest.copy_from_slice(&last[..rest.len()]);
        }
        Ok(())
    }
}

impl AllReduce {
    /// Sums values over all ranks. Each rank owns a piece of the values, of the same length on all
    /// ranks: it receives this piece from all ranks, and sends the sum to all ranks.
    fn sum_pieces(&self, values: &mut [f32], received: &mut [f32]) -> Result<(), DeviceError> {
        let (size, fabric) = (self.call.ranks.size(), self.call.ranks.fabric());
        fabric
            .all_to_all(bytemuck::cast_slice(values), bytemuck::cast_slice_mut(received))
            .map_err(lost)?;
        let (sum, others) = received.split_at_mut(values.len() / size);
        add_all(sum, others);
        if self.call.kind == Kind::Mean {
            sum.iter_mut().for_each(|x| *x /= size as f32);
        }
        fabric.all_gather(bytemuck::cast_slice(sum), bytemuck::cast_slice_mut(values)).map_err(lost)
    }
}

/// Parts of a sum over all ranks; see [`Ranks::reduce_scatter`].
///
/// Input: `x [N * n, ..]`, f32. Output: `[n, ..]`, rows `r * n ..` of the sum on rank `r`, summed in
/// the order of the ranks.
#[derive(Clone, Debug)]
pub(super) struct ReduceScatter(Call);

impl ReduceScatter {
    pub(super) fn new(ranks: &Ranks, name: &str) -> Self {
        Self(Call::new(ranks, name, Kind::ReduceScatter))
    }
}

impl CustomOp for ReduceScatter {
    fn name(&self) -> &str {
        "reduce_scatter"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        let (input, size) = (only(inputs, true)?, self.0.ranks.size());
        let mut shape = input.shape().to_vec();
        match shape.first_mut() {
            Some(rows) if rows.is_multiple_of(size) => *rows /= size,
            _ => {
                return Err(format!(
                    "the first dimension of {:?} is not a multiple of the {size} ranks",
                    input.shape()
                ));
            }
        }
        Ok(vec![Layout::contiguous(input.dtype(), Dims::new(&shape))])
    }

    fn once(&self) -> bool {
        true
    }

    fn skipped(&self, why: &(dyn Error + 'static)) {
        self.0.skip(why);
    }

    fn cpu_workspace(&self, _inputs: &[Layout], outputs: &[Layout]) -> u64 {
        self.0.workspace(outputs[0].elements(), FLOAT_BYTES, 2)
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        self.0.begin(operands.input(0), Status::Ready, None)?;
        let (size, fabric) = (self.0.ranks.size(), self.0.ranks.fabric());
        let (values, part): (&[f32], &mut [f32]) = (operands.read(0), operands.write(0));
        let buffer: &mut [f32] = operands.workspace();
        let (send, receive) = buffer.split_at_mut(buffer.len() / 2);
        let (each, most) = (part.len(), self.0.piece(FLOAT_BYTES));
        for (i, part) in part.chunks_mut(most).enumerate() {
            let piece = part.len();
            let (send, receive) = (&mut send[..piece * size], &mut receive[..piece * size]);
            for (rank, to) in send.chunks_exact_mut(piece).enumerate() {
                to.copy_from_slice(&values[rank * each + i * most..][..piece]);
            }
            fabric
                .all_to_all(bytemuck::cast_slice(send), bytemuck::cast_slice_mut(receive))
                .map_err(lost)?;
            let (first, others) = receive.split_at(piece);
            part.copy_from_slice(first);
            add_all(part, others);
        }
        Ok(())
    }
}

/// Tensors of all ranks, joined; see [`Ranks::all_gather`].
///
/// Input: `x [n, ..]`, of any type and at least one dimension. Output: `[N * n, ..]`, the tensors in
/// the order of the ranks.
#[derive(Clone, Debug)]
pub(super) struct AllGather(Call);

impl AllGather {
    pub(super) fn new(ranks: &Ranks, name: &str) -> Self {
        Self(Call::new(ranks, name, Kind::AllGather))
    }
}

impl CustomOp for AllGather {
    fn name(&self) -> &str {
        "all_gather"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        let (input, size) = (only(inputs, false)?, self.0.ranks.size());
        let mut shape = input.shape().to_vec();
        let rows = shape.first_mut().ok_or("takes a tensor with dimensions; reshape the scalar")?;
        *rows = rows.saturating_mul(size);
        Ok(vec![Layout::contiguous(input.dtype(), Dims::new(&shape))])
    }

    fn once(&self) -> bool {
        true
    }

    fn skipped(&self, why: &(dyn Error + 'static)) {
        self.0.skip(why);
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        0.0
    }

    fn cpu_workspace(&self, inputs: &[Layout], _outputs: &[Layout]) -> u64 {
        self.0.workspace(inputs[0].bytes() as usize, 1, 1)
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        self.0.begin(operands.input(0), Status::Ready, None)?;
        let fabric = self.0.ranks.fabric();
        let (input, output): (&[u8], &mut [u8]) = (operands.read(0), operands.write(0));
        let buffer: &mut [u8] = operands.workspace();
        let (each, most) = (input.len(), self.0.piece(1));
        for (i, mine) in input.chunks(most).enumerate() {
            let receive = &mut buffer[..mine.len() * self.0.ranks.size()];
            fabric.all_gather(mine, receive).map_err(lost)?;
            for (rank, from) in receive.chunks_exact(mine.len()).enumerate() {
                output[rank * each + i * most..][..mine.len()].copy_from_slice(from);
            }
        }
        Ok(())
    }
}

/// Copy of one rank's tensor on all ranks, in place; see [`Ranks::broadcast`].
///
/// Input: `x`, of any type. The new value of `x` is `x_root`.
#[derive(Clone, Debug)]
pub(super) struct Broadcast {
    call: Call,
    root: usize,
}

impl Broadcast {
    pub(super) fn new(ranks: &Ranks, name: &str, root: usize) -> Self {
        let kind = Kind::Broadcast { root: root as u32 };
        Self { call: Call::new(ranks, name, kind), root }
    }
}

impl CustomOp for Broadcast {
    fn name(&self) -> &str {
        "broadcast_from"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        only(inputs, false).map(|_| Vec::new())
    }

    fn once(&self) -> bool {
        true
    }

    fn updates(&self, _inputs: usize) -> usize {
        1
    }

    fn skipped(&self, why: &(dyn Error + 'static)) {
        self.call.skip(why);
    }

    fn flops(&self, _inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        0.0
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        self.call.begin(operands.output(0), Status::Ready, None)?;
        let fabric = self.call.ranks.fabric();
        let bytes: &mut [u8] = operands.write(0);
        bytes
            .chunks_mut(self.call.ranks.buffer())
            .try_for_each(|bytes| fabric.broadcast(self.root, bytes))
            .map_err(lost)
    }
}
