//! Matrix products of tensors on a GPU, divided into batches that cuBLAS can compute.
//!
//! cuBLAS reads an operand without a copy if the operand's matrices have contiguous rows or
//! columns. An operand whose rows and columns are not contiguous is packed first. A batch consists
//! of matrices at equal distances in memory. The leading dimensions that a batch does not cover
//! become loops over batches.

#![allow(unsafe_code)]

use crate::device::DeviceError;
use crate::device::cuda::blas::{self, Form, Products, Side};
use crate::device::cuda::scratch::padded;
use crate::device::cuda::{Gpu, Operands, Scratch};
use crate::device::walk::Walk;
use crate::layout::{Dims, Layout};
use crate::ops::copy::cuda::copy;
use std::sync::Arc;

/// Bytes of workspace of `y = a * b`: packed operands, and cuBLAS's workspace.
pub(super) fn workspace(a: &Layout, b: &Layout, y: &Layout) -> u64 {
    let Some(plan) = Plan::new(a, b, y) else { return 0 };
    plan.packed_bytes().into_iter().map(padded).sum::<u64>() + plan.blas_bytes(y)
}

/// Runs a matrix product after all work that was submitted to the GPU before.
pub(super) fn product(gpu: &mut Gpu, run: &Operands<'_>) -> Result<(), DeviceError> {
    let [a, b, y] = [&run.inputs[0], &run.inputs[1], &run.outputs[0]];
    let Some(plan) = Plan::new(&a.layout, &b.layout, &y.layout) else {
        return gpu.zero(y);
    };
    let [mut first_a, mut first_b, first_y] = [gpu.first(a), gpu.first(b), gpu.first(y)];
    let mut scratch = Scratch::of(gpu, run);
    for (operand, first) in [(&plan.a, &mut first_a), (&plan.b, &mut first_b)] {
        if let Some(layout) = &operand.packed_from {
            let packed = scratch.take(layout.bytes())?;
            // SAFETY: `first` is the address of an operand of the run, which the device has
            // checked. `take` returned enough memory of the workspace for all elements of `layout`.
            unsafe { copy(gpu, packed, *first, layout)? };
            *first = packed;
        }
    }
    let workspace = scratch.take(plan.blas_bytes(&y.layout))?;
    let libraries = Arc::clone(gpu.libraries());
    let mut blas = libraries.blas();
    let mut outcome = Ok(());
    plan.batches(|Batch { y, a, b, count, sizes, forms, steps }| {
        if outcome.is_ok() {
            let element = size_of::<f32>() as u64;
            let products = Products {
                batch: count,
                sizes,
                a: Side { first: first_a.plus(a as u64 * element), form: forms[0], step: steps[0] },
                b: Side { first: first_b.plus(b as u64 * element), form: forms[1], step: steps[1] },
                y: first_y.plus(y as u64 * element),
                add: false,
                workspace,
            };
            // SAFETY: a batch of the plan reads the operands, which the device has checked, or
            // their packed copies in the workspace. The batch writes its own part of `y`. `take`
            // returned as much memory for cuBLAS as `blas_bytes` computed for all of `y`.
            outcome = unsafe { blas.multiply(&products) };
        }
    });
    outcome
}

/// One operand of a product.
#[derive(Clone, Copy, Debug)]
struct Operand {
    /// Layout of the operand before packing; `None` if the operand is not packed.
    packed_from: Option<Layout>,
    /// Form in which each matrix of the operand is stored.
    form: Form,
    /// Distances between rows, and between columns.
    strides: [usize; 2],
    /// Strides of the operand along the leading dimensions of the result `y`.
    lead: Dims,
}

impl Operand {
    /// Plans an operand of a product whose leading dimensions are `lead`.
    fn new(layout: &Layout, lead: &[usize]) -> Self {
        let own = layout.rank() - 2;
        let [rows, columns] = [layout.shape()[own], layout.shape()[own + 1]];
        let strides = [layout.strides()[own], layout.strides()[own + 1]];
        let along = |layout: &Layout| {
            let full = Dims::new(&[lead, &[rows, columns]].concat());
            let full = layout.broadcast_to(&full).expect("leading dimensions that broadcast");
            Dims::new(&full.strides()[..lead.len()])
        };
        if let Some(form) = Form::of([rows, columns], strides) {
            return Self { packed_from: None, form, strides, lead: along(layout) };
        }
        // Pack a matrix that is broadcast only once.
        let repeated = (0..own).filter(|&axis| layout.strides()[axis] == 0);
        let once = repeated
            .fold(*layout, |once, axis| once.slice(axis, 0, 1).expect("a matrix that is there"));
        Self {
            packed_from: Some(once),
            form: Form::packed(columns),
            strides: [columns, 1],
            lead: along(&Layout::contiguous(once.dtype(), *once.shape())),
        }
    }
}

/// Products that one call of cuBLAS computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Batch {
    /// Offset of the first matrix in each tensor, in elements.
    y: usize,
    a: usize,
    b: usize,
    count: usize,
    sizes: [usize; 3],
    forms: [Form; 2],
    /// Distances between the matrices of an operand, in elements.
    steps: [usize; 2],
}

/// Plan for a product of tensors.
struct Plan {
    sizes: [usize; 3],
    a: Operand,
    b: Operand,
    /// Number of matrices.
    count: usize,
    walk: Walk<2>,
}

impl Plan {
    /// Plans `y = a * b`. Returns `None` if `y` has no elements, or if the sums have no terms and
    /// all elements of `y` are 0.
    fn new(a: &Layout, b: &Layout, y: &Layout) -> Option<Self> {
        let outer = y.rank() - 2;
        let sizes = [y.shape()[outer], a.shape()[a.rank() - 1], y.shape()[outer + 1]];
        if y.elements() == 0 || sizes[1] == 0 {
            return None;
        }
        let lead = Dims::new(&y.shape()[..outer]);
        let (a, b) = (Operand::new(a, &lead), Operand::new(b, &lead));
        let walk = Walk::new(&lead, [&a.lead, &b.lead]);
        Some(Self { sizes, a, b, count: lead.elements(), walk })
    }

    /// Bytes of the packed copy of each operand; 0 if the operand is not packed.
    fn packed_bytes(&self) -> [u64; 2] {
        [&self.a, &self.b].map(|operand| operand.packed_from.map_or(0, |layout| layout.bytes()))
    }

    /// Bytes of cuBLAS's workspace.
    fn blas_bytes(&self, y: &Layout) -> u64 {
        blas::workspace(y.bytes(), self.sizes[1])
    }

    /// Calls `body` with all batches, in order.
    fn batches(&self, mut body: impl FnMut(Batch)) {
        let [m, k, n] = self.sizes;
        let forms = [self.a.form, self.b.form];
        let steps = self.walk.steps();
        self.walk.runs(0, self.count, |i, count, [a, b]| {
            let batch = Batch { y: i * m * n, a, b, count, sizes: self.sizes, forms, steps };
            body(match self.as_one(count) {
                Some(form) => {
                    Batch { count: 1, sizes: [count * m, k, n], forms: [form, forms[1]], ..batch }
                }
                None => batch,
            });
        });
    }

    /// Form of the left side if `count` products can be computed as one product, else `None`. A
    /// single product is possible if the right side is a single matrix, and all rows of all left
    /// matrices are equally far apart.
    fn as_one(&self, count: usize) -> Option<Form> {
        let [m, k, _] = self.sizes;
        let ([step_a, step_b], [row, column]) = (self.walk.steps(), self.a.strides);
        let row = if m == 1 { step_a } else { row };
        let goes_on = step_b == 0 && m.checked_mul(row) == Some(step_a);
        let goes_on = goes_on && count * m <= blas::LARGEST;
        if goes_on { Form::of([count * m, k], [row, column]) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{DType, broadcast_shapes};
    use proptest::prelude::*;

    /// Storage indices of the elements of a layout, in row-major order, relative to the first
    /// element.
    fn places(layout: &Layout) -> Vec<usize> {
        let sizes = layout.shape().iter().zip(layout.strides().iter());
        sizes.fold(vec![0], |places, (&size, &stride)| {
            let next = |&at: &usize| (0..size).map(move |i| at + i * stride);
            places.iter().flat_map(next).collect()
        })
    }

    /// Result that cuBLAS would compute for a plan. If the plan packs an operand, the function
    /// packs it, too.
    fn made(plan: &Plan, [a, b]: [&[i64]; 2], len: usize) -> Vec<i64> {
        let read = |operand: &Operand, data: &[i64]| match &operand.packed_from {
            Some(layout) => places(layout).into_iter().map(|at| data[at]).collect(),
            None => data.to_vec(),
        };
        let (a, b) = (read(&plan.a, a), read(&plan.b, b));
        let mut y = vec![i64::MAX; len];
        plan.batches(|batch| {
            let [m, k, n] = batch.sizes;
            for (i, row, column) in (0..batch.count)
                .flat_map(|i| (0..m).flat_map(move |r| (0..n).map(move |c| (i, r, c))))
            {
                let left = |j| a[batch.a + i * batch.steps[0] + batch.forms[0].place(row, j)];
                let right = |j| b[batch.b + i * batch.steps[1] + batch.forms[1].place(j, column)];
                y[batch.y + (i * m + row) * n + column] = (0..k).map(|j| left(j) * right(j)).sum();
            }
        });
        y
    }

    fn expected(a: &Layout, b: &Layout, y: &Layout, [left, right]: [&[i64]; 2]) -> Vec<i64> {
        let [.., m, n] = **y.shape() else { unreachable!() };
        let k = a.shape()[a.rank() - 1];
        let full = |layout: &Layout, rows, columns| {
            let lead = &y.shape()[..y.rank() - 2];
            places(&layout.broadcast_to(&Dims::new(&[lead, &[rows, columns]].concat())).unwrap())
        };
        let (a, b) = (full(a, m, k), full(b, k, n));
        (0..y.elements())
            .map(|at| {
                let (i, row, column) = (at / (m * n), at / n % m, at % n);
                (0..k)
                    .map(|j| left[a[(i * m + row) * k + j]] * right[b[(i * k + j) * n + column]])
                    .sum()
            })
            .collect()
    }

    fn output(a: &Layout, b: &Layout) -> Layout {
        let lead = |layout: &Layout| Dims::new(&layout.shape()[..layout.rank() - 2]);
        let lead = broadcast_shapes(&lead(a), &lead(b)).unwrap();
        let last = [a.shape()[a.rank() - 2], b.shape()[b.rank() - 1]];
        Layout::contiguous(DType::F32, Dims::new(&[&lead[..], &last].concat()))
    }

    fn check(a: &Layout, b: &Layout) -> (Plan, usize) {
        let y = output(a, b);
        let data = [a, b].map(|layout| {
            let last = places(layout).into_iter().max().unwrap_or(0);
            (0..=last as i64).map(|i| i * 7 % 11 - 5).collect::<Vec<_>>()
        });
        let data = [&data[0][..], &data[1][..]];
        let plan = Plan::new(a, b, &y).expect("elements");
        assert_eq!(made(&plan, data, y.elements()), expected(a, b, &y, data), "{a:?} {b:?}");
        let mut batches = 0;
        plan.batches(|_| batches += 1);
        (plan, batches)
    }

    fn packed(shape: &[usize]) -> Layout {
        Layout::contiguous(DType::F32, Dims::new(shape))
    }

    #[test]
    fn transposed_operands_are_read_where_they_are() {
        let turned = |shape: &[usize]| packed(shape).permute(&[1, 0]).unwrap();
        for a in [packed(&[3, 4]), turned(&[4, 3]), packed(&[3, 9]).slice(1, 2, 4).unwrap()] {
            for b in [packed(&[4, 5]), turned(&[5, 4])] {
                let (plan, batches) = check(&a, &b);
                assert_eq!((plan.packed_bytes(), batches), ([0, 0], 1));
            }
        }
    }

    #[test]
    fn rows_that_go_on_are_one_product() {
        let (plan, batches) = check(&packed(&[2, 6, 3, 4]), &packed(&[4, 5]));
        assert_eq!((plan.packed_bytes(), batches), ([0, 0], 1));
        plan.batches(|batch| assert_eq!((batch.count, batch.sizes), (1, [36, 4, 5])));
        // Each matrix has one row.
        let rows = packed(&[6, 2, 4]).slice(1, 1, 1).unwrap();
        check(&rows, &packed(&[4, 5])).0.batches(|batch| assert_eq!(batch.sizes, [6, 4, 5]));
        // The left matrices are transposed, so their rows are not equally far apart from one matrix
        // to the next.
        let turned = packed(&[6, 4, 3]).permute(&[0, 2, 1]).unwrap();
        check(&turned, &packed(&[4, 5])).0.batches(|batch| assert_eq!(batch.count, 6));
    }

    #[test]
    fn leading_dimensions_that_lie_evenly_are_one_batch() {
        let (a, b) = (packed(&[7, 2, 3, 4]), packed(&[7, 2, 4, 5]));
        assert_eq!(check(&a, &b).1, 1);
        // Attention heads: the dimensions of batch and heads are swapped.
        let heads = packed(&[7, 3, 2, 4]).permute(&[0, 2, 1, 3]).unwrap();
        let (plan, batches) = check(&heads, &b);
        assert_eq!((plan.packed_bytes(), batches), ([0, 0], 7));
        assert_eq!(check(&packed(&[7, 1, 3, 4]), &packed(&[2, 4, 5])).1, 7);
    }

    #[test]
    fn operands_without_unit_stride_are_packed_and_repeated_ones_once() {
        let strided = packed(&[4, 5, 3]).permute(&[2, 0, 1]).unwrap().slice(2, 0, 4).unwrap();
        let (plan, batches) = check(&strided, &packed(&[4, 5]));
        assert_eq!((plan.packed_bytes(), batches), ([3 * 16 * 4, 0], 1));
        let row = packed(&[4]).broadcast_to(&Dims::new(&[9, 3, 4])).unwrap();
        let (plan, _) = check(&row, &packed(&[4, 5]));
        assert_eq!(plan.packed_bytes(), [12 * 4, 0]);
    }

    #[test]
    fn workspaces_hold_what_is_packed_and_cublas() {
        let (a, b) = (packed(&[30, 1280]), packed(&[1280, 500]));
        assert_eq!(workspace(&a, &b, &output(&a, &b)), 60_000 * 10);
        let strided = packed(&[30, 1280, 2]).slice(2, 1, 1).unwrap();
        let strided = strided.permute(&[2, 0, 1]).unwrap();
        assert_eq!(
            workspace(&strided, &b, &output(&strided, &b)),
            padded(30 * 1280 * 4) + 60_000 * 10
        );
        let (a, b) = (packed(&[30, 0]), packed(&[0, 50]));
        assert_eq!(workspace(&a, &b, &output(&a, &b)), 0);
    }

    /// Layouts of shape `sizes`: permuted, a part of a larger tensor, or broadcast.
    fn arranged(sizes: Vec<usize>) -> impl Strategy<Value = Layout> {
        let rank = sizes.len();
        let order = Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
        (order, 0..rank, 0..3_usize, 0..3_usize, any::<bool>()).prop_map(
            move |(order, axis, before, after, repeat)| {
                let mut stored: Vec<usize> = order.iter().map(|&axis| sizes[axis]).collect();
                let mut back = vec![0; rank];
                order.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
                if repeat {
                    stored[axis] = 1;
                    let one = packed(&stored).permute(&back).unwrap();
                    return one.broadcast_to(&Dims::new(&sizes)).unwrap();
                }
                let size = stored[axis];
                stored[axis] += before + after;
                packed(&stored).slice(axis, before, size).unwrap().permute(&back).unwrap()
            },
        )
    }

    fn operands() -> impl Strategy<Value = (Layout, Layout)> {
        let lead = prop::collection::vec(1..4_usize, 0..=3);
        let ones = prop::collection::vec(any::<bool>(), 8);
        (lead, prop::array::uniform3(1..5_usize), ones, 0..=3_usize, 0..=3_usize).prop_flat_map(
            |(lead, [m, k, n], ones, skip_a, skip_b)| {
                let shape = |skip: usize, from: usize, last: [usize; 2]| {
                    let own = lead.iter().enumerate().skip(skip);
                    let mut sizes: Vec<_> =
                        own.map(|(i, &size)| if ones[from + i] { 1 } else { size }).collect();
                    sizes.extend(last);
                    sizes
                };
                let (a, b) = (shape(skip_a, 0, [m, k]), shape(skip_b, 4, [k, n]));
                (arranged(a), arranged(b))
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_strides_give_the_product((a, b) in operands()) {
            check(&a, &b);
        }
    }
}
