//! Options for the sizes of networks, and the descriptions of networks made from these options.

use super::failure::Failure;
use super::model::{ImageModel, Model, TextModel};
use super::values;
use clap::Args;
use remat::DType;
use remat::data::Text;
use remat::nn::{Gpt, LstmSize, Vit};

/// Options for the size of networks that come in any size.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Sizes of gpt, gpt2, lstm and vit")]
pub struct SizeArgs {
    /// Blocks or layers [default: 4, 12 with gpt2, 2 with lstm]
    #[arg(long, value_name = "N", value_parser = values::layers, allow_hyphen_values = true)]
    layers: Option<usize>,

    /// Features of a token or a patch of an image [default: 128, 768 with gpt2, 256 with lstm]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    width: Option<usize>,

    /// Number of attention heads, a divisor of the width [default: 4, or 12 with gpt2]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    heads: Option<usize>,

    /// Most tokens that a prediction uses [default: 128, or 1024 with gpt2]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    context: Option<usize>,

    /// Number of different tokens [default: 256 for bytes, or the number in --tokenizer]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    pub vocabulary: Option<usize>,

    /// Dropout probability in training [default: 0, or 0.1 with gpt2]
    #[arg(long, value_name = "P", value_parser = values::below_one, allow_hyphen_values = true)]
    dropout: Option<f32>,
}

impl SizeArgs {
    /// Fails if the model does not have a given size, or if sizes contradict each other.
    pub fn check(&self, model: Model) -> Result<(), Failure> {
        let given = [
            ("--layers", self.layers.is_some()),
            ("--width", self.width.is_some()),
            ("--heads", self.heads.is_some()),
            ("--dropout", self.dropout.is_some()),
            ("--context", self.context.is_some()),
            ("--vocabulary", self.vocabulary.is_some()),
        ];
        let has: &[&str] = match model {
            Model::Text(TextModel::Gpt | TextModel::Gpt2) => {
                &["--layers", "--width", "--heads", "--context", "--vocabulary", "--dropout"]
            }
            Model::Text(TextModel::Lstm) => &["--layers", "--width", "--context", "--vocabulary"],
            Model::Images(ImageModel::Vit) => &["--layers", "--width", "--heads", "--dropout"],
            Model::Images(_) | Model::Own(_) => &[],
        };
        let is_lost = |(option, is_given): &(&str, bool)| *is_given && !has.contains(option);
        if let Some((option, _)) = given.into_iter().find(is_lost) {
            let has = match has {
                [] => "comes in one size".to_owned(),
                _ => format!("has {}", has.join(", ")),
            };
            return Err(Failure::usage(format!(
                "{model} has no {option}, because it {has}; drop {option}"
            )));
        }
        let [_, width, heads, _] = self.of(model);
        if has.contains(&"--heads") && !width.is_multiple_of(heads) {
            return Err(Failure::usage(format!(
                "--width {width} is not a multiple of --heads {heads}; change one of them"
            )));
        }
        Ok(())
    }

    /// Layers, width, heads and context, as given or by default.
    fn of(&self, model: Model) -> [usize; 4] {
        let usual = match model {
            Model::Text(TextModel::Gpt2) => [12, 768, 12, 1024],
            Model::Text(TextModel::Lstm) => [2, 256, 1, 128],
            _ => [4, 128, 4, 128],
        };
        let given = [self.layers, self.width, self.heads, self.context];
        std::array::from_fn(|i| given[i].unwrap_or(usual[i]))
    }

    /// Number of tokens in a window of a text model.
    pub fn context(&self, model: TextModel) -> usize {
        self.of(Model::Text(model))[3]
    }

    /// Number of different tokens that a text model knows.
    pub fn vocabulary(&self) -> usize {
        self.vocabulary.unwrap_or(Text::VOCABULARY)
    }

    /// Size of an LSTM with activations of type `storage`.
    pub fn lstm(&self, storage: DType) -> LstmSize {
        let [layers, width, ..] = self.of(Model::Text(TextModel::Lstm));
        LstmSize { vocabulary: self.vocabulary(), width, hidden: width, layers, storage }
    }

    /// Size of a GPT.
    pub fn gpt(&self, model: TextModel) -> Gpt {
        let [layers, width, heads, context] = self.of(Model::Text(model));
        let usual = if model == TextModel::Gpt2 { 0.1 } else { 0.0 };
        let dropout = self.dropout.unwrap_or(usual);
        Gpt { vocabulary: self.vocabulary(), context, layers, width, heads, dropout }
    }

    /// Size of a vision transformer for images of shape `image`.
    pub fn vit(&self, image: [usize; 3], classes: usize) -> Vit {
        let [layers, width, heads, _] = self.of(Model::Images(ImageModel::Vit));
        let dropout = self.dropout.unwrap_or(0.0);
        Vit { image, patch: patch(image), layers, width, heads, classes, dropout }
    }
}

/// Side of the patches of an image, in pixels. The side is the smallest, from 2 on, that divides
/// height and width and gives 16 to 196 patches. 196 are the usual 14 x 14 patches. If no side
/// fits, the side is 1.
fn patch([_, height, width]: [usize; 3]) -> usize {
    let fits = |side: &usize| {
        let count = (height / side).saturating_mul(width / side);
        height.is_multiple_of(*side) && width.is_multiple_of(*side) && (16..=196).contains(&count)
    };
    (2..=height.min(width)).find(fits).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_a_moderate_number_of_patches() {
        for (image, side) in [
            ([1, 8, 8], 2),
            ([1, 28, 28], 2),
            ([3, 32, 32], 4),
            ([3, 224, 224], 16),
            ([3, 64, 32], 4),
            ([3, 7, 7], 1),
            ([3, 1, 1], 1),
        ] {
            assert_eq!(patch(image), side, "{image:?}");
        }
    }
}
