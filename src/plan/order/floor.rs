//! What no order takes less than.

use super::super::Capture;

/// Bytes that every order of a step has in use at once, at some op: what the op itself needs, and all that must be there
/// then in any order, because it is there before or made by what must run before the op, and kept or used by what must
/// run after it.
///
/// Takes O(n * operands) time for n ops, and an eighth of n^2 bytes. Weak where branches do not depend on one another: one
/// of them has to wait with something in memory, and this does not see it.
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

/// Op -> the ops that must run before it, as bits.
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
