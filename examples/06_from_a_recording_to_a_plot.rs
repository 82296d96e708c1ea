//! Records training steps, replays them under several budgets, and draws a plot of the cost. The
//! recording comes from the simulated device, which computes no values.
//!
//! `cargo run --release --example 06_from_a_recording_to_a_plot`

use remat::nn::{ResNet, resnet};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::trace::JsonLines;
use remat::unstable::lab::plot::{Line, Panel, Point, slowdown};
use remat::unstable::lab::{Grid, Job, Replay, Trace, sweep};
use remat::{Dead, PolicyKind};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir();
    let (recording, drawing) = (folder.join("resnet32.jsonl"), folder.join("resnet32.svg"));

    // Two steps of a ResNet-32. The first step makes the optimizer's state, and the second step is
    // like all later steps.
    let runtime = Runtime::builder().record(JsonLines::create(&recording)?).sim()?;
    let mut network = resnet(&runtime, ResNet::Cifar { n: 5 }, 3, [32, 32], 10)?;
    let mut sgd = Optimizer::sgd(0.1, 0.9, 5e-4);
    for _ in 0..2 {
        let images = runtime.put(HostTensor::zeros(DType::F32, [64, 3, 32, 32])?)?;
        let labels = runtime.put(HostTensor::zeros(DType::I32, [64])?)?;
        let tape = Tape::new(&runtime);
        tape.watch(&mut network);
        let logits = network.forward(&images, Mode::Train)?;
        let loss = logits.cross_entropy(&labels)?;
        drop((images, labels, logits));
        sgd.minimize(tape, &loss, &mut network)?;
        drop(loss);
        runtime.step()?;
    }
    runtime.finish_recording()?;

    // The grid is as in `remat sweep`: each policy at 30 % to 100 % of the smallest budget without
    // evictions.
    let trace = Trace::open(&recording)?;
    let program = trace.program();
    let like = Replay::new(PolicyKind::None, 1);
    let unbudgeted = like.unbudgeted(program)?;
    let grid = Grid {
        policies: vec![PolicyKind::DtrEq, PolicyKind::Lru, "own/size*stale^2".parse()?],
        budgets: (3..=10).map(|tenths| unbudgeted.full_budget * tenths / 10).collect(),
        thresholds: vec![None],
        dead: vec![Dead::Drop],
        seeds: vec![0],
    };
    let replays = grid.replays(&like);
    let job =
        |replay| Job { trace: trace.name(), program, unbudgeted, replay, least_slowdown: None };
    let jobs: Vec<Job<'_>> = replays.into_iter().map(job).collect();
    let rows = sweep(&jobs, 0, |_| {})?;

    let line = |policy: &PolicyKind| {
        let label = policy.to_string();
        let of_policy = rows.iter().filter(|row| row.policy == label);
        let point = |row: &remat::unstable::lab::Row| Point {
            budget_ratio: row.budget_ratio,
            slowdown: row.slowdown,
        };
        Line { points: of_policy.map(point).collect(), label }
    };
    let lines: Vec<Line> = grid.policies.iter().map(line).collect();
    for Line { label, points } in &lines {
        let shown = points.iter().map(|p| p.slowdown.map_or("fails".into(), |s| format!("{s:.3}")));
        println!("{label:18} {}", shown.collect::<Vec<_>>().join("  "));
    }
    let panel = Panel { title: trace.name().to_owned(), lines, full_budget: None };
    let svg = slowdown(&[panel], 2.0)?;
    std::fs::write(&drawing, svg)?;
    println!("drawn: {}", drawing.display());
    assert!(rows.iter().filter(|row| row.budget_ratio > 0.45).all(|row| row.slowdown.is_some()));
    Ok(())
}
