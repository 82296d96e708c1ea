//! Recordings of training on the simulated device. Nothing is computed, so large networks take no
//! longer than small ones.

use remat::autograd::Tape;
use remat::nn::{Mode, Module, ResNet, Sequential, mlp, resnet};
use remat::optim::Optimizer;
use remat::trace::JsonLines;
use remat::{Builder, DType, HostTensor, Runtime, Stats};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// Network to train.
#[derive(Clone, Copy, Debug)]
pub enum Model {
    Mlp,
    ResNet(ResNet),
}

/// Counters on which a replay must agree with its run.
pub fn counts(stats: &Stats) -> [u64; 10] {
    [
        stats.ops,
        stats.evictions,
        stats.evicted_bytes,
        stats.fake_deletes,
        stats.recomputed_ops,
        stats.recomputed_bytes,
        stats.peak_bytes,
        stats.compactions,
        stats.moved_bytes,
        stats.steps,
    ]
}

/// Text of a recording of `steps` training steps on images of 3x16x16.
pub fn record(model: Model, batch: usize, steps: usize, builder: Builder) -> Vec<u8> {
    let text = Shared::default();
    let runtime = builder.record(JsonLines::to(text.clone())).sim().unwrap();
    train(&runtime, model, batch, steps);
    runtime.finish_recording().unwrap();
    let text = text.0.lock().unwrap();
    text.clone()
}

fn train(runtime: &Runtime, model: Model, batch: usize, steps: usize) {
    let mut network: Sequential = match model {
        Model::Mlp => mlp(runtime, 3 * 16 * 16, &[200, 100], 10).unwrap(),
        Model::ResNet(kind) => resnet(runtime, kind, 3, [16, 16], 10).unwrap(),
    };
    let mut sgd = Optimizer::sgd(0.1, 0.9, 5e-4);
    for _ in 0..steps {
        let zeros = |dtype, shape: &[usize]| {
            HostTensor::zeros(dtype, remat::Dims::new(shape)).expect("a small one")
        };
        let images = runtime.put(zeros(DType::F32, &[batch, 3, 16, 16])).unwrap();
        let labels = runtime.put(zeros(DType::I32, &[batch])).unwrap();
        let tape = Tape::new(runtime);
        tape.watch(&mut network);
        let logits = network.forward(&images, Mode::Train).unwrap();
        let loss = logits.cross_entropy(&labels).unwrap();
        drop((images, labels, logits));
        sgd.minimize(tape, &loss, &mut network).unwrap();
        runtime.get(&loss).unwrap();
        drop(loss);
        runtime.step().unwrap();
    }
}

/// Bytes that another thread writes.
#[derive(Clone, Default)]
pub struct Shared(pub Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
