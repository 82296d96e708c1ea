//! The table of README.md: what training takes and costs, by plain Burn, by its checkpointing, and under a budget.
//!
//! ```sh
//! cargo bench --bench table
//! cargo bench --bench table -- mlp lstm
//! ```
//!
//! Runs of a model are interleaved, and the best step of several rounds counts. Times are multiples of what the same step takes
//! on a server of Burn's own, so that the price of the connection is a line of its own. Memory is what the process allocates,
//! whoever does, from before the device is made; each model has a process of its own, so that nothing is left of others.

#[path = "../../tests/common/mod.rs"]
mod common;
mod memory;
mod models;

use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::remote::RemoteHost;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex::{Flex, FlexDevice};
use burn_remote::server::{BackendServer, WebSocketTransport};
use common::{Bits, Fill, Net, Outcome};
use memory::Since;
use remat_burn::remat::Stats;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Steps of a run: the first takes what only the first does.
const STEPS: u64 = 3;
const ROUNDS: usize = 7;
/// A run that recomputes this many times the work itself is given up.
const RECOMPUTE_LIMIT: f64 = 4.0;

/// What a run came to.
struct Ran {
    outcome: Outcome,
    /// Of its best step.
    seconds: f64,
    /// Really allocated.
    real: u64,
    /// Of ours.
    stats: Option<Stats>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Plain,
    /// Burn's own server.
    Served,
    /// Percent of what it takes without a limit; `None` is without one.
    Ours(Option<u64>),
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
        };
        if self.checkpointing { name + ", checkpointing" } else { name }
    }
}

/// Prints the rows of a model, called so, beside a device of Burn's own server.
type Rows = fn(&str, &Device) -> Vec<String>;

const MODELS: [(&str, Rows); 5] = [
    ("mlp", model::<common::Mlp>),
    ("cnn", model::<models::Cnn>),
    ("transformer", model::<models::Transformer>),
    ("dropout", model::<models::WithDropout>),
    ("lstm", model::<models::Recurrent>),
];

/// Says which model a process of its own is for.
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

/// One model, in a process in which nothing else was allocated.
fn alone(name: &str) {
    let served = serve();
    // What is made once for the process.
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

/// Prints the rows of a model. Returns how its real peaks are bounded.
fn model<N: Net>(name: &str, served: &Device) -> Vec<String> {
    let full = run::<N>(How::Ours(None), false, served, 0).ok().and_then(|ran| ran.stats);
    let full = full.expect("it trains without a limit").peak_bytes;
    let mut rows: Vec<Row> = [
        (How::Plain, false),
        (How::Plain, true),
        (How::Served, false),
        (How::Ours(None), false),
        (How::Ours(Some(50)), false),
        (How::Ours(Some(30)), false),
        (How::Ours(Some(50)), true),
        (How::Ours(Some(30)), true),
    ]
    .into_iter()
    .map(|(how, checkpointing)| {
        let ran = run::<N>(how, checkpointing, served, full);
        Row { how, checkpointing, ran }
    })
    .collect();
    for _ in 1..ROUNDS {
        for row in &mut rows {
            let Ok(ran) = &mut row.ran else { continue };
            match run::<N>(row.how, row.checkpointing, served, full) {
                Ok(again) => {
                    // Only plain Burn draws new numbers.
                    let drawn = !matches!(row.how, How::Ours(_));
                    assert!(
                        drawn || again.outcome == ran.outcome,
                        "the bits are not those of before"
                    );
                    ran.seconds = ran.seconds.min(again.seconds);
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
    // Masks of dropout are drawn from other numbers than plain Burn's.
    let (same_as, whose) =
        if name == "dropout" { (unlimited, " (as without a limit)") } else { (plain, "") };
    let above = base.real.saturating_sub(full);
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
        let counted = ran.stats.map_or(String::new(), |stats| mib(stats.peak_bytes));
        let again = ran.stats.map_or(String::new(), |stats| {
            format!("{:.1} %", 100.0 * stats.recompute_cost / stats.base_cost)
        });
        let bits = match (row.how, name) {
            (How::Plain | How::Served, "dropout") => "".to_owned(),
            _ if ran.outcome == same_as.outcome => format!("yes{whose}"),
            _ => "NO".to_owned(),
        };
        println!(
            "| {name} | {} | {} | {counted} | {again} | {:.2} | {bits} |",
            row.name(),
            mib(ran.real),
            ran.seconds / base.seconds,
        );
        if let Some(stats) = ran.stats {
            let bound = stats.peak_bytes + above + (4 << 20);
            let holds = if ran.real <= bound { "holds" } else { "DOES NOT HOLD" };
            bounds.push(format!(
                "{name}, {}: {} <= {} + {} + 4: {holds}",
                row.name(),
                mib(ran.real),
                mib(stats.peak_bytes),
                mib(above)
            ));
        }
    }
    bounds
}

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn run<N: Net>(how: How, checkpointing: bool, served: &Device, full: u64) -> Result<Ran, String> {
    let start = Instant::now();
    let ran = run_once::<N>(how, checkpointing, served, full);
    let name = std::any::type_name::<N>().rsplit("::").next().unwrap_or_default();
    eprintln!("{name}, {how:?}, checkpointing {checkpointing}: {:.1?}", start.elapsed());
    ran
}

fn run_once<N: Net>(
    how: How,
    checkpointing: bool,
    served: &Device,
    full: u64,
) -> Result<Ran, String> {
    // What was dropped last is let go by other threads.
    std::thread::sleep(Duration::from_millis(100));
    let since = Since::now();
    let with = |device: Device| match checkpointing {
        true => device.autodiff().gradient_checkpointing(),
        false => device.autodiff(),
    };
    let (outcome, seconds, stats) = match how {
        How::Plain => {
            let (outcome, seconds) = train::<N>(&with(Device::flex()), || Ok(()))?;
            (outcome, seconds, None)
        }
        How::Served => {
            let end = || served.sync().map_err(|error| error.to_string());
            let (outcome, seconds) = train::<N>(&with(served.clone()), end)?;
            (outcome, seconds, None)
        }
        How::Ours(percent) => {
            let budget = percent.map_or(1 << 40, |percent| full * percent / 100);
            let guard = remat_burn::budget(budget)
                .recompute_limit(RECOMPUTE_LIMIT)
                .serve::<Flex>(FlexDevice)
                .map_err(|error| error.to_string())?;
            let end = || guard.step().map_err(|error| error.to_string());
            let (outcome, seconds) = train::<N>(&with(guard.device()), end)?;
            (outcome, seconds, Some(guard.stats().map_err(|error| error.to_string())?))
        }
    };
    Ok(Ran { outcome, seconds, real: since.peak(), stats })
}

/// Trains by Adam. What it came to, and the seconds of the best step.
fn train<N: Net>(
    device: &Device,
    mut end: impl FnMut() -> Result<(), String>,
) -> Result<(Outcome, f64), String> {
    let mut model = N::new(device).map(&mut Fill(0));
    let mut optim = AdamConfig::new().init();
    let loss_of = CrossEntropyLossConfig::new().init(device);
    let mut losses = Vec::new();
    let mut best = f64::INFINITY;
    for step in 0..STEPS {
        let start = Instant::now();
        let logits = model.logits(step % 4, device);
        let rows = logits.dims()[0];
        let classes: Vec<i32> = (0..rows as i32).map(|i| (i * 7 + step as i32 % 4) % 10).collect();
        let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [rows]), device);
        let loss = loss_of.forward(logits, classes);
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        model = optim.step(1e-3, model, grads);
        let loss = loss.try_into_scalar::<f32>().map_err(|error| error.to_string());
        // The engine's own words come first.
        end()?;
        losses.push(loss?.to_bits());
        if step > 0 {
            best = best.min(start.elapsed().as_secs_f64());
        }
    }
    let mut bits = Bits(0xcbf2_9ce4_8422_2325);
    model.visit(&mut bits);
    Ok((Outcome { losses, params: bits.0 }, best))
}
