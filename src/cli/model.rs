use super::sync::LazyLock;
use clap::ValueEnum;
use clap::builder::{ArgPredicate, PossibleValue};
use std::fmt;

/// A network that `remat train` can train, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    Images(ImageModel),
    Text(TextModel),
    Own(OwnModel),
}

/// Networks with a task of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum OwnModel {
    /// Takes noise out of images, at several sizes
    UNet,
    /// A different tree at every step, with --data trees
    TreeLstm,
    /// A generator that learns through steps of its adversary, with --data ring
    #[value(name = "unrolled-gan")]
    UnrolledGan,
}

/// Networks that tell classes of images apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum ImageModel {
    /// Fully connected, for quick tries
    Mlp,
    /// 3 stages of 3 blocks, for small images
    ResNet20,
    /// 3 stages of 5 blocks
    ResNet32,
    /// 3 stages of 18 blocks
    ResNet110,
    /// 3 stages of 200 blocks: many small tensors
    ResNet1202,
    /// 4 stages, up to 512 channels
    ResNet18,
    /// 4 stages of bottlenecks, up to 2048 channels
    ResNet50,
    /// 4 blocks, each layer of which reads all before it
    DenseNet121,
    /// Branches of many shapes, for images of 75 pixels and more
    InceptionV4,
    /// Vision transformer of patches
    Vit,
}

/// Networks that predict each token of a text from the tokens before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum TextModel {
    /// Transformer of bytes, for small texts
    Gpt,
    /// GPT-2 of the smallest size, of bytes: 12 layers, 768 wide
    Gpt2,
    /// Layers of LSTM, unrolled over the text
    Lstm,
}

/// Conditions for clap under which `value` is the default of an option. Each condition is true for
/// one text model.
pub fn with_text(
    value: &'static str,
) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
        TextModel::value_variants().iter().map(|model| Model::Text(*model).to_string()).collect()
    });
    NAMES.iter().map(move |name| ("model", name.as_str(), value))
}

/// Conditions for clap for the default of `--data`, for each network that does not learn from the
/// digits.
pub fn usual_data() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let own = [("model", "treelstm", "trees"), ("model", "unrolled-gan", "ring")];
    with_text("moby-dick").chain(own)
}

/// Conditions for clap for the default of `--policy`. In `treelstm`, no two steps are alike, so a
/// policy that learns is useless. With `--learn`, a policy that learns is still the default.
pub fn usual_policy() -> [(&'static str, ArgPredicate, &'static str); 2] {
    [
        ("learn", ArgPredicate::IsPresent, "learned:portfolio"),
        ("model", "treelstm".into(), "ancestors"),
    ]
}

impl Model {
    /// Default number of passes over the data.
    pub const fn usual_epochs(self) -> usize {
        match self {
            Self::Images(_) => 20,
            Self::Text(_) => 2,
            Self::Own(_) => 20,
        }
    }
}

impl ValueEnum for Model {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<Model>> = LazyLock::new(|| {
            let images = ImageModel::value_variants().iter().copied().map(Model::Images);
            let texts = TextModel::value_variants().iter().copied().map(Model::Text);
            let own = OwnModel::value_variants().iter().copied().map(Model::Own);
            images.chain(texts).chain(own).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Images(model) => model.to_possible_value(),
            Self::Text(model) => model.to_possible_value(),
            Self::Own(model) => model.to_possible_value(),
        }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}
