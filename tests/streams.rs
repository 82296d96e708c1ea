//! On loops of another framework, a run with predictions of its steps never recomputes more than a
//! run without. Each step of these loops makes new parameters and drops the old ones.

use crate::common::torch::{Optimizer, Param, Sent, T, Torch, Var};
use remat::device::sim::{Sim, Speed};
use remat::unstable::engine::{Engine, Settings};
use remat::unstable::program::{Driver, RecordedOp};
use remat::{CostModelKind, Layout, PolicyKind, RecomputeLimit};

/// Limit on the recomputed work, as a multiple of a run's own work.
const MOST: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    Mlp,
    Lstm,
    Gru,
    Transformer,
    Cnn,
}

/// Training loop: a model, rows per batch, number of batches that repeat, and whether steps are
/// marked.
#[derive(Clone, Copy, Debug)]
struct Loop {
    model: Model,
    rows: usize,
    batches: usize,
    marked: bool,
}

impl Model {
    /// Elements of each parameter.
    fn elements(self) -> Vec<usize> {
        match self {
            Self::Mlp => (0..8).flat_map(|_| [256 * 256, 256]).chain([2560, 10]).collect(),
            Self::Lstm => vec![
                64 * 128,
                128 * 512,
                512,
                128 * 512,
                512,
                128 * 512,
                512,
                128 * 512,
                512,
                8192,
                64,
            ],
            Self::Gru => vec![64 * 128, 128 * 384, 384, 128 * 384, 384, 8192, 64],
            Self::Transformer => {
                let block = [
                    128,
                    128,
                    128 * 384,
                    384,
                    128 * 128,
                    128,
                    128,
                    128,
                    128 * 512,
                    512,
                    512 * 128,
                    128,
                ];
                [512 * 128]
                    .into_iter()
                    .chain((0..2).flat_map(|_| block))
                    .chain([128 * 512, 512])
                    .collect()
            }
            Self::Cnn => [3 * 288, 64]
                .into_iter()
                .chain((0..8).flat_map(|_| [9216, 64]))
                .chain([320, 10])
                .collect(),
        }
    }

    fn params(self, torch: &mut Torch) -> Vec<Param> {
        self.elements().into_iter().map(|elements| torch.param(elements)).collect()
    }

    /// Bytes of the parameters and the optimizer's state.
    fn kept_bytes(self) -> u64 {
        let copies = if self.optimizer() == Optimizer::Adam { 3 } else { 2 };
        4 * copies * self.elements().iter().sum::<usize>() as u64
    }

    fn optimizer(self) -> Optimizer {
        if self == Self::Cnn { Optimizer::Momentum } else { Optimizer::Adam }
    }

    /// Bytes of a batch, and of its labels.
    fn batch(self, rows: usize) -> [usize; 2] {
        match self {
            Self::Mlp => [rows * 1024, rows * 8],
            Self::Lstm | Self::Gru => [rows * 96, rows * 96],
            Self::Transformer => [rows * 512, rows * 512],
            Self::Cnn => [rows * 3 * 16 * 16 * 4, rows * 8],
        }
    }

    fn loss(self, torch: &mut Torch, params: &[Param], rows: usize, [x, labels]: &[T; 2]) -> Var {
        let p = |at: usize| &params[at].var;
        let mut x = torch.var(x.clone());
        match self {
            Self::Mlp => {
                for layer in 0..8 {
                    let (w, b) = (p(2 * layer), p(2 * layer + 1));
                    x = torch.linear(&x, (w, b), [rows, 256, 256], layer == 0);
                    x = torch.unary("tanh", &x, true);
                    x = torch.dropout(&x);
                }
                x = torch.linear(&x, (p(16), p(17)), [rows, 256, 10], false);
            }
            Self::Lstm | Self::Gru => {
                let (steps, d) = (12, 128);
                let bytes = 4 * rows * d;
                x = torch.general(
                    "embedding",
                    0.0,
                    &[p(0), &x],
                    &[steps * bytes],
                    (&[&x], false),
                    &[p(0)],
                );
                let mut at = 1;
                for layer in 0..if self == Self::Lstm { 2 } else { 1 } {
                    let gates = if self == Self::Lstm { 4 } else { 3 };
                    let all =
                        torch.linear(&x, (p(at), p(at + 1)), [steps * rows, d, gates * d], false);
                    let own = torch.chunk(&all, steps);
                    drop(all);
                    let zeros = torch.op("zeros", 0.0, &[], &[bytes, bytes]);
                    let [mut h, mut c] =
                        [0, 1].map(|at: usize| zeros[at].clone()).map(|t| torch.var(t));
                    drop(zeros);
                    let mut made = Vec::new();
                    for own in own {
                        let mine =
                            torch.linear(&h, (p(at + 2), p(at + 3)), [rows, d, gates * d], false);
                        if self == Self::Lstm {
                            let gates = torch.add_to(mine, &own);
                            let mut parts = torch.chunk(&gates, 4).into_iter();
                            drop(gates);
                            let mut next = |torch: &mut Torch, name| {
                                torch.in_place(name, parts.next().unwrap())
                            };
                            let i = next(torch, "sigmoid_");
                            let f = next(torch, "sigmoid_");
                            let g = next(torch, "tanh_");
                            let o = next(torch, "sigmoid_");
                            let kept = torch.mul(&f, &c);
                            let new = torch.mul(&i, &g);
                            c = torch.add_to(kept, &new);
                            let out = torch.unary("tanh", &c, true);
                            h = torch.mul(&o, &out);
                        } else {
                            let theirs = torch.chunk(&own, 3);
                            let mut parts = torch.chunk(&mine, 3).into_iter();
                            drop((mine, own));
                            let r = torch.add_to(parts.next().unwrap(), &theirs[0]);
                            let r = torch.in_place("sigmoid_", r);
                            let z = torch.add_to(parts.next().unwrap(), &theirs[1]);
                            let z = torch.in_place("sigmoid_", z);
                            let n = torch.mul(&parts.next().unwrap(), &r);
                            let n = torch.add_to(n, &theirs[2]);
                            let n = torch.in_place("tanh_", n);
                            let moved = torch.add(&h, &n);
                            let moved = torch.mul(&moved, &z);
                            h = torch.add(&moved, &n);
                        }
                        made.push(h.clone());
                    }
                    x = torch.cat(&made);
                    if layer == 0 && self == Self::Lstm {
                        x = torch.dropout(&x);
                    }
                    at += 4;
                }
                x = torch.linear(&x, (p(at), p(at + 1)), [steps * rows, d, 64], false);
            }
            Self::Transformer => {
                let (t, d) = (64, 128);
                let bytes = 4 * rows * t * d;
                x = torch.general("embedding", 0.0, &[p(0), &x], &[bytes], (&[&x], false), &[p(0)]);
                for block in 0..2 {
                    let p = |at: usize| &params[1 + 12 * block + at].var;
                    let norm = |torch: &mut Torch, x: &Var, at: usize| {
                        let sizes = [bytes, 4 * rows * t, 4 * rows * t];
                        let inputs = [x, p(at), p(at + 1)];
                        torch.general(
                            "native_layer_norm",
                            0.0,
                            &inputs,
                            &sizes,
                            (&inputs, false),
                            &inputs,
                        )
                    };
                    let y = norm(torch, &x, 0);
                    let qkv = torch.linear(&y, (p(2), p(3)), [rows * t, d, 3 * d], false);
                    let sizes = [bytes, 16 * rows * t];
                    let flops = 4.0 * (rows * t * t * d) as f64;
                    let y = torch.general(
                        "attention",
                        flops,
                        &[&qkv],
                        &sizes,
                        (&[&qkv], true),
                        &[&qkv],
                    );
                    drop(qkv);
                    let y = torch.linear(&y, (p(4), p(5)), [rows * t, d, d], false);
                    let y = torch.dropout(&y);
                    x = torch.add(&x, &y);
                    let y = norm(torch, &x, 6);
                    let y = torch.linear(&y, (p(8), p(9)), [rows * t, d, 4 * d], false);
                    let y = torch.unary("gelu", &y, false);
                    let y = torch.linear(&y, (p(10), p(11)), [rows * t, 4 * d, d], false);
                    let y = torch.dropout(&y);
                    x = torch.add(&x, &y);
                }
                x = torch.linear(&x, (p(25), p(26)), [rows * t, d, 512], false);
            }
            Self::Cnn => {
                let bytes = 4 * rows * 32 * 16 * 16;
                let conv = |torch: &mut Torch, x: &Var, layer: usize| {
                    let (w, n) = (p(2 * layer), p(2 * layer + 1));
                    let flops =
                        2.0 * (rows * 256 * 32 * 9 * if layer == 0 { 3 } else { 32 }) as f64;
                    let wants: &[&Var] = if layer == 0 { &[w] } else { &[x, w] };
                    let y = torch.general(
                        "convolution",
                        flops,
                        &[x, w],
                        &[bytes],
                        (&[x, w], false),
                        wants,
                    );
                    let (inputs, sizes) = ([&y, n], [bytes, 128, 128]);
                    torch.general(
                        "native_batch_norm",
                        0.0,
                        &inputs,
                        &sizes,
                        (&inputs, false),
                        &inputs,
                    )
                };
                x = conv(torch, &x, 0);
                x = torch.in_place("relu_", x);
                for block in 0..4 {
                    let y = conv(torch, &x, 1 + 2 * block);
                    let y = torch.in_place("relu_", y);
                    let y = conv(torch, &y, 2 + 2 * block);
                    let y = torch.add_to(y, &x);
                    x = torch.in_place("relu_", y);
                }
                x = torch.general("mean", 0.0, &[&x], &[128 * rows], (&[], false), &[&x]);
                x = torch.linear(&x, (p(18), p(19)), [rows, 32, 10], false);
            }
        }
        torch.cross_entropy(&x, labels)
    }
}

impl Loop {
    /// Stream of `steps` steps, and the number of commands at the end of each.
    fn stream(self, steps: usize) -> (Vec<Sent>, Vec<usize>) {
        let Self { model, rows, batches, marked } = self;
        let mut torch = Torch::default();
        let mut params = model.params(&mut torch);
        let mut data: Vec<[T; 2]> = Vec::new();
        let (mut loss, mut ends) = (None, Vec::new());
        for step in 0..steps {
            Torch::zero_grad(&mut params);
            let at = step % batches;
            if at == data.len() {
                data.push(model.batch(rows).map(|bytes| torch.there(bytes)));
            }
            let new = model.loss(&mut torch, &params, rows, &data[at]);
            loss = Some(new.clone());
            torch.backward(&new, &mut params);
            torch.optimize(&mut params, model.optimizer());
            if marked {
                torch.mark();
            }
            torch.read(&new.t);
            ends.push(torch.sent.len());
        }
        drop((loss, params));
        (torch.sent, ends)
    }
}

/// Cost of a step's first runs, and of its recomputations.
#[derive(Clone, Copy, Debug, Default)]
struct Ran {
    work: f64,
    again: f64,
}

/// Result of running a stream.
#[derive(Clone, Debug, Default)]
struct Outcome {
    /// Costs of each step, up to the first failure.
    steps: Vec<Ran>,
    failed: Option<String>,
    peak: u64,
    /// Number of commands after which the evictor knew the coming commands.
    foreseen: usize,
    evictions: u64,
}

impl Outcome {
    /// Recomputed share of the work of the last third of a run. `None` if the run failed.
    fn last_third(&self) -> Option<f64> {
        let last = &self.steps[self.steps.len() * 2 / 3..];
        let sum = |of: fn(&Ran) -> f64| last.iter().map(of).sum::<f64>();
        self.failed.is_none().then(|| sum(|ran| ran.again) / sum(|ran| ran.work))
    }
}

/// Runs a stream, and recognizes its steps if `foresees`.
fn run(
    (sent, ends): &(Vec<Sent>, Vec<usize>),
    (policy, foresees): (&str, bool),
    budget: u64,
    seed: u64,
) -> Outcome {
    let device = Sim::<RecordedOp, Layout>::new(1 << 40, Speed::CPU).without_places();
    let policy = policy.parse::<PolicyKind>().unwrap().build(seed);
    let costs = CostModelKind::Flops.build();
    let mut settings = Settings::default();
    settings.recompute_limit = Some(RecomputeLimit::Multiple(MOST));
    let mut driver = Driver::new(Engine::new(device, settings, policy, costs).unwrap());
    driver.set_budget(budget).unwrap();
    if foresees {
        driver.recognize_steps_once_short();
    }
    let mut outcome = Outcome::default();
    let mut begin = driver.engine().stats();
    let mut end = ends.iter();
    let mut next = end.next();
    for (at, command) in sent.iter().enumerate() {
        driver.execute(command.clone());
        outcome.failed = driver.engine_mut().take_failure().map(|error| error.to_string());
        if outcome.failed.is_some() {
            break;
        }
        outcome.foreseen += usize::from(driver.engine().graph().future().foreseen().is_some());
        if next == Some(&(at + 1)) {
            next = end.next();
            let now = driver.engine().stats();
            outcome.steps.push(Ran {
                work: now.base_cost - begin.base_cost,
                again: now.recompute_cost - begin.recompute_cost,
            });
            begin = now;
        }
    }
    let stats = driver.engine().stats();
    (outcome.peak, outcome.evictions) = (stats.peak_bytes, stats.evictions);
    outcome
}

/// Number of steps in a run: long enough that comparisons in the last third are rare.
const STEPS: usize = 48;
/// Recomputed share by which foreseen steps may exceed guessed steps. The driver does not detect
/// smaller differences.
const SLACK: f64 = 0.01;

/// In any budget, a run with predictions recomputes no more than a run without. The run with
/// predictions succeeds in each budget in which a run without predictions, or by `ancestors`,
/// succeeds.
///
/// A budget is a share of the memory that a run needs beyond its parameters and optimizer state.
/// A share of all memory would be too small for small models.
///
/// Returns the number of cells of the grid in which the run without predictions succeeded, and the
/// number in which the run with predictions succeeded.
fn knowing_costs_no_more(model: Model) -> [usize; 2] {
    let [few, many] = if model == Model::Mlp { [128, 1024] } else { [8, 64] };
    let kept = model.kept_bytes();
    let mut count = [0; 2];
    for (rows, batches, marked) in
        [(few, 4, true), (few, 1, true), (many, 4, true), (many, 1, true), (few, 4, false)]
    {
        let of = Loop { model, rows, batches, marked };
        let stream = of.stream(STEPS);
        let full = run(&stream, ("ancestors", false), 1 << 40, 0);
        assert_eq!((full.steps.len(), full.evictions), (STEPS, 0));
        for (percent, seed) in [40, 50, 60, 75, 90].into_iter().zip([0, 1, 2].into_iter().cycle()) {
            let budget = kept + (full.peak - kept) * percent / 100;
            let run = |policy| run(&stream, policy, budget, seed);
            let known = run(("learned", true));
            let [guessed, ancestors] = [("learned", false), ("ancestors", false)].map(run);
            let row = [&guessed, &ancestors, &known].map(Outcome::last_third);
            println!("{of:?} {percent} % seed {seed}: guessed, ancestors, known {row:.3?}");
            assert_eq!(guessed.foreseen, 0);
            for share in [row[0], row[1]].into_iter().flatten() {
                let again = row[2].unwrap_or(f64::INFINITY);
                let failed = known.failed.as_deref().unwrap_or_default();
                assert!(
                    again <= share + SLACK,
                    "{of:?} in {percent} %: {again:.3} of the work again, not {share:.3} {failed}"
                );
            }
            count[0] += usize::from(row[0].is_some());
            count[1] += usize::from(row[2].is_some() && known.foreseen > 0);
        }
    }
    count
}

/// Checks a model, and that guessing passes in at least `passed` cells and foreseen steps pass in
/// at least `foreseen`.
fn on_the_whole(model: Model, passed: usize, foreseen: usize) {
    let count = knowing_costs_no_more(model);
    assert!(count[0] >= passed && count[1] >= foreseen, "{count:?}");
}

#[test]
fn an_mlp_with_adam() {
    on_the_whole(Model::Mlp, 8, 8);
}

#[test]
fn an_lstm_with_adam() {
    on_the_whole(Model::Lstm, 6, 6);
}

#[test]
fn a_gru_with_adam() {
    on_the_whole(Model::Gru, 4, 4);
}

#[test]
fn a_transformer_with_adam() {
    on_the_whole(Model::Transformer, 8, 8);
}

#[test]
fn a_cnn_with_momentum() {
    on_the_whole(Model::Cnn, 12, 12);
}

/// Two runs have the same evictions, since nothing depends on time.
#[test]
fn runs_are_the_same_each_time() {
    let of = Loop { model: Model::Mlp, rows: 1024, batches: 4, marked: true };
    let stream = of.stream(STEPS);
    let full = run(&stream, ("ancestors", false), 1 << 40, 0).peak;
    let outcome = || run(&stream, ("learned", true), full * 60 / 100, 0);
    let (one, other) = (outcome(), outcome());
    assert!(one.foreseen > 0 && one.evictions > 0);
    assert_eq!(
        (one.evictions, one.foreseen, one.last_third()),
        (other.evictions, other.foreseen, other.last_third())
    );
}
