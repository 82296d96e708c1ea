//! Random programs over Burn's tensors, under any budget, policy and window. The reads of a program
//! have the bits of plain Flex, or fail with an out-of-memory error.
//!
//! The programs are the same each time. `REMAT_RANDOM_PROGRAMS=N` runs N other programs;
//! `REMAT_SEED=S` runs only the program of this seed.

mod any;
mod ops;
mod play;
mod program;

use burn::tensor::{DType, Device, TensorData, bf16, f16};
use burn_flex::Flex;
use play::{Reads, play};
use program::{Draw, Program};
use remat_burn::remat::{Dead, PolicyKind, Stats};
use remat_burn::{Error, Guard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, UNIX_EPOCH};

/// Number of programs in a usual run.
const PROGRAMS: u64 = 2000;

/// Bytes that suffice for every program.
const PLENTY: u64 = 64 << 20;

/// Parts of the messages of allowed errors.
const EXPLAINED: [&str; 3] =
    ["out of memory: ", "above the recompute limit", "regenerating evicted tensors takes too many"];

/// Totals of all runs.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    programs: u64,
    /// Programs with a budget below their need.
    limited: u64,
    /// Programs with a budget below their need, and without a failed read.
    passed: u64,
    reads: u64,
    /// Reads that failed with an allowed error.
    refused: u64,
    evictions: u64,
    ops: u64,
    recomputed: u64,
}

impl Figures {
    fn add(&mut self, other: Self) {
        self.programs += other.programs;
        self.limited += other.limited;
        self.passed += other.passed;
        self.reads += other.reads;
        self.refused += other.refused;
        self.evictions += other.evictions;
        self.ops += other.ops;
        self.recomputed += other.recomputed;
    }
}

/// Settings of a run with little memory.
struct Setup {
    /// Percentage of the program's peak without a limit.
    percent: u64,
    policy: PolicyKind,
    threshold: Option<u64>,
    window: usize,
    dead: Dead,
    sampling: bool,
    /// Whether to use an existing device, where only budget and policy can be chosen.
    on_old: bool,
    seed: u64,
}

impl Setup {
    fn new(seed: u64) -> Self {
        let draw = &mut Draw::new(!seed);
        let policies: Vec<PolicyKind> = PolicyKind::all().collect();
        Self {
            // Most programs succeed with the larger budgets.
            percent: draw.from(40, 100).max(draw.from(40, 100)) as u64,
            policy: draw.of(&policies),
            threshold: draw.percent(20).then(|| draw.from(50, 100) as u64),
            window: draw.of(&[0, 0, 0, 3, 20]),
            dead: draw.of(&[Dead::Drop, Dead::Keep]),
            sampling: draw.percent(20),
            on_old: draw.percent(30),
            seed,
        }
    }

    fn serve(&self, budget: u64) -> Guard {
        let mut builder = remat_burn::budget(budget)
            .policy(self.policy)
            .look_ahead(self.window)
            .dead(self.dead)
            .sqrt_sampling(self.sampling)
            .seed(self.seed)
            .recompute_limit(20.0);
        if let Some(percent) = self.threshold {
            builder = builder.eviction_threshold((budget * percent / 100).max(1));
        }
        builder.serve::<Flex>(Default::default()).unwrap()
    }
}

/// Message when Burn's server has ended the connection.
const LOST: &str = "Remote response channel closed";

fn explained(error: &str) -> bool {
    EXPLAINED.iter().any(|words| error.contains(words))
}

/// Runs the program to the end, and returns all reads.
fn run(program: &Program, guard: &Guard) -> Result<Reads, String> {
    let mut wrong = None;
    let mut told = |result: Result<(), Error>| {
        let stats = guard.stats().unwrap();
        if let Err(error) = result
            && !explained(&error.to_string())
        {
            wrong.get_or_insert(error.to_string());
        } else if stats.used_bytes > stats.budget_bytes {
            wrong.get_or_insert(format!("{} bytes of {}", stats.used_bytes, stats.budget_bytes));
        }
    };
    let reads = play(program, guard, || told(guard.step()));
    told(guard.sync());
    wrong.map_or(Ok(reads), |wrong| Err(format!("the device says: {wrong}")))
}

/// Runs the program on a new device.
fn run_on_new(program: &Program, guard: &Guard) -> Result<(Reads, Stats), String> {
    let reads = run(program, guard)?;
    let stats = guard.stats().map_err(|error| error.to_string())?;
    if stats.peak_bytes > stats.budget_bytes {
        return Err(format!("{} bytes of {}", stats.peak_bytes, stats.budget_bytes));
    }
    // Burn frees gradient graphs without a backward pass at unpredictable times.
    if stats.used_bytes != 0 && !program.autodiff {
        return Err(format!("{} bytes are left over", stats.used_bytes));
    }
    Ok((reads, stats))
}

/// Runs the program on an existing device, with the settings that can be changed. `None` if the
/// budget is too small for the gradient graphs of earlier programs that the device still holds.
fn run_on_old(
    program: &Program,
    setup: &Setup,
    budget: u64,
    guard: &Guard,
) -> Result<Option<(Reads, Stats)>, String> {
    guard.set_policy(setup.policy).unwrap();
    guard.seed(setup.seed);
    if guard.set_budget(budget).is_err() {
        return Ok(None);
    }
    let before = guard.stats().unwrap();
    let reads = run(program, guard)?;
    let mut stats = guard.stats().unwrap();
    stats.evictions -= before.evictions;
    stats.recomputed_ops -= before.recomputed_ops;
    stats.ops -= before.ops;
    guard.set_budget(PLENTY).unwrap();
    Ok(Some((reads, stats)))
}

/// Equality of two values.
type Same = fn(&TensorData, &TensorData) -> bool;

fn bits(a: &TensorData, b: &TensorData) -> bool {
    a.dtype() == b.dtype() && a.shape() == b.shape() && a.as_bytes() == b.as_bytes()
}

/// Equality of bits, except for the signs of NaNs. Flex adds in place if an operand is not shared,
/// and may then swap the operands. The sum of two NaNs has the sign of the first operand.
fn bits_of_numbers(a: &TensorData, b: &TensorData) -> bool {
    let is_nan = |bytes: &[u8]| match a.dtype() {
        DType::F64 => f64::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        DType::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        DType::F16 => f16::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        DType::BF16 => bf16::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        _ => false,
    };
    fn elements(data: &TensorData) -> std::slice::Chunks<'_, u8> {
        data.as_bytes().chunks(data.dtype().size())
    }
    a.dtype() == b.dtype()
        && a.shape() == b.shape()
        && elements(a).zip(elements(b)).all(|(a, b)| a == b || is_nan(a) && is_nan(b))
}

/// Describes the first element that differs, in bytes.
fn difference(a: &TensorData, b: &TensorData) -> String {
    let size = a.dtype().size();
    let of = |data: &TensorData| format!("{:?}{:?}", data.dtype(), data.shape());
    let elements = |data: &TensorData| -> Vec<Vec<u8>> {
        data.as_bytes().chunks(size).map(<[u8]>::to_vec).collect()
    };
    let (x, y) = (elements(a), elements(b));
    let count = x.iter().zip(&y).filter(|(x, y)| x != y).count();
    let first = x.iter().zip(&y).enumerate().find(|(_, (x, y))| x != y);
    format!("{}, not {}: {count} elements differ, the first is {first:x?}", of(a), of(b))
}

/// Counts the refused reads. Fails if a read has other bits, or is refused without an allowed
/// reason.
fn compare(reads: &Reads, expected: &Reads, same: Same, what: &str) -> Result<u64, String> {
    if reads.len() != expected.len() {
        return Err(format!("{what}: {} reads, not {}", reads.len(), expected.len()));
    }
    let mut refused = 0;
    for (at, (read, expected)) in reads.iter().zip(expected).enumerate() {
        let expected = expected.as_ref().map_err(|error| format!("no limit: {error}"))?;
        match read {
            Ok(read) if same(read, expected) => {}
            Ok(read) => {
                return Err(format!("{what}: read {at}: {}", difference(read, expected)));
            }
            Err(error) if explained(error) => refused += 1,
            Err(error) => return Err(format!("{what}: read {at}: {error}")),
        }
    }
    Ok(refused)
}

/// Checks the program's reads on all devices. Other programs have used the device `old` before.
fn holds(program: &Program, setup: &Setup, old: &Guard) -> Result<Figures, String> {
    let free = remat_burn::budget(PLENTY).seed(setup.seed).serve::<Flex>(Default::default());
    let (expected, free) = run_on_new(program, &free.unwrap())?;
    if !program.random {
        let plain = play(program, &Device::flex(), || {});
        if compare(&expected, &plain, bits_of_numbers, "without a limit")? > 0 {
            return Err("refused without a limit".into());
        }
    }
    let budget = (free.peak_bytes * setup.percent / 100).max(1);
    let on_old = match setup.on_old {
        true => run_on_old(program, setup, budget, old)?,
        false => None,
    };
    let (reads, stats) = match on_old {
        Some(ran) => ran,
        None => run_on_new(program, &setup.serve(budget))?,
    };
    let refused = compare(&reads, &expected, bits, "under a budget")?;
    Ok(Figures {
        programs: 1,
        limited: u64::from(stats.budget_bytes < free.peak_bytes),
        passed: u64::from(refused == 0 && stats.budget_bytes < free.peak_bytes),
        reads: reads.len() as u64,
        refused,
        evictions: stats.evictions,
        ops: stats.ops,
        recomputed: stats.recomputed_ops,
    })
}

/// Checks the program, and turns a panic into a failure.
fn outcome(program: &Program, setup: &Setup, old: &Guard) -> Result<Figures, String> {
    let once = |old: &Guard| {
        catch_unwind(AssertUnwindSafe(|| holds(program, setup, old))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            Err(text
                .or_else(|| panic.downcast_ref::<&str>().map(|&text| text.into()))
                .unwrap_or_default())
        })
    };
    match once(old) {
        // Burn's autodiff drops tensors from any thread. On a busy machine, Burn's server sometimes
        // gets a request for a tensor that it has already dropped. The server then ends the
        // connection ("Should have handle for tensor", in `burn_ir::handle`) before it calls our
        // code, so no values can be compared.
        Err(why) if program.autodiff && why.contains(LOST) => {
            println!("Burn's server ended the connection; the program runs once more: {why}");
            once(&self::old())
        }
        done => done,
    }
}

/// Seed of the first program, number of programs, and whether these are the default programs.
fn seeds() -> (u64, u64, bool) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|_| panic!("{name}={text} is no number")))
    };
    if let Some(seed) = number("REMAT_SEED") {
        return (seed, 1, false);
    }
    match number("REMAT_RANDOM_PROGRAMS") {
        Some(others) => {
            let now = UNIX_EPOCH.elapsed().expect("it is later than 1970");
            ((now.as_micros() as u64) << 16, others, false)
        }
        None => (0, PROGRAMS, true),
    }
}

/// Device for a sequence of programs.
fn old() -> Guard {
    remat_burn::budget(PLENTY).recompute_limit(20.0).serve::<Flex>(Default::default()).unwrap()
}

#[test]
fn any_program_reads_the_same_bits_under_any_budget() {
    let start = Instant::now();
    let (first, count, usual) = seeds();
    let next = AtomicU64::new(0);
    let figures = Mutex::new(Figures::default());
    let failed = Mutex::new(None::<(u64, String)>);
    let work = || {
        let old = old();
        while failed.lock().unwrap().is_none() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            let seed = first + at;
            let program = Program { told: count == 1, ..Program::new(seed) };
            match outcome(&program, &Setup::new(seed), &old) {
                Ok(one) => figures.lock().unwrap().add(one),
                Err(why) => *failed.lock().unwrap() = Some((seed, why)),
            }
        }
    };
    std::thread::scope(|scope| {
        (0..2).for_each(|_| {
            scope.spawn(work);
        });
    });
    if let Some((seed, first)) = failed.lock().unwrap().take() {
        let setup = Setup::new(seed);
        let fails = |program: &Program| outcome(program, &setup, &old()).err();
        let mut program = Program::new(seed).shrunk(|program| fails(program).is_some());
        program.told = true;
        let why = fails(&program).unwrap_or_else(|| format!("not each time, but then: {first}"));
        panic!(
            "REMAT_SEED={seed} fails; {} steps are enough: {program:?}\n{why}",
            program.steps.len()
        );
    }
    let sum = *figures.lock().unwrap();
    println!("{sum:?} in {:.1} s", start.elapsed().as_secs_f64());
    if usual {
        assert_eq!(sum.programs, PROGRAMS);
        assert!(sum.passed * 4 > sum.limited * 3, "most fit: {sum:?}");
        assert!(sum.evictions > 10 * PROGRAMS && sum.recomputed > 5 * PROGRAMS, "{sum:?}");
        assert!(sum.refused > 0, "some do not: {sum:?}");
    }
}
