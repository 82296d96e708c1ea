//! Independent parts of the relaxed problem with prices of memory. A part is a single gap, or a
//! group of gaps that share dead sources (see the documentation of [`bound`](super)).

use super::charge::Charge;
use super::demand::{Gap, Path, Value};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// Limit on the number of dead sources that are visited for a gap. Sources beyond the limit count
/// as free.
const MOST_SOURCES: u32 = 64;

/// All parts of the relaxed problem.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    pub items: Vec<Item>,
    pub groups: Vec<Group>,
}

/// A gap of a value: an absence saves the bytes of the value and costs a run of its op.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub from: u32,
    pub to: u32,
    pub bytes: f64,
    /// Share of the value in the cost of a run of its op.
    pub cost: f64,
    /// Charge for the dead sources, if the gap does not use the shared sources.
    pub alone: Charge,
    pub shared: Option<Shared>,
}

/// Shared sources of a gap.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub group: u32,
    /// Charge for the sources that are not shared, if the shared sources are in memory.
    pub own: Charge,
    /// Position from which on the shared sources are charged for. Before this position, the shared
    /// sources are in memory, because other commands need them.
    pub from: u32,
}

/// Overlapping gaps with the same shared sources, and the charge for these sources, which is
/// counted once for all the gaps.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub charge: Charge,
    /// Indices in [`Terms::items`] of the gaps in the group.
    pub members: Vec<u32>,
}

/// A shared source: a value that several paths read, or all inputs of a path with several outputs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Root {
    Value(u32),
    Inputs(u32),
}

impl Terms {
    pub fn new(values: &[Value], paths: &[Path], gaps: &[Gap]) -> Self {
        let sources = Sources::new(values, paths, gaps);
        let mut terms = Self::default();
        let mut members: FxHashMap<Root, Vec<u32>> = FxHashMap::default();
        let mut roots: Vec<Root> = Vec::new();
        for (number, gap) in gaps.iter().enumerate() {
            let value = &values[gap.value as usize];
            let mut walk = Walk { sources: &sources, gap: *gap, root: None, left: MOST_SOURCES };
            let (alone, own) = walk.sources_of(gap.value);
            let shared = walk.root.map(|(root, from)| {
                members.entry(root).or_insert_with(|| {
                    roots.push(root);
                    Vec::new()
                });
                members.get_mut(&root).expect("just made").push(number as u32);
                Shared { group: 0, own, from }
            });
            terms.items.push(Item {
                from: gap.from,
                to: gap.to,
                bytes: value.bytes as f64,
                cost: sources.share(gap.value),
                alone,
                shared,
            });
        }
        for root in roots {
            terms.group(root, members.remove(&root).expect("each once"), &sources);
        }
        terms
    }

    /// Divides gaps with the same shared source (`root`) into groups of gaps that overlap in time.
    fn group(&mut self, root: Root, mut members: Vec<u32>, sources: &Sources<'_>) {
        let from =
            |items: &[Item], i: &u32| items[*i as usize].shared.as_ref().map_or(0, |s| s.from);
        members.sort_by_key(|i| (from(&self.items, i), *i));
        let mut rest = &members[..];
        while let [first, ..] = rest {
            let start = from(&self.items, first);
            let mut end = 0;
            let count = rest
                .iter()
                .take_while(|i| {
                    let overlaps = end == 0 || from(&self.items, i) + 1 < end;
                    end = end.max(self.items[**i as usize].to);
                    overlaps
                })
                .count();
            let (these, others) = rest.split_at(count);
            rest = others;
            let gap = Gap { value: u32::MAX, from: start, to: end };
            let charge = sources.of_root(root, gap);
            let group = self.groups.len() as u32;
            for &i in these {
                let item = &mut self.items[i as usize];
                let shared = item.shared.as_mut().expect("members share");
                shared.group = group;
                if charge.is_free() || these.len() == 1 && shared.from == item.from {
                    item.alone = item.alone.or(&shared.own.and(&charge));
                    item.shared = None;
                }
            }
            if self.items[these[0] as usize].shared.is_some() {
                self.groups.push(Group { charge, members: these.to_vec() });
            }
        }
    }
}

/// Values and paths that the absences in gaps depend on.
struct Sources<'a> {
    values: &'a [Value],
    paths: &'a [Path],
    /// Value -> number of paths that read the value and may have to run again after the last use of
    /// the value.
    readers: Vec<u32>,
    /// Path -> whether its inputs are charged once for all its outputs together.
    joint: Vec<bool>,
    /// Value -> whether only another output of the same path is charged for the inputs of the path.
    defers: Vec<bool>,
    /// Path -> total bytes of its outputs for which `matters` is true.
    bytes: Vec<u64>,
    /// Value -> whether the value has a gap, or a gap of another value depends on it.
    matters: Vec<bool>,
}

impl<'a> Sources<'a> {
    fn new(values: &'a [Value], paths: &'a [Path], gaps: &[Gap]) -> Self {
        let mut last_gap = vec![0; values.len()];
        for gap in gaps {
            last_gap[gap.value as usize] = gap.to;
        }
        let mut reach = vec![0; paths.len()];
        let mut sources = Self {
            values,
            paths,
            readers: vec![0; values.len()],
            joint: vec![false; paths.len()],
            defers: vec![false; values.len()],
            bytes: vec![0; paths.len()],
            matters: vec![false; values.len()],
        };
        // Paths are visited backwards, because a path comes after the paths of its inputs.
        for (number, path) in paths.iter().enumerate().rev() {
            for &output in &path.outputs {
                let value = &values[output as usize];
                let mut far = last_gap[output as usize];
                for &reader in &value.readers {
                    let reached = reach[reader as usize];
                    far = far.max(reached);
                    sources.readers[output as usize] += u32::from(reached > value.last + 1);
                }
                reach[number] = reach[number].max(far);
                let leads = !value.stays && sources.readers[output as usize] > 0;
                if last_gap[output as usize] > 0 || leads {
                    sources.matters[output as usize] = true;
                    sources.bytes[number] += value.bytes;
                }
            }
            sources.divide(number, path);
        }
        sources
    }

    /// Decides which outputs are charged for the inputs of a path. An output with at least half of
    /// the bytes is charged alone, in each of its gaps. If no output has half of the bytes, all
    /// outputs together are charged once.
    fn divide(&mut self, number: usize, path: &Path) {
        let bytes = |output: u32| self.values[output as usize].bytes;
        let matters: SmallVec<[u32; 2]> =
            path.outputs.iter().copied().filter(|output| self.matters[*output as usize]).collect();
        let Some(&largest) = matters.iter().max_by_key(|output| bytes(**output)) else { return };
        if 2 * bytes(largest) >= self.bytes[number] {
            for &other in matters.iter().filter(|other| **other != largest) {
                self.defers[other as usize] = true;
            }
        } else {
            self.joint[number] = true;
        }
    }

    /// Share of a value in the cost of its path, in proportion to the bytes of the outputs for
    /// which `matters` is true.
    fn share(&self, value: u32) -> f64 {
        let Value { path: Some(path), bytes, .. } = self.values[value as usize] else { return 0.0 };
        match self.bytes[path as usize] {
            all if all > 0 && self.matters[value as usize] => {
                self.paths[path as usize].cost * (bytes as f64 / all as f64)
            }
            _ => 0.0,
        }
    }

    fn of_root(&self, root: Root, gap: Gap) -> Charge {
        // The walk has a root that no value has, so any shared source that the walk visits counts
        // as free.
        let none = Some((Root::Value(u32::MAX), 0));
        let mut walk = Walk { sources: self, gap, root: none, left: MOST_SOURCES };
        match root {
            Root::Value(value) => walk.held_or_made(value).0,
            Root::Inputs(path) => walk.each_input(path).0,
        }
    }
}

/// Walk over the dead sources of a gap.
struct Walk<'a> {
    sources: &'a Sources<'a>,
    gap: Gap,
    /// Shared source of the gap, and the first position at which the gap is charged for this
    /// source.
    root: Option<(Root, u32)>,
    /// Number of dead sources that the walk may still visit.
    left: u32,
}

/// Charge if the shared sources are not used, and charge if the shared sources are in memory.
type Charges = (Charge, Charge);

fn free() -> Charges {
    (Charge::free(), Charge::free())
}

impl Walk<'_> {
    /// Charges for all inputs of the path of a value.
    fn sources_of(&mut self, value: u32) -> Charges {
        let path = self.sources.values[value as usize].path.expect("it can be made again");
        if self.sources.defers[value as usize] {
            return free();
        }
        if !self.sources.joint[path as usize] {
            return self.each_input(path);
        }
        let root = Root::Inputs(path);
        let is_taken = self.root.is_some_and(|(known, _)| known != root);
        if is_taken || self.sources.of_root(root, self.gap).is_free() {
            return free();
        }
        self.share(root, self.gap.from)
    }

    fn share(&mut self, root: Root, from: u32) -> Charges {
        if self.root.is_some_and(|(known, _)| known != root) {
            return free();
        }
        self.root = Some((root, from));
        (Charge::default(), Charge::free())
    }

    fn each_input(&mut self, path: u32) -> Charges {
        let (mut alone, mut own) = free();
        for &source in &self.sources.paths[path as usize].sources {
            let (a, b) = self.source(source);
            if !(a.is_free() && b.is_free()) {
                (alone, own) = (alone.and(&a), own.and(&b));
            }
        }
        (alone, own)
    }

    fn source(&mut self, source: u32) -> Charges {
        let value = &self.sources.values[source as usize];
        // A source that a command needs until the end of the gap is not dead: its bytes are counted
        // for that command.
        let is_dead =
            !value.stays && value.path.is_some() && value.bytes > 0 && value.last + 1 < self.gap.to;
        if !is_dead {
            return free();
        }
        if self.sources.readers[source as usize] > 1 {
            return self.share(Root::Value(source), value.last.max(self.gap.from));
        }
        if value.last > self.gap.from || self.left == 0 {
            return free();
        }
        self.left -= 1;
        self.held_or_made(source)
    }

    fn held_or_made(&mut self, source: u32) -> Charges {
        let value = &self.sources.values[source as usize];
        let (alone, own) = self.sources_of(source);
        let (cost, held) = (self.sources.share(source), Charge::holding(value.bytes as f64));
        (held.or(&alone.after(cost)), held.or(&own.after(cost)))
    }
}
