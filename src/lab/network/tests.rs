//! Clocks computed by hand, on tiny programs. Costs are nanoseconds, and a byte takes a nanosecond.

use super::*;
use crate::command::{Command, RecordedOp, RecordedProgram, RecordedValue, TensorId};
use crate::lab::{CostUnit, Replay, Status};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::{PolicyKind, layout::DType};

/// Bytes of a parameter and of its gradient: 240 numbers, which 2 and 8 ranks divide.
const BYTES: u64 = 960;

fn packed(elements: usize) -> Layout {
    Layout::contiguous(DType::F32, crate::layout::Dims::new(&[elements]))
}

/// Program under construction.
#[derive(Default)]
struct Made(RecordedProgram);

impl Made {
    fn parameter(&mut self) -> TensorId {
        self.0.put(RecordedValue { layout: packed(240), cost: Some(0.0), reruns: None }).unwrap()
    }

    fn op(&mut self, name: &str, cost: f64, inputs: &[TensorId]) -> TensorId {
        self.of_size(240, name, cost, inputs)
    }

    fn of_size(&mut self, size: usize, name: &str, cost: f64, inputs: &[TensorId]) -> TensorId {
        self.0.apply(RecordedOp::new(name, cost), inputs, Outputs::fresh([packed(size)])).unwrap()
    }

    /// Updates the first inputs in place.
    fn update(&mut self, op: RecordedOp, targets: usize, inputs: &[TensorId]) -> TensorId {
        self.0.update(op, inputs, Outputs::updates(targets)).unwrap()
    }

    fn sgd(&mut self, cost: f64, parameter: TensorId, gradient: TensorId) -> TensorId {
        self.update(RecordedOp::new("own_sgd", cost), 1, &[parameter, gradient])
    }

    fn collective(&mut self, name: &str, cost: f64, input: TensorId) -> TensorId {
        let op = RecordedOp { rematerializable: false, ..RecordedOp::new(name, cost) };
        self.update(op, 1, &[input])
    }

    fn push(&mut self, command: Command<RecordedOp, RecordedValue>) {
        self.0.push(command).unwrap();
    }

    fn step(&mut self) {
        self.push(Command::Step);
    }
}

/// Runs a program without a memory limit, and returns times and waiting in nanoseconds: on one rank,
/// and on each number of ranks.
fn times(made: &Made, network: &str, ranks: &[u64]) -> Vec<(i64, i64)> {
    let network = network.parse().unwrap();
    let cluster = Cluster::new(&made.0, &CostUnit::Nanoseconds, network, ranks).unwrap();
    let mut replay = Replay::new(PolicyKind::None, 1 << 30);
    replay.cluster = Some(std::sync::Arc::new(cluster));
    let outcome = replay.run(&made.0).unwrap();
    assert!(matches!(outcome.status, Status::Done), "{:?}", outcome.status);
    let step = outcome.step.unwrap();
    let whole = |seconds: f64| {
        let nanoseconds = seconds * 1e9;
        assert!((nanoseconds - nanoseconds.round()).abs() < 1e-3, "{nanoseconds}");
        nanoseconds.round() as i64
    };
    for on in &step.on_ranks {
        assert!((on.efficiency - step.seconds / on.seconds).abs() < 1e-12);
    }
    let on_ranks = step.on_ranks.iter().map(|on| (whole(on.seconds), whole(on.waiting_seconds)));
    std::iter::once((whole(step.seconds), 0)).chain(on_ranks).collect()
}

/// Form of a training step.
#[derive(Clone, Copy)]
struct Form {
    /// Whether the parameter of the second layer has a gradient, too.
    two: bool,
    /// Whether the activation of the first layer is evicted before its gradient needs it.
    evicts: bool,
    /// Whether a parameter is updated as soon as its gradient is complete.
    early: bool,
}

/// Two steps: forward passes of 1000 each, gradients of 800 and 1500, updates of 100 each.
fn training(Form { two, evicts, early }: Form) -> Made {
    let mut made = Made::default();
    let (mut w1, mut w2) = (made.parameter(), made.parameter());
    for _ in 0..2 {
        let y1 = made.op("layer", 1000.0, &[w1]);
        let y2 = made.op("layer", 1000.0, &[y1, w2]);
        if evicts {
            made.push(Command::Drop(y1));
        }
        let g2 = made.op("grad", 800.0, &[y2, w2]);
        let mut update_2 = |made: &mut Made| {
            if two {
                w2 = made.sgd(100.0, w2, g2);
            }
        };
        if early {
            update_2(&mut made);
        }
        let g1 = made.op("grad", 1500.0, &[g2, y1]);
        if !early {
            update_2(&mut made);
        }
        w1 = made.sgd(100.0, w1, g1);
        [y1, y2, g1, g2].into_iter().for_each(|tensor| made.push(Command::Del(tensor)));
        made.step();
    }
    made
}

/// One all-reduce takes 1000 ns on 2 ranks and 1960 ns on 8 ranks. With a latency of 100 ns, an
/// all-reduce takes 1300 ns on 2 ranks and 4060 ns on 8 ranks. A rank sends three messages to each
/// other rank, one of them a header of 40 bytes.
#[test]
fn clocks_are_as_computed_by_hand() {
    let two = Form { two: true, evicts: false, early: false };
    let one = Form { two: false, ..two };
    let evicts = Form { evicts: true, ..two };
    let early = Form { early: true, ..two };
    let ranks = [1, 2, 8];
    for (form, network, expected) in [
        // The computation waits for each collective from its beginning to its end.
        (two, "1GB,0ns,blocking", [(4500, 0), (6500, 2000), (8420, 3920)]),
        (two, "1GB,100ns,blocking", [(4500, 0), (7100, 2600), (12620, 8120)]),
        (early, "1GB,100ns,blocking", [(4500, 0), (7100, 2600), (12620, 8120)]),
        (one, "1GB,0ns,blocking", [(4400, 0), (5400, 1000), (6360, 1960)]),
        (one, "1GB,100ns,blocking", [(4400, 0), (5700, 1300), (8460, 4060)]),
        (evicts, "1GB,100ns,blocking", [(5500, 0), (8100, 2600), (13620, 8120)]),
        // g2 is complete at 2800, and g1 at 4300. On 8 ranks, the network is still busy at 4300.
        (two, "1GB,0ns", [(4500, 0), (5400, 900), (6820, 2320)]),
        (two, "1GB,100ns", [(4500, 0), (5700, 1200), (11020, 6520)]),
        (early, "1GB,0ns", [(4500, 0), (5400, 900), (6820, 2320)]),
        (early, "1GB,100ns", [(4500, 0), (5700, 1200), (11020, 6520)]),
        // One gradient is complete at the end, where nothing overlaps with its sum.
        (one, "1GB,0ns", [(4400, 0), (5400, 1000), (6360, 1960)]),
        (one, "1GB,100ns", [(4400, 0), (5700, 1300), (8460, 4060)]),
        // Recomputation of 1000 before g1 gives the network more time for g2.
        (evicts, "1GB,0ns", [(5500, 0), (6400, 900), (7360, 1860)]),
        (evicts, "1GB,100ns", [(5500, 0), (6700, 1200), (11020, 5520)]),
    ] {
        let found = times(&training(form), network, &ranks);
        let Form { two, evicts, early } = form;
        let what = format!("{network}, two {two}, evicts {evicts}, early {early}");
        assert_eq!(found[0].0, expected[0].0, "{what}");
        assert_eq!(found[1..], expected, "{what}");
    }
}

#[test]
fn recorded_collectives_take_the_time_of_the_network_instead_of_theirs() {
    let step = |made: &mut Made, w: TensorId| {
        let y = made.op("layer", 1000.0, &[w]);
        let gradient = made.op("grad", 800.0, &[y]);
        let sum = made.collective("all_reduce", 777.0, gradient);
        let other = made.op("other", 300.0, &[y]);
        let w = made.sgd(100.0, w, sum);
        [y, sum, other].into_iter().for_each(|tensor| made.push(Command::Del(tensor)));
        made.step();
        w
    };
    let mut made = Made::default();
    let mut w = made.parameter();
    for _ in 0..3 {
        w = step(&mut made, w);
    }
    let ranks = [1, 2];
    assert_eq!(times(&made, "1GB,0ns", &ranks), [(2200, 0), (2200, 0), (3200, 1000)]);
    assert_eq!(times(&made, "1GB,0ns,overlap", &ranks), [(2200, 0), (2200, 0), (2900, 700)]);
}

/// Norms of clipped gradients need the sums, so the computation waits for them.
#[test]
fn clipping_waits_for_the_sums() {
    let mut made = Made::default();
    let (w1, w2) = (made.parameter(), made.parameter());
    let y = made.op("layer", 2000.0, &[w1, w2]);
    let g2 = made.op("grad", 800.0, &[y, w2]);
    let g1 = made.op("grad", 1500.0, &[g2, w1]);
    let norms = [g2, g1].map(|gradient| made.of_size(1, "norm", 10.0, &[gradient]));
    let factor = made.of_size(1, "factor", 0.0, &norms);
    let clipped = [g2, g1].map(|gradient| made.op("mul", 10.0, &[gradient, factor]));
    made.sgd(100.0, w2, clipped[0]);
    made.sgd(100.0, w1, clipped[1]);
    made.step();
    // The sum of g2 arrives at 3800. The sum of g1 begins at 4300, and the first norm ends at 4310.
    assert_eq!(times(&made, "1GB,0ns", &[2]), [(4540, 0), (5530, 990)]);
}

/// A view reads the result of the all-gather. Nothing reads the result of the last collective
/// before the end.
#[test]
fn results_are_read_through_views_and_at_the_end() {
    let mut made = Made::default();
    let w = made.parameter();
    let op = RecordedOp { rematerializable: false, ..RecordedOp::new("all_gather", 5.0) };
    let whole = made.0.apply(op, &[w], Outputs::fresh([packed(480)])).unwrap();
    let view = made.0.apply(RecordedOp::new("slice", 0.0), &[whole], Outputs::view(0, packed(240)));
    let view = view.unwrap();
    made.op("other", 400.0, &[w]);
    made.op("layer", 100.0, &[view]);
    made.collective("broadcast_from", 5.0, w);
    // The all-gather on 2 ranks sends 40 + 960 bytes. The broadcast sends 40 + 960 bytes.
    assert_eq!(times(&made, "1GB,0ns,overlap", &[2]), [(500, 0), (2100, 1600)]);
    assert_eq!(times(&made, "1GB,0ns", &[2]), [(500, 0), (2500, 2000)]);
}

/// Gradients found in a program.
fn found(made: &Made) -> Vec<TensorId> {
    let found = gradients::gradients(&made.0, &exchanges::Tensors::of(&made.0));
    found.into_iter().map(|(gradient, _)| gradient).collect()
}

#[test]
fn gradients_are_what_updates_of_parameters_read() {
    let mut made = Made::default();
    let (mut w, mut total) = (made.parameter(), made.of_size(1, "zeros", 0.0, &[]));
    let mut average = made.op("zeros", 0.0, &[]);
    let mut velocity = made.op("zeros", 0.0, &[]);
    let mut expected = Vec::new();
    for _ in 0..2 {
        let rate = made.parameter();
        let loss = made.of_size(1, "layer", 1.0, &[w]);
        // Two micro-batches: the sum of their gradients is the gradient.
        let (first, second) = (made.op("grad", 1.0, &[loss, w]), made.op("grad", 1.0, &[loss, w]));
        let sum = made.update(RecordedOp::new("accumulate", 1.0), 1, &[first, second]);
        expected.push(sum);
        // The gradient is clipped by a factor that depends on the norm.
        let norm = made.of_size(1, "norm", 1.0, &[sum]);
        let clipped = made.op("mul", 1.0, &[sum, norm]);
        let op = RecordedOp::new("own_momentum", 1.0);
        w = made.update(op, 2, &[w, velocity, clipped, rate]);
        velocity = w.plus(1);
        average = made.update(RecordedOp::new("average", 1.0), 1, &[average, w]);
        total = made.update(RecordedOp::new("accumulate", 1.0), 1, &[total, loss]);
        made.step();
    }
    assert_eq!(found(&made), expected);
}

#[test]
fn gradients_of_known_optimizers_are_found_in_the_first_step() {
    let mut made = Made::default();
    let uniform = made.op("uniform", 1.0, &[]);
    let w = made.op("scale", 1.0, &[uniform]);
    let velocity = made.op("zeros", 1.0, &[]);
    let gradient = made.op("grad", 1.0, &[w]);
    made.update(RecordedOp::new("sgd_momentum", 1.0), 2, &[w, velocity, gradient]);
    assert_eq!(found(&made), [gradient]);
}

#[test]
fn traces_without_times_or_gradients_are_refused() {
    let network: Network = "1GB,1us".parse().unwrap();
    let trained = training(Form { two: true, evicts: false, early: false });
    let error = Cluster::new(&trained.0, &CostUnit::Gigaflops, network, &[2]).unwrap_err();
    assert_eq!(error, ClusterError::NoTimes(CostUnit::Gigaflops));
    let mut forward = Made::default();
    let w = forward.parameter();
    forward.op("layer", 1.0, &[w]);
    let error = Cluster::new(&forward.0, &CostUnit::Milliseconds, network, &[2]).unwrap_err();
    assert_eq!(error, ClusterError::NothingToSend);
}

#[test]
fn bounds_are_the_slower_of_the_two_clocks() {
    let made = training(Form { two: true, evicts: false, early: false });
    let least = |network: &str| {
        let network = network.parse().unwrap();
        let cluster = Cluster::new(&made.0, &CostUnit::Nanoseconds, network, &[1, 2, 8]).unwrap();
        let (alone, on_ranks) = cluster.least_seconds(&made.0, 9000.0);
        [alone, on_ranks[0], on_ranks[1], on_ranks[2]].map(|seconds| (seconds * 1e9).round() as i64)
    };
    // Two steps with two all-reduces each.
    assert_eq!(least("1GB,0ns"), [9000, 9000, 9000, 9000]);
    assert_eq!(least("1GB,100ns"), [9000, 9000, 9000, 16_240]);
    assert_eq!(least("1GB,0ns,blocking"), [9000, 9000, 13_000, 16_840]);
    assert_eq!(BYTES, packed(240).bytes());
}

#[test]
fn networks_are_read_as_users_write_them() {
    let of = |text: &str| text.parse::<Network>();
    for (text, bytes_per_second, latency) in [
        ("100Gbit,5us", 12.5e9, 5e-6),
        ("100Gbps,5us", 12.5e9, 5e-6),
        ("5us, 100 Gbit/s", 12.5e9, 5e-6),
        ("1000Mbit,1.5ms", 125e6, 1.5e-3),
        ("12.5GB/s,800ns", 12.5e9, 8e-7),
        ("2GiB,0us", 2_147_483_648.0, 0.0),
        ("64MiB,1s", 67_108_864.0, 1.0),
        ("1kbit,5\u{b5}s", 125.0, 5e-6),
        ("1TB,5\u{3bc}s", 1e12, 5e-6),
    ] {
        let network = of(text).unwrap();
        assert_eq!(network.overlaps, None, "{text}");
        assert!((network.bytes_per_second / bytes_per_second - 1.0).abs() < 1e-12, "{text}");
        assert!((network.latency - latency).abs() < 1e-18, "{text}");
    }
    assert_eq!(of("1GB,1us,overlap").unwrap().overlaps, Some(true));
    assert_eq!(of("blocking,1GB,1us").unwrap().overlaps, Some(false));
    for (text, words) in [
        ("", "100Gbit,5us"),
        ("100Gbit", "the latency is missing"),
        ("5us", "the bandwidth is missing"),
        ("100Gb,5us", "write 100Gbit or 100GB"),
        ("100gbit,5us", "no figure of a network"),
        ("100,5us", "no figure of a network"),
        ("NaNGB,5us", "no figure of a network"),
        ("infGB,5us", "no figure of a network"),
        ("-1GB,5us", "1kbit to 1000Tbit"),
        ("0GB,5us", "1kbit to 1000Tbit"),
        ("1001Tbit,5us", "1kbit to 1000Tbit"),
        ("1GB,-5us", "0us to 60s"),
        ("1GB,61s", "0us to 60s"),
        ("1GB,2GB,5us", "comes second"),
        ("1GB,5us,overlap,blocking", "comes second"),
        ("1GB,5us,", "100Gbit,5us"),
    ] {
        let error = of(text).unwrap_err();
        assert!(error.contains(words), "{text}: {error}");
    }
}
