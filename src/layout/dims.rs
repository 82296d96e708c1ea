//! Lists of sizes and strides, small enough to be passed by value.

use crate::sync::{Mutex, lock};
use std::collections::BTreeSet;
use std::fmt;

/// Greatest length of a list that is stored in place.
const INLINE: usize = 4;

/// List of sizes or strides, one for each dimension of a tensor. The list has at most
/// [`Dims::MAX_LEN`] entries.
///
/// The list is `Copy`. Up to four entries are stored in place, without an allocation. Equal lists
/// of more than four entries share one allocation, which is never freed. The leak is small, because
/// few programs have many different lists of more than four entries.
///
/// ```
/// use remat::Dims;
/// let shape = Dims::new(&[64, 3, 32, 32]);
/// assert_eq!((shape.len(), shape[1], shape.elements()), (4, 3, 196_608));
/// assert_eq!(&*shape.with(0, 1), [1, 3, 32, 32]);
/// assert_eq!(Dims::new(&[2; 20]).elements(), 1 << 20);
/// ```
#[derive(Clone, Copy)]
pub struct Dims(List);

#[derive(Clone, Copy)]
enum List {
    /// The first `len` values are the list; the unused values are 1.
    Inline { len: u8, values: [usize; INLINE] },
    /// More than [`INLINE`] values, in the shared allocation that [`kept`] returns.
    Kept(&'static [usize]),
}

/// Finds or makes the only copy of a list, which lives as long as the process.
fn kept(values: &[usize]) -> &'static [usize] {
    static LISTS: Mutex<BTreeSet<&'static [usize]>> = Mutex::new(BTreeSet::new());
    let mut lists = lock(&LISTS);
    if let Some(list) = lists.get(values) {
        return list;
    }
    let list: &'static [usize] = Box::leak(values.into());
    lists.insert(list);
    list
}

impl Dims {
    /// Largest length of a list, which is also the highest rank of a tensor.
    pub const MAX_LEN: usize = 255;

    /// No dimensions: the shape of a scalar.
    pub const SCALAR: Self = Self(List::Inline { len: 0, values: [1; INLINE] });

    /// Copies `values`.
    ///
    /// ```
    /// use remat::Dims;
    ///
    /// assert_eq!(Dims::new(&[2, 3]).to_string(), "[2, 3]");
    /// ```
    ///
    /// # Panics
    /// If `values` has more than [`Dims::MAX_LEN`] entries. Use [`Dims::try_new`] for input from
    /// outside the program.
    #[must_use]
    pub fn new(values: &[usize]) -> Self {
        Self::filled(values.len(), |all| all.copy_from_slice(values))
    }

    /// Copies `values`. `None` if `values` has more than [`Dims::MAX_LEN`] entries.
    ///
    /// ```
    /// use remat::Dims;
    ///
    /// assert_eq!(Dims::try_new(&[2, 3]), Some(Dims::from([2, 3])));
    /// assert_eq!(Dims::try_new(&[1; 256]), None);
    /// ```
    #[must_use]
    pub fn try_new(values: &[usize]) -> Option<Self> {
        let len = values.len();
        (len <= Self::MAX_LEN).then(|| Self::filled(len, |all| all.copy_from_slice(values)))
    }

    /// Makes a list of `len` entries, which `fill` sets.
    #[inline]
    pub(super) fn filled(len: usize, fill: impl FnOnce(&mut [usize])) -> Self {
        if len > INLINE {
            return Self::long(len, fill);
        }
        let mut values = [1; INLINE];
        fill(&mut values[..len]);
        Self(List::Inline { len: len as u8, values })
    }

    /// Like [`Dims::filled`], for more than [`INLINE`] entries.
    #[cold]
    fn long(len: usize, fill: impl FnOnce(&mut [usize])) -> Self {
        assert!(len <= Self::MAX_LEN, "rank {len} is above {}", Self::MAX_LEN);
        let mut values = [1; Self::MAX_LEN];
        fill(&mut values[..len]);
        Self(List::Kept(kept(&values[..len])))
    }

    /// Makes a list of `len` entries. Entry `i` is `entry(i)`; entries are computed in order.
    ///
    /// ```
    /// use remat::Dims;
    /// assert_eq!(Dims::from_fn(3, |axis| axis * axis), [0, 1, 4].into());
    /// ```
    ///
    /// # Panics
    /// If `len` is above [`Dims::MAX_LEN`].
    #[must_use]
    pub fn from_fn(len: usize, mut entry: impl FnMut(usize) -> usize) -> Self {
        Self::filled(len, |all| all.iter_mut().enumerate().for_each(|(i, value)| *value = entry(i)))
    }

    /// Number of elements that a shape describes; 1 for a scalar. Saturates at `usize::MAX`.
    ///
    /// ```
    /// use remat::Dims;
    ///
    /// assert_eq!(Dims::new(&[2, 3, 4]).elements(), 24);
    /// assert_eq!(Dims::SCALAR.elements(), 1);
    /// ```
    #[must_use]
    #[inline]
    pub fn elements(&self) -> usize {
        let product = |values: &[usize]| values.iter().fold(1, |n: usize, &d| n.saturating_mul(d));
        match &self.0 {
            // Multiply all values, also the unused values, which are 1: a product of a fixed number
            // of values needs no loop.
            List::Inline { values, .. } => product(values),
            List::Kept(values) => {
                std::hint::cold_path();
                product(values)
            }
        }
    }

    /// Copy of the list with entry `axis` replaced.
    ///
    /// ```
    /// use remat::Dims;
    ///
    /// assert_eq!(Dims::new(&[8, 3]).with(0, 1), Dims::new(&[1, 3]));
    /// ```
    ///
    /// # Panics
    /// If `axis` is out of range.
    #[must_use]
    pub fn with(self, axis: usize, value: usize) -> Self {
        assert!(axis < self.len(), "entry {axis} of {self}, which has {}", self.len());
        Self::filled(self.len(), |all| {
            all.copy_from_slice(&self);
            all[axis] = value;
        })
    }
}

impl std::ops::Deref for Dims {
    type Target = [usize];

    #[inline]
    fn deref(&self) -> &[usize] {
        match &self.0 {
            List::Inline { len, values } => &values[..*len as usize],
            List::Kept(values) => {
                std::hint::cold_path();
                values
            }
        }
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
        const { assert!(N <= Self::MAX_LEN) };
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher as _, RandomState};

    #[test]
    fn lists_of_any_length_are_equal_as_their_entries_are() {
        let hasher = RandomState::new();
        for len in (0..20).chain([100, 254, 255]) {
            let values: Vec<usize> = (0..len).map(|i| i * i + len).collect();
            let dims = Dims::new(&values);
            assert_eq!((&*dims, dims.len()), (&values[..], len));
            assert_eq!(dims, Dims::from_fn(len, |i| values[i]));
            assert_eq!(dims.to_string(), format!("{values:?}"));
            assert_eq!(hasher.hash_one(dims), hasher.hash_one(&values[..]));
            for axis in 0..len {
                let mut changed = values.clone();
                changed[axis] = 7;
                let other = dims.with(axis, 7);
                assert_eq!((&*other, other == dims), (&changed[..], changed == values));
                assert_eq!(other.with(axis, values[axis]), dims, "there and back");
            }
        }
    }

    #[test]
    fn a_long_list_is_kept_once_however_often_it_is_made() {
        let list = |dims: Dims| match dims.0 {
            List::Kept(values) => values.as_ptr(),
            List::Inline { .. } => panic!("{dims} is short"),
        };
        let values: Vec<usize> = (1000..1009).collect();
        let first = list(Dims::new(&values));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let values = values.clone();
                crate::sync::thread::spawn(move || Dims::new(&values))
            })
            .collect();
        for made in threads {
            assert_eq!(list(made.join().unwrap()), first);
        }
        let changed = Dims::new(&values).with(3, 0);
        assert_ne!(list(changed), first);
        assert_eq!(list(changed.with(3, 1003)), first);
    }

    #[test]
    fn lists_that_are_too_long_are_refused() {
        assert!(Dims::try_new(&[1; 255]).is_some());
        assert!(Dims::try_new(&[1; 256]).is_none());
        let panic = std::panic::catch_unwind(|| Dims::new(&[1; 300])).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "rank 300 is above 255");
        let panic = std::panic::catch_unwind(|| Dims::new(&[4, 5]).with(2, 1)).unwrap_err();
        assert_eq!(panic.downcast_ref::<String>().unwrap(), "entry 2 of [4, 5], which has 2");
    }
}
