//! Convolutions by cuDNN's legacy API, which cuDNN 9 still has. Tensors are f32, and packed in the
//! order NCHW.
//!
//! The device decides once for each shape whether cuDNN computes the convolution, and with which
//! algorithm, and keeps the decision. A repeated run therefore gives the same bits, and the
//! workspace of a run is known before the run.

#![allow(unsafe_code)]

mod choice;
mod descriptors;

use self::choice::{Math, Offer, candidates, choose, is_lasting, workspace_cap};
use self::descriptors::{Descriptors, Failure, check, number, supported};
use super::blas::pointer;
use super::driver::failed;
use super::launch::Ptr;
use super::scratch::Scratch;
use crate::device::DeviceError;
use crate::device::conv_shape::{ConvShape, Kind};
use cudarc::cudnn::sys;
use cudarc::driver::CudaStream;
use rustc_hash::FxHashMap;
use std::ffi::c_int;
use std::sync::Arc;

/// Largest number of offered algorithms that are read from cuDNN. cuDNN has up to 8 algorithms,
/// each with up to 3 math modes.
const OFFERS: usize = 32;

const _: () = assert!(
    size_of::<Offer>() == size_of::<sys::cudnnConvolutionFwdAlgoPerf_t>()
        && size_of::<Offer>() == size_of::<sys::cudnnConvolutionBwdDataAlgoPerf_t>()
        && size_of::<Offer>() == size_of::<sys::cudnnConvolutionBwdFilterAlgoPerf_t>()
);

/// A convolution or a gradient of a convolution that cuDNN may compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Task {
    /// Whether to compute the convolution or one of its gradients.
    pub kind: Kind,
    /// Sizes of the convolution.
    pub shape: ConvShape,
    /// Whether both inputs begin at multiples of 16 bytes, which cuDNN may require.
    pub aligned: bool,
}

/// Addresses of the operands of a task. The inputs are in the order in which [`Kind`] names them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    /// Addresses of the two inputs.
    pub inputs: [Ptr; 2],
    /// Address of the result.
    pub result: Ptr,
}

/// An algorithm of cuDNN. cuDNN has a separate enum for each kind of task.
#[derive(Clone, Copy, Debug)]
enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    GradInput(sys::cudnnConvolutionBwdDataAlgo_t),
    GradWeight(sys::cudnnConvolutionBwdFilterAlgo_t),
}

impl Algorithm {
    /// Algorithm that has the number `number` in cuDNN; `None` if the Rust bindings do not have the
    /// number.
    fn of(kind: Kind, number: u32) -> Option<Self> {
        use sys::cudnnConvolutionBwdDataAlgo_t::*;
        use sys::cudnnConvolutionBwdFilterAlgo_t::*;
        use sys::cudnnConvolutionFwdAlgo_t::*;
        let forward = [
            CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
            CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
            CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
            CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
            CUDNN_CONVOLUTION_FWD_ALGO_FFT,
            CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
            CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
            CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
        ];
        let grad_input = [
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
            CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
        ];
        let grad_weight = [
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED,
            CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING,
        ];
        let number = number as usize;
        match kind {
            Kind::Forward => forward.get(number).copied().map(Self::Forward),
            Kind::GradInput => grad_input.get(number).copied().map(Self::GradInput),
            Kind::GradWeight => grad_weight.get(number).copied().map(Self::GradWeight),
        }
    }
}

/// cuDNN's algorithm for a task, with its descriptors and workspace.
struct Plan {
    descriptors: Descriptors,
    algorithm: Algorithm,
    /// Bytes of workspace.
    bytes: usize,
    /// Whether the plan has run at least once. A plan that has run is never replaced, because
    /// another algorithm would give other bits.
    has_run: bool,
}

/// A cuDNN handle for one stream, and the plans of all tasks so far.
pub(crate) struct Dnn {
    stream: Arc<CudaStream>,
    handle: sys::cudnnHandle_t,
    tf32: bool,
    /// Maps a task to its plan. The first call of [`Dnn::workspace`] or [`Dnn::takes`] for the task
    /// makes the plan. The plan is `None` if cuDNN does not run the task. An error stays in the map
    /// until [`Dnn::takes`] has returned it.
    plans: FxHashMap<Task, Result<Option<Plan>, DeviceError>>,
}

// SAFETY: cuDNN allows any thread to use handles and descriptors, but only one thread at a time.
// `&mut self` guarantees that only one thread uses the handle and the descriptors.
unsafe impl Send for Dnn {}

impl Dnn {
    /// Opens a handle in the current context.
    pub(super) fn open(stream: Arc<CudaStream>, tf32: bool) -> Result<Self, DeviceError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: cuDNN writes the handle to `handle`, which outlives the call.
        check("starting", unsafe { sys::cudnnCreate(&raw mut handle) })?;
        let dnn = Self { stream, handle, tf32, plans: FxHashMap::default() };
        // SAFETY: the handle was just made, and `dnn.stream` keeps the stream alive as long as the
        // handle. A stream of the driver API and a stream of the runtime API are pointers of one
        // type.
        let set = unsafe { sys::cudnnSetStream(handle, dnn.stream.cu_stream().cast()) };
        check("starting", set)?;
        Ok(dnn)
    }

    /// Bytes of workspace of a task. `otherwise` is the number of bytes that the task needs without
    /// cuDNN. Returns `None` if cuDNN does not run the task. Any thread may call this function.
    ///
    /// # Errors
    /// Fails if cuDNN fails for a temporary reason. The `Dnn` keeps the error until [`Self::takes`] has
    /// returned it.
    pub(crate) fn workspace(
        &mut self,
        task: &Task,
        otherwise: u64,
    ) -> Result<Option<u64>, DeviceError> {
        if !self.plans.contains_key(task) {
            let plan =
                supported(self.plan(task, otherwise)).map(Option::flatten).map_err(|error| {
                    DeviceError::new(format!(
                        "{error} (for {task:?}; turn cuDNN off with Options::cudnn(false))"
                    ))
                });
            self.plans.insert(*task, plan);
        }
        let plan = self.plans[task].as_ref().map_err(DeviceError::clone)?;
        Ok(plan.as_ref().map(|plan| plan.bytes as u64))
    }

    /// Whether cuDNN runs a task. `otherwise` is the number of bytes of workspace that the task
    /// needs without cuDNN.
    ///
    /// # Errors
    /// Fails if cuDNN failed for a temporary reason. The next call tries again to make a plan.
    pub(crate) fn takes(&mut self, task: &Task, otherwise: u64) -> Result<bool, DeviceError> {
        let workspace = self.workspace(task, otherwise);
        if workspace.is_err() {
            self.plans.remove(task);
        }
        Ok(workspace?.is_some())
    }

    /// Runs a task for which [`Dnn::takes`] returned `true`. Returns `false` if cuDNN refuses the
    /// task although cuDNN had offered the algorithm. After a refusal, cuDNN is never used for the
    /// task again.
    ///
    /// # Safety
    /// The caller guarantees that the operands at the addresses have the sizes of the task, and are
    /// operands of the current run. The scratch must be the workspace of the current run.
    pub(crate) unsafe fn run(
        &mut self,
        task: &Task,
        Addresses { inputs: [a, b], result }: Addresses,
        mut scratch: Scratch,
    ) -> Result<bool, DeviceError> {
        let Some(Ok(Some(plan))) = self.plans.get_mut(task) else {
            unreachable!("only tasks that are taken are run");
        };
        let workspace = scratch.take(plan.bytes as u64)?;
        let (Descriptors { x, weight, y, conv }, bytes) = (&plan.descriptors, plan.bytes);
        let (one, zero) = (1.0f32, 0.0f32);
        let (one, zero) = ((&raw const one).cast(), (&raw const zero).cast());
        let (a, b, result) = (pointer(a), pointer(b), pointer(result));
        let workspace = pointer(workspace);
        // SAFETY: the caller guarantees that the operands have as many elements as the descriptors
        // say, and that the scratch is the run's workspace. `take` returned `bytes` bytes of the
        // scratch. cuDNN reads `one` and `zero` before the call returns.
        let status = unsafe {
            match plan.algorithm {
                Algorithm::Forward(algorithm) => sys::cudnnConvolutionForward(
                    self.handle,
                    one,
                    *x,
                    a,
                    *weight,
                    b,
                    *conv,
                    algorithm,
                    workspace,
                    bytes,
                    zero,
                    *y,
                    result,
                ),
                Algorithm::GradInput(algorithm) => sys::cudnnConvolutionBackwardData(
                    self.handle,
                    one,
                    *weight,
                    b,
                    *y,
                    a,
                    *conv,
                    algorithm,
                    workspace,
                    bytes,
                    zero,
                    *x,
                    result,
                ),
                Algorithm::GradWeight(algorithm) => sys::cudnnConvolutionBackwardFilter(
                    self.handle,
                    one,
                    *x,
                    a,
                    *y,
                    b,
                    *conv,
                    algorithm,
                    workspace,
                    bytes,
                    zero,
                    *weight,
                    result,
                ),
            }
        };
        let Err(failure) = check(format_args!("{task:?} by {:?}", plan.algorithm), status) else {
            plan.has_run = true;
            return Ok(true);
        };
        // The task may run without cuDNN from now on only if the refusal is permanent and the plan
        // has never run. If the plan has run, another method would give other bits.
        let error = DeviceError::from(failure);
        if plan.has_run || !is_lasting(number(status)) {
            return Err(error);
        }
        tracing::warn!(target: "remat", %error, "cuDNN refused an algorithm that it had offered; the task runs \
            without cuDNN");
        self.plans.insert(*task, Ok(None));
        Ok(false)
    }

    /// Chooses how to run a task; `None` if cuDNN has no usable algorithm.
    fn plan(&self, task: &Task, otherwise: u64) -> Result<Option<Plan>, Failure> {
        let bound = self.stream.context().bind_to_thread();
        bound.map_err(|error| failed("changing threads", error))?;
        let descriptors = Descriptors::new(&task.shape)?;
        descriptors.set_math(Math::wanted(self.tf32))?;
        let mut room = [Offer::default(); OFFERS];
        let offers = self.offers(task.kind, &descriptors, &mut room)?;
        let offered = candidates(task.kind, offers, self.tf32).map_err(|status| {
            DeviceError::new(format!("cudnn: an offered algorithm has status {status}"))
        })?;
        let mut usable = Vec::new();
        for mut candidate in offered {
            let Some(algorithm) = Algorithm::of(task.kind, candidate.algorithm) else { continue };
            // The workspace depends on the math mode, so query the workspace with the mode that
            // will be used.
            let set = descriptors.set_math(candidate.math);
            if let Some(bytes) = supported(set.and_then(|()| self.bytes(algorithm, &descriptors)))?
            {
                candidate.bytes = bytes;
                usable.push(candidate);
            }
        }
        let shape = &task.shape;
        let elements = shape.input_len() + shape.weight_len() + shape.output_len();
        let cap = workspace_cap(elements * size_of::<f32>());
        let otherwise = usize::try_from(otherwise).unwrap_or(usize::MAX);
        let Some(chosen) = choose(&usable, cap, otherwise) else { return Ok(None) };
        descriptors.set_math(chosen.math)?;
        let algorithm = Algorithm::of(task.kind, chosen.algorithm);
        Ok(algorithm.map(|algorithm| Plan {
            descriptors,
            algorithm,
            bytes: chosen.bytes,
            has_run: false,
        }))
    }

    /// cuDNN's offers for a task, in the order of cuDNN's estimate of their speed, fastest first.
    fn offers<'a>(
        &self,
        kind: Kind,
        Descriptors { x, weight, y, conv }: &Descriptors,
        room: &'a mut [Offer; OFFERS],
    ) -> Result<&'a [Offer], Failure> {
        let mut count = 0;
        let (most, found, list) = (OFFERS as c_int, &raw mut count, room.as_mut_ptr());
        let handle = self.handle;
        // SAFETY: `self` and `Descriptors::new` guarantee a valid handle and valid descriptors.
        // cuDNN writes the number of offers, and at most `most` offers to `room`, which is large
        // enough. The assertion above guarantees that an `Offer` has the size of cuDNN's record.
        let status = unsafe {
            match kind {
                Kind::Forward => sys::cudnnGetConvolutionForwardAlgorithm_v7(
                    handle,
                    *x,
                    *weight,
                    *conv,
                    *y,
                    most,
                    found,
                    list.cast(),
                ),
                Kind::GradInput => sys::cudnnGetConvolutionBackwardDataAlgorithm_v7(
                    handle,
                    *weight,
                    *y,
                    *conv,
                    *x,
                    most,
                    found,
                    list.cast(),
                ),
                Kind::GradWeight => sys::cudnnGetConvolutionBackwardFilterAlgorithm_v7(
                    handle,
                    *x,
                    *y,
                    *conv,
                    *weight,
                    most,
                    found,
                    list.cast(),
                ),
            }
        };
        check("asking for algorithms", status)?;
        Ok(&room[..usize::try_from(count).unwrap_or(0).min(OFFERS)])
    }

    /// Bytes of workspace of an algorithm, for the current settings of the descriptors.
    fn bytes(
        &self,
        algorithm: Algorithm,
        Descriptors { x, weight, y, conv }: &Descriptors,
    ) -> Result<usize, Failure> {
        let mut bytes = 0;
        let (handle, bytes_to) = (self.handle, &raw mut bytes);
        // SAFETY: `self` and `Descriptors::new` guarantee a valid handle and valid descriptors.
        // cuDNN writes one number to `bytes`, which outlives the call.
        let status = unsafe {
            match algorithm {
                Algorithm::Forward(algorithm) => sys::cudnnGetConvolutionForwardWorkspaceSize(
                    handle, *x, *weight, *conv, *y, algorithm, bytes_to,
                ),
                Algorithm::GradInput(algorithm) => {
                    sys::cudnnGetConvolutionBackwardDataWorkspaceSize(
                        handle, *weight, *y, *conv, *x, algorithm, bytes_to,
                    )
                }
                Algorithm::GradWeight(algorithm) => {
                    sys::cudnnGetConvolutionBackwardFilterWorkspaceSize(
                        handle, *x, *y, *conv, *weight, algorithm, bytes_to,
                    )
                }
            }
        };
        check("asking for a workspace", status)?;
        Ok(bytes)
    }
}

impl Drop for Dnn {
    fn drop(&mut self) {
        self.plans.clear();
        // SAFETY: the handle was made in `open` and is not used again. cuDNN waits for running
        // work.
        let _ = unsafe { sys::cudnnDestroy(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::device::cuda::{Context, Cuda, Options};
    use crate::device::{Call, Device as _, Place};
    use crate::layout::{DType, Layout};
    use crate::ops::{Conv2d, Op};

    /// This test needs a device and cuDNN.
    #[test]
    fn a_plan_that_failed_is_reported_and_then_made_again() {
        // Other tests do not see the plans of this GPU.
        let context = match Context::open(Options::default()) {
            Ok(context) => context,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let mut device = Cuda::<Op>::of(&context, 64 << 20).unwrap();
        if device.gpu.libraries().dnn().is_none() {
            println!("skipped: no cuDNN");
            return;
        }
        let op = Op::from(Conv2d::new([1, 1], [1, 1]));
        let [x, weight, y] = [[2, 4, 8, 8], [4, 4, 3, 3], [2, 4, 8, 8]]
            .map(|shape| Layout::contiguous(DType::F32, shape));
        let (n, c_in, h, w, c_out, kh, kw) = (2, 4, 8, 8, 4, 3, 3);
        let (stride, padding, dilation, groups) = ([1, 1], [1, 1], [1, 1], 1);
        let shape = ConvShape { n, c_in, h, w, c_out, kh, kw, stride, padding, dilation, groups };
        let task = Task { kind: Kind::Forward, shape, aligned: true };
        let bytes = |device: &Cuda<Op>| device.workspace(&op, &[x, weight], &[y]);
        let at = |i: u64, layout| Place { storage: i << 20, layout };
        let run = |device: &mut Cuda<Op>| {
            let (inputs, outputs) = ([at(0, x), at(1, weight)], [at(2, y)]);
            let start = 3 << 20;
            let workspace = start..start + bytes(device);
            let call = Call {
                op: &op,
                inputs: &inputs,
                outputs: &outputs,
                flops: 0.0,
                workspace,
                timed: false,
            };
            device.execute(call)
        };
        let without = Options { cudnn: false, ..Options::default() };
        let by_columns = bytes(&Cuda::new(0, without).unwrap());
        let before = bytes(&device);
        let libraries = Arc::clone(device.gpu.libraries());
        let by_cudnn = libraries.dnn().unwrap().workspace(&task, by_columns).unwrap();
        assert_eq!(before, by_cudnn.unwrap_or(by_columns));
        let set = |plan| {
            let replaced = libraries.dnn().unwrap().plans.insert(task, plan);
            assert!(replaced.is_some(), "the op has another task");
        };
        set(Err(DeviceError::new("no memory just now")));
        assert_eq!(bytes(&device), 0);
        assert_eq!(bytes(&device), 0);
        assert_eq!(run(&mut device).unwrap_err().to_string(), "no memory just now");
        assert_eq!(bytes(&device), before);
        run(&mut device).unwrap();
        // If cuDNN refuses a task permanently, the kernels of `columns.rs` compute the task from
        // then on. In this test, cuDNN refuses because it has no algorithm with the given number.
        let refused = |has_run| {
            let direct = sys::cudnnConvolutionFwdAlgo_t::CUDNN_CONVOLUTION_FWD_ALGO_DIRECT;
            let descriptors = Descriptors::new(&shape).ok().unwrap();
            Plan { descriptors, algorithm: Algorithm::Forward(direct), bytes: 0, has_run }
        };
        set(Ok(Some(refused(false))));
        assert_eq!(bytes(&device), 0);
        assert!(run(&mut device).unwrap_err().is_out_of_memory(), "`by_columns` bytes are needed");
        assert_eq!(bytes(&device), by_columns);
        run(&mut device).unwrap();
        // The engine gives the larger workspace to the op, whose first run then does not fail.
        set(Ok(Some(refused(false))));
        let builder = Runtime::builder().budget("16MiB");
        let runtime = builder.device(move |bytes| Cuda::<Op>::of(&context, bytes)).unwrap();
        let [x, weight] = [x, weight].map(|layout| runtime.full(layout.shape(), 1.0).unwrap());
        let y = x.conv2d(&weight, Conv2d::new([1, 1], [1, 1])).unwrap();
        let found: Vec<f32> = y.to_vec().unwrap();
        assert_eq!(found[..2], [16.0, 24.0], "4 channels, windows of 4 and of 6 pixels");
        assert_eq!(bytes(&device), by_columns);
        // A plan that has run is not replaced, because the bits would change.
        set(Ok(Some(refused(true))));
        assert!(run(&mut device).is_err());
    }

    /// The number of an algorithm is its index in the list.
    #[test]
    fn algorithms_have_the_numbers_that_cudnn_gives_them() {
        for (kind, count) in [(Kind::Forward, 8), (Kind::GradInput, 6), (Kind::GradWeight, 7)] {
            for number in 0..count {
                let found = match Algorithm::of(kind, number).unwrap() {
                    Algorithm::Forward(algorithm) => algorithm as u32,
                    Algorithm::GradInput(algorithm) => algorithm as u32,
                    Algorithm::GradWeight(algorithm) => algorithm as u32,
                };
                assert_eq!(found, number, "{kind:?}");
            }
            assert!(Algorithm::of(kind, count).is_none());
        }
    }
}
