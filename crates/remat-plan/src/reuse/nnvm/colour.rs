//! `ColorNodeGroup`: colours for groups of nodes that may run at the same time.

use super::NnvmGraph;
use super::graph::Node;

impl NnvmGraph {
    /// Colours the nodes along longest paths, with at most `groups` colours.
    ///
    /// At most `groups - 1` times, the path with the most uncoloured nodes is found, and these
    /// nodes get the next colour. Variables are not counted. All remaining nodes get the last
    /// colour. A storage is then reused only if the node that released the storage (its last
    /// reader) has the same colour as the node that requests a storage. With this rule, groups that
    /// run at the same time rarely wait for each other. (Earlier readers of the storage may have
    /// other colours. A program that runs groups in parallel still has to wait for these readers.)
    /// NNVM reads the number of groups from `NNVM_EXEC_NUM_TEMP`. With 0 or 1, all nodes are in one
    /// group, as without this call.
    ///
    /// Among equally long paths, the path that begins at the latest node and has the latest nodes
    /// is taken. Time: O(edges) for each colour in use.
    pub fn colour(&mut self, groups: u32) {
        let rest = groups.saturating_sub(1);
        let mut colours = vec![None; self.len()];
        for colour in 0..rest {
            let path = longest_path(self.nodes(), &colours);
            if path.is_empty() {
                break;
            }
            for node in path {
                colours[node].get_or_insert(colour);
            }
        }
        let colours: Vec<_> = colours.into_iter().map(|colour| colour.unwrap_or(rest)).collect();
        self.set_colours(&colours);
    }
}

/// Uncoloured ops and assignments of the path that has the most of them; empty if all nodes have a
/// colour.
fn longest_path(nodes: &[Node], colours: &[Option<u32>]) -> Vec<usize> {
    // Node -> number of uncoloured ops and assignments on the best path from the node, and the
    // second node on that path. Nodes are visited from the last to the first. When a node is
    // visited, the values of all its readers are final.
    let mut most = vec![0_usize; nodes.len()];
    let mut next = vec![None; nodes.len()];
    let mut best = None;
    for (i, node) in nodes.iter().enumerate().rev() {
        most[i] += usize::from(colours[i].is_none() && !node.is_variable());
        if most[i] > best.map_or(0, |best: usize| most[best]) {
            best = Some(i);
        }
        for input in node.inputs() {
            if most[i] > most[input.node] {
                most[input.node] = most[i];
                next[input.node] = Some(i);
            }
        }
    }
    std::iter::successors(best, |&i| next[i]).collect()
}
