//! `ColorNodeGroup`: parts of a graph that may run at the same time.

use super::NnvmGraph;
use super::graph::Node;

impl NnvmGraph {
    /// Colours the nodes by longest paths: `groups - 1` times at most, the path with most nodes that have no colour yet,
    /// variables not counted, gives them the next one; what remains shares the last. A storage is then used again only
    /// where the node that released it, its last reader, has the colour of the one that asks, so that groups which run at
    /// the same time wait for each other less. (Earlier readers may have other colours: whoever runs them in parallel
    /// still has to see to it that they have read.) NNVM reads the number from `NNVM_EXEC_NUM_TEMP`; 0 and 1 leave all in
    /// one group, as they are without this call.
    ///
    /// Of equal paths, the one that begins latest and has the latest nodes is taken. Takes time in proportion to the
    /// edges for each colour in use.
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

/// The nodes of the path with most nodes that count, empty if none counts. Those are computing ones without a colour.
fn longest_path(nodes: &[Node], colours: &[Option<u32>]) -> Vec<usize> {
    // How many count on the best path that begins at a node, and the second node on it. Each node is final when reached,
    // since readers come after what they read.
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
