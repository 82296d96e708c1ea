//! Steps that run by plan give the same bits as steps without a plan, whatever commands come
//! instead of the expected ones.

use remat::evict::View;
use remat::prelude::*;
use remat::unstable::event::Event;
use remat::unstable::ops::{Accumulate, SgdMomentum};
use remat::{Listener, Plan, Stats};
use remat_rng::SplitMix64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const STEPS: usize = 32;
const WIDTH: usize = 32;

/// Difference of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twist {
    None,
    /// Another op reads the result of this op, and replaces it.
    OtherOp,
    /// Additional op.
    MoreOps,
    /// Additional read.
    MoreGets,
    /// A handle is kept, and read in the next step.
    Kept,
    /// A handle is kept, and used and read in the step after the next.
    KeptLonger,
    /// The step ends here.
    Exit,
    /// An op that is refused.
    Error,
    /// A request to evict the value.
    Drop,
    /// A commit of the value.
    Commit,
}

const TWISTS: [Twist; 9] = [
    Twist::OtherOp,
    Twist::MoreOps,
    Twist::MoreGets,
    Twist::Kept,
    Twist::KeptLonger,
    Twist::Exit,
    Twist::Error,
    Twist::Drop,
    Twist::Commit,
];

struct Loop {
    runtime: Runtime,
    weights: Vec<Tensor>,
    momenta: Vec<Tensor>,
    statistics: Tensor,
    sum: Tensor,
    tenth: Tensor,
    kept: Vec<(usize, Tensor)>,
    read: Vec<f32>,
}

impl Loop {
    fn new(plan: Plan, budget: u64, layers: usize) -> Result<Self, Error> {
        let runtime = Runtime::builder().budget(budget).threads(1).plan(plan).cpu()?;
        let weights = (0..layers)
            .map(|_| runtime.normal(&[WIDTH, WIDTH], 0.0, 0.2))
            .collect::<Result<Vec<_>, _>>()?;
        let momenta =
            (0..layers).map(|_| runtime.zeros(&[WIDTH, WIDTH])).collect::<Result<Vec<_>, _>>()?;
        let statistics = runtime.zeros(&[WIDTH])?;
        let sum = runtime.zeros(&[WIDTH])?;
        let tenth = runtime.full(&[1], 0.1)?;
        runtime.commit(&tenth)?;
        for tensor in weights.iter().chain(&momenta).chain([&statistics, &sum]) {
            runtime.commit(tensor)?;
        }
        Ok(Self { runtime, weights, momenta, statistics, sum, tenth, kept: vec![], read: vec![] })
    }

    /// Runs a step like a network's: forward, backward, updates in place. The twist comes at op
    /// number `at`, counted from 1.
    fn step(&mut self, number: usize, twist: Twist, at: usize, shape: usize) -> Result<(), Error> {
        let data = (0..shape * WIDTH).map(|i| ((i * 7 + number * 13) % 11) as f32 / 11.0 - 0.4);
        let mut ops = 0;
        let mut passed = vec![self.runtime.tensor(&[shape, WIDTH], data.collect())?];
        self.kept.iter_mut().for_each(|(left, _)| *left = left.saturating_sub(1));
        for (_, tensor) in self.kept.extract_if(.., |(left, _)| *left == 0) {
            self.read.extend(tensor.mean()?.to_vec::<f32>()?);
        }
        macro_rules! op {
            ($made:expr) => {{
                let mut made = $made;
                ops += 1;
                if ops == at {
                    match twist {
                        Twist::None => {}
                        Twist::OtherOp => made = made.tanh()?,
                        Twist::MoreOps => drop(made.sin()?),
                        Twist::MoreGets => self.read.push(made.to_vec::<f32>()?[0]),
                        Twist::Kept => self.kept.push((1, made.clone())),
                        Twist::KeptLonger => self.kept.push((2, made.clone())),
                        Twist::Exit => return self.runtime.step(),
                        Twist::Error => {
                            assert!(made.matmul(&self.statistics).is_err());
                        }
                        Twist::Drop => self.runtime.drop_now(&made)?,
                        Twist::Commit => self.runtime.commit(&made)?,
                    }
                }
                made
            }};
        }
        for weight in &self.weights {
            let product = op!(passed[passed.len() - 1].matmul(weight)?);
            passed.push(op!(product.tanh()?));
        }
        let mut gradient = op!(passed[passed.len() - 1].mul(&self.tenth)?);
        for layer in (0..self.weights.len()).rev() {
            let squashed = op!(passed[layer + 1].square()?);
            let slope = op!(gradient.mul(&squashed)?);
            gradient = op!(gradient.sub(&slope)?);
            let transposed = op!(passed[layer].transpose()?);
            let of_weight = op!(transposed.matmul(&gradient)?);
            gradient = op!(gradient.matmul(&self.weights[layer].transpose()?)?);
            let scaled = op!(of_weight.mul(&self.tenth)?);
            let sgd = SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 0.0, nesterov: false };
            let (weight, momentum) = (&mut self.weights[layer], &mut self.momenta[layer]);
            self.runtime.update(sgd, &mut [weight, momentum], &[&scaled])?;
        }
        let mean = op!(gradient.mean_along(&[0], false)?);
        let statistics = op!(self.statistics.add(&mean)?);
        self.statistics.replace(&statistics)?;
        self.runtime.update(Accumulate, &mut [&mut self.sum], &[&mean])?;
        self.read.push(gradient.abs()?.mean()?.to_vec::<f32>()?[0]);
        self.runtime.step()
    }

    /// Runs a forward pass over other data.
    fn evaluate(&mut self, number: usize) -> Result<(), Error> {
        let data = (0..8 * WIDTH).map(|i| ((i * 5 + number) % 7) as f32 / 7.0 - 0.5);
        let mut passed = self.runtime.tensor(&[8, WIDTH], data.collect())?;
        for weight in &self.weights {
            passed = passed.matmul(weight)?.tanh()?;
        }
        self.read.push(passed.mean()?.to_vec::<f32>()?[0]);
        self.runtime.step()
    }

    fn end(self) -> Result<(Vec<u32>, Stats), Error> {
        let mut bits: Vec<u32> = self.read.iter().map(|number| number.to_bits()).collect();
        for tensor in self.weights.iter().chain(&self.momenta).chain([&self.statistics, &self.sum])
        {
            bits.extend(tensor.to_vec::<f32>()?.iter().map(|number| number.to_bits()));
        }
        let stats = self.runtime.stats()?;
        Ok((bits, stats))
    }
}

/// Results of a program without plans and with plans.
fn both(
    budget: u64,
    run: impl Fn(&mut Loop) -> Result<(), Error>,
) -> Result<[(Vec<u32>, Stats); 2], Error> {
    let mut ran = Vec::new();
    for plan in [Plan::Off, Plan::Auto] {
        let mut program = Loop::new(plan, budget, 3)?;
        run(&mut program)?;
        ran.push(program.end()?);
    }
    Ok(ran.try_into().expect("there are two"))
}

/// Listener that counts the steps and the ops that ran by plan.
#[derive(Debug, Default)]
struct Heard(Arc<[AtomicU64; 2]>);

impl Listener for Heard {
    fn on(&mut self, event: &Event, _view: View<'_>) {
        if let &Event::DidReplay { ops, cost, .. } = event {
            assert!(cost > 0.0);
            self.0[0].fetch_add(1, Ordering::SeqCst);
            self.0[1].fetch_add(ops, Ordering::SeqCst);
        }
    }
}

#[test]
fn steps_by_plan_are_told_as_a_whole() -> Result<(), Error> {
    let heard = Heard::default();
    let counts = Arc::clone(&heard.0);
    let runtime =
        Runtime::builder().budget("1MiB").threads(1).plan(Plan::Auto).listen(heard).cpu()?;
    let x = runtime.ones(&[64])?;
    runtime.commit(&x)?;
    for _ in 0..20 {
        drop(x.sin()?.relu()?.cos()?);
        runtime.step()?;
    }
    let stats = runtime.stats()?;
    let [steps, ops] = [0, 1].map(|i| counts[i].load(Ordering::SeqCst));
    assert_eq!((steps, ops), (stats.planned_steps, 3 * stats.planned_steps));
    assert!(steps > 10, "{stats:?}");
    assert_eq!((stats.ops, stats.steps), (1 + 20 * 3, 20));
    Ok(())
}

#[test]
fn a_step_that_repeats_runs_by_plan() -> Result<(), Error> {
    let [(off, _), (auto, stats)] = both(1 << 20, |program| {
        (0..STEPS).try_for_each(|number| program.step(number, Twist::None, 0, 8))
    })?;
    assert!(stats.planned_steps >= STEPS as u64 - 6, "{stats:?}");
    assert_eq!((stats.left_plans, stats.evictions, stats.compactions), (0, 0, 0), "{stats:?}");
    assert!(off == auto);
    Ok(())
}

/// One step differs: a step before any runs by plan, the first step by plan, or a later step. The
/// difference comes at each op of the step in turn.
#[test]
fn a_step_that_differs_changes_nothing_else() -> Result<(), Error> {
    const OPS: usize = 35;
    let mut left = 0;
    for twist in TWISTS {
        for at in 1..=OPS {
            let twisted = [8, 12, 13, 20];
            let [(off, plain), (auto, stats)] = both(1 << 20, |program| {
                (0..STEPS).try_for_each(|number| {
                    let twist = if twisted.contains(&number) { twist } else { Twist::None };
                    program.step(number, twist, at, 8)
                })
            })?;
            assert!(off == auto, "{twist:?} at {at}: {stats:?}");
            assert!(stats.planned_steps > 0, "{twist:?} at {at}: {stats:?}");
            assert_eq!(stats.ops, plain.ops, "{twist:?} at {at}");
            assert!(stats.peak_bytes <= 1 << 20);
            left += stats.left_plans;
        }
    }
    assert!(left > 200, "{left}");
    Ok(())
}

/// Steps that differ, in budgets in which each step evicts and recomputes.
#[test]
fn a_step_that_differs_in_short_memory_changes_nothing_else() -> Result<(), Error> {
    const OPS: usize = 35;
    let (mut evicting, mut left) = (0, 0);
    for (number, kib) in [37, 38, 40, 43, 46].into_iter().enumerate() {
        for twist in TWISTS {
            for at in (1 + number..=OPS).step_by(5) {
                let twisted = [9, 13, 14, 22];
                let run = |plan| {
                    let mut program = Loop::new(plan, kib << 10, 3)?;
                    (0..STEPS).try_for_each(|number| {
                        let twist = if twisted.contains(&number) { twist } else { Twist::None };
                        program.step(number, twist, at, 8)
                    })?;
                    program.end()
                };
                match (run(Plan::Off), run(Plan::Auto)) {
                    (Ok((off, plain)), Ok((auto, stats))) => {
                        assert!(off == auto, "{twist:?} at {at} in {kib} KiB: {stats:?}");
                        assert_eq!(stats.ops, plain.ops, "{twist:?} at {at} in {kib} KiB");
                        assert!(stats.peak_bytes <= kib << 10);
                        evicting += stats.planned_steps_evicting;
                        left += stats.left_plans;
                    }
                    (Err(_), Err(_)) => {}
                    (off, auto) => panic!(
                        "{twist:?} at {at} in {kib} KiB: {:?} and {:?}",
                        off.map(|it| it.1),
                        auto.map(|it| it.1)
                    ),
                }
            }
        }
    }
    println!("{evicting} by plan with evictions, {left} left");
    assert!(evicting > 1000 && left > 200, "{evicting}, {left}");
    Ok(())
}

/// Runs a turn of one of four kinds: two shapes of training, evaluation, and a step with another
/// twist each time.
fn turn(program: &mut Loop, number: usize, kind: usize) -> Result<(), Error> {
    match kind {
        0 => program.step(number, Twist::None, 0, 8),
        1 => program.step(number, Twist::None, 0, 12),
        2 => program.evaluate(number),
        _ => program.step(number, TWISTS[number % TWISTS.len()], 1 + number * 7 % 35, 8),
    }
}

/// Orders in which kinds of turns repeat, and the least number of turns that run by plan.
const ORDERS: [(&[usize], u64); 9] = [
    (&[0, 1], 100),
    (&[0, 2], 100),
    (&[0, 0, 0, 2], 100),
    (&[0, 0, 0, 0, 0, 2, 2, 2], 100),
    (&[0, 1, 2], 100),
    (&[0, 0, 1, 0, 2, 2, 0, 1], 90),
    (&[0, 3], 30),
    (&[0, 0, 0, 3], 65),
    (&[3], 0),
];

#[test]
fn several_kinds_of_step_have_their_plans_side_by_side() -> Result<(), Error> {
    for (order, least) in ORDERS {
        let [(off, plain), (auto, stats)] = both(1 << 20, |program| {
            (0..128).try_for_each(|number| turn(program, number, order[number % order.len()]))
        })?;
        assert!(off == auto, "{order:?}: {stats:?}");
        assert_eq!(stats.ops, plain.ops, "{order:?}");
        println!("{order:?}: {} by plan, {} left", stats.planned_steps, stats.left_plans);
        assert!(stats.planned_steps >= least, "{order:?}: {stats:?}");
    }
    Ok(())
}

/// Kinds of turns come in random order, as in a program that evaluates when its loss is low. In the
/// smallest budgets, no plan fits.
#[test]
fn kinds_that_come_at_random_change_nothing_else() -> Result<(), Error> {
    let (mut planned, mut left, mut numbers) = (0, 0, SplitMix64::new(1));
    for round in 0..24 {
        let mut kinds = Vec::new();
        let mut kind = 0;
        for _ in 0..96 {
            if numbers.one_in(4) {
                kind = numbers.below(4);
            }
            kinds.push(kind);
        }
        let budget = [1 << 20, 96 << 10, 80 << 10, 64 << 10][round % 4];
        let [(off, plain), (auto, stats)] = both(budget, |program| {
            kinds.iter().enumerate().try_for_each(|(number, &kind)| turn(program, number, kind))
        })?;
        assert!(off == auto, "{round}: {stats:?}");
        assert_eq!(stats.ops, plain.ops, "{round}");
        assert!(stats.peak_bytes <= budget, "{round}: {stats:?}");
        (planned, left) = (planned + stats.planned_steps, left + stats.left_plans);
    }
    println!("{planned} by plan, {left} left");
    assert!(planned > 500 && left > 50, "{planned} by plan, {left} left");
    Ok(())
}

/// If the budget is exactly the size of the plan and of the tensors held between steps, a step by
/// plan evicts and moves nothing. In this budget, steps without a plan evict or move, because their
/// memory has holes.
#[test]
fn a_plan_needs_no_more_than_its_bytes() -> Result<(), Error> {
    let mut short = 0;
    for layers in 2..7 {
        let mut program = Loop::new(Plan::Auto, 1 << 20, layers)?;
        (0..8).try_for_each(|number| program.step(number, Twist::None, 0, 8))?;
        let stats = program.runtime.stats()?;
        assert!(stats.plan_bytes > 0, "{stats:?}");
        let budget = stats.used_bytes + stats.plan_bytes;
        let mut plain = Loop::new(Plan::Off, budget, layers)?;
        (0..24).try_for_each(|number| plain.step(number, Twist::None, 0, 8))?;
        let mut program = Loop::new(Plan::Auto, budget, layers)?;
        (0..12).try_for_each(|number| program.step(number, Twist::None, 0, 8))?;
        let before = program.runtime.stats()?;
        (12..24).try_for_each(|number| program.step(number, Twist::None, 0, 8))?;
        let after = program.runtime.stats()?;
        assert_eq!(after.planned_steps, before.planned_steps + 12, "{layers}: {after:?}");
        assert_eq!(after.evictions, before.evictions, "{layers}: {after:?}");
        assert_eq!(after.compactions, before.compactions, "{layers}: {after:?}");
        assert!(after.peak_bytes <= budget);
        let (off, without) = plain.end()?;
        assert!(off == program.end()?.0, "{layers}");
        short += usize::from(without.evictions + without.compactions > 0);
    }
    assert!(short > 0);
    Ok(())
}

/// Between steps, the bytes in use are those of the held tensors, with and without plans: the block
/// of a plan is not counted. Reads and deletes before the next step do not make it count.
#[test]
fn between_steps_the_block_of_a_plan_is_not_in_use() -> Result<(), Error> {
    for layers in [2, 5] {
        let [off, auto] = [Plan::Off, Plan::Auto].map(|plan| -> Result<_, Error> {
            let (mut program, mut used) = (Loop::new(plan, 1 << 20, layers)?, Vec::new());
            for number in 0..10 {
                program.step(number, Twist::None, 0, 8)?;
                used.push(program.runtime.stats()?.used_bytes);
                program.runtime.get(&program.statistics)?;
                drop(program.weights[0].clone());
                used.push(program.runtime.stats()?.used_bytes);
            }
            Ok((used, program.runtime.stats()?))
        });
        let ((without, _), (with, stats)) = (off?, auto?);
        assert!(stats.planned_steps > 3 && stats.plan_bytes > 0, "{stats:?}");
        assert_eq!(with, without, "{layers} layers");
    }
    Ok(())
}

/// The budgets fall until no plan fits, and below.
#[test]
fn short_memory_changes_no_bits() -> Result<(), Error> {
    let kinds = |program: &mut Loop| {
        (0..40).try_for_each(|number| turn(program, number, [0, 0, 2, 0, 3][number % 5]))
    };
    let [(expected, plenty), _] = both(1 << 20, kinds)?;
    let (mut planned, mut evicting, mut failed) = ([0, 0], 0, 0);
    for budget in (34 << 10..64 << 10).step_by(512) {
        let run = |plan| {
            let mut program = Loop::new(plan, budget, 3)?;
            kinds(&mut program)?;
            program.end()
        };
        match (run(Plan::Off), run(Plan::Auto)) {
            (Ok((off, _)), Ok((auto, stats))) => {
                assert!(off == expected && auto == expected, "{budget}: {stats:?}");
                assert!(stats.peak_bytes <= budget, "{budget}: {stats:?}");
                planned[usize::from(stats.evictions > plenty.evictions)] += stats.planned_steps;
                evicting += stats.planned_steps_evicting;
            }
            (Err(_), Err(_)) => failed += 1,
            (off, auto) => {
                panic!("{budget}: {:?} and {:?}", off.map(|it| it.1), auto.map(|it| it.1))
            }
        }
    }
    println!(
        "{planned:?} by plan without evictions, and with some, {evicting} of these in the plan; \
         {failed} budgets are too small"
    );
    assert!(evicting > 100, "{evicting}");
    assert!(planned.iter().all(|&steps| steps > 0) && failed > 0, "{planned:?}, {failed}");
    Ok(())
}
