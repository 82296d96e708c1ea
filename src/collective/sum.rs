//! Sums over all ranks, in the order of the ranks.

use super::fabric::{Fabric, FabricError};
use super::header::Kind;

/// Number of values of each rank that are sent at once. Half of a buffer of `bytes` bytes is for
/// the values of all ranks. The other half of the buffer is for values that wait to be sent.
pub(super) fn piece(bytes: usize, size: usize) -> usize {
    (bytes / 2 / size_of::<f32>() / size).max(1)
}

/// Number of floats in the workspace of [`all_reduce`] for `len` values, of which at most `piece`
/// of each rank are sent at once.
pub(super) fn workspace(len: usize, piece: usize, size: usize) -> usize {
    // Pieces of all ranks, and two rows for the last elements, of which some ranks have none.
    ((len / size).min(piece) + 2) * size
}

/// Replaces `values` by their sum over all ranks, or by the mean if the kind is [`Kind::Mean`].
pub(super) fn all_reduce(
    fabric: &dyn Fabric,
    kind: Kind,
    values: &mut [f32],
    piece: usize,
    workspace: &mut [f32],
) -> Result<(), FabricError> {
    let size = fabric.size();
    let (last, buffer) = workspace.split_at_mut(size);
    let even = values.len() / size * size;
    for values in values[..even].chunks_mut(piece * size) {
        sum_pieces(fabric, kind, values, &mut buffer[..values.len()])?;
    }
    let rest = &mut values[even..];
    if !rest.is_empty() {
        last[..rest.len()].copy_from_slice(rest);
        last[rest.len()..].fill(0.0);
        sum_pieces(fabric, kind, last, &mut buffer[..size])?;
        rest.copy_from_slice(&last[..rest.len()]);
    }
    Ok(())
}

/// Sums values over all ranks. Each rank owns a piece of the values, of the same length on all
/// ranks. A rank receives its piece from all ranks, and sends the sum of the piece to all ranks.
fn sum_pieces(
    fabric: &dyn Fabric,
    kind: Kind,
    values: &mut [f32],
    received: &mut [f32],
) -> Result<(), FabricError> {
    let size = fabric.size();
    exchange(fabric, values, received)?;
    let (sum, others) = received.split_at_mut(values.len() / size);
    add_all(sum, others);
    if kind == Kind::Mean {
        sum.iter_mut().for_each(|x| *x /= size as f32);
    }
    fabric.all_gather(bytemuck::cast_slice(sum), bytemuck::cast_slice_mut(values))
}

/// Sends piece `i` of `send` to rank `i`, and receives a piece from each rank.
pub(super) fn exchange(
    fabric: &dyn Fabric,
    send: &[f32],
    receive: &mut [f32],
) -> Result<(), FabricError> {
    fabric.all_to_all(bytemuck::cast_slice(send), bytemuck::cast_slice_mut(receive))
}

/// Adds the pieces of the other ranks to the piece of rank 0, in the order of the ranks.
pub(super) fn add_all(sum: &mut [f32], others: &[f32]) {
    for piece in others.chunks_exact(sum.len().max(1)) {
        sum.iter_mut().zip(piece).for_each(|(sum, x)| *sum += x);
    }
}
