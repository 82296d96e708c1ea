//! Deep histories of values, of equal or mixed sizes, in which only the last value is held.

use super::toy::{Bytes, GRANULE, ToyDevice, ToyEngine, mix, settings};
use remat::unstable::engine::Engine;
use remat::unstable::engine::Settings;
use remat::unstable::graph::TensorKey;
use remat::{CostModel, CostModelKind, Error, PolicyKind};
use remat_rng::SplitMix64;

/// Values in the order in which they are made. `sources[i]` are the earlier values that value `i`
/// is made from; value 0 has none.
#[derive(Clone, Debug)]
pub struct History {
    pub sources: Vec<Vec<usize>>,
    /// Size of each value, in granules.
    pub sizes: Vec<usize>,
}

impl History {
    /// History in which each value takes one granule.
    pub fn new(sources: Vec<Vec<usize>>) -> Self {
        Self { sizes: vec![1; sources.len()], sources }
    }

    /// `n` rounds of `y[i + 1] = g(f(y[i], y[i / 2]))`.
    pub fn long_skips(n: usize) -> Self {
        let mut sources = vec![vec![]];
        for i in 0..n {
            sources.push(vec![2 * i, i / 2 * 2]);
            sources.push(vec![2 * i + 1]);
        }
        Self::new(sources)
    }

    /// Chain of `n` blocks: `width` branches from one value, and a value that joins the branches.
    pub fn diamonds(n: usize, width: usize) -> Self {
        let mut sources = vec![vec![]];
        for _ in 0..n {
            let start = sources.len() - 1;
            sources.extend((0..width).map(|_| vec![start]));
            sources.push((start + 1..=start + width).collect());
        }
        Self::new(sources)
    }

    /// Grid in which each value is made from the one above and the one to the left.
    pub fn grid(rows: usize, columns: usize) -> Self {
        let at = |row: usize, column: usize| row * columns + column;
        let mut sources = Vec::new();
        for row in 0..rows {
            for column in 0..columns {
                let above = (row > 0).then(|| at(row - 1, column));
                let left = (column > 0).then(|| at(row, column - 1));
                sources.push(above.into_iter().chain(left).collect());
            }
        }
        Self::new(sources)
    }

    /// Binary tree of `depth` levels, whose leaves are made from the first value. With `by_level`,
    /// all leaves are made first. Without `by_level`, values are made depth first.
    pub fn tree(depth: u32, by_level: bool) -> Self {
        let mut sources = vec![vec![]];
        if by_level {
            let mut level: Vec<usize> = (1..=1 << depth).collect();
            sources.extend(level.iter().map(|_| vec![0]));
            while level.len() > 1 {
                let pairs: Vec<Vec<usize>> = level.chunks(2).map(<[usize]>::to_vec).collect();
                level = (sources.len()..sources.len() + pairs.len()).collect();
                sources.extend(pairs);
            }
        } else {
            fn grow(sources: &mut Vec<Vec<usize>>, depth: u32) -> usize {
                let from = match depth {
                    0 => vec![0],
                    _ => vec![grow(sources, depth - 1), grow(sources, depth - 1)],
                };
                sources.push(from);
                sources.len() - 1
            }
            grow(&mut sources, depth);
        }
        Self::new(sources)
    }

    /// Chain of `n` values, and a second chain whose values also read the first chain backwards.
    pub fn there_and_back(n: usize) -> Self {
        let mut sources: Vec<Vec<usize>> = vec![vec![]];
        sources.extend((0..n).map(|i| vec![i]));
        sources.extend((0..=n).map(|i| vec![n + i, n - i]));
        Self::new(sources)
    }

    /// `n` values with one to three sources each, at most `reach` values back, of 1 to `largest`
    /// granules.
    pub fn random(n: usize, reach: usize, largest: usize, seed: u64) -> Self {
        let mut numbers = SplitMix64::new(seed);
        let mut draw = |below: usize| (numbers.next() % below as u64) as usize;
        let mut sources: Vec<Vec<usize>> = vec![vec![]];
        for i in 1..n {
            let mut from: Vec<usize> = (0..1 + draw(3))
                .map(|_| if draw(10) < 7 { i - 1 } else { i - 1 - draw(reach.min(i)) })
                .collect();
            from.sort_unstable();
            from.dedup();
            sources.push(from);
        }
        let sizes = (0..n).map(|_| 1 + draw(largest)).collect();
        Self { sources, sizes }
    }

    /// Whether each value is needed for the last value, directly or not. The last value is needed.
    pub fn needed(&self) -> Vec<bool> {
        let mut needed = vec![false; self.sources.len()];
        *needed.last_mut().unwrap() = true;
        for i in (0..needed.len()).rev() {
            if needed[i] {
                self.sources[i].iter().for_each(|&source| needed[source] = true);
            }
        }
        needed
    }

    /// Number of values needed for the last value, the last one included.
    pub fn distinct(&self) -> usize {
        self.needed().iter().filter(|needed| **needed).count()
    }

    /// Peak of the granules in memory if each needed value is made once, in order, and freed after
    /// its last reader.
    pub fn frontier(&self) -> usize {
        let needed = self.needed();
        let mut last = (0..self.sources.len()).collect::<Vec<_>>();
        for i in (0..last.len()).filter(|&i| needed[i]) {
            self.sources[i].iter().for_each(|&source| last[source] = i);
        }
        let (mut live, mut most) = (0, 0);
        for i in (0..last.len()).filter(|&i| needed[i]) {
            live += self.sizes[i];
            most = most.max(live);
            let over = (0..=i).filter(|&j| needed[j] && last[j] == i && i + 1 < last.len());
            live -= over.map(|j| self.sizes[j]).sum::<usize>();
        }
        most
    }
}

/// History whose values were all made and then evicted. Only the last value is held.
pub struct Evicted {
    pub engine: ToyEngine,
    pub last: TensorKey,
    bits: Bytes,
}

impl Evicted {
    /// Engine with `room` free granules for regenerating the last value. A leaf fills the rest of
    /// the memory.
    pub fn new(
        history: &History,
        room: usize,
        policy: PolicyKind,
        settle: impl Fn(&mut Settings),
    ) -> Self {
        Self::with_costs(history, room, policy, CostModelKind::Flops.build(), settle)
    }

    /// Like [`Self::new`], with the cost model `costs`.
    pub fn with_costs(
        history: &History,
        room: usize,
        policy: PolicyKind,
        costs: Box<dyn CostModel>,
        settle: impl Fn(&mut Settings),
    ) -> Self {
        let all = history.sizes.iter().sum::<usize>() + room + 1;
        let mut settings = settings();
        settle(&mut settings);
        let policy = policy.build(0);
        let mut engine = Engine::new(ToyDevice::new(all as u64 * GRANULE), settings, policy, costs)
            .expect("the settings make sense");
        let bytes = |i: usize| history.sizes[i] * GRANULE as usize;
        let mut made: Vec<TensorKey> = Vec::new();
        for (i, sources) in history.sources.iter().enumerate() {
            let inputs: Vec<TensorKey> = sources.iter().map(|&source| made[source]).collect();
            made.push(match &inputs[..] {
                [] => engine.put(Bytes::of(bytes(i), 1)),
                _ => engine.apply(mix(bytes(i), i as u64), &inputs).unwrap()[0],
            });
        }
        let last = made.pop().unwrap();
        let bits = engine.get(last).unwrap();
        made.into_iter().for_each(|key| engine.del(key));
        assert!(engine.drop_now(last).unwrap());
        assert_eq!(engine.stats().used_bytes, 0);
        let ballast = engine.apply(mix((all - room) * GRANULE as usize, 0), &[]).unwrap()[0];
        engine.commit(ballast).unwrap();
        Self { engine, last, bits }
    }

    /// Reads the last value, and checks its bits. Returns the number of recomputed ops, also
    /// together with an error.
    pub fn read(&mut self) -> Result<u64, (Error, u64)> {
        let before = self.engine.stats().recomputed_ops;
        let read = self.engine.get(self.last);
        self.engine.check();
        self.engine.device().watch.check();
        let runs = self.engine.stats().recomputed_ops - before;
        match read {
            Ok(bits) => {
                assert_eq!(bits, self.bits);
                Ok(runs)
            }
            Err(error) => Err((error, runs)),
        }
    }
}
