//! Op that runs a collective.
//!
//! A collective runs once, on the CPU. A rank that skips a collective still takes part: it sends
//! its failure.

use super::FabricError;
use super::header::{Header, Kind, Status};
use super::link::Link;
use super::sum;
use super::traffic::Pattern;
use crate::device::{DeviceError, cpu};
use crate::layout::{DType, Dims, Layout};
use crate::ops::CustomOp;
use crate::sync::atomic::AtomicBool;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Bytes of an `f32`.
const FLOAT_BYTES: usize = size_of::<f32>();

fn lost(error: FabricError) -> DeviceError {
    DeviceError::new(error.0)
}

/// Checks that an op has one input, and that the input has type `f32` if `floats` is set.
fn only(inputs: &[Layout], floats: bool) -> Result<&Layout, String> {
    match inputs {
        [input] if floats && input.dtype() != DType::F32 => {
            Err(format!("takes f32, {} was given; cast the tensor", input.dtype()))
        }
        [input] => Ok(input),
        _ => Err(format!("takes 1 input, {} were given", inputs.len())),
    }
}

/// A collective, of one kind for each method of [`Ranks`](super::Ranks).
///
/// `x_r` is the input of rank `r`, of `N` ranks. Sums are made in the order of the ranks.
///
/// | kind | input | result on rank `r` |
/// |---|---|---|
/// | sum | f32 | in place: `x_0 + x_1 + .. + x_(N-1)` |
/// | mean | f32 | in place: the sum, divided by `N` |
/// | reduce-scatter | `[N * n, ..]`, f32 | `[n, ..]`: rows `r * n ..` of the sum |
/// | all-gather | `[n, ..]`, any type | `[N * n, ..]`: `x_0`, then `x_1`, .. |
/// | broadcast | any type | in place: `x_root` |
#[derive(Clone)]
pub(super) struct Collective {
    link: Arc<Link>,
    /// Header, without the layout of the input.
    header: Header,
    /// Bytes of the link's buffer, through which a sum passes; `None` if the sum passes through a
    /// workspace.
    reserved: Option<usize>,
    status: Status,
    /// Flag that a run of the op sets if some rank has a value of its own.
    any: Option<Arc<AtomicBool>>,
}

impl Collective {
    pub fn new(link: &Arc<Link>, name: &str, kind: Kind) -> Self {
        let header = Header::new(name, kind, DType::F32, 0);
        let link = Arc::clone(link);
        Self { link, header, reserved: None, status: Status::Ready, any: None }
    }

    /// Lets a sum pass through the buffer of the link, which has `room` bytes, instead of a
    /// workspace.
    pub const fn reserved(mut self, room: usize) -> Self {
        self.reserved = Some(room);
        self
    }

    /// Marks this rank as one without a value of its own: its tensor is zeros. When the op has run,
    /// `any` says whether another rank has a value.
    pub fn empty(mut self, any: &Arc<AtomicBool>) -> Self {
        (self.status, self.any) = (Status::Empty, Some(Arc::clone(any)));
        self
    }

    /// Whether the result takes the place of the input.
    const fn is_in_place(&self) -> bool {
        matches!(self.header.kind, Kind::Sum | Kind::Mean | Kind::Broadcast { .. })
    }

    /// Number of each rank's elements that pass through the buffer at once. Each element has
    /// `bytes` bytes.
    fn piece(&self, bytes: usize) -> usize {
        (self.link.buffer() / self.link.size() / bytes).max(1)
    }

    fn all_reduce(&self, operands: &mut cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (link, values) = (&self.link, operands.write(0));
        let summed = match self.reserved {
            Some(room) => link.sum(values, sum::piece(room, link.size())),
            None => {
                let piece = sum::piece(link.buffer(), link.size());
                let workspace = operands.workspace();
                sum::all_reduce(link.fabric(), self.header.kind, values, piece, workspace)
            }
        };
        summed.map_err(lost)
    }

    fn reduce_scatter(&self, operands: &mut cpu::Operands<'_>) -> Result<(), DeviceError> {
        let size = self.link.size();
        let (values, part): (&[f32], &mut [f32]) = (operands.read(0), operands.write(0));
        let buffer: &mut [f32] = operands.workspace();
        let (send, receive) = buffer.split_at_mut(buffer.len() / 2);
        let (each, most) = (part.len(), self.piece(FLOAT_BYTES));
        for (i, part) in part.chunks_mut(most).enumerate() {
            let piece = part.len();
            let (send, receive) = (&mut send[..piece * size], &mut receive[..piece * size]);
            for (rank, to) in send.chunks_exact_mut(piece).enumerate() {
                to.copy_from_slice(&values[rank * each + i * most..][..piece]);
            }
            sum::exchange(self.link.fabric(), send, receive).map_err(lost)?;
            let (first, others) = receive.split_at(piece);
            part.copy_from_slice(first);
            sum::add_all(part, others);
        }
        Ok(())
    }

    fn all_gather(&self, operands: &mut cpu::Operands<'_>) -> Result<(), DeviceError> {
        let (input, output): (&[u8], &mut [u8]) = (operands.read(0), operands.write(0));
        let buffer: &mut [u8] = operands.workspace();
        let (each, most) = (input.len(), self.piece(1));
        for (i, mine) in input.chunks(most).enumerate() {
            let receive = &mut buffer[..mine.len() * self.link.size()];
            self.link.fabric().all_gather(mine, receive).map_err(lost)?;
            for (rank, from) in receive.chunks_exact(mine.len()).enumerate() {
                output[rank * each + i * most..][..mine.len()].copy_from_slice(from);
            }
        }
        Ok(())
    }

    fn broadcast(&self, operands: &mut cpu::Operands<'_>, root: u32) -> Result<(), DeviceError> {
        let bytes: &mut [u8] = operands.write(0);
        bytes
            .chunks_mut(self.link.buffer())
            .try_for_each(|bytes| self.link.fabric().broadcast(root as usize, bytes))
            .map_err(lost)
    }
}

impl fmt::Debug for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Ops with equal texts are equal. The text leaves out the rank, so that recordings of all
        // ranks agree.
        let Header { kind, tensor, .. } = self.header;
        write!(f, "{kind} of {tensor:x} ({:?})", self.status)
    }
}

impl CustomOp for Collective {
    fn name(&self) -> &str {
        let pattern = match self.header.kind {
            Kind::Sum | Kind::Mean => Pattern::AllReduce,
            Kind::ReduceScatter => Pattern::ReduceScatter,
            Kind::AllGather => Pattern::AllGather,
            Kind::Broadcast { .. } => Pattern::Broadcast,
        };
        pattern.name()
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        let adds = matches!(self.header.kind, Kind::Sum | Kind::Mean | Kind::ReduceScatter);
        let (input, size) = (only(inputs, adds)?, self.link.size());
        if self.is_in_place() {
            return Ok(Vec::new());
        }
        let mut shape = input.shape().to_vec();
        match (self.header.kind, shape.first_mut()) {
            (Kind::AllGather, Some(rows)) => *rows = rows.saturating_mul(size),
            (_, Some(rows)) if rows.is_multiple_of(size) => *rows /= size,
            (Kind::AllGather, None) => {
                return Err("takes a tensor with dimensions; reshape the scalar".to_owned());
            }
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

    fn updates(&self, _inputs: usize) -> usize {
        usize::from(self.is_in_place())
    }

    fn skipped(&self, why: &(dyn Error + 'static)) {
        self.link.skip(self.header, &why.to_string());
    }

    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        match self.header.kind {
            Kind::AllGather | Kind::Broadcast { .. } => 0.0,
            _ => outputs[0].elements() as f64,
        }
    }

    fn cpu_workspace(&self, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        let size = self.link.size();
        // Elements of a rank that pass through the buffer at once.
        let most = |elements: usize, bytes: usize| elements.min(self.piece(bytes));
        let bytes = match self.header.kind {
            Kind::Sum | Kind::Mean if self.reserved.is_some() => 0,
            Kind::Sum | Kind::Mean => {
                let piece = sum::piece(self.link.buffer(), size);
                sum::workspace(inputs[0].elements(), piece, size) * FLOAT_BYTES
            }
            // Pieces to send, and pieces received.
            Kind::ReduceScatter => {
                2 * most(outputs[0].elements(), FLOAT_BYTES) * size * FLOAT_BYTES
            }
            Kind::AllGather => most(inputs[0].bytes() as usize, 1) * size,
            Kind::Broadcast { .. } => 0,
        };
        // The device lends workspaces in whole elements of four bytes.
        bytes.next_multiple_of(FLOAT_BYTES) as u64
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let input = operands.input(0);
        let header = Header { dtype: input.dtype(), bytes: input.bytes(), ..self.header };
        self.link.waiting(|| {
            let _turn = self.link.begin(header, self.status, self.any.as_deref())?;
            match self.header.kind {
                Kind::Sum | Kind::Mean => self.all_reduce(&mut operands),
                Kind::ReduceScatter => self.reduce_scatter(&mut operands),
                Kind::AllGather => self.all_gather(&mut operands),
                Kind::Broadcast { root } => self.broadcast(&mut operands, root),
            }
        })
    }
}
