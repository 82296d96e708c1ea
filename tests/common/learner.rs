//! Small network that is trained through the public interface, for tests of training.

use super::faulty::{Faults, Faulty};
use remat::autograd::Tape;
use remat::device::cpu::Cpu;
use remat::nn::{Mode, Module as _, ResNet, Sequential, State, mlp, resnet, state};
use remat::ops::Op;
use remat::optim::Optimizer;
use remat::{Builder, Error, HostTensor, Runtime};
use remat_rng::SplitMix64;
use std::sync::Arc;

/// Network of a [`Learner`].
#[derive(Clone, Copy, Debug)]
pub enum Net {
    /// Two hidden layers.
    Mlp,
    /// Convolutions, batch norm and skip connections.
    Residual,
}

/// Network and its optimizer on a runtime.
pub struct Learner {
    pub runtime: Runtime,
    network: Sequential,
    optimizer: Optimizer,
}

const SHAPE: [usize; 3] = [1, 8, 8];
const CLASSES: usize = 4;

/// Runtime on the cpu that fails as `faults` say.
pub fn faulty_cpu(builder: Builder, faults: &Arc<Faults>) -> Result<Runtime, Error> {
    let faults = Arc::clone(faults);
    builder.device(|bytes| Faulty::new(faults, || Cpu::<Op>::new(bytes, Some(1))))
}

/// `n` numbers from -1 to 1. A longer list begins with the numbers of a shorter one.
pub fn values(n: usize, seed: u64) -> Vec<f32> {
    let hash = |i: usize| (i as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(SplitMix64::STEP);
    (0..n).map(|i| (hash(i) >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
}

/// Images and labels drawn from `seed`. A larger batch begins with the images of a smaller one.
pub fn batch(size: usize, seed: u64) -> (HostTensor, HostTensor) {
    let [c, h, w] = SHAPE;
    let images = values(size * c * h * w, seed);
    let labels = (0..size).map(|i| ((i as u64 + seed) % CLASSES as u64) as i32).collect();
    (HostTensor::f32([size, c, h, w], images).unwrap(), HostTensor::i32([size], labels).unwrap())
}

impl Learner {
    pub fn new(runtime: Runtime, net: Net, all_or_none: bool) -> Result<Self, Error> {
        let network = match net {
            Net::Mlp => mlp(&runtime, SHAPE.iter().product(), &[16, 16], CLASSES)?,
            Net::Residual => {
                resnet(&runtime, ResNet::Cifar { n: 1 }, SHAPE[0], [SHAPE[1], SHAPE[2]], CLASSES)?
            }
        };
        let mut optimizer = Optimizer::sgd(0.1, 0.9, 1e-3);
        optimizer.all_or_none = all_or_none;
        Ok(Self { runtime, network, optimizer })
    }

    /// Runs a training step and returns the loss.
    pub fn step(&mut self, (images, labels): (HostTensor, HostTensor)) -> Result<f32, Error> {
        let runtime = &self.runtime;
        let tape = Tape::new(runtime);
        tape.watch(&mut self.network);
        let x = runtime.put(images)?;
        let logits = self.network.forward(&x, Mode::Train)?;
        let labels = runtime.put(labels)?;
        let loss = logits.cross_entropy(&labels)?;
        drop((x, logits, labels));
        self.optimizer.minimize(tape, &loss, &mut self.network)?;
        let loss = loss.item()?;
        runtime.step()?;
        Ok(loss)
    }

    /// Names and bytes of all parameters, buffers and values that the optimizer keeps.
    pub fn bits(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        for (name, state) in state(&mut self.network) {
            let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
            let value = self.runtime.get(tensor).unwrap_or_else(|e| panic!("{name}: {e}"));
            found.push((name, value.as_bytes().to_vec()));
        }
        for (name, state, tensor) in self.optimizer.states() {
            let value = self.runtime.get(tensor).unwrap_or_else(|e| panic!("{name}: {e}"));
            found.push((format!("{name}, {state}"), value.as_bytes().to_vec()));
        }
        found
    }
}
