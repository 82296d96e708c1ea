use super::*;
use crate::cost::CostModelKind;
use crate::device::sim::{Sim, Speed};
use crate::driver::Driver;
use remat_rng::SplitMix64;

type Trial = Driver<Sim<RecordedOp, Layout>>;

fn driver(bytes: u64) -> Trial {
    let (evictor, costs) = (PolicyKind::DtrEq.build(0), CostModelKind::Flops.build());
    let device = Sim::<RecordedOp, Layout>::new(bytes, Speed::GPU);
    Driver::new(Engine::new(device, Settings::default(), evictor, costs).unwrap())
}

fn put(driver: &mut Trial, tensor: u64, bytes: usize) {
    let host = Arc::new(Layout::raw(bytes));
    driver.execute(Command::Put { tensor: TensorId(tensor), host, leaf: false });
}

fn apply(driver: &mut Trial, inputs: &[TensorId], outputs: &[usize], made: u64) {
    let outputs = Outputs::fresh(outputs.iter().map(|&bytes| Layout::raw(bytes)));
    let op = RecordedOp::new("f", 1.0);
    driver.execute(Command::Apply(Apply::new(op, inputs, outputs, TensorId(made))));
}

/// Bytes and handles of each storage, sorted.
fn storages(driver: &Trial) -> Vec<(u64, u32)> {
    let all = driver.engine().graph().storages();
    let mut all: Vec<_> = all.map(|(_, storage)| (storage.bytes, storage.handles)).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_transcript_makes_all_live_values_again_in_another_engine() {
    let mut evictions = 0;
    for seed in 0..100 {
        let mut draw = SplitMix64::new(seed);
        let mut tried = driver(2000);
        let (mut alive, mut next) = (vec![], 0);
        for _ in 0..draw.below(60) {
            let input = |draw: &mut SplitMix64, alive: &[TensorId]| alive[draw.below(alive.len())];
            match draw.below(10) {
                _ if alive.len() < 2 => {
                    put(&mut tried, next, 1 + draw.below(200));
                    alive.push(TensorId(next));
                    next += 1;
                }
                0..=5 => {
                    let inputs = [input(&mut draw, &alive), input(&mut draw, &alive)];
                    let outputs = [1 + draw.below(200), 1 + draw.below(90)];
                    apply(&mut tried, &inputs, &outputs, next);
                    alive.extend([TensorId(next), TensorId(next + 1)]);
                    next += 2;
                }
                6 => tried.execute(Command::Commit(input(&mut draw, &alive))),
                7 => tried.execute(Command::Step),
                _ => {
                    let tensor = alive.swap_remove(draw.below(alive.len()));
                    tried.execute(Command::Del(tensor));
                }
            }
            if tried.take_failure().is_some() {
                break;
            }
        }
        let there = live_values(&tried.books);
        let is_lost =
            tried.engine().graph().storages().any(|(_, s)| s.residence == Residence::Poisoned);
        if is_lost {
            continue;
        }
        assert!(!there.is_lost, "{seed}");
        let mut again = driver(1 << 30);
        for command in there.program.commands() {
            let host = |_, host: &RecordedValue| Ok::<_, Infallible>(Arc::new(host.layout));
            again.execute(command.try_map(|op, _| Ok(op.clone()), host).unwrap());
            assert!(again.take_failure().is_none(), "{seed}: {command:?}");
        }
        assert_eq!(storages(&again), storages(&tried), "{seed}");
        evictions += tried.engine().stats().evictions;
    }
    assert!(evictions > 500, "{evictions}");
}

#[test]
fn nothing_is_written_down_where_memory_is_plentiful_or_two_steps_have_passed() {
    for (budget, is_written) in [(1 << 20, false), (2000, true)] {
        let mut driver = driver(budget);
        driver.name_budgets_by(Some(|_| None));
        let (mut next, mut written) = (0, vec![]);
        for _step in 0..4 {
            put(&mut driver, next, 900);
            apply(&mut driver, &[TensorId(next)], &[100], next + 1);
            written.push(driver.attempts.written.is_some());
            driver.execute(Command::Del(TensorId(next)));
            driver.execute(Command::Del(TensorId(next + 1)));
            driver.execute(Command::Step);
            assert!(driver.attempts.written.is_none(), "the step passed");
            next += 2;
        }
        assert_eq!(written, [is_written, is_written, false, false]);
    }
}

#[test]
fn commands_that_fail_and_those_after_them_are_rehearsed_as_they_were_meant() {
    let mut driver = driver(2000);
    driver.name_budgets_by(Some(|attempt| {
        let names = attempt.program.commands()[attempt.begin..].iter().map(Command::name);
        assert_eq!(names.collect::<Vec<_>>(), ["apply", "apply", "update_all", "get"]);
        assert_eq!((attempt.budget, attempt.begin), (2000, 3));
        Some(7777)
    }));
    put(&mut driver, 0, 900);
    apply(&mut driver, &[TensorId(0)], &[1900], 1);
    apply(&mut driver, &[TensorId(1)], &[10], 3);
    let op = RecordedOp { rematerializable: false, ..RecordedOp::new("update", 1.0) };
    let inputs = [TensorId(0), TensorId(3)];
    let update = Apply::new(op, &inputs[..], Outputs::updates(1), TensorId(4));
    driver.execute(Command::UpdateAll(vec![update]));
    for _ in 0..2 {
        let Err(Error::OutOfMemory(report)) = driver.get(TensorId(3)) else { panic!("too large") };
        assert_eq!(report.passing, Some(PassingBudget { bytes: 7777, ops: 4 }));
    }
}
