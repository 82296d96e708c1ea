//! Recognition of torchvision's and transformers' networks by tensor names and shapes. Files of
//! `torch.save` are refused in `header.rs`.

use super::names::Names;
use super::{Checkpoint, CheckpointError};
use crate::nn::{DenseNet, Gpt, ResNet};
use std::collections::BTreeMap;

/// A network of another library, recognized in a file, with its sizes.
///
/// ```no_run
/// use remat::checkpoint::{Checkpoint, Known};
/// use remat::nn::{Gpt, gpt};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1GiB").cpu()?;
/// let saved = Checkpoint::open("gpt2/model.safetensors")?;
/// let known = saved.known()?;
/// let Known::Gpt2 { vocabulary, context, layers, width } = known else { panic!("{known:?}") };
/// let sizes = Gpt { vocabulary, context, layers, width, heads: 12, dropout: 0.0 };
/// let mut network = gpt(&runtime, &sizes)?;
/// saved.named(&known.names())?.convert().load(&runtime, &mut network)?;
/// # Ok::<(), remat::checkpoint::CheckpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Known {
    /// GPT-2 of the transformers library, which is [`gpt`](crate::nn::gpt). A file does not contain
    /// the number of heads. GPT-2 has one head for each 64 features; `config.json` gives the number
    /// of heads as `n_head`.
    Gpt2 {
        /// Number of tokens in the vocabulary.
        vocabulary: usize,
        /// Maximum number of tokens in a text.
        context: usize,
        /// Number of blocks.
        layers: usize,
        /// Number of features of a token.
        width: usize,
    },
    /// A [`resnet`](crate::nn::resnet): torchvision's `resnet18` or `resnet50`, or another ResNet
    /// with the same tensor names.
    ResNet {
        /// Architecture.
        kind: ResNet,
        /// Channels of an image.
        channels: usize,
        /// Number of classes.
        classes: usize,
        /// Width and height of the kernel of the first convolution: 7 for images of at least 64
        /// pixels, 3 for smaller images.
        stem: usize,
    },
    /// A [`densenet`](crate::nn::densenet), with torchvision's names.
    DenseNet {
        /// Architecture: torchvision's `densenet121` is [`DenseNet::D121`].
        of: DenseNet,
        /// Channels of an image.
        channels: usize,
        /// Number of classes.
        classes: usize,
        /// Width and height of the kernel of the first convolution: 7 for images of at least 64
        /// pixels, 3 for smaller images.
        stem: usize,
    },
}

impl Known {
    /// Renaming rules for the file, for [`Checkpoint::named`].
    ///
    /// ```
    /// use remat::checkpoint::Known;
    ///
    /// let known = Known::Gpt2 { vocabulary: 50_257, context: 1024, layers: 12, width: 768 };
    /// assert_eq!(known.names().renamed("transformer.wte.weight"), "wte.weight");
    /// ```
    #[must_use]
    pub fn names(&self) -> Names {
        match self {
            Self::Gpt2 { .. } => Names::gpt2(),
            Self::ResNet { .. } | Self::DenseNet { .. } => Names::torchvision(),
        }
    }

    /// Sizes of the GPT with `heads` heads; `None` for another network.
    ///
    /// ```
    /// use remat::checkpoint::Known;
    ///
    /// let known = Known::Gpt2 { vocabulary: 50_257, context: 1024, layers: 12, width: 768 };
    /// assert_eq!(known.gpt(12).unwrap().width, 768);
    /// ```
    #[must_use]
    pub const fn gpt(&self, heads: usize) -> Option<Gpt> {
        match *self {
            Self::Gpt2 { vocabulary, context, layers, width } => {
                Some(Gpt { vocabulary, context, layers, width, heads, dropout: 0.0 })
            }
            _ => None,
        }
    }
}

/// Shapes by tensor name, after renaming.
struct Shapes<'a>(BTreeMap<String, &'a [usize]>);

impl Shapes<'_> {
    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Sizes of a tensor, if it has `N` dimensions and no size is 0.
    fn of<const N: usize>(&self, name: &str) -> Option<[usize; N]> {
        let sizes: [usize; N] = (*self.0.get(name)?).try_into().ok()?;
        (!sizes.contains(&0)).then_some(sizes)
    }

    /// Number of tensors among `name(first)`, `name(first + 1)` and so on, up to the first missing
    /// tensor.
    fn count(&self, first: usize, name: impl Fn(usize) -> String) -> usize {
        (first..).take_while(|&i| self.has(&name(i))).count()
    }
}

impl Checkpoint {
    /// Recognizes the network of the file. The file must have its original names, with or without
    /// prefixes of PyTorch's wrappers.
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, Known, Writer};
    /// use remat::nn::{Gpt, gpt};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let of = Gpt { vocabulary: 64, context: 8, layers: 1, width: 16, heads: 2, dropout: 0.0 };
    /// # let path = format!("remat-known-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// Writer::of(&mut gpt(&runtime, &of)?).save(&runtime, &path)?;
    /// let known = Checkpoint::open(&path)?.known()?;
    /// assert_eq!(known, Known::Gpt2 { vocabulary: 64, context: 8, layers: 1, width: 16 });
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if no network that this crate knows has these tensors.
    pub fn known(&self) -> Result<Known, CheckpointError> {
        let names = Names::gpt2().then(Names::torchvision());
        let shapes = self.places().iter();
        let shapes = Shapes(
            shapes.map(|(name, place)| (names.renamed(name), place.entry.shape())).collect(),
        );
        let known = if shapes.has("h.0.attn.c_attn.weight") {
            gpt2(&shapes)
        } else if shapes.has("layer1.0.conv1.weight") {
            resnet(&shapes)
        } else if shapes.has("features.conv0.weight") {
            densenet(&shapes)
        } else {
            Err("no known network; known are GPT-2 of the transformers library (h.0.attn.c_attn.weight, ..), and \
                resnet18, resnet50 (layer1.0.conv1.weight, ..) and densenet121 (features.conv0.weight, ..) of \
                torchvision"
                .to_owned())
        };
        let unknown = |what| {
            let message = format!("the tensors are those of {what}");
            CheckpointError::Format { path: self.path().to_owned(), message }
        };
        known.map_err(unknown)
    }
}

/// Number of tensors in a block of GPT-2.
const OF_A_BLOCK: usize = 12;

fn gpt2(shapes: &Shapes<'_>) -> Result<Known, String> {
    let tokens = shapes.of("wte.weight").or_else(|| shapes.of("lm_head.weight"));
    let ([vocabulary, width], [context, _]) = tokens
        .zip(shapes.of("wpe.weight"))
        .ok_or("a GPT-2 without tokens (`wte.weight`) or positions (`wpe.weight`)")?;
    let layers = shapes.count(0, |i| format!("h.{i}.attn.c_attn.weight"));
    // A file with a few forged names must not make a network that is far larger than the file.
    if layers * OF_A_BLOCK > 2 * shapes.0.len() {
        return Err(format!(
            "a GPT-2 of {layers} blocks, but most tensors are missing: the file has {}",
            shapes.0.len()
        ));
    }
    Ok(Known::Gpt2 { vocabulary, context, layers, width })
}

fn resnet(shapes: &Shapes<'_>) -> Result<Known, String> {
    let first = shapes.of("conv1.weight");
    let last = shapes.of("fc.weight");
    let ([width, channels, stem, _], [classes, _]) =
        first.zip(last).ok_or("a ResNet without `conv1.weight` or `fc.weight`")?;
    let blocks: Vec<usize> = (1..)
        .map(|stage| shapes.count(0, |i| format!("layer{stage}.{i}.conv1.weight")))
        .take_while(|&blocks| blocks > 0)
        .collect();
    let bottleneck = shapes.has("layer1.0.conv3.weight");
    // Number of output features, and number of input channels.
    let [inner, read, ..] = shapes.of::<4>("layer1.0.conv2.weight").unwrap_or_default();
    let plain = (width, inner, read) == (64, 64, 64);
    let kind = match (bottleneck, &blocks[..]) {
        (false, [2, 2, 2, 2]) if plain => ResNet::R18,
        (true, [3, 4, 6, 3]) if plain => ResNet::R50,
        (false, &[n, m, k]) if n == m && m == k && width == 16 => ResNet::Cifar { n },
        _ => {
            let name = match (bottleneck, &blocks[..], inner, read) {
                (false, [3, 4, 6, 3], 64, 64) => "torchvision's resnet34, ",
                (true, [3, 4, 23, 3], 64, 64) => "torchvision's resnet101, ",
                (true, [3, 8, 36, 3], 64, 64) => "torchvision's resnet152, ",
                (true, [3, 4, 6, 3], 128, 4) => "torchvision's resnext50_32x4d, ",
                (true, [3, 4, 23, 3], 256, 8) => "torchvision's resnext101_32x8d, ",
                (true, [3, 4, 23, 3], 256, 4) => "torchvision's resnext101_64x4d, ",
                (true, [3, 4, 6, 3], 128, 128) => "torchvision's wide_resnet50_2, ",
                (true, [3, 4, 23, 3], 128, 128) => "torchvision's wide_resnet101_2, ",
                _ => "",
            };
            let blocks: Vec<String> = blocks.iter().map(usize::to_string).collect();
            return Err(format!(
                "{name}a ResNet of {} blocks per stage and width {width}; supported are resnet18 and resnet50 of \
                 torchvision, and ResNets of 3 stages of 16, 32 and 64 channels",
                blocks.join(", ")
            ));
        }
    };
    Ok(Known::ResNet { kind, channels, classes, stem })
}

fn densenet(shapes: &Shapes<'_>) -> Result<Known, String> {
    let first = shapes.of("features.conv0.weight");
    let growth = shapes.of("features.denseblock1.denselayer1.conv2.weight");
    let last = shapes.of("classifier.weight");
    let (([width, channels, stem, _], [growth, ..]), [classes, _]): (([usize; 4], [usize; 4]), _) =
        first
            .zip(growth)
            .zip(last)
            .ok_or("a DenseNet without its first layers or `classifier.weight`")?;
    let blocks: Vec<usize> = (1..)
        .map(|block| {
            shapes.count(1, |i| format!("features.denseblock{block}.denselayer{i}.conv1.weight"))
        })
        .take_while(|&layers| layers > 0)
        .collect();
    let blocks = blocks.try_into();
    let blocks = blocks.map_err(|blocks: Vec<usize>| {
        format!("a DenseNet of {} blocks, expected 4", blocks.len())
    })?;
    Ok(Known::DenseNet { of: DenseNet { growth, blocks, width }, channels, classes, stem })
}
