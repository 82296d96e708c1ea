//! Time that an operation takes in addition to its kernel.

use crate::backend::Facts;
use crate::device::BurnDevice;
use burn_backend::{DType, Shape, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_ir::{
    BinaryOpIr, NumericOperationIr as Numeric, OperationIr, TensorId, TensorIr, TensorStatus,
};
use burn_router::TensorInterpreter;
use std::hint::black_box;
use std::time::Instant;

const OPS: u64 = 20_000;
const ROUNDS: usize = 60;

/// `OPS` operations `x += w` on 8 numbers. Each sum is used only by the next operation.
fn sums(first: u64) -> impl Iterator<Item = OperationIr> {
    let tensor = |id, status| TensorIr {
        id: TensorId::new(id),
        shape: Shape::from(vec![8]),
        status,
        dtype: DType::F32,
    };
    (0..OPS).map(move |i| {
        let sum = BinaryOpIr {
            lhs: tensor(first + 1 + i, TensorStatus::ReadWrite),
            rhs: tensor(first, TensorStatus::ReadOnly),
            out: tensor(first + 2 + i, TensorStatus::NotInit),
        };
        OperationIr::NumericFloat(DType::F32, Numeric::Add(sum))
    })
}

fn data() -> TensorData {
    TensorData::new(vec![1.0_f32; 8], [8])
}

/// Nanoseconds per operation in Burn's interpreter without a session.
fn bare() -> f64 {
    let mut flex = TensorInterpreter::<Flex>::new(FlexDevice);
    (0..2).for_each(|id| flex.register_tensor_data_id(TensorId::new(id), data()));
    let ops: Vec<OperationIr> = sums(0).collect();
    let start = Instant::now();
    ops.into_iter().for_each(|op| flex.register_op(black_box(op)));
    start.elapsed().as_secs_f64() * 1e9 / OPS as f64
}

/// Nanoseconds per operation in a session. With `behind`, kernels run on a separate thread.
fn ours(behind: bool) -> f64 {
    let facts = Facts::of::<Flex>(&FlexDevice);
    let mut device = BurnDevice::new(FlexDevice, facts, 1 << 40, Default::default());
    device.look_away();
    if behind {
        device = device.behind().unwrap();
    }
    let mut session = super::every_op::with(device, facts);
    session.checks = false;
    let first = crate::session::numbers(OPS as usize + 2);
    first.and_next(2).for_each(|tensor| session.put(tensor, data()));
    let ops: Vec<OperationIr> = sums(first.0).collect();
    let start = Instant::now();
    ops.into_iter().for_each(|op| session.run(black_box(op)));
    session.sync().unwrap();
    start.elapsed().as_secs_f64() * 1e9 / OPS as f64
}

/// Measures and prints times. Run by `cargo test --release op_cost -- --ignored --nocapture`, on an
/// idle machine.
#[test]
#[ignore = "measures time"]
fn op_cost() {
    let ways: [&dyn Fn() -> f64; 3] = [&bare, &|| ours(false), &|| ours(true)];
    let mut best = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        best.iter_mut().zip(ways).for_each(|(best, run)| *best = best.min(run()));
    }
    let [bare, here, behind] = best;
    println!(
        "an operation on 8 numbers: {bare:.0} ns by the bare interpreter, {here:.0} ns by ours, {behind:.0} ns where kernels run \
         on a thread of their own"
    );
}
