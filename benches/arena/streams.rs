//! Streams of allocations and frees. At the end of a stream, no buffer is live.

use remat_rng::SplitMix64;
use std::path::Path;

/// Granule in bytes: every allocator rounds sizes up to a multiple of it.
const GRANULE: u64 = 256;

#[derive(Clone, Copy)]
pub enum Op {
    Alloc { id: u32, bytes: u64 },
    Free { id: u32, bytes: u64 },
}

pub struct Stream {
    pub name: &'static str,
    pub ops: Vec<Op>,
    /// Number of buffers; each buffer's id is below this number.
    pub buffers: usize,
    /// Number of times that a timed pass executes the stream.
    pub repeats: usize,
    /// Peak of live bytes, each buffer rounded up to 256.
    pub peak_live: u64,
}

impl Stream {
    fn new(name: &'static str, ops: Vec<Op>, buffers: usize, repeats: usize) -> Self {
        let (mut live, mut peak_live) = (0, 0);
        for op in &ops {
            match op {
                Op::Alloc { bytes, .. } => live += bytes,
                Op::Free { bytes, .. } => live -= bytes,
            }
            peak_live = peak_live.max(live);
        }
        assert_eq!(live, 0, "{name} ends with nothing live");
        Self { name, ops, buffers, repeats, peak_live }
    }
}

/// All streams. Recorded streams need the files in `../shared`.
pub fn all() -> Vec<Stream> {
    let recorded = [("resnet50", 50), ("G_1", 50), ("S_1", 2)];
    let mut streams: Vec<_> = recorded
        .into_iter()
        .filter_map(|(name, repeats)| {
            let found = recorded_stream(name, repeats);
            if found.is_none() {
                eprintln!("{name}: skipped, there is no ../shared/data/planning/{name}.csv");
            }
            found
        })
        .collect();
    streams.push(random("synthetic 1k", 500_000, 1_000, 64 << 20));
    streams.push(random("synthetic 20k", 1_000_000, 20_000, 4 << 20));
    streams
}

/// Reads a file of lines `id,lower,upper,size`. Each buffer is live from `lower` up to `upper`.
fn recorded_stream(name: &'static str, repeats: usize) -> Option<Stream> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../shared/data/planning/{name}.csv"));
    let text = std::fs::read_to_string(path).ok()?;
    let mut events = vec![];
    for (id, line) in text.lines().skip(1).enumerate() {
        let fields: Vec<u64> = line
            .split(',')
            .map(|field| field.trim().parse().unwrap_or_else(|e| panic!("{name}: `{line}`: {e}")))
            .collect();
        let [_, lower, upper, size] = fields[..] else { panic!("{name}: `{line}`: not 4 fields") };
        let (id, bytes) = (id as u32, size.max(1).next_multiple_of(GRANULE));
        events.push(((lower, true, id), Op::Alloc { id, bytes }));
        events.push(((upper, false, id), Op::Free { id, bytes }));
    }
    events.sort_unstable_by_key(|event| event.0);
    let buffers = events.len() / 2;
    let ops = events.into_iter().map(|event| event.1).collect();
    Some(Stream::new(name, ops, buffers, repeats))
}

/// Draws a stream of sizes from 256 bytes to `largest`, with each power of two equally likely.
fn random(name: &'static str, count: usize, live_at_most: usize, largest: u64) -> Stream {
    let mut random = SplitMix64::new(1);
    let span = (largest as f64 / GRANULE as f64).ln();
    let mut ids: Vec<u32> = (0..live_at_most as u32).rev().collect();
    let mut live: Vec<(u32, u64)> = vec![];
    let mut ops = Vec::with_capacity(count + live_at_most);
    while ops.len() < count {
        let wanted = random.below(100) < 55;
        if live.is_empty() || (wanted && live.len() < live_at_most) {
            let id = ids.pop().expect("fewer are live than there are ids");
            let bytes = (GRANULE as f64 * (random.unit() * span).exp()) as u64;
            let bytes = bytes.next_multiple_of(GRANULE);
            live.push((id, bytes));
            ops.push(Op::Alloc { id, bytes });
        } else {
            let (id, bytes) = live.swap_remove(random.below(live.len()));
            ids.push(id);
            ops.push(Op::Free { id, bytes });
        }
    }
    ops.extend(live.into_iter().map(|(id, bytes)| Op::Free { id, bytes }));
    Stream::new(name, ops, live_at_most, 1)
}
