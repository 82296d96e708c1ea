//! If memory is slightly too small for a step, the step fails after a limited amount of work. Until
//! the failure is reported, later steps run no op on the lost values.

use crate::common::cells;
use remat::evict::View;
use remat::nn::{Embedding, Gru, Linear, Lstm, State, join};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::unstable::event::Event;
use remat::{CostModelKind, Listener, Plan, PolicyKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const TOKENS: usize = 8;
const BATCH: usize = 32;
const STEPS: usize = 7;

/// Steps whose loss is read at the end. No other value is read.
const READ: [usize; 2] = [4, 6];

enum Cell {
    Gru(Gru),
    Lstm(Lstm),
}

/// Network that reads all tokens and names the first one.
struct Rememberer {
    embedding: Embedding,
    cell: Cell,
    out: Linear,
}

impl Module for Rememberer {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let x = self.embedding.forward(x, mode)?;
        let last = match &self.cell {
            Cell::Gru(gru) => gru.run(&x, None)?.1[0].clone(),
            Cell::Lstm(lstm) => lstm.run(&x, None)?.1[0].h.clone(),
        };
        self.out.forward(&last, mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.embedding.state(&join(prefix, "embedding"), found);
        match &mut self.cell {
            Cell::Gru(gru) => gru.state(&join(prefix, "cell"), found),
            Cell::Lstm(lstm) => lstm.state(&join(prefix, "cell"), found),
        }
        self.out.state(&join(prefix, "out"), found);
    }
}

/// Listener that counts failures when they happen, whether or not they are reported to the program.
#[derive(Clone, Debug, Default)]
struct Failures(Arc<AtomicU64>);

impl Listener for Failures {
    fn on(&mut self, event: &Event, _: View<'_>) {
        if matches!(event, Event::DidFail { .. }) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    gated: bool,
    length: usize,
    hidden: usize,
    marked: bool,
    policy: &'static str,
    plan: Plan,
}

/// Figures of a step.
#[derive(Clone, Debug)]
struct Step {
    ops: u64,
    again: u64,
    /// `waits`: an earlier failure is not reported yet. `fails`: an op failed in this step.
    waits: bool,
    fails: bool,
    told: Option<String>,
}

fn run(setup: Setup, budget: u64) -> Result<(Vec<Step>, u64), Error> {
    let Setup { gated, length, hidden, marked, policy, plan } = setup;
    let failures = Failures::default();
    let policy = policy.parse::<PolicyKind>().unwrap();
    let builder = Runtime::builder().budget(budget).policy(policy).plan(plan).threads(1).seed(1);
    let builder = builder.cost_model(CostModelKind::Flops).listen(failures.clone());
    let runtime = builder.cpu()?;
    let mut network = Rememberer {
        embedding: Embedding::new(&runtime, TOKENS, 16)?,
        cell: match gated {
            true => Cell::Gru(Gru::new(&runtime, 16, hidden, 1)?),
            false => Cell::Lstm(Lstm::new(&runtime, 16, hidden, 1)?),
        },
        out: Linear::new(&runtime, hidden, TOKENS)?,
    };
    let mut sgd = Optimizer::sgd(0.3, 0.9, 0.0);
    let mut steps = Vec::new();
    let mut before = runtime.stats()?;
    let (mut failed, mut waits) = (0, false);
    for step in 0..STEPS {
        let tokens = (0..BATCH * length).map(|i| ((i * 7 + step * 3) % TOKENS) as i32).collect();
        let tokens = runtime.tensor(&[BATCH, length], tokens)?;
        let first = (0..BATCH).map(|i| ((i * 7 * length + step * 3) % TOKENS) as i32).collect();
        let first = runtime.tensor(&[BATCH], first)?;
        let tape = Tape::new(&runtime);
        tape.watch(&mut network);
        let loss = network.forward(&tokens, Mode::Train)?.cross_entropy(&first)?;
        drop((tokens, first));
        sgd.minimize(tape, &loss, &mut network)?;
        if marked {
            runtime.step()?;
        }
        let told = READ.contains(&step).then(|| loss.item().err().map(|e| e.to_string())).flatten();
        let stats = runtime.stats()?;
        let now = failures.0.load(Ordering::Relaxed);
        let fails = now > failed;
        steps.push(Step {
            ops: stats.ops - before.ops,
            again: stats.recomputed_ops - before.recomputed_ops,
            waits,
            fails,
            told,
        });
        waits = (waits || fails) && !READ.contains(&step);
        (before, failed) = (stats, now);
    }
    Ok((steps, before.peak_bytes))
}

#[test]
fn a_step_that_does_not_fit_ends_after_bounded_work_and_the_next_cost_nothing() {
    let (mut given_up, mut failing, mut fitting) = (0, 0, 0);
    for (gated, length, hidden) in [(true, 12, 32), (false, 12, 16)] {
        for marked in [true, false] {
            for (policy, plan) in
                [("learned", Plan::Off), ("learned", Plan::Auto), ("dtr-eq", Plan::Off)]
            {
                let setup = Setup { gated, length, hidden, marked, policy, plan };
                let (whole, peak) = run(setup, 1 << 30).unwrap();
                let ops = whole.iter().map(|step| step.ops).max().unwrap();
                for percent in cells((28..=68).step_by(8), 2) {
                    let Ok((steps, _)) = run(setup, peak * percent / 100) else { continue };
                    let what = format!("{setup:?} at {percent} %");
                    for (number, step) in steps.iter().enumerate() {
                        let all: Vec<_> = steps.iter().map(|step| (step.ops, step.again)).collect();
                        // The limit is 64 times the ops of this step or the last one, and then one
                        // run for each later command.
                        assert!(step.again <= 80 * ops, "{what}, step {number}: {all:?}");
                        if step.waits {
                            assert_eq!(step.again, 0, "{what}, step {number}: {all:?}");
                        }
                        if let Some(told) = &step.told {
                            given_up += u64::from(told.contains("times its own"));
                        }
                    }
                    // After the failure was reported, steps run as the first step did.
                    if steps[READ[0]].told.is_some() {
                        failing += 1;
                        let [waiting, next] = [READ[0], READ[0] + 1].map(|step| steps[step].ops);
                        assert!(next > waiting, "{what}: {waiting}, then {next}");
                    } else {
                        fitting += 1;
                        assert!(steps.iter().all(|step| !step.fails), "{what}: {steps:?}");
                    }
                }
            }
        }
    }
    println!("{given_up} times given up, {failing} cells fail, {fitting} fit");
    assert!(given_up > 0 && failing > 5 && fitting > 2, "{given_up}, {failing}, {fitting}");
}
