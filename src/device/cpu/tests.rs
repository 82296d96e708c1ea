use super::*;
use crate::device::conformance::Rig;
use crate::device::conformance::samples::{assert_same_bits, results};

/// Runs `body` on a thread of its own, which is in no pool yet.
fn on_new_thread<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(body).join().unwrap())
}

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let with =
        |threads| on_new_thread(|| results(&mut Rig::new(Cpu::with_calling_thread(Some(threads)))));
    let one = with(1);
    assert_same_bits(&one, &with(2));
    assert_same_bits(&one, &with(3));
}

#[test]
fn a_second_device_on_the_same_thread_works_as_well() {
    on_new_thread(|| {
        let first = results(&mut Rig::new(Cpu::with_calling_thread(Some(2))));
        assert_same_bits(&first, &results(&mut Rig::new(Cpu::with_calling_thread(Some(3)))));
        let (mut a, mut b) =
            (Rig::new(Cpu::with_calling_thread(Some(1))), Rig::new(Cpu::new(None)));
        assert_same_bits(&results(&mut a), &results(&mut b));
    });
}

/// Names of this process's threads.
#[cfg(target_os = "linux")]
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

#[cfg(target_os = "linux")]
#[test]
fn threads_end_with_the_device() {
    // No other test has this many, so the last one is ours.
    const THREADS: usize = 7;
    let last = format!("remat-cpu-{}", THREADS - 1);
    on_new_thread(|| {
        for _ in 0..2 {
            let mut cpu = Cpu::with_calling_thread(Some(THREADS));
            cpu.reserve(1 << 20).unwrap();
            let start = Instant::now();
            while threads_named(&last) == 0 {
                assert!(start.elapsed().as_secs() < 20, "no thread was started");
                std::thread::yield_now();
            }
            drop(cpu);
            while threads_named(&last) > 0 {
                assert!(start.elapsed().as_secs() < 20, "a thread outlived the device");
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn nothing_runs_before_memory_is_reserved() {
    let mut cpu = Cpu::with_calling_thread(Some(0));
    assert_eq!(cpu.threads(), 1);
    let fill = Op::Fill { shape: crate::layout::Dims::SCALAR, value: 1.0 };
    let outputs = [Place { storage: 0, layout: Layout::contiguous(DType::F32, []) }];
    let call = Call { op: &fill, inputs: &[], outputs: &outputs, workspace: 0..0, timed: false };
    assert!(cpu.execute(call).is_err());
    assert!(cpu.reserve(u64::MAX).is_err());
}
