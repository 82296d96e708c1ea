use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::{self, Tensor};
use crate::runtime::Runtime;

/// A convolution of images `[n, inputs, h, w]`, without bias.
#[derive(Debug)]
pub struct Conv2d {
    /// `[outputs, inputs, kernel, kernel]`
    weight: Tensor,
    conv: ops::Conv2d,
}

impl Conv2d {
    /// A square kernel, padded so that a stride of 1 keeps the image size. Weights are Gaussian with
    /// variance `2 / (outputs * kernel^2)` (He et al., ICCV 2015, fan-out).
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn new(
        runtime: &Runtime,
        inputs: usize,
        outputs: usize,
        kernel: usize,
        stride: usize,
    ) -> Result<Self, Error> {
        let std = (2.0 / (outputs * kernel * kernel).max(1) as f32).sqrt();
        Ok(Self {
            weight: runtime.normal(&[outputs, inputs, kernel, kernel], 0.0, std)?,
            conv: ops::Conv2d::new([stride; 2], [kernel / 2; 2]),
        })
    }
}

impl Module for Conv2d {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        x.conv2d(&self.weight, self.conv)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "weight"), State::Parameter(&mut self.weight)));
    }
}
