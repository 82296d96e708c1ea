//! Runs an op piece by piece on the CPU. In this file, a word is an f32 or a 32-bit integer.

use super::pieces::{Layouts, Pieces};
use crate::device::cpu::Operands;
use crate::device::cpu::split::{PIECE, pieces};
use crate::device::cpu::wide::widest;
use crate::device::walk::Walk;
use crate::device::{DeviceError, Place};
use crate::layout::{DType, Layout};
use smallvec::SmallVec;
use std::ops::Range;

/// Largest number of scratch bytes for the operands that are cut: about the size of a core's cache.
pub const MOST: u64 = 1 << 20;

/// Unused end of the scratch memory, and the offset at which it begins. Callers take ranges in
/// ascending order.
struct Rest<'a>(&'a mut [u32], u64);

impl<'a> Rest<'a> {
    fn cut(&mut self, range: Option<&Range<u64>>) -> &'a mut [u32] {
        let Some(range) = range else { return &mut [] };
        let [skip, len] = [range.start - self.1, range.end - range.start].map(|b| (b / 4) as usize);
        let (part, rest) = std::mem::take(&mut self.0)[skip..].split_at_mut(len);
        *self = Self(rest, range.end);
        part
    }
}

/// Memory of an output, by the size of the stored elements.
enum Target<'a> {
    Words(&'a mut [u32]),
    Halves(&'a mut [u16]),
}

impl Pieces<'_> {
    /// Bytes of workspace that a run needs on the CPU.
    pub(in crate::ops) fn cpu_workspace(&self) -> u64 {
        self.workspace(|inputs, outputs| self.kernel.cpu_workspace(inputs, outputs))
    }

    /// Runs the op's kernel on one piece after another.
    pub(in crate::ops) fn cpu(&self, mut run: Operands<'_>) -> Result<(), DeviceError> {
        // Split the workspace into the copies of inputs, the pieces and sums of outputs, and the
        // kernel's own workspace.
        let (scratch, own) = run.workspace().split_at_mut((self.scratch / 4) as usize);
        let mut rest = Rest(scratch, 0);
        let mut copies: SmallVec<[&mut [u32]; 6]> =
            self.taken.iter().map(|taken| rest.cut(taken.copy.as_ref())).collect();
        let mut made: SmallVec<[[&mut [u32]; 2]; 3]> = (self.given.iter())
            .map(|given| [&given.piece, &given.sum].map(|range| rest.cut(range.as_ref())))
            .collect();
        let mut targets: SmallVec<[Target<'_>; 3]> =
            (0..self.outputs.len()).map(|i| Target::of(&mut run, i)).collect();
        let updates = self.kernel.updates(self.inputs.len());
        for (range, is_last) in self.ranges() {
            let is_first = range.start == 0;
            let [inputs, outputs] = self.layouts(&range);
            for (i, taken) in self.taken.iter().enumerate() {
                // An input that is not cut is copied only before the first piece.
                if taken.copy.is_some() && (is_first || taken.cut != super::Cut::Whole) {
                    let part = taken.cut.of(&self.inputs[i], &range);
                    let from = distance(&self.inputs[i], &part);
                    let copy = &mut copies[i][..part.elements()];
                    match part.dtype() {
                        DType::BF16 => pack(copy, &run.read::<u16>(i)[from..], &part, widened),
                        _ => pack(copy, &run.read::<u32>(i)[from..], &part, |word| word),
                    }
                }
            }
            // An updated output that is stored in `bf16` starts from its old value.
            for i in 0..updates {
                let part = self.given[i].made.cut().of(&self.outputs[i], &range);
                if let Target::Halves(old) = &targets[i] {
                    let from = distance(&self.outputs[i], &part);
                    pack(&mut made[i][0][..part.elements()], &old[from..], &part, widened);
                }
            }
            // Run the kernel on the piece.
            let read = self.taken.iter().enumerate().map(|(i, taken)| match taken.copy {
                _ if i < updates => &[],
                Some(_) => &copies[i][..inputs[i].elements()],
                None => &run.read::<u32>(i)[place_of(&self.inputs[i], &inputs[i])],
            });
            let write = self.given.iter().zip(&mut made).zip(&mut targets).enumerate();
            let write = write.map(|(i, ((given, [piece, _]), target))| match given.piece {
                Some(_) => &mut piece[..outputs[i].elements()],
                None => &mut target.words()[place_of(&self.outputs[i], &outputs[i])],
            });
            let places = |all: &Layouts| -> SmallVec<[Place; 6]> {
                all.iter().map(|&layout| Place { storage: 0, layout }).collect()
            };
            let [inputs, outputs] = [&inputs, &outputs].map(places);
            let (read, write) = (read.collect(), write.collect());
            self.kernel.cpu(Operands::over([&inputs, &outputs], read, write, own))?;
            // Move the results from scratch to the outputs, or add the results up.
            for (i, given) in self.given.iter().enumerate() {
                let [piece, sum] = &mut made[i];
                let part = given.made.cut().of(&self.outputs[i], &range);
                let piece =
                    if given.piece.is_some() { &piece[..part.elements()] } else { continue };
                if !given.made.is_sum() {
                    targets[i].put(piece, &part, distance(&self.outputs[i], &part));
                } else if given.sum.is_none() {
                    add(targets[i].words(), piece, is_first);
                } else {
                    add(sum, piece, is_first);
                    if is_last {
                        targets[i].put(sum, &self.outputs[i], 0);
                    }
                }
            }
        }
        Ok(())
    }
}

impl<'a> Target<'a> {
    fn of(run: &mut Operands<'a>, i: usize) -> Self {
        match run.output(i).dtype() {
            DType::BF16 => Self::Halves(run.write(i)),
            _ => Self::Words(run.write(i)),
        }
    }

    fn words(&mut self) -> &mut [u32] {
        match self {
            Self::Words(words) => words,
            Self::Halves(_) => unreachable!("what is rounded is made elsewhere"),
        }
    }

    /// Writes packed words to the elements of `part`, which begins at element `from`. Rounds the
    /// words if the output is `bf16`.
    fn put(&mut self, words: &[u32], part: &Layout, from: usize) {
        match self {
            Self::Words(all) => unpack(&mut all[from..], words, part, |word| word),
            Self::Halves(all) => unpack(&mut all[from..], words, part, rounded),
        }
    }
}

/// Number of elements from the first element of an operand to the first element of its part.
fn distance(whole: &Layout, part: &Layout) -> usize {
    part.offset() - whole.offset()
}

/// Range in an operand's slice from the first to the last element of a part.
fn place_of(whole: &Layout, part: &Layout) -> Range<usize> {
    let from = distance(whole, part);
    from..from + (part.span() - part.offset())
}

/// Bits of the f32 whose value is the value of a `bf16`.
pub(super) const fn widened(half: u16) -> u32 {
    (half as u32) << 16
}

/// Nearest `bf16` to an f32. On a tie, the `bf16` whose last bit is 0.
pub(super) const fn rounded(word: u32) -> u16 {
    let is_nan = word & 0x7fff_ffff > 0x7f80_0000;
    // A NaN whose upper mantissa bits are zeros would become infinite, so set the quiet bit.
    let quiet = (word >> 16) as u16 | 0x40;
    let half = (word.wrapping_add(0x7fff + (word >> 16 & 1)) >> 16) as u16;
    if is_nan { quiet } else { half }
}

/// Writes `f` of each element of `layout` to `out`, in row-major order. `x` begins at the first
/// element of `layout`.
pub(super) fn pack<A: Copy + Sync, B: Send>(
    out: &mut [B],
    x: &[A],
    layout: &Layout,
    f: impl Fn(A) -> B + Sync,
) {
    let walk = Walk::new(layout.shape(), [layout.strides()]);
    let [step] = walk.steps();
    let work = out.len();
    pieces(out, PIECE, work, |i, part| {
        let first = i * PIECE;
        walk.runs(first, first + part.len(), |i, len, [at]| {
            let out = &mut part[i - first..][..len];
            let x = &x[at..];
            widest(
                #[inline(always)]
                || match step {
                    1 => out.iter_mut().zip(&x[..len]).for_each(|(out, &x)| *out = f(x)),
                    _ => out.iter_mut().enumerate().for_each(|(j, out)| *out = f(x[j * step])),
                },
            );
        });
    });
}

/// Writes `f` of each element of the packed `x` to the elements of `layout`. `out` begins at the
/// first element of `layout`.
pub(super) fn unpack<A: Copy + Sync, B: Send>(
    out: &mut [B],
    x: &[A],
    layout: &Layout,
    f: impl Fn(A) -> B + Sync,
) {
    let walk = Walk::new(layout.shape(), [layout.strides()]);
    let [step] = walk.steps();
    walk.runs(0, x.len(), |i, len, [at]| {
        let x = &x[i..][..len];
        if step == 1 {
            pieces(&mut out[at..][..len], PIECE, len, |i, out| {
                widest(
                    #[inline(always)]
                    || out.iter_mut().zip(&x[i * PIECE..]).for_each(|(out, &x)| *out = f(x)),
                );
            });
        } else {
            x.iter().enumerate().for_each(|(j, &x)| out[at + j * step] = f(x));
        }
    });
}

/// Adds the result of a piece to a sum. The first piece overwrites the sum.
fn add(sum: &mut [u32], piece: &[u32], is_first: bool) {
    if is_first {
        return sum.copy_from_slice(piece);
    }
    let (sum, piece): (&mut [f32], &[f32]) =
        (bytemuck::cast_slice_mut(sum), bytemuck::cast_slice(piece));
    let work = sum.len();
    pieces(sum, PIECE, work, |i, sum| {
        let piece = &piece[i * PIECE..];
        widest(
            #[inline(always)]
            || sum.iter_mut().zip(piece).for_each(|(sum, x)| *sum += x),
        );
    });
}
