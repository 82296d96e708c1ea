//! Tests for every device that runs the crate's ops. The tests put tensors on the device, run ops,
//! and read the results back; they use no other function of the device. [`on_device`] makes the
//! tests for one device.

mod absurd;
#[cfg(feature = "cuda")]
mod beside_cpu;
mod bf16;
mod bytes;
mod elementwise;
mod index;
mod norm;
mod pool;
pub(crate) mod product;
mod random;
mod reduce;
mod resize;
pub(crate) mod samples;
mod softmax;
mod types;
mod update;
mod zero;

use crate::device::{Call, Device, DeviceError, Place};
use crate::host::{HostData, HostTensor};
use crate::layout::{DType, Dims, Layout};
use crate::op::{Operation as _, Outputs};
use crate::ops::Op;
use crate::ops::samples::{Operand, Sample, Values, layouts};
use remat_rng::SplitMix64;

#[cfg(feature = "cuda")]
use crate::device::cuda::Cuda;

/// A test rig: a device whose memory is used for one op at a time.
pub(crate) struct Rig<D> {
    device: D,
    /// Offset of the first tensor.
    front: u64,
    /// Value of all elements of outputs and workspaces before a run.
    junk: f32,
    /// Divisor of the number of samples: tests over all samples run one of every `parts` samples of
    /// each op; see [`samples::tasks`].
    pub(crate) parts: usize,
    /// Limit of the bytes of a sample: tests over all samples leave out larger ones.
    most: u64,
}

/// Bytes of the rig's device.
pub(crate) const BYTES: u64 = 96 << 20;

/// A tensor on the host, and the layout in which an op sees the tensor.
#[derive(Clone, Debug)]
pub(crate) struct Arg {
    host: HostTensor,
    layout: Layout,
}

impl<D: Device<Op = Op, Host = HostTensor>> Rig<D> {
    pub(crate) fn new(device: D) -> Self {
        assert_eq!(device.memory().bytes(), BYTES);
        Self { device, front: 256, junk: f32::NAN, parts: 1, most: BYTES }
    }

    /// Moves the first tensor to another offset.
    #[cfg(feature = "cuda")]
    pub(crate) fn begin_at(&mut self, front: u64) {
        self.front = front.next_multiple_of(256);
    }

    /// Whether the operands and outputs of a sample fit into the device's memory, and are not larger
    /// than wanted.
    fn holds(&self, sample: &Sample) -> bool {
        let inputs = sample.layouts();
        let outputs = layouts(&inputs, &outputs_of(sample));
        let workspace = self.device.workspace(&sample.op, &inputs, &outputs);
        let stored = sample.operands.iter().map(|operand| &operand.stored);
        let bytes = stored.chain(&outputs).map(Layout::bytes).chain([workspace]);
        // In addition to its bytes, each tensor needs bytes for a guard, for alignment, and perhaps
        // for one more element.
        self.front + bytes.map(|bytes| bytes + 512).sum::<u64>() <= self.most
    }

    /// Runs `op`. Before the run, all elements of fresh outputs and of the workspace are `junk`.
    /// Behind each operand lies a guard, a fixed pattern that the run must not change.
    pub(crate) fn try_run(
        &mut self,
        op: &Op,
        args: &[Arg],
    ) -> Result<Vec<HostTensor>, DeviceError> {
        let mut front = self.front;
        let guard = HostTensor::i32([16], (0..16).map(|i| i ^ 0x55AA_33CC).collect()).unwrap();
        let mut guards = Vec::new();
        let mut place = |bytes: u64| {
            let storage = front;
            let behind = storage + bytes.next_multiple_of(4);
            guards.push(Place { storage: behind, layout: guard.layout() });
            front = (behind + guard.layout().bytes()).next_multiple_of(256);
            assert!(front <= BYTES, "the rig is too small for {op:?}");
            storage
        };
        let mut inputs = Vec::new();
        for arg in args {
            let layout = arg.host.layout();
            let storage = place(layout.bytes());
            self.device.write(&arg.host, Place { storage, layout })?;
            inputs.push(Place { storage, layout: arg.layout });
        }
        let layouts: Vec<_> = inputs.iter().map(|place| place.layout).collect();
        let inferred = op.infer(&layouts).unwrap_or_else(|e| panic!("{e}"));
        let (targets, fresh) =
            inferred.written().unwrap_or_else(|| panic!("{op:?} has nothing to run"));
        let mut outputs = inputs[..targets].to_vec();
        for &layout in fresh {
            let storage = place(layout.bytes());
            self.device.write(&full_of(self.junk, layout), Place { storage, layout })?;
            outputs.push(Place { storage, layout });
        }
        let layouts_out: Vec<_> = outputs.iter().map(|place| place.layout).collect();
        let bytes = self.device.workspace(op, &layouts, &layouts_out);
        let scratch = place(bytes);
        let layout = Layout::contiguous(DType::F32, [bytes as usize / 4]);
        self.device.write(&full_of(self.junk, layout), Place { storage: scratch, layout })?;
        for &place in &guards {
            self.device.write(&guard, place)?;
        }
        let workspace = scratch..scratch + bytes;
        let call =
            Call { op, inputs: &inputs, outputs: &outputs, flops: 0.0, workspace, timed: true };
        self.device.execute(call)?;
        let outputs = outputs.into_iter().map(|place| self.device.read(place)).collect();
        for place in guards {
            let behind = self.device.read(place)?;
            assert_eq!(behind.as_i32(), guard.as_i32(), "{op:?} wrote behind {place:?}");
        }
        outputs
    }

    pub(crate) fn run(&mut self, op: &Op, args: &[Arg]) -> Vec<HostTensor> {
        self.try_run(op, args).unwrap_or_else(|e| panic!("{op:?}: {e}"))
    }

    /// Runs an op with one float output, and compares the output with the expected elements.
    fn expect(&mut self, op: &Op, args: &[Arg], shape: &[usize], expected: &[f64], tolerance: f64) {
        let outputs = self.run(op, args);
        close(&outputs[0], shape, expected, tolerance, &format!("{op:?} of {args:?}"));
    }
}

#[cfg(feature = "cuda")]
impl Rig<Cuda<Op>> {
    /// Makes a rig for a GPU. A pretend GPU (an emulation on the CPU) takes minutes for work that a
    /// real GPU does in seconds, so tests on a pretend GPU skip samples, and all large ones. They
    /// skip fewer if `REMAT_ALL_CELLS` is set, as `.ci/release` does.
    pub(crate) fn of_gpu(device: Cuda<Op>) -> Self {
        let is_pretend = device.context().description().unwrap().name.starts_with("Pretend GPU");
        let (parts, most) = match std::env::var_os("REMAT_ALL_CELLS") {
            _ if !is_pretend => (1, BYTES),
            Some(_) => (4, BYTES),
            None => (6, 5 << 20),
        };
        Self { parts, most, ..Self::new(device) }
    }
}

fn outputs_of(sample: &Sample) -> Outputs {
    sample.op.infer(&sample.layouts()).unwrap_or_else(|e| panic!("{e}: {sample:?}"))
}

/// Whether the sample's op has a kernel: views have none.
fn is_run(sample: &Sample) -> bool {
    outputs_of(sample).written().is_some()
}

fn full_of(junk: f32, layout: Layout) -> HostTensor {
    let bits = match layout.dtype() {
        DType::Bool => [1; 4],
        _ => junk.to_bits().to_ne_bytes(),
    };
    let fill = |bytes: &mut [u8]| {
        // Copy four bytes at a time. A loop over single bytes took half the time of a test over all
        // samples.
        bytes.chunks_mut(4).for_each(|bytes| bytes.copy_from_slice(&bits[..bytes.len()]));
    };
    HostTensor::written(layout.dtype(), *layout.shape(), fill).unwrap()
}

/// Fails unless `found` is close to `expected`. The tolerance is relative for elements above 1, and
/// absolute for smaller elements.
fn close(found: &HostTensor, shape: &[usize], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(**found.shape(), *shape, "{what}");
    let found = found.as_f32().expect("floats");
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let found = f64::from(found);
        // No finite number is near infinity.
        let near =
            expected.is_finite() && (found - expected).abs() <= tolerance * expected.abs().max(1.0);
        let same = found == expected || (found.is_nan() && expected.is_nan());
        assert!(near || same, "element {i} is {found}, expected {expected}: {what}");
    }
}

/// Fails unless `found` is close to `expected`. The tolerance is relative to the largest element,
/// or to 1 if all elements are smaller. The function is meant for sums of products, whose rounding
/// errors grow with the size of the terms, even if the sum is small.
pub(crate) fn close_sums(found: &HostTensor, expected: &HostTensor, tolerance: f32, what: &str) {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let (found, expected) = (found.as_f32().expect("floats"), expected.as_f32().expect("floats"));
    let largest = expected.iter().fold(1.0f32, |largest, x| largest.max(x.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        // The comparison is false for NaN, so a NaN fails the test.
        let near = (found - expected).abs() <= tolerance * largest;
        assert!(near, "element {i} is {found}, expected {expected}: {what}");
    }
}

impl Arg {
    pub(crate) fn f32(shape: impl Into<Dims>, data: Vec<f32>) -> Self {
        HostTensor::f32(shape, data).unwrap().into()
    }

    pub(crate) fn i32(shape: impl Into<Dims>, data: Vec<i32>) -> Self {
        HostTensor::i32(shape, data).unwrap().into()
    }

    /// Replaces the layout that the op sees by the result of `look`.
    pub(crate) fn view(mut self, look: impl FnOnce(&Layout) -> Option<Layout>) -> Self {
        self.layout = look(&self.layout).expect("a view");
        self
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns a copy of the tensor whose offset is larger by one element. If the tensor is a view
    /// of a part of its storage, returns it unchanged.
    fn one_further(&self) -> Self {
        if self.layout != self.host.layout() {
            return self.clone();
        }
        let shape = *self.layout.shape();
        let more = match self.host.data() {
            HostData::F32(data) => Self::f32([data.len() + 1], [&[f32::NAN], &data[..]].concat()),
            HostData::I32(data) => Self::i32([data.len() + 1], [&[-1], &data[..]].concat()),
            _ => panic!("a sample of {}", self.layout),
        };
        more.view(|l| l.slice(0, 1, shape.elements())?.reshape(&shape))
    }

    fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// All elements in row-major order. The function computes the storage index of each element
    /// from the strides.
    fn elements(&self) -> Vec<f64> {
        let mut found = Vec::new();
        each_index(self.shape(), |index| {
            let at: usize =
                index.iter().zip(self.layout.strides().iter()).map(|(i, s)| i * s).sum();
            let at = at + self.layout.offset();
            found.push(match self.host.data() {
                HostData::F32(data) => f64::from(data[at]),
                HostData::I32(data) => f64::from(data[at]),
                _ => panic!("numbers of {}", self.layout),
            });
        });
        found
    }
}

impl From<HostTensor> for Arg {
    fn from(host: HostTensor) -> Self {
        Self { layout: host.layout(), host }
    }
}

/// Calls `body` with each index of a tensor, in row-major order.
fn each_index(shape: &[usize], mut body: impl FnMut(&[usize])) {
    let mut index = vec![0; shape.len()];
    for i in 0..shape.iter().product() {
        let mut left: usize = i;
        for axis in (0..shape.len()).rev() {
            index[axis] = left % shape[axis];
            left /= shape[axis];
        }
        body(&index);
    }
}

/// Source of random numbers that are the same in every run of the tests.
pub(crate) struct Rng(SplitMix64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next()
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A float between -2 and 2.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 22) as f32 - 2.0
    }

    pub(crate) fn floats(&mut self, shape: impl Into<Dims>) -> Arg {
        let shape = shape.into();
        Arg::f32(shape, (0..shape.elements()).map(|_| self.float()).collect())
    }

    /// Positive floats, between 0.25 and 4.25.
    fn positive(&mut self, shape: impl Into<Dims>) -> Arg {
        let shape = shape.into();
        Arg::f32(shape, (0..shape.elements()).map(|_| self.float() + 2.25).collect())
    }

    /// Floats between 0.05 and 0.95.
    fn shares(&mut self, shape: impl Into<Dims>) -> Arg {
        let shape = shape.into();
        Arg::f32(shape, (0..shape.elements()).map(|_| 0.5 + 0.225 * self.float()).collect())
    }

    pub(crate) fn numbers(&mut self, shape: impl Into<Dims>, below: usize) -> Arg {
        let shape = shape.into();
        Arg::i32(shape, (0..shape.elements()).map(|_| self.below(below) as i32).collect())
    }

    /// Makes random elements for an operand.
    fn arg(&mut self, operand: &Operand) -> Arg {
        let shape = *operand.stored.shape();
        let stored = match operand.values {
            Values::Real => self.floats(shape),
            Values::Positive => self.positive(shape),
            Values::Share => self.shares(shape),
            values => {
                let integer = |i| values.integer(i, self.next() as usize >> 1).expect("integers");
                Arg::i32(shape, (0..shape.elements()).map(integer).collect())
            }
        };
        Arg { layout: operand.seen, ..stored }
    }

    /// Makes random elements for all operands of a sample.
    fn args(&mut self, sample: &Sample) -> Vec<Arg> {
        sample.operands.iter().map(|operand| self.arg(operand)).collect()
    }

    fn shape(&mut self, max_rank: usize, max_size: usize) -> Dims {
        let rank = self.below(max_rank + 1);
        Dims::new(&(0..rank).map(|_| self.size(max_size)).collect::<Vec<_>>())
    }

    /// A size: 0 in one of ten cases, else from 1 to `max`.
    fn size(&mut self, max: usize) -> usize {
        if self.below(10) == 0 { 0 } else { 1 + self.below(max) }
    }

    fn axes(&mut self, rank: usize) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..rank).collect();
        for i in (1..rank).rev() {
            axes.swap(i, self.below(i + 1));
        }
        axes
    }

    /// Floats of shape `shape` in a random arrangement: packed, permuted, a part of a larger
    /// tensor, or repeated.
    fn arranged(&mut self, shape: &Dims) -> Arg {
        let axes = self.axes(shape.len());
        let stored = Dims::from_fn(shape.len(), |i| shape[axes[i]]);
        let mut back = axes.clone();
        axes.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
        match self.below(4) {
            0 => self.floats(*shape),
            1 => self.floats(stored).view(|l| l.permute(&back)),
            2 if !shape.is_empty() => {
                let (axis, before, after) = (self.below(shape.len()), self.below(3), self.below(3));
                let size = stored[axis];
                let more = stored.with(axis, before + size + after);
                self.floats(more).view(|l| l.slice(axis, before, size)?.permute(&back))
            }
            _ => {
                let one_or = |axis: usize| if self.below(2) == 0 { 1 } else { shape[axis] };
                let fewer = Dims::from_fn(shape.len(), one_or);
                self.floats(fewer).view(|l| l.broadcast_to(shape))
            }
        }
    }
}

/// Makes a test from each conformance function, on the rig that `$make` returns. If `$make` returns
/// `None`, the test is skipped.
macro_rules! on_device {
    ($device:ident, $make:expr) => {
        on_device! {$device, $make, [
        bf16::ops_on_half_the_bytes,
        bf16::rounding,
        bytes::values_go_there_and_back,
        bytes::views_are_read_packed,
        bytes::reads_that_do_not_wait,
        bytes::moves_may_overlap,
        elementwise::functions_of_one_element,
        elementwise::functions_of_two_elements,
        elementwise::nan_and_infinity,
        elementwise::choices,
        elementwise::large_broadcasts,
        reduce::any_axes_and_strides,
        reduce::large_reductions,
        reduce::places_of_extremes,
        reduce::running_sums,
        reduce::nothing_to_join,
        softmax::rows_and_their_gradients,
        softmax::large_logits_do_not_overflow,
        softmax::cross_entropy_and_its_gradient,
        norm::statistics_and_result,
        norm::gradients,
        norm::constant_channels,
        pool::maxima,
        pool::means,
        pool::places_outside_the_image_are_refused,
        product::matrices_of_any_strides,
        product::convolutions,
        index::taking_and_adding_entries,
        index::numbers_out_of_range_are_refused,
        index::joining_padding_and_packing,
        resize::resampling_and_its_transpose,
        random::draws_are_those_of_the_generator,
        random::elements_do_not_depend_on_the_shape,
        random::moments,
        types::values_and_views_are_read_as_they_are,
        types::any_elements_are_packed_padded_and_joined,
        types::much_of_any_type_is_moved,
        types::ranks_are_no_matter_where_loops_are_few,
        types::more_loops_than_there_are_are_refused,
        update::in_place_updates,
        zero::any_op_of_few_elements_or_none,
        zero::numbers_into_empty_axes_are_refused,
        absurd::workspaces_of_any_size,
        absurd::windows_far_apart,
        samples::views_overlaps_and_misplaced_operands_are_refused,
        samples::same_bits_again,
        samples::operands_may_begin_anywhere,
    ]}
    };
    ($device:ident, $make:expr, [$($family:ident::$body:ident),* $(,)?]) => {
        mod $device {
            $(#[test]
            fn $body() {
                if let Some(mut rig) = $make {
                    super::$family::$body(&mut rig);
                }
            })*
        }
    };
}

on_device!(cpu, {
    let rig = super::Rig::new(crate::device::cpu::Cpu::new(super::BYTES, Some(2)).unwrap());
    Some(super::Rig { parts: 2, ..rig })
});
#[cfg(feature = "cuda")]
on_device!(cuda, crate::device::cuda::for_tests(super::BYTES).map(super::Rig::of_gpu));
#[cfg(feature = "cuda")]
on_device!(
    cuda_beside_cpu,
    crate::device::cuda::for_tests(super::BYTES).map(super::Rig::of_gpu),
    [beside_cpu::results_are_the_same_but_for_rounding]
);
