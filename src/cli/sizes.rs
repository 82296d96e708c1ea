//! How large a transformer is: options, and what they make.

use super::failure::Failure;
use super::model::{ImageModel, Model, TextModel};
use super::values;
use clap::Args;
use remat::data::Text;
use remat::nn::{Gpt, Vit};

/// Sizes of transformers.
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(next_help_heading = "Sizes of gpt, gpt2 and vit")]
pub struct SizeArgs {
    /// Blocks [default: 4, or 12 with gpt2]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    layers: Option<usize>,

    /// Features of a byte or a patch of an image [default: 128, or 768 with gpt2]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    width: Option<usize>,

    /// Heads of attention, which divide the width [default: 4, or 12 with gpt2]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    heads: Option<usize>,

    /// Bytes that a prediction is made from at most [default: 128, or 1024 with gpt2]
    #[arg(long, value_name = "N", value_parser = values::count, allow_hyphen_values = true)]
    context: Option<usize>,

    /// Probability that an element is left out in training [default: 0, or 0.1 with gpt2]
    #[arg(long, value_name = "P", value_parser = values::below_one, allow_hyphen_values = true)]
    dropout: Option<f32>,
}

impl SizeArgs {
    /// Fails if sizes are given that the model does not have, or that do not go together.
    pub fn check(&self, model: Model) -> Result<(), Failure> {
        let given = [
            ("--layers", self.layers.is_some()),
            ("--width", self.width.is_some()),
            ("--heads", self.heads.is_some()),
            ("--dropout", self.dropout.is_some()),
            ("--context", self.context.is_some()),
        ];
        let (takes, which) = match model {
            Model::Text(_) => (given.len(), "gpt or gpt2"),
            Model::Images(ImageModel::Vit) => (given.len() - 1, "gpt or gpt2"),
            Model::Images(_) => (0, "gpt, gpt2 or vit"),
        };
        if let Some((option, _)) = given[takes..].iter().find(|(_, given)| *given) {
            let which = if *option == "--context" { "gpt or gpt2" } else { which };
            return Err(Failure::usage(format!(
                "{option} needs the model {which}, and this is {model}; choose that, or drop {option}"
            )));
        }
        let [_, width, heads, _] = self.of(model);
        if takes > 0 && !width.is_multiple_of(heads) {
            return Err(Failure::usage(format!(
                "--width {width} is not a multiple of --heads {heads}; change one of them"
            )));
        }
        Ok(())
    }

    /// Layers, width, heads and context.
    fn of(&self, model: Model) -> [usize; 4] {
        let usual = match model {
            Model::Text(TextModel::Gpt2) => [12, 768, 12, 1024],
            _ => [4, 128, 4, 128],
        };
        let given = [self.layers, self.width, self.heads, self.context];
        std::array::from_fn(|i| given[i].unwrap_or(usual[i]))
    }

    /// A GPT for bytes.
    pub fn gpt(&self, model: TextModel) -> Gpt {
        let [layers, width, heads, context] = self.of(Model::Text(model));
        let usual = if model == TextModel::Gpt2 { 0.1 } else { 0.0 };
        let dropout = self.dropout.unwrap_or(usual);
        Gpt { vocabulary: Text::VOCABULARY, context, layers, width, heads, dropout }
    }

    /// A vision transformer for such images.
    pub fn vit(&self, image: [usize; 3], classes: usize) -> Vit {
        let [layers, width, heads, _] = self.of(Model::Images(ImageModel::Vit));
        let dropout = self.dropout.unwrap_or(0.0);
        Vit { image, patch: patch(image), layers, width, heads, classes, dropout }
    }
}

/// The side of the smallest patches, from two pixels on, of which an image has no more than the usual 14 x 14 and no fewer
/// than 4 x 4; or else of single pixels.
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
