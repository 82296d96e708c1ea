//! Turns that are alike but for which roles were carried into them.
//!
//! A program may update by making: a new parameter from the old one, which then goes. If commands are told apart by what
//! they read, no step of such a program is like another. So the turn between two marks is compared with the last one of
//! the same commands. Where they differ in nothing but the roles that were carried into them, the commands of the one
//! are those of the other; and what was carried into the later one is the *heir* of what was carried into the earlier
//! one: at the mark before the turn it takes over its role, now and each time that the mark comes.

use super::{MARK, NOWHERE, NodeId, Role, Steps};
use rustc_hash::{FxHashMap, FxHashSet};

/// Turns of so many kinds are remembered.
const KINDS: usize = 8;
/// Turns of more commands are not compared.
const MOST_COMMANDS: usize = 1 << 15;

/// What plays a role at a mark, and has another from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Heir {
    pub plays: Role,
    pub inherits: Role,
}

/// Turns between marks.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The commands of the one at hand; the last is its mark.
    nodes: Vec<NodeId>,
    /// The mark before it. `None`: it is not compared.
    after: Option<NodeId>,
    /// The first node and the first role that were made in it.
    first_node: usize,
    first_role: usize,
    /// The last one of each kind, the latest last. All of their nodes are known, and none was made in the turn at hand.
    past: Vec<Vec<NodeId>>,
}

impl Turns {
    pub fn push(&mut self, node: NodeId) {
        if self.nodes.len() < MOST_COMMANDS {
            self.nodes.push(node);
        } else {
            self.after = None;
        }
    }

    /// The last commands turned out to be these, the latest first.
    pub fn correct(&mut self, mut latest_first: impl Iterator<Item = NodeId>) {
        let known = latest_first.by_ref();
        self.nodes.iter_mut().rev().zip(&mut *known).for_each(|(node, known)| *node = known);
        self.after = self.after.map(|mark| known.next().unwrap_or(mark));
    }

    /// The last one; empty if it was not compared.
    pub fn last(&self) -> &[NodeId] {
        let last = self.past.last().filter(|_| self.after.is_some());
        last.map_or(&[], Vec::as_slice)
    }

    pub fn bytes(&self) -> u64 {
        let past = self.past.iter().map(Vec::capacity).sum::<usize>();
        ((self.nodes.capacity() + past) * size_of::<NodeId>()) as u64
    }

    const fn is_new_node(&self, node: NodeId) -> bool {
        node as usize >= self.first_node
    }
}

/// How a turn is like an earlier one.
#[derive(Debug, Default)]
struct Twins {
    /// Of each role of the earlier turn, the one in this turn; and the other way round.
    now: FxHashMap<Role, Role>,
    then: FxHashMap<Role, Role>,
    /// What was carried into both in different roles.
    heirs: Vec<Heir>,
    /// Where in the turn a command was taken for another one of the earlier turn, which reads what this one does.
    mistaken: Vec<usize>,
}

impl Twins {
    /// Whether neither has another twin.
    fn pair(&mut self, then: Role, now: Role) -> bool {
        *self.now.entry(then).or_insert(now) == now && *self.then.entry(now).or_insert(then) == then
    }

    fn pair_input(&mut self, then: Role, now: Role) -> bool {
        if then != now && !self.now.contains_key(&then) && !self.then.contains_key(&now) {
            self.heirs.push(Heir { plays: now, inherits: then });
        }
        self.pair(then, now)
    }
}

impl Steps {
    /// What plays roles at a node, and has others after it.
    pub fn heirs(&self, node: NodeId) -> &[Heir] {
        if self.nodes[node as usize].token != MARK {
            return &[];
        }
        self.heirs.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The last command is a mark: the turn is over. If it turns out to be like an earlier one, the last command is the mark
    /// of that.
    pub(super) fn end_turn(&mut self) {
        let turn = std::mem::take(&mut self.turns.nodes);
        if let Some(mark) = self.turns.after {
            let token = |&node: &NodeId| self.nodes[node as usize].token;
            let same = |past: &Vec<NodeId>| {
                past.len() == turn.len() && past.iter().map(token).eq(turn.iter().map(token))
            };
            let known = self.turns.past.iter().rposition(same);
            let mut last = known.map(|known| self.turns.past.remove(known));
            if let Some(past) = &last
                && *past != turn
                && let Some(twins) = self.twins(mark, past, &turn)
            {
                self.merge(mark, past, &turn, twins);
            } else {
                last = Some(turn);
            }
            if self.turns.past.len() == KINDS {
                self.turns.past.remove(0);
            }
            self.turns.past.extend(last);
        }
        self.turns.after = self.at;
        self.turns.first_node = self.nodes.len();
        self.turns.first_role = self.roles.len();
    }

    /// How the turn after a mark is like one of the same commands; `None` if it is not.
    fn twins(&self, mark: NodeId, past: &[NodeId], turn: &[NodeId]) -> Option<Twins> {
        let mut twins = Twins::default();
        let mut of_past: Option<FxHashSet<NodeId>> = None;
        for (at, ids) in past.iter().zip(turn).enumerate() {
            if ids.0 != ids.1 && !self.turns.is_new_node(*ids.1) {
                let of_past = of_past.get_or_insert_with(|| past.iter().copied().collect());
                if !of_past.contains(ids.1) {
                    return None;
                }
                twins.mistaken.push(at);
            }
            let [then, now] = [ids.0, ids.1].map(|&id| &self.nodes[id as usize]);
            let inputs = then.inputs.iter().zip(&now.inputs);
            let [values, values_now] = [ids.0, ids.1].map(|&id| self.values_of(id));
            let alike = then.is_like(now)
                && then.inputs.len() == now.inputs.len()
                && inputs.into_iter().all(|pair| match pair {
                    (Some(then), Some(now)) => twins.pair_input(*then, *now),
                    (then, now) => then == now,
                })
                && values.zip(values_now).all(|(then, now)| twins.pair(then, now));
            if !alike {
                return None;
            }
        }
        // If nothing is new, nothing is to be learned.
        if !twins.mistaken.is_empty() && !turn.iter().any(|&node| self.turns.is_new_node(node)) {
            return None;
        }
        // What inherits a role at this mark already keeps it.
        let keeps = |role: Role| self.heirs(mark).iter().any(|known| known.inherits == role);
        (!twins.heirs.iter().any(|heir| keeps(heir.plays))).then_some(twins)
    }

    /// The commands of a turn are those of an earlier one: what was made for them is forgotten.
    fn merge(&mut self, mark: NodeId, past: &[NodeId], turn: &[NodeId], twins: Twins) {
        let nodes: FxHashMap<NodeId, NodeId> =
            turn.iter().copied().zip(past.iter().copied()).collect();
        let (first_node, first_role) = (self.turns.first_node, self.turns.first_role);
        let node = |node: NodeId| match (node as usize) < first_node {
            true => Some(node),
            // Else nobody leads there any more.
            false => nodes.get(&node).copied(),
        };
        for of in &mut self.nodes[..first_node] {
            of.next = of.next.and_then(node);
            of.before = of.before.and_then(node);
            of.branch = of.branch.take().and_then(|branch| branch.renamed(node)).map(Box::new);
        }
        if let Some(&first) = past.first() {
            self.nodes[first as usize].before = Some(mark);
        }
        self.index.retain(|_, known| node(*known).map(|now| *known = now).is_some());
        for (_, gone) in &mut self.roles {
            *gone = node(*gone).unwrap_or(NOWHERE);
        }
        let ends: Vec<_> =
            twins.now.iter().map(|(then, now)| (*then, self.roles[now.index()].1)).collect();
        ends.into_iter().for_each(|(role, gone)| self.roles[role.index()].1 = gone);
        let role = |role: Role| match role.index() < first_role {
            true => Some(role),
            false => twins.then.get(&role).copied(),
        };
        self.same.retain(|old, now| {
            let known = role(*now).filter(|_| old.index() < first_role);
            known.map(|known| *now = known).is_some()
        });
        // Of what the mark itself has shown.
        self.renamed.iter_mut().for_each(|(_, now)| *now = now.and_then(role));
        let new = (first_role as u32..self.roles.len() as u32).map(Role::from);
        self.renamed.extend(new.map(|new| (new, role(new))));
        self.renamed.extend(twins.heirs.iter().map(|heir| (heir.plays, Some(heir.inherits))));
        for &at in &twins.mistaken {
            let (taken_for, is) = (turn[at], past[at]);
            let made: Vec<_> = self.values_of(taken_for).zip(self.values_of(is)).collect();
            self.renamed.extend(made.into_iter().map(|(now, then)| (now, Some(then))));
            if let Some(before) = at.checked_sub(1)
                && let Some(branch) = &mut self.nodes[past[before] as usize].branch
            {
                branch.mistook(taken_for, Some(is));
            }
            if let (Some(&after), Some(branch)) =
                (past.get(at + 1), &mut self.nodes[taken_for as usize].branch)
            {
                branch.mistook(after, None);
            }
        }
        // Others were mistaken, or inherited only once.
        let heirs = self.heirs.entry(mark).or_default();
        heirs.retain(|old| {
            let differs = |new: &Heir| old.plays != new.plays && old.inherits != new.inherits;
            twins.heirs.iter().all(differs)
        });
        heirs.extend(twins.heirs);
        self.at = self.at.and_then(node);
        self.nodes.truncate(first_node);
        self.roles.truncate(first_role);
        self.left = None;
        self.course.clear();
        (self.again, self.on_course) = (None, None);
        self.as_expected = turn.len();
    }
}
