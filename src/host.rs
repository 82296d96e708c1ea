//! Tensors in host memory: what goes into `put` and comes out of `get`.

use crate::layout::{DType, Dims, Layout};
use bytemuck::allocation::try_zeroed_vec;
use std::fmt;

/// The elements of a [`HostTensor`], packed in row-major order.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum HostData {
    /// 32-bit floats.
    F32(Vec<f32>),
    /// 32-bit integers.
    I32(Vec<i32>),
}

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

/// A type of elements: `f32` or `i32`.
pub trait Element: Copy + sealed::Sealed {
    /// As a [`DType`].
    const DTYPE: DType;
    /// Elements of this type.
    fn data(elements: Vec<Self>) -> HostData;
    /// The elements, if they are of this type.
    ///
    /// # Errors
    /// The tensor, if they are not.
    fn take(host: HostTensor) -> Result<Vec<Self>, HostTensor>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for i32 {}
}

macro_rules! elements {
    ($($type:ident: $variant:ident),*) => {$(
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
        }
    )*};
}

elements! { f32: F32, i32: I32 }

/// Why there is no such [`HostTensor`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// A shape that does not match the number of elements.
    #[error("shape {shape} has {expected} elements, but {found} were given")]
    ElementCount {
        /// The requested shape.
        shape: Dims,
        /// How many elements it has; `usize::MAX` stands for any number above.
        expected: usize,
        /// How many there were.
        found: usize,
    },
    /// More elements than the host has memory for.
    #[error(
        "this machine has no room for {elements} elements of {dtype} (shape {shape}) in host memory"
    )]
    Memory {
        /// The requested type.
        dtype: DType,
        /// The requested shape.
        shape: Dims,
        /// How many elements it has; `usize::MAX` stands for any number above.
        elements: usize,
    },
}

impl HostTensor {
    /// Elements in row-major order.
    ///
    /// # Errors
    /// If their number does not match the shape.
    pub fn new<T: Element>(shape: impl Into<Dims>, elements: Vec<T>) -> Result<Self, HostError> {
        let shape = check(shape.into(), elements.len())?;
        Ok(Self { shape, data: T::data(elements) })
    }

    /// # Errors
    /// If the number of elements does not match the shape.
    pub fn f32(shape: impl Into<Dims>, data: Vec<f32>) -> Result<Self, HostError> {
        let shape = check(shape.into(), data.len())?;
        Ok(Self { shape, data: HostData::F32(data) })
    }

    /// # Errors
    /// If the number of elements does not match the shape.
    pub fn i32(shape: impl Into<Dims>, data: Vec<i32>) -> Result<Self, HostError> {
        let shape = check(shape.into(), data.len())?;
        Ok(Self { shape, data: HostData::I32(data) })
    }

    /// A scalar.
    #[must_use]
    pub fn scalar(value: f32) -> Self {
        Self { shape: Dims::SCALAR, data: HostData::F32(vec![value]) }
    }

    /// All zero. The pages of a large one are not touched until they are read.
    ///
    /// # Errors
    /// If the host does not have that much memory.
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
        let data = match dtype {
            DType::I32 => try_zeroed_vec(elements).map(HostData::I32),
            DType::F32 | DType::U8 => try_zeroed_vec(elements).map(HostData::F32),
        };
        let data = data.map_err(|()| HostError::Memory { dtype, shape, elements })?;
        Ok(Self { shape, data })
    }

    /// Sizes, outermost first.
    #[must_use]
    pub const fn shape(&self) -> &Dims {
        &self.shape
    }

    /// The elements.
    #[must_use]
    pub const fn data(&self) -> &HostData {
        &self.data
    }

    /// Element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        match self.data {
            HostData::F32(_) => DType::F32,
            HostData::I32(_) => DType::I32,
        }
    }

    /// Type and shape as a contiguous layout.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::contiguous(self.dtype(), self.shape)
    }

    /// The elements, if they are floats.
    #[must_use]
    pub fn as_f32(&self) -> Option<&[f32]> {
        match &self.data {
            HostData::F32(v) => Some(v),
            HostData::I32(_) => None,
        }
    }

    /// The elements, if they are integers.
    #[must_use]
    pub fn as_i32(&self) -> Option<&[i32]> {
        match &self.data {
            HostData::I32(v) => Some(v),
            HostData::F32(_) => None,
        }
    }

    /// The elements as raw bytes, for hashing and comparing bit for bit.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.data {
            HostData::F32(v) => bytemuck::cast_slice(v),
            HostData::I32(v) => bytemuck::cast_slice(v),
        }
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
        let more = if self.shape.elements() > SHOWN { ", .." } else { "" };
        match &self.data {
            HostData::F32(v) => write!(f, "{:?}{more}", &v[..v.len().min(SHOWN)]),
            HostData::I32(v) => write!(f, "{:?}{more}", &v[..v.len().min(SHOWN)]),
        }
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
            for dtype in [DType::F32, DType::I32, DType::U8] {
                let error = HostTensor::zeros(dtype, shape).unwrap_err();
                let elements = shape.elements();
                assert_eq!(error, HostError::Memory { dtype, shape, elements });
                assert!(error.to_string().contains(&shape.to_string()), "{error}");
            }
        }
        // Nothing is in it, however large the other dimension.
        let empty = HostTensor::zeros(DType::I32, [0, usize::MAX]).unwrap();
        assert_eq!(empty.as_i32(), Some(&[][..]));
        let zeros = HostTensor::zeros(DType::U8, [3]).unwrap();
        assert_eq!(zeros.as_f32(), Some(&[0.0; 3][..]));
        // The same for data that cannot have so many elements.
        assert!(HostTensor::f32([usize::MAX, 2], vec![0.0]).is_err());
    }
}
