//! Steps that repeat are recognized, marked or not.
//!
//! Commands that were seen are nodes, each linked to the one that came after it the last time. While the commands that
//! come are those of a known sequence, one walks along, and what comes next is known as far as the links lead: the
//! [course](course). A command that does not fit makes a node, and so a sequence of its own, until the commands are
//! known again. So training, evaluation and what happens every n-th step lie side by side, and where several sequences
//! go on from one node, their turns are [counted](Branch).
//!
//! Two steps are of one kind if they use the same when: [`StepFuture::key`](super::StepFuture::key). Turns that run by plan are
//! compared command by command, in `driver/by_plan/kinds.rs`.
//!
//! Nothing depends on being right: commands are what they are, and whoever decides by what is expected of them must lose
//! nothing but time.

mod branch;
mod context;
mod course;
mod heirs;
mod kept;

pub(crate) use course::Known;
pub use kept::KnownSteps;

use branch::Branch;
use context::Context;
use heirs::{Heir, Turns};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::num::NonZeroU32;

/// More nodes than this are not kept. Some 20 MiB.
const MOST: usize = 1 << 16;
/// So many commands may be missing, or have come in between, for the sequence to be found again at the next command that
/// fits. Else the last [`context::LENGTH`] commands must be those of a known one.
const NEAR: usize = 8;
/// Bounds of the doubt in expectations, in commands.
const DOUBT: usize = 8;
const MOST_DOUBT: usize = 1 << 12;
/// New commands are not compared with known ones farther back than this.
const FAR: usize = 256;
/// In parts of a marked step that are longer than this, commands may be those that have come in the same part: there
/// may be any number of them.
const MOST_APART: usize = 1 << 13;

/// What a storage is in the steps that repeat: the same output of the same command in each of them. What updates a value
/// in place, or replaces it, has its role from then on: so a parameter has the same role in all steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "u32", into = "u32"))]
pub(crate) struct Role {
    /// Its index and 1, so that an `Option` takes no more room.
    number: NonZeroU32,
}

impl Role {
    /// The next ones.
    pub const fn after(self, roles: u32) -> Self {
        Self { number: self.number.saturating_add(roles) }
    }

    pub const fn index(self) -> usize {
        (self.number.get() - 1) as usize
    }
}

impl From<u32> for Role {
    fn from(index: u32) -> Self {
        Self { number: NonZeroU32::MIN.saturating_add(index) }
    }
}

impl From<Role> for u32 {
    fn from(role: Role) -> Self {
        role.number.get() - 1
    }
}

/// A command, as far as it is the same in each step.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// What it is. What that is made of is for the caller to say.
    pub token: u64,
    /// Roles of its inputs; `None` for a storage without.
    pub inputs: SmallVec<[Option<Role>; 8]>,
    /// Whether it reads them. Else it looks at them.
    pub reads: bool,
    /// Its outputs.
    pub makes: SmallVec<[Makes; 2]>,
}

/// An output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum Makes {
    /// A value of so many bytes.
    Value(u64),
    /// Another look at an input.
    Look(u32),
    /// A new value of an input, which had the role until then.
    Update(u32),
    /// A look at an input, which has the role of another from now on.
    Replace {
        /// At this one.
        by: u32,
        /// Which had the role until then.
        target: u32,
    },
}

pub(crate) type NodeId = u32;

/// The sequences, and where in them the program is.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    nodes: Vec<Node>,
    /// Of each role: its size, and the node after which nobody held it any more.
    roles: Vec<(u64, NodeId)>,
    /// Roles that turned out to be others: what is made in them has the others.
    same: FxHashMap<Role, Role>,
    /// What turned out so with the last command, for what has them already: all at once. `None`: it has no role.
    renamed: Vec<(Role, Option<Role>)>,
    /// The last node whose command was the last of these.
    index: FxHashMap<u64, NodeId>,
    context: Context,
    /// The node of the last command.
    at: Option<NodeId>,
    /// Where it left what was expected: the node that should have come, and how many have come since.
    left: Option<(NodeId, usize)>,
    /// Nodes of the course, in order.
    course: Vec<NodeId>,
    again: Option<usize>,
    /// Where on it the last command was. `None`: it is not what is expected any more.
    on_course: Option<usize>,
    /// Whether the next turn of the loop is another than this one.
    turns_differ: bool,
    /// Commands since the course was made.
    since: usize,
    /// Commands of late that were as expected, one after the other.
    as_expected: usize,
    /// After so many of them the next are expected, too. It rises while expectations come to nothing.
    doubt: usize,
    /// Numbers the courses, for [`Node::place`].
    courses: u32,
    /// Whether the program marks the ends of steps.
    is_marked: bool,
    /// Numbers the parts of steps, for [`Node::part`]: a part is over when nothing that it made is held any more, and with
    /// the step.
    part: u32,
    /// Commands of it so far.
    since_part: usize,
    /// What it made that is held.
    held: FxHashSet<Role>,
    turns: Turns,
    /// What plays a role at a mark, and has another from then on: all at once. No role is in two of `plays` of a mark, or in
    /// two of `inherits`.
    heirs: FxHashMap<NodeId, Vec<Heir>>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Node {
    /// What the command is, but for which storages are its inputs.
    token: u64,
    /// Its inputs; `None` for one without a role.
    inputs: SmallVec<[Option<Role>; 4]>,
    reads: bool,
    makes: SmallVec<[Makes; 1]>,
    /// That of the first value that it makes; those of others follow.
    first: Role,
    /// What it cost the last time, in the units of the cost model.
    cost: f64,
    next: Option<NodeId>,
    /// How often, while nothing else did.
    times: u32,
    /// What came before it the last time.
    before: Option<NodeId>,
    /// If others have come after it as well.
    branch: Option<Box<Branch>>,
    /// Where on which course it is.
    #[cfg_attr(feature = "serde", serde(skip))]
    place: (u32, u32),
    /// The part in which it came last; 0 if that is of no interest.
    #[cfg_attr(feature = "serde", serde(skip))]
    part: u32,
}

/// The token of a command by which the program marks the end of a step.
pub(crate) const MARK: u64 = 1;

/// No node.
const NOWHERE: NodeId = NodeId::MAX;

impl Steps {
    /// This command is next. Returns its node. Roles may turn out to be others with it: [`Steps::take_renamed`].
    pub fn hear(&mut self, heard: Heard) -> NodeId {
        self.context.push(heard.token);
        if self.held.is_empty() {
            self.next_part();
        }
        let node = match self.expected() {
            Some(node) if self.may_be(node, &heard) => node,
            _ => self.find_or_add(&heard),
        };
        self.come_to(node);
        self.at.unwrap_or(node)
    }

    /// The command of this node is next.
    fn come_to(&mut self, node: NodeId) {
        self.nodes[node as usize].before = self.at;
        self.go_to(node);
        self.note_part(node);
        if self.is_marked {
            self.turns.push(node);
        }
        if self.is_mark(node) {
            self.end_turn();
        }
    }

    /// The turn that ended with the last command, a mark; empty if turns are not compared.
    pub fn last_turn(&self) -> &[NodeId] {
        self.turns.last()
    }

    /// A turn came again whose commands were not heard: it ran by plan, so what plays roles is as it was before.
    pub fn came_again(&mut self, turn: &[NodeId]) {
        for &node in turn {
            let Some(of) = self.nodes.get(node as usize) else { return };
            self.context.push(of.token);
            self.come_to(node);
        }
    }

    /// Roles that turned out to be others with the last command, all at once; `None`: to be none.
    pub fn take_renamed(&mut self) -> Vec<(Role, Option<Role>)> {
        std::mem::take(&mut self.renamed)
    }

    /// Roles of the values that a command makes.
    fn values_of(&self, node: NodeId) -> impl Iterator<Item = Role> {
        let values = self.nodes[node as usize].roles();
        values.map(|role| self.same.get(&role).copied().unwrap_or(role))
    }

    /// Which roles what a command makes plays, as [`Heard::makes`] lists them; `None` for views.
    pub fn made_by(&self, id: NodeId) -> impl Iterator<Item = Option<Role>> {
        let node = &self.nodes[id as usize];
        let mut values = self.values_of(id);
        node.makes.iter().map(move |makes| match *makes {
            Makes::Value(_) => values.next(),
            Makes::Update(target) | Makes::Replace { target, .. } => node.inputs[target as usize],
            Makes::Look(_) => None,
        })
    }

    fn next_part(&mut self) {
        self.held.clear();
        self.part = self.part.checked_add(1).unwrap_or(1);
        self.since_part = 0;
    }

    fn note_part(&mut self, id: NodeId) {
        let of = &mut self.nodes[id as usize];
        of.part = 0;
        if of.token == MARK {
            self.is_marked = true;
            self.next_part();
        } else if self.is_marked && self.since_part < MOST_APART {
            of.part = self.part;
            let values: SmallVec<[Role; 4]> = self.values_of(id).collect();
            self.held.extend(values);
        }
        self.since_part += 1;
    }

    /// Whether a node came before in this part of a step, so that what comes now is another command, though it is like that.
    /// What both make is held at the same time, and used at different ones: so are the gradients of the batches that are
    /// added up for one update.
    fn is_past(&self, node: NodeId) -> bool {
        self.is_marked
            && self.since_part < MOST_APART
            && self.nodes[node as usize].part == self.part
    }

    /// Whether a command may be that of a node.
    fn may_be(&self, node: NodeId, heard: &Heard) -> bool {
        self.nodes[node as usize].is(heard) && !self.is_past(node)
    }

    /// Whether there are too many nodes to go on: all should be forgotten, and learned anew.
    pub const fn is_full(&self) -> bool {
        self.nodes.len() >= MOST
    }

    #[cold]
    fn find_or_add(&mut self, heard: &Heard) -> NodeId {
        if let Some(node) = self.find_near(heard) {
            return node;
        }
        self.find_by_context(heard).unwrap_or_else(|| self.add(heard))
    }

    /// The known node that this command is, near what was expected: another that has come here before, or one after some
    /// that are missing or have come in between. What has no inputs to be known by is not found so: there are many like
    /// it.
    fn find_near(&self, heard: &Heard) -> Option<NodeId> {
        let at = self.at?;
        let is = |node: &NodeId| self.may_be(*node, heard);
        let others = self.nodes[at as usize].branch.iter().flat_map(|branch| branch.all());
        if let Some(node) = others.into_iter().find(is) {
            return Some(node);
        }
        if !heard.inputs.iter().any(Option::is_some) {
            return None;
        }
        let left = self.left.map(|(node, _)| node);
        [self.after(at), left].into_iter().flatten().find_map(|from| {
            std::iter::successors(Some(from), |&node| self.after(node)).take(NEAR + 1).find(is)
        })
    }

    /// The known node that this command is, by what came before: commands that were as those before the node, from
    /// inputs that are the same. They had nodes made for them, for nobody knew yet; now what they made plays the known
    /// roles.
    fn find_by_context(&mut self, heard: &Heard) -> Option<NodeId> {
        let node = *self.index.get(&self.context.key()?)?;
        let of = |node: NodeId| &self.nodes[node as usize];
        if !of(node).is_like_heard(heard) || self.is_past(node) {
            return None;
        }
        let mut pairs: SmallVec<[(NodeId, NodeId); 16]> = SmallVec::new();
        let (mut new, mut known) = (self.at?, of(node).before?);
        // Two of one part are two commands, however alike they are.
        let are_apart = |new: NodeId, known: NodeId| {
            self.is_past(known) || of(new).part != 0 && of(new).part == of(known).part
        };
        let may_be = |new, known| of(new).is_like(of(known)) && !are_apart(new, known);
        while new != known && may_be(new, known) && pairs.len() < FAR {
            pairs.push((new, known));
            match (of(new).before, of(known).before) {
                (Some(one), Some(other)) => (new, known) = (one, other),
                _ => break,
            }
        }
        // From the first on: what is made in both is the same from then on. Where inputs are not the same, they can have
        // the same past only after that.
        let mut likeness = Likeness::default();
        let mut first = pairs.len();
        for (at, &(new, known)) in pairs.iter().enumerate().rev() {
            if likeness.agrees(&of(new).inputs, &of(known).inputs) {
                likeness.same.extend(of(new).roles().zip(of(known).roles()));
            } else {
                likeness = Likeness::default();
                first = at;
            }
        }
        pairs.truncate(first);
        let agrees = likeness.agrees(&heard.inputs, &of(node).inputs);
        if !agrees || !likeness.from_before || pairs.len() + 1 < context::LENGTH {
            return None;
        }
        if let (Some(&(first_new, first_known)), Some(&(_, at))) = (pairs.last(), pairs.first()) {
            let before = of(first_new).before;
            self.nodes[first_known as usize].before = before;
            if let Some(before) = before {
                let before = &mut self.nodes[before as usize];
                match &mut before.branch {
                    Some(branch) => branch.mistook(first_new, Some(first_known)),
                    None => before.next = Some(first_known),
                }
            }
            self.at = Some(at);
        }
        for &(new, known) in &pairs {
            self.nodes[known as usize].part = self.nodes[new as usize].part;
        }
        self.turns.correct(pairs.iter().map(|pair| pair.1));
        for (&role, &known) in &likeness.same {
            self.renamed.push((role, Some(known)));
            if self.held.remove(&role) {
                self.held.insert(known);
            }
        }
        self.same.extend(likeness.same);
        Some(node)
    }

    /// The command of a node ran, and cost this much.
    pub fn ran(&mut self, node: NodeId, cost: f64) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.cost = cost;
        }
    }

    /// Nobody holds what plays this role any more, after the last command, or with it.
    pub fn gone(&mut self, role: Role) {
        self.held.remove(&role);
        if let (Some(role), Some(at)) = (self.roles.get_mut(role.index()), self.at) {
            role.1 = at;
        }
    }

    /// Whether a node is a mark.
    pub fn is_mark(&self, node: NodeId) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| node.token == MARK)
    }

    /// Whether a mark came.
    pub const fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Where on the course the last command is; `None` if that is not what is expected.
    pub const fn on_course(&self) -> Option<usize> {
        self.on_course
    }

    /// Bytes of all this.
    pub fn bytes(&self) -> u64 {
        let node = size_of::<Node>() + size_of::<NodeId>();
        let entry = size_of::<(u64, NodeId)>() + 1;
        let role = size_of::<(u64, NodeId)>();
        (self.nodes.capacity() * node
            + self.index.capacity() * entry
            + self.roles.capacity() * role) as u64
            + self.turns.bytes()
            + self.heirs.values().map(|heirs| size_of_val(&heirs[..]) as u64).sum::<u64>()
    }

    /// What is expected after the last command: before the first, the first of an earlier run.
    fn expected(&self) -> Option<NodeId> {
        match self.at {
            Some(at) => self.after(at),
            None => (!self.nodes.is_empty()).then_some(0),
        }
    }

    /// What is expected after a node.
    fn after(&self, node: NodeId) -> Option<NodeId> {
        let node = &self.nodes[node as usize];
        match &node.branch {
            None => node.next,
            Some(branch) => Some(branch.expected()),
        }
    }

    fn add(&mut self, heard: &Heard) -> NodeId {
        let first = Role::from(self.roles.len() as u32);
        for makes in &heard.makes {
            if let Makes::Value(bytes) = makes {
                push(&mut self.roles, (*bytes, NOWHERE));
            }
        }
        let node = Node {
            token: heard.token,
            inputs: heard.inputs.iter().copied().collect(),
            reads: heard.reads,
            makes: heard.makes.iter().copied().collect(),
            first,
            cost: 0.0,
            next: None,
            times: 0,
            before: None,
            branch: None,
            place: (0, 0),
            part: 0,
        };
        push(&mut self.nodes, node);
        (self.nodes.len() - 1) as NodeId
    }

    /// This node comes next, be it expected or not.
    fn go_to(&mut self, node: NodeId) {
        let expected = self.expected();
        self.since += 1;
        if let Some(at) = self.at {
            let last = &mut self.nodes[at as usize];
            match (&mut last.branch, last.next) {
                (Some(branch), _) => branch.took(node),
                (None, Some(next)) if next != node => {
                    last.branch = Some(Box::new(Branch::new(next, last.times, node)));
                }
                _ => (last.next, last.times) = (Some(node), last.times.saturating_add(1)),
            }
        }
        if expected == Some(node) {
            self.as_expected += 1;
            if self.left.as_mut().is_some_and(|left| {
                left.1 += 1;
                left.1 > context::LENGTH
            }) {
                self.left = None;
            }
        } else {
            self.as_expected = 0;
            self.left = expected.map(|expected| (expected, 0)).or_else(|| {
                self.left.map(|(node, count)| (node, count + 1)).filter(|left| left.1 <= NEAR)
            });
        }
        self.follow_course(node);
        // Where nothing has changed for so long, the entry is there. Of several in one part of a step, the first is known by
        // its context, and the others by what comes before them.
        if let Some(key) = self.context.key()
            && !self.index.get(&key).is_some_and(|&known| self.is_past(known))
        {
            self.index.insert(key, node);
        }
        self.at = Some(node);
    }

    /// Whether this node is what comes next on the course, and what comes after it what is expected still.
    fn follow_course(&mut self, node: NodeId) {
        let Some(at) = self.on_course else { return };
        let next = if at + 1 < self.course.len() { Some(at + 1) } else { self.again };
        self.on_course = next.filter(|&next| self.course[next] == node);
        // The turn of another may come, the next time that it is here.
        if let (Some(_), Some(last)) = (self.on_course, self.at) {
            self.turns_differ |=
                self.nodes[last as usize].branch.is_some() && self.after(last) != Some(node);
        }
        if self.on_course.is_none() {
            self.doubt = match self.since {
                // It has held as long as it was.
                lasted if lasted >= self.course.len() => 0,
                _ => (2 * self.doubt + DOUBT).min(MOST_DOUBT),
            };
        }
    }
}

/// Grows by a quarter: a vector that doubles may take twice what is in it.
fn push<T>(all: &mut Vec<T>, one: T) {
    if all.len() == all.capacity() {
        all.reserve_exact(all.len() / 4 + 64);
    }
    all.push(one);
}

/// How far commands are those that came before.
#[derive(Default)]
struct Likeness {
    /// What the ones make and the known ones made.
    same: FxHashMap<Role, Role>,
    /// Whether there was an input from before them all. There must be: many values are made of nothing.
    from_before: bool,
}

impl Likeness {
    fn agrees(&mut self, new: &[Option<Role>], known: &[Option<Role>]) -> bool {
        let pairs = || new.iter().flatten().zip(known.iter().flatten());
        let holes = new.iter().map(Option::is_some).eq(known.iter().map(Option::is_some));
        let same = &self.same;
        if !holes || pairs().any(|(new, known)| same.get(new).unwrap_or(new) != known) {
            return false;
        }
        self.from_before |= pairs().any(|(new, _)| !same.contains_key(new));
        true
    }
}

impl Node {
    /// Of the values that it makes.
    fn roles(&self) -> impl Iterator<Item = Role> + use<> {
        let values =
            self.makes.iter().filter(|makes| matches!(makes, Makes::Value(_))).count() as u32;
        let first = self.first;
        (0..values).map(move |value| first.after(value))
    }

    fn is(&self, heard: &Heard) -> bool {
        self.is_like_heard(heard) && self.inputs[..] == heard.inputs[..]
    }

    /// But for its inputs.
    fn is_like_heard(&self, heard: &Heard) -> bool {
        self.token == heard.token && self.reads == heard.reads && self.makes[..] == heard.makes[..]
    }

    fn is_like(&self, other: &Self) -> bool {
        self.token == other.token && self.reads == other.reads && self.makes == other.makes
    }
}

#[cfg(test)]
mod tests;
