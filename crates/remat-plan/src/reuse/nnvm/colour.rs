//! `ColorNodeGroup`: colours for groups of nodes that may run at the same time.

use super::NnvmGraph;
use super::graph::Node;

impl NnvmGraph {
    /// Colours the nodes along longest paths, with at most `groups` colours.
    ///
    /// At most `groups - 1` times, the path with the most uncoloured nodes is found, and these
    /// nodes get the next colour. Variables do not count. All remaining nodes get the last colour.
    /// A storage is then reused only if the node that released it (its last reader) has the same
    /// colour as the node that requests it. So groups that run at the same time wait less for each
    /// other. (Earlier readers of the storage may have other colours. A program that runs groups in
    /// parallel still has to wait for these readers.) NNVM reads the number of groups from
    /// `NNVM_EXEC_NUM_TEMP`. With 0 or 1, all nodes are in one group, as they are without this
    /// call.
    ///
    /// Among equally long paths, the one that begins at the latest node and has the latest nodes is
    /// taken. Time: O(edges) for each colour in use.
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

/// Nodes of the path with the most ops and assignments that have no colour; empty if all have one.
/// Only nodes of this kind count.
fn longest_path(nodes: &[Node], colours: &[Option<u32>]) -> Vec<usize> {
    // Node -> number of nodes that count on the best path from it, and the second node on that
    // path. Nodes are visited from the last to the first, so all readers of a node come before it,
    // and its values are final.
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
