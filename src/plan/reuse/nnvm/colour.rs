//! `ColorNodeGroup`: parts of a graph that may run at the same time.

use super::NnvmGraph;
use super::graph::Node;

impl NnvmGraph {
    /// Colours the nodes by longest paths, in at most `groups` colours.
    ///
    /// At most `groups - 1` times, the path with the most nodes without a colour, variables not
    /// counted, gets the next colour. Remaining nodes share the last colour. A storage is then
    /// reused only where the node that released it, its last reader, has the colour of the
    /// requesting node. So groups that run at the same time wait for each other less. (Earlier
    /// readers may have other colours. A program that runs groups in parallel still has to wait for
    /// these reads.) NNVM reads the number from `NNVM_EXEC_NUM_TEMP`; 0 and 1 leave all nodes in
    /// one group, as without this call.
    ///
    /// Of equal paths, the one that begins latest and has the latest nodes is taken. Time: O(edges)
    /// for each colour in use.
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

/// Nodes of the path with the most nodes that count; empty if none counts. Ops and assignments
/// without a colour count.
fn longest_path(nodes: &[Node], colours: &[Option<u32>]) -> Vec<usize> {
    // Node -> number of counting nodes on the best path from it, and the second node on that path.
    // Each value is final when reached, since readers come after the nodes that they read.
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
