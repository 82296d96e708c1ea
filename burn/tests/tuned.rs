//! Budgets that a tuner chooses before the first operation suffice. The error for a budget that is
//! too small names a sufficient budget.
#![cfg(feature = "lab")]

mod common;

use burn_flex::Flex;
use common::{Cnn, Net, Outcome, Recurrent, Training, Transformer};
use remat_burn::remat::tune::Share;
use remat_burn::{Error, Guard, Tuned, Tuner};
use std::sync::{Mutex, PoisonError};

/// Lock, so that only one test trains at a time: the values that Burn's autodiff frees depend on
/// all threads that train.
static TRAINS: Mutex<()> = Mutex::new(());

fn train<N: Net>(guard: &Guard, steps: u64) -> Result<Outcome, Error> {
    let mut training = Training::<N>::new(&guard.autodiff());
    for _ in 0..steps {
        let trained = training.step();
        guard.step()?;
        trained.expect("or the guard would have said so");
    }
    Ok(training.outcome())
}

fn tune<N: Net>(tuner: Tuner) -> Result<Tuned, Error> {
    tuner.tune::<Flex>(Default::default(), |guard| train::<N>(guard, 4).map(drop))
}

/// Trains in the tuned budget, with a predicted first step, and compares bits.
fn passes<N: Net>(tuned: &Tuned, expected: &Outcome) {
    let what = format!("{} in {tuned}", std::any::type_name::<N>());
    let guard = tuned.builder().recompute_limit(12.0).serve::<Flex>(Default::default()).unwrap();
    let outcome = train::<N>(&guard, 6).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(&outcome, expected, "{what}");
    let stats = guard.stats().unwrap();
    assert!(stats.peak_bytes <= tuned.budget(), "{what}: {}", stats.peak_bytes);
    let is_less = tuned.budget() < tuned.full_budget();
    assert!(if is_less { stats.evictions > 0 } else { stats.recomputed_ops == 0 }, "{what}");
}

fn holds<N: Net>() {
    let _alone = TRAINS.lock().unwrap_or_else(PoisonError::into_inner);
    let full = remat_burn::budget(1_u64 << 40).serve::<Flex>(Default::default()).unwrap();
    let expected = train::<N>(&full, 6).unwrap();
    drop(full);
    let chosen = tune::<N>(Tuner::new()).unwrap();
    assert!(chosen.budget() >= Share::Percent(40.0).of(chosen.full_budget()), "{chosen}");
    passes::<N>(&chosen, &expected);
    for percent in [5, 60, 100] {
        match tune::<N>(Tuner::new().budget(format!("{percent}%"))) {
            Ok(tuned) => passes::<N>(&tuned, &expected),
            Err(error) => {
                let Error::TooSmall { budget, passing, percent, .. } = error else {
                    panic!("{error}")
                };
                assert!(passing > budget, "{error}");
                let text = error.to_string();
                assert!(text.contains("is too small") && text.contains("passes"), "{text}");
                // The percentage is another way to write the bytes.
                let tuned = tune::<N>(Tuner::new().budget(format!("{percent}%"))).unwrap();
                assert_eq!(tuned.budget(), passing, "{error}");
                passes::<N>(&tuned, &expected);
            }
        }
    }
}

#[test]
fn budgets_of_a_cnn_pass() {
    holds::<Cnn>();
}

#[test]
fn budgets_of_a_transformer_pass() {
    holds::<Transformer>();
}

#[test]
fn budgets_of_an_lstm_pass() {
    holds::<Recurrent>();
}

#[test]
fn a_budget_that_makes_no_sense_is_refused() {
    for budget in ["", "40", "0", "much", "NaN%"] {
        let error = tune::<Cnn>(Tuner::new().budget(budget)).unwrap_err().to_string();
        assert!(error.contains("budget: "), "{budget}: {error}");
    }
}
