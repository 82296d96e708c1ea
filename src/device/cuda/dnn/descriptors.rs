//! Descriptors of a convolution for cuDNN.

#![allow(unsafe_code)]

use super::choice::{Math, is_lasting};
use crate::device::DeviceError;
use crate::device::conv_shape::ConvShape;
use cudarc::cudnn::sys;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::ptr::null_mut;

const DATA: sys::cudnnDataType_t = sys::cudnnDataType_t::CUDNN_DATA_FLOAT;
const PACKED: sys::cudnnTensorFormat_t = sys::cudnnTensorFormat_t::CUDNN_TENSOR_NCHW;

/// Reason why a call of cuDNN failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// cuDNN does not support the request, so the task must run without cuDNN.
    Unsupported(DeviceError),
    /// cuDNN fails now, because of too little memory or another temporary reason.
    Broken(DeviceError),
}

impl Failure {
    /// Makes a failure from an error and its status, which is not 0.
    const fn of(status: u32, error: DeviceError) -> Self {
        if is_lasting(status) { Self::Unsupported(error) } else { Self::Broken(error) }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::Broken(error)
    }
}

impl From<Failure> for DeviceError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unsupported(error) | Failure::Broken(error) => error,
        }
    }
}

/// Returns the result, or `None` if cuDNN does not support the request.
///
/// # Errors
/// Fails if cuDNN fails for a temporary reason.
pub(super) fn supported<T>(found: Result<T, Failure>) -> Result<Option<T>, DeviceError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Failure::Unsupported(error)) => {
            tracing::debug!(target: "remat", %error, "cuDNN does not support this task");
            Ok(None)
        }
        Err(Failure::Broken(error)) => Err(error),
    }
}

/// cuDNN's descriptors of a convolution and of its tensors.
pub(super) struct Descriptors {
    pub x: sys::cudnnTensorDescriptor_t,
    pub weight: sys::cudnnFilterDescriptor_t,
    pub y: sys::cudnnTensorDescriptor_t,
    pub conv: sys::cudnnConvolutionDescriptor_t,
}

impl Descriptors {
    /// Describes a convolution.
    ///
    /// # Errors
    /// Fails if cuDNN does not accept the sizes of the convolution, or has too little memory.
    pub(super) fn new(shape: &ConvShape) -> Result<Self, Failure> {
        let ConvShape { n, c_in, h, w, c_out, kh, kw, stride, padding, dilation, groups } = *shape;
        let [n, c_in, h, w] = ints([n, c_in, h, w])?;
        let [c_out, kh, kw, groups] = ints([c_out, kh, kw, groups])?;
        let [h_out, w_out] = ints([shape.h_out(), shape.w_out()])?;
        let [[down, right], [above, left]] = [ints(stride)?, ints(padding)?];
        let [rows_apart, columns_apart] = ints(dilation)?;
        // If an error occurs below, dropping `made` destroys the descriptors that were made before
        // the error.
        let mut made = Self { x: null_mut(), weight: null_mut(), y: null_mut(), conv: null_mut() };
        // SAFETY: cuDNN writes each descriptor to a field of `made`, which outlives the calls. Each
        // descriptor is set only after `check` has confirmed that cuDNN made it.
        unsafe {
            check("describing", sys::cudnnCreateTensorDescriptor(&raw mut made.x))?;
            check("describing", sys::cudnnCreateFilterDescriptor(&raw mut made.weight))?;
            check("describing", sys::cudnnCreateTensorDescriptor(&raw mut made.y))?;
            check("describing", sys::cudnnCreateConvolutionDescriptor(&raw mut made.conv))?;
            let Self { x, weight, y, conv } = made;
            check("x", sys::cudnnSetTensor4dDescriptor(x, PACKED, DATA, n, c_in, h, w))?;
            let taken = c_in / groups;
            let set = sys::cudnnSetFilter4dDescriptor(weight, DATA, PACKED, c_out, taken, kh, kw);
            check("weight", set)?;
            check("y", sys::cudnnSetTensor4dDescriptor(y, PACKED, DATA, n, c_out, h_out, w_out))?;
            let mode = sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION;
            let set = sys::cudnnSetConvolution2dDescriptor(
                conv,
                above,
                left,
                down,
                right,
                rows_apart,
                columns_apart,
                mode,
                DATA,
            );
            check("convolution", set)?;
            if groups > 1 {
                check("groups", sys::cudnnSetConvolutionGroupCount(conv, groups))?;
            }
        }
        Ok(made)
    }

    /// Sets the math mode of the convolution.
    pub(super) fn set_math(&self, math: Math) -> Result<(), Failure> {
        let math = match math {
            Math::Default => sys::cudnnMathType_t::CUDNN_DEFAULT_MATH,
            Math::TensorOp => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
            Math::Fma => sys::cudnnMathType_t::CUDNN_FMA_MATH,
        };
        // SAFETY: the descriptor was made in `new`, and lives as long as `self`.
        check("math", unsafe { sys::cudnnSetConvolutionMathType(self.conv, math) })
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let Self { x, weight, y, conv } = *self;
        // SAFETY: each descriptor was made in `new` or is null, and is not used again.
        unsafe {
            for tensor in [x, y].into_iter().filter(|tensor| !tensor.is_null()) {
                let _ = sys::cudnnDestroyTensorDescriptor(tensor);
            }
            if !weight.is_null() {
                let _ = sys::cudnnDestroyFilterDescriptor(weight);
            }
            if !conv.is_null() {
                let _ = sys::cudnnDestroyConvolutionDescriptor(conv);
            }
        }
    }
}

/// Converts sizes to the `int` of cuDNN; an error if a size does not fit.
fn ints<const N: usize>(sizes: [usize; N]) -> Result<[c_int; N], Failure> {
    let mut ints = [0; N];
    for (int, size) in ints.iter_mut().zip(sizes) {
        *int = c_int::try_from(size).map_err(|_| {
            let error = format!("cudnn: {size} is above {}", c_int::MAX);
            Failure::Unsupported(DeviceError::new(error))
        })?;
    }
    Ok(ints)
}

/// Number of a status.
pub(super) const fn number(status: sys::cudnnStatus_t) -> u32 {
    // SAFETY: the enum is declared as a `u32`, and `status` is a live reference. The number is read
    // without a `match`, because a newer cuDNN may return a status that the enum lacks.
    unsafe { (&raw const status).cast::<u32>().read() }
}

/// Turns a failed call of cuDNN into an error that names `what`.
pub(super) fn check(what: impl fmt::Display, status: sys::cudnnStatus_t) -> Result<(), Failure> {
    let number = number(status);
    if number == 0 {
        return Ok(());
    }
    // Ask cuDNN for the text, because a newer cuDNN may have more statuses than the enum. SAFETY:
    // the function accepts any number, and returns a text that lives as long as the library.
    let text = unsafe { sys::cudnnGetErrorString(status) };
    let text = if text.is_null() {
        "unknown".into()
    } else {
        // SAFETY: the text is not null, ends with a 0, and lives as long as the library, which is
        // never unloaded.
        unsafe { CStr::from_ptr(text) }.to_string_lossy()
    };
    let error = DeviceError::new(format!("cudnn: {what}: {text} ({number})"));
    Err(Failure::of(number, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: ConvShape = ConvShape {
        n: 2,
        c_in: 3,
        h: 8,
        w: 9,
        c_out: 4,
        kh: 3,
        kw: 2,
        stride: [2, 1],
        padding: [1, 0],
        dilation: [1, 1],
        groups: 1,
    };

    /// This test needs cuDNN, but no device.
    #[test]
    fn cudnn_sees_the_shape_that_was_described() {
        type OutputDim = unsafe extern "C" fn(
            sys::cudnnConvolutionDescriptor_t,
            sys::cudnnTensorDescriptor_t,
            sys::cudnnFilterDescriptor_t,
            *mut c_int,
            *mut c_int,
            *mut c_int,
            *mut c_int,
        ) -> sys::cudnnStatus_t;
        // SAFETY: loading cuDNN has no preconditions; `OutputDim` is the type that cuDNN declares
        // for this function.
        let output_dim = unsafe {
            sys::is_culib_present().then(|| {
                sys::culib().get::<OutputDim>(b"cudnnGetConvolution2dForwardOutputDim\0").ok()
            })
        };
        let Some(Some(output_dim)) = output_dim else {
            println!("skipped: no cuDNN, or a pretended one that tells no sizes");
            return;
        };
        let made = Descriptors::new(&SHAPE).unwrap();
        made.set_math(Math::Fma).unwrap();
        let mut size = [0; 4];
        let [n, c, h, w] = size.each_mut().map(std::ptr::from_mut);
        // SAFETY: the descriptors were just made and are alive; the four numbers are written to
        // `size`, which outlives the call.
        let status = unsafe { output_dim(made.conv, made.x, made.weight, n, c, h, w) };
        check("asking for the size", status).unwrap();
        let [n, c_out] = [SHAPE.n, SHAPE.c_out].map(|size| size as c_int);
        assert_eq!(size, [n, c_out, SHAPE.h_out() as c_int, SHAPE.w_out() as c_int]);
        // SAFETY: the descriptor was made above and is alive; cuDNN only checks the sizes.
        let refused = unsafe { sys::cudnnSetTensor4dDescriptor(made.x, PACKED, DATA, -1, 1, 1, 1) };
        let Err(Failure::Unsupported(error)) = check("x", refused) else {
            panic!("{refused:?} is about the shape");
        };
        let error = error.to_string();
        assert!(error.starts_with("cudnn: x: CUDNN_STATUS_BAD_PARAM"), "{error}");
    }

    #[test]
    fn sizes_beyond_an_int_are_refused() {
        assert_eq!(ints([1, 2]).unwrap(), [1, 2]);
        let Err(Failure::Unsupported(error)) = ints([1 << 31]) else {
            panic!("such sizes never work")
        };
        assert!(error.to_string().contains("2147483648"), "{error}");
    }

    #[test]
    fn only_what_never_works_goes_without_cudnn() {
        let error = || DeviceError::new("why");
        for status in [2000, 2008, 3000, 3010, 3999] {
            let found = supported::<()>(Err(Failure::of(status, error())));
            assert!(matches!(found, Ok(None)), "{status}");
        }
        for status in [1, 1001, 1008, 4000, 4003, 4004, 5003] {
            let found = supported::<()>(Err(Failure::of(status, error())));
            assert_eq!(found.unwrap_err().to_string(), "why", "{status}");
        }
        assert_eq!(supported(Ok(7)).unwrap(), Some(7));
    }
}
