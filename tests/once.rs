//! Ops that run once. Each call runs exactly once, or the op is notified that the call is skipped,
//! in the order of the calls.

use remat::device::{DeviceError, cpu};
use remat::ops::CustomOp;
use remat::{Error, Layout, Plan, PolicyKind, Runtime, Tensor};
use remat_rng::SplitMix64;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Numbers of calls in the order in which the calls were run or skipped, with whether they ran.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(u64, bool)>>>);

impl Log {
    fn add(&self, call: u64, ran: bool) {
        self.0.lock().unwrap().push((call, ran));
    }
}

/// Outputs of a [`Once`].
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A copy of the input.
    Copy,
    /// Nothing.
    Effect,
    /// The first input, plus the mean of the second.
    Update,
}

/// Op that runs once. All calls of one kind are equal, so that steps of these calls repeat.
struct Once {
    kind: Kind,
    call: u64,
    log: Log,
    /// Whether the run fails after its effect.
    fails: bool,
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Once {:?}", self.kind)
    }
}

impl CustomOp for Once {
    fn name(&self) -> &str {
        match self.kind {
            Kind::Copy => "once_copy",
            Kind::Effect => "once_effect",
            Kind::Update => "once_update",
        }
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(match self.kind {
            Kind::Copy => vec![inputs[0]],
            Kind::Effect | Kind::Update => Vec::new(),
        })
    }

    fn once(&self) -> bool {
        true
    }

    fn updates(&self, _inputs: usize) -> usize {
        usize::from(matches!(self.kind, Kind::Update))
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        self.log.add(self.call, true);
        if self.fails {
            return Err(DeviceError::new("as asked"));
        }
        match self.kind {
            Kind::Copy => operands.write(0).copy_from_slice(operands.read::<f32>(0)),
            Kind::Effect => {}
            Kind::Update => {
                let values: &[f32] = operands.read(1);
                let mean = values.iter().sum::<f32>() / values.len() as f32;
                operands.write::<f32>(0).iter_mut().for_each(|w| *w += 1e-3 * mean);
            }
        }
        Ok(())
    }

    fn skipped(&self, why: &(dyn std::error::Error + 'static)) {
        assert!(!why.to_string().is_empty());
        self.log.add(self.call, false);
    }
}

/// Op that fails or panics in some of its runs.
#[derive(Clone)]
struct Flaky(Arc<Flakes>);

struct Flakes {
    runs: AtomicU64,
    /// Fails each run whose number is a multiple of `every`; 0 for no run.
    every: u64,
    panics: bool,
}

impl fmt::Debug for Flaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Flaky")
    }
}

impl CustomOp for Flaky {
    fn name(&self) -> &str {
        "flaky"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(vec![inputs[0]])
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let Flakes { runs, every, panics } = &*self.0;
        let run = runs.fetch_add(1, Ordering::Relaxed) + 1;
        if *every > 0 && run.is_multiple_of(*every) {
            assert!(!panics, "as asked");
            return Err(DeviceError::new("as asked"));
        }
        operands.write(0).copy_from_slice(operands.read::<f32>(0));
        Ok(())
    }
}

/// Settings of a random program.
struct Case {
    numbers: SplitMix64,
    runtime: Runtime,
    log: Log,
    calls: u64,
    flaky: Flaky,
    cancels: bool,
    fails: bool,
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut numbers = SplitMix64::new(seed);
        let kilobytes = [6, 9, 14, 24, 64][numbers.below(5)];
        let policies: Vec<PolicyKind> = PolicyKind::all().collect();
        let policy = policies[numbers.below(policies.len())];
        let mut builder = Runtime::builder()
            .budget(kilobytes << 10)
            .policy(policy)
            .threads(1)
            .plan(if numbers.below(3) > 0 { Plan::Auto } else { Plan::Off });
        if numbers.below(4) == 0 {
            builder = builder.recompute_limit(4.0);
        }
        let runtime = builder.cpu().unwrap();
        let every = if numbers.below(3) == 0 { 20 + numbers.below(200) as u64 } else { 0 };
        let panics = numbers.below(2) == 0;
        let flaky = Flaky(Arc::new(Flakes { runs: AtomicU64::new(0), every, panics }));
        let [cancels, fails] = [4, 5].map(|one_of| numbers.below(one_of) == 0);
        Self { numbers, runtime, log: Log::default(), calls: 0, flaky, cancels, fails }
    }

    fn once(&mut self, kind: Kind) -> Once {
        let (call, log) = (self.calls, self.log.clone());
        self.calls += 1;
        let fails = self.fails && self.numbers.below(50) == 0;
        Once { kind, call, log, fails }
    }

    fn run(&mut self) -> Result<(), Error> {
        let mut w = self.runtime.ones(&[128])?;
        let (layers, steps) = (6 + self.numbers.below(12), 12 + self.numbers.below(20));
        let shape: Vec<usize> = (0..layers).map(|_| self.numbers.below(8)).collect();
        let odd = self.numbers.below(steps);
        for step in 0..steps {
            // The step number `odd` has another shape, and leaves the plan of the other steps.
            self.step(&mut w, &shape[..shape.len() - usize::from(step == odd)])?;
            // The program goes on after failures, as many do.
            let _ = self.runtime.step();
            if self.numbers.below(4) == 0 {
                let _ = self.runtime.sync();
            }
        }
        let _ = self.runtime.sync();
        Ok(())
    }

    fn step(&mut self, w: &mut Tensor, shape: &[usize]) -> Result<(), Error> {
        let mut passed = vec![w.sin()?];
        for &kind in shape {
            let last = passed.last().expect("it is never empty");
            let next = match kind {
                0 => Tensor::apply(self.once(Kind::Copy), &[last])?.remove(0),
                1 => Tensor::apply(self.flaky.clone(), &[last])?.remove(0),
                2 => {
                    Tensor::apply(self.once(Kind::Effect), &[last])?;
                    last.tanh()?
                }
                3 => {
                    // This op fits only in the larger budgets.
                    let wide = last.reshape(&[1, 128])?.broadcast(&[40, 128])?.contiguous()?;
                    Tensor::apply(self.once(Kind::Effect), &[&wide])?;
                    last.exp()?
                }
                _ => (last * &*w)?.tanh()?,
            };
            passed.push(next);
            if self.cancels && self.numbers.below(60) == 0 {
                self.runtime.cancel();
            }
        }
        // Reads the values backwards, as the computation of a gradient would.
        let mut sum = w.cos()?;
        while let Some(x) = passed.pop() {
            sum = (sum * x)?;
            if self.numbers.below(40) == 0 && self.cancels {
                self.runtime.cancel();
            }
        }
        let op = self.once(Kind::Update);
        self.runtime.update(op, &mut [w], &[&sum])?;
        Ok(())
    }
}

#[test]
fn each_call_runs_once_or_is_skipped_in_its_place() {
    let programs = std::env::var("REMAT_ONCE_PROGRAMS").map_or(200, |text| text.parse().unwrap());
    let (mut ran, mut skipped, mut recomputed, mut planned) = (0, 0, 0, 0);
    for seed in 0..programs {
        let mut case = Case::new(seed);
        // A call that returns an error at once does not count as a call.
        case.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let stats = case.runtime.stats().unwrap();
        let log = std::mem::take(&mut *case.log.0.lock().unwrap());
        let calls: Vec<u64> = log.iter().map(|(call, _)| *call).collect();
        assert!(calls.iter().copied().eq(0..case.calls), "seed {seed}: {calls:?}");
        let here = log.iter().filter(|(_, ran)| *ran).count();
        ran += here;
        skipped += log.len() - here;
        recomputed += stats.recomputed_ops;
        planned += stats.planned_steps;
    }
    println!("{ran} ran, {skipped} skipped; {recomputed} ops recomputed, {planned} steps by plan");
    assert!(ran > 1000 && skipped > 100 && recomputed > 1000 && planned > 100);
}

/// A rehearsal must have no effect, whether an op fits the budget or not.
#[test]
fn a_simulation_neither_runs_an_op_nor_tells_it_that_it_is_skipped() {
    let runtime = Runtime::builder().budget("8KiB").sim().unwrap();
    let log = Log::default();
    let once = |call, kind| Once { kind, call, log: log.clone(), fails: false };
    let x = runtime.ones(&[128]).unwrap();
    let large = runtime.ones(&[1 << 20]).unwrap();
    Tensor::apply(once(0, Kind::Effect), &[&x]).unwrap();
    Tensor::apply(once(1, Kind::Effect), &[&large]).unwrap();
    drop(Tensor::apply(once(2, Kind::Copy), &[&large]).unwrap());
    assert!(runtime.sync().is_err());
    assert_eq!(*log.0.lock().unwrap(), []);
}

#[test]
fn an_own_op_updates_in_place() {
    /// Ten times the old value, plus the second input.
    #[derive(Debug)]
    struct Blend;
    impl CustomOp for Blend {
        fn name(&self) -> &str {
            "blend"
        }
        fn infer(&self, _inputs: &[Layout]) -> Result<Vec<Layout>, String> {
            Ok(Vec::new())
        }
        fn updates(&self, _inputs: usize) -> usize {
            1
        }
        fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
            assert!(operands.read::<f32>(0).is_empty());
            let (new, [value]) = (operands.read::<f32>(1), operands.outputs());
            value.iter_mut().zip(new).for_each(|(value, new)| *value = 10.0 * *value + new);
            Ok(())
        }
    }
    let runtime = Runtime::builder().budget("1MiB").cpu().unwrap();
    let mut w = runtime.tensor(&[3], vec![1.0, 2.0, 3.0]).unwrap();
    let new = runtime.tensor(&[3], vec![4.0, 5.0, 6.0]).unwrap();
    let made_before = w.square().unwrap();
    runtime.update(Blend, &mut [&mut w], &[&new]).unwrap();
    let old = w.clone();
    runtime.update(Blend, &mut [&mut w], &[&new]).unwrap();
    assert_eq!(made_before.to_vec::<f32>().unwrap(), [1.0, 4.0, 9.0]);
    assert_eq!(old.to_vec::<f32>().unwrap(), [14.0, 25.0, 36.0]);
    assert_eq!(w.to_vec::<f32>().unwrap(), [144.0, 255.0, 366.0]);

    #[derive(Debug)]
    struct TooMany;
    impl CustomOp for TooMany {
        fn name(&self) -> &str {
            "too_many"
        }
        fn infer(&self, _inputs: &[Layout]) -> Result<Vec<Layout>, String> {
            Ok(Vec::new())
        }
        fn updates(&self, _inputs: usize) -> usize {
            3
        }
        fn cpu(&self, _operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
            unreachable!("its inputs are refused")
        }
    }
    let error = runtime.update(TooMany, &mut [&mut w], &[&new]).unwrap_err().to_string();
    assert!(error.contains("updates 3 inputs, but has 2"), "{error}");
}
