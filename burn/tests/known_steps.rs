//! Steps of Burn programs are recognized, although Burn's optimizers make new parameters in each
//! step. A later run then predicts the steps from its first operation on.

mod common;

use burn::tensor::Device;
use burn_flex::Flex;
use common::{
    Cnn, Mlp, MlpDropout, Net, Outcome, Recurrent, Training, Transformer, TransformerDropout,
};
use remat_burn::remat::evict::Learn;
use remat_burn::remat::unstable::program::KnownSteps;
use remat_burn::remat::{PolicyKind, Stats};
use remat_burn::{Builder, Guard};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock, so that only one test trains at a time. Otherwise Burn's autodiff would drop a thread's
/// values at times that depend on the other threads.
static TRAINS: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    TRAINS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Trains for `steps` steps, and calls `after` with the number of each step.
fn train<N: Net>(
    guard: &Guard,
    steps: u64,
    mut after: impl FnMut(u64),
) -> Result<Outcome, remat_burn::Error> {
    let mut training = Training::<N>::new(&guard.autodiff());
    for step in 0..steps {
        let trained = training.step();
        guard.step()?;
        trained.expect("or the guard would have said so");
        after(step);
    }
    Ok(training.outcome())
}

fn commands(guard: &Guard) -> usize {
    guard.known_steps().unwrap().map_or(0, |steps| steps.len())
}

fn rehearsed<N: Net>() -> (KnownSteps, Stats) {
    let builder = remat_burn::budget(1_u64 << 40).known_steps(KnownSteps::marked());
    let guard = builder.sim::<Flex>(Default::default()).unwrap();
    let mut known = Vec::new();
    train::<N>(&guard, 6, |_| known.push(commands(&guard))).unwrap();
    let name = std::any::type_name::<N>();
    assert!(known[2..].iter().all(|&commands| commands == known[2]), "{name}: {known:?}");
    (guard.known_steps().unwrap().unwrap(), guard.stats().unwrap())
}

fn serve(builder: Builder) -> Guard {
    builder.recompute_limit(4.0).serve::<Flex>(Default::default()).unwrap()
}

fn recompute(stats: &Stats) -> f64 {
    stats.recompute_cost / stats.base_cost
}

/// Checks a run with known steps. Every command of the run is predicted, and the bits are those of
/// a run without a limit. The run recomputes at most 1.1 times as much as a run without known
/// steps. The tolerance is a tenth because a run without known steps predicts its second step
/// better.
fn is_known<N: Net>(percents: &[u64], hopeless: &[u64]) {
    let name = std::any::type_name::<N>();
    let (known, free) = rehearsed::<N>();
    let full = serve(remat_burn::budget(1_u64 << 40));
    let expected = train::<N>(&full, 6, |_| ()).unwrap();
    assert_eq!(full.stats().unwrap().peak_bytes, free.peak_bytes, "{name}: what is counted");
    for percent in percents.iter().chain(hopeless) {
        let budget = free.peak_bytes * percent / 100;
        let guard = serve(remat_burn::budget(budget).known_steps(known.clone()));
        assert_eq!(train::<N>(&guard, 6, |_| ()).unwrap(), expected, "{name}, {percent} %");
        assert_eq!(commands(&guard), known.len(), "{name}, {percent} %");
        let rehearsed = guard.stats().unwrap();
        assert!(rehearsed.evictions > 0 && rehearsed.peak_bytes <= budget, "{name}, {percent} %");
        let learned = PolicyKind::Learned(Learn::Ahead);
        let guard = serve(remat_burn::budget(budget).policy(learned));
        let mut counts = Vec::new();
        let trained = train::<N>(&guard, 8, |_| counts.push(commands(&guard)));
        if hopeless.contains(percent) && trained.is_err() {
            continue;
        }
        trained.unwrap();
        // The steps are recognized from the first eviction on. Except for a few commands, the
        // recognizer keeps the commands of a first step and of two later steps.
        assert!(counts[5..].iter().all(|&commands| commands == counts[5]), "{name}: {counts:?}");
        assert!(counts[5] <= counts[2] + 8, "{name}: {counts:?}");
        let [with, without] = [&rehearsed, &guard.stats().unwrap()].map(recompute);
        assert!(with <= 1.1 * without, "{name}, {percent} %: {with} with, {without} without");
    }
}

#[test]
fn of_an_mlp() {
    let _alone = alone();
    is_known::<Mlp>(&[50], &[]);
    is_known::<MlpDropout>(&[40], &[]);
}

#[test]
fn of_a_cnn() {
    let _alone = alone();
    is_known::<Cnn>(&[60], &[30]);
}

#[test]
fn of_a_transformer() {
    let _alone = alone();
    is_known::<Transformer>(&[60, 30], &[]);
    is_known::<TransformerDropout>(&[50], &[]);
}

/// 52 % of the memory is enough for the LSTM only if the steps are known.
#[test]
fn of_an_lstm() {
    let _alone = alone();
    is_known::<Recurrent>(&[70], &[55, 52]);
}

/// Forecasts of a search are used in a later run.
#[test]
#[cfg(feature = "lab")]
fn searches_find_better_ones_for_later_runs() {
    let _alone = alone();
    let (known, free) = rehearsed::<Recurrent>();
    let budget = free.peak_bytes * 55 / 100;
    let run = |learn, forecasts| {
        let builder = remat_burn::budget(budget).policy(PolicyKind::Learned(learn));
        let guard = serve(builder.known_steps(known.clone()).forecasts(forecasts));
        let mut costs = vec![0.0];
        let outcome = train::<Recurrent>(&guard, 6, |_| {
            costs.push(guard.stats().unwrap().recompute_cost);
        });
        let forecasts = guard.forecasts(None).unwrap();
        // The rehearsal read the parameters after its sixth step, so that step is of another kind.
        (outcome.unwrap(), costs[5] - costs[4], forecasts)
    };
    let (expected, ahead, _) = run(Learn::Ahead, Vec::new());
    let (outcome, searched, forecasts) = run(Learn::Portfolio, Vec::new());
    assert_eq!(outcome, expected);
    assert!(searched < ahead, "{searched} by the portfolio, {ahead} without");
    assert!(!forecasts.is_empty());
    let (outcome, again, _) = run(Learn::Ahead, forecasts);
    assert_eq!(outcome, expected);
    assert_eq!(again, searched, "as the run before at its end");
}

#[test]
#[cfg(not(feature = "lab"))]
fn a_search_without_the_lab_is_refused() {
    let builder = remat_burn::budget("1MiB").policy(PolicyKind::Learned(Learn::Portfolio));
    let error = builder.serve::<Flex>(Default::default()).unwrap_err().to_string();
    assert!(error.contains("learned:portfolio") && error.contains("feature `lab`"), "{error}");
    let guard = serve(remat_burn::budget("1MiB"));
    let error = guard.set_policy(PolicyKind::Learned(Learn::Portfolio)).unwrap_err().to_string();
    assert!(error.contains("feature `lab`"), "{error}");
}

/// Steps of another program do no harm.
#[test]
fn of_another_program() {
    let _alone = alone();
    let (known, _) = rehearsed::<Mlp>();
    let plain = common::train::<Cnn>(&Device::flex().autodiff(), 5, || {});
    let (_, free) = rehearsed::<Cnn>();
    let guard = serve(remat_burn::budget(free.peak_bytes * 6 / 10).known_steps(known));
    assert_eq!(train::<Cnn>(&guard, 5, |_| ()).unwrap(), plain);
    assert!(guard.stats().unwrap().evictions > 0);
}
