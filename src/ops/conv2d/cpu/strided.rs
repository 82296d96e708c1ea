//! Copies between elements that are `step` apart and contiguous elements, in both directions.
//!
//! Step 2 is common, so copies with step 2 use vector instructions. The code treats pairs of floats
//! as 64-bit integers, because compilers translate the selection of the upper or lower 32 bits to
//! shuffle instructions.

const BLOCK: usize = 8;

/// Fills `to` with elements 0, `step`, `2 * step`, ... of `from`.
#[inline]
pub(super) fn copy_every(step: usize, from: &[f32], to: &mut [f32]) {
    match step {
        1 => to.copy_from_slice(&from[..to.len()]),
        2 => {
            for block in blocks(to.len()) {
                match (to[block..].first_chunk_mut(), from[2 * block..].first_chunk()) {
                    (Some(to), Some(from)) => *to = first_of_pairs(*from),
                    _ => copy_every_slowly(2, &from[2 * block..], &mut to[block..]),
                }
            }
        }
        _ => copy_every_slowly(step, from, to),
    }
}

/// Writes `from` to elements `origin`, `origin + step`, `origin + 2 * step`, ... of `to`, and keeps
/// all other elements of `to`. Ignores elements of `from` that would lie beyond the end of `to`.
/// `origin` is below `step` and below the length of `to`.
#[inline]
pub(super) fn spread_every(step: usize, origin: usize, from: &[f32], to: &mut [f32]) {
    let from = &from[..from.len().min((to.len() - origin).div_ceil(step))];
    match step {
        1 => to.copy_from_slice(from),
        2 => {
            for block in blocks(from.len()) {
                match (to[2 * block..].first_chunk_mut(), from[block..].first_chunk()) {
                    (Some(to), Some(from)) => *to = with_half_of_pairs(*to, origin, *from),
                    _ => spread_every_slowly(2, &from[block..], &mut to[2 * block + origin..]),
                }
            }
        }
        _ => spread_every_slowly(step, from, &mut to[origin..]),
    }
}

/// Start indices of blocks that cover `len` elements. The last block ends at the last element, so
/// it may overlap the block before it.
fn blocks(len: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by(BLOCK).map(move |block| block.min(len.saturating_sub(BLOCK)))
}

fn copy_every_slowly(step: usize, from: &[f32], to: &mut [f32]) {
    to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = *from);
}

fn spread_every_slowly(step: usize, from: &[f32], to: &mut [f32]) {
    to.iter_mut().step_by(step).zip(from).for_each(|(to, from)| *to = *from);
}

/// Elements 0, 2, 4, ... of `pairs`.
fn first_of_pairs(pairs: [f32; 2 * BLOCK]) -> [f32; BLOCK] {
    let pairs: [u64; BLOCK] = bytemuck::cast(pairs);
    bytemuck::cast(pairs.map(|pair| (pair >> shift_of_half(0)) as u32))
}

/// Replaces elements `half`, `half + 2`, `half + 4`, ... of `pairs`.
fn with_half_of_pairs(
    pairs: [f32; 2 * BLOCK],
    half: usize,
    values: [f32; BLOCK],
) -> [f32; 2 * BLOCK] {
    let mut pairs: [u64; BLOCK] = bytemuck::cast(pairs);
    let shift = shift_of_half(half);
    for (pair, value) in pairs.iter_mut().zip(values) {
        *pair = *pair & !(u64::from(u32::MAX) << shift) | u64::from(value.to_bits()) << shift;
    }
    bytemuck::cast(pairs)
}

/// Number of bits by which to shift a 64-bit integer to get the first or second 32 bits in memory.
fn shift_of_half(half: usize) -> u32 {
    if (half == 0) == cfg!(target_endian = "little") { 0 } else { 32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_spreads_of_all_lengths() {
        for step in 1..4 {
            for len in 0..70_usize {
                let source: Vec<f32> = (0..len).map(|i| i as f32 - 0.5).collect();
                let count = len.div_ceil(step);
                let mut taken = vec![f32::NAN; count];
                copy_every(step, &source, &mut taken);
                assert_eq!(taken, source.iter().copied().step_by(step).collect::<Vec<_>>());

                taken.push(f32::NAN);
                for origin in 0..step {
                    let mut spread = vec![7.0; len + origin];
                    spread_every(step, origin, &taken, &mut spread);
                    let hit = |i: usize| i >= origin && (i - origin).is_multiple_of(step);
                    let expected =
                        (0..len + origin).map(|i| if hit(i) { source[i - origin] } else { 7.0 });
                    assert_eq!(spread, expected.collect::<Vec<_>>());
                }
            }
        }
    }
}
