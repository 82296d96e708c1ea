//! Training under a budget gives the bits of plain Burn.

mod common;

use burn::tensor::{Device, Tensor};
use burn_flex::Flex;
use common::{
    Cnn, Mlp, MlpDropout, Net, Outcome, Recurrent, Transformer, TransformerDropout, train,
};
use remat::PolicyKind;
use remat::evict::Learn;
use remat_burn::Guard;

fn budgeted(bytes: u64) -> Guard {
    remat_burn::budget(bytes).serve::<Flex>(Default::default()).unwrap()
}

/// Trains without a limit, and then with less memory, by the default policy. All results must equal
/// `expected`, if it is given.
fn with_less<N: Net>(expected: Option<&Outcome>, steps: u64, percents: &[u64]) {
    with_less_by::<N>(None, expected, steps, percents);
}

fn with_less_by<N: Net>(
    policy: Option<PolicyKind>,
    expected: Option<&Outcome>,
    steps: u64,
    percents: &[u64],
) {
    let guard = budgeted(1 << 40);
    let free = train::<N>(&guard.autodiff(), steps, || guard.step().unwrap());
    if let Some(expected) = expected {
        assert_eq!(&free, expected, "without a limit");
    }
    let full = guard.stats().unwrap().peak_bytes;
    drop(guard);
    for percent in percents {
        let mut builder = remat_burn::budget(full * percent / 100).recompute_limit(2.0);
        if let Some(policy) = policy {
            builder = builder.policy(policy);
        }
        let guard = builder.serve::<Flex>(Default::default()).unwrap();
        let outcome = train::<N>(&guard.autodiff(), steps, || guard.step().unwrap());
        let stats = guard.stats().unwrap();
        println!("{percent} % of {full}\n{}", guard.summary().unwrap());
        assert_eq!(outcome, free, "under {percent} % of {full} bytes");
        assert!(stats.peak_bytes <= stats.budget_bytes);
        assert!(*percent == 100 || stats.recomputed_ops > 0, "{percent} % evicts nothing");
    }
}

fn as_plain<N: Net>(steps: u64, percents: &[u64]) {
    let plain = train::<N>(&Device::flex().autodiff(), steps, || {});
    with_less::<N>(Some(&plain), steps, percents);
}

#[test]
fn an_mlp() {
    as_plain::<Mlp>(3, &[100, 70, 50, 30]);
    with_less_by::<Mlp>(Some(PolicyKind::Learned(Learn::Ahead)), None, 6, &[50]);
}

#[test]
fn a_cnn_with_batch_norm_and_max_pooling() {
    as_plain::<Cnn>(3, &[100, 70, 50, 40]);
    // In the first step, which is not predicted yet, the older policies succeed with less memory.
    for policy in [PolicyKind::Dtr, PolicyKind::DtrEq] {
        with_less_by::<Cnn>(Some(policy), None, 3, &[30]);
    }
}

#[test]
fn a_transformer() {
    as_plain::<Transformer>(3, &[100, 70, 50, 30]);
}

#[test]
fn an_lstm() {
    as_plain::<Recurrent>(3, &[100, 70]);
}

/// Dropout masks come from the session's own random numbers. The masks are equal under any budget,
/// and can be evicted.
#[test]
fn with_dropout_the_bits_are_those_without_a_limit() {
    with_less::<MlpDropout>(None, 3, &[100, 70, 50, 30]);
    with_less::<TransformerDropout>(None, 3, &[100, 70, 50, 30]);
}

/// A simulated device has the same peak, evictions and recomputation as a real device.
#[test]
fn a_simulated_device_counts_what_a_device_does() {
    fn counts<N: Net>(guard: &Guard) -> [u64; 5] {
        train::<N>(&guard.autodiff(), 3, || guard.step().unwrap());
        let stats = guard.stats().unwrap();
        assert_eq!(stats.used_bytes, 0, "the model is gone");
        [stats.peak_bytes, stats.ops, stats.evictions, stats.recomputed_ops, stats.evicted_bytes]
    }
    fn alike<N: Net>() {
        let with = |bytes: u64| remat_burn::budget(bytes);
        let sim = |bytes| counts::<N>(&with(bytes).sim::<Flex>(Default::default()).unwrap());
        let run = |bytes| counts::<N>(&with(bytes).serve::<Flex>(Default::default()).unwrap());
        let full = sim(1 << 40);
        assert_eq!(full, run(1 << 40));
        for percent in [75, 60] {
            assert_eq!(sim(full[0] * percent / 100), run(full[0] * percent / 100), "{percent} %");
        }
    }
    alike::<Mlp>();
    alike::<Cnn>();
    alike::<TransformerDropout>();
}

/// The sign of a sum or product of two NaNs does not depend on whether an operand is overwritten.
#[test]
fn nans_have_the_same_signs_where_an_operand_could_be_overwritten() {
    type Op = fn(Tensor<1>, Tensor<1>) -> Tensor<1>;
    let guard = budgeted(1 << 20);
    let leaves =
        [1.0, -1.0].map(|sign| Tensor::<1>::from_data([f32::NAN.copysign(sign); 100], &*guard));
    for op in [|x, y| x + y, |x, y| x - y, |x, y| x * y, |x, y| x / y] as [Op; 4] {
        for signs in [[0, 1], [1, 0]] {
            let [x, y] = signs.map(|sign| leaves[sign].clone() * 1.0);
            let kept = op(x.clone(), y.clone()).into_data();
            let overwritten = leaves[signs[0]].clone() * 1.0;
            assert_eq!(op(overwritten, y).into_data().as_bytes(), kept.as_bytes());
        }
    }
}
