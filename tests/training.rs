//! Random small networks trained under a budget end with the same bits as without one: losses,
//! parameters and running statistics.

use crate::common::cases;
use crate::common::device::{Target, gpu, targets};
use crate::common::learner::values;
use crate::common::program::draw::policy;
use proptest::prelude::*;
use remat::Dead;
use remat::autograd::Tape;
use remat::ops::{BatchNormParameters, Conv2d, Pool2d};
use remat::unstable::ops::SgdMomentum;
use remat::unstable::program::TensorId;
use remat::{CostModelKind, Error, HostTensor, PolicyKind, Runtime, Tensor};

/// Layer of a network. Images stay `[4, 3, 8, 8]` throughout.
#[derive(Clone, Copy, Debug)]
enum Layer {
    /// A 3x3 convolution.
    Conv,
    Norm,
    Relu,
    Tanh,
    Dropout,
    /// Windows of 3x3 with stride 1.
    MaxPool,
    AvgPool,
    /// Adds the input of the layer before last.
    Skip,
    /// Softmax along the width, for each channel.
    Softmax,
    /// Transposed, and multiplied by a matrix.
    Matmul,
    /// Split in two halves, which swap places.
    Swap,
    /// Divided by about its largest element.
    Scale,
    Gather,
}

const SHAPE: [usize; 4] = [4, 3, 8, 8];

fn layer() -> impl Strategy<Value = Layer> {
    use Layer::*;
    prop_oneof![
        3 => Just(Conv),
        2 => Just(Norm),
        2 => Just(Relu),
        3 => prop::sample::select(vec![Tanh, Dropout, MaxPool, AvgPool, Softmax, Swap, Scale]),
        2 => Just(Skip),
        1 => Just(Matmul),
        1 => Just(Gather),
    ]
}

#[derive(Clone, Debug)]
struct Training {
    layers: Vec<Layer>,
    steps: u64,
    /// Whether each parameter is updated as soon as its gradient is complete.
    at_once: bool,
    /// Whether the end of each step is marked.
    mark: bool,
}

fn training() -> impl Strategy<Value = Training> {
    (prop::collection::vec(layer(), 2..16), 1..4u64, any::<bool>(), any::<bool>())
        .prop_map(|(layers, steps, at_once, mark)| Training { layers, steps, at_once, mark })
}

#[derive(Clone, Debug)]
struct Setup {
    /// Budget, as a share of the peak without a budget.
    part: f64,
    policy: PolicyKind,
    costs: CostModelKind,
    dead: Dead,
    threshold: Option<f64>,
    sqrt_sampling: bool,
    threads: usize,
}

fn setup() -> impl Strategy<Value = Setup> {
    (
        0.1..1.0f64,
        policy(),
        prop::sample::select(vec![
            CostModelKind::Flops,
            CostModelKind::Bytes,
            CostModelKind::Measured,
        ]),
        prop::sample::select(vec![Dead::Linger, Dead::Drop, Dead::Keep]),
        prop::option::weighted(0.25, 0.1..1.0f64),
        any::<bool>(),
        1..3usize,
    )
        .prop_map(|(part, policy, costs, dead, threshold, sqrt_sampling, threads)| Setup {
            part,
            policy,
            costs,
            dead,
            threshold,
            sqrt_sampling,
            threads,
        })
}

fn put(runtime: &Runtime, shape: &[usize], seed: u64) -> Result<Tensor, Error> {
    let shape = remat::Dims::new(shape);
    runtime.put(HostTensor::f32(shape, values(shape.elements(), seed)).unwrap())
}

struct Net {
    layers: Vec<Layer>,
    /// Parameters of each layer; the last ones are the classifier's.
    parameters: Vec<Vec<Tensor>>,
    velocities: Vec<Vec<Tensor>>,
    /// Running mean and variance of each layer that has them.
    statistics: Vec<Option<[Tensor; 2]>>,
}

impl Net {
    fn new(runtime: &Runtime, layers: &[Layer]) -> Result<Self, Error> {
        let (mut parameters, mut statistics) = (Vec::new(), Vec::new());
        for (i, layer) in layers.iter().enumerate() {
            let seed = 100 * i as u64;
            let shapes: &[&[usize]] = match layer {
                Layer::Conv => &[&[3, 3, 3, 3]],
                Layer::Norm => &[&[3], &[3]],
                Layer::Matmul => &[&[8, 8]],
                _ => &[],
            };
            let made = shapes.iter().enumerate();
            let made = made.map(|(j, shape)| put(runtime, shape, seed + j as u64));
            parameters.push(made.collect::<Result<Vec<_>, _>>()?);
            statistics.push(match layer {
                Layer::Norm => Some([runtime.full(&[3], 0.0)?, runtime.full(&[3], 1.0)?]),
                _ => None,
            });
        }
        parameters.push(vec![put(runtime, &[3, 4], 7777)?]);
        let zero = |p: &Tensor| runtime.full(p.shape(), 0.0);
        let zeros = |ps: &Vec<Tensor>| ps.iter().map(zero).collect::<Result<Vec<_>, _>>();
        let velocities = parameters.iter().map(zeros).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { layers: layers.to_vec(), parameters, velocities, statistics })
    }

    fn logits(&mut self, runtime: &Runtime, x: Tensor) -> Result<Tensor, Error> {
        let (mut before, mut x) = (x.clone(), x);
        let pool = Pool2d { kernel: [3, 3], stride: [1, 1], padding: [1, 1] };
        for (i, layer) in self.layers.iter().enumerate() {
            let parameters = &self.parameters[i];
            let y = match layer {
                Layer::Conv => {
                    let conv = Conv2d::new([1, 1], [1, 1]);
                    x.conv2d(&parameters[0], conv)?
                }
                Layer::Norm => {
                    let [running_mean, running_var] =
                        self.statistics[i].as_ref().expect("made for it");
                    let [gamma, beta] = [&parameters[0], &parameters[1]];
                    let all = BatchNormParameters { gamma, beta, running_mean, running_var };
                    let new = x.batch_norm(&all, 0.1, 1e-5)?;
                    runtime.commit(&new.running_mean)?;
                    runtime.commit(&new.running_var)?;
                    self.statistics[i] = Some([new.running_mean, new.running_var]);
                    new.y
                }
                Layer::Relu => x.relu()?,
                Layer::Tanh => x.tanh()?,
                Layer::Dropout => x.dropout(0.25)?,
                Layer::MaxPool => x.max_pool2d(pool)?,
                Layer::AvgPool => x.avg_pool2d(pool)?,
                Layer::Skip => x.add(&before)?,
                Layer::Softmax => x.softmax()?,
                Layer::Matmul => {
                    let turned = x.transpose()?;
                    turned.matmul(&parameters[0])?
                }
                Layer::Swap => {
                    let front = x.slice(1, 0..1)?;
                    let rest = x.slice(1, 1..3)?;
                    Tensor::concat(&[&rest, &front], 1)?
                }
                Layer::Scale => {
                    let top = x.square()?.max_along(&[2, 3], true)?;
                    x.div(&top.affine(1.0, 0.5)?.sqrt()?)?
                }
                Layer::Gather => {
                    let parts = [x.slice(3, 4..8)?, x.slice(3, 0..4)?];
                    let joined = Tensor::concat(&[&parts[0], &parts[1]], 3)?;
                    joined.reshape(&[12, 64])?.reshape(&SHAPE)?
                }
            };
            before = std::mem::replace(&mut x, y);
        }
        x.global_avg_pool()?.matmul(&self.parameters[self.layers.len()][0])
    }

    fn update(&mut self, runtime: &Runtime, id: TensorId, gradient: &Tensor) -> Result<(), Error> {
        let op = SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 1e-3, nesterov: false };
        let all = self.parameters.iter_mut().flatten().zip(self.velocities.iter_mut().flatten());
        for (p, v) in all {
            if p.id() == id {
                let gradient = gradient.contiguous()?;
                return runtime.update(op, &mut [p, v], &[&gradient]);
            }
        }
        panic!("a gradient of nothing");
    }
}

/// Trains a network. Returns losses, parameters, velocities and statistics.
fn train(runtime: &Runtime, training: &Training) -> Result<Vec<HostTensor>, Error> {
    let mut net = Net::new(runtime, &training.layers)?;
    let mut kept = Vec::new();
    for step in 0..training.steps {
        let x = put(runtime, &SHAPE, 31 * step + 5)?;
        let labels = runtime.put(HostTensor::i32([4], vec![step as i32 % 4, 3, 0, 1]).unwrap())?;
        let tape = Tape::new(runtime);
        net.parameters.iter_mut().flatten().for_each(|p| tape.watch(p));
        let logits = net.logits(runtime, x)?;
        let loss = logits.cross_entropy(&labels)?;
        drop((logits, labels));
        if training.at_once {
            tape.backward_with(&loss, |id, gradient| net.update(runtime, id, &gradient))?;
        } else {
            let mut gradients = tape.backward(&loss)?;
            let parameters: Vec<Tensor> = net.parameters.iter().flatten().cloned().collect();
            for p in parameters {
                if let Some(gradient) = gradients.take(&p) {
                    let id = p.id();
                    drop(p);
                    net.update(runtime, id, &gradient)?;
                }
            }
        }
        kept.push(loss);
        if training.mark {
            runtime.step()?;
        }
    }
    kept.extend(net.parameters.into_iter().flatten());
    kept.extend(net.velocities.into_iter().flatten());
    kept.extend(net.statistics.into_iter().flatten().flatten());
    let read = kept.iter().map(|t| runtime.get(t)).collect::<Result<_, _>>()?;
    runtime.sync()?;
    Ok(read)
}

fn tight(target: Target, budget: u64, setup: &Setup) -> Runtime {
    let mut builder = Runtime::builder()
        .budget(budget)
        .policy(setup.policy)
        .cost_model(setup.costs)
        .dead(setup.dead)
        .sqrt_sampling(setup.sqrt_sampling)
        .threads(setup.threads);
    if let Some(part) = setup.threshold {
        builder = builder.eviction_threshold((budget as f64 * part) as u64);
    }
    target.start(builder)
}

/// Trains without a budget, and under a budget that is raised until it suffices. Returns the
/// sufficient budget as a share of the peak.
fn compare(target: Target, training: &Training, setup: &Setup) -> Result<f64, TestCaseError> {
    let free = target.start(Runtime::builder().budget("64MiB").threads(1));
    let expected = train(&free, training).unwrap();
    let all = free.stats().unwrap();
    prop_assert_eq!(all.evictions, 0);
    let mut budget = (all.peak_bytes as f64 * setup.part) as u64;
    loop {
        let tight = tight(target, budget, setup);
        let found = match train(&tight, training) {
            Ok(found) => found,
            Err(Error::OutOfMemory(e)) => {
                prop_assert_eq!(e.budget, budget);
                let enough = budget >= all.peak_bytes && setup.threshold.is_none();
                prop_assert!(!enough, "as much as without a budget is not enough: {}", e);
                budget = (budget + budget / 20).max(e.op_needed());
                continue;
            }
            // The budget is so small that regeneration would not end.
            Err(Error::Regeneration(_)) if budget < all.peak_bytes => {
                budget += budget / 20;
                continue;
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            prop_assert_eq!(found.shape(), expected.shape());
            prop_assert_eq!(found.as_bytes(), expected.as_bytes(), "number {}", i);
        }
        prop_assert!(tight.stats().unwrap().peak_bytes <= budget);
        return Ok(budget as f64 / all.peak_bytes as f64);
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn a_net_trained_under_a_budget_ends_with_the_same_bits(
        training in training(),
        setup in setup(),
    ) {
        compare(Target::Cpu, &training, &setup)?;
    }
}

proptest! {
    // Runs on a GPU differ only in their kernels, and in that the device runs asynchronously, so
    // few cases are drawn.
    #![proptest_config(cases(20))]

    #[test]
    fn a_net_trained_on_a_gpu_does_so_too(training in training(), setup in setup()) {
        if let Some(target) = gpu() {
            compare(target, &training, &setup)?;
        }
    }
}

/// Most runs of the test above must not end in errors, so this budget must suffice.
#[test]
fn a_good_part_of_the_memory_is_enough_for_a_deep_net() {
    use Layer::*;
    let block = [Conv, Norm, Relu, Conv, Norm, Skip, Relu, Dropout];
    let training = Training { layers: block.repeat(3), steps: 3, at_once: true, mark: true };
    let all = targets().into_iter().flat_map(|t| PolicyKind::all().map(move |p| (t, p)));
    for (target, policy) in all {
        for dead in [Dead::Linger, Dead::Drop, Dead::Keep] {
            let setup = Setup {
                part: 0.6,
                policy,
                costs: CostModelKind::Flops,
                dead,
                threshold: None,
                sqrt_sampling: false,
                threads: 2,
            };
            let part = compare(target, &training, &setup).unwrap();
            assert!(part <= 0.6, "{policy} needs {part} of the memory on {target:?}");
        }
    }
}
