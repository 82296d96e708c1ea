//! Steps of ResNet-20 on two ranks that are threads, over a fabric that delays each call by 1 ms.
//!
//! ```text
//! plain      backward ── sums ──────────── updates
//! delayed    backward ── sums, 1 ms a call ── updates
//! ```
//!
//! Gradients are summed while the backward pass goes on, so a step should grow by less than the sum
//! of the delays. Steps with and without delays alternate, and the results are medians. Another row
//! is one rank with two threads on the batch of both ranks. This row shows how much faster or
//! slower two ranks of one thread are.

use remat::nn::{Module, ResNet, resnet};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::unstable::collective::{Fabric, FabricError, Ranks, Threads, threads};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
/// Images of a step on each rank.
const BATCH: usize = 64;
const DELAY: Duration = Duration::from_millis(1);

/// Delays of all fabrics of a run.
#[derive(Default)]
struct Delays {
    is_on: AtomicBool,
    calls: AtomicU64,
}

/// Fabric of threads whose calls take longer if the delays are on.
#[derive(Debug)]
struct Delayed(Threads, Arc<Delays>);

impl std::fmt::Debug for Delays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("delays")
    }
}

impl Delayed {
    fn during<T>(&self, call: impl FnOnce(&Threads) -> T) -> T {
        let done = call(&self.0);
        self.1.calls.fetch_add(1, Ordering::Relaxed);
        if self.1.is_on.load(Ordering::Relaxed) {
            std::thread::sleep(DELAY);
        }
        done
    }
}

impl Fabric for Delayed {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn local(&self) -> (usize, usize) {
        self.0.local()
    }

    fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.during(|fabric| fabric.all_to_all(send, receive))
    }

    fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.during(|fabric| fabric.all_gather(send, receive))
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), FabricError> {
        self.during(|fabric| fabric.broadcast(root, bytes))
    }
}

/// Trains one step for each message, and answers.
fn train(ranks: Option<Ranks>, steps: &Receiver<()>, done: &Sender<()>) -> Result<(), Error> {
    let threads = if ranks.is_some() { 1 } else { 2 };
    let runtime = Runtime::builder().budget("2GiB").threads(threads).seed(3).cpu()?;
    let mut net = resnet(&runtime, ResNet::Cifar { n: 3 }, 3, [32, 32], 10)?;
    let mut sgd = Optimizer::sgd(0.1, 0.9, 1e-4);
    let (mut batch, mut rank) = (2 * BATCH, 0);
    if let Some(ranks) = &ranks {
        ranks.share_statistics(&runtime);
        sgd = sgd.distributed(ranks);
        (batch, rank) = (BATCH, ranks.rank());
    }
    while steps.recv().is_ok() {
        let x = runtime.full(&[batch, 3, 32, 32], 0.1 * (1 + rank) as f32)?;
        let labels = (0..batch).map(|i| (i % 10) as i32).collect();
        let labels = runtime.tensor(&[batch], labels)?;
        let tape = Tape::new(&runtime);
        tape.watch(&mut net);
        let loss = net.forward(&x.sin()?, Mode::Train)?.cross_entropy(&labels)?;
        sgd.minimize(tape, &loss, &mut net)?;
        runtime.step()?;
        runtime.sync()?;
        if done.send(()).is_err() {
            break;
        }
    }
    Ok(())
}

/// Ranks that run steps on demand.
struct Job(Vec<(Sender<()>, Receiver<()>)>);

impl Job {
    fn new(ranks: Vec<Option<Ranks>>) -> Self {
        let start = |ranks| {
            let (go, steps) = channel();
            let (done, answers) = channel();
            std::thread::spawn(move || train(ranks, &steps, &done).expect("memory is plentiful"));
            (go, answers)
        };
        Self(ranks.into_iter().map(start).collect())
    }

    fn step(&self) -> Duration {
        let start = Instant::now();
        self.0.iter().for_each(|(go, _)| go.send(()).expect("the rank runs"));
        self.0.iter().for_each(|(_, done)| done.recv().expect("the rank runs"));
        start.elapsed()
    }
}

fn median(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64()
}

fn main() {
    let delays = Arc::new(Delays::default());
    let two = threads(2).into_iter();
    let two = Job::new(two.map(|f| Some(Ranks::new(Delayed(f, Arc::clone(&delays))))).collect());
    let one = Job::new(vec![None]);
    two.step();
    one.step();
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    let mut calls = 0;
    for _ in 0..ROUNDS {
        times[0].push(two.step());
        let before = delays.calls.load(Ordering::Relaxed);
        delays.is_on.store(true, Ordering::Relaxed);
        times[1].push(two.step());
        delays.is_on.store(false, Ordering::Relaxed);
        calls = (delays.calls.load(Ordering::Relaxed) - before) / 2;
        times[2].push(one.step());
    }
    let [plain, delayed, one] = times.each_mut().map(|times| median(times));
    let added = calls as f64 * DELAY.as_secs_f64();
    println!("resnet20, {BATCH} images of 3x32x32 on each rank; medians of {ROUNDS} steps in turn");
    println!("2 ranks of 1 thread            {:8.1} ms", plain * 1e3);
    println!("  1 ms more for each of {calls} calls {:5.1} ms", delayed * 1e3);
    println!(
        "  the step grows by {:.1} % of the {:.0} ms that are added",
        100.0 * (delayed - plain) / added,
        added * 1e3
    );
    println!("1 rank of 2 threads            {:8.1} ms", one * 1e3);
    println!("  2 ranks are {:.2} times as fast", one / plain);
}
