//! Training with every buffer looked at after every operation: see [`Session::run`](crate::session::Session::run).

use crate::Guard;
use burn_flex::Flex;
use common::{Cnn, Mlp, MlpDropout, Net, Recurrent, Transformer, train};
use remat::program::KnownSteps;

#[path = "../tests/common/mod.rs"]
mod common;
mod every_op;
mod op_cost;
#[cfg(feature = "wgpu")]
mod wgpu;

fn budgeted(bytes: u64) -> Guard {
    crate::budget(bytes).serve::<Flex>(Default::default()).unwrap()
}

/// Bytes that are there are the bytes that are counted, and never more than the budget.
fn looked_at<N: Net>(percents: &[u64]) {
    let guard = budgeted(1 << 40);
    train::<N>(&guard.autodiff(), 2, || guard.step().unwrap());
    let full = guard.stats().unwrap().peak_bytes;
    for percent in percents {
        let guard = budgeted(full * percent / 100);
        train::<N>(&guard.autodiff(), 2, || guard.step().unwrap());
        assert_eq!(guard.stats().unwrap().used_bytes, 0, "the model is gone");
    }
}

/// The same from the first step on by what is known of it, which keeps what is needed again.
fn looked_at_rehearsed<N: Net>(percents: &[u64]) {
    let rehearsal = crate::budget(1_u64 << 60).known_steps(KnownSteps::marked());
    let rehearsal = rehearsal.sim::<Flex>(Default::default()).unwrap();
    train::<N>(&rehearsal.autodiff(), 3, || rehearsal.step().unwrap());
    let full = rehearsal.stats().unwrap().peak_bytes;
    let known = rehearsal.known_steps().unwrap().expect("the default policy looks ahead");
    for percent in percents {
        let guard = crate::budget(full * percent / 100).known_steps(known.clone());
        let guard = guard.serve::<Flex>(Default::default()).unwrap();
        train::<N>(&guard.autodiff(), 4, || guard.step().unwrap());
        let stats = guard.stats().unwrap();
        println!("{percent} %: {:.1} %", 100.0 * stats.recompute_cost / stats.base_cost);
        assert_eq!(stats.used_bytes, 0, "the model is gone");
    }
}

#[test]
fn what_is_counted_is_what_is_there_by_known_steps() {
    looked_at_rehearsed::<Mlp>(&[60]);
    looked_at_rehearsed::<MlpDropout>(&[60]);
    looked_at_rehearsed::<Cnn>(&[60, 35]);
    looked_at_rehearsed::<Transformer>(&[60, 40]);
    looked_at_rehearsed::<Recurrent>(&[75, 60]);
}

#[test]
fn what_is_counted_is_what_is_there() {
    looked_at::<Mlp>(&[60]);
    looked_at::<MlpDropout>(&[60]);
    looked_at::<Cnn>(&[60, 35]);
    looked_at::<Transformer>(&[60]);
    looked_at::<Recurrent>(&[75]);
}
