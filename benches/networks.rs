//! Time of a training step of four networks in f32, about 100 ms each: a U-Net, a DenseNet-121, an
//! LSTM, and a depthwise convolution.
//!
//! The baseline is PyTorch eager on the same cores in the same run (`benches/networks_pytorch.py`).
//! Set `REMAT_PYTHON` to a Python interpreter with PyTorch. Without PyTorch, the table has no
//! baseline.

use remat::autograd::Tape;
use remat::nn::{LstmSize, Mode, Module, UNet, Upsampling, densenet121, lstm, unet};
use remat::ops::Conv2d;
use remat::optim::Optimizer;
use remat::{DType, Error, Runtime, Tensor};
use std::process::Command;
use std::time::Instant;

const WARM_UP: usize = 3;
const STEPS: usize = 15;

struct Training {
    runtime: Runtime,
    network: Box<dyn Module>,
    sgd: Optimizer,
    x: Tensor,
    /// Classes. `None`: the network learns to reproduce its input.
    labels: Option<Tensor>,
}

impl Training {
    /// Seconds of a step, with the loss read back.
    fn step(&mut self) -> Result<f64, Error> {
        let start = Instant::now();
        let tape = Tape::new(&self.runtime);
        tape.watch(&mut *self.network);
        let y = self.network.forward(&self.x, Mode::Train)?;
        let loss = match &self.labels {
            Some(labels) => {
                let classes = y.shape()[y.rank() - 1];
                y.reshape(&[y.layout().elements() / classes, classes])?.cross_entropy(labels)?
            }
            None => y.mse_loss(&self.x)?,
        };
        drop(y);
        self.sgd.minimize(tape, &loss, &mut *self.network)?;
        self.runtime.step()?;
        loss.item()?;
        Ok(start.elapsed().as_secs_f64())
    }
}

/// Network of depthwise convolutions only.
struct Depthwise {
    weight: Tensor,
}

impl Module for Depthwise {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        let groups = self.weight.shape()[0];
        // Two convolutions, so that the output of the first convolution needs a gradient.
        let conv = Conv2d { groups, ..Conv2d::new([1, 1], [1, 1]) };
        x.conv2d(&self.weight, conv)?.conv2d(&self.weight, conv)
    }

    fn state<'a>(&'a mut self, _: &str, found: &mut Vec<(String, remat::nn::State<'a>)>) {
        found.push(("weight".to_owned(), remat::nn::State::Parameter(&mut self.weight)));
    }
}

fn labels(runtime: &Runtime, count: usize, classes: usize) -> Result<Option<Tensor>, Error> {
    runtime.tensor(&[count], (0..count).map(|i| (i * 7 % classes) as i32).collect()).map(Some)
}

fn training(name: &str) -> Result<Training, Error> {
    let runtime = Runtime::builder().threads(2).seed(1).cpu()?;
    let (network, x, labels): (Box<dyn Module>, _, _) = match name {
        "unet" => {
            let of = UNet { width: 16, depth: 3, up: Upsampling::Transposed };
            let network = Box::new(unet(&runtime, of, 3, 3)?);
            (network, runtime.normal(&[8, 3, 64, 64], 0.0, 1.0)?, None)
        }
        "densenet121" => {
            let network = Box::new(densenet121(&runtime, 3, [32, 32], 10)?);
            (network, runtime.normal(&[2, 3, 32, 32], 0.0, 1.0)?, labels(&runtime, 2, 10)?)
        }
        "lstm" => {
            let size = LstmSize {
                vocabulary: 256,
                width: 128,
                hidden: 128,
                layers: 2,
                storage: DType::F32,
            };
            let x = labels(&runtime, 16 * 64, 256)?.expect("labels").reshape(&[16, 64])?;
            (Box::new(lstm(&runtime, size)?), x, labels(&runtime, 16 * 64, 251)?)
        }
        _ => {
            let network = Box::new(Depthwise { weight: runtime.normal(&[64, 1, 3, 3], 0.0, 0.3)? });
            (network, runtime.normal(&[16, 64, 56, 56], 0.0, 1.0)?, None)
        }
    };
    Ok(Training { runtime, network, sgd: Optimizer::sgd(0.01, 0.9, 5e-4), x, labels })
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    1e3 * seconds[seconds.len() / 2]
}

/// Milliseconds of a step in PyTorch, if PyTorch is found.
fn pytorch(name: &str) -> Option<f64> {
    let python = std::env::var("REMAT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/networks_pytorch.py");
    let output = Command::new(python).args([script, name]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn main() -> Result<(), Error> {
    println!("{:14} {:>10} {:>12} {:>12}", "a step", "ms", "PyTorch's ms", "to PyTorch");
    for name in ["unet", "densenet121", "lstm", "depthwise"] {
        let mut training = training(name)?;
        let mut seconds = Vec::new();
        for step in 0..WARM_UP + STEPS {
            let time = training.step()?;
            if step >= WARM_UP {
                seconds.push(time);
            }
        }
        drop(training);
        let (ours, theirs) = (median(seconds), pytorch(name));
        let [theirs, ratio] = theirs.map_or(["missing".to_owned(), "-".to_owned()], |theirs| {
            [format!("{theirs:.1}"), format!("{:.2}", ours / theirs)]
        });
        println!("{name:14} {ours:10.1} {theirs:>12} {ratio:>12}");
    }
    Ok(())
}
