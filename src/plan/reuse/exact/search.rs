//! Whether buffers fit below a capacity: a depth-first search through canonical placements.

use super::super::super::Limits;
use super::memory::Memory;
use super::sections::Part;

/// Which rules a search may use. All are on but in tests, where each is shown to change no answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// Nothing is put so high that another buffer would fit below it.
    pub dominance: bool,
    /// Who was passed over must be lifted by somebody.
    pub lifting: bool,
    /// Of equal lives that lie on each other the larger is below, of equal buffers the first.
    pub symmetry: bool,
    /// What is cut off from the rest is placed by itself.
    pub splitting: bool,
    /// What failed once is not tried again.
    pub memory: bool,
}

impl Rules {
    pub const ALL: Self =
        Self { dominance: true, lifting: true, symmetry: true, splitting: true, memory: true };
}

/// What a search came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// All is placed.
    Placed,
    /// There is no way.
    Never,
    /// Not known after so many nodes, or at the time to answer.
    Unknown,
}

const NONE: u32 = u32::MAX;
/// In the trail: not lifted, but placed.
const PLACED: u32 = u32::MAX - 1;

/// The search for one part in one order. Buffers are numbered by rank, the place in that order.
///
/// Buffers are placed one by one, each on top of those that it meets and that are placed already, never below the one
/// before; at one address those of lower rank come first. Each placement that cannot be pushed down is found in exactly
/// one way.
#[derive(Debug)]
pub(super) struct Search {
    // By rank.
    items: Vec<usize>,
    size: Vec<u64>,
    align: Vec<u64>,
    lower: Vec<u32>,
    upper: Vec<u32>,
    /// The one before it of the same sections and size; `NONE` if it is the first.
    twin: Vec<u32>,
    /// The lowest address at which it can be: the highest end of those placed that it meets. Its address once placed.
    least: Vec<u64>,
    /// The buffer with that end.
    under: Vec<u32>,
    /// `least`, and higher if it is known that it will not be there; scratch of one node.
    lifted: Vec<u64>,
    /// Whether it may not be put at `least` any more; scratch of one node.
    passed: Vec<bool>,
    placed: Vec<bool>,
    /// Those not placed, a bit for each.
    free: Vec<u64>,
    /// Those that each meets, `free.len()` words for each.
    meets: Vec<u64>,
    /// What it adds to a key of the memory.
    word: Vec<u128>,

    /// By section: of buffers not placed, the sum of sizes.
    total: Vec<u64>,
    /// By section: of buffers not placed, the lowest address; scratch of one node. As floats, which hold what is below
    /// [`Search::MOST`] exactly, since only of those processors have a quick minimum everywhere.
    floor: Vec<f64>,
    /// By section: the end of the longest that begins there; scratch of one node.
    reach: Vec<u32>,

    /// Ranks not placed, a list for each node on the path to this one.
    rest: Vec<u32>,
    /// Ranks to try, a list for each node on the path.
    tries: Vec<u32>,
    frames: Vec<Frame>,
    /// What `least` and `under` were before the placements on the path.
    trail: Vec<(u32, u32, u64)>,
    memory: Memory,
    rules: Rules,
    /// How many are placed now, and at most so far.
    depth: (usize, usize),
    capacity: u64,
    nodes: u64,
    limits: Limits,
}

/// The last placement: those that follow are not before it.
type Last = (u64, u32);

/// A node on the path: `rest[first..kept]` is to be placed.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Whether `tries` has the bounds in `rest` of parts that are all to be placed, not ranks of which one is next.
    each: bool,
    first: usize,
    kept: usize,
    /// Where its list of `tries` begins.
    tries: usize,
    /// The next of that list.
    next: usize,
    /// How long the trail was.
    trail: usize,
    key: u128,
    last: Last,
}

/// What a node does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Has `rest` placed from here.
    Ask(usize, Last),
    /// Is done.
    Tell(Answer),
}

impl Search {
    /// All units together must be less.
    pub const MOST: u64 = 1 << 53;

    /// Of a part, with ranks in this order.
    pub fn new(part: &Part, order: Vec<usize>, rules: Rules) -> Self {
        let count = order.len();
        let item = |&i: &usize| &part.items[i];
        let lower: Vec<u32> = order.iter().map(|i| item(i).sections.start as u32).collect();
        let upper: Vec<u32> = order.iter().map(|i| item(i).sections.end as u32).collect();
        let size: Vec<u64> = order.iter().map(|i| item(i).size).collect();
        let align: Vec<u64> = order.iter().map(|i| item(i).align).collect();
        let mut last = rustc_hash::FxHashMap::default();
        let twin = (0..count).map(|rank| {
            let kind = (lower[rank], upper[rank], size[rank], align[rank]);
            last.insert(kind, rank as u32).unwrap_or(NONE)
        });
        Self {
            twin: twin.collect(),
            meets: meetings(&lower, &upper),
            size,
            align,
            lower,
            upper,
            least: vec![0; count],
            under: vec![NONE; count],
            lifted: vec![0; count],
            passed: vec![false; count],
            placed: vec![false; count],
            free: vec![0; count.div_ceil(64)],
            word: (0..count as u32).map(|rank| Memory::word(rank, 0)).collect(),
            total: part.totals(),
            floor: vec![0.0; part.sections],
            reach: vec![0; part.sections],
            rest: Vec::new(),
            tries: Vec::new(),
            frames: Vec::new(),
            trail: Vec::new(),
            memory: Memory::default(),
            rules,
            depth: (0, 0),
            capacity: 0,
            nodes: 0,
            limits: Limits::none(),
            items: order,
        }
    }

    /// Whether all fits into `capacity` units, found out in no more than `nodes` steps, which are counted down.
    pub fn fits(&mut self, capacity: u64, nodes: &mut u64, limits: &Limits) -> Answer {
        if capacity != self.capacity {
            self.memory.clear();
        }
        self.undo(0);
        self.depth = (0, 0);
        (self.capacity, self.nodes, self.limits) = (capacity, *nodes, *limits);
        self.rest.clear();
        self.rest.extend(0..self.items.len() as u32);
        self.tries.clear();
        self.free.fill(0);
        (0..self.items.len()).for_each(|r| self.free[r / 64] |= 1 << (r % 64));
        let answer = self.run();
        *nodes = self.nodes;
        answer
    }

    /// How many buffers were placed at once, at most.
    pub fn deepest(&self) -> usize {
        self.depth.1
    }

    /// The address of each item and the highest end, after [`Answer::Placed`].
    pub fn placement(&self) -> (Vec<u64>, u64) {
        let mut offsets = vec![0; self.items.len()];
        let mut height = 0;
        for (rank, &item) in self.items.iter().enumerate() {
            offsets[item] = self.least[rank];
            height = height.max(self.least[rank] + self.size[rank]);
        }
        (offsets, height)
    }

    /// Places all. The frames stand for calls: a path may be as long as there are buffers, and threads have small stacks.
    fn run(&mut self) -> Answer {
        let mut answer = self.enter(0, (0, 0));
        loop {
            let step = match (self.frames.last().copied(), answer) {
                (None, answer) => return answer.unwrap_or(Answer::Unknown),
                (Some(Frame { each: true, .. }), answer) => self.each(answer),
                (Some(_), answer) => self.branch(answer),
            };
            answer = match step {
                Step::Ask(first, last) => self.enter(first, last),
                Step::Tell(answer) => {
                    self.leave(answer);
                    Some(answer)
                }
            };
        }
    }

    /// Begins to place `self.rest[first..]`. The answer if it is known at once; else a frame is there for it.
    fn enter(&mut self, first: usize, last: Last) -> Option<Answer> {
        if first == self.rest.len() {
            return Some(Answer::Placed);
        }
        if self.nodes == 0 || (self.nodes.is_multiple_of(1024) && self.limits.over()) {
            return Some(Answer::Unknown);
        }
        self.nodes -= 1;
        let Some(key) = self.look(first, last) else { return Some(Answer::Never) };
        if self.rules.memory && self.memory.has(key) {
            return Some(Answer::Never);
        }
        let (kept, tries, trail) = (self.rest.len(), self.tries.len(), self.trail.len());
        let each = self.splits(first);
        self.frames.push(Frame { each, first, kept, tries, next: tries, trail, key, last });
        if each {
            self.list_parts(first);
        } else {
            self.list_tries(first);
        }
        None
    }

    /// Ends what the last frame is about.
    fn leave(&mut self, answer: Answer) {
        let Some(frame) = self.frames.pop() else { return };
        if answer != Answer::Placed {
            self.undo(frame.trail);
        }
        if answer == Answer::Never && self.rules.memory {
            self.memory.insert(frame.key);
        }
        self.rest.truncate(frame.kept);
        self.tries.truncate(frame.tries);
    }

    /// Whether what is left may still fit, and by what that is told from others.
    fn look(&mut self, first: usize, last: Last) -> Option<u128> {
        let rest = &self.rest[first..];
        let mut low = u32::MAX;
        let mut high = 0;
        let mut key = 0_u128;
        for &rank in rest {
            let r = rank as usize;
            (low, high) = (low.min(self.lower[r]), high.max(self.upper[r]));
            let mut lifted = self.least[r].max(last.0);
            let passed = (self.least[r], rank) < last || self.waits(r);
            self.passed[r] = passed;
            key = key.wrapping_add(self.word[r].rotate_left(u32::from(passed)));
            if passed && self.rules.lifting {
                let mut least = u64::MAX;
                for o in self.met(r) {
                    least = least.min(self.least[o].max(last.0) + self.size[o]);
                }
                if least == u64::MAX {
                    return None;
                }
                lifted = least.next_multiple_of(self.align[r]);
            }
            self.lifted[r] = lifted;
        }
        let sections = low as usize..high as usize;
        self.floor[sections.clone()].fill(f64::INFINITY);
        for &rank in rest {
            let r = rank as usize;
            let lifted = self.lifted[r] as f64;
            for floor in &mut self.floor[self.lower[r] as usize..self.upper[r] as usize] {
                *floor = if lifted < *floor { lifted } else { *floor };
            }
        }
        let mut sums = self.floor[sections.clone()].iter().zip(&self.total[sections]);
        let capacity = self.capacity as f64;
        let fits = sums.all(|(&floor, &total)| total == 0 || floor + total as f64 <= capacity);
        fits.then_some(key)
    }

    /// Whether parts of `self.rest[first..]` are cut off from each other.
    fn splits(&mut self, first: usize) -> bool {
        if !self.rules.splitting {
            return false;
        }
        let mut low = usize::MAX;
        let mut high = 0;
        for &rank in &self.rest[first..] {
            let (lower, upper) = (self.lower[rank as usize], self.upper[rank as usize]);
            (low, high) = (low.min(lower as usize), high.max(upper as usize));
            let reach = &mut self.reach[lower as usize];
            *reach = (*reach).max(upper);
        }
        let mut end = low;
        let mut cuts = false;
        for section in low..high {
            cuts |= section >= end && section > low;
            end = end.max(self.reach[section] as usize);
            self.reach[section] = 0;
        }
        cuts
    }

    /// Lists in `tries` where the parts of `self.rest[first..]` begin and end, a copy of which in their order is added to
    /// `rest`.
    fn list_parts(&mut self, first: usize) {
        let begin = self.rest.len();
        self.rest.extend_from_within(first..);
        let Self { rest, tries, lower, upper, .. } = self;
        rest[begin..].sort_unstable_by_key(|&rank| (lower[rank as usize], rank));
        let mut bounds: Vec<(u32, u32)> = Vec::new();
        let mut end = 0;
        for (at, &rank) in rest.iter().enumerate().skip(begin) {
            if lower[rank as usize] >= end {
                bounds.push((at as u32, at as u32));
            }
            end = end.max(upper[rank as usize]);
            if let Some(bound) = bounds.last_mut() {
                bound.1 = at as u32 + 1;
            }
        }
        // Small ones fail soonest.
        bounds.sort_by_key(|bound| bound.1 - bound.0);
        for (from, to) in bounds {
            rest[from as usize..to as usize].sort_unstable();
            tries.extend([from, to]);
        }
    }

    /// Has each of several parts placed by itself.
    fn each(&mut self, answer: Option<Answer>) -> Step {
        let Some(frame) = self.frames.last_mut() else { return Step::Tell(Answer::Unknown) };
        if let Some(answer) = answer.filter(|&answer| answer != Answer::Placed) {
            return Step::Tell(answer);
        }
        let Some(&[from, to]) =
            self.tries.get(frame.next..frame.next + 2).and_then(|bound| bound.as_array())
        else {
            return Step::Tell(Answer::Placed);
        };
        frame.next += 2;
        // Of the part before, nothing is left in the list.
        let begin = frame.kept + (frame.kept - frame.first);
        self.rest.truncate(begin);
        self.rest.extend_from_within(from as usize..to as usize);
        Step::Ask(begin, frame.last)
    }

    /// Lists in `tries` who of `self.rest[first..]` could be next.
    fn list_tries(&mut self, first: usize) {
        let begin = self.tries.len();
        let mut lowest = u64::MAX;
        for &rank in &self.rest[first..] {
            lowest = lowest.min(self.least[rank as usize] + self.size[rank as usize]);
        }
        for &rank in &self.rest[first..] {
            let r = rank as usize;
            let dominated = self.rules.dominance && self.least[r] >= lowest;
            let first_twin = self.twin[r] == NONE || self.placed[self.twin[r] as usize];
            if !self.passed[r] && !dominated && (first_twin || !self.rules.symmetry) {
                self.tries.push(rank);
            }
        }
        self.tries[begin..].sort_unstable_by_key(|&rank| (self.least[rank as usize], rank));
    }

    /// Tries the next one, if the one before it failed.
    fn branch(&mut self, answer: Option<Answer>) -> Step {
        let Some(frame) = self.frames.last_mut() else { return Step::Tell(Answer::Unknown) };
        if let Some(answer) = answer.filter(|&answer| answer != Answer::Never) {
            return Step::Tell(answer);
        }
        let Some(&rank) = self.tries.get(frame.next) else { return Step::Tell(Answer::Never) };
        frame.next += 1;
        let Frame { first, kept, trail, .. } = *frame;
        self.undo(trail);
        self.rest.truncate(kept);
        for i in first..kept {
            if self.rest[i] != rank {
                self.rest.push(self.rest[i]);
            }
        }
        self.place(rank);
        Step::Ask(kept, (self.least[rank as usize], rank))
    }

    /// Whether by symmetry it may not be put where it could be.
    fn waits(&self, r: usize) -> bool {
        if !self.rules.symmetry {
            return false;
        }
        // Its twin was passed over, and is to be below it.
        let twin = self.twin[r];
        if twin != NONE && !self.placed[twin as usize] && self.passed[twin as usize] {
            return true;
        }
        // It may change places with the smaller one below it.
        let under = self.under[r];
        if under == NONE || self.align[r] > 1 || self.align[under as usize] > 1 {
            return false;
        }
        let u = under as usize;
        (self.lower[r], self.upper[r]) == (self.lower[u], self.upper[u]) && r < u
    }

    /// Those not placed that this one meets.
    fn met(&self, r: usize) -> impl Iterator<Item = usize> {
        let words = self.free.len();
        let meets = &self.meets[r * words..(r + 1) * words];
        meets.iter().zip(&self.free).enumerate().flat_map(|(word, (&meets, &free))| {
            let mut bits = meets & free;
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(word * 64 + bit)
            })
        })
    }

    /// Puts a buffer at its lowest address, and lifts those that meet it.
    fn place(&mut self, rank: u32) {
        let r = rank as usize;
        let end = self.least[r] + self.size[r];
        let (lower, upper) = (self.lower[r], self.upper[r]);
        for total in &mut self.total[lower as usize..upper as usize] {
            *total -= self.size[r];
        }
        self.placed[r] = true;
        self.depth = (self.depth.0 + 1, self.depth.1.max(self.depth.0 + 1));
        self.free[r / 64] ^= 1 << (r % 64);
        self.trail.push((rank, PLACED, 0));
        for word in 0..self.free.len() {
            let mut bits = self.free[word] & self.meets[r * self.free.len() + word];
            while bits != 0 {
                let o = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if self.least[o] < end {
                    self.trail.push((o as u32, self.under[o], self.least[o]));
                    self.least[o] = end.next_multiple_of(self.align[o]);
                    self.under[o] = rank;
                    self.word[o] = Memory::word(o as u32, self.least[o]);
                }
            }
        }
    }

    fn undo(&mut self, trail: usize) {
        while self.trail.len() > trail {
            let Some((rank, under, least)) = self.trail.pop() else { break };
            let r = rank as usize;
            if under == PLACED {
                self.placed[r] = false;
                self.depth.0 -= 1;
                self.free[r / 64] ^= 1 << (r % 64);
                for total in &mut self.total[self.lower[r] as usize..self.upper[r] as usize] {
                    *total += self.size[r];
                }
            } else {
                (self.least[r], self.under[r]) = (least, under);
                self.word[r] = Memory::word(rank, least);
            }
        }
    }
}

/// Whom each meets but itself, as bits.
fn meetings(lower: &[u32], upper: &[u32]) -> Vec<u64> {
    let words = lower.len().div_ceil(64);
    let mut meets = vec![0; lower.len() * words];
    for i in 0..lower.len() {
        for j in 0..i {
            if lower[i] < upper[j] && lower[j] < upper[i] {
                meets[i * words + j / 64] |= 1 << (j % 64);
                meets[j * words + i / 64] |= 1 << (i % 64);
            }
        }
    }
    meets
}
