//! A small network that learns, through the public interface: what tests of training look at.

use super::faulty::{Faults, Faulty};
use super::rng::SplitMix64;
use remat::autograd::Tape;
use remat::device::cpu::Cpu;
use remat::nn::{Mode, Module as _, ResNet, Sequential, State, mlp, resnet, state};
use remat::ops::Op;
use remat::optim::Optimizer;
use remat::{Builder, Error, HostTensor, Runtime};
use std::sync::Arc;

/// What learns.
#[derive(Clone, Copy, Debug)]
pub enum Net {
    /// Two hidden layers.
    Mlp,
    /// Convolutions, batch norm and skips.
    Residual,
}

/// A network and its optimizer on a runtime.
pub struct Learner {
    pub runtime: Runtime,
    network: Sequential,
    optimizer: Optimizer,
}

const SHAPE: [usize; 3] = [1, 8, 8];
const CLASSES: usize = 4;

/// A runtime on the cpu that fails when it is told to.
pub fn faulty_cpu(builder: Builder, faults: &Arc<Faults>) -> Result<Runtime, Error> {
    let faults = Arc::clone(faults);
    builder.device(|bytes| Faulty::new(faults, || Cpu::<Op>::new(bytes, Some(1))))
}

/// Numbers from -1 to 1. The first of more are those of fewer.
pub fn values(n: usize, seed: u64) -> Vec<f32> {
    let hash = |i: usize| (i as u64 + 1).wrapping_mul(seed | 1).wrapping_mul(SplitMix64::STEP);
    (0..n).map(|i| (hash(i) >> 40) as f32 / (1u64 << 23) as f32 - 1.0).collect()
}

/// Images and labels that are the same for the same seed. The first of a larger batch are those of a smaller one.
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

    /// One step, and its loss.
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

    /// All parameters and buffers, and what the optimizer keeps, as bytes with names.
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
