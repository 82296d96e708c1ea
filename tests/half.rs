//! Training with activations of `bf16`: the same bits under every budget, little more than half the memory, and it learns.

use remat::autograd::Tape;
use remat::data::{Batches, Dataset};
use remat::nn::{Mode, Module, ResNet, Sequential, mlp, parameters, resnet};
use remat::optim::Optimizer;
use remat::{DType, Error, PolicyKind, Runtime};

/// What some steps came to.
#[derive(Debug, PartialEq)]
struct Course {
    losses: Vec<u32>,
    parameters: Vec<Vec<u32>>,
}

#[derive(Clone, Copy, Debug)]
enum Model {
    Mlp,
    ResNet20,
}

impl Model {
    fn build(self, runtime: &Runtime) -> Result<Sequential, Error> {
        match self {
            Self::Mlp => mlp(runtime, 64, &[128; 6], 10),
            Self::ResNet20 => resnet(runtime, ResNet::Cifar { n: 3 }, 1, [8, 8], 10),
        }
    }
}

fn train(
    runtime: &Runtime,
    model: Model,
    storage: DType,
    batch: usize,
    steps: usize,
) -> Result<Course, Error> {
    let data = Dataset::digits().train;
    let mut network = model.build(runtime)?;
    let mut sgd = Optimizer::sgd(0.05, 0.9, 5e-4);
    let mut batches = Batches::new(data.len(), batch, 3);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let (images, labels) = data.batch(batches.next_batch());
        let x = runtime.put(images)?;
        let labels = runtime.put(labels)?;
        let tape = Tape::new(runtime);
        tape.watch(&mut network);
        let logits = network.forward(&x.cast(storage)?, Mode::Train)?;
        drop(x);
        let loss = logits.cross_entropy(&labels)?;
        drop((logits, labels));
        sgd.minimize(tape, &loss, &mut network)?;
        losses.push(loss.item()?.to_bits());
        drop(loss);
        runtime.step()?;
    }
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    let parameters = parameters(&mut network).map(|(_, p)| Ok(bits(p.to_vec::<f32>()?)));
    Ok(Course { losses, parameters: parameters.collect::<Result<_, Error>>()? })
}

/// The peak of a run without evictions.
fn peak(model: Model, storage: DType, batch: usize) -> u64 {
    let runtime = Runtime::builder().budget("1GiB").seed(1).sim().unwrap();
    train(&runtime, model, storage, batch, 2).unwrap();
    runtime.stats().unwrap().peak_bytes
}

#[test]
fn any_budget_gives_the_same_bits() {
    for (model, batch) in [(Model::Mlp, 300), (Model::ResNet20, 64), (Model::ResNet20, 33)] {
        let full = peak(model, DType::BF16, batch);
        let run = |budget: u64, policy: PolicyKind, threads: usize| {
            let builder = Runtime::builder().budget(budget).seed(1).policy(policy);
            let runtime = builder.threads(threads).cpu().unwrap();
            let course = train(&runtime, model, DType::BF16, batch, 3);
            course.map(|course| (course, runtime.stats().unwrap()))
        };
        let (expected, _) = run(full, PolicyKind::default(), 2).unwrap();
        let mut passed = 0;
        for share in [85, 70, 60, 50] {
            for (policy, threads) in [(PolicyKind::default(), 1), (PolicyKind::Lru, 2)] {
                let budget = full * share / 100;
                match run(budget, policy, threads) {
                    Ok((course, stats)) => {
                        assert_eq!(course, expected, "{model:?} {share} %");
                        assert!(stats.peak_bytes <= budget && stats.recomputed_ops > 0);
                        passed += 1;
                    }
                    Err(error) => println!("{model:?} at {share} %: {error}"),
                }
            }
        }
        assert!(passed >= 2, "{model:?}: {passed}");
    }
}

#[test]
fn activations_take_half() {
    for (model, batch) in [(Model::ResNet20, 128), (Model::ResNet20, 512), (Model::Mlp, 4096)] {
        let [full, half] = [DType::F32, DType::BF16].map(|storage| peak(model, storage, batch));
        let share = half as f64 / full as f64;
        println!("{model:?}, batch {batch}: {share:.3} of {full} bytes");
        assert!(share <= 0.6, "{model:?}, batch {batch}: {share:.3}");
    }
}

#[test]
fn it_learns_as_well() {
    let last = |storage| {
        let runtime = Runtime::builder().budget("64MiB").seed(1).cpu().unwrap();
        let course = train(&runtime, Model::ResNet20, storage, 64, 30).unwrap();
        course.losses[20..].iter().map(|&bits| f32::from_bits(bits)).sum::<f32>() / 10.0
    };
    let [full, half] = [DType::F32, DType::BF16].map(last);
    assert!(half < 1.2 && (half - full).abs() < 0.35, "{half} {full}");
}
