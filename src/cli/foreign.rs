//! Checkpoints of other libraries. The tensors of a file determine its network, and options supply
//! sizes that the file does not contain.

use super::args::TrainArgs;
use super::checkpoint::{self, Kept, Options};
use super::checkpoint_args::{ForeignArgs, NamesArgs};
use super::failure::Failure;
use super::model::Model;
use super::task::Task;
use super::terminal::say;
use super::words::Counted;
use clap::{ArgMatches, ValueEnum as _};
use remat::checkpoint::{Checkpoint, CheckpointError, Fit, Known, Names};
use remat::data::Text;
use remat::nn::{DenseNet, ResNet};
use remat::unstable::files::read_whole;
use remat::{Runtime, nn};
use serde::Deserialize;
use std::ffi::OsString;
use std::path::Path;

/// A checkpoint, and the options that make its network.
pub struct Saved {
    pub file: Checkpoint,
    pub options: Options,
    /// Metadata of the run, if `remat train` wrote the checkpoint.
    pub kept: Option<Kept>,
    /// Network in the checkpoint, if another library wrote it.
    pub known: Option<Known>,
}

impl NamesArgs {
    fn names(&self) -> Names {
        let names = self.rename.iter().cloned().fold(Names::new(), Names::rename);
        self.skip.iter().cloned().fold(names, Names::skip)
    }

    /// Opens a checkpoint and renames its tensors to the names of this crate. Also returns the
    /// network, if another library wrote the file.
    pub fn open(&self, path: &Path) -> Result<(Checkpoint, Option<Known>), Failure> {
        let file = Checkpoint::open(path).map_err(checkpoint::failure)?;
        let named = file.named(&self.names()).map_err(checkpoint::failure)?;
        if Kept::is_in(&named) {
            return Ok((named, None));
        }
        let known = named.known().map_err(|error| match error {
            CheckpointError::Format { path, message } => Failure::new(format!(
                "{}: the file is not from `remat train --save`, and {message}; --rename gives tensors other names",
                path.display()
            )),
            error => checkpoint::failure(error),
        })?;
        let named = named.named(&known.names()).map_err(checkpoint::failure)?;
        Ok((named.convert(), Some(known)))
    }
}

impl ForeignArgs {
    /// Opens the checkpoint of a trained network, to evaluate the network or to generate text.
    pub fn open(&self, path: &Path) -> Result<Saved, Failure> {
        let (file, known) = self.names.open(path)?;
        let Some(known) = known else {
            if self.heads.is_some() {
                let path = path.display();
                return Err(Failure::usage(format!(
                    "{path} already contains the number of heads; drop --heads"
                )));
            }
            let kept = Kept::of(&file, path)?;
            return Ok(Saved {
                file,
                options: kept.options.clone(),
                kept: Some(kept),
                known: None,
            });
        };
        let network = ForeignNetwork::of(&known, path, self.heads)?;
        let mut args = vec!["remat".into(), "train".into(), network.model.to_string().into()];
        args.extend(network.sizes.iter().map(|(option, n)| format!("--{option}={n}").into()));
        let (_, options) = checkpoint::parse(args.into_iter(), path)?;
        Ok(Saved { file, options, kept: None, known: Some(known) })
    }
}

/// A network of another library, as options of `remat train`.
struct ForeignNetwork {
    model: Model,
    /// Options for sizes, and their values.
    sizes: Vec<(&'static str, usize)>,
}

impl ForeignNetwork {
    fn of(known: &Known, path: &Path, heads: Option<usize>) -> Result<Self, Failure> {
        let name = match *known {
            Known::Gpt2 { vocabulary, context, layers, width } => {
                let heads = of_config(path, width, heads)?;
                let sizes = [
                    ("layers", layers),
                    ("width", width),
                    ("heads", heads),
                    ("context", context),
                    ("vocabulary", vocabulary),
                ];
                return Ok(Self { model: named("gpt2"), sizes: sizes.into() });
            }
            Known::ResNet { kind: ResNet::R18, .. } => "resnet18",
            Known::ResNet { kind: ResNet::R50, .. } => "resnet50",
            Known::ResNet { kind: ResNet::Cifar { n: 3 }, .. } => "resnet20",
            Known::ResNet { kind: ResNet::Cifar { n: 5 }, .. } => "resnet32",
            Known::ResNet { kind: ResNet::Cifar { n: 18 }, .. } => "resnet110",
            Known::ResNet { kind: ResNet::Cifar { n: 200 }, .. } => "resnet1202",
            Known::DenseNet { of: DenseNet::D121, .. } => "densenet121",
            other => {
                return Err(Failure::usage(format!(
                    "{} has the tensors of {}, which `remat train` has no model for",
                    path.display(),
                    told(&other)
                )));
            }
        };
        Ok(Self { model: named(name), sizes: Vec::new() })
    }
}

fn named(model: &str) -> Model {
    Model::from_str(model, false).expect("one of the models")
}

/// Name, for messages, of a network without a model in `remat train`.
fn told(known: &Known) -> String {
    match known {
        Known::ResNet { kind: ResNet::Cifar { n }, .. } => format!("a resnet{}", 6 * n + 2),
        Known::DenseNet { of, .. } => match (of.growth, of.blocks) {
            (32, [6, 12, 32, 32]) => "torchvision's densenet169".to_owned(),
            (32, [6, 12, 48, 32]) => "torchvision's densenet201".to_owned(),
            (48, [6, 12, 36, 24]) => "torchvision's densenet161".to_owned(),
            (growth, blocks) => {
                format!("a DenseNet with blocks of {blocks:?} layers and growth {growth}")
            }
        },
        other => format!("{other:?}"),
    }
}

/// Configuration file that the transformers library writes into the folder of a GPT-2.
#[derive(Deserialize)]
struct Config {
    n_head: Option<usize>,
    activation_function: Option<String>,
    layer_norm_epsilon: Option<f32>,
    scale_attn_weights: Option<bool>,
    scale_attn_by_inverse_layer_idx: Option<bool>,
    tie_word_embeddings: Option<bool>,
}

/// Size limit of a `config.json`, in bytes.
const MOST_CONFIG: u64 = 1 << 20;

/// Number of features of an attention head in the original GPT-2.
const HEAD: usize = 64;

/// Number of attention heads of a GPT-2: the number `given`, or the number in `config.json`, or one
/// head for each [`HEAD`] features. Fails if the configuration needs a computation that this
/// crate's GPT-2 does not support, such as another activation function.
fn of_config(path: &Path, width: usize, given: Option<usize>) -> Result<usize, Failure> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let file = folder.join("config.json");
    let wrong = |what: String| Failure::usage(format!("{}: {what}", file.display()));
    let mut heads = given;
    if file.is_file() {
        let bytes = read_whole(&file, "configurations", MOST_CONFIG);
        let bytes = bytes.map_err(|error| wrong(error.to_string()))?;
        let config: Config = serde_json::from_slice(&bytes)
            .map_err(|error| wrong(format!("not a configuration of a GPT-2: {error}")))?;
        let activation = config.activation_function.as_deref().unwrap_or("gelu_new");
        if !["gelu_new", "gelu_pytorch_tanh"].contains(&activation) {
            let known = "gelu_new or gelu_pytorch_tanh";
            return Err(wrong(format!("activation_function is {activation:?}, expected {known}")));
        }
        let eps = config.layer_norm_epsilon.unwrap_or(nn::LayerNorm::EPS);
        if eps != nn::LayerNorm::EPS {
            return Err(wrong(format!("layer_norm_epsilon is {eps}, expected 1e-5")));
        }
        for (name, found, expected) in [
            ("scale_attn_weights", config.scale_attn_weights, true),
            ("scale_attn_by_inverse_layer_idx", config.scale_attn_by_inverse_layer_idx, false),
            ("tie_word_embeddings", config.tie_word_embeddings, true),
        ] {
            if let Some(found) = found.filter(|found| *found != expected) {
                return Err(wrong(format!("{name} is {found}, expected {expected}")));
            }
        }
        match (given, config.n_head) {
            (Some(given), Some(found)) if given != found => {
                return Err(wrong(format!(
                    "n_head is {found}, but --heads is {given}; drop --heads"
                )));
            }
            (None, found) => heads = found,
            _ => {}
        }
    }
    let usual = (width.is_multiple_of(HEAD)).then_some(width / HEAD);
    match heads.or(usual) {
        Some(heads) if heads > 0 && width.is_multiple_of(heads) => Ok(heads),
        Some(heads) => Err(Failure::usage(format!(
            "{} has width {width}, which is not a multiple of {heads} heads",
            path.display()
        ))),
        None => Err(Failure::usage(format!(
            "{} is a GPT-2 of width {width} without a number of heads; add --heads N, or put config.json into its \
             folder",
            path.display()
        ))),
    }
}

/// Arguments of `remat train` for a run that begins with weights of another library. The arguments
/// name the network of the file and its sizes, followed by `given`, the arguments of this command.
pub fn arguments(
    known: &Known,
    path: &Path,
    args: &TrainArgs,
    matches: &ArgMatches,
    given: &[OsString],
) -> Result<Vec<OsString>, Failure> {
    let is_given = |id: &str| checkpoint::is_given(matches, id);
    let heads = checkpoint::number(matches, "heads");
    let network = ForeignNetwork::of(known, path, heads)?;
    let model = network.model.to_string();
    let is_gpt2 = matches!(known, Known::Gpt2 { .. });
    let mut all = Vec::new();
    if is_given("model") {
        let here = args.model.to_string();
        if here != model && !(is_gpt2 && here == "gpt") {
            let path = path.display();
            let message =
                format!("the model is {here} here, but {path} is a {model}; drop the model");
            return Err(Failure::usage(message));
        }
    } else {
        all.push(model.into());
    }
    for (option, size) in network.sizes {
        match checkpoint::number(matches, option).filter(|_| is_given(option)) {
            None => all.push(format!("--{option}={size}").into()),
            Some(here) if here == size => {}
            Some(here) => {
                let path = path.display();
                return Err(Failure::usage(format!(
                    "--{option} is {here} here, but {size} in {path}; drop --{option}"
                )));
            }
        }
    }
    all.extend(given.iter().cloned());
    Ok(all)
}

impl Saved {
    /// Options of this command that replace options of the training. Only `--tokenizer` replaces an
    /// option.
    pub fn instead(&self, args: &ForeignArgs) -> Vec<(&'static str, String)> {
        let file = args.tokenizer.as_ref().map(|file| file.to_string_lossy().into_owned());
        file.map(|file| ("tokenizer", file)).into_iter().collect()
    }

    /// Whether another library wrote the checkpoint, and its network takes images.
    pub const fn takes_images(&self) -> bool {
        matches!(self.known, Some(Known::ResNet { .. } | Known::DenseNet { .. }))
    }

    /// Fails unless the file has the tensors of the task's network, with their shapes.
    pub fn fit(&self, task: &dyn Task, path: &Path) -> Result<Fit, Failure> {
        fit(&self.file, self.known.as_ref(), task, path)
    }
}

/// Fails unless a file has the tensors of the task's network, with their shapes. A network of
/// another library must also fit the task's data.
pub fn fit(
    file: &Checkpoint,
    known: Option<&Known>,
    task: &dyn Task,
    path: &Path,
) -> Result<Fit, Failure> {
    if let (
        Some(
            &Known::ResNet { channels, classes, stem, .. }
            | &Known::DenseNet { channels, classes, stem, .. },
        ),
        Some(images),
    ) = (known, task.images())
    {
        let path = path.display();
        let [c, h, w] = images.shape;
        if channels != c {
            return Err(Failure::usage(format!(
                "{path} takes images of {channels} channels, but the data has {c}; choose other --data"
            )));
        }
        if classes != images.classes {
            return Err(Failure::usage(format!(
                "{path} has {classes} classes, but the data has {}; choose other --data",
                images.classes
            )));
        }
        let is_large = [h, w].iter().all(|&side| side >= nn::LARGE_IMAGE);
        if (stem == 7) != is_large {
            let takes = if stem == 7 { "at least" } else { "less than" };
            return Err(Failure::usage(format!(
                "{path} takes images of {takes} {} pixels each way, but the data has {h}x{w}; resize images:DIR with \
                 --image-size",
                nn::LARGE_IMAGE
            )));
        }
    }
    // Make the network on a simulated device, which only counts bytes.
    let dry = Runtime::builder().budget(1u64 << 60).sim()?;
    let mut network = task.network(&dry)?;
    file.fit(network.module()).map_err(checkpoint::failure)
}

/// Prints that weights come from a file of another library, and how they were converted.
pub fn tell(file: &Checkpoint, fit: &Fit, path: &Path) {
    let path = path.display();
    say(format_args!("weights from {path}: {}", Counted(fit.tensors as u64, "tensor")));
    for conversion in &fit.conversions {
        let tensors = Counted(conversion.tensors as u64, "tensor");
        let (from, to) = (conversion.from, conversion.to);
        match conversion.rounds() {
            true => say(format_args!("{tensors} of {from} rounded to {to}")),
            false => say(format_args!("{tensors} of {from} converted to {to}, without loss")),
        }
    }
    let skipped: Vec<&str> = file.skipped().collect();
    match skipped[..] {
        [] => {}
        [name] => say(format_args!("left out: {name}")),
        [name, ..] => say(format_args!("left out: {name} and {} more", skipped.len() - 1)),
    }
}

/// Failure for a network whose tokens are not bytes, if no tokenizer is given.
pub fn needs_tokenizer(what: &dyn std::fmt::Display, vocabulary: usize) -> Failure {
    let bytes = Text::VOCABULARY;
    let vocabulary = Counted(vocabulary as u64, "token");
    Failure::usage(format!(
        "{what} has {vocabulary}, but a text without a tokenizer has {bytes} bytes; add --tokenizer tokenizer.json"
    ))
}
