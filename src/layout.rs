//! Layouts: element type and shape of a tensor, and the position of each element in its storage.
//!
//! A [`Layout`] never owns bytes. Several layouts can describe one storage, as views of the
//! storage.

mod dims;
mod dtype;
#[cfg(feature = "serde")]
mod text;

pub use dims::Dims;
pub use dtype::{DType, ParseDTypeError};

use std::fmt;

/// Maximum number of nested loops in the crate's kernels for strided tensors. A tensor may have up
/// to [`Dims::MAX_LEN`] dimensions. A kernel joins neighbouring dimensions into one loop if the
/// strides of all operands allow the join. A kernel refuses operands that still need more than
/// `MAX_RANK` loops. A contiguous tensor needs one loop, whatever its rank.
pub const MAX_RANK: usize = 6;

/// Element type, shape, strides and offset of a tensor within its storage.
///
/// Strides and offset count elements, not bytes. Element `[i, j, ..]` lies at
/// `offset + i * strides[0] + j * strides[1] + ..`. A stride of 0 repeats elements along its
/// dimension (broadcasting).
///
/// ```
/// use remat::{DType, Layout};
///
/// let rows = Layout::contiguous(DType::F32, [2, 3]);
/// let columns = rows.permute(&[1, 0]).unwrap();
/// assert_eq!(rows.to_string(), "f32[2, 3]");
/// assert_eq!(columns.to_string(), "f32[3, 2]");
/// assert_eq!(*columns.strides(), [1, 3].into());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "text::Unchecked"))]
pub struct Layout {
    dtype: DType,
    shape: Dims,
    strides: Dims,
    offset: usize,
}

impl Layout {
    /// Row-major layout with offset 0.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// let layout = Layout::contiguous(DType::F32, [2, 3, 4]);
    /// assert_eq!(*layout.strides(), [12, 4, 1].into());
    /// ```
    #[must_use]
    #[inline]
    pub fn contiguous(dtype: DType, shape: impl Into<Dims>) -> Self {
        let shape = shape.into();
        Self { dtype, shape, strides: row_major(&shape), offset: 0 }
    }

    /// One-dimensional layout of `bytes` elements of type `u8`.
    ///
    /// ```
    /// use remat::Layout;
    ///
    /// assert_eq!(Layout::raw(100).to_string(), "u8[100]");
    /// assert_eq!(Layout::raw(100).bytes(), 100);
    /// ```
    #[must_use]
    pub fn raw(bytes: usize) -> Self {
        Self::contiguous(DType::U8, [bytes])
    }

    /// Element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Copy of the layout with another element type.
    #[must_use]
    pub(crate) const fn with_dtype(&self, dtype: DType) -> Self {
        Self { dtype, ..*self }
    }

    /// Sizes, outermost first.
    #[must_use]
    pub const fn shape(&self) -> &Dims {
        &self.shape
    }

    /// Strides: distance in elements between neighbours along each dimension.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// let layout = Layout::contiguous(DType::F32, [2, 3]);
    /// assert_eq!(*layout.strides(), [3, 1].into());
    /// ```
    #[must_use]
    pub const fn strides(&self) -> &Dims {
        &self.strides
    }

    /// Distance in elements from the front of the storage to the first element.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// let layout = Layout::contiguous(DType::F32, [4, 3]);
    /// assert_eq!(layout.slice(0, 2, 1).unwrap().offset(), 6);
    /// ```
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
    ///
    /// ```
    /// use remat::{DType, Dims, Layout};
    ///
    /// assert_eq!(Layout::contiguous(DType::F32, [2, 3]).elements(), 6);
    /// assert_eq!(Layout::contiguous(DType::F32, Dims::SCALAR).elements(), 1);
    /// ```
    #[must_use]
    #[inline]
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// Bytes that the elements take when they are packed. A new storage for a tensor of this type
    /// and shape has this size.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// assert_eq!(Layout::contiguous(DType::F32, [2, 3]).bytes(), 24);
    /// assert_eq!(Layout::contiguous(DType::BF16, [2, 3]).bytes(), 12);
    /// ```
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        (self.elements() as u64).saturating_mul(self.dtype.bytes() as u64)
    }

    /// Number of elements from the front of the storage to the end of the last element that this
    /// layout covers. Saturates at `usize::MAX`.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// let whole = Layout::contiguous(DType::F32, [4, 3]);
    /// let column = whole.slice(1, 2, 1).unwrap();
    /// assert_eq!((column.elements(), column.span()), (4, 12));
    /// ```
    #[must_use]
    #[inline]
    pub fn span(&self) -> usize {
        if self.elements() == 0 {
            return self.offset;
        }
        let steps =
            self.shape.iter().zip(self.strides.iter()).map(|(n, s)| (n - 1).saturating_mul(*s));
        steps.fold(self.offset.saturating_add(1), usize::saturating_add)
    }

    /// Whether the elements are packed in row-major order, from `offset` on.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// let rows = Layout::contiguous(DType::F32, [2, 3]);
    /// assert!(rows.is_contiguous() && rows.slice(0, 1, 1).unwrap().is_contiguous());
    /// assert!(!rows.permute(&[1, 0]).unwrap().is_contiguous());
    /// ```
    #[must_use]
    #[inline]
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

    /// Reorders dimensions: dimension `i` of the result is `axes[i]` of this layout. `None` unless
    /// `axes` is a permutation of all dimensions.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// let images = Layout::contiguous(DType::F32, [8, 3, 32, 16]);
    /// assert_eq!(images.permute(&[0, 2, 3, 1]).unwrap().to_string(), "f32[8, 32, 16, 3]");
    /// assert_eq!(images.permute(&[0, 0, 1, 2]), None);
    /// ```
    #[must_use]
    pub fn permute(&self, axes: &[usize]) -> Option<Self> {
        let once = |(i, axis): (usize, &usize)| *axis < self.rank() && !axes[..i].contains(axis);
        if axes.len() != self.rank() || !axes.iter().enumerate().all(once) {
            return None;
        }
        let ordered = |of: &Dims| Dims::from_fn(axes.len(), |i| of[axes[i]]);
        Some(Self { shape: ordered(&self.shape), strides: ordered(&self.strides), ..*self })
    }

    /// Takes `len` entries of dimension `axis` from `start` on. `None` if the dimension has fewer
    /// than `start + len` entries.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// let layout = Layout::contiguous(DType::F32, [4, 3]);
    /// let part = layout.slice(0, 1, 2).unwrap();
    /// assert_eq!(part.to_string(), "f32[2, 3]");
    /// assert_eq!(part.offset(), 3);
    /// assert_eq!(layout.slice(0, 3, 2), None);
    /// ```
    #[must_use]
    pub fn slice(&self, axis: usize, start: usize, len: usize) -> Option<Self> {
        if axis >= self.rank() || start.checked_add(len)? > self.shape[axis] {
            return None;
        }
        let offset = start.checked_mul(self.strides[axis])?.checked_add(self.offset)?;
        let mut out = Self { shape: self.shape.with(axis, len), ..*self };
        // An empty slice keeps the old offset, because the new offset may lie beyond the end of the
        // storage.
        if out.elements() > 0 {
            out.offset = offset;
        }
        Some(out)
    }

    /// Broadcasts to `shape` by the usual rule: elements are repeated along dimensions that have
    /// size 1 or are missing in front. `None` if the shapes do not agree.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// let row = Layout::contiguous(DType::F32, [3]);
    /// let rows = row.broadcast_to(&[2, 3].into()).unwrap();
    /// assert_eq!(rows.elements(), 6);
    /// assert_eq!(*rows.strides(), [0, 1].into());
    /// assert_eq!(row.broadcast_to(&[2, 4].into()), None);
    /// ```
    #[must_use]
    pub fn broadcast_to(&self, shape: &Dims) -> Option<Self> {
        let extra = shape.len().checked_sub(self.rank())?;
        let agrees = |(&own, &size): (&usize, &usize)| own == size || own == 1;
        if !self.shape.iter().zip(&shape[extra..]).all(agrees) {
            return None;
        }
        let strides = Dims::from_fn(shape.len(), |axis| match axis.checked_sub(extra) {
            Some(own) if self.shape[own] == shape[axis] => self.strides[own],
            _ => 0,
        });
        Some(Self { dtype: self.dtype, shape: *shape, strides, offset: self.offset })
    }

    /// Returns a layout of the elements, in unchanged order, with another shape. `None` if the
    /// number of elements differs. Also returns `None` if the layout is not contiguous, because the
    /// elements would have to be copied.
    ///
    /// ```
    /// use remat::{DType, Layout};
    ///
    /// let layout = Layout::contiguous(DType::F32, [2, 6]);
    /// assert_eq!(layout.reshape(&[3, 4].into()).unwrap().to_string(), "f32[3, 4]");
    /// assert_eq!(layout.reshape(&[5, 2].into()), None);
    /// ```
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

/// Shape to which two operands broadcast; `None` if the shapes cannot be broadcast together.
///
/// ```
/// use remat::{Dims, broadcast_shapes};
///
/// let sum = broadcast_shapes(&Dims::from([8, 1, 3]), &Dims::from([5, 3]));
/// assert_eq!(sum, Some(Dims::from([8, 5, 3])));
/// assert_eq!(broadcast_shapes(&Dims::from([2]), &Dims::from([3])), None);
/// ```
#[must_use]
pub fn broadcast_shapes(a: &Dims, b: &Dims) -> Option<Dims> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let extra = long.len() - short.len();
    let agrees = |(&a, &b): (&usize, &usize)| a == b || a == 1 || b == 1;
    if !long[extra..].iter().zip(&**short).all(agrees) {
        return None;
    }
    Some(Dims::from_fn(long.len(), |axis| match axis.checked_sub(extra) {
        Some(own) if long[axis] == 1 => short[own],
        _ => long[axis],
    }))
}

/// Bytes of all elements of all layouts.
#[inline]
pub(crate) fn bytes_of<'a>(layouts: impl IntoIterator<Item = &'a Layout>) -> u64 {
    layouts.into_iter().map(Layout::bytes).fold(0, u64::saturating_add)
}

/// Whether a packed tensor has at most `isize::MAX` bytes. Dimensions of size 0 count as size 1:
/// the strides along the dimensions must not overflow even if the tensor is empty.
pub(crate) fn countable(dtype: DType, shape: &Dims) -> bool {
    shape
        .iter()
        .filter(|&&size| size != 0)
        .try_fold(dtype.bytes(), |bytes, &size| bytes.checked_mul(size))
        .is_some_and(|bytes| isize::try_from(bytes).is_ok())
}

#[inline]
fn row_major(shape: &Dims) -> Dims {
    Dims::filled(shape.len(), |strides| {
        let mut step = 1usize;
        for (stride, size) in strides.iter_mut().zip(shape.iter()).rev() {
            *stride = step;
            step = step.saturating_mul(*size);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn a_layout_is_contiguous_if_packed_and_in_order() {
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

    /// Messages to the engine contain layouts by value, so larger layouts would make each op
    /// slower.
    #[test]
    fn a_layout_is_96_bytes_whatever_its_rank() {
        assert_eq!(
            (size_of::<Dims>(), size_of::<Layout>(), size_of::<Option<Layout>>()),
            (40, 96, 96)
        );
    }

    /// Model of a layout: a shape, and the position of each element, in row-major order.
    #[derive(Debug)]
    struct Model {
        shape: Vec<usize>,
        places: Vec<usize>,
    }

    impl Model {
        /// Index of element number `i` of a shape.
        fn index(shape: &[usize], mut i: usize) -> Vec<usize> {
            let digit = |size: &usize| {
                let digit = i % size;
                i /= size;
                digit
            };
            let mut index: Vec<usize> = shape.iter().rev().map(digit).collect();
            index.reverse();
            index
        }

        /// Model of a view in another shape. `from` maps an index in the view to an index in this
        /// model.
        fn seen(&self, shape: Vec<usize>, from: impl Fn(&[usize]) -> Vec<usize>) -> Self {
            let place = |i| {
                let index = from(&Self::index(&shape, i));
                let at = index.iter().zip(&self.shape).fold(0, |at, (i, size)| at * size + i);
                self.places[at]
            };
            Self { places: (0..shape.iter().product()).map(place).collect(), shape }
        }

        fn assert_is(&self, layout: &Layout) {
            assert_eq!(**layout.shape(), self.shape);
            assert_eq!((layout.rank(), layout.elements()), (self.shape.len(), self.places.len()));
            let place = |i| {
                let index = Self::index(&self.shape, i);
                let steps = index.iter().zip(layout.strides().iter()).map(|(i, stride)| i * stride);
                layout.offset() + steps.sum::<usize>()
            };
            let places: Vec<usize> = (0..self.places.len()).map(place).collect();
            assert_eq!(places, self.places, "{layout:?}");
            if let Some(first) = places.first() {
                assert_eq!(layout.span(), places.iter().max().unwrap() + 1, "{layout:?}");
                let packed = places.iter().enumerate().all(|(i, place)| *place == first + i);
                assert_eq!(layout.is_contiguous(), packed, "{layout:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn layouts_of_any_rank_are_those_of_a_list_of_places(
            sizes in prop::collection::vec(prop::sample::select(vec![1, 1, 1, 2, 2, 3]), 0..12),
            ones in prop::sample::select(vec![0, 0, 0, 3, 100, 240]),
            steps in prop::collection::vec((0..4, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u64>()), 1..6),
        ) {
            let mut shape = sizes;
            shape.extend(vec![1; ones]);
            let elements: usize = shape.iter().product();
            let mut layout = Layout::contiguous(DType::BF16, Dims::new(&shape));
            let mut model = Model { shape, places: (0..elements).collect() };
            model.assert_is(&layout);
            for (what, one, other, seed) in steps {
                let shape = model.shape.clone();
                let rank = shape.len();
                (layout, model) = match what {
                    0 => {
                        let mut axes: Vec<usize> = (0..rank).collect();
                        axes.sort_by_key(|&axis| (axis as u64 + 1).wrapping_mul(seed | 1));
                        let turned = axes.iter().map(|&axis| shape[axis]).collect();
                        let back = |index: &[usize]| {
                            let mut from = vec![0; rank];
                            axes.iter().zip(index).for_each(|(&axis, &i)| from[axis] = i);
                            from
                        };
                        (layout.permute(&axes).unwrap(), model.seen(turned, back))
                    }
                    1 if rank > 0 => {
                        let axis = one.index(rank);
                        let start = other.index(shape[axis]);
                        let len = 1 + seed as usize % (shape[axis] - start);
                        let mut part = shape;
                        part[axis] = len;
                        let moved = |index: &[usize]| {
                            let mut from = index.to_vec();
                            from[axis] += start;
                            from
                        };
                        (layout.slice(axis, start, len).unwrap(), model.seen(part, moved))
                    }
                    2 if model.places.len() < 1 << 12 && rank < Dims::MAX_LEN => {
                        let more = seed as usize % 2;
                        let mut wide = vec![2; more];
                        let repeat = |(i, &size): (usize, &usize)| match size {
                            1 if i == one.index(rank) => 2,
                            size => size,
                        };
                        wide.extend(shape.iter().enumerate().map(repeat));
                        let narrow = |index: &[usize]| -> Vec<usize> {
                            let own = index[more..].iter().zip(&shape);
                            own.map(|(&i, &size)| if size == 1 { 0 } else { i }).collect()
                        };
                        let dims = Dims::new(&wide);
                        prop_assert_eq!(broadcast_shapes(layout.shape(), &dims), Some(dims));
                        (layout.broadcast_to(&dims).unwrap(), model.seen(wide, narrow))
                    }
                    3 => {
                        let flat = [model.places.len()].into();
                        prop_assert_eq!(layout.reshape(&flat).is_some(), layout.is_contiguous());
                        let Some(line) = layout.reshape(&flat) else { continue };
                        let mut other: Vec<usize> = shape.iter().rev().copied().collect();
                        other.insert(one.index(rank + 1), 1);
                        other.truncate(Dims::MAX_LEN);
                        if other.iter().product::<usize>() != model.places.len() {
                            continue;
                        }
                        let places = model.places.clone();
                        (line.reshape(&Dims::new(&other)).unwrap(), Model { shape: other, places })
                    }
                    _ => continue,
                };
                model.assert_is(&layout);
            }
        }
    }

    #[test]
    fn views_that_do_not_fit_are_none_whatever_the_rank() {
        for rank in [1, 5, 6, 7, 8, 100, 255] {
            let x = Layout::contiguous(DType::U8, Dims::new(&vec![2; rank.min(9)]));
            let x = x.reshape(&Dims::from_fn(rank, |axis| if axis < 9 { 2 } else { 1 })).unwrap();
            let axes: Vec<usize> = (0..rank).collect();
            assert_eq!(x.permute(&axes), Some(x));
            assert!(x.permute(&axes[1..]).is_none());
            let twice: Vec<usize> = axes.iter().map(|&axis| axis.max(1) % rank.max(2)).collect();
            assert_eq!(x.permute(&twice), None, "{rank}");
            assert!(x.slice(rank, 0, 0).is_none() && x.slice(0, 1, 2).is_none());
            assert!(x.broadcast_to(&x.shape().with(0, 3)).is_none());
            assert!(broadcast_shapes(x.shape(), &x.shape().with(0, 3)).is_none());
            assert!(x.broadcast_to(&Dims::new(&x.shape()[1..])).is_none());
            assert!(x.reshape(&x.shape().with(0, 3)).is_none());
        }
    }
}
