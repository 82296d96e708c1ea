use super::dense::Dense;
use super::init;
use super::{Dropout, LayerNorm, Mode, Module, State, TransformerBlock, join};
use crate::error::Error;
use crate::op::OpError;
use crate::ops::{Conv2d, Tensor};
use crate::runtime::Runtime;

/// Sizes of a vision transformer (Dosovitskiy et al., ICLR 2021).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Vit {
    /// Channels, height and width of images.
    pub image: [usize; 3],
    /// Height and width of a square patch, in pixels. The number must divide the height and the
    /// width of the image.
    pub patch: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Number of features that represent a patch.
    pub width: usize,
    /// Number of attention heads of each block. The number must divide the width.
    pub heads: usize,
    /// Number of classes of images.
    pub classes: usize,
    /// Probability that dropout zeroes an element in training. Dropout applies to the embeddings,
    /// and to each result that a block adds to the embeddings.
    pub dropout: f32,
}

/// A classifier of images; see [`vit`].
#[derive(Debug)]
pub struct VisionTransformer {
    image: [usize; 3],
    patch: usize,
    /// `[width, channels, patch, patch]`
    patches: Tensor,
    /// `[width]`
    bias: Tensor,
    /// Class token `[1, 1, width]`: a row that is put before the rows of the patches. The network
    /// computes the logits from the output of this row.
    class: Tensor,
    /// `[1, 1 + patches, width]`
    positions: Tensor,
    dropout: Dropout,
    blocks: Vec<TransformerBlock>,
    norm: LayerNorm,
    head: Dense,
}

/// A vision transformer that maps images `[n, channels, height, width]` to `[n, classes]`.
/// Parameters have the names and initial distributions of torchvision's `VisionTransformer`. The
/// weights of the last layer are Gaussian with standard deviation 0.02; in torchvision, they are 0.
///
/// ```
/// use remat::nn::{Vit, vit};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("16MiB").cpu()?;
/// let sizes = Vit {
///     image: [3, 8, 8],
///     patch: 4,
///     layers: 1,
///     width: 16,
///     heads: 2,
///     classes: 10,
///     dropout: 0.0,
/// };
/// let mut network = vit(&runtime, &sizes)?;
/// let images = runtime.normal(&[2, 3, 8, 8], 0.0, 1.0)?;
/// assert_eq!(network.forward(&images, Mode::Infer)?.shape(), [2, 10]);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// [`Error::Op`] if patches do not divide images, heads do not divide the width, or a tensor would
/// have more than `isize::MAX` bytes.
pub fn vit(runtime: &Runtime, of: &Vit) -> Result<VisionTransformer, Error> {
    let Vit { image, patch, layers, width, heads, classes, dropout } = *of;
    let [channels, rows, columns] = image;
    if patch == 0 || [rows, columns].iter().any(|side| !side.is_multiple_of(patch)) {
        let message = format!(
            "images of {rows}x{columns} are not a whole number of patches of {patch}x{patch}"
        );
        return Err(OpError::new("vit", message).into());
    }
    let count = (rows / patch) * (columns / patch);
    let inputs = channels * patch * patch;
    let block = |_| Ok(TransformerBlock::vision(runtime, width, heads)?.dropout(dropout));
    let std = 1.0 / (inputs.max(1) as f32).sqrt();
    let head = Dense::turned_gaussian(runtime, width, classes, 0.02)?;
    Ok(VisionTransformer {
        image,
        patch,
        patches: init::trunc_normal(runtime, &[width, channels, patch, patch], std)?,
        bias: runtime.zeros(&[width])?,
        class: runtime.zeros(&[1, 1, width])?,
        positions: runtime.normal(&[1, 1 + count, width], 0.0, 0.02)?,
        dropout: Dropout::new(dropout),
        blocks: (0..layers).map(block).collect::<Result<_, Error>>()?,
        norm: LayerNorm::new(runtime, width)?.eps(1e-6),
        head,
    })
}

impl Module for VisionTransformer {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let [channels, height, width] = self.image;
        let n = match *x.shape() {
            [n, c, h, w] if [c, h, w] == self.image => n,
            _ => {
                let expected = format!("[n, {channels}, {height}, {width}]");
                let message = format!("x is {}, expected {expected}", x.layout());
                return Err(OpError::new("vit", message).into());
            }
        };
        let features = self.bias.shape()[0];
        let count = self.positions.shape()[1] - 1;
        let patches = x.conv2d(&self.patches, Conv2d::new([self.patch; 2], [0; 2]))?;
        let patches = patches.reshape(&[n, features, count])?.permute(&[0, 2, 1])?;
        let patches = (patches + &self.bias)?;
        let class = self.class.cast(patches.dtype())?.broadcast(&[n, 1, features])?;
        let mut y = (Tensor::concat(&[&class, &patches], 1)? + &self.positions)?;
        drop((patches, class));
        y = self.dropout.forward(&y, mode)?;
        for block in &mut self.blocks {
            y = block.forward(&y, mode)?;
        }
        // The logits are computed from the first row only, which is the class token.
        let first = y.slice(1, 0..1)?.contiguous()?.reshape(&[n, features])?;
        self.head.forward(&self.norm.forward(&first, mode)?)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        found.push((join(prefix, "class_token"), State::Parameter(&mut self.class)));
        found.push((join(prefix, "conv_proj.weight"), State::Parameter(&mut self.patches)));
        found.push((join(prefix, "conv_proj.bias"), State::Parameter(&mut self.bias)));
        let encoder = join(prefix, "encoder");
        found.push((join(&encoder, "pos_embedding"), State::Parameter(&mut self.positions)));
        for (i, block) in self.blocks.iter_mut().enumerate() {
            block.state(&join(&encoder, format!("layers.encoder_layer_{i}")), found);
        }
        self.norm.state(&join(&encoder, "ln"), found);
        self.head.state(&join(prefix, "heads.head"), found);
    }
}
