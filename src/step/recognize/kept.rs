//! Known steps of a program, stored for another run.

#[cfg(feature = "serde")]
mod read;

use super::context::{Context, LENGTH};
use super::heirs::Heir;
use super::{MARK, Node, NodeId, Role, Steps};
use smallvec::SmallVec;

/// Steps of a program that a run has recognized. Another run of the program can then predict its
/// steps from the first command on. If the steps are given to a different program, the wrong
/// predictions cost only time.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Kept", into = "Kept"))]
pub struct KnownSteps(Kept);

#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Kept {
    /// Nodes of all known commands. The first node is the first command of the program.
    nodes: Vec<Node>,
    roles: Vec<(u64, NodeId)>,
    /// Pairs of equal roles, sorted, as `heirs` is.
    same: Vec<(Role, Role)>,
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    heirs: Vec<(NodeId, Vec<Heir>)>,
    /// Whether the program marks steps. `marked` may be true even if no known command is a mark.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    marked: bool,
}

impl KnownSteps {
    /// Knowledge that the program marks its steps, without any known command.
    ///
    /// In a program that marks steps, repeated commands within a step count as different commands,
    /// for example if a step adds up the gradients of several batches. In a run that begins with
    /// `KnownSteps::marked()`, they count as different already in the first step.
    #[must_use]
    pub fn marked() -> Self {
        Self(Kept { marked: true, ..Kept::default() })
    }

    /// Number of known commands.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.nodes.len()
    }

    /// Whether no command is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Steps {
    /// Copies the knowledge for another run.
    pub fn keep(&self) -> KnownSteps {
        let mut nodes = self.nodes.clone();
        // Reset the numbers of courses and parts, because another run counts both anew.
        nodes.iter_mut().for_each(|node| (node.place, node.part) = ((0, 0), 0));
        let mut same: Vec<_> = self.same.iter().map(|(&role, &now)| (role, now)).collect();
        same.sort_unstable();
        let heirs = self.heirs.iter().map(|(&mark, heirs)| (mark, heirs.clone()));
        let mut heirs: Vec<_> = heirs.filter(|(_, heirs)| !heirs.is_empty()).collect();
        heirs.sort_unstable_by_key(|(mark, _)| *mark);
        KnownSteps(Kept { nodes, roles: self.roles.clone(), same, heirs, marked: false })
    }

    /// The state before the first command of a run.
    pub fn of_another_run(known: KnownSteps) -> Self {
        let KnownSteps(Kept { nodes, roles, same, heirs, marked }) = known;
        let (same, heirs) = (same.into_iter().collect(), heirs.into_iter().collect());
        let mut steps = Self { nodes, roles, same, heirs, ..Self::default() };
        steps.is_marked = marked || steps.nodes.iter().any(|node| node.token == MARK);
        let branches = steps.nodes.iter_mut().filter_map(|node| node.branch.as_mut());
        branches.for_each(|branch| branch.begin_again());
        for node in 0..steps.nodes.len() as NodeId {
            if let Some(key) = steps.context_of(node) {
                // Several nodes may share a context; the index keeps only the first node.
                steps.index.entry(key).or_insert(node);
            }
        }
        steps
    }

    /// Hash of the [`LENGTH`] commands that ended with a node at the node's last occurrence.
    fn context_of(&self, node: NodeId) -> Option<u64> {
        let before = |&node: &NodeId| self.nodes[node as usize].before;
        let last: SmallVec<[NodeId; LENGTH]> =
            std::iter::successors(Some(node), before).take(LENGTH).collect();
        let mut context = Context::default();
        last.iter().rev().for_each(|&node| context.push(self.nodes[node as usize].token));
        context.key()
    }
}
