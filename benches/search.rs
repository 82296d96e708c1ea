//! Slowdown of training steps by a search for forecasts in the background.
//!
//! ResNet-20 is trained with two threads on the CPU, in 60 % of its memory. A [`Search`] for its
//! step makes simulated runs on a third thread, with the priority of a runtime's search.
//!
//! Steps with the search and steps without it alternate in pairs, in one process. The result is the
//! median ratio of the pairs, with its 95 % confidence interval (from ranks, by the binomial
//! distribution).
//!
//! A runtime's search makes two simulated runs per step on average. In the last row, the search
//! never pauses. If all cores are busy, computing threads that wait for each other then yield to
//! the search, whatever the priority of the search.

use remat::autograd::Tape;
use remat::data::{Batches, Dataset};
use remat::nn::{Mode, Module, ResNet, Sequential, resnet};
use remat::optim::Optimizer;
use remat::trace::JsonLines;
use remat::unstable::lab::{Replay, Search, Trace};
use remat::unstable::program::{Allowance, RecordedProgram};
use remat::{HostTensor, PolicyKind, Runtime};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Instant;

const PAIRS: usize = 250;
const WARM_UP: usize = 5;

struct Training {
    runtime: Runtime,
    network: Sequential,
    sgd: Optimizer,
    images: HostTensor,
    labels: HostTensor,
}

impl Training {
    fn new(runtime: Runtime, [channels, side]: [usize; 2]) -> Self {
        let data = Dataset::synthetic([channels, side, side], 1).expect("a usual size").train;
        let (images, labels) = data.batch(Batches::new(data.len(), 64, 1).next_batch());
        let network = resnet(&runtime, ResNet::Cifar { n: 3 }, channels, [side, side], 10)
            .expect("a usual size");
        Self { runtime, network, sgd: Optimizer::sgd(0.1, 0.9, 5e-4), images, labels }
    }

    /// Seconds of a step.
    fn step(&mut self) -> f64 {
        let start = Instant::now();
        let runtime = &self.runtime;
        let images = runtime.put(self.images.clone()).expect("the runtime runs");
        let labels = runtime.put(self.labels.clone()).expect("the runtime runs");
        let tape = Tape::new(runtime);
        tape.watch(&mut self.network);
        let logits = self.network.forward(&images, Mode::Train).expect("shapes fit");
        let loss = logits.cross_entropy(&labels).expect("shapes fit");
        drop((images, labels, logits));
        self.sgd.minimize(tape, &loss, &mut self.network).expect("shapes fit");
        runtime.step().expect("the runtime runs");
        loss.item().expect("the budget suffices");
        start.elapsed().as_secs_f64()
    }
}

/// Recording of two steps, and 60 % of their peak.
fn recorded(shape: [usize; 2]) -> (RecordedProgram, u64) {
    let file = std::env::temp_dir().join(format!("remat-search-{}.jsonl", std::process::id()));
    let recorder = JsonLines::create(&file).expect("there is room for a recording");
    let runtime = Runtime::builder().record(recorder).sim().expect("a sim starts");
    let mut training = Training::new(runtime.clone(), shape);
    training.step();
    training.step();
    runtime.finish_recording().expect("there is room for a recording");
    let trace = Trace::open(&file).expect("it was just written");
    std::fs::remove_file(&file).expect("it is ours");
    (trace.program().clone(), runtime.stats().expect("the runtime runs").peak_bytes * 6 / 10)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// Number of simulated runs to make.
    Runs(u64),
    End,
}

const PAUSE: Wanted = Wanted::Runs(0);

/// Requested work of the search, and whether a simulated run is in progress.
type Switch = Arc<(Mutex<(Wanted, bool)>, Condvar)>;

/// Makes the requested runs, and begins a new search when a search has ended. Returns the number of
/// runs.
fn search(program: Arc<RecordedProgram>, budget: u64, switch: &Switch) -> u64 {
    let replay = Replay::new(PolicyKind::default(), budget);
    let begin = |seed| Search::new(Arc::clone(&program), &replay, seed).expect("a usual budget");
    let (mut search, mut before) = (begin(0), 0);
    loop {
        let mut state = switch.0.lock().expect("nobody panics");
        state.1 = false;
        switch.1.notify_all();
        let mut state = switch.1.wait_while(state, |of| of.0 == PAUSE).expect("no panic");
        match &mut state.0 {
            Wanted::Runs(runs) => *runs -= 1,
            Wanted::End => return before + search.runs(),
        }
        state.1 = true;
        drop(state);
        let mut allowance = Allowance::of_ops(u64::MAX);
        if !search.advance(&mut allowance).expect("a usual budget") {
            before += search.runs();
            search = begin(before);
        }
    }
}

/// Sets the requested work. With `PAUSE`, waits until no run is in progress.
fn set(switch: &Switch, wanted: Wanted) {
    let mut state = switch.0.lock().expect("nobody panics");
    state.0 = wanted;
    switch.1.notify_all();
    if wanted == PAUSE {
        drop(switch.1.wait_while(state, |of| of.1).expect("no panic"));
    }
}

/// Sorted ratios of pairs, median milliseconds of a step with the search paused, and simulated runs
/// per pair.
fn measure(shape: [usize; 2], a_step: u64) -> (Vec<f64>, f64, f64) {
    let (program, budget) = recorded(shape);
    let runtime = Runtime::builder().budget(budget).threads(2).cpu().expect("it starts");
    let mut training = Training::new(runtime, shape);
    let switch: Switch = Arc::new((Mutex::new((PAUSE, false)), Condvar::new()));
    let of_thread = Arc::clone(&switch);
    let thread = thread::spawn(move || {
        #[cfg(target_os = "linux")]
        rustix::process::setpriority_process(None, 19).expect("it may be lowered");
        search(Arc::new(program), budget, &of_thread)
    });
    let (mut ratios, mut paused) = (Vec::new(), Vec::new());
    for pair in 0..WARM_UP + PAIRS {
        let mut seconds = [0.0; 2];
        for on in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            set(&switch, Wanted::Runs([0, a_step][on]));
            seconds[on] = training.step();
        }
        if pair >= WARM_UP {
            ratios.push(seconds[1] / seconds[0]);
            paused.push(seconds[0]);
        }
    }
    set(&switch, Wanted::End);
    let runs = thread.join().expect("nobody panics");
    ratios.sort_by(f64::total_cmp);
    paused.sort_by(f64::total_cmp);
    (ratios, 1e3 * paused[PAIRS / 2], runs as f64 / (WARM_UP + PAIRS) as f64)
}

fn main() {
    println!("step with a search beside it, to one with the search paused: {PAIRS} pairs");
    println!("{:42} {:>10} {:>8} {:>16} {:>8}", "", "paused, ms", "ratio", "95 %", "runs");
    for (name, shape) in [("3x32x32", [3, 32]), ("1x8x8", [1, 8])] {
        for (runs, a_step) in
            [("2 runs a step", 2), ("10 runs a step", 10), ("without a pause", u64::MAX)]
        {
            let name = format!("resnet20, 64 of {name}, {runs}");
            let (ratios, ms, runs) = measure(shape, a_step);
            let half = 0.98 * (PAIRS as f64).sqrt();
            let rank = |rank: f64| ratios[rank.round() as usize];
            let middle = PAIRS as f64 / 2.0;
            println!(
                "{name:42} {ms:10.1} {:8.3} {:>16} {runs:8.1}",
                ratios[PAIRS / 2],
                format!("{:.3} to {:.3}", rank(middle - half), rank(middle + half - 1.0)),
            );
        }
    }
}
