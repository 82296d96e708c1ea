//! The steps of a program, kept for another run of it.

use super::context::{Context, LENGTH};
use super::{MOST, Makes, NOWHERE, Node, NodeId, Role, Steps};
use smallvec::SmallVec;

/// Of a value: so many of these can be added up.
#[cfg(feature = "serde")]
const MOST_BYTES: u64 = 1 << 44;

/// The steps of a program, as far as a run has seen them. Another run of the same program foresees its steps from the first
/// command on; one of another program loses nothing but time.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Kept", into = "Kept"))]
pub struct KnownSteps(Kept);

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Kept {
    /// The first is the first command of the program.
    nodes: Vec<Node>,
    roles: Vec<(u64, NodeId)>,
    /// Sorted.
    same: Vec<(Role, Role)>,
}

impl KnownSteps {
    /// Commands that are known.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.nodes.len()
    }

    /// Whether nothing is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Steps {
    /// For another run.
    pub fn keep(&self) -> KnownSteps {
        let mut nodes = self.nodes.clone();
        // Courses are numbered anew.
        nodes.iter_mut().for_each(|node| node.place = (0, 0));
        let mut same: Vec<_> = self.same.iter().map(|(&role, &now)| (role, now)).collect();
        same.sort_unstable();
        KnownSteps(Kept { nodes, roles: self.roles.clone(), same })
    }

    /// Before the first command of a run.
    pub fn of_another_run(known: KnownSteps) -> Self {
        let KnownSteps(Kept { nodes, roles, same }) = known;
        let mut steps = Self { nodes, roles, same: same.into_iter().collect(), ..Self::default() };
        let branches = steps.nodes.iter_mut().filter_map(|node| node.branch.as_mut());
        branches.for_each(|branch| branch.begin_again());
        for node in 0..steps.nodes.len() as NodeId {
            if let Some(key) = steps.context_of(node) {
                // Of several, the first is known by its turns.
                steps.index.entry(key).or_insert(node);
            }
        }
        steps
    }

    /// That of a node, when it came the last time.
    fn context_of(&self, node: NodeId) -> Option<u64> {
        let before = |&node: &NodeId| self.nodes[node as usize].before;
        let last: SmallVec<[NodeId; LENGTH]> =
            std::iter::successors(Some(node), before).take(LENGTH).collect();
        let mut context = Context::default();
        last.iter().rev().for_each(|&node| context.push(self.nodes[node as usize].token));
        context.key()
    }
}

#[cfg(feature = "serde")]
impl From<KnownSteps> for Kept {
    fn from(known: KnownSteps) -> Self {
        known.0
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Kept> for KnownSteps {
    type Error = String;

    fn try_from(kept: Kept) -> Result<Self, String> {
        let Kept { nodes, roles, same } = &kept;
        if nodes.len() > MOST {
            return Err(format!(
                "{} commands of steps are known, and {MOST} are the most",
                nodes.len()
            ));
        }
        let is_node = |node: NodeId| (node as usize) < nodes.len();
        let is_role = |role: Role| role.index() < roles.len();
        let makes_sense = |node: &Node| {
            let is_input = |input: u32| (input as usize) < node.inputs.len();
            let made = node.first.index() + node.roles().count();
            let next = [node.next, node.before].into_iter().flatten();
            let others = node.branch.iter().flat_map(|branch| branch.all());
            node.inputs.iter().flatten().all(|&role| is_role(role))
                && made <= roles.len()
                && next.chain(others).all(is_node)
                && node.branch.as_ref().is_none_or(|branch| branch.all().count() > 1)
                && node.cost.is_finite()
                && node.cost >= 0.0
                && node.makes.iter().all(|makes| match *makes {
                    Makes::Value(bytes) => bytes <= MOST_BYTES,
                    Makes::Look(input) | Makes::Update(input) => is_input(input),
                    Makes::Replace { by, target } => is_input(by) && is_input(target),
                })
        };
        if let Some(node) = nodes.iter().position(|node| !makes_sense(node)) {
            return Err(format!("command {node} of the known steps makes no sense"));
        }
        let is_value = |&(bytes, node): &(u64, NodeId)| {
            bytes <= MOST_BYTES && (node == NOWHERE || is_node(node))
        };
        if !roles.iter().all(is_value) || !same.iter().all(|&(a, b)| is_role(a) && is_role(b)) {
            return Err("the values of the known steps make no sense".to_owned());
        }
        Ok(Self(kept))
    }
}
