//! Training with every buffer looked at after every operation: see [`Session::run`](crate::session::Session::run).

use crate::Guard;
use burn_flex::Flex;
use common::{Cnn, Mlp, MlpDropout, Net, Recurrent, Transformer, train};

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

#[test]
fn what_is_counted_is_what_is_there() {
    looked_at::<Mlp>(&[60]);
    looked_at::<MlpDropout>(&[60]);
    looked_at::<Cnn>(&[60, 35]);
    looked_at::<Transformer>(&[60]);
    looked_at::<Recurrent>(&[75]);
}
