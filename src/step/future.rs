//! The uses of the values of a known step: a step whose commands are known before it runs.
//!
//! In the lab, a step is known from a recording. In a running program, a step is known from its
//! earlier turns. The commands of a step have positions, counted from 0; deletions have no
//! position. The values of a step have *ordinals*, counted in the order of creation within the
//! step. While a known step runs, the engine's graph has the ordinal of the value in each storage:
//! [`Foreseen`](crate::graph::Foreseen).

use remat_rng::mix;
use rustc_hash::FxHashSet;

/// Position that stands for "no further use".
pub(crate) const NEVER: u32 = u32::MAX;

/// Positions at which a step uses its values, with the time and memory use at each position if
/// nothing is evicted.
///
/// A value is the content of a storage between two updates in place: an update makes a new value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFuture {
    /// Uses of value `i` are `uses[starts[i]..starts[i + 1]]`, in ascending order.
    starts: Vec<u32>,
    uses: Vec<u32>,
    /// Values of the output tensors of the command at `at` are `outputs[made_from[at]..made_from[at
    /// + 1]]`, in order.
    made_from: Vec<u32>,
    outputs: Vec<u32>,
    bytes: Vec<u64>,
    /// Position of the command that makes each value; 0 for carried values.
    made: Vec<u32>,
    /// First position at which no handle holds the value, for each value.
    gone: Vec<u32>,
    /// Number of values made before the step (*carried* values), which have the lowest ordinals.
    carried: u32,
    /// Cost of all commands before each position; the last entry is the total.
    time: Vec<f64>,
    /// Bytes in use at each position.
    usage: Vec<u64>,
}

impl StepFuture {
    /// Number of positions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.usage.len()
    }

    /// Whether the step has no positions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.usage.is_empty()
    }

    /// Number of values.
    #[must_use]
    pub fn values(&self) -> usize {
        self.bytes.len()
    }

    /// Number of values made before the step (*carried* values), which have the lowest ordinals.
    #[must_use]
    pub const fn carried(&self) -> usize {
        self.carried as usize
    }

    /// Positions at which a value is read, in ascending order.
    ///
    /// # Panics
    /// If the ordinal is out of range. Every method with an ordinal panics if the ordinal is out of
    /// range.
    #[must_use]
    pub fn uses(&self, ordinal: u32) -> &[u32] {
        &self.uses
            [self.starts[ordinal as usize] as usize..self.starts[ordinal as usize + 1] as usize]
    }

    /// Values of the output tensors of the command at `at`, in order.
    #[must_use]
    pub fn outputs(&self, at: usize) -> &[u32] {
        &self.outputs[self.made_from[at] as usize..self.made_from[at + 1] as usize]
    }

    /// Bytes of a value.
    #[must_use]
    pub fn bytes(&self, ordinal: u32) -> u64 {
        self.bytes[ordinal as usize]
    }

    /// Positions at which a value is live. The range begins at the command that makes the value,
    /// and ends before the first position at which no handle holds the value.
    #[must_use]
    pub fn life(&self, ordinal: u32) -> std::ops::Range<u32> {
        self.made[ordinal as usize]..self.gone[ordinal as usize]
    }

    /// Cost of all commands before each position, followed by the total cost: `len() + 1` entries.
    #[must_use]
    pub fn time(&self) -> &[f64] {
        &self.time
    }

    /// Bytes in use at each position if nothing is evicted, without workspaces.
    #[must_use]
    pub fn usage(&self) -> &[u64] {
        &self.usage
    }

    /// Number of gaps of all values. A gap is a stretch of the step in which a value is not used:
    /// before its first use, between consecutive uses, or after its last use.
    #[must_use]
    pub const fn gaps(&self) -> usize {
        self.uses.len() + self.bytes.len()
    }

    /// Number of the value's gap that contains position `at`.
    #[must_use]
    #[inline]
    pub fn gap(&self, ordinal: u32, at: u32) -> usize {
        self.next(ordinal, at) + ordinal as usize
    }

    /// Numbers of a value's gaps.
    #[must_use]
    pub fn gaps_of(&self, ordinal: u32) -> std::ops::RangeInclusive<usize> {
        let of = ordinal as usize;
        self.starts[of] as usize + of..=self.starts[of + 1] as usize + of
    }

    /// Gaps of a value that end with a use: for each gap, its number, its first position, and the
    /// position of the use.
    pub fn gaps_before_uses(&self, ordinal: u32) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
        let uses = self.uses(ordinal);
        let from = std::iter::once(self.life(ordinal).start).chain(uses.iter().copied());
        self.gaps_of(ordinal).zip(from.zip(uses)).map(|(gap, (from, &to))| (gap, from, to))
    }

    /// Position of the first use of a value at `at` or later; [`NEVER`] if no use follows.
    #[inline]
    pub(crate) fn next_use(&self, ordinal: u32, at: u32) -> u32 {
        let next = self.next(ordinal, at);
        if next < self.starts[ordinal as usize + 1] as usize { self.uses[next] } else { NEVER }
    }

    /// Index in `uses` of the value's first use at `at` or later. If no use follows, the end of the
    /// value's range in `uses`.
    #[inline]
    fn next(&self, ordinal: u32, at: u32) -> usize {
        let of = ordinal as usize;
        let (start, end) = (self.starts[of] as usize, self.starts[of + 1] as usize);
        let uses = &self.uses[start..end];
        // Avoid a search for values with no use or one use, because most values have one or two
        // uses.
        match uses {
            [] => start,
            [only] => start + usize::from(*only < at),
            _ => start + uses.partition_point(|&using| using < at),
        }
    }

    /// A hash of the step without its costs. Equal steps have equal hashes in all processes, and in
    /// all versions of this crate that define steps alike.
    #[must_use]
    pub fn key(&self) -> u64 {
        let mut hash = mix(1, self.len() as u64);
        let lists = [&self.starts, &self.uses, &self.made_from, &self.outputs, &self.made];
        for list in lists {
            hash = list.iter().fold(mix(hash, list.len() as u64), |hash, &n| mix(hash, n.into()));
        }
        self.bytes.iter().fold(hash, |hash, &bytes| mix(hash, bytes))
    }
}

/// Builds a [`StepFuture`], command by command.
#[derive(Debug, Default)]
pub(crate) struct StepFutureBuilder {
    uses: Vec<Vec<u32>>,
    future: StepFuture,
}

impl StepFutureBuilder {
    /// Position of the current command.
    fn at(&self) -> u32 {
        self.future.time.len() as u32
    }

    /// Whether neither a command nor an output was added yet.
    pub fn is_new(&self) -> bool {
        self.future.made_from.is_empty() && self.future.outputs.is_empty()
    }

    /// Adds a new value of `bytes` bytes, made by the current command. Returns the ordinal of the
    /// value.
    pub fn value(&mut self, bytes: u64) -> u32 {
        let ordinal = self.future.bytes.len() as u32;
        self.future.bytes.push(bytes);
        self.future.made.push(self.at());
        self.future.gone.push(NEVER);
        self.uses.push(Vec::new());
        ordinal
    }

    /// Adds a value of `bytes` bytes that was made before the step. All values from before the step
    /// must be added before the first command.
    pub fn carry(&mut self, bytes: u64) -> u32 {
        debug_assert!(self.is_new());
        self.future.carried += 1;
        self.value(bytes)
    }

    /// Adds a read of a value by the current command.
    pub fn read(&mut self, ordinal: u32) {
        let at = self.at();
        let uses = &mut self.uses[ordinal as usize];
        if uses.last() != Some(&at) {
            uses.push(at);
        }
    }

    /// Adds reads of all held values from which the values `restored` would be recomputed, as reads
    /// by the current command. `sources` gives the inputs of a value's command. The walk along
    /// `sources` passes through unheld values, and stops at held values.
    pub fn read_sources<'a>(&mut self, mut restored: Vec<u32>, sources: impl Fn(u32) -> &'a [u32]) {
        let mut seen: FxHashSet<u32> = restored.iter().copied().collect();
        while let Some(value) = restored.pop() {
            for &source in sources(value) {
                if seen.insert(source) {
                    match self.is_held(source) {
                        true => self.read(source),
                        false => restored.push(source),
                    }
                }
            }
        }
    }

    /// Adds an output tensor of the current command. The tensor has the value `ordinal`.
    pub fn output(&mut self, ordinal: u32) {
        self.future.outputs.push(ordinal);
    }

    /// Notes that from the current position on, no handle holds a value.
    pub fn gone(&mut self, ordinal: u32) {
        self.future.gone[ordinal as usize] = self.at();
    }

    /// Whether a handle holds the value at the current position.
    pub fn is_held(&self, ordinal: u32) -> bool {
        self.future.gone[ordinal as usize] == NEVER
    }

    /// Ends the current command, which has the cost `cost`.
    pub fn next(&mut self, cost: f64) {
        if self.future.made_from.is_empty() {
            self.future.made_from.push(0);
        }
        self.future.made_from.push(self.future.outputs.len() as u32);
        self.future.time.push(cost);
    }

    /// Ends the step, after its last command.
    pub fn finish(self) -> StepFuture {
        let Self { uses, mut future } = self;
        let commands = future.time.len();
        let mut passed = 0.0;
        for time in &mut future.time {
            passed += std::mem::replace(time, passed);
        }
        future.time.push(passed);
        if future.made_from.is_empty() {
            future.made_from.push(0);
        }
        future.starts.push(0);
        for uses in uses {
            future.uses.extend(uses);
            future.starts.push(future.uses.len() as u32);
        }
        let mut change = vec![0i128; commands + 1];
        for (value, &bytes) in future.bytes.iter().enumerate() {
            future.gone[value] = future.gone[value].min(commands as u32);
            change[(future.made[value] as usize).min(commands)] += i128::from(bytes);
            change[future.gone[value] as usize] -= i128::from(bytes);
        }
        let mut sum = 0;
        future.usage = change[..commands]
            .iter()
            .map(|change| {
                sum += change;
                u64::try_from(sum).unwrap_or(0)
            })
            .collect();
        future
    }
}
