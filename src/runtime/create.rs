//! New tensors: from host data, filled, and random.

use super::Runtime;
use crate::error::Error;
use crate::host::{HostTensor, Literal};
use crate::ops::{Distribution, Fill, Op, Random, Tensor, dims};
use std::ops::Range;

impl Runtime<Op, HostTensor> {
    /// A tensor of `elements`, in row-major order; see [`Runtime::put`]. Numbers without a suffix
    /// are `f32` or `i32`. For `f64`, pass a [`HostTensor::new`] to [`Runtime::put`].
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0])?;
    /// assert_eq!(x.dtype(), DType::F32);
    /// let labels = runtime.tensor(&[3], vec![2, 0, 1])?;
    /// assert_eq!(labels.to_vec::<i32>()?, [2, 0, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the number of elements does not match the shape.
    pub fn tensor<T: Literal>(&self, shape: &[usize], elements: Vec<T>) -> Result<Tensor, Error> {
        self.put(HostTensor::new(dims("put", shape)?, elements)?)
    }
}

impl<H: Send + Sync + 'static> Runtime<Op, H> {
    /// A tensor whose elements are all `value`.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.full(&[2, 2], 0.5)?;
    /// assert_eq!(x.to_vec::<f32>()?, [0.5; 4]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the shape has too many dimensions or too many elements.
    pub fn full(&self, shape: &[usize], value: f32) -> Result<Tensor, Error> {
        let shape = dims("fill", shape)?;
        self.first(Fill { shape, value })
    }

    /// A tensor of zeros.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert_eq!(runtime.zeros(&[2])?.to_vec::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the shape has too many dimensions or too many elements.
    pub fn zeros(&self, shape: &[usize]) -> Result<Tensor, Error> {
        self.full(shape, 0.0)
    }

    /// A tensor of ones.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// assert_eq!(runtime.ones(&[2])?.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the shape has too many dimensions or too many elements.
    pub fn ones(&self, shape: &[usize]) -> Result<Tensor, Error> {
        self.full(shape, 1.0)
    }

    /// A tensor of random numbers, drawn with the seed of the runtime. A regenerated tensor has the
    /// same numbers.
    ///
    /// ```
    /// use remat::ops::Distribution;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let coins = runtime.random(&[100], Distribution::Bernoulli { p: 0.5 })?.to_vec::<f32>()?;
    /// assert!(coins.iter().all(|&coin| coin == 0.0 || coin == 1.0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the shape has too many dimensions or too many elements, or the parameters of the
    /// distribution are invalid.
    pub fn random(&self, shape: &[usize], distribution: Distribution) -> Result<Tensor, Error> {
        let shape = dims("random", shape)?;
        let (key, counter) = self.next_random();
        self.first(Random { distribution, shape, key, counter })
    }

    /// A tensor of normally distributed random numbers; see [`Runtime::random`].
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.normal(&[64, 64], 3.0, 1.0)?;
    /// assert!((x.mean()?.item()? - 3.0).abs() < 0.2);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Runtime::random`] does.
    pub fn normal(&self, shape: &[usize], mean: f32, std: f32) -> Result<Tensor, Error> {
        self.random(shape, Distribution::Normal { mean, std })
    }

    /// A tensor of random numbers evenly distributed in a range; see [`Runtime::random`].
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.uniform(&[100], -1.0..1.0)?.to_vec::<f32>()?;
    /// assert!(x.iter().all(|x| (-1.0..1.0).contains(x)));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Runtime::random`] does.
    pub fn uniform(&self, shape: &[usize], range: Range<f32>) -> Result<Tensor, Error> {
        self.random(shape, Distribution::Uniform { low: range.start, high: range.end })
    }

    fn first(&self, op: impl Into<Op>) -> Result<Tensor, Error> {
        Ok(self.apply(op, &[])?.swap_remove(0))
    }
}
