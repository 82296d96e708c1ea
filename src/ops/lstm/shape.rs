//! What both ops know of their operands, and samples of them.

use crate::layout::{Dims, Layout};
use crate::ops::FLOAT;
use crate::ops::check::{Fault, rank, shaped};
use crate::ops::samples::{Draw, Operand, floats, inside, repeated, turned};

/// Sequences, steps and units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub n: usize,
    pub t: usize,
    pub h: usize,
}

impl Shape {
    /// The sizes, if what has all gates of all steps fits the weight.
    pub fn new(gates: &Layout, role: &str, weight: &Layout) -> Result<Self, Fault> {
        let [_, _, of_gates] = rank(gates, role)?;
        let [_, h] = rank(weight, "weight")?;
        if h.checked_mul(4) != Some(of_gates) {
            return Err(format!(
                "{role} is {gates} and weight {weight}, expected 4 gates for each of its columns"
            ));
        }
        shaped(weight, "weight", FLOAT, &[of_gates, h])?;
        Ok(Self::of(gates))
    }

    /// The same of operands that fit.
    pub fn of(gates: &Layout) -> Self {
        let [n, t, of_gates] = [0, 1, 2].map(|axis| gates.shape()[axis]);
        Self { n, t, h: of_gates / 4 }
    }

    /// Gates of all units.
    pub const fn gates(&self) -> usize {
        4 * self.h
    }

    /// The shape of what there is for each unit of each step.
    pub fn of_units(&self) -> Dims {
        [self.n, self.t, self.h].into()
    }

    /// The shape of what there is for each gate of each step.
    pub fn of_gates(&self) -> Dims {
        [self.n, self.t, self.gates()].into()
    }

    /// The shape of what goes on from step to step.
    pub fn memory(&self) -> Dims {
        [self.n, self.h].into()
    }

    /// How many units there are, in all steps.
    pub fn units(&self) -> f64 {
        self.n as f64 * self.t as f64 * self.h as f64
    }
}

/// Rows of any strides: of each sequence and step, or of each sequence.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    data: &'a [f32],
    /// Distances of sequences, steps and units.
    strides: [usize; 3],
}

/// Those of `[n, t, h]` or `[n, h]`.
pub(super) fn rows<'a>(data: &'a [f32], layout: &Layout) -> Rows<'a> {
    let strides = match **layout.strides() {
        [n, t, h] => [n, t, h],
        [n, h] => [n, 0, h],
        _ => unreachable!("two or three dimensions"),
    };
    Rows { data, strides }
}

impl Rows<'_> {
    /// Copies the row of a sequence and step.
    #[inline]
    pub fn copy(&self, sequence: usize, step: usize, to: &mut [f32]) {
        let [n, t, h] = self.strides;
        let from = &self.data[sequence * n + step * t..];
        if h == 1 {
            to.copy_from_slice(&from[..to.len()]);
        } else {
            to.iter_mut().enumerate().for_each(|(j, to)| *to = from[j * h]);
        }
    }
}

/// Operands of a sample.
pub(super) struct Given {
    /// Packed, as is `bias`.
    pub gates: Operand,
    pub weight: Operand,
    pub bias: Operand,
    /// Two of these.
    pub memory: [Operand; 2],
    /// Of each unit of each step, packed and not.
    pub units: [Operand; 2],
}

/// Operands that deserve a test: sizes around those of the kernels, and none.
pub(super) fn samples() -> impl Iterator<Item = Given> {
    let sizes = [
        [1, 1, 1],
        [2, 3, 4],
        [3, 5, 17],
        [5, 2, 48],
        [16, 3, 33],
        [33, 2, 20],
        [150, 2, 12],
        [70, 1, 64],
        [19, 4, 130],
        [0, 3, 4],
        [3, 0, 4],
        [3, 4, 0],
    ];
    sizes.into_iter().enumerate().map(|(i, [n, t, h])| {
        let (memory, units) = ([n, h], [n, t, h]);
        Given {
            gates: floats(&[n, t, 4 * h]),
            weight: if i % 3 == 1 { turned(&[4 * h, h]) } else { floats(&[4 * h, h]) },
            bias: floats(&[4 * h]),
            memory: match i % 3 {
                0 => [floats(&memory), repeated(&[1, 1], &memory)],
                1 => [inside(&memory), turned(&memory)],
                _ => [repeated(&[h], &memory), floats(&memory)],
            },
            units: [
                floats(&units),
                if i % 2 == 0 {
                    inside(&units)
                } else {
                    floats(&[t, n, h]).view(|x| x.permute(&[1, 0, 2]))
                },
            ],
        }
    })
}

/// Layouts of absurd sizes: of gates, the weight, what goes on from step to step, and units.
pub(super) fn absurd(draw: &mut Draw) -> [Layout; 4] {
    let ([n, t], h) = (draw.absurd_pair(), draw.absurd_size());
    let gates = h.wrapping_mul(4);
    let layout = |shape: &[usize]| Layout::contiguous(FLOAT, Dims::new(shape));
    [layout(&[n, t, gates]), layout(&[gates, h]), layout(&[n, h]), layout(&[n, t, h])]
}
