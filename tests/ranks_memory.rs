//! Memory of a rank: what several ranks need, and recompute, beyond one rank with the same batch.
//!
//! A rank is rehearsed on a simulated device, on which collectives do not run.

use remat::evict::Learn;
use remat::nn::{Gpt, LstmSize, Module, ResNet, Vit, gpt, lstm, resnet, vit};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::tune::{Rehearsal, Rehearsed, StandIn, Trainable, Training, Tuner};
use remat::unstable::collective::{Ranks, threads};
use remat::{DType, PolicyKind};

#[derive(Clone, Copy, Debug)]
enum Net {
    ResNet20,
    Gpt,
    Vit,
    Lstm,
}

/// A training of `net`, on one of `ranks` ranks with a buffer of `buffer` bytes.
#[derive(Clone, Copy, Debug)]
struct OnRank {
    net: Net,
    ranks: usize,
    buffer: usize,
}

struct Started {
    runtime: Runtime,
    module: Box<dyn Module>,
    sgd: Optimizer,
    of: OnRank,
}

impl Net {
    fn make(self, runtime: &Runtime) -> Result<Box<dyn Module>, Error> {
        let (vocabulary, width, heads, dropout) = (256, 64, 4, 0.0);
        Ok(match self {
            Self::ResNet20 => Box::new(resnet(runtime, ResNet::Cifar { n: 3 }, 3, [16, 16], 10)?),
            Self::Gpt => {
                let size = Gpt { vocabulary, context: 64, layers: 2, width, heads, dropout };
                Box::new(gpt(runtime, &size)?)
            }
            Self::Vit => {
                let image = [3, 32, 32];
                let size = Vit { image, patch: 4, layers: 4, width, heads, classes: 10, dropout };
                Box::new(vit(runtime, &size)?)
            }
            Self::Lstm => {
                let storage = DType::F32;
                let size = LstmSize { vocabulary, width: 128, hidden: 128, layers: 2, storage };
                Box::new(lstm(runtime, size)?)
            }
        })
    }

    /// Shape of a batch, number of labels, and number of classes.
    fn batch(self) -> (&'static [usize], usize, usize) {
        match self {
            Self::ResNet20 => (&[32, 3, 16, 16], 32, 10),
            Self::Gpt => (&[8, 64], 512, 256),
            Self::Vit => (&[16, 3, 32, 32], 16, 10),
            Self::Lstm => (&[8, 48], 384, 256),
        }
    }
}

impl Trainable for OnRank {
    type Training = Started;

    fn start(&self, runtime: &Runtime) -> Result<Started, Error> {
        let mut sgd = Optimizer::sgd(0.1, 0.9, 5e-4);
        if self.ranks > 1 {
            let ranks = Ranks::with_buffer(threads(self.ranks).remove(0), self.buffer);
            ranks.share_statistics(runtime);
            sgd = sgd.distributed(&ranks);
        }
        let module = self.net.make(runtime)?;
        Ok(Started { runtime: runtime.clone(), module, sgd, of: *self })
    }
}

impl Training for Started {
    fn step(&mut self) -> Result<(), Error> {
        let Self { runtime, module, sgd, of } = self;
        let (shape, rows, classes) = of.net.batch();
        let elements = shape.iter().product();
        let tape = Tape::new(runtime);
        tape.watch(&mut **module);
        let x = match of.net {
            Net::Gpt | Net::Lstm => runtime.tensor(shape, vec![0i32; elements])?,
            Net::ResNet20 | Net::Vit => runtime.tensor(shape, vec![0f32; elements])?,
        };
        let labels = runtime.tensor(&[rows], vec![0i32; rows])?;
        let y = module.forward(&x, Mode::Train)?.reshape(&[rows, classes])?;
        drop(x);
        let loss = (y.cross_entropy(&labels)? / of.ranks as f32)?;
        drop((y, labels));
        sgd.minimize(tape, &loss, &mut **module)?;
        drop(loss);
        runtime.step()
    }
}

/// Outcome of a rehearsal without a limit, and what `measured` returns. `measured` gets the outcome
/// and the share of recomputation in any budget; `None` if the budget does not pass.
fn rehearse<T>(
    of: OnRank,
    policy: PolicyKind,
    measured: impl FnOnce(&Rehearsed, &dyn Fn(u64) -> Option<f64>) -> T,
) -> (Rehearsed, T) {
    let tuner = Tuner::new(move || Runtime::builder().policy(policy).threads(1));
    let tuner = tuner.device(StandIn::cpu(1));
    let rehearsal = Rehearsal::new(&tuner, &of).unwrap();
    let unlimited = rehearsal.unlimited().unwrap();
    let found = measured(&unlimited, &|budget| {
        let verdict = rehearsal.under(budget, None, None).unwrap();
        verdict.ok().map(|rehearsed| rehearsed.step_ratio)
    });
    (unlimited, found)
}

/// A rank passes in 1.05 times the smallest budget of one rank, plus its buffer. The buffers are the
/// defaults of the program and of the library. In half of the memory of one rank, plus the buffer, a
/// rank recomputes at most 20 % more.
#[test]
fn a_rank_needs_little_more_than_one_rank() {
    for net in [Net::ResNet20, Net::Gpt, Net::Vit, Net::Lstm] {
        for policy in [PolicyKind::Dtr, PolicyKind::Learned(Learn::Ahead)] {
            let alone = OnRank { net, ranks: 1, buffer: 0 };
            let (one, (least, half)) = rehearse(alone, policy, |unlimited, recomputed| {
                let (mut fails, mut passes) = (0, unlimited.peak_bytes * 5 / 4);
                while passes - fails > passes / 128 {
                    let budget = (fails + passes) / 2;
                    let bound = if recomputed(budget).is_some() { &mut passes } else { &mut fails };
                    *bound = budget;
                }
                (passes, recomputed(unlimited.peak_bytes / 2))
            });
            for (ranks, buffer) in [(2, 256 << 10), (3, 1 << 20)] {
                let rank = OnRank { net, ranks, buffer };
                rehearse(rank, policy, |unlimited, recomputed| {
                    // A small network has a smaller buffer.
                    let buffer = unlimited.state_bytes - one.state_bytes;
                    let passes = recomputed(least + least / 20 + buffer).is_some();
                    assert!(passes, "{rank:?} by {policy}: not in 1.05 * {least} + {buffer}");
                    let Some(half) = half else { return };
                    let found = recomputed(one.peak_bytes / 2 + buffer);
                    println!("{rank:?} by {policy}: {found:?} for {half}");
                    assert!(found.is_some_and(|found| found <= 1.2 * half), "{rank:?} by {policy}");
                });
            }
        }
    }
}
