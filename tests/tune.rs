//! Tuning in the library: a budget that the tuner accepts suffices, a refused budget does not, and
//! the bits are those of a run without tuning.

use remat::data::Dataset;
use remat::evict::Learn;
use remat::nn::{ResNet, State, mlp, resnet, state};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::tune::{Budget, Refusal, Trainable, Training, TuneError, Tuned, Tuner};
use remat::{PolicyKind, Stats};
use std::sync::atomic::{AtomicUsize, Ordering};

const STEPS: usize = 6;

/// Network that learns digits.
struct Digits {
    is_deep: bool,
    batch: usize,
}

struct Learning {
    runtime: Runtime,
    network: Box<dyn Module>,
    sgd: Optimizer,
    digits: remat::data::Images,
    batch: Vec<usize>,
}

impl Trainable for Digits {
    type Training = Learning;

    fn start(&self, runtime: &Runtime) -> Result<Learning, Error> {
        let network: Box<dyn Module> = match self.is_deep {
            true => Box::new(resnet(runtime, ResNet::Cifar { n: 1 }, 1, [8, 8], 10)?),
            false => Box::new(mlp(runtime, 64, &[48, 48], 10)?),
        };
        Ok(Learning {
            runtime: runtime.clone(),
            network,
            sgd: Optimizer::sgd(0.1, 0.9, 5e-4),
            digits: Dataset::digits().train,
            batch: (0..self.batch).collect(),
        })
    }
}

impl Training for Learning {
    fn step(&mut self) -> Result<(), Error> {
        let Self { runtime, network, sgd, .. } = self;
        let (images, labels) = self.digits.batch(&self.batch);
        let (images, labels) = (runtime.put(images)?, runtime.put(labels)?);
        let tape = Tape::new(runtime);
        tape.watch(&mut **network);
        let logits = network.forward(&images, Mode::Train)?;
        let loss = logits.cross_entropy(&labels)?;
        drop((images, labels, logits));
        sgd.minimize(tape, &loss, &mut **network)?;
        drop(loss);
        runtime.step()
    }
}

/// Runs the training. Returns the bits of all parameters and buffers, and the counters.
fn run(digits: &Digits, runtime: Runtime) -> Result<(Vec<Vec<u32>>, Stats), Error> {
    let mut learning = digits.start(&runtime)?;
    for _ in 0..STEPS {
        learning.step()?;
    }
    runtime.sync()?;
    let bits = state(&mut *learning.network).into_iter().map(|(_, state)| {
        let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
        Ok(tensor.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())
    });
    Ok((bits.collect::<Result<_, Error>>()?, runtime.stats()?))
}

fn tune<B>(digits: &Digits, learn: Learn, budget: B) -> Result<Tuned<'static>, TuneError>
where
    B: TryInto<Budget, Error: std::fmt::Display>,
{
    let make = move || Runtime::builder().policy(PolicyKind::Learned(learn));
    Tuner::new(make).steps(STEPS).budget(budget).tune(digits)
}

#[test]
fn tuned_budgets_pass_and_refused_ones_do_not() {
    let (mut passed, mut refusals) = (0, 0);
    for (is_deep, batch) in [(true, 1), (true, 16), (false, 4), (false, 256)] {
        let digits = Digits { is_deep, batch };
        let (expected, _) = run(&digits, Runtime::builder().cpu().unwrap()).unwrap();
        for learn in [Learn::Ahead, Learn::Portfolio] {
            let passes = |tuned: Tuned<'_>, what: &str| {
                let (bits, stats) = run(&digits, tuned.builder().cpu().unwrap())
                    .unwrap_or_else(|error| panic!("{batch} {what}: {error}"));
                assert!(bits == expected, "{batch} {what}");
                assert!(stats.peak_bytes <= tuned.budget(), "{batch} {what}");
                assert!(tuned.budget() <= tuned.chosen().budget());
                let thrashed = tuned.chosen().rehearsed().thrashes;
                assert!(thrashed || stats.thrashed_steps == 0, "{batch} {what}");
            };
            for budget in ["1B", "1%", "15%", "40%", "70%", "100%", "1000%", "auto"] {
                match tune(&digits, learn, budget) {
                    Ok(tuned) => {
                        passes(tuned, budget);
                        passed += 1;
                    }
                    Err(TuneError::Refused(refusal)) => {
                        refusals += 1;
                        let Refusal { budget: bytes, passing, full_budget, .. } = *refusal;
                        let runtime = Runtime::builder().budget(bytes).cpu();
                        let ran = runtime.and_then(|runtime| run(&digits, runtime));
                        assert!(
                            ran.as_ref().map_or_else(Error::is_of_memory, |(_, stats)| stats
                                .thrashed_steps
                                > 0),
                            "{batch} {budget} was refused"
                        );
                        let (percent, named) = passing.expect("100 % passes");
                        assert!(named > bytes && named <= full_budget, "{batch} {budget}");
                        let named = format!("{percent}%");
                        passes(tune(&digits, learn, &*named).unwrap(), &named);
                    }
                    Err(error) => panic!("{batch} {budget}: {error}"),
                }
            }
            let usual = Tuner::new(Runtime::builder).steps(STEPS).tune(&digits).unwrap();
            passes(usual, "the default");
        }
    }
    assert!(passed > 20 && refusals > 10, "{passed} {refusals}");
}

#[test]
fn invalid_budget_texts_are_refused() {
    let digits = Digits { is_deep: false, batch: 4 };
    for (budget, part) in [
        ("0%", "a percentage must be above 0"),
        ("1 byte", "neither a percentage nor a size in bytes"),
        ("40", "did you mean 40%?"),
        ("", "write for example 40% or 64MiB, or auto"),
    ] {
        let error = tune(&digits, Learn::Ahead, budget).unwrap_err();
        assert!(matches!(error, TuneError::Failed(_)), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = tune(&digits, Learn::Ahead, 0u64).unwrap_err().to_string();
    assert!(error.starts_with("a budget of 0 B is too small; the budget "), "{error}");
}

#[test]
fn a_tuning_is_told_of_and_can_be_interrupted() {
    let digits = Digits { is_deep: false, batch: 64 };
    let told = AtomicUsize::new(0);
    let tuner = || {
        Tuner::new(Runtime::builder).steps(STEPS).progress(|at| {
            assert!(at.to_string().contains("rehearsing") || at.to_string().contains("learning"));
            told.fetch_add(1, Ordering::Relaxed);
        })
    };
    tuner().tune(&digits).unwrap();
    assert!(told.load(Ordering::Relaxed) > 3);
    let asked = AtomicUsize::new(0);
    let third = || asked.fetch_add(1, Ordering::Relaxed) >= 3;
    let interrupted = tuner().interrupt_when(third).tune(&digits);
    assert!(matches!(interrupted, Err(TuneError::Interrupted)), "{interrupted:?}");
}

#[test]
fn forecasts_are_kept_for_later_runs_and_those_of_another_device_refused() {
    let folder = std::env::temp_dir().join(format!("remat-tuned-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("forecasts.json");
    let digits = Digits { is_deep: true, batch: 16 };
    let portfolio = || Runtime::builder().policy(PolicyKind::Learned(Learn::Portfolio));
    let tuned = |threads: usize| {
        let tuner = Tuner::new(move || portfolio().threads(threads));
        tuner.steps(STEPS).budget("70%").cache(&path).tune(&digits)
    };
    let first = tuned(1).unwrap();
    let whole = std::fs::read(&path).unwrap();
    let again = tuned(1).unwrap();
    assert_eq!(first.forecasts().unwrap().forecasts, again.forecasts().unwrap().forecasts);
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    let error = tuned(2).unwrap_err();
    assert!(matches!(error, TuneError::Cache(_)) && error.to_string().contains("cpu, 1 thread"));
    std::fs::remove_dir_all(folder).unwrap();
}
