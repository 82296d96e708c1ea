use super::*;
use crate::layout::DType;
use crate::ops::conformance::samples::{assert_same_bits, tasks};
use crate::ops::conformance::{BYTES, Rig};
use crate::ops::{Fill, Op};

#[test]
fn the_number_of_threads_does_not_change_a_bit() {
    let mut rigs = [1, 2, 3].map(|threads| {
        let team = Team::new(Some(threads)).unwrap();
        let rig = Rig::new(Cpu::of(&team, BYTES).unwrap());
        (team, rig)
    });
    // A run of all samples would take a minute, so run one of every `parts` samples.
    rigs[0].1.parts = 2;
    assert_same_bits(tasks(&rigs[0].1, 0), rigs.len(), |way, op, args| {
        let (team, rig) = &mut rigs[way];
        team.run(|| rig.run(op, args))
    });
}

#[test]
fn devices_may_share_a_team_and_be_used_anywhere() {
    let [team, other] = [2, 3].map(|threads| Team::new(Some(threads)).unwrap());
    let mut outside = Rig::new(Cpu::of(&team, BYTES).unwrap());
    // Run few samples on the device that is used from outside of its team.
    outside.parts = 8;
    // Use devices of both teams on a thread of one team.
    let (mut own, mut foreign) =
        (Rig::new(Cpu::of(&other, BYTES).unwrap()), Rig::new(Cpu::of(&team, BYTES).unwrap()));
    assert_same_bits(tasks(&outside, 0), 3, |way, op, args| match way {
        0 => outside.run(op, args),
        1 => other.run(|| own.run(op, args)),
        _ => other.run(|| foreign.run(op, args)),
    });
    drop((outside, own, foreign));
    // The last clone of a team may be dropped on a thread of the team.
    let inside = other.clone();
    team.run(move || drop(inside));
    other.run(|| drop(team));
}

/// Number of threads of this process with the name `name`.
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
    // No other test has a team of 7 threads, so only this test has a thread with the name of the
    // seventh thread.
    const THREADS: usize = 7;
    let last = format!("remat-cpu-{}", THREADS - 1);
    for _ in 0..20 {
        let mut cpu = Cpu::new(1 << 20, Some(THREADS)).unwrap();
        let fill: Op = Fill { shape: crate::layout::Dims::new(&[1 << 18]), value: 1.0 }.into();
        let outputs = [Place { storage: 0, layout: Layout::contiguous(DType::F32, [1 << 18]) }];
        let call = Call {
            op: &fill,
            inputs: &[],
            outputs: &outputs,
            flops: 0.0,
            workspace: 0..0,
            timed: false,
        };
        cpu.execute(call).unwrap();
        // A thread gets its name when it first runs, so wait until the thread has its name.
        while threads_named(&last) == 0 {
            crate::sync::thread::yield_now();
        }
        drop(cpu);
        // The thread was joined, but the system may still list it for a moment.
        while threads_named(&last) > 0 {
            crate::sync::thread::yield_now();
        }
    }
}

#[test]
fn absurd_numbers_of_threads_are_refused() {
    for threads in [0, MAX_THREADS + 1, 10_000, usize::MAX] {
        let error = Cpu::<Op>::new(1 << 20, Some(threads)).unwrap_err().to_string();
        assert_eq!(error, format!("cpu: {threads} threads, expected between 1 and 1024"));
    }
    assert!(Team::new(None).unwrap().threads() >= 1);
}

#[test]
fn more_memory_than_there_can_be_is_refused() {
    for bytes in [u64::MAX, 1 << 62] {
        let error = Cpu::<Op>::new(bytes, Some(1)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot reserve {bytes} bytes: ")), "{error}");
    }
    for bytes in [0, 1, 255, 1 << 30] {
        assert_eq!(Cpu::<Op>::new(bytes, Some(1)).unwrap().memory(), Memory::arena(bytes));
    }
}
