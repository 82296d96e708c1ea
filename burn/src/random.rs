//! Random operations that make the same numbers each time they run.

use burn_backend::{DType, Distribution, Shape, TensorData};
use burn_ir::{FloatOperationIr as Float, NumericOperationIr as Numeric, OperationIr, RandomOpIr};
use burn_std::rand::{SeedableRng, StdRng};
use burn_std::{bf16, f16};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What to seed the backend with before random operation number `counter` of a session.
pub(crate) fn seed_of(seed: u64, counter: u64) -> u64 {
    // SplitMix64 over both, so that neighbours share nothing.
    let mixed = seed.wrapping_add(counter.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Nobody else of this crate seeds a backend while this is held: backends have one generator for the whole process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The operation, if it draws numbers.
pub(crate) const fn random(ir: &OperationIr) -> Option<&RandomOpIr> {
    match ir {
        OperationIr::Float(_, Float::Random(op))
        | OperationIr::NumericFloat(_, Numeric::IntRandom(op))
        | OperationIr::NumericInt(_, Numeric::IntRandom(op)) => Some(op),
        _ => None,
    }
}

/// Numbers as backends on the host draw them, without their generator.
pub(crate) fn draw(op: &RandomOpIr, seed: u64) -> TensorData {
    let rng = &mut StdRng::seed_from_u64(seed);
    let (shape, distribution): (Shape, Distribution) = (op.out.shape.clone(), op.distribution);
    match op.out.dtype {
        DType::F64 => TensorData::random::<f64, _, _>(shape, distribution, rng),
        DType::F16 => TensorData::random::<f16, _, _>(shape, distribution, rng),
        DType::BF16 => TensorData::random::<bf16, _, _>(shape, distribution, rng),
        DType::I64 => TensorData::random::<i64, _, _>(shape, distribution, rng),
        DType::I32 => TensorData::random::<i32, _, _>(shape, distribution, rng),
        DType::I16 => TensorData::random::<i16, _, _>(shape, distribution, rng),
        DType::I8 => TensorData::random::<i8, _, _>(shape, distribution, rng),
        DType::U64 => TensorData::random::<u64, _, _>(shape, distribution, rng),
        DType::U32 => TensorData::random::<u32, _, _>(shape, distribution, rng),
        DType::U16 => TensorData::random::<u16, _, _>(shape, distribution, rng),
        DType::U8 => TensorData::random::<u8, _, _>(shape, distribution, rng),
        _ => TensorData::random::<f32, _, _>(shape, distribution, rng),
    }
}
