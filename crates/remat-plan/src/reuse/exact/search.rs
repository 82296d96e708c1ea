//! Depth-first search that decides whether buffers fit below a capacity.

use super::memory::Memory;
use super::sections::Part;
use super::state::{Last, Rules, State};
use crate::Limits;

/// Answer of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// All buffers are placed.
    Placed,
    /// The buffers do not fit into the capacity.
    Never,
    /// The search was stopped by its limit on nodes or by the time limit.
    Unknown,
}

/// Work between two checks of the time limit, in items times sections. Work of this amount takes
/// some milliseconds.
const WORK: u64 = 1 << 24;

/// Search for a placement of one part, in one order of its buffers.
///
/// A buffer's rank is its position in the order. Buffers are placed one by one, each on top of the
/// placed buffers that are alive at the same time. No buffer is placed at a lower address than the
/// previous buffer. Buffers at the same address are placed in the order of their ranks. The order
/// of placements makes the search find each placement in which no buffer can be moved down exactly
/// once.
#[derive(Debug)]
pub(super) struct Search {
    pub state: State,
    /// Ranks of the buffers that are not placed. The vector holds a list for each node on the
    /// current path; the list of a node is `rest[first..kept]`.
    rest: Vec<u32>,
    /// Alternatives that the search tries. The vector holds a list for each node on the current
    /// path.
    tries: Vec<u32>,
    frames: Vec<Frame>,
    /// Section -> latest end of the buffers that begin in the section. Scratch space of `splits`,
    /// all 0 between calls.
    reach: Vec<u32>,
    memory: Memory,
    nodes: u64,
    limits: Limits,
    /// Number of nodes between two checks of the time limit. The number is larger if a node takes
    /// less time.
    stride: u64,
}

/// A node on the current path: the ranks `rest[first..kept]` are to be placed.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Meaning of the node's list in `tries`. If `true`, the list holds bounds of parts in `rest`,
    /// and all these parts must be placed. If `false`, the list holds ranks, one of which must be
    /// placed next.
    each: bool,
    first: usize,
    kept: usize,
    /// Begin of the node's list in `tries`.
    tries: usize,
    /// Index in `tries` of the next entry to try.
    next: usize,
    /// Length of the state's list of changes (`State::trail`) when the node was entered.
    trail: usize,
    key: u128,
    last: Last,
}

/// Next action of the search, which a node decides.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Place the ranks of `rest` from this index on. No rank may come before `Last` in the order of
    /// placements.
    Ask(usize, Last),
    /// End the node with this answer.
    Tell(Answer),
}

impl Search {
    /// Search for a placement of `part`. `order` holds the items by rank.
    pub fn new(part: &Part, order: Vec<usize>, rules: Rules) -> Self {
        Self {
            state: State::new(part, order, rules),
            rest: Vec::new(),
            tries: Vec::new(),
            frames: Vec::new(),
            reach: vec![0; part.sections],
            memory: Memory::default(),
            nodes: 0,
            limits: Limits::none(),
            stride: (WORK / (part.items.len() * part.sections).max(1) as u64).clamp(1, 1024),
        }
    }

    /// Tries to fit all buffers into `capacity` units. Uses at most `nodes` nodes, and subtracts
    /// the used nodes from `nodes`.
    pub fn fits(&mut self, capacity: u64, nodes: &mut u64, limits: &Limits) -> Answer {
        // States that failed at a lower capacity may succeed at this higher capacity.
        if capacity > self.state.capacity {
            self.memory.clear();
        }
        self.state.undo(0);
        self.state.capacity = capacity;
        (self.nodes, self.limits) = (*nodes, *limits);
        self.rest.clear();
        self.rest.extend(0..self.state.len() as u32);
        self.tries.clear();
        let answer = self.run();
        *nodes = self.nodes;
        answer
    }

    /// Places all buffers. A vector of frames replaces recursive calls, because a path may have as
    /// many nodes as there are buffers, and thread stacks are small.
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

    /// Begins to place `self.rest[first..]`. Returns the answer if no search is needed. If a search
    /// is needed, pushes a frame for the node and returns `None`.
    fn enter(&mut self, first: usize, last: Last) -> Option<Answer> {
        if first == self.rest.len() {
            return Some(Answer::Placed);
        }
        if self.nodes == 0 || (self.nodes.is_multiple_of(self.stride) && self.limits.over()) {
            return Some(Answer::Unknown);
        }
        self.nodes -= 1;
        let Some(key) = self.state.look(&self.rest[first..], last) else {
            return Some(Answer::Never);
        };
        if self.state.rules.memory && self.memory.has(key) {
            return Some(Answer::Never);
        }
        let (kept, tries, trail) = (self.rest.len(), self.tries.len(), self.state.mark());
        let each = self.splits(first);
        self.frames.push(Frame { each, first, kept, tries, next: tries, trail, key, last });
        if each {
            self.list_parts(first);
        } else {
            self.state.candidates(&self.rest[first..], &mut self.tries);
        }
        None
    }

    /// Removes the last frame, whose node has this answer.
    fn leave(&mut self, answer: Answer) {
        let Some(frame) = self.frames.pop() else { return };
        if answer != Answer::Placed {
            self.state.undo(frame.trail);
        }
        if answer == Answer::Never && self.state.rules.memory {
            self.memory.insert(frame.key);
        }
        self.rest.truncate(frame.kept);
        self.tries.truncate(frame.tries);
    }

    /// Whether the buffers `self.rest[first..]` fall into parts that have no section in common.
    fn splits(&mut self, first: usize) -> bool {
        if !self.state.rules.splitting {
            return false;
        }
        let mut low = usize::MAX;
        let mut high = 0;
        for &rank in &self.rest[first..] {
            let (lower, upper) = (self.state.lower[rank as usize], self.state.upper[rank as usize]);
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

    /// Adds the bounds of the parts of `self.rest[first..]` to `tries`. The bounds are indices into
    /// a sorted copy of these ranks, which is added to `rest`.
    fn list_parts(&mut self, first: usize) {
        let begin = self.rest.len();
        self.rest.extend_from_within(first..);
        let Self { rest, tries, state: State { lower, upper, .. }, .. } = self;
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
        // Small parts come first, because a small part that does not fit is detected quickly.
        bounds.sort_by_key(|bound| bound.1 - bound.0);
        for (from, to) in bounds {
            rest[from as usize..to as usize].sort_unstable();
            tries.extend([from, to]);
        }
    }

    /// Next step of a node whose parts must all be placed, after the answer for the previous part.
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
        // The list of the previous part is removed from `rest`.
        let begin = frame.kept + (frame.kept - frame.first);
        self.rest.truncate(begin);
        self.rest.extend_from_within(from as usize..to as usize);
        Step::Ask(begin, frame.last)
    }

    /// Next step of a node that tries ranks in turn, after the answer for the previous rank.
    fn branch(&mut self, answer: Option<Answer>) -> Step {
        let Some(frame) = self.frames.last_mut() else { return Step::Tell(Answer::Unknown) };
        if let Some(answer) = answer.filter(|&answer| answer != Answer::Never) {
            return Step::Tell(answer);
        }
        let Some(&rank) = self.tries.get(frame.next) else { return Step::Tell(Answer::Never) };
        frame.next += 1;
        let Frame { first, kept, trail, .. } = *frame;
        self.state.undo(trail);
        self.rest.truncate(kept);
        for i in first..kept {
            if self.rest[i] != rank {
                self.rest.push(self.rest[i]);
            }
        }
        self.state.place(rank);
        Step::Ask(kept, (self.state.least[rank as usize], rank))
    }
}
