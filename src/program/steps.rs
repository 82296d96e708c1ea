//! Steps that repeat are recognized, marked or not.
//!
//! Commands that were seen are nodes, each linked to the one that came after it the last time. While the commands that
//! come are those of a known sequence, one walks along, and what comes next is known as far as the links lead: the
//! [course](course). A command that does not fit makes a node, and so a sequence of its own, until the commands are
//! known again. So training, evaluation and what happens every n-th step lie side by side, and where several sequences
//! go on from one node, their turns are [counted](Branch).
//!
//! Nothing depends on being right: commands are what they are, and whoever decides by what is expected of them must lose
//! nothing but time.

mod branch;
mod context;
mod course;

pub(super) use course::Known;

use branch::Branch;
use context::Context;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::VecDeque;

/// More nodes than this are not kept: all is forgotten then, and learned anew. Some 10 MiB.
const MOST: usize = 1 << 16;
/// So many commands may be missing, or have come in between, for the sequence to be found again at the next command that
/// fits. Else the last [`context::LENGTH`] commands must be those of a known one.
const NEAR: usize = 8;

/// What a storage is in the steps that repeat: the same output of the same command in each of them. What an update in
/// place makes has another role than what was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Role(u32);

impl Role {
    /// The next ones.
    pub const fn after(self, roles: u32) -> Self {
        Self(self.0 + roles)
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A command, as far as it is the same in each step.
#[derive(Debug, Default)]
pub(super) struct Heard {
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
pub(super) enum Makes {
    /// A value of so many bytes.
    Value(u64),
    /// Another look at an input.
    Look(u32),
}

pub(super) type NodeId = u32;

/// The sequences, and where in them the program is.
#[derive(Debug, Default)]
pub(super) struct Steps {
    nodes: Vec<Node>,
    /// Of each role: its size, and the node after which nobody held it any more.
    roles: Vec<(u64, NodeId)>,
    /// Roles that turned out to be others.
    same: FxHashMap<Role, Role>,
    /// The nodes of the last commands, latest last.
    last: VecDeque<NodeId>,
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
    /// Commands on it had other inputs than it says.
    stale: bool,
    /// Commands since the course was made.
    since: usize,
    /// Numbers the courses, for [`Node::place`].
    courses: u32,
}

#[derive(Debug)]
struct Node {
    /// What the command is, but for which storages are its inputs.
    token: u64,
    /// Its inputs, the last time; `None` for one without a role.
    inputs: SmallVec<[Option<Role>; 4]>,
    reads: bool,
    makes: SmallVec<[Makes; 2]>,
    /// That of the first value that it makes; those of others follow.
    first: Role,
    /// What it cost the last time, in the units of the cost model.
    cost: f64,
    next: Option<NodeId>,
    /// What came before it the last time.
    before: Option<NodeId>,
    /// If others have come after it as well.
    branch: Option<Box<Branch>>,
    /// Where on which course it is.
    place: (u32, u32),
}

/// The token of a command by which the program marks the end of a step.
pub(super) const MARK: u64 = 1;

/// No node.
const NOWHERE: NodeId = NodeId::MAX;

impl Steps {
    /// This command is next. Returns its node, and the role of the first value that it makes: those of others follow.
    pub fn hear(&mut self, mut heard: Heard) -> (NodeId, Role) {
        if self.nodes.len() >= MOST {
            *self = Self::default();
        }
        self.context.push(heard.token);
        self.resolve_all(&mut heard);
        let expected = self.at.and_then(|at| self.after(at));
        let node = match expected.map(|node| (node, &self.nodes[node as usize])) {
            Some((node, known)) if known.is(&heard) && known.agrees(&heard) == Agreement::Full => {
                node
            }
            _ => self.find_or_add(&mut heard),
        };
        let known = &mut self.nodes[node as usize];
        if known.agrees(&heard) != Agreement::Full {
            self.stale |= known.place.0 == self.courses;
            known.inputs = heard.inputs.iter().copied().collect();
        }
        known.before = self.at;
        let first = known.first;
        self.go_to(node);
        (node, first)
    }

    /// What is known by this role now.
    pub fn resolve(&self, role: Role) -> Role {
        self.same.get(&role).copied().unwrap_or(role)
    }

    fn resolve_all(&self, heard: &mut Heard) {
        if !self.same.is_empty() {
            heard.inputs.iter_mut().flatten().for_each(|role| *role = self.resolve(*role));
        }
    }

    #[cold]
    fn find_or_add(&mut self, heard: &mut Heard) -> NodeId {
        match self.find(heard) {
            Some((node, by_context)) => {
                if by_context {
                    self.unite_before(node);
                    self.resolve_all(heard);
                }
                node
            }
            None => self.add(heard),
        }
    }

    /// This node was found by its context: so the commands before it were those before the node, though new nodes were
    /// made for them, for nobody knew yet. What they made plays the known roles.
    fn unite_before(&mut self, node: NodeId) {
        let mut known = node;
        let mut united: SmallVec<[NodeId; context::LENGTH]> = SmallVec::new();
        let mut first_new = None;
        while let (Some(&new), Some(before)) = (self.last.back(), self.nodes[known as usize].before)
        {
            let of = |node: NodeId| &self.nodes[node as usize];
            if new == before
                || of(new).token != of(before).token
                || of(new).makes != of(before).makes
            {
                break;
            }
            for (new, known) in of(new).roles().zip(of(before).roles()) {
                self.same.insert(new, known);
            }
            self.last.pop_back();
            united.push(before);
            (known, first_new) = (before, Some(new));
        }
        if let Some(first_new) = first_new {
            if let Some(&led_here) = self.last.back() {
                let led_here = &mut self.nodes[led_here as usize];
                match &mut led_here.branch {
                    Some(branch) => branch.mistook(first_new, known),
                    None => led_here.next = Some(known),
                }
            }
            self.last.extend(united.into_iter().rev());
            self.at = self.last.back().copied();
        }
    }

    /// The command of a node ran, and cost this much.
    pub fn ran(&mut self, node: NodeId, cost: f64) {
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.cost = cost;
        }
    }

    /// Nobody holds what plays this role any more, after the last command, or with it.
    pub fn gone(&mut self, role: Role) {
        if let (Some(role), Some(at)) = (self.roles.get_mut(role.index()), self.at) {
            role.1 = at;
        }
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
    }

    /// What is expected after a node.
    fn after(&self, node: NodeId) -> Option<NodeId> {
        let node = &self.nodes[node as usize];
        match &node.branch {
            None => node.next,
            Some(branch) => Some(branch.expected()),
        }
    }

    /// The known node that this command is, though it is not quite what was expected. Of several, the one whose inputs
    /// were the most alike; and whether it is known by what came before it alone.
    fn find(&self, heard: &Heard) -> Option<(NodeId, bool)> {
        let mut best: Option<(Agreement, NodeId)> = None;
        let mut consider = |node: NodeId, least: Agreement| {
            let known = &self.nodes[node as usize];
            if known.is(heard) {
                let agreement = known.agrees(heard);
                if agreement >= least && best.is_none_or(|best| agreement > best.0) {
                    best = Some((agreement, node));
                }
            }
        };
        let expected = self.at.and_then(|at| self.after(at));
        if let Some(at) = self.at {
            let known = &self.nodes[at as usize];
            let others = known.branch.iter().flat_map(|branch| branch.all());
            expected.into_iter().chain(others).for_each(|node| consider(node, Agreement::None));
        }
        // Some are missing, or some have come in between. What has nothing to be known by is not found so: there are
        // many like it.
        for from in [expected, self.left.map(|(node, _)| node)].into_iter().flatten() {
            let mut from = Some(from);
            for _ in 0..=NEAR {
                let Some(node) = from else { break };
                consider(node, Agreement::Full);
                from = self.after(node);
            }
        }
        if let Some((_, node)) = best {
            return Some((node, false));
        }
        let node = *self.index.get(&self.context.key()?)?;
        self.nodes[node as usize].is(heard).then_some((node, true))
    }

    fn add(&mut self, heard: &Heard) -> NodeId {
        let first = Role(self.roles.len() as u32);
        for makes in &heard.makes {
            if let Makes::Value(bytes) = makes {
                self.roles.push((*bytes, NOWHERE));
            }
        }
        self.nodes.push(Node {
            token: heard.token,
            inputs: heard.inputs.iter().copied().collect(),
            reads: heard.reads,
            makes: heard.makes.clone(),
            first,
            cost: 0.0,
            next: None,
            before: None,
            branch: None,
            place: (0, 0),
        });
        (self.nodes.len() - 1) as NodeId
    }

    /// This node comes next, be it expected or not.
    fn go_to(&mut self, node: NodeId) {
        let expected = self.at.and_then(|at| self.after(at));
        self.since += 1;
        if let Some(at) = self.at {
            let last = &mut self.nodes[at as usize];
            match (&mut last.branch, last.next) {
                (Some(branch), _) => branch.took(node),
                (None, Some(next)) if next != node => {
                    last.branch = Some(Box::new(Branch::new(next, node)));
                }
                _ => last.next = Some(node),
            }
        }
        if expected == Some(node) {
            if self.left.as_mut().is_some_and(|left| {
                left.1 += 1;
                left.1 > context::LENGTH
            }) {
                self.left = None;
            }
        } else {
            self.left = expected.map(|expected| (expected, 0)).or_else(|| {
                self.left.map(|(node, count)| (node, count + 1)).filter(|left| left.1 <= NEAR)
            });
        }
        self.follow_course(node);
        // Where nothing has changed for so long, the entry is there.
        if let Some(key) = self.context.key() {
            self.index.insert(key, node);
        }
        self.at = Some(node);
        if self.last.len() == context::LENGTH {
            self.last.pop_front();
        }
        self.last.push_back(node);
    }

    /// Whether this node is what comes next on the course, and what comes after it what is expected still.
    fn follow_course(&mut self, node: NodeId) {
        let Some(at) = self.on_course else { return };
        let next = match at + 1 < self.course.len() {
            true => Some(at + 1),
            // What it says is put right once a turn.
            false => self.again.filter(|_| !self.stale),
        };
        self.on_course = next.filter(|&next| self.course[next] == node);
        // The turn of another may come, the next time that it is here.
        if let (Some(_), Some(last)) = (self.on_course, self.at)
            && self.nodes[last as usize].branch.is_some()
            && self.after(last) != Some(node)
        {
            self.on_course = None;
        }
    }
}

/// How far the inputs of a command are what they were the last time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Agreement {
    None,
    Some(usize),
    /// All, and there is at least one that has a role.
    Full,
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
        self.token == heard.token
            && self.reads == heard.reads
            && self.makes == heard.makes
            && self.inputs.len() == heard.inputs.len()
    }

    fn agrees(&self, heard: &Heard) -> Agreement {
        let pairs = || self.inputs.iter().zip(&heard.inputs);
        match pairs().filter(|(known, input)| known == input && input.is_some()).count() {
            0 => Agreement::None,
            _ if pairs().all(|(known, input)| known == input) => Agreement::Full,
            same => Agreement::Some(same),
        }
    }
}

#[cfg(test)]
mod tests;
