//! An evaluation that adds up its results on the device and never marks a step. Beside a batch, the
//! evaluation needs memory for only a few numbers, whatever the number of batches.

use remat::nn::{Linear, Sequential};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::unstable::ops::Accumulate;
use remat::{Plan, PolicyKind, Stats};

const POLICIES: [&str; 4] = ["learned", "learned:portfolio", "dtr-eq", "lru"];

/// Calls that bound the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Nothing,
    /// Only updates in place.
    Training,
    Commits,
    Marks,
}

/// Value kept of the losses.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Sum,
    TwoSums,
    Max,
    Average,
    InPlace,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    bound: Bound,
    kept: Kept,
    /// Whether batches come from the host. Otherwise ops make them.
    from_host: bool,
    budget: &'static str,
    policy: &'static str,
    plan: Plan,
}

impl Case {
    fn runtime(&self) -> Runtime {
        let policy: PolicyKind = self.policy.parse().unwrap();
        let builder = Runtime::builder().budget(self.budget).policy(policy).plan(self.plan);
        builder.seed(1).threads(1).cpu().unwrap()
    }

    /// Runs `batches` batches. Returns the bits kept at the end, and the counters after each batch
    /// in `after`.
    fn run(
        &self,
        rt: &Runtime,
        batches: usize,
        after: &[usize],
    ) -> Result<(Vec<u32>, Vec<Stats>), Error> {
        let mut net = Sequential::new()
            .then("a", Linear::new(rt, 16, 16)?)
            .then_fn("t", Tensor::tanh)
            .then("b", Linear::new(rt, 16, 4)?);
        let mut optimizer = Optimizer::sgd(0.01, 0.9, 0.0);
        let (mut one, mut two) = (rt.zeros(&[])?, rt.zeros(&[])?);
        let mut stats = Vec::new();
        for batch in 0..batches {
            let x = match self.from_host {
                true => {
                    let value = |i: usize| ((i * 3 + batch) % 19) as f32 / 9.5 - 1.0;
                    rt.tensor(&[32, 16], (0..512).map(value).collect())?
                }
                false => rt.full(&[32, 16], (batch % 19) as f32 / 9.5 - 1.0)?,
            };
            let tape = Tape::new(rt);
            if self.bound == Bound::Training {
                tape.watch(&mut net);
            }
            let loss = net.forward(&x, Mode::Infer)?.square()?.mean()?;
            match self.kept {
                Kept::Sum => one = (&one + &loss)?,
                Kept::TwoSums => {
                    one = (&one + &loss)?;
                    two = (&two + &loss.square()?)?;
                }
                Kept::Max => one = one.maximum(&loss)?,
                Kept::Average => one = (&one.affine(0.9, 0.0)? + &loss.affine(0.1, 0.0)?)?,
                Kept::InPlace => rt.update(Accumulate, &mut [&mut one], &[&loss])?,
            }
            if self.bound == Bound::Training {
                optimizer.minimize(tape, &loss, &mut net)?;
            }
            if self.bound == Bound::Commits {
                rt.commit(&one)?;
                rt.commit(&two)?;
            }
            drop((x, loss));
            if self.bound == Bound::Marks {
                rt.step()?;
            }
            if after.contains(&(batch + 1)) {
                rt.sync()?;
                stats.push(rt.stats()?);
            }
        }
        let bits = [one.item()?, two.item()?].map(f32::to_bits);
        Ok((bits.to_vec(), stats))
    }
}

const KEPT: [Kept; 5] = [Kept::Sum, Kept::TwoSums, Kept::Max, Kept::Average, Kept::InPlace];
const BOUNDS: [Bound; 4] = [Bound::Nothing, Bound::Training, Bound::Commits, Bound::Marks];

/// Number of batches after which the engine checks its history, which it does when some thousand
/// values are kept.
const BATCHES: usize = 1200;

fn check(case: Case, batches: usize, expected: &[u32]) {
    let rt = case.runtime();
    let (bits, stats) =
        case.run(&rt, batches, &[200, batches]).unwrap_or_else(|e| panic!("{case:?}: {e}"));
    assert_eq!(bits, expected, "{case:?}");
    let [early, late] = &stats[..] else { panic!("{case:?}") };
    let (storages, host) = (late.storages, late.host_bytes);
    assert!(
        storages <= 2 * early.storages,
        "{case:?}: {storages} storages, {} early",
        early.storages
    );
    assert!(host <= 2 * early.host_bytes, "{case:?}: {host} bytes, {} early", early.host_bytes);
    assert!(late.storages < 100 && late.paths < 100, "{case:?}: {late:?}");
}

/// Policies, budgets and plans.
fn settings() -> Vec<(&'static str, &'static str, Plan)> {
    let budgets = ["64KiB", "1MiB"]
        .into_iter()
        .flat_map(|budget| [Plan::Off, Plan::Auto].into_iter().map(move |plan| (budget, plan)));
    let each = |(budget, plan)| POLICIES.into_iter().map(move |policy| (policy, budget, plan));
    budgets.flat_map(each).collect()
}

/// Checks each kind of kept value and each way of bounding the history, in every `nth` of the
/// settings.
fn in_every(nth: usize, batches: usize) {
    let settings = settings();
    for (at, bound) in BOUNDS.into_iter().enumerate() {
        for kept in KEPT {
            for from_host in [true, false] {
                let case =
                    |(policy, budget, plan)| Case { bound, kept, from_host, budget, policy, plan };
                let plenty = case(("dtr-eq", "1GiB", Plan::Off));
                let (expected, _) = plenty.run(&plenty.runtime(), batches, &[]).unwrap();
                let first = (at + 3 * kept as usize + 2 * usize::from(from_host)) % nth;
                for &setting in settings.iter().skip(first).step_by(nth) {
                    check(case(setting), batches, &expected);
                }
            }
        }
    }
}

/// Regression: a running sum kept the batches of the whole evaluation. An evaluation during a
/// training ran out of memory.
#[test]
fn a_running_sum_needs_no_marks() {
    in_every(7, BATCHES);
}

/// Runs all settings, with as many batches as in the bug report. Takes minutes.
#[test]
#[ignore = "minutes"]
fn twenty_thousand_batches_keep_what_two_hundred_do() {
    in_every(1, 20_000);
}

/// The engine cannot cut the history in this loop, because the values that it carries on are not
/// small. The error says what would help.
#[test]
fn where_a_mark_would_help_the_error_says_so() {
    let rt = Runtime::builder().budget("64KiB").policy(PolicyKind::DtrEq).threads(1).cpu().unwrap();
    let mut kept = Vec::new();
    let failed = (0..20_000).find_map(|i| {
        let mut step = || -> Result<(), Error> {
            let state = rt.full(&[64], i as f32)?.neg()?.neg()?;
            rt.commit(&state)?;
            let mut next = state.neg()?;
            for _ in 0..40 {
                next = next.neg()?;
            }
            kept.push((state, next));
            rt.sync()
        };
        step().err()
    });
    let said = failed.unwrap().to_string();
    assert!(said.contains("step()") && said.contains("commit()"), "{said}");
}
