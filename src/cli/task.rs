//! Training tasks. A task has a network, data to learn from, and a score.

pub mod denoise;
pub mod images;
pub mod ring;
pub mod text;
pub mod trees;

use super::failure::Failure;
use super::machine::Machine;
use remat::autograd::Tape;
use remat::data::{Images, Ring, Tree};
use remat::nn::{Mode, Module};
use remat::{ByteSize, DType, Error, HostTensor, Runtime, Tensor};
use std::ops::Range;
use std::sync::Arc;

/// A training task: a data set, and the kind of network that learns from it.
pub trait Task: Sync {
    /// Name of an example: `image`, `window`.
    fn example(&self) -> &'static str;

    /// Number of examples to learn from.
    fn examples(&self) -> usize;

    /// Number of examples to test on.
    fn tests(&self) -> usize;

    /// Remarks for the user on unusual data that is not an error.
    fn remarks(&self) -> &[String] {
        &[]
    }

    /// Makes a fresh network.
    fn network(&self, runtime: &Runtime) -> Result<Box<dyn Network>, Error>;

    /// A batch of the examples to learn from.
    fn batch(&self, part: &Part<'_>) -> Batch;

    /// A batch of the examples to test on.
    fn test_batch(&self, indices: &[usize]) -> Batch;

    /// Text of a score.
    fn tell(&self, score: &Score) -> String {
        format!("{:.2} % right, loss {:.4}", 100.0 * score.accuracy(), score.mean_loss())
    }

    /// Images to learn from, if the task is to classify images.
    fn images(&self) -> Option<&Images> {
        None
    }

    /// A blank batch of `n` examples, for rehearsals: the shapes are right, and the values do not
    /// matter.
    fn blank(&self, n: usize) -> Result<Batch, Failure>;
}

/// Part of a step: some or all of the step's examples. Random numbers for an example depend on the
/// step and on the example's position in the step. Therefore results do not depend on the number of
/// parts.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    step: usize,
    /// Indices of all examples of the step.
    all: &'a [usize],
    /// Positions of the part's examples in `all`.
    range: Range<usize>,
}

impl<'a> Part<'a> {
    /// All examples of a step.
    pub const fn whole(all: &'a [usize], step: usize) -> Self {
        Self { step, all, range: 0..all.len() }
    }

    /// Some examples of a step.
    pub const fn new(all: &'a [usize], range: Range<usize>, step: usize) -> Self {
        Self { step, all, range }
    }

    fn indices(&self) -> &'a [usize] {
        &self.all[self.range.clone()]
    }

    /// Position in the step of the part's first example.
    const fn first(&self) -> usize {
        self.range.start
    }

    /// Name of the step's random numbers.
    fn draw(&self) -> Draw {
        Draw::Step(self.step, self.all.first().copied().unwrap_or(0))
    }
}

/// Examples for the network to process together.
#[derive(Clone, Debug)]
pub struct Batch {
    pub inputs: Arc<HostTensor>,
    /// Expected results: a class for each row of the network's output. Some tasks have other
    /// results than classes, such as the clean images of denoising.
    pub labels: Arc<HostTensor>,
    /// Shape of the examples, if they are trees.
    pub tree: Option<Arc<Tree>>,
}

impl Batch {
    fn new((inputs, labels): (HostTensor, HostTensor)) -> Self {
        Self { inputs: Arc::new(inputs), labels: Arc::new(labels), tree: None }
    }
}

/// A model to train on batches.
pub trait Network: Send {
    /// Module with the parameters.
    fn module(&mut self) -> &mut dyn Module;

    /// Mean loss of a batch, recorded by `tape`, which watches the module's parameters. Every
    /// handle is dropped as soon as the last op that reads its tensor is issued.
    fn loss(&mut self, runtime: &Runtime, tape: &Tape, batch: Batch) -> Result<Tensor, Error>;

    /// Score on a batch.
    fn score(&mut self, runtime: &Runtime, batch: Batch) -> Result<Score, Error>;
}

/// A network that gives a value for each class, for each input.
pub struct Classifier {
    pub module: Box<dyn Module>,
    /// Type to which float inputs are converted. Activations have this type, too.
    pub storage: DType,
    /// Name of the inputs in messages.
    pub inputs: &'static str,
}

/// Results of a network on some examples.
#[derive(Clone, Copy, Debug, Default)]
pub struct Score {
    /// Number of right predictions.
    pub right: usize,
    pub predictions: usize,
    /// Sum of the losses of all predictions. For classes, a loss is the cross entropy in nats. The
    /// sum is NaN or infinite if an output of the network is NaN or infinite.
    pub loss: f64,
    /// Bit `i` is set if the generator made a point near Gaussian number `i`. Only the ring task
    /// sets bits.
    pub modes: u64,
}

impl Network for Classifier {
    fn module(&mut self) -> &mut dyn Module {
        &mut *self.module
    }

    fn loss(&mut self, runtime: &Runtime, _tape: &Tape, batch: Batch) -> Result<Tensor, Error> {
        let logits = self.logits(runtime, batch.inputs, Mode::Train)?;
        let labels = runtime.put(batch.labels)?;
        runtime.label(&labels, "labels")?;
        logits.cross_entropy(&labels)
    }

    fn score(&mut self, runtime: &Runtime, batch: Batch) -> Result<Score, Error> {
        let logits = self.logits(runtime, batch.inputs, Mode::Infer)?;
        Ok(Score::of(&runtime.get(&logits)?, &batch.labels))
    }
}

impl Classifier {
    /// Output of the network for `n` inputs: logits `[n, classes]`.
    fn logits(
        &mut self,
        runtime: &Runtime,
        inputs: Arc<HostTensor>,
        mode: Mode,
    ) -> Result<Tensor, Error> {
        let mut x = runtime.put(inputs)?;
        runtime.label(&x, self.inputs)?;
        if x.dtype() == DType::F32 {
            x = x.cast(self.storage)?;
        }
        let logits = self.module.forward(&x, mode)?.cast(DType::F32)?;
        drop(x);
        match *logits.shape() {
            [.., classes] if logits.rank() != 2 => {
                logits.reshape(&[logits.layout().elements() / classes.max(1), classes])
            }
            _ => Ok(logits),
        }
    }
}

impl Score {
    /// Score of logits `[n, classes]`, given the right class of each row.
    fn of(logits: &HostTensor, labels: &HostTensor) -> Self {
        let classes = logits.shape().last().map_or(1, |&classes| classes.max(1));
        let rows = logits.as_f32().expect("logits are floats").chunks(classes);
        let labels = labels.as_i32().expect("labels are integers");
        let mut score = Self::default();
        for (row, &label) in rows.zip(labels) {
            score.right += usize::from(largest(row) == label as usize);
            score.predictions += 1;
            score.loss += cross_entropy(row, label as usize);
        }
        score
    }

    pub fn add(&mut self, other: Self) {
        self.right += other.right;
        self.predictions += other.predictions;
        self.loss += other.loss;
        self.modes |= other.modes;
    }

    /// Share of right predictions.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.predictions as f64
    }

    /// Mean loss: for classes, the cross entropy in nats.
    pub fn mean_loss(&self) -> f64 {
        self.loss / self.predictions as f64
    }
}

/// Purpose of random numbers. No two purposes get the same random numbers.
#[derive(Clone, Copy)]
enum Draw {
    /// A step, and the index of its first example.
    Step(usize, usize),
    /// A test, by the index of its first example.
    Test(usize),
}

impl Draw {
    /// The purpose as a number, for the random generator.
    fn number(self) -> u64 {
        match self {
            Self::Step(step, first) => ((step as u64) << 32) ^ first as u64,
            Self::Test(first) => !(first as u64),
        }
    }
}

/// Normally distributed random numbers of mean 0 and variance 1, at positions `start..end` of the
/// sequence that `draw` names.
fn gaussians(seed: u64, draw: Draw, Range { start, end }: Range<usize>) -> Vec<f32> {
    // A ring with a single Gaussian at the origin gives points. The two coordinates of a point are
    // two of the numbers.
    let points = Ring { modes: 1, radius: 0.0, deviation: 1.0, seed };
    let first = start / 2;
    let points = points.batch_from(first, draw.number(), end.div_ceil(2) - first);
    points.as_f32().expect("points are floats")[start - 2 * first..end - 2 * first].to_vec()
}

/// Error of a batch that is too large for the host's memory. `what` names the number and the size
/// of the batch's examples.
fn batch_too_large(what: &str, bytes: u128) -> Failure {
    let size =
        u64::try_from(bytes).map_or_else(|_| format!("{bytes} B"), |b| ByteSize(b).to_string());
    let room = match Machine::look().memory_bytes {
        0 => "more than this machine can allocate".to_owned(),
        memory => format!("more than the {} of this machine", ByteSize(memory)),
    };
    Failure::usage(format!("a batch of {what} takes {size}, {room}; lower --batch"))
}

/// Position of the largest value; the first on a tie.
fn largest(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best })
}

/// Cross entropy of one prediction: `ln sum e^row - row[label]`, in double precision.
fn cross_entropy(row: &[f32], label: usize) -> f64 {
    let most = row.iter().fold(f64::NEG_INFINITY, |most, &x| most.max(x.into()));
    let sum: f64 = row.iter().map(|&x| (f64::from(x) - most).exp()).sum();
    most + sum.ln() - f64::from(row[label])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command::{Cli, Command};
    use crate::cli::train::task;
    use clap::Parser as _;
    use std::fs;
    use std::path::Path;

    /// Writes files of each kind of data into a folder. Returns the options that read the data.
    fn files(folder: &Path) -> [String; 3] {
        fs::create_dir_all(folder.join("idx")).unwrap();
        for (part, count) in [("train", 30u8), ("t10k", 2)] {
            let path = |kind: &str| folder.join("idx").join(format!("{part}-{kind}-ubyte"));
            let pixels = (0..count as usize * 12).map(|i| (i * i % 251) as u8);
            let header = [0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 4, 0, 0, 0, 3];
            fs::write(path("images-idx3"), header.into_iter().chain(pixels).collect::<Vec<_>>())
                .unwrap();
            let labels = [0, 0, 8, 1, 0, 0, 0, count].into_iter().chain((0..count).map(|i| i % 3));
            fs::write(path("labels-idx1"), labels.collect::<Vec<_>>()).unwrap();
        }
        for class in ["a", "b"] {
            fs::create_dir_all(folder.join("images").join(class)).unwrap();
            for i in 0..20u8 {
                let pixel = |x: u32, y: u32| image::Rgb([i * 9, (x * 40) as u8, (y * 30) as u8]);
                let path = folder.join("images").join(class).join(format!("{i:02}.png"));
                image::RgbImage::from_fn(5, 4, pixel).save(path).unwrap();
            }
        }
        let text: String = (0..3000).map(|i| char::from(b' ' + (i * i % 90) as u8)).collect();
        fs::write(folder.join("text"), text).unwrap();
        let folder = folder.display();
        [
            format!("mlp --data idx:{folder}/idx --random-crop 2 --random-flip"),
            format!("resnet20 --data images:{folder}/images --random-crop 1"),
            format!("lstm --data text:{folder}/text --context 20"),
        ]
    }

    /// Bytes of the input and of the label, for each example of a batch.
    fn examples(batch: &Batch, n: usize) -> Vec<[Vec<u8>; 2]> {
        let [inputs, labels] = [&batch.inputs, &batch.labels].map(|host| host.as_bytes());
        let of = |all: &[u8], i: usize| {
            // A batch of trees has a row for each node. A row has one word for each tree.
            let words = all.chunks(4).enumerate();
            let is_own = |j: usize| match &batch.tree {
                Some(_) => j % n == i,
                None => j / (all.len() / 4 / n) == i,
            };
            words.filter(|(j, _)| is_own(*j)).flat_map(|(_, word)| word.to_vec()).collect()
        };
        (0..n).map(|i| [of(inputs, i), of(labels, i)]).collect()
    }

    /// A step has the same examples, with the same crops, mirroring and random numbers, whatever
    /// the number of parts.
    #[test]
    fn parts_of_a_step_are_as_those_of_one_batch() {
        let folder = std::env::temp_dir().join(format!("remat-parts-{}", std::process::id()));
        let made_up = [
            "mlp --random-crop 2 --random-flip",
            "vit --data synthetic:3x9x7 --random-flip",
            "gpt --context 16",
            "unet",
            "unet --data synthetic:1x5x3",
            "treelstm",
            "unrolled-gan",
        ];
        for options in made_up.map(str::to_owned).into_iter().chain(files(&folder)) {
            let args = ["remat", "train"].into_iter().chain(options.split_whitespace());
            let Some(Command::Train(args)) = Cli::parse_from(args).command else { panic!() };
            let task = task(&args).unwrap_or_else(|e| panic!("{options}: {e:?}"));
            let all: Vec<usize> = (0..12).map(|i| (7 * i + 3) % task.examples()).collect();
            for step in [0, 5] {
                let whole = task.batch(&Part::whole(&all, step));
                let expected = examples(&whole, all.len());
                for parts in [2, 3, 12] {
                    let n = all.len() / parts;
                    for (part, expected) in expected.chunks(n).enumerate() {
                        let batch = task.batch(&Part::new(&all, part * n..(part + 1) * n, step));
                        assert_eq!(batch.tree, whole.tree, "{options}");
                        let what = format!("{options}, step {step}, part {part} of {parts}");
                        assert!(examples(&batch, n) == expected, "{what}");
                    }
                }
            }
            let [first, second] = [0, 1].map(|step| task.batch(&Part::whole(&all, step)).inputs);
            let is_drawn = !options.contains("vit") || options.contains("flip");
            assert_eq!(first != second, is_drawn, "{options}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn losses_are_those_of_the_softmax() {
        assert!((cross_entropy(&[0.0; 4], 2) - 4f64.ln()).abs() < 1e-12);
        assert!((cross_entropy(&[1000.0, 0.0], 1) - 1000.0).abs() < 1e-9);
        assert!(cross_entropy(&[1000.0, 0.0], 0).abs() < 1e-9);
        assert!(!cross_entropy(&[f32::NAN, 0.0], 0).is_finite());
        assert!(!cross_entropy(&[f32::INFINITY, 0.0], 0).is_finite());
        assert_eq!((largest(&[1.0, 3.0, 3.0]), largest(&[2.0])), (1, 0));
    }

    #[test]
    fn draws_are_gaussian_and_differ_by_step_and_place() {
        let all = gaussians(1, Draw::Step(3, 5), 0..10_001);
        let mean = all.iter().map(|&x| f64::from(x)).sum::<f64>() / 10_001.0;
        let variance = all.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 10_001.0;
        assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        for other in [Draw::Step(4, 5), Draw::Step(3, 6), Draw::Test(3), Draw::Test(5)] {
            assert_ne!(gaussians(1, other, 0..4), all[..4]);
        }
        for part in [0..4, 3..3, 3..8, 4..7, 9_999..10_001] {
            assert_eq!(gaussians(1, Draw::Step(3, 5), part.clone()), all[part]);
        }
    }
}
