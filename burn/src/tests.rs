//! Training in which every buffer is checked after every operation: see
//! [`Session::run`](crate::session::Session::run).

use crate::Guard;
use crate::error::Error;
use crate::router::{Client, Slot, SlotDevice};
use crate::session::numbers;
use burn_backend::TensorData;
use burn_flex::{Flex, FlexDevice};
use burn_router::RouterClient;
use common::{Cnn, Mlp, MlpDropout, Net, Recurrent, Transformer, train};
use remat::evict::{ByStep, Policy, View};
use remat::unstable::graph::StorageKey;
use std::sync::Arc;

#[path = "../tests/common/mod.rs"]
mod common;
mod every_op;
mod op_cost;
#[cfg(feature = "wgpu")]
mod wgpu;

fn budgeted(bytes: u64) -> Guard {
    crate::budget(bytes).serve::<Flex>(Default::default()).unwrap()
}

/// Trains under each budget, in percent of the peak without evictions. The bytes of the backend's
/// buffers must equal the counted bytes, and never exceed the budget.
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

/// Policy that keeps tensors after their last handle was dropped, to recompute other tensors from
/// them. No operation may overwrite such tensors.
#[derive(Debug)]
struct Keeps;

impl Policy for Keeps {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        -(view.graph.storage(candidate).bytes as f64)
    }

    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        Some(self)
    }
}

impl ByStep for Keeps {
    fn keeps_unheld(&mut self) -> bool {
        true
    }
}

#[test]
fn no_bytes_stay_counted_with_a_policy_that_keeps_unheld_tensors() {
    fn looked_at<N: Net>() {
        let guard = crate::budget(1_u64 << 40).policy(Keeps);
        let guard = guard.serve::<Flex>(Default::default()).unwrap();
        train::<N>(&guard.autodiff(), 2, || guard.step().unwrap());
        assert_eq!(guard.stats().unwrap().used_bytes, 0, "the model is gone");
    }
    looked_at::<Mlp>();
    looked_at::<Transformer>();
}

/// A session may be made while another session is open in its slot, and opened later.
#[test]
fn a_session_knows_no_tensor_made_before_it_is_opened() {
    let slot = Arc::new(Slot::new(SlotDevice::new(FlexDevice).unwrap()));
    let client = Client(Arc::clone(&slot));
    let upload = || client.register_tensor_data(TensorData::from([1.0_f32]));
    let used = || slot.with(|session| session.ask(|driver| driver.engine().used_bytes())).unwrap();
    let session = every_op::session(1 << 20);
    let [gone, also_gone] = [upload(), upload()];
    let late = numbers(1);
    slot.open(session);
    // This upload has a number from before the session was opened, and arrives now.
    slot.with(|session| session.put(late, TensorData::from([1.0_f32]))).unwrap();
    assert_eq!(used(), 0);
    let error = slot.with(|session| session.read(&gone.into_ir())).unwrap().unwrap_err();
    assert!(matches!(error, Error::Dropped), "{error}");
    drop(also_gone);
    let present = upload();
    assert_eq!(used(), 4);
    drop(present);
    assert_eq!(used(), 0);
}

#[test]
fn counted_bytes_are_the_bytes_present() {
    looked_at::<Mlp>(&[60]);
    looked_at::<MlpDropout>(&[60]);
    looked_at::<Cnn>(&[60, 35]);
    looked_at::<Transformer>(&[60]);
    looked_at::<Recurrent>(&[75]);
}
