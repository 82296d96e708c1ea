//! Convolutions by cuDNN's legacy interface, which version 9 still has: packed NCHW, f32.

#![allow(unsafe_code)]

use super::choice::{Math, Offer, candidates, choose};
use super::descriptors::{Descriptors, check};
use super::{Kind, Operands, Task};
use crate::device::DeviceError;
use crate::device::cuda::blas::pointer;
use crate::device::cuda::scratch::Scratch;
use cudarc::cudnn::sys;
use cudarc::driver::CudaStream;
use rustc_hash::FxHashMap;
use std::ffi::c_int;
use std::sync::Arc;

/// Most offers that are looked at: cuDNN has up to 8 algorithms, each in up to 3 ways.
const OFFERS: usize = 32;

const _: () = assert!(
    size_of::<Offer>() == size_of::<sys::cudnnConvolutionFwdAlgoPerf_t>()
        && size_of::<Offer>() == size_of::<sys::cudnnConvolutionBwdDataAlgoPerf_t>()
        && size_of::<Offer>() == size_of::<sys::cudnnConvolutionBwdFilterAlgoPerf_t>()
);

/// An algorithm, by what it computes.
#[derive(Clone, Copy, Debug)]
enum Algorithm {
    Forward(sys::cudnnConvolutionFwdAlgo_t),
    GradInput(sys::cudnnConvolutionBwdDataAlgo_t),
    GradWeight(sys::cudnnConvolutionBwdFilterAlgo_t),
}

impl Algorithm {
    /// The algorithm with cuDNN's number; `None` if it is newer than this.
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

/// How a task is run.
struct Plan {
    descriptors: Descriptors,
    algorithm: Algorithm,
    /// Its workspace.
    bytes: usize,
}

/// cuDNN, for one stream, and the plans of the shapes it was asked for.
pub(in crate::device::cuda) struct Dnn {
    stream: Arc<CudaStream>,
    handle: sys::cudnnHandle_t,
    tf32: bool,
    /// task -> how it is run, from the first time on; `None` if not by cuDNN.
    plans: FxHashMap<Task, Option<Plan>>,
}

// SAFETY: handles and descriptors may be used from any thread, by one at a time.
unsafe impl Send for Dnn {}

impl Dnn {
    /// A handle, in the context that is current.
    pub(in crate::device::cuda) fn open(
        stream: Arc<CudaStream>,
        tf32: bool,
    ) -> Result<Self, DeviceError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: writes the handle to a place that outlives the call.
        check("starting", unsafe { sys::cudnnCreate(&raw mut handle) })?;
        let dnn = Self { stream, handle, tf32, plans: FxHashMap::default() };
        // SAFETY: the handle was just made, and the stream lives as long as it. Both libraries mean the
        // same by a stream.
        let set = unsafe { sys::cudnnSetStream(handle, dnn.stream.cu_stream().cast()) };
        check("starting", set)?;
        Ok(dnn)
    }

    /// The workspace of a task; `None` if it is not run by cuDNN. From any thread.
    pub(super) fn workspace(&mut self, task: &Task) -> Option<u64> {
        if !self.plans.contains_key(task) {
            // Without a context nothing works from now on, whatever is answered here.
            self.stream.context().bind_to_thread().ok()?;
            let plan = self.plan(task).unwrap_or_else(|error| {
                tracing::debug!(target: "remat", ?task, %error, "not by cuDNN");
                None
            });
            self.plans.insert(*task, plan);
        }
        self.plans[task].as_ref().map(|plan| plan.bytes as u64)
    }

    /// Runs a task that has a workspace.
    pub(super) fn run(
        &self,
        task: &Task,
        Operands { inputs: [a, b], result }: Operands,
        mut scratch: Scratch,
    ) -> Result<(), DeviceError> {
        let plan = self.plans.get(task).and_then(Option::as_ref);
        let plan = plan.expect("only tasks that have a workspace are run");
        let workspace = scratch.take(plan.bytes as u64)?;
        let (Descriptors { x, weight, y, conv }, bytes) = (&plan.descriptors, plan.bytes);
        let (one, zero) = (1.0f32, 0.0f32);
        let (one, zero) = ((&raw const one).cast(), (&raw const zero).cast());
        let (a, b, result) = (pointer(a), pointer(b), pointer(result));
        let workspace = pointer(workspace);
        // SAFETY: the addresses are the caller's, with as many elements there as the descriptors say, and
        // so is the workspace; factors are read before this returns.
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
        check(&format!("{task:?} by {:?}", plan.algorithm), status)
    }

    /// How a task is to be run; `None` if cuDNN has no algorithm that may be used.
    fn plan(&self, task: &Task) -> Result<Option<Plan>, DeviceError> {
        let descriptors = Descriptors::new(&task.shape)?;
        descriptors.set_math(Math::wanted(self.tf32))?;
        let mut room = [Offer::default(); OFFERS];
        let offers = self.offers(task.kind, &descriptors, &mut room)?;
        let mut usable = Vec::new();
        for mut candidate in candidates(offers, self.tf32) {
            let Some(algorithm) = Algorithm::of(task.kind, candidate.algorithm) else { continue };
            // The size that counts is that of the algorithm multiplying as it will.
            descriptors.set_math(candidate.math)?;
            if let Ok(bytes) = self.bytes(algorithm, &descriptors) {
                candidate.bytes = bytes;
                usable.push(candidate);
            }
        }
        let Some(chosen) = choose(&usable) else { return Ok(None) };
        descriptors.set_math(chosen.math)?;
        let algorithm = Algorithm::of(task.kind, chosen.algorithm);
        Ok(algorithm.map(|algorithm| Plan { descriptors, algorithm, bytes: chosen.bytes }))
    }

    /// What cuDNN says of its algorithms, what it takes for the fastest first.
    fn offers<'a>(
        &self,
        kind: Kind,
        Descriptors { x, weight, y, conv }: &Descriptors,
        room: &'a mut [Offer; OFFERS],
    ) -> Result<&'a [Offer], DeviceError> {
        let mut count = 0;
        let (most, found, list) = (OFFERS as c_int, &raw mut count, room.as_mut_ptr());
        let handle = self.handle;
        // SAFETY: handle and descriptors are in order; cuDNN writes as many offers as there is room for,
        // and how many they are.
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

    /// The workspace of an algorithm, as the descriptors are now.
    fn bytes(
        &self,
        algorithm: Algorithm,
        Descriptors { x, weight, y, conv }: &Descriptors,
    ) -> Result<usize, DeviceError> {
        let mut bytes = 0;
        let (handle, bytes_to) = (self.handle, &raw mut bytes);
        // SAFETY: handle and descriptors are in order; cuDNN writes one number.
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
        // SAFETY: made in `open`, and used no more. It waits for what is still running.
        let _ = unsafe { sys::cudnnDestroy(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are positions in the lists.
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
