//! Turns that are equal except for the roles of values that were made before the turn.
//!
//! A program may update a parameter by making a new parameter and then freeing the old one.
//! Commands count as different if the roles of their inputs differ, so in such a program, no step
//! would equal another. To recognize the steps nevertheless, the turn between two marks is compared
//! with the last turn that had the same commands apart from roles.
//!
//! Two turns that differ only in the roles of carried values share their nodes. A value carried
//! into the later turn is the *heir* of the value carried into the earlier turn. Each time the mark
//! before the later turn is reached, the heir takes over the role of the earlier value.

use super::{MARK, NOWHERE, NodeId, Role, Steps};
use rustc_hash::{FxHashMap, FxHashSet};

/// Number of kinds of turns that are remembered.
const KINDS: usize = 8;
/// Limit on the number of commands of a turn that is compared.
const MOST_COMMANDS: usize = 1 << 15;

/// A change of role at a mark: the storage in role `plays` gets the role `inherits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Heir {
    pub plays: Role,
    pub inherits: Role,
}

/// Turns between marks.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Nodes of the current turn; its last command is the mark.
    nodes: Vec<NodeId>,
    /// The mark before the turn; `None` if the turn is not compared.
    after: Option<NodeId>,
    /// Index of the first node that was made in the turn. `first_role` is the index of the first
    /// role that was made in the turn.
    first_node: usize,
    first_role: usize,
    /// Nodes of the last turn of each kind, the latest turn last. All nodes in `past` were made
    /// before the current turn.
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

    /// Replaces the last nodes of the current turn by the given nodes, ordered from the latest to
    /// the earliest.
    pub fn correct(&mut self, mut latest_first: impl Iterator<Item = NodeId>) {
        let known = latest_first.by_ref();
        self.nodes.iter_mut().rev().zip(&mut *known).for_each(|(node, known)| *node = known);
        self.after = self.after.map(|mark| known.next().unwrap_or(mark));
    }

    /// Nodes of the last turn; empty if that turn was not compared.
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

/// Pairs of corresponding roles in a turn and an earlier turn.
#[derive(Debug, Default)]
struct Twins {
    /// Map from roles of the earlier turn to roles of the later turn. `then` is the reverse map.
    now: FxHashMap<Role, Role>,
    then: FxHashMap<Role, Role>,
    /// Values from before the turns whose roles differ between the two turns.
    heirs: Vec<Heir>,
    /// Positions of commands that were matched to the wrong node, because their inputs equal the
    /// inputs of another command of the earlier turn.
    mistaken: Vec<usize>,
}

impl Twins {
    /// Pairs two roles. Returns false if one of the roles is already paired with another role.
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
    /// Role changes at a node; empty unless the node is a mark.
    pub fn heirs(&self, node: NodeId) -> &[Heir] {
        if self.nodes[node as usize].token != MARK {
            return &[];
        }
        self.heirs.get(&node).map_or(&[], Vec::as_slice)
    }

    /// Ends the turn with the last command, which is a mark. If the turn proves equal to an earlier
    /// turn, the last command gets the node of the earlier turn's mark.
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

    /// Compares the turn after a mark with an earlier turn that had the same commands. Returns
    /// `None` if the turns do not correspond.
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
        // A turn without new nodes has nothing to merge.
        if !twins.mistaken.is_empty() && !turn.iter().any(|&node| self.turns.is_new_node(node)) {
            return None;
        }
        // A role that a value already inherits at the mark must stay with the value.
        let keeps = |role: Role| self.heirs(mark).iter().any(|known| known.inherits == role);
        (!twins.heirs.iter().any(|heir| keeps(heir.plays))).then_some(twins)
    }

    /// Merges a turn into an earlier turn, and drops the nodes and roles made for the later turn.
    fn merge(&mut self, mark: NodeId, past: &[NodeId], turn: &[NodeId], twins: Twins) {
        let nodes: FxHashMap<NodeId, NodeId> =
            turn.iter().copied().zip(past.iter().copied()).collect();
        let (first_node, first_role) = (self.turns.first_node, self.turns.first_role);
        let node = |node: NodeId| match (node as usize) < first_node {
            true => Some(node),
            // A new node outside of the turn has no counterpart in the earlier turn, so links to it
            // are dropped.
            false => nodes.get(&node).copied(),
        };
        // From now on, links, the index and the ends of handles refer to the nodes of the earlier
        // turn.
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
        // From now on, handles of the earlier turn's values count as ended at the commands that
        // ended the handles of the later turn's values.
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
        // Rename the roles in the mark's role changes, and add further role changes.
        self.renamed.iter_mut().for_each(|(_, now)| *now = now.and_then(role));
        let new = (first_role as u32..self.roles.len() as u32).map(Role::from);
        self.renamed.extend(new.map(|new| (new, role(new))));
        self.renamed.extend(twins.heirs.iter().map(|heir| (heir.plays, Some(heir.inherits))));
        // Correct the roles of commands that matched a wrong node, and the branches before and
        // after each of them.
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
        // Drop earlier heirs that contradict the new heirs, because the earlier heirs were wrong,
        // or right only once.
        let heirs = self.heirs.entry(mark).or_default();
        heirs.retain(|old| {
            let differs = |new: &Heir| old.plays != new.plays && old.inherits != new.inherits;
            twins.heirs.iter().all(differs)
        });
        heirs.extend(twins.heirs);
        // Drop the turn's own nodes and roles, also from the course, which may have led through
        // them.
        self.at = self.at.and_then(node);
        self.nodes.truncate(first_node);
        self.roles.truncate(first_role);
        self.left = None;
        self.course.clear();
        (self.again, self.on_course) = (None, None);
        self.as_expected = turn.len();
    }
}
