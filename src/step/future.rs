//! When a step uses what, known before it runs.
//!
//! A step is known because it is written down (a recording in the lab), or because it ran before. Either way it is
//! told as positions: those of its commands, from 0, deletions not counted. What a command makes has a number, its
//! *ordinal*, in the order of creation within the step. An engine that is to use the knowledge learns which of its
//! storages has which ordinal as it makes them: [`Foreseen`](crate::graph::Foreseen).

use crate::rng::mix;
use rustc_hash::FxHashSet;

/// No use to come.
pub(crate) const NEVER: u32 = u32::MAX;

/// When a step uses what: the positions of the uses of each of its values, and how time and memory go by when nothing
/// is evicted.
///
/// A value is what a storage holds between two updates in place: an update makes a new one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepFuture {
    /// `uses[starts[i]..starts[i + 1]]` are those of value `i`, rising.
    starts: Vec<u32>,
    uses: Vec<u32>,
    /// `outputs[made_from[at]..made_from[at + 1]]`: the values that the tensors hold that the command at `at` makes, in
    /// their order.
    made_from: Vec<u32>,
    outputs: Vec<u32>,
    bytes: Vec<u64>,
    /// Position of the command that makes each value; 0 for those that were there before.
    made: Vec<u32>,
    /// The first position at which nobody holds it any more.
    gone: Vec<u32>,
    /// How many were there before: they come first.
    carried: u32,
    /// Cost of all commands before each position, and of all.
    time: Vec<f64>,
    /// Bytes in use at each position.
    usage: Vec<u64>,
}

impl StepFuture {
    /// Number of commands.
    #[must_use]
    pub fn len(&self) -> usize {
        self.usage.len()
    }

    /// Whether it has no command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.usage.is_empty()
    }

    /// Number of values.
    #[must_use]
    pub fn values(&self) -> usize {
        self.bytes.len()
    }

    /// Number of values that were there before the step: ordinals below it.
    #[must_use]
    pub const fn carried(&self) -> usize {
        self.carried as usize
    }

    /// Positions at which a value is read, rising.
    ///
    /// # Panics
    /// If there is no such value, here and below.
    #[must_use]
    pub fn uses(&self, ordinal: u32) -> &[u32] {
        &self.uses
            [self.starts[ordinal as usize] as usize..self.starts[ordinal as usize + 1] as usize]
    }

    /// The values that the tensors hold that a command makes, in their order.
    #[must_use]
    pub fn outputs(&self, at: usize) -> &[u32] {
        &self.outputs[self.made_from[at] as usize..self.made_from[at + 1] as usize]
    }

    /// Size of a value.
    #[must_use]
    pub fn bytes(&self, ordinal: u32) -> u64 {
        self.bytes[ordinal as usize]
    }

    /// The positions from which on a value is there, and from which on nobody holds it any more.
    #[must_use]
    pub fn life(&self, ordinal: u32) -> std::ops::Range<u32> {
        self.made[ordinal as usize]..self.gone[ordinal as usize]
    }

    /// Cost of all commands before each position, and last of all commands: one more than there are commands.
    #[must_use]
    pub fn time(&self) -> &[f64] {
        &self.time
    }

    /// Bytes in use at each position when nothing is evicted; workspaces are not counted.
    #[must_use]
    pub fn usage(&self) -> &[u64] {
        &self.usage
    }

    /// Number of gaps: times between two uses of a value, the one before its first and the one after its last use
    /// included.
    #[must_use]
    pub const fn gaps(&self) -> usize {
        self.uses.len() + self.bytes.len()
    }

    /// Number of the gap that a value is in at a position.
    #[must_use]
    #[inline]
    pub fn gap(&self, ordinal: u32, at: u32) -> usize {
        self.next(ordinal, at) + ordinal as usize
    }

    /// The gaps of a value.
    #[must_use]
    pub fn gaps_of(&self, ordinal: u32) -> std::ops::RangeInclusive<usize> {
        let of = ordinal as usize;
        self.starts[of] as usize + of..=self.starts[of + 1] as usize + of
    }

    /// The gaps of a value that end with a use, each with the positions at its beginning and its end.
    pub fn gaps_before_uses(&self, ordinal: u32) -> impl Iterator<Item = (usize, u32, u32)> + '_ {
        let uses = self.uses(ordinal);
        let from = std::iter::once(self.life(ordinal).start).chain(uses.iter().copied());
        self.gaps_of(ordinal).zip(from.zip(uses)).map(|(gap, (from, &to))| (gap, from, to))
    }

    /// The first use of a value from a position on; [`NEVER`] if there is none.
    #[inline]
    pub(crate) fn next_use(&self, ordinal: u32, at: u32) -> u32 {
        let next = self.next(ordinal, at);
        if next < self.starts[ordinal as usize + 1] as usize { self.uses[next] } else { NEVER }
    }

    /// Position in `uses` of that; the end of the value's if there is none.
    #[inline]
    fn next(&self, ordinal: u32, at: u32) -> usize {
        let of = ordinal as usize;
        let (start, end) = (self.starts[of] as usize, self.starts[of + 1] as usize);
        let uses = &self.uses[start..end];
        // Most have one or two.
        match uses {
            [] => start,
            [only] => start + usize::from(*only < at),
            _ => start + uses.partition_point(|&using| using < at),
        }
    }

    /// A hash of what the step does, but for what it costs: the same in every process and version of this crate that
    /// tells steps apart in the same way.
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

/// Puts a [`StepFuture`] together, command by command.
#[derive(Debug, Default)]
pub(crate) struct StepFutureBuilder {
    uses: Vec<Vec<u32>>,
    future: StepFuture,
}

impl StepFutureBuilder {
    /// Position of the command at hand.
    fn at(&self) -> u32 {
        self.future.time.len() as u32
    }

    /// Whether no command was told, and nothing that one makes.
    pub fn is_new(&self) -> bool {
        self.future.made_from.is_empty() && self.future.outputs.is_empty()
    }

    /// A value of so many bytes that the command at hand makes.
    pub fn value(&mut self, bytes: u64) -> u32 {
        let ordinal = self.future.bytes.len() as u32;
        self.future.bytes.push(bytes);
        self.future.made.push(self.at());
        self.future.gone.push(NEVER);
        self.uses.push(Vec::new());
        ordinal
    }

    /// A value of so many bytes that was there before the step. All of these come before the first command.
    pub fn carry(&mut self, bytes: u64) -> u32 {
        debug_assert!(self.is_new());
        self.future.carried += 1;
        self.value(bytes)
    }

    /// The command at hand reads it.
    pub fn read(&mut self, ordinal: u32) {
        let at = self.at();
        let uses = &mut self.uses[ordinal as usize];
        if uses.last() != Some(&at) {
            uses.push(at);
        }
    }

    /// The command at hand reads what is held of what these values are made from, through what nobody holds: if they were
    /// evicted, they are restored from that.
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

    /// The next tensor that the command at hand makes holds this value.
    pub fn output(&mut self, ordinal: u32) {
        self.future.outputs.push(ordinal);
    }

    /// Its last handle went: after the command that was told last, or with the one at hand, which is not told yet.
    pub fn gone(&mut self, ordinal: u32) {
        self.future.gone[ordinal as usize] = self.at();
    }

    /// Whether somebody holds it, as far as was told.
    pub fn is_held(&self, ordinal: u32) -> bool {
        self.future.gone[ordinal as usize] == NEVER
    }

    /// The command at hand is told, and costs so much.
    pub fn next(&mut self, cost: f64) {
        if self.future.made_from.is_empty() {
            self.future.made_from.push(0);
        }
        self.future.made_from.push(self.future.outputs.len() as u32);
        self.future.time.push(cost);
    }

    /// All commands are told.
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
