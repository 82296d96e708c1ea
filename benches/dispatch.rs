//! Host time of one small op, from the call until the output is freed.
//!
//! ```text
//! caller:   apply(relu, x) -> y0, drop(y0), apply(relu, x) -> y1, drop(y1), ...   (sync at the end)
//! worker:   take, infer nothing, place, "run" on the sim device, free, ...
//! ```
//!
//! The sim device does no work, so the benchmark measures only the runtime. On the caller's thread,
//! it measures shape inference and handles. On the worker's thread, it measures the channel,
//! tables, arena and statistics.
//!
//! Memory is plentiful. The baseline has a policy that never evicts. Another row measures only the
//! channel, with messages about as large as those of the runtime. Rounds of all rows alternate. The
//! result of a row is its best round.

use remat::device::sim::Sim;
use remat::op::Outputs;
use remat::unstable::engine::{Engine, Settings};
use remat::unstable::ops::Unary;
use remat::unstable::program::{Apply, Command, Driver, TensorId};
use remat::{CostModelKind, DType, HostTensor, Layout, Op, Plan, PolicyKind, Runtime};
use remat_rng::SplitMix64;
use std::sync::Arc;
use std::time::Instant;

const OPS: u32 = 200_000;
const ROUNDS: usize = 9;

fn runtime(policy: PolicyKind) -> impl FnMut() -> f64 {
    let runtime = Runtime::builder().budget("1GiB").policy(policy).sim().expect("a sim starts");
    let x = runtime.put(HostTensor::scalar(1.0)).expect("it was just started");
    move || {
        let start = Instant::now();
        for _ in 0..OPS {
            drop(x.relu().expect("relu takes anything"));
        }
        runtime.sync().expect("nothing can fail");
        start.elapsed().as_secs_f64()
    }
}

/// Runs a chain instead of a fan: every op reads the output of the previous op, so chains of
/// compute paths grow and are freed.
fn chain(policy: PolicyKind) -> impl FnMut() -> f64 {
    let runtime = Runtime::builder().budget("1GiB").policy(policy).sim().expect("a sim starts");
    move || {
        let start = Instant::now();
        for _ in 0..OPS / 100 {
            let mut x = runtime.full(&[1], 1.0).expect("a fill takes anything");
            for _ in 1..100 {
                x = x.relu().expect("relu takes anything");
            }
        }
        runtime.sync().expect("nothing can fail");
        start.elapsed().as_secs_f64()
    }
}

/// Runs repeating steps of 2,000 ops on 64 numbers on the CPU. Each step ends with a mark.
fn steps(plan: Plan) -> impl FnMut() -> f64 {
    let builder = Runtime::builder().budget("64MiB").threads(1).plan(plan);
    let runtime = builder.cpu().expect("a CPU starts");
    let x = runtime.ones(&[64]).expect("a fill takes anything");
    runtime.commit(&x).expect("it was just started");
    move || {
        let start = Instant::now();
        for _ in 0..OPS / 2000 {
            let mut y = x.relu().expect("relu takes anything");
            for _ in 1..2000 {
                y = y.relu().expect("relu takes anything");
            }
            drop(y);
            runtime.step().expect("the runtime is there");
        }
        runtime.sync().expect("nothing can fail");
        start.elapsed().as_secs_f64()
    }
}

/// Runs steps of which every second step differs in one op: always the same op, or a random op.
fn alternating(plan: Plan, at_random: bool) -> impl FnMut() -> f64 {
    let builder = Runtime::builder().budget("64MiB").threads(1).plan(plan);
    let runtime = builder.cpu().expect("a CPU starts");
    let x = runtime.ones(&[64]).expect("a fill takes anything");
    runtime.commit(&x).expect("it was just started");
    let mut numbers = SplitMix64::new(1);
    move || {
        let start = Instant::now();
        for step in 0..OPS / 2000 {
            let other = if at_random { 1 + numbers.below(1999) } else { 1000 };
            let mut y = x.relu().expect("relu takes anything");
            for op in 1..2000 {
                let differs = step % 2 == 1 && op == other;
                y = if differs { y.abs() } else { y.relu() }.expect("both take anything");
            }
            drop(y);
            runtime.step().expect("the runtime is there");
        }
        runtime.sync().expect("nothing can fail");
        start.elapsed().as_secs_f64()
    }
}

/// Worker's share of the time: a driver on the sim device executes the steps of `steps`.
fn worker(plan: Plan) -> impl FnMut() -> f64 {
    let device = Sim::<Op, HostTensor>::cpu(64 << 20);
    let costs = CostModelKind::Flops.build();
    let engine = Engine::new(device, Settings::default(), PolicyKind::DtrEq.build(0), costs);
    let mut driver = Driver::new(engine.expect("a sim starts"));
    driver.plan_steps(plan);
    let (x, layout) = (TensorId(0), Layout::contiguous(DType::F32, [64]));
    let host = Arc::new(HostTensor::zeros(DType::F32, [64]).expect("64 numbers are not too many"));
    driver.execute(Command::Put { tensor: x, host, leaf: true });
    driver.execute(Command::Step);
    let mut next = 1;
    move || {
        let mut seconds = 0.0;
        let mut commands = Vec::new();
        for _ in 0..OPS / 2000 {
            let mut input = x;
            for _ in 0..2000 {
                let (made, outputs) = (TensorId(next), Outputs::fresh([layout]));
                let relu = Apply::new(Unary::Relu.into(), &[input][..], outputs, made);
                commands.push(Command::Apply(relu));
                commands.extend((input != x).then_some(Command::Del(input)));
                (input, next) = (made, next + 1);
            }
            commands.extend([Command::Del(input), Command::Step]);
            // Make the commands of one step at a time, so that they stay in the cache, as commands
            // from the channel do. The commands of all steps together would not fit in the cache.
            let start = Instant::now();
            commands.drain(..).for_each(|command| driver.execute(command));
            seconds += start.elapsed().as_secs_f64();
        }
        seconds
    }
}

fn bare_channel() -> impl FnMut() -> f64 {
    || {
        let (sender, receiver) = crossbeam_channel::bounded::<[u64; 56]>(1024);
        let start = Instant::now();
        let worker =
            std::thread::spawn(move || receiver.iter().map(|message| message[0]).sum::<u64>());
        for i in 0..OPS {
            sender.send([u64::from(i); 56]).expect("the worker listens");
        }
        drop(sender);
        worker.join().expect("the worker only adds");
        start.elapsed().as_secs_f64()
    }
}

/// Name of a row, and the function that runs a round and returns the seconds.
type Row = (&'static str, Box<dyn FnMut() -> f64>);

fn main() {
    let mut rows: Vec<Row> = vec![
        ("fan, none (baseline)", Box::new(runtime(PolicyKind::None))),
        ("fan, dtr-eq", Box::new(runtime(PolicyKind::DtrEq))),
        ("fan, dtr", Box::new(runtime(PolicyKind::Dtr))),
        ("chain of 100, none (baseline)", Box::new(chain(PolicyKind::None))),
        ("chain of 100, dtr-eq", Box::new(chain(PolicyKind::DtrEq))),
        ("steps of 2,000 (baseline)", Box::new(steps(Plan::Off))),
        ("steps of 2,000, by plan", Box::new(steps(Plan::Auto))),
        ("steps of two kinds (baseline)", Box::new(alternating(Plan::Off, false))),
        ("steps of two kinds, by plan", Box::new(alternating(Plan::Auto, false))),
        ("every second differs (baseline)", Box::new(alternating(Plan::Off, true))),
        ("every second differs, by plan", Box::new(alternating(Plan::Auto, true))),
        ("the worker's part (baseline)", Box::new(worker(Plan::Off))),
        ("the worker's part, by plan", Box::new(worker(Plan::Auto))),
        ("bare channel, 448 B messages", Box::new(bare_channel())),
    ];
    let mut best = vec![f64::INFINITY; rows.len()];
    for _ in 0..ROUNDS {
        for (row, best) in rows.iter_mut().zip(&mut best) {
            *best = best.min((row.1)());
        }
    }
    println!("{:32} {:>10} {:>12}", "one apply and del", "ns", "to baseline");
    let mut baseline = f64::NAN;
    for ((name, _), seconds) in rows.iter().zip(best) {
        if name.contains("baseline") {
            baseline = seconds;
        }
        println!("{name:32} {:10.0} {:12.3}", 1e9 * seconds / f64::from(OPS), seconds / baseline);
    }
}
