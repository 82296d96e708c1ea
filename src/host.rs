//! Tensors in host memory, for `put` and `get`.

use crate::layout::{DType, Dims, Layout};
use bytemuck::allocation::try_zeroed_vec;
use bytemuck::cast_slice_mut;
/// Element types for which the standard library has no stable type.
pub use half::{bf16, f16};
use std::fmt;

/// A shape and its elements in host memory.
///
/// ```
/// use remat::HostTensor;
/// let eye = HostTensor::f32([2, 2], vec![1.0, 0.0, 0.0, 1.0]).unwrap();
/// assert_eq!(eye.as_f32().unwrap()[3], 1.0);
/// assert!(HostTensor::f32([2, 2], vec![1.0]).is_err());
/// ```
#[derive(Clone, PartialEq)]
pub struct HostTensor {
    shape: Dims,
    data: HostData,
}

/// Type of elements: `f64`, `f32`, [`f16`](struct@f16), [`bf16`], `i64`, `i32`, `u32`, `u8` or
/// `bool`.
///
/// ```
/// use remat::{Element, HostTensor};
///
/// fn largest<T: Element + Ord>(host: &HostTensor) -> Option<T> {
///     host.as_slice::<T>()?.iter().max().copied()
/// }
/// let labels = HostTensor::i32([3], vec![4, 9, 1])?;
/// assert_eq!(largest::<i32>(&labels), Some(9));
/// assert_eq!(largest::<u8>(&labels), None);
/// # Ok::<(), remat::HostError>(())
/// ```
pub trait Element: Copy + sealed::Sealed {
    /// The element type as a [`DType`].
    const DTYPE: DType;
    /// Makes host data of `elements`.
    fn data(elements: Vec<Self>) -> HostData;
    /// Returns the elements of `host`, if their type is `Self`.
    ///
    /// # Errors
    /// The tensor itself, if its elements are of another type.
    fn take(host: HostTensor) -> Result<Vec<Self>, HostTensor>;
    /// Borrows the elements of `host`, if their type is `Self`.
    fn of(host: &HostTensor) -> Option<&[Self]>;
}

/// Element type of number literals. Unless another type is inferred, `1.0` is an `f32` and `1` is
/// an `i32`. All element types except `f64` implement this trait.
pub trait Literal: Element {}

impl Literal for f32 {}
impl Literal for f16 {}
impl Literal for bf16 {}
impl Literal for i64 {}
impl Literal for i32 {}
impl Literal for u32 {}
impl Literal for u8 {}
impl Literal for bool {}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($type:ident: $variant:ident, $doc:literal;)*) => {
        /// Elements of a [`HostTensor`], packed in row-major order.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum HostData {
            $(#[doc = $doc] $variant(Vec<$type>),)*
        }

        $(
            impl sealed::Sealed for $type {}

            impl Element for $type {
                const DTYPE: DType = DType::$variant;
                fn data(elements: Vec<Self>) -> HostData {
                    HostData::$variant(elements)
                }
                fn take(host: HostTensor) -> Result<Vec<Self>, HostTensor> {
                    match host.data {
                        HostData::$variant(elements) => Ok(elements),
                        _ => Err(host),
                    }
                }
                fn of(host: &HostTensor) -> Option<&[Self]> {
                    match &host.data {
                        HostData::$variant(elements) => Some(elements),
                        _ => None,
                    }
                }
            }
        )*

        impl HostData {
            const fn dtype(&self) -> DType {
                match self {
                    $(Self::$variant(_) => DType::$variant,)*
                }
            }

            fn as_bytes(&self) -> &[u8] {
                match self {
                    $(Self::$variant(elements) => bytemuck::cast_slice(elements),)*
                }
            }

            /// Makes zeros; `None` if the host has too little memory.
            fn zeros(dtype: DType, elements: usize) -> Option<Self> {
                Some(match dtype {
                    $(DType::$variant => Self::$variant(try_zeroed_vec(elements).ok()?),)*
                })
            }

            /// Prints the first elements as a list.
            fn fmt_first(&self, first: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant(all) => write!(f, "{:?}", &all[..all.len().min(first)]),)*
                }
            }
        }
    };
}

elements! {
    f64: F64, "64-bit floats.";
    f32: F32, "32-bit floats.";
    f16: F16, "16-bit floats.";
    bf16: BF16, "16-bit brain floats.";
    i64: I64, "64-bit integers.";
    i32: I32, "32-bit integers.";
    u32: U32, "32-bit unsigned integers.";
    u8: U8, "Bytes.";
    bool: Bool, "Truth values.";
}

impl HostData {
    /// Bytes of the elements, for writing. Returns `None` for `bool`, because a `bool` may contain
    /// only the bytes 0 and 1.
    fn as_bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(match self {
            Self::F64(elements) => cast_slice_mut(elements),
            Self::F32(elements) => cast_slice_mut(elements),
            Self::F16(elements) => cast_slice_mut(elements),
            Self::BF16(elements) => cast_slice_mut(elements),
            Self::I64(elements) => cast_slice_mut(elements),
            Self::I32(elements) => cast_slice_mut(elements),
            Self::U32(elements) => cast_slice_mut(elements),
            Self::U8(elements) => elements,
            Self::Bool(_) => return None,
        })
    }
}

/// Reason why a [`HostTensor`] could not be made.
///
/// ```
/// use remat::{HostError, HostTensor};
///
/// let error = HostTensor::f32([2, 2], vec![1.0]).unwrap_err();
/// let HostError::ElementCount { expected, found, .. } = error else { panic!("{error}") };
/// assert_eq!((expected, found), (4, 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The shape does not match the number of elements.
    #[error("shape {shape} has {expected} elements, but {found} were given")]
    ElementCount {
        /// Requested shape.
        shape: Dims,
        /// Number of elements of the shape; `usize::MAX` if that number is too large for `usize`.
        expected: usize,
        /// Number of elements given.
        found: usize,
    },
    /// The host has too little memory for the elements.
    #[error(
        "this machine does not have the memory for {elements} elements of {dtype} (shape {shape})"
    )]
    Memory {
        /// Requested type.
        dtype: DType,
        /// Requested shape.
        shape: Dims,
        /// Number of elements of the shape; `usize::MAX` if that number is too large for `usize`.
        elements: usize,
    },
    /// The number of bytes does not match the type and shape.
    #[error("{dtype}{shape} has {expected} bytes, but {found} were given")]
    ByteCount {
        /// Requested type.
        dtype: DType,
        /// Requested shape.
        shape: Dims,
        /// Number of bytes expected; `usize::MAX` if that number is too large for `usize`.
        expected: usize,
        /// Number of bytes given.
        found: usize,
    },
    /// A byte of a `bool` tensor is neither 0 nor 1.
    #[error("element {at} of bool{shape} is the byte {byte}, expected 0 or 1")]
    NotBool {
        /// Requested shape.
        shape: Dims,
        /// Position of the first byte that is neither 0 nor 1.
        at: usize,
        /// The byte, which is neither 0 nor 1.
        byte: u8,
    },
}

impl HostTensor {
    /// Makes a tensor of elements in row-major order. Float literals without a suffix are `f64` in
    /// this function; see [`HostTensor::f32`].
    ///
    /// ```
    /// use remat::HostTensor;
    ///
    /// let host = HostTensor::new([2], vec![1u8, 2])?;
    /// assert_eq!(host.as_slice::<u8>(), Some(&[1, 2][..]));
    /// # Ok::<(), remat::HostError>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements does not match the shape.
    pub fn new<T: Element>(shape: impl Into<Dims>, elements: Vec<T>) -> Result<Self, HostError> {
        let shape = check(shape.into(), elements.len())?;
        Ok(Self { shape, data: T::data(elements) })
    }

    /// Makes a tensor of `f32` elements in row-major order.
    ///
    /// ```
    /// use remat::HostTensor;
    ///
    /// let host = HostTensor::f32([2, 1], vec![1.0, 2.0])?;
    /// assert_eq!(host.layout().to_string(), "f32[2, 1]");
    /// # Ok::<(), remat::HostError>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements does not match the shape.
    pub fn f32(shape: impl Into<Dims>, data: Vec<f32>) -> Result<Self, HostError> {
        Self::new(shape, data)
    }

    /// Makes a tensor of `i32` elements in row-major order.
    ///
    /// ```
    /// use remat::HostTensor;
    ///
    /// let labels = HostTensor::i32([3], vec![7, 0, 2])?;
    /// assert_eq!(labels.as_i32(), Some(&[7, 0, 2][..]));
    /// # Ok::<(), remat::HostError>(())
    /// ```
    ///
    /// # Errors
    /// If the number of elements does not match the shape.
    pub fn i32(shape: impl Into<Dims>, data: Vec<i32>) -> Result<Self, HostError> {
        Self::new(shape, data)
    }

    /// Makes a scalar.
    ///
    /// ```
    /// use remat::HostTensor;
    ///
    /// let host = HostTensor::scalar(0.5);
    /// assert!(host.shape().is_empty());
    /// assert_eq!(host.as_f32(), Some(&[0.5][..]));
    /// ```
    #[must_use]
    pub fn scalar(value: f32) -> Self {
        Self { shape: Dims::SCALAR, data: HostData::F32(vec![value]) }
    }

    /// Makes a tensor of zeros. The system allocates the pages of a large tensor only when they are
    /// first used.
    ///
    /// # Errors
    /// If the host does not have enough memory.
    ///
    /// ```
    /// use remat::{DType, HostTensor};
    /// assert_eq!(HostTensor::zeros(DType::F32, [2, 3])?.as_f32(), Some(&[0.0; 6][..]));
    /// assert!(HostTensor::zeros(DType::F32, [usize::MAX, 2]).is_err());
    /// # Ok::<(), remat::HostError>(())
    /// ```
    pub fn zeros(dtype: DType, shape: impl Into<Dims>) -> Result<Self, HostError> {
        let shape = shape.into();
        let elements = shape.elements();
        let data = HostData::zeros(dtype, elements);
        Ok(Self { shape, data: data.ok_or(HostError::Memory { dtype, shape, elements })? })
    }

    /// Makes a tensor from the bytes of its elements, as [`HostTensor::as_bytes`] gives them.
    ///
    /// ```
    /// use remat::{DType, HostTensor, f16};
    /// let half = HostTensor::from_bytes(DType::F16, [2], &[0x00, 0x3c, 0x00, 0xc0])?;
    /// assert_eq!(half, HostTensor::new([2], [1.0, -2.0].map(f16::from_f32).into())?);
    /// assert!(HostTensor::from_bytes(DType::F16, [2], &[0]).is_err());
    /// assert!(HostTensor::from_bytes(DType::Bool, [2], &[0, 7]).is_err());
    /// # Ok::<(), remat::HostError>(())
    /// ```
    ///
    /// # Errors
    /// If the number of bytes does not match type and shape, or a byte of a [`DType::Bool`] is
    /// neither 0 nor 1. Also an error if the host does not have enough memory.
    pub fn from_bytes(
        dtype: DType,
        shape: impl Into<Dims>,
        bytes: &[u8],
    ) -> Result<Self, HostError> {
        let (shape, found) = (shape.into(), bytes.len());
        let expected = shape.elements().saturating_mul(dtype.bytes());
        if expected != found {
            return Err(HostError::ByteCount { dtype, shape, expected, found });
        }
        Self::written(dtype, shape, |all| all.copy_from_slice(bytes))
    }

    /// Makes a tensor of zeros, and calls `write` to overwrite its bytes. Fails if a byte of a
    /// `bool` is above 1.
    pub(crate) fn written(
        dtype: DType,
        shape: Dims,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<Self, HostError> {
        let mut host = Self::zeros(dtype, shape)?;
        if let Some(bytes) = host.data.as_bytes_mut() {
            write(bytes);
            return Ok(host);
        }
        let mut host = Self::zeros(DType::U8, shape)?;
        write(host.data.as_bytes_mut().unwrap_or_default());
        let bytes = host.as_bytes();
        if let Some(at) = bytes.iter().position(|&byte| byte > 1) {
            return Err(HostError::NotBool { shape, at, byte: bytes[at] });
        }
        Ok(Self { shape, data: HostData::Bool(bytes.iter().map(|&byte| byte == 1).collect()) })
    }

    /// Returns a tensor of the same elements with another shape.
    #[cfg(feature = "cuda")]
    pub(crate) fn reshaped(self, shape: Dims) -> Result<Self, HostError> {
        Ok(Self { shape: check(shape, self.shape.elements())?, data: self.data })
    }

    /// Sizes, outermost first.
    #[must_use]
    pub const fn shape(&self) -> &Dims {
        &self.shape
    }

    /// The elements.
    ///
    /// ```
    /// use remat::{HostData, HostTensor};
    ///
    /// assert_eq!(HostTensor::scalar(0.5).data(), &HostData::F32(vec![0.5]));
    /// ```
    #[must_use]
    pub const fn data(&self) -> &HostData {
        &self.data
    }

    /// Element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.data.dtype()
    }

    /// Type and shape as a contiguous layout.
    ///
    /// ```
    /// use remat::{DType, HostTensor, Layout};
    ///
    /// let host = HostTensor::f32([2, 1], vec![1.0, 2.0])?;
    /// assert_eq!(host.layout(), Layout::contiguous(DType::F32, [2, 1]));
    /// # Ok::<(), remat::HostError>(())
    /// ```
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::contiguous(self.dtype(), self.shape)
    }

    /// The elements, if they are of type `T`.
    ///
    /// ```
    /// # use remat::HostTensor;
    /// let flags = HostTensor::new([2], vec![true, false])?;
    /// assert_eq!(flags.as_slice::<bool>(), Some(&[true, false][..]));
    /// assert_eq!(flags.as_slice::<u8>(), None);
    /// # Ok::<(), remat::HostError>(())
    /// ```
    #[must_use]
    pub fn as_slice<T: Element>(&self) -> Option<&[T]> {
        T::of(self)
    }

    /// The elements, if they are of type `f32`.
    ///
    /// ```
    /// use remat::HostTensor;
    ///
    /// assert_eq!(HostTensor::scalar(3.0).as_f32(), Some(&[3.0][..]));
    /// assert_eq!(HostTensor::scalar(3.0).as_i32(), None);
    /// ```
    #[must_use]
    pub fn as_f32(&self) -> Option<&[f32]> {
        self.as_slice()
    }

    /// The elements, if they are of type `i32`.
    #[must_use]
    pub fn as_i32(&self) -> Option<&[i32]> {
        self.as_slice()
    }

    /// The elements as raw bytes, for hashing and comparing bit for bit.
    ///
    /// ```
    /// use remat::HostTensor;
    ///
    /// let host = HostTensor::new([3], vec![1u8, 2, 3])?;
    /// assert_eq!(host.as_bytes(), [1, 2, 3]);
    /// assert_ne!(HostTensor::scalar(0.0).as_bytes(), HostTensor::scalar(-0.0).as_bytes());
    /// # Ok::<(), remat::HostError>(())
    /// ```
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.data.as_bytes()
    }
}

fn check(shape: Dims, found: usize) -> Result<Dims, HostError> {
    let expected = shape.elements();
    if expected == found {
        Ok(shape)
    } else {
        Err(HostError::ElementCount { shape, expected, found })
    }
}

impl fmt::Debug for HostTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        write!(f, "{} ", self.layout())?;
        self.data.fmt_first(SHOWN, f)?;
        f.write_str(if self.shape.elements() > SHOWN { ", .." } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_of_absurd_shapes_are_an_error() {
        for shape in [
            Dims::new(&[usize::MAX]),
            Dims::new(&[usize::MAX, usize::MAX]),
            Dims::new(&[1 << 40, 1 << 20]),
            Dims::new(&[isize::MAX as usize / 4 + 1]),
        ] {
            for dtype in DType::ALL {
                let error = HostTensor::zeros(dtype, shape).unwrap_err();
                let elements = shape.elements();
                assert_eq!(error, HostError::Memory { dtype, shape, elements });
                assert!(error.to_string().contains(&shape.to_string()), "{error}");
            }
        }
        // A dimension of size 0 makes the tensor empty, whatever its other sizes are.
        let empty = HostTensor::zeros(DType::I32, [0, usize::MAX]).unwrap();
        assert_eq!(empty.as_i32(), Some(&[][..]));
        let zeros = HostTensor::zeros(DType::U8, [3]).unwrap();
        assert_eq!(zeros.as_slice(), Some(&[0u8; 3][..]));
        // No vector can have as many elements as this shape.
        assert!(HostTensor::f32([usize::MAX, 2], vec![0.0]).is_err());
    }
}
