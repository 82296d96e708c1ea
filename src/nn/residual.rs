use super::{BatchNorm2d, Conv2d, Mode, Module, Sequential, State, join};
use crate::error::Error;
use crate::runtime::{Ops, Tensor};

/// `y = relu(body(x) + shortcut(x))` (He et al., CVPR 2016).
#[derive(Debug)]
pub struct Residual {
    body: Sequential,
    /// `None`: the identity.
    shortcut: Option<Sequential>,
}

impl Residual {
    /// Two 3x3 convolutions: `inputs` to `outputs` channels, the first with `stride`.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn basic(
        ops: &dyn Ops,
        inputs: usize,
        outputs: usize,
        stride: usize,
    ) -> Result<Self, Error> {
        let body = Sequential::new()
            .then("conv1", Conv2d::new(ops, inputs, outputs, 3, stride)?)
            .then("bn1", BatchNorm2d::new(ops, outputs)?)
            .then_apply("relu1", |ops, x, _| ops.relu(x))
            .then("conv2", Conv2d::new(ops, outputs, outputs, 3, 1)?)
            .then("bn2", BatchNorm2d::new(ops, outputs)?);
        Ok(Self { body, shortcut: projection(ops, inputs, outputs, stride)? })
    }

    /// 1x1, 3x3 and 1x1 convolutions: `inputs` to `4 * width` channels, the middle one with `stride`.
    ///
    /// # Errors
    /// If a size is absurd.
    pub fn bottleneck(
        ops: &dyn Ops,
        inputs: usize,
        width: usize,
        stride: usize,
    ) -> Result<Self, Error> {
        let outputs = 4 * width;
        let body = Sequential::new()
            .then("conv1", Conv2d::new(ops, inputs, width, 1, 1)?)
            .then("bn1", BatchNorm2d::new(ops, width)?)
            .then_apply("relu1", |ops, x, _| ops.relu(x))
            .then("conv2", Conv2d::new(ops, width, width, 3, stride)?)
            .then("bn2", BatchNorm2d::new(ops, width)?)
            .then_apply("relu2", |ops, x, _| ops.relu(x))
            .then("conv3", Conv2d::new(ops, width, outputs, 1, 1)?)
            .then("bn3", BatchNorm2d::new(ops, outputs)?);
        Ok(Self { body, shortcut: projection(ops, inputs, outputs, stride)? })
    }
}

/// A 1x1 convolution where the shape changes.
fn projection(
    ops: &dyn Ops,
    inputs: usize,
    outputs: usize,
    stride: usize,
) -> Result<Option<Sequential>, Error> {
    if inputs == outputs && stride == 1 {
        return Ok(None);
    }
    let path = Sequential::new()
        .then("conv", Conv2d::new(ops, inputs, outputs, 1, stride)?)
        .then("bn", BatchNorm2d::new(ops, outputs)?);
    Ok(Some(path))
}

impl Module for Residual {
    fn forward(&mut self, ops: &dyn Ops, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let y = self.body.forward(ops, x, mode)?;
        let y = match &mut self.shortcut {
            Some(shortcut) => ops.add(&y, &shortcut.forward(ops, x, mode)?)?,
            None => ops.add(&y, x)?,
        };
        ops.relu(&y)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.body.state(prefix, found);
        if let Some(shortcut) = &mut self.shortcut {
            shortcut.state(&join(prefix, "shortcut"), found);
        }
    }
}
