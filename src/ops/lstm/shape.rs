//! Sizes and rows of the operands of LSTM steps and of their gradient.

use crate::layout::{Dims, Layout};
use crate::ops::FLOAT;
use crate::ops::check::{Fault, rank, shaped};

/// Number of sequences `n`, steps `t` and units `h`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub n: usize,
    pub t: usize,
    pub h: usize,
}

impl Shape {
    /// Sizes of the operands. An error unless the weight has one column for each unit, and one row
    /// for each gate of each unit.
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

    /// Sizes of the operands. The caller has already checked their shapes.
    pub fn of(gates: &Layout) -> Self {
        let [n, t, of_gates] = [0, 1, 2].map(|axis| gates.shape()[axis]);
        Self { n, t, h: of_gates / 4 }
    }

    /// Number of gates of all units together.
    pub const fn gates(&self) -> usize {
        4 * self.h
    }

    /// Shape of tensors with an element for each unit of each step.
    pub fn of_units(&self) -> Dims {
        [self.n, self.t, self.h].into()
    }

    /// Shape of tensors with an element for each gate of each step.
    pub fn of_gates(&self) -> Dims {
        [self.n, self.t, self.gates()].into()
    }

    /// Shape of `h` and `c` between steps.
    pub fn memory(&self) -> Dims {
        [self.n, self.h].into()
    }

    /// Number of units in all steps together.
    pub fn units(&self) -> f64 {
        self.n as f64 * self.t as f64 * self.h as f64
    }
}

/// Rows of a tensor with any strides: one row for each sequence and step, or one row for each
/// sequence.
#[derive(Clone, Copy)]
pub(super) struct TimeRows<'a> {
    data: &'a [f32],
    /// Distances between sequences, between steps, and between units.
    strides: [usize; 3],
}

/// Rows of `[n, t, h]` or `[n, h]`.
pub(super) fn rows<'a>(data: &'a [f32], layout: &Layout) -> TimeRows<'a> {
    let strides = match **layout.strides() {
        [n, t, h] => [n, t, h],
        [n, h] => [n, 0, h],
        _ => unreachable!("two or three dimensions"),
    };
    TimeRows { data, strides }
}

impl TimeRows<'_> {
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
