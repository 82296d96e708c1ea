//! Lower bound on the memory of all orders.

use crate::Capture;

/// Lower bound on the peak of bytes in use, over all orders of a step.
///
/// For each op, the bound sums the workspace and the buffers that are in memory in every order
/// while the op runs. The buffers that the op uses or makes are summed. Any other buffer is summed
/// if it satisfies two conditions. First, the buffer exists before the step, or an op that must run
/// earlier makes it. Second, the buffer stays after the step, or an op that must run later uses it.
/// The bound is the largest sum over all ops.
///
/// Time: O(n * operands) for n ops. Memory: n^2 / 8 bytes. The bound is weak if the step has
/// independent branches: while one branch runs, some buffers of the other branches are in memory,
/// but are not summed.
#[must_use]
pub fn floor(capture: &Capture) -> u64 {
    let count = capture.ops().len();
    let ancestors = ancestors(capture);
    let comes_before =
        |first: usize, second: usize| ancestors[second][first / 64] >> (first % 64) & 1 == 1;
    let is_there = |number: usize, op: usize| {
        let buffer = &capture.buffers()[number];
        let users = capture.users(number);
        let is_made = match capture.maker(number) {
            Some(maker) => maker == op || comes_before(maker, op),
            None => true,
        };
        let is_wanted = || users.iter().any(|&user| user == op || comes_before(op, user));
        is_made && (capture.maker(number) == Some(op) || buffer.after || is_wanted())
    };
    let at = |op: usize| {
        let all = 0..capture.buffers().len();
        let there = all.filter(|&number| is_there(number, op));
        let bytes: u64 = there.map(|number| capture.buffers()[number].bytes).sum();
        bytes + capture.ops()[op].workspace
    };
    (0..count).map(at).max().unwrap_or(0)
}

/// Op -> bit set of all ops that must run before the op, directly or indirectly.
fn ancestors(capture: &Capture) -> Vec<Vec<u64>> {
    let count = capture.ops().len();
    let mut ancestors: Vec<Vec<u64>> = Vec::with_capacity(count);
    for op in 0..count {
        let mut bits = vec![0; count.div_ceil(64)];
        for &before in capture.predecessors(op) {
            bits.iter_mut().zip(&ancestors[before]).for_each(|(bit, more)| *bit |= more);
            bits[before / 64] |= 1 << (before % 64);
        }
        ancestors.push(bits);
    }
    ancestors
}
