//! Ranks under MPI: this program runs itself by `mpirun`. The parameters have the bits of ranks that
//! are threads, and a job with a rank that fails ends.

use remat::nn::{mlp, parameters};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::unstable::collective::{Fabric, Job, Ranks, threads};
use std::error::Error as StdError;
use std::io::Read as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Time after which a job counts as hung.
const HANG: Duration = Duration::from_secs(60);

type Done<T> = Result<T, Box<dyn StdError>>;

/// What rank 1 does at the beginning of step 3.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    Error,
    Panic,
    OutOfMemory,
    Kill,
    Exit,
    Stop,
    MoreCollectives,
}

const FAULTS: [Fault; 8] = [
    Fault::None,
    Fault::Error,
    Fault::Panic,
    Fault::OutOfMemory,
    Fault::Kill,
    Fault::Exit,
    Fault::Stop,
    Fault::MoreCollectives,
];

/// Trains a network for six steps, and returns its parameters.
fn train(ranks: &Ranks, budget: &str, fault: Fault) -> Done<Vec<f32>> {
    let runtime = Runtime::builder().budget(budget).threads(1).seed(3).cpu()?;
    let mut net = mlp(&runtime, 64, &[64, 48, 32], 10)?;
    let mut sgd = Optimizer::sgd(0.1, 0.9, 1e-3).distributed(ranks);
    for step in 0..6 {
        if step == 3 && ranks.rank() == 1 {
            commit_fault(fault, ranks, &runtime)?;
        }
        let x = runtime.full(&[32, 64], 0.1 * (1 + step * ranks.size() + ranks.rank()) as f32)?;
        let labels: Vec<i32> = (0..32).map(|i| (i + ranks.rank() as i32) % 10).collect();
        let labels = runtime.tensor(&[32], labels)?;
        let tape = Tape::new(&runtime);
        tape.watch(&mut net);
        let loss = net.forward(&x.sin()?, Mode::Train)?.cross_entropy(&labels)?;
        sgd.minimize(tape, &(&loss / ranks.size() as f32)?, &mut net)?;
        runtime.step()?;
        loss.item()?;
    }
    let mut values = Vec::new();
    for (_, parameter) in parameters(&mut net) {
        values.extend(parameter.to_vec::<f32>()?);
    }
    Ok(values)
}

fn commit_fault(fault: Fault, ranks: &Ranks, runtime: &Runtime) -> Done<()> {
    let signal = |name: &str| {
        let id = std::process::id().to_string();
        Command::new("kill").args([name, &id]).status().map(drop)
    };
    match fault {
        Fault::None => {}
        Fault::Error => return Err("the data of step 3 cannot be read".into()),
        Fault::Panic => panic!("step 3 is not possible"),
        Fault::OutOfMemory => drop(runtime.ones(&[64 << 20])?.to_vec::<f32>()?),
        Fault::Kill => signal("-KILL")?,
        Fault::Exit => std::process::exit(0),
        Fault::Stop => signal("-STOP")?,
        Fault::MoreCollectives => {
            let mut x = runtime.ones(&[3])?;
            runtime.update(ranks.all_reduce("one more"), &mut [&mut x], &[])?;
        }
    }
    Ok(())
}

fn hash(values: &[f32]) -> u64 {
    values.iter().fold(0, |hash: u64, x| {
        (hash ^ u64::from(x.to_bits())).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
    })
}

/// Runs a rank; the arguments are `budgets fault`.
fn rank(args: &[String]) -> Done<()> {
    let budgets: Vec<&str> = args[0].split(',').collect();
    let fault = FAULTS.into_iter().find(|fault| format!("{fault:?}") == args[1]).ok_or("fault")?;
    let patience = if fault == Fault::Stop { Duration::from_secs(3) } else { Job::PATIENCE };
    Ok(Job::run(patience, |job| -> Done<()> {
        let fabric = job.fabric();
        assert!(fabric.local().1 <= fabric.size());
        let ranks = Ranks::with_buffer(fabric, 4 << 10);
        let values = train(&ranks, budgets[ranks.rank() % budgets.len()], fault)?;
        println!("rank {} of {} has {:016x}", ranks.rank(), ranks.size(), hash(&values));
        Ok(())
    })?)
}

/// Runs a job, and returns whether it succeeded and what its ranks printed.
fn run(ranks: usize, budgets: &str, fault: Fault) -> Done<(bool, String)> {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "-n", &ranks.to_string()]);
    command.arg(std::env::current_exe()?).args(["rank", budgets, &format!("{fault:?}")]);
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = err.read_to_string(&mut text);
        text
    });
    let other = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = out.read_to_string(&mut text);
        text
    });
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > HANG {
            child.kill()?;
            return Err(format!("{ranks} ranks with {fault:?} hang").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let text = other.join().unwrap() + &reader.join().unwrap();
    Ok((status.success(), text))
}

fn check() -> Done<()> {
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("skipped: there is no mpirun");
        return Ok(());
    }
    for ranks in 1..=4 {
        let expected: Vec<u64> = threads(ranks)
            .into_iter()
            .map(|fabric| {
                std::thread::spawn(move || {
                    let ranks = Ranks::with_buffer(fabric, 1 << 20);
                    hash(&train(&ranks, "16MiB", Fault::None).map_err(|e| e.to_string()).unwrap())
                })
            })
            .collect::<Vec<_>>()
            .into_iter()
            .map(|rank| rank.join().unwrap())
            .collect();
        for budgets in ["16MiB", "16MiB,130KiB", "140KiB,130KiB,16MiB,150KiB"] {
            let (ended_well, text) = run(ranks, budgets, Fault::None)?;
            assert!(ended_well, "{text}");
            for (rank, hash) in expected.iter().enumerate() {
                let line = format!("rank {rank} of {ranks} has {hash:016x}");
                assert!(text.contains(&line), "{budgets}: no `{line}` in\n{text}");
            }
        }
        println!("{ranks} ranks have the bits of ranks that are threads");
    }
    for (fault, words) in [
        (Fault::Error, "rank 1 failed: the data of step 3 cannot be read"),
        (Fault::Panic, "step 3 is not possible"),
        (Fault::OutOfMemory, "rank 1 failed: out of memory"),
        (Fault::Kill, "signal 9"),
        (Fault::Exit, "mpirun"),
        (Fault::Stop, "has waited for the other ranks for 3 s"),
        (Fault::MoreCollectives, "ranks differ: on rank 0, collective 25 is an all-reduce"),
    ] {
        for ranks in [2, 3] {
            let (ended_well, text) = run(ranks, "16MiB", fault)?;
            assert!(!ended_well, "{fault:?} on {ranks} ranks: {text}");
            assert!(text.contains(words), "{fault:?} on {ranks} ranks: no `{words}` in\n{text}");
        }
        println!("a job ends after {fault:?}");
    }
    Ok(())
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let done = match args.first().map(String::as_str) {
        Some("rank") => rank(&args[1..]),
        _ => check(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
