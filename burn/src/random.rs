//! Random operations that give the same numbers in each run.

use burn_backend::{DType, Distribution, Shape, TensorData};
use burn_ir::{FloatOperationIr as Float, NumericOperationIr as Numeric, OperationIr, RandomOpIr};
use burn_std::rand::{SeedableRng, StdRng};
use burn_std::{bf16, f16};
use remat_rng::{SplitMix64, spread};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Seed for the backend before random operation number `counter` of a session.
pub(crate) fn seed_of(seed: u64, counter: u64) -> u64 {
    // The step of SplitMix64, so that seeds of neighbouring operations are unrelated.
    spread(seed.wrapping_add(counter.wrapping_mul(SplitMix64::STEP)))
}

/// Lock to hold while seeding a backend's generator and drawing random numbers from it. A backend
/// has one generator for the whole process, and other sessions seed this generator as well.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Description of the operation, if it draws random numbers.
pub(crate) const fn random(ir: &OperationIr) -> Option<&RandomOpIr> {
    match ir {
        OperationIr::Float(_, Float::Random(op))
        | OperationIr::NumericFloat(_, Numeric::IntRandom(op))
        | OperationIr::NumericInt(_, Numeric::IntRandom(op)) => Some(op),
        _ => None,
    }
}

/// Draws numbers as backends on the host do, but from a separate generator.
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

#[cfg(test)]
mod tests {
    use super::seed_of;

    #[test]
    fn seeds_are_those_of_every_version() {
        let seeds = [(0, 1), (1, 2), (2, 1), (u64::MAX, 3)].map(|(seed, n)| seed_of(seed, n));
        let expected = [
            0xe220_a839_7b1d_cdaf,
            0xbeeb_8da1_658e_ec67,
            0x9758_35de_1c97_56ce,
            0x382f_f84c_b272_81e9,
        ];
        assert_eq!(seeds, expected);
    }
}
