//! Reads known steps from a file, which may be damaged or forged.

use super::super::heirs::Heir;
use super::super::{MARK, MOST, Makes, NOWHERE, Node, NodeId, Role};
use super::{Kept, KnownSteps};

/// Limit on the bytes of a value, so that sums do not overflow.
const MOST_BYTES: u64 = 1 << 44;

impl From<KnownSteps> for Kept {
    fn from(known: KnownSteps) -> Self {
        known.0
    }
}

impl TryFrom<Kept> for KnownSteps {
    type Error = String;

    fn try_from(kept: Kept) -> Result<Self, String> {
        let Kept { nodes, roles, same, heirs, .. } = &kept;
        if nodes.len() > MOST {
            return Err(format!(
                "the known steps have {} commands, but at most {MOST} are allowed",
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
            return Err(format!("command {node} of the known steps is invalid"));
        }
        let is_value = |&(bytes, node): &(u64, NodeId)| {
            bytes <= MOST_BYTES && (node == NOWHERE || is_node(node))
        };
        let inherit = |(mark, heirs): &(NodeId, Vec<Heir>)| {
            nodes.get(*mark as usize).is_some_and(|node| node.token == MARK)
                && heirs.iter().all(|heir| is_role(heir.plays) && is_role(heir.inherits))
        };
        let makes_sense = roles.iter().all(is_value)
            && same.iter().all(|&(role, now)| is_role(role) && is_role(now))
            && heirs.iter().all(inherit);
        if !makes_sense {
            return Err("the values of the known steps are invalid".to_owned());
        }
        Ok(Self(kept))
    }
}
