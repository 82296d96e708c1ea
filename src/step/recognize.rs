//! Recognition of repeated steps, whether or not the program marks them.
//!
//! Each distinct command is a node, linked to the node that followed it last time. While commands
//! follow the links, the nodes further along are predicted; they are called the [course](course). A
//! command that matches no node nearby gets a new node. New nodes form a new sequence, until
//! commands match known nodes again. Training, evaluation and periodic steps are thus separate
//! sequences. If several sequences continue from one node, a [`Branch`] counts how often in a row
//! each sequence followed.
//!
//! Two steps are of one kind if they use equal values at equal positions:
//! [`StepFuture::key`](super::StepFuture::key). Turns that run by plan are compared command by
//! command, in `driver/by_plan/kinds.rs`.
//!
//! Predictions may be wrong. A wrong prediction may cost time, but must never change a result.

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

/// Limit on the number of nodes. At the limit, the nodes take about 20 MiB.
const MOST: usize = 1 << 16;
/// Limit on the number of missing or inserted commands after which a single matching command
/// suffices to find a known sequence again. After more missing or inserted commands, the last
/// [`context::LENGTH`] commands must match a known sequence.
const NEAR: usize = 8;
/// Value of [`Steps::doubt`], in commands, after a first failed prediction. `MOST_DOUBT` is the
/// limit of [`Steps::doubt`].
const DOUBT: usize = 8;
const MOST_DOUBT: usize = 1 << 12;
/// Number of commands that are compared backwards to find a known sequence.
const FAR: usize = 256;
/// Limit on the number of commands in one part of a marked step that get separate nodes. A limit is
/// needed because a part may have any length. Beyond the limit, a command may match a node of its
/// own part.
const MOST_APART: usize = 1 << 13;

/// The role of a storage in a repeated step. Storages have the same role if the same output of the
/// same command made them in different turns. The result of an update in place or of a replacement
/// takes over the role of the old value. A parameter thus has one role in all steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "u32", into = "u32"))]
pub(crate) struct Role {
    /// Index of the role plus 1. The number is never 0, so that `Option<Role>` is as small as
    /// `Role`.
    number: NonZeroU32,
}

impl Role {
    /// The role whose index is larger by `roles`.
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

/// The parts of a command that are equal in each step.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// Hash of the command's parts that are equal in each step, computed by the caller.
    pub token: u64,
    /// Roles of the inputs; `None` for a storage without a role.
    pub inputs: SmallVec<[Option<Role>; 8]>,
    /// Whether the command reads the bytes of its inputs. A view reads no bytes.
    pub reads: bool,
    /// Outputs of the command.
    pub makes: SmallVec<[Makes; 2]>,
}

/// An output of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) enum Makes {
    /// A new value with its own role. The field is the size in bytes.
    Value(u64),
    /// A view of an input. The field is the index of that input.
    Look(u32),
    /// A new value that takes over the role of an input. The field is the index of that input.
    Update(u32),
    /// A view of one input that takes over the role of another input.
    Replace {
        /// Index of the input that is viewed.
        by: u32,
        /// Index of the input whose role is taken over.
        target: u32,
    },
}

pub(crate) type NodeId = u32;

/// Known sequences of commands, and the position of the program in them.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    nodes: Vec<Node>,
    /// Size in bytes of the storages in each role, and the node of the command at which their last
    /// handle was dropped.
    roles: Vec<(u64, NodeId)>,
    /// Maps a new role to the older role to which it proved equal.
    same: FxHashMap<Role, Role>,
    /// Role changes of the last command as pairs of old and new role, to be applied at the same
    /// time. `None` as the new role means that storages of the old role lose their role.
    renamed: Vec<(Role, Option<Role>)>,
    /// Maps the hash of [`context::LENGTH`] consecutive commands to the node of the last command.
    index: FxHashMap<u64, NodeId>,
    context: Context,
    /// Node of the last command.
    at: Option<NodeId>,
    /// `Some` since a prediction failed: the node that was predicted, and the number of commands
    /// since the failure.
    left: Option<(NodeId, usize)>,
    /// Nodes of the predicted commands (the *course*), in order.
    course: Vec<NodeId>,
    again: Option<usize>,
    /// Position of the last command among the predicted commands. `None` after a command that was
    /// not predicted.
    on_course: Option<usize>,
    /// Whether the next turn of the loop is expected to differ from the current turn.
    turns_differ: bool,
    /// Number of commands since the current prediction was made.
    since: usize,
    /// Number of consecutive commands that were predicted, up to the last command.
    as_expected: usize,
    /// Number of consecutive commands that must have been predicted before a new prediction is
    /// made. Each prediction that fails early raises the number.
    doubt: usize,
    /// Number of predictions (courses) made so far. [`Node::place`] uses the number to identify the
    /// current course.
    courses: u32,
    /// Whether the program marks the ends of steps.
    is_marked: bool,
    /// Number of the current part of a step, for [`Node::part`]. A part ends when the step ends, or
    /// when no output of the part is held any more.
    part: u32,
    /// Number of commands in the current part.
    since_part: usize,
    /// Roles of the held storages that the current part made.
    held: FxHashSet<Role>,
    turns: Turns,
    /// Role changes at each step mark, by the node of the mark. The changes of a mark are applied
    /// at the same time, so no role occurs twice in `plays` or twice in `inherits`.
    heirs: FxHashMap<NodeId, Vec<Heir>>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Node {
    /// Hash of the command, without the roles of its inputs.
    token: u64,
    /// Roles of the inputs; `None` for an input without a role.
    inputs: SmallVec<[Option<Role>; 4]>,
    reads: bool,
    makes: SmallVec<[Makes; 1]>,
    /// Role of the first value that the command makes. Further values of the command have the next
    /// roles.
    first: Role,
    /// Last measured cost, in units of the cost model.
    cost: f64,
    next: Option<NodeId>,
    /// Number of times that `next` followed this node. Counted only until a second successor comes.
    times: u32,
    /// The predecessor of this node at its last occurrence.
    before: Option<NodeId>,
    /// Successors, if there are several.
    branch: Option<Box<Branch>>,
    /// Number of the latest prediction (course) that contains this node, and the node's position in
    /// it.
    #[cfg_attr(feature = "serde", serde(skip))]
    place: (u32, u32),
    /// Number of the part in which the node last occurred. The number is 0 in three cases: for a
    /// mark, in a program without marks, and after the first [`MOST_APART`] commands of a part.
    #[cfg_attr(feature = "serde", serde(skip))]
    part: u32,
}

/// Token (hash) of the command that marks the end of a step.
pub(crate) const MARK: u64 = 1;

/// Number that stands for no node.
const NOWHERE: NodeId = NodeId::MAX;

impl Steps {
    /// Matches the next command and returns its node. The match may show that new roles equal older
    /// roles: see [`Steps::take_renamed`].
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

    /// Moves to the node of the next command.
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

    /// Nodes of the turn that ended with the last command, which is a mark. Empty if turns are not
    /// compared.
    pub fn last_turn(&self) -> &[NodeId] {
        self.turns.last()
    }

    /// Notes a turn that ran by plan, after its end. After the turn, storages have the same roles
    /// as before it.
    pub fn came_again(&mut self, turn: &[NodeId]) {
        for &node in turn {
            let Some(of) = self.nodes.get(node as usize) else { return };
            self.context.push(of.token);
            self.come_to(node);
        }
    }

    /// Takes the role changes of the last command as pairs of old and new role, to be applied at
    /// the same time. `None` as the new role means that storages of the old role lose their role.
    pub fn take_renamed(&mut self) -> Vec<(Role, Option<Role>)> {
        std::mem::take(&mut self.renamed)
    }

    /// Roles of the values that a command makes.
    fn values_of(&self, node: NodeId) -> impl Iterator<Item = Role> {
        let values = self.nodes[node as usize].roles();
        values.map(|role| self.same.get(&role).copied().unwrap_or(role))
    }

    /// Roles of a command's outputs, as listed in [`Heard::makes`]; `None` for views.
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

    /// Whether a node already occurred in the current part of the step. If true, a command that
    /// equals the node gets a separate node.
    ///
    /// Separate nodes are needed because the outputs of the two commands exist at the same time,
    /// but are used at different times. For example, the gradients of several batches are added up
    /// for one update.
    fn is_past(&self, node: NodeId) -> bool {
        self.is_marked
            && self.since_part < MOST_APART
            && self.nodes[node as usize].part == self.part
    }

    /// Whether a command matches a node.
    fn may_be(&self, node: NodeId, heard: &Heard) -> bool {
        self.nodes[node as usize].is(heard) && !self.is_past(node)
    }

    /// Whether the limit on nodes is reached. At the limit, the caller should forget all steps and
    /// recognize steps anew.
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

    /// Finds a command near the predicted position: as another known successor of the last node, or
    /// as a node a few links ahead.
    ///
    /// A command with no input that has a role resembles many commands, so it is searched only
    /// among successors.
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

    /// Finds a command by its context: the preceding commands equal the commands before a known
    /// node, and begin with equal inputs.
    ///
    /// The preceding commands had got new nodes. When the context matches, their outputs get the
    /// roles of the known commands.
    fn find_by_context(&mut self, heard: &Heard) -> Option<NodeId> {
        let node = *self.index.get(&self.context.key()?)?;
        let of = |node: NodeId| &self.nodes[node as usize];
        if !of(node).is_like_heard(heard) || self.is_past(node) {
            return None;
        }
        let mut pairs: SmallVec<[(NodeId, NodeId); 16]> = SmallVec::new();
        let (mut new, mut known) = (self.at?, of(node).before?);
        // A new and a known node of one part belong to different commands, even if the commands are
        // equal.
        let are_apart = |new: NodeId, known: NodeId| {
            self.is_past(known) || of(new).part != 0 && of(new).part == of(known).part
        };
        let may_be = |new, known| of(new).is_like(of(known)) && !are_apart(new, known);
        // Going backwards, pair the last commands with the commands before the known node, as long
        // as the two commands of a pair are alike.
        while new != known && may_be(new, known) && pairs.len() < FAR {
            pairs.push((new, known));
            match (of(new).before, of(known).before) {
                (Some(one), Some(other)) => (new, known) = (one, other),
                _ => break,
            }
        }
        // Walk from the oldest pair to the newest. Outputs of a pair count as equal in later pairs.
        // If the inputs of a pair differ, the commands that match can only begin after that pair.
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
        // Replace the new nodes by the known nodes in links, from the first pair on.
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
        // Storages that the new commands made get the roles of the known commands.
        for (&role, &known) in &likeness.same {
            self.renamed.push((role, Some(known)));
            if self.held.remove(&role) {
                self.held.insert(known);
            }
        }
        self.same.extend(likeness.same);
        Some(node)
    }

    /// Notes the cost of a command that ran.
    pub fn ran(&mut self, node: NodeId, cost: f64) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.cost = cost;
        }
    }

    /// Notes that the last handle of the storage in a role was dropped, at the last command or
    /// after it.
    pub fn gone(&mut self, role: Role) {
        self.held.remove(&role);
        if let (Some(role), Some(at)) = (self.roles.get_mut(role.index()), self.at) {
            role.1 = at;
        }
    }

    /// Whether a node is the mark that ends a step.
    pub fn is_mark(&self, node: NodeId) -> bool {
        self.nodes.get(node as usize).is_some_and(|node| node.token == MARK)
    }

    /// Whether the program has marked the end of a step.
    pub const fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Position of the last command in the predicted course; `None` if a command was not predicted.
    pub const fn on_course(&self) -> Option<usize> {
        self.on_course
    }

    /// Bytes of host memory of all tables.
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

    /// The node predicted to follow the last command. Before the first command of a run, the first
    /// node of an earlier run.
    fn expected(&self) -> Option<NodeId> {
        match self.at {
            Some(at) => self.after(at),
            None => (!self.nodes.is_empty()).then_some(0),
        }
    }

    /// The predicted successor of a node.
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

    /// Moves to a node, as the successor of the last node, whether or not it was predicted.
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
        // A context (a sequence of last commands) may occur several times in a part of a step. The
        // index keeps only the node of the first occurrence. The node of a later occurrence is
        // found as the successor of the node before it.
        if let Some(key) = self.context.key()
            && !self.index.get(&key).is_some_and(|&known| self.is_past(known))
        {
            self.index.insert(key, node);
        }
        self.at = Some(node);
    }

    /// Moves along the course if the node is its next node, and checks whether the links still
    /// predict the course.
    fn follow_course(&mut self, node: NodeId) {
        let Some(at) = self.on_course else { return };
        let next = if at + 1 < self.course.len() { Some(at + 1) } else { self.again };
        self.on_course = next.filter(|&next| self.course[next] == node);
        // Note whether the next turn of the loop may follow another sequence.
        if let (Some(_), Some(last)) = (self.on_course, self.at) {
            self.turns_differ |=
                self.nodes[last as usize].branch.is_some() && self.after(last) != Some(node);
        }
        if self.on_course.is_none() {
            self.doubt = match self.since {
                // The course was right for at least as many commands as it has nodes.
                lasted if lasted >= self.course.len() => 0,
                _ => (2 * self.doubt + DOUBT).min(MOST_DOUBT),
            };
        }
    }
}

/// Pushes an element. A full vector grows only by a quarter, because a doubled vector may be half
/// empty.
fn push<T>(all: &mut Vec<T>, one: T) {
    if all.len() == all.capacity() {
        all.reserve_exact(all.len() / 4 + 64);
    }
    all.push(one);
}

/// State of a comparison of new commands with known commands.
#[derive(Default)]
struct Likeness {
    /// Maps roles of new outputs to roles of known outputs.
    same: FxHashMap<Role, Role>,
    /// Whether some input was made before all compared commands. A match requires an input from
    /// before, because commands without one match too easily.
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
    /// Roles of the values that the command makes.
    fn roles(&self) -> impl Iterator<Item = Role> + use<> {
        let values =
            self.makes.iter().filter(|makes| matches!(makes, Makes::Value(_))).count() as u32;
        let first = self.first;
        (0..values).map(move |value| first.after(value))
    }

    fn is(&self, heard: &Heard) -> bool {
        self.is_like_heard(heard) && self.inputs[..] == heard.inputs[..]
    }

    /// Whether a command equals the node in all parts but the inputs.
    fn is_like_heard(&self, heard: &Heard) -> bool {
        self.token == heard.token && self.reads == heard.reads && self.makes[..] == heard.makes[..]
    }

    fn is_like(&self, other: &Self) -> bool {
        self.token == other.token && self.reads == other.reads && self.makes == other.makes
    }
}

#[cfg(test)]
mod tests;
