//! What a tensor looks like: element type, shape, and where each element lies in its storage.
//!
//! A [`Layout`] never owns bytes. Several layouts can look at one storage; that is what a view is.

use std::fmt;

/// The largest number of dimensions a tensor can have.
pub const MAX_RANK: usize = 6;

/// Element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DType {
    /// 32-bit IEEE float: values and gradients.
    F32,
    /// 32-bit signed integer: labels and indices.
    I32,
    /// A raw byte: for devices that only count bytes.
    U8,
}

impl DType {
    /// Size of one element in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 | Self::I32 => 4,
            Self::U8 => 1,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::U8 => "u8",
        })
    }
}

/// A short list of sizes or strides, stored in place so that describing a tensor never allocates.
#[derive(Clone, Copy)]
pub struct Dims {
    /// Entries from `len` on are zero, so that equality and hashing may look at the slice alone.
    values: [usize; MAX_RANK],
    len: u8,
}

impl Dims {
    /// No dimensions: the shape of a scalar.
    pub const SCALAR: Self = Self { values: [0; MAX_RANK], len: 0 };

    /// Copies `values`.
    ///
    /// # Panics
    /// If there are more than [`MAX_RANK`] of them; use [`Dims::try_new`] on outside input.
    #[must_use]
    pub fn new(values: &[usize]) -> Self {
        Self::try_new(values).unwrap_or_else(|| panic!("rank {} is above {MAX_RANK}", values.len()))
    }

    /// Copies `values`, or `None` if there are more than [`MAX_RANK`] of them.
    #[must_use]
    pub fn try_new(values: &[usize]) -> Option<Self> {
        let mut dims = Self::SCALAR;
        dims.values.get_mut(..values.len())?.copy_from_slice(values);
        dims.len = values.len() as u8;
        Some(dims)
    }

    /// The number of elements a shape describes; 1 for a scalar. Saturates at `usize::MAX`.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.iter().fold(1, |n, &d| n.saturating_mul(d))
    }

    /// The same list with entry `axis` replaced.
    ///
    /// # Panics
    /// If `axis` is out of range.
    #[must_use]
    pub fn with(mut self, axis: usize, value: usize) -> Self {
        self[axis] = value;
        self
    }
}

impl std::ops::Deref for Dims {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.values[..self.len as usize]
    }
}

impl std::ops::DerefMut for Dims {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.values[..self.len as usize]
    }
}

impl PartialEq for Dims {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Dims {}

impl std::hash::Hash for Dims {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl<const N: usize> From<[usize; N]> for Dims {
    fn from(values: [usize; N]) -> Self {
        const { assert!(N <= MAX_RANK) };
        Self::new(&values)
    }
}

impl fmt::Debug for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Prints as `[64, 3, 32, 32]`.
impl fmt::Display for Dims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Element type, shape, strides and offset of a tensor within its storage.
///
/// Strides and offset count elements, not bytes. Element `[i, j, ..]` lies at
/// `offset + i * strides[0] + j * strides[1] + ..`; a stride of 0 repeats an element (broadcasting).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    dtype: DType,
    shape: Dims,
    strides: Dims,
    offset: usize,
}

impl Layout {
    /// Row-major, starting at the front of its storage.
    #[must_use]
    pub fn contiguous(dtype: DType, shape: impl Into<Dims>) -> Self {
        let shape = shape.into();
        Self { dtype, shape, strides: row_major(&shape), offset: 0 }
    }

    /// A one-dimensional run of `bytes` raw bytes.
    #[must_use]
    pub fn raw(bytes: usize) -> Self {
        Self::contiguous(DType::U8, [bytes])
    }

    /// Element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Sizes, outermost first.
    #[must_use]
    pub const fn shape(&self) -> &Dims {
        &self.shape
    }

    /// Distance in elements between neighbours along each dimension.
    #[must_use]
    pub const fn strides(&self) -> &Dims {
        &self.strides
    }

    /// First element's distance in elements from the front of the storage.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// Bytes of the elements when packed: the size of the storage of a fresh tensor of this shape.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.elements() as u64).saturating_mul(self.dtype.bytes() as u64)
    }

    /// Elements from the front of the storage to just past the last one this layout touches. Saturates at
    /// `usize::MAX`.
    #[must_use]
    pub fn span(&self) -> usize {
        if self.elements() == 0 {
            return self.offset;
        }
        let steps =
            self.shape.iter().zip(self.strides.iter()).map(|(n, s)| (n - 1).saturating_mul(*s));
        steps.fold(self.offset.saturating_add(1), usize::saturating_add)
    }

    /// Whether the elements lie packed in row-major order (from `offset` on).
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        let mut packed = 1usize;
        for (&n, &stride) in self.shape.iter().zip(self.strides.iter()).rev() {
            if n != 1 && stride != packed {
                return self.elements() == 0;
            }
            packed = packed.saturating_mul(n);
        }
        true
    }

    /// The same elements with dimensions reordered: dimension `i` of the result is `axes[i]` of this.
    /// `None` unless `axes` is a permutation of all dimensions.
    #[must_use]
    pub fn permute(&self, axes: &[usize]) -> Option<Self> {
        let mut seen = [false; MAX_RANK];
        if axes.len() != self.rank() {
            return None;
        }
        let mut out = *self;
        for (i, &axis) in axes.iter().enumerate() {
            if axis >= self.rank() || std::mem::replace(&mut seen[axis], true) {
                return None;
            }
            out.shape[i] = self.shape[axis];
            out.strides[i] = self.strides[axis];
        }
        Some(out)
    }

    /// `len` entries of dimension `axis` from `start` on. `None` if they are not all there.
    #[must_use]
    pub fn slice(&self, axis: usize, start: usize, len: usize) -> Option<Self> {
        if axis >= self.rank() || start.checked_add(len)? > self.shape[axis] {
            return None;
        }
        let offset = start.checked_mul(self.strides[axis])?.checked_add(self.offset)?;
        let mut out = *self;
        out.shape[axis] = len;
        // No elements begin nowhere, least of all beyond the storage.
        if out.elements() > 0 {
            out.offset = offset;
        }
        Some(out)
    }

    /// The same elements repeated along dimensions of size 1 or missing in front, by the usual
    /// broadcasting rule. `None` if the shapes do not agree.
    #[must_use]
    pub fn broadcast_to(&self, shape: &Dims) -> Option<Self> {
        let extra = shape.len().checked_sub(self.rank())?;
        let mut strides = *shape;
        for (axis, stride) in strides.iter_mut().enumerate() {
            *stride = match axis.checked_sub(extra) {
                None => 0,
                Some(own) if self.shape[own] == shape[axis] => self.strides[own],
                Some(own) if self.shape[own] == 1 => 0,
                Some(_) => return None,
            };
        }
        Some(Self { dtype: self.dtype, shape: *shape, strides, offset: self.offset })
    }

    /// The same elements in the same order under another shape, or `None` if the count differs or
    /// the elements would have to be copied (the layout is not contiguous).
    #[must_use]
    pub fn reshape(&self, shape: &Dims) -> Option<Self> {
        (shape.elements() == self.elements() && self.is_contiguous()).then(|| Self {
            dtype: self.dtype,
            shape: *shape,
            strides: row_major(shape),
            offset: self.offset,
        })
    }
}

/// Prints as `f32[64, 3, 32, 32]`.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// The shape two operands broadcast to, or `None` if they do not.
#[must_use]
pub fn broadcast_shapes(a: &Dims, b: &Dims) -> Option<Dims> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut out = *long;
    let extra = long.len() - short.len();
    for (axis, size) in short.iter().enumerate() {
        let other = &mut out[axis + extra];
        if *other == 1 {
            *other = *size;
        } else if *size != 1 && size != other {
            return None;
        }
    }
    Some(out)
}

fn row_major(shape: &Dims) -> Dims {
    let mut strides = *shape;
    let mut step = 1usize;
    for axis in (0..shape.len()).rev() {
        strides[axis] = step;
        step = step.saturating_mul(shape[axis]);
    }
    strides
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_know_where_their_elements_are() {
        let whole = Layout::contiguous(DType::F32, [2, 3, 4]);
        assert_eq!((whole.bytes(), whole.span()), (96, 24));
        let turned = whole.permute(&[2, 0, 1]).unwrap();
        assert_eq!(&**turned.shape(), [4, 2, 3]);
        assert_eq!(&**turned.strides(), [1, 12, 4]);
        assert!(!turned.is_contiguous());
        assert!(turned.reshape(&[24].into()).is_none());
        assert!(whole.permute(&[0, 0, 1]).is_none());
        let part = whole.slice(1, 1, 2).unwrap();
        assert_eq!((part.offset(), part.span(), part.elements()), (4, 24, 16));
        assert!(whole.slice(1, 2, 2).is_none());
        assert!(whole.slice(1, usize::MAX, 2).is_none());
        let none = whole.slice(0, 2, 0).unwrap().slice(1, 3, 0).unwrap();
        assert_eq!((none.offset(), none.span(), none.elements()), (0, 0, 0));
        let absurd = Layout::contiguous(DType::F32, [0, 3, usize::MAX]);
        assert!(absurd.slice(1, 2, 1).is_none());
        assert_eq!(Layout::contiguous(DType::F32, [usize::MAX; 2]).span(), usize::MAX);
    }

    #[test]
    fn a_slice_of_the_outermost_dimension_stays_contiguous() {
        let rows = Layout::contiguous(DType::I32, [5, 4]).slice(0, 2, 2).unwrap();
        assert!(rows.is_contiguous());
        assert_eq!(rows.reshape(&[8].into()).unwrap().offset(), 8);
    }

    #[test]
    fn broadcasting_follows_the_usual_rule() {
        let shape = |s: &[usize]| Dims::new(s);
        assert_eq!(broadcast_shapes(&shape(&[4, 1, 3]), &shape(&[2, 1])), Some(shape(&[4, 2, 3])));
        assert_eq!(broadcast_shapes(&shape(&[4, 3]), &shape(&[2])), None);
        let row = Layout::contiguous(DType::F32, [3]);
        assert_eq!(&**row.broadcast_to(&shape(&[2, 3])).unwrap().strides(), [0, 1]);
        assert!(row.broadcast_to(&shape(&[3, 2])).is_none());
        let scalar = Layout::contiguous(DType::F32, []);
        assert_eq!((scalar.elements(), scalar.span()), (1, 1));
    }

    #[test]
    fn what_lies_packed_and_in_order_is_contiguous() {
        for n in 0..64 {
            let whole = Layout::contiguous(DType::F32, [n % 4, n / 4 % 4, n / 16]);
            for axes in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let turned = whole.permute(&axes).unwrap();
                for (axis, size) in turned.shape().iter().enumerate() {
                    for len in 0..=*size {
                        let part = turned.slice(axis, size - len, len).unwrap();
                        let ([a, b, c], s) = ([0, 1, 2].map(|i| part.shape()[i]), part.strides());
                        let places = (0..a).flat_map(|i| {
                            (0..b).flat_map(move |j| {
                                (0..c).map(move |k| i * s[0] + j * s[1] + k * s[2])
                            })
                        });
                        assert_eq!(part.is_contiguous(), places.eq(0..a * b * c), "{part:?}");
                    }
                }
            }
        }
    }
}
