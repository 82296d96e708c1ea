//! Splitting of tensors into parts, and joining of tensors.

use crate::error::Error;
use crate::op::OpError;
use crate::ops::{Split, Tensor};

impl Tensor {
    /// Splits this tensor along `axis` into at most `chunks` parts, which are views. All parts have
    /// one size, but the last part may be smaller. As in PyTorch, there may be fewer parts than
    /// `chunks`.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[5], vec![1.0, 2.0, 3.0, 4.0, 5.0])?;
    /// let parts = x.chunk(2, 0)?;
    /// assert_eq!(parts.len(), 2);
    /// assert_eq!(parts[0].to_vec::<f32>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(parts[1].to_vec::<f32>()?, [4.0, 5.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the tensor does not have the axis, or `chunks` is 0.
    pub fn chunk(&self, chunks: usize, axis: usize) -> Result<Vec<Self>, Error> {
        if chunks == 0 {
            return Err(OpError::new("chunk", "chunks is 0, expected at least 1").into());
        }
        let size = self.size_along("chunk", axis)?;
        if size == 0 {
            return (0..chunks).map(|_| self.slice(axis, 0..0)).collect();
        }
        self.split(size.div_ceil(chunks), axis)
    }

    /// Splits this tensor into views of size `size` along `axis`; the last part may be smaller.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[5], vec![1.0, 2.0, 3.0, 4.0, 5.0])?;
    /// let parts = x.split(2, 0)?;
    /// assert_eq!(parts.len(), 3);
    /// assert_eq!(parts[2].to_vec::<f32>()?, [5.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if the tensor does not have the axis, `size` is 0, or there would be more than
    /// 65536 parts.
    pub fn split(&self, size: usize, axis: usize) -> Result<Vec<Self>, Error> {
        Ok(Self::call(Split { axis, size }, &[self])?.into_vec())
    }

    fn size_along(&self, op: &str, axis: usize) -> Result<usize, Error> {
        self.shape().get(axis).copied().ok_or_else(|| {
            let (x, rank) = (self.layout(), self.rank());
            let message = format!("axis {axis} is out of range for x {x}, expected below {rank}");
            OpError::new(op, message).into()
        })
    }

    /// Joins tensors of equal shape along a new dimension, which is dimension `axis` of the result.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let a = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// let b = runtime.tensor(&[2], vec![3.0, 4.0])?;
    /// assert_eq!(Tensor::stack(&[&a, &b], 0)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    /// assert_eq!(Tensor::stack(&[&a, &b], 1)?.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if there are no tensors, the shapes or types of the tensors differ, or `axis`
    /// is larger than the rank of the tensors.
    pub fn stack(parts: &[&Self], axis: usize) -> Result<Self, Error> {
        let Some(first) = parts.first() else {
            return Err(OpError::new("stack", "takes at least 1 input, 0 were given").into());
        };
        if axis > first.rank() {
            let message = format!("axis is {axis}, expected at most {}", first.rank());
            return Err(OpError::new("stack", message).into());
        }
        if let Some((i, x)) = parts.iter().enumerate().find(|(_, x)| x.shape() != first.shape()) {
            let message = format!("x{i} is {}, expected {}", x.layout(), first.layout());
            return Err(OpError::new("stack", message).into());
        }
        let mut shape = first.shape().to_vec();
        shape.insert(axis, 1);
        let parts = parts.iter().map(|x| x.contiguous()?.reshape(&shape));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        Self::concat(&parts.iter().collect::<Vec<_>>(), axis)
    }

    /// Repeats this tensor `times[i]` times along each dimension `i`. If there are more `times`
    /// than dimensions, new dimensions are added in front. The result is a copy;
    /// [`Tensor::broadcast`] repeats dimensions of size 1 without a copy.
    ///
    /// ```
    /// # use remat::prelude::*;
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// assert_eq!(x.repeat(&[2])?.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    /// assert_eq!(x.repeat(&[3, 1])?.shape(), [3, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if there are fewer `times` than dimensions, or the result would have more than
    /// `isize::MAX` bytes.
    pub fn repeat(&self, times: &[usize]) -> Result<Self, Error> {
        let Some(extra) = times.len().checked_sub(self.rank()) else {
            let message = format!(
                "times is {times:?} for x {}, expected one for each dimension",
                self.layout()
            );
            return Err(OpError::new("repeat", message).into());
        };
        let size = |axis: usize| if axis < extra { 1 } else { self.shape()[axis - extra] };
        // Insert a dimension of size 1 before each dimension; broadcasting it repeats the
        // dimension.
        let split: Vec<usize> = (0..times.len()).flat_map(|axis| [1, size(axis)]).collect();
        let wide: Vec<usize> =
            (0..times.len()).flat_map(|axis| [times[axis], size(axis)]).collect();
        let shape: Vec<usize> =
            (0..times.len()).map(|axis| times[axis].saturating_mul(size(axis))).collect();
        self.contiguous()?.reshape(&split)?.broadcast(&wide)?.contiguous()?.reshape(&shape)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Runtime, Tensor};

    #[test]
    fn parts_are_as_large_as_pytorch_makes_them() {
        let runtime = Runtime::builder().budget("1MiB").threads(1).cpu().unwrap();
        let x = runtime.tensor::<f32>(&[2, 7], (0..14).map(|i| i as f32).collect()).unwrap();
        let sizes = |parts: Vec<Tensor>| parts.iter().map(|x| x.shape()[1]).collect::<Vec<_>>();
        assert_eq!(sizes(x.chunk(3, 1).unwrap()), [3, 3, 1]);
        // Four parts of size 2 suffice, so there are fewer parts than `chunks`.
        assert_eq!(sizes(x.chunk(5, 1).unwrap()), [2, 2, 2, 1]);
        assert_eq!(sizes(x.chunk(100, 1).unwrap()), [1; 7]);
        assert_eq!(sizes(x.split(4, 1).unwrap()), [4, 3]);
        assert_eq!(sizes(x.split(usize::MAX, 1).unwrap()), [7]);
        let none = x.slice(1, 0..0).unwrap();
        assert_eq!(sizes(none.chunk(2, 1).unwrap()), [0, 0]);
        assert_eq!(sizes(none.split(2, 1).unwrap()), [0]);
        let error = |made: Result<Vec<Tensor>, crate::Error>| made.unwrap_err().to_string();
        assert_eq!(error(x.chunk(0, 1)), "chunk: chunks is 0, expected at least 1");
        assert_eq!(error(x.split(0, 1)), "split: size is 0, expected at least 1");
        assert!(error(x.chunk(2, 2)).starts_with("chunk: axis 2 is out of range"));

        let stacked = Tensor::stack(&[&x, &x], 2).unwrap();
        assert_eq!(stacked.shape(), [2, 7, 2]);
        assert!(Tensor::stack(&[], 0).is_err());
        assert!(Tensor::stack(&[&x], 3).is_err());
        let error = Tensor::stack(&[&x, &none], 0).unwrap_err().to_string();
        assert_eq!(error, "stack: x1 is f32[2, 0], expected f32[2, 7]");

        let row = runtime.tensor(&[2], vec![1, 2]).unwrap();
        assert_eq!(row.repeat(&[2, 3]).unwrap().to_vec::<i32>().unwrap(), [1, 2].repeat(6));
        assert_eq!(row.repeat(&[0]).unwrap().shape(), [0]);
        let error = x.repeat(&[2]).unwrap_err().to_string();
        assert_eq!(error, "repeat: times is [2] for x f32[2, 7], expected one for each dimension");
        assert!(x.repeat(&[usize::MAX, 2]).is_err());
    }
}
