//! Comparison of the arena with other allocators: time of an operation, and memory for a stream of
//! operations.
//!
//! ```text
//! recorded: buffers of a training step     each allocated at `lower`, freed at `upper`
//!           |--a--|    |----c----|          frees before allocations, as one step follows another
//!              |----b----|
//! random:   55 % allocations until as many are live as may be, each free takes a random live one
//! ```
//!
//! Every allocator executes the same streams over 32 GiB. No buffer is live at the start and at the
//! end of a stream. The first pass measures the highest end of any block, divided by the peak of
//! live bytes (each buffer rounded up to 256).
//!
//! Timed passes follow on the same allocator. Rounds of all allocators alternate, and the result of
//! an allocator is its best round. For short streams, a round takes a few milliseconds, so that
//! some rounds are undisturbed on a shared machine.
//!
//! The mean comes from passes in which only the whole pass is timed. The 99th percentile comes from
//! other passes, in which each operation is timed. The time of reading the clock is subtracted.
//!
//! Baselines: `remat, split rule` is this crate's arena with TensorFlow's split rule, by which a
//! block may take a whole hole. `rlsf` and `buddy_system_allocator` store their records in the
//! memory that they manage. An allocator that does so cannot manage device memory, so in this
//! benchmark these two manage host memory.
//!
//! Below the table, the benchmark prints the time to find the free bytes beside a block, by the
//! number of blocks. `-- --json` prints only the table, with one object per line.

mod neighbours;
mod peers;
mod streams;

use peers::{Buddy, OffsetAllocator, Peer, RangeAlloc, Remat, RematTensorFlow, Rlsf};
use std::time::{Duration, Instant};
use streams::{Op, Stream};

/// Maximum number of rounds of each kind: with only the whole pass timed, and with each operation
/// timed.
const ROUNDS: usize = 60;
/// Time after which a slow allocator skips the remaining rounds of one kind.
const ENOUGH: Duration = Duration::from_millis(1500);
/// Minimum number of rounds of each kind, even for slow allocators.
const LEAST_ROUNDS: usize = 3;
/// Width to which names are padded, in characters.
const WIDTH: usize = 24;

/// Figures of one allocator on one stream.
struct Row {
    allocator: &'static str,
    ns_mean: f64,
    ns_p99: f64,
    high_water_over_peak_live: f64,
}

/// Allocator that executes one stream.
trait Player {
    /// Executes a pass. Returns the mean nanoseconds of an operation.
    fn mean(&mut self) -> f64;
    /// Executes a pass. Returns the 99th percentile of an operation's nanoseconds, less `clock`.
    fn p99(&mut self, clock: f64) -> f64;
}

struct Game<'a, P: Peer> {
    peer: P,
    stream: &'a Stream,
    blocks: Vec<Option<P::Block>>,
    samples: Vec<u32>,
}

impl<'a, P: Peer> Game<'a, P> {
    /// Executes the stream once on a new allocator. Also returns the highest end of any block.
    fn start(stream: &'a Stream) -> (Self, u64) {
        let mut game =
            Self { peer: P::new(), stream, blocks: vec![None; stream.buffers], samples: vec![] };
        let mut high_water = 0;
        for &op in &stream.ops {
            game.play(op);
            if let Op::Alloc { id, .. } = op {
                let block = game.blocks[id as usize].expect("it was just allocated");
                high_water = high_water.max(game.peer.end(block));
            }
        }
        (game, high_water)
    }

    #[inline(always)]
    fn play(&mut self, op: Op) {
        match op {
            Op::Alloc { id, bytes } => {
                let block = self.peer.alloc(bytes);
                self.blocks[id as usize] = Some(block.expect("32 GiB suffice"));
            }
            Op::Free { id, bytes } => {
                let block = self.blocks[id as usize].take().expect("it is live");
                self.peer.free(block, bytes);
            }
        }
    }
}

impl<P: Peer> Player for Game<'_, P> {
    fn mean(&mut self) -> f64 {
        let start = Instant::now();
        for _ in 0..self.stream.repeats {
            for &op in &self.stream.ops {
                self.play(op);
            }
        }
        let ops = self.stream.ops.len() * self.stream.repeats;
        start.elapsed().as_nanos() as f64 / ops as f64
    }

    fn p99(&mut self, clock: f64) -> f64 {
        let mut samples = std::mem::take(&mut self.samples);
        samples.clear();
        for _ in 0..self.stream.repeats {
            for &op in &self.stream.ops {
                let start = Instant::now();
                self.play(op);
                samples.push(start.elapsed().as_nanos() as u32);
            }
        }
        let at = samples.len() * 99 / 100;
        let p99 = *samples.select_nth_unstable(at).1;
        self.samples = samples;
        (f64::from(p99) - clock).max(0.0)
    }
}

/// Makes a player, and its row with the results of the first pass.
fn enter<'a, P: Peer + 'a>(stream: &'a Stream) -> (Box<dyn Player + 'a>, Row) {
    let (game, high_water) = Game::<P>::start(stream);
    let row = Row {
        allocator: P::NAME,
        ns_mean: f64::INFINITY,
        ns_p99: f64::INFINITY,
        high_water_over_peak_live: high_water as f64 / stream.peak_live as f64,
    };
    (Box::new(game), row)
}

/// Calls `play` for all players, round by round.
fn rounds<'a>(
    entered: &mut [(Box<dyn Player + 'a>, Row)],
    play: impl Fn(&mut dyn Player, &mut Row),
) {
    let mut spent = vec![Duration::ZERO; entered.len()];
    for round in 0..ROUNDS {
        for ((player, row), spent) in entered.iter_mut().zip(&mut spent) {
            if round < LEAST_ROUNDS || *spent < ENOUGH {
                let start = Instant::now();
                play(player.as_mut(), row);
                *spent += start.elapsed();
            }
        }
    }
}

fn measure(stream: &Stream, clock: f64) -> Vec<Row> {
    let mut entered = [
        enter::<Remat>(stream),
        enter::<RematTensorFlow>(stream),
        enter::<OffsetAllocator>(stream),
        enter::<Rlsf>(stream),
        enter::<RangeAlloc>(stream),
        enter::<Buddy>(stream),
    ];
    rounds(&mut entered, |player, row| row.ns_mean = row.ns_mean.min(player.mean()));
    rounds(&mut entered, |player, row| row.ns_p99 = row.ns_p99.min(player.p99(clock)));
    entered.into_iter().map(|(_, row)| row).collect()
}

/// Nanoseconds between two successive readings of the clock: the median of many.
fn clock() -> f64 {
    let mut samples: Vec<_> = (0..100_001)
        .map(|_| {
            let start = Instant::now();
            start.elapsed().as_nanos()
        })
        .collect();
    *samples.select_nth_unstable(50_000).1 as f64
}

fn main() {
    let json = std::env::args().any(|arg| arg == "--json");
    let clock = clock();
    for stream in streams::all() {
        if !json {
            println!(
                "{}: {} operations, {:.0} MiB live at most",
                stream.name,
                stream.ops.len() * stream.repeats,
                stream.peak_live as f64 / f64::from(1 << 20)
            );
            println!(
                "  {:WIDTH$} {:>8} {:>8} {:>24}",
                "allocator", "ns mean", "ns p99", "high water / peak live"
            );
        }
        for row in measure(&stream, clock) {
            let Row { allocator, ns_mean, ns_p99, high_water_over_peak_live } = row;
            if json {
                println!(
                    "{{\"stream\":\"{}\",\"allocator\":\"{allocator}\",\"ns_mean\":{ns_mean:.2},\
                     \"ns_p99\":{ns_p99:.1},\
                     \"high_water_over_peak_live\":{high_water_over_peak_live:.4}}}",
                    stream.name
                );
            } else {
                println!(
                    "  {allocator:WIDTH$} {ns_mean:>8.1} {ns_p99:>8.0} \
                     {high_water_over_peak_live:>24.3}"
                );
            }
        }
    }
    if !json {
        neighbours::print();
    }
}
