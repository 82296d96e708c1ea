//! Networks of the library: shapes, a gradient for every parameter, and the same bits under
//! budgets. The networks are small, and activations take most of their memory.

use remat::autograd::Tape;
use remat::data::{Ring, Trees};
use remat::nn::{
    DenseNet, LstmSize, Mode, Module, State, TreeLstm, TreeLstmSize, UNet, UnrolledGan,
    UnrolledGanSize, Upsampling, densenet, densenet121, inceptionv4, lstm, parameters, state, unet,
};
use remat::optim::Optimizer;
use remat::{CostModelKind, DType, Error, Runtime, Tensor};

/// Network with its data.
trait Learner {
    fn module(&mut self) -> &mut dyn Module;

    /// Loss of a step.
    fn loss(&mut self, tape: &Tape, step: usize) -> Result<Tensor, Error>;
}

/// Network that trains on one batch in all steps.
struct Classifier {
    module: Box<dyn Module>,
    x: Tensor,
    labels: Tensor,
}

impl Learner for Classifier {
    fn module(&mut self) -> &mut dyn Module {
        &mut *self.module
    }

    fn loss(&mut self, _tape: &Tape, _step: usize) -> Result<Tensor, Error> {
        let y = self.module.forward(&self.x, Mode::Train)?;
        let classes = *y.shape().last().expect("values of classes");
        y.reshape(&[y.layout().elements() / classes, classes])?.cross_entropy(&self.labels)
    }
}

fn labels(runtime: &Runtime, count: usize, classes: usize) -> Result<Tensor, Error> {
    runtime.tensor(&[count], (0..count).map(|i| (i * 7 % classes) as i32).collect())
}

fn images(
    runtime: &Runtime,
    module: impl Module + 'static,
    shape: [usize; 4],
    classes: usize,
) -> Result<Box<dyn Learner>, Error> {
    Ok(Box::new(Classifier {
        module: Box::new(module),
        x: runtime.normal(&shape, 0.0, 1.0)?,
        labels: labels(runtime, shape[0], classes)?,
    }))
}

/// Network that predicts its own input images.
struct Pixels {
    module: Box<dyn Module>,
    x: Tensor,
}

impl Learner for Pixels {
    fn module(&mut self) -> &mut dyn Module {
        &mut *self.module
    }

    fn loss(&mut self, _tape: &Tape, _step: usize) -> Result<Tensor, Error> {
        self.module.forward(&self.x, Mode::Train)?.mse_loss(&self.x)
    }
}

struct OfTrees {
    module: TreeLstm,
    runtime: Runtime,
    trees: Trees,
}

impl Learner for OfTrees {
    fn module(&mut self) -> &mut dyn Module {
        &mut self.module
    }

    fn loss(&mut self, _tape: &Tape, step: usize) -> Result<Tensor, Error> {
        let batch = self.trees.batch(step as u64, 32);
        let tokens = self.runtime.put(batch.tokens)?;
        let labels = self.runtime.put(batch.labels)?;
        self.module.classify(&batch.tree, &tokens)?.cross_entropy(&labels)
    }
}

struct Adversaries {
    module: UnrolledGan,
    runtime: Runtime,
    ring: Ring,
}

impl Learner for Adversaries {
    fn module(&mut self) -> &mut dyn Module {
        &mut self.module
    }

    fn loss(&mut self, tape: &Tape, step: usize) -> Result<Tensor, Error> {
        let real = self.runtime.put(self.ring.batch(step as u64, 256))?;
        let z = self.runtime.normal(&[256, 16], 0.0, 1.0)?;
        Ok(self.module.loss(tape, &real, &z)?.total)
    }
}

type Build = fn(&Runtime) -> Result<Box<dyn Learner>, Error>;

const MODELS: [(&str, Build); 8] = [
    ("densenet", |runtime| {
        let of = DenseNet { growth: 6, blocks: [3, 4, 3, 2], width: 12 };
        images(runtime, densenet(runtime, of, 3, [24, 24], 10)?, [6, 3, 24, 24], 10)
    }),
    ("densenet with a large stem", |runtime| {
        let of = DenseNet { growth: 8, blocks: [4, 4, 2, 2], width: 8 };
        images(runtime, densenet(runtime, of, 1, [65, 64], 4)?, [12, 1, 65, 64], 4)
    }),
    ("unet transposed", |runtime| {
        let of = UNet { width: 4, depth: 3, up: Upsampling::Transposed };
        let module = Box::new(unet(runtime, of, 3, 3)?);
        Ok(Box::new(Pixels { module, x: runtime.normal(&[12, 3, 27, 25], 0.0, 1.0)? }))
    }),
    ("unet bilinear", |runtime| {
        let of = UNet { width: 6, depth: 2, up: Upsampling::Bilinear };
        let module = Box::new(unet(runtime, of, 1, 1)?);
        Ok(Box::new(Pixels { module, x: runtime.normal(&[12, 1, 22, 24], 0.0, 1.0)? }))
    }),
    ("inceptionv4", |runtime| {
        images(runtime, inceptionv4(runtime, 2, 1, [75, 75], 5)?, [20, 1, 75, 75], 5)
    }),
    ("lstm", |runtime| {
        let size =
            LstmSize { vocabulary: 32, width: 16, hidden: 24, layers: 3, storage: DType::F32 };
        Ok(Box::new(Classifier {
            module: Box::new(lstm(runtime, size)?),
            x: labels(runtime, 28 * 20, 32)?.reshape(&[28, 20])?,
            labels: labels(runtime, 28 * 20, 31)?,
        }))
    }),
    ("treelstm", |runtime| {
        let size =
            TreeLstmSize { vocabulary: Trees::VOCABULARY, width: 8, hidden: 24, classes: 10 };
        Ok(Box::new(OfTrees {
            module: TreeLstm::new(runtime, size)?,
            runtime: runtime.clone(),
            trees: Trees::new(3, 10..=20),
        }))
    }),
    ("unrolled gan", |runtime| {
        let size = UnrolledGanSize { latent: 16, hidden: 24, unroll: 4, ..Default::default() };
        Ok(Box::new(Adversaries {
            module: UnrolledGan::new(runtime, size)?,
            runtime: runtime.clone(),
            ring: Ring::new(1),
        }))
    }),
];

fn start(budget: u64) -> Runtime {
    let builder = Runtime::builder().budget(budget).seed(5).threads(2);
    builder.cost_model(CostModelKind::Flops).cpu().unwrap()
}

/// Trains for `steps` steps. Returns all bits of the network's state, and the peak.
fn train(build: Build, budget: u64, steps: usize) -> Result<(Vec<u32>, u64), Error> {
    let runtime = start(budget);
    let mut learner = build(&runtime)?;
    let mut sgd = Optimizer::sgd(0.05, 0.9, 1e-4);
    for step in 0..steps {
        let tape = Tape::new(&runtime);
        tape.watch(learner.module());
        let loss = learner.loss(&tape, step)?;
        sgd.minimize(tape, &loss, learner.module())?;
        assert!(loss.item()?.is_finite(), "step {step}");
        runtime.step()?;
    }
    let mut bits = Vec::new();
    for (_, state) in state(learner.module()) {
        let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
        bits.extend(tensor.to_vec::<f32>()?.iter().map(|x| x.to_bits()));
    }
    Ok((bits, runtime.stats()?.peak_bytes))
}

#[test]
fn ten_steps_have_the_same_bits_under_any_budget() {
    for (name, build) in MODELS {
        let (expected, peak) = train(build, 1 << 30, 10).unwrap();
        // An LSTM's products of all steps with the weights of a layer are one tensor, forward and
        // backward.
        let least = if name == "lstm" { 45 } else { 40 };
        for percent in [100, 60, least] {
            let budget = peak * percent / 100;
            let found = train(build, budget, 10);
            let (bits, used) = found.unwrap_or_else(|e| panic!("{name} at {percent} %: {e}"));
            assert!(bits == expected, "{name} at {percent} %");
            assert!(used <= budget, "{name}: {used} bytes of {budget}");
        }
    }
}

#[test]
fn every_parameter_has_a_gradient() {
    for (name, build) in MODELS {
        let runtime = start(1 << 30);
        let mut learner = build(&runtime).unwrap();
        let tape = Tape::new(&runtime);
        tape.watch(learner.module());
        let loss = learner.loss(&tape, 0).unwrap();
        let gradients = tape.backward(&loss).unwrap();
        for (parameter, tensor) in parameters(learner.module()) {
            let gradient = gradients.get(tensor);
            let gradient = gradient.unwrap_or_else(|| panic!("{name}: none of {parameter}"));
            let values = gradient.to_vec::<f32>().unwrap();
            assert!(values.iter().all(|x| x.is_finite()), "{name}: {parameter}");
            assert!(values.iter().any(|&x| x != 0.0), "{name}: all zero of {parameter}");
        }
    }
}

/// Entries `name: shape` of some of a module's state.
fn shapes(module: &mut dyn Module, wanted: &[&str]) -> Vec<String> {
    let all = state(module).into_iter().map(|(name, state)| {
        let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
        (name, tensor.shape().to_vec())
    });
    let found: Vec<_> = all.filter(|(name, _)| wanted.contains(&&**name)).collect();
    found.into_iter().map(|(name, shape)| format!("{name} {shape:?}")).collect()
}

fn count(module: &mut dyn Module) -> usize {
    parameters(module).map(|(_, tensor)| tensor.layout().elements()).sum()
}

/// Numbers of parameters are those of torchvision, timm and the usual U-Net.
#[test]
fn the_networks_of_the_papers() {
    let runtime = Runtime::builder().budget("1GiB").sim().unwrap();
    let mut net = densenet121(&runtime, 3, [224, 224], 1000).unwrap();
    assert_eq!(count(&mut net), 7_978_856);
    let wanted = [
        "features.conv0.weight",
        "features.denseblock3.denselayer24.conv2.weight",
        "features.transition3.conv.weight",
        "features.norm5.running_var",
        "classifier.weight",
    ];
    let found = [
        "features.conv0.weight [64, 3, 7, 7]",
        "features.denseblock3.denselayer24.conv2.weight [32, 128, 3, 3]",
        "features.transition3.conv.weight [512, 1024, 1, 1]",
        "features.norm5.running_var [1024]",
        "classifier.weight [1000, 1024]",
    ];
    assert_eq!(shapes(&mut net, &wanted), found);
    let x = runtime.zeros(&[1, 3, 224, 224]).unwrap();
    assert_eq!(*net.forward(&x, Mode::Infer).unwrap().shape(), [1, 1000]);

    let mut net = inceptionv4(&runtime, 32, 3, [299, 299], 1000).unwrap();
    assert_eq!(count(&mut net), 42_679_816);
    let wanted = ["features.4.branch1.1.conv.weight", "features.21.branch2_3b.bn.weight"];
    let found = [
        "features.4.branch1.1.conv.weight [64, 64, 1, 7]",
        "features.21.branch2_3b.bn.weight [256]",
    ];
    assert_eq!(shapes(&mut net, &wanted), found);
    let x = runtime.zeros(&[1, 3, 299, 299]).unwrap();
    assert_eq!(*net.forward(&x, Mode::Infer).unwrap().shape(), [1, 1000]);

    let mut net = unet(&runtime, UNet::default(), 3, 2).unwrap();
    assert_eq!(count(&mut net), 31_037_698);
    let wanted = ["up1.up.weight", "down4.maxpool_conv.1.double_conv.3.weight", "outc.conv.bias"];
    let found = [
        "down4.maxpool_conv.1.double_conv.3.weight [1024, 1024, 3, 3]",
        "up1.up.weight [1024, 512, 2, 2]",
        "outc.conv.bias [2]",
    ];
    assert_eq!(shapes(&mut net, &wanted), found);
    let up = Upsampling::Bilinear;
    let mut net = unet(&runtime, UNet { up, ..UNet::default() }, 3, 2).unwrap();
    assert_eq!(count(&mut net), 17_262_977 + 65);
    let x = runtime.zeros(&[1, 3, 63, 50]).unwrap();
    assert_eq!(*net.forward(&x, Mode::Infer).unwrap().shape(), [1, 2, 63, 50]);

    let size = LstmSize { vocabulary: 256, width: 64, hidden: 128, layers: 2, storage: DType::F32 };
    let mut net = lstm(&runtime, size).unwrap();
    let wanted = ["encoder.weight", "rnn.weight_hh_l1", "rnn.bias_ih_l0", "decoder.bias"];
    let found = [
        "encoder.weight [256, 64]",
        "rnn.bias_ih_l0 [512]",
        "rnn.weight_hh_l1 [512, 128]",
        "decoder.bias [256]",
    ];
    assert_eq!(shapes(&mut net, &wanted), found);
}

#[test]
fn images_that_are_too_small_are_refused() {
    let runtime = Runtime::builder().budget("64MiB").sim().unwrap();
    let Err(error) = inceptionv4(&runtime, 2, 3, [74, 299], 10) else { panic!("it has no pixels") };
    let expected = "inceptionv4: images of 74x299 pixels, expected at least 75x75: \
                    make them larger, or take another network";
    assert_eq!(error.to_string(), expected);
    let mut net =
        unet(&runtime, UNet { width: 4, depth: 3, up: Upsampling::Bilinear }, 1, 1).unwrap();
    let x = runtime.zeros(&[1, 1, 7, 8]).unwrap();
    let error = net.forward(&x, Mode::Infer).unwrap_err().to_string();
    let expected = "unet: x is f32[1, 1, 7, 8], expected height and width of at least 8, because they are halved 3 times";
    assert_eq!(error, expected);
    // The smallest images that the network takes.
    let mut net = inceptionv4(&runtime, 2, 3, [75, 75], 10).unwrap();
    let x = runtime.zeros(&[2, 3, 75, 75]).unwrap();
    assert_eq!(*net.forward(&x, Mode::Train).unwrap().shape(), [2, 10]);
}

/// The unrolled discriminator has the parameters that steps of gradient descent would give.
#[test]
fn the_steps_ahead_are_those_of_gradient_descent() {
    let runtime = start(64 << 20);
    let size = UnrolledGanSize { latent: 4, hidden: 8, unroll: 3, rate: 0.2, ..Default::default() };
    let mut gan = UnrolledGan::new(&runtime, size).unwrap();
    let real = runtime.put(Ring::new(1).batch(0, 32)).unwrap();
    let z = runtime.normal(&[32, 4], 0.0, 1.0).unwrap();
    let loss = |gan: &mut UnrolledGan| {
        let tape = Tape::new(&runtime);
        tape.watch(gan);
        let loss = gan.loss(&tape, &real, &z).unwrap();
        let found = [&loss.discriminator, &loss.generator].map(|x| x.item().unwrap());
        (found, tape.backward(&loss.total).unwrap())
    };
    let ([now, ahead], _) = loss(&mut gan);
    assert!(-ahead < now, "{ahead} after steps that begin with {now}");
    for _ in 0..3 {
        let (_, gradients) = loss(&mut gan);
        for (name, parameter) in parameters(&mut gan) {
            if name.starts_with("discriminator") {
                let step = gradients.get(parameter).unwrap().affine(-0.2, 0.0).unwrap();
                *parameter = parameter.detach().add(&step).unwrap();
            }
        }
    }
    let ([then, _], _) = loss(&mut gan);
    assert!((then + ahead).abs() < 1e-5, "{then} after steps, {ahead} foreseen");
}
