//! Measures the table of README.md: memory and time of training by plain Burn, with Burn's
//! checkpointing, and under a budget.
//!
//! ```sh
//! cargo bench --bench table
//! cargo bench --bench table -- mlp lstm
//! ```
//!
//! The time of a step is relative to the same step on Burn's own server, so that the cost of the
//! connection has a separate row. Steps of two models alternate, one on each device, and the result
//! is the median of the ratios. Memory is all memory that the process allocates, beginning before
//! the device is made. Each model has a separate process, so that no memory of other models is
//! left.

#[path = "../../tests/common/mod.rs"]
mod common;
mod memory;
mod models;
mod place;

use burn::remote::RemoteHost;
use burn::tensor::{Device, Tensor};
use burn_flex::{Flex, FlexDevice};
use burn_remote::server::{BackendServer, WebSocketTransport};
use common::{Net, Outcome, Training};
use memory::Since;
use place::{How, Measured, Place};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of steps of a run in which memory is measured. After these steps, a device begins its
/// search for forecasts.
const STEPS: usize = 6;
/// Number of runs in which memory is measured. The result is the largest peak.
const ROUNDS: usize = 3;
/// Number of steps in which a device learns to predict steps, and searches for forecasts.
const LEARNING: usize = 24;
/// Number of later steps, in which time and recomputation are measured.
const PAIRS: usize = 41;

/// Result of a run.
struct Ran {
    outcome: Outcome,
    /// Peak of the bytes that the process allocated.
    real: u64,
    /// Peak of the bytes that `remat-burn` counts; `None` for plain Burn.
    counted: Option<u64>,
}

/// Time and recomputation of a step.
struct Pace {
    /// Time relative to the same step on Burn's own server.
    ratio: f64,
    /// Cost of recomputation divided by the cost of the work; `None` for plain Burn.
    recomputed: Option<f64>,
}

struct Row {
    how: How,
    checkpointing: bool,
    ran: Result<Ran, String>,
}

impl Row {
    fn name(&self) -> String {
        let name = match self.how {
            How::Plain => "plain".to_owned(),
            How::Served => "plain, served".to_owned(),
            How::Ours(None) => "ours, no limit".to_owned(),
            How::Ours(Some(percent)) => format!("ours, {percent} %"),
            How::Rehearsed(percent) => format!("ours, {percent} %, rehearsed"),
        };
        if self.checkpointing { name + ", checkpointing" } else { name }
    }
}

/// Prints the rows of the model with this name. The device is one of Burn's own server, for
/// comparison.
type Rows = fn(&str, &Device) -> Vec<String>;

const MODELS: [(&str, Rows); 5] = [
    ("mlp", model::<common::Mlp>),
    ("cnn", model::<models::Cnn>),
    ("transformer", model::<models::Transformer>),
    ("dropout", model::<models::WithDropout>),
    ("lstm", model::<models::Recurrent>),
];

/// Environment variable that names the model of a separate process.
const MODEL: &str = "REMAT_BURN_TABLE_MODEL";

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    if let Ok(name) = std::env::var(MODEL) {
        return alone(&name);
    }
    if let Some(unknown) = wanted.iter().find(|name| MODELS.iter().all(|(model, _)| model != name))
    {
        eprintln!("no model is called `{unknown}`; there are {:?}", MODELS.map(|(name, _)| name));
        std::process::exit(2);
    }
    println!(
        "| model | run | real peak | counted peak | recomputed | time of a step | same bits |"
    );
    println!("|---|---|--:|--:|--:|--:|---|");
    let mut bounds = Vec::new();
    for (name, _) in MODELS {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            let this = std::env::current_exe().expect("it runs");
            let output = Command::new(this).env(MODEL, name).stderr(Stdio::inherit()).output();
            let output = output.expect("it starts again");
            assert!(output.status.success(), "{name}: {}", output.status);
            let lines = String::from_utf8(output.stdout).expect("text");
            let (rows, of_it) = lines.split_once("\n\n").expect("rows and bounds");
            println!("{rows}");
            bounds.extend(of_it.lines().map(str::to_owned));
        }
    }
    println!();
    println!("real peak <= counted peak + what Burn's own server has above the count + 4 MiB:");
    bounds.iter().for_each(|bound| println!("{bound}"));
}

/// Measures one model, in a process that has no memory of other models.
fn alone(name: &str) {
    let served = serve();
    // Makes everything that a process makes once.
    let guard = remat_burn::budget("1GiB").serve::<Flex>(FlexDevice).expect("a device");
    let _ = Tensor::<1>::from_floats([1.0], &guard).into_data();
    drop(guard);
    let (_, model) = MODELS.iter().find(|(model, _)| *model == name).expect("one of them");
    let bounds = model(name, &served);
    println!("\n{}", bounds.join("\n"));
}

/// A device of Burn's own server.
fn serve() -> Device {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("it listens");
    let server = BackendServer::<Flex>::new([FlexDevice]);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("threads");
        let served =
            runtime.block_on(server.serve_async(WebSocketTransport::from_listener(listener)));
        served.expect("it serves");
    });
    let host = RemoteHost::websocket(&format!("ws://{address}"));
    Device::remote_options(&host).init().expect("it is there")
}

/// Prints the rows of a model. Returns lines that compare its real peaks with their limits.
fn model<N: Net>(name: &str, served: &Device) -> Vec<String> {
    let known = &Measured::of::<N>(served).expect("it trains without a limit");
    let mut rows: Vec<Row> = [
        (How::Plain, false),
        (How::Plain, true),
        (How::Served, false),
        (How::Ours(None), false),
        (How::Ours(Some(50)), false),
        (How::Ours(Some(30)), false),
        (How::Rehearsed(50), false),
        (How::Rehearsed(30), false),
        (How::Ours(Some(50)), true),
        (How::Ours(Some(30)), true),
    ]
    .into_iter()
    .map(|(how, checkpointing)| {
        let ran = run::<N>(how, checkpointing, known);
        Row { how, checkpointing, ran }
    })
    .collect();
    for _ in 1..ROUNDS {
        for row in &mut rows {
            let Ok(ran) = &mut row.ran else { continue };
            match run::<N>(row.how, row.checkpointing, known) {
                Ok(again) => {
                    // Plain Burn draws other random numbers in each run.
                    let drawn = matches!(row.how, How::Plain | How::Served);
                    assert!(
                        drawn || again.outcome == ran.outcome,
                        "the bits are not those of before"
                    );
                    ran.real = ran.real.max(again.real);
                }
                Err(error) => row.ran = Err(error),
            }
        }
    }
    let of = |how| {
        let row = rows.iter().find(|row| row.how == how && !row.checkpointing)?;
        row.ran.as_ref().ok()
    };
    let (plain, unlimited, base) = (of(How::Plain), of(How::Ours(None)), of(How::Served));
    let (Some(plain), Some(unlimited), Some(base)) = (plain, unlimited, base) else {
        panic!("{name} does not train without a limit");
    };
    // Under a budget, masks of dropout are drawn from other random numbers than in plain Burn.
    let (same_as, whose) =
        if name == "dropout" { (unlimited, " (as without a limit)") } else { (plain, "") };
    let above = base.real.saturating_sub(known.full);
    let mut bounds = Vec::new();
    for row in &rows {
        let ran = match &row.ran {
            Ok(ran) => ran,
            Err(error) => {
                let first = error.lines().next().unwrap_or_default();
                println!("| {name} | {} | {first} | | | | |", row.name());
                continue;
            }
        };
        let counted = ran.counted.map_or(String::new(), mib);
        let bits = match (row.how, name) {
            (How::Plain | How::Served, "dropout") => String::new(),
            _ if ran.outcome == same_as.outcome => format!("yes{whose}"),
            _ => "NO".to_owned(),
        };
        let (again, time) = match pace::<N>(row.how, row.checkpointing, known) {
            Ok(pace) => {
                let again = pace.recomputed.map(|share| format!("{:.1} %", 100.0 * share));
                (again.unwrap_or_default(), format!("{:.2}", pace.ratio))
            }
            Err(error) => (String::new(), error),
        };
        println!(
            "| {name} | {} | {} | {counted} | {again} | {time} | {bits} |",
            row.name(),
            mib(ran.real),
        );
        if let Some(counted) = ran.counted {
            let bound = counted + above + (4 << 20);
            let holds = if ran.real <= bound { "holds" } else { "DOES NOT HOLD" };
            bounds.push(format!(
                "{name}, {}: {} <= {} + {} + 4: {holds}",
                row.name(),
                mib(ran.real),
                mib(counted),
                mib(above)
            ));
        }
    }
    bounds
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn run<N: Net>(how: How, checkpointing: bool, known: &Measured) -> Result<Ran, String> {
    let start = Instant::now();
    let ran = run_once::<N>(how, checkpointing, known);
    let name = std::any::type_name::<N>().rsplit("::").next().unwrap_or_default();
    eprintln!("{name}, {how:?}, checkpointing {checkpointing}: {:.1?}", start.elapsed());
    ran
}

fn run_once<N: Net>(how: How, checkpointing: bool, known: &Measured) -> Result<Ran, String> {
    // Other threads free the memory of values that were dropped just before.
    std::thread::sleep(Duration::from_millis(100));
    let since = Since::now();
    let place = Place::new(how, checkpointing, known)?;
    let mut training = Training::<N>::new(&place.device);
    for _ in 0..STEPS {
        place.step(&mut training)?;
    }
    let outcome = training.outcome();
    let counted = place.stats()?.map(|stats| stats.peak_bytes);
    Ok(Ran { outcome, real: since.peak(), counted })
}

/// Measures steps, alternating with steps on Burn's own server.
fn pace<N: Net>(how: How, checkpointing: bool, known: &Measured) -> Result<Pace, String> {
    let start = Instant::now();
    let base = Place::new(How::Served, false, known)?;
    let place = Place::new(how, checkpointing, known)?;
    let [mut there, mut here] = [&base, &place].map(|place| Training::<N>::new(&place.device));
    let mut pair = || Ok::<_, String>((base.step(&mut there)?, place.step(&mut here)?));
    for _ in 0..LEARNING {
        pair()?;
    }
    let before = place.stats()?;
    let ratios = (0..PAIRS).map(|_| pair().map(|(base, seconds)| seconds / base));
    let mut ratios = ratios.collect::<Result<Vec<f64>, _>>()?;
    let recomputed = before.zip(place.stats()?).map(|(before, after)| {
        (after.recompute_cost - before.recompute_cost) / (after.base_cost - before.base_cost)
    });
    ratios.sort_by(f64::total_cmp);
    let quartile = |n: usize| ratios[PAIRS * n / 4];
    eprintln!(
        "    {how:?}, checkpointing {checkpointing}: {:.3}, quartiles {:.3} and {:.3}, in {:.1?}",
        quartile(2),
        quartile(1),
        quartile(3),
        start.elapsed()
    );
    Ok(Pace { ratio: quartile(2), recomputed })
}
