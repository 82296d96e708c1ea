//! Runtimes that were dropped leave no memory and no thread behind. `REMAT_RUNTIMES=10000` starts
//! more runtimes.

use crate::common::device::Target;
use crate::{alone, status};
use remat::{HostTensor, Runtime};

/// Starts a runtime, uses all of its threads, and drops it.
fn one(threads: usize) {
    let runtime = Target::Cpu.start(Runtime::builder().budget("1MiB").threads(threads));
    let x = runtime.put(HostTensor::zeros(remat::DType::F32, [64, 1024]).unwrap()).unwrap();
    let y = x.exp().unwrap();
    assert_eq!(runtime.get(&y.mean().unwrap()).unwrap().as_f32(), Some(&[1.0][..]));
}

#[test]
fn ten_thousand_of_them_are_as_one() {
    alone("runtimes::ten_thousand_of_them_are_as_one", || {
        let asked = std::env::var("REMAT_RUNTIMES").ok().and_then(|n| n.parse().ok());
        let count: usize = asked.unwrap_or(1000);
        // The first runtimes allocate memory that all later runtimes reuse.
        let others = status("Threads");
        for _ in 0..200 {
            one(1);
            one(3);
        }
        for (threads, count) in [(1, count), (3, count / 2)] {
            let before = status("VmRSS");
            for _ in 0..count {
                one(threads);
            }
            let more = status("VmRSS").saturating_sub(before);
            assert!(more < 1024, "{more} KiB for {count} runtimes of {threads} threads");
        }
        // All threads were joined, but the system may count them a little longer.
        while status("Threads") > others {
            std::thread::yield_now();
        }
    });
}
