//! Hashing of turns, used when many consecutive turns have all been new. A hash is cheap, and shows
//! whether a turn repeats. Only after a hash repeats are turns compared command by command again.

use super::turns::Expected;
use crate::command::Command;
use crate::op::Operation;
use rustc_hash::FxHasher;
use std::collections::VecDeque;
use std::hash::{Hash as _, Hasher as _};
use std::mem::discriminant;

/// Number of consecutive turns that are hashed.
const TURNS: u32 = 2;

/// Number of hashes that are remembered.
const PAST: usize = 8;

/// Hashes of recent turns; see the [module](self) documentation.
#[derive(Default)]
pub(super) struct Glance {
    /// Hash of the current turn's commands; `None` if the turn is not hashed.
    hash: Option<FxHasher>,
    /// Number of turns left to hash, the current one included.
    left: u32,
    /// Hashes of the latest turns, the newest last.
    past: VecDeque<u64>,
}

/// Result of hashing a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The hash was seen before, so the turn most likely repeats.
    Again,
    /// The hash is new, and the next turn is hashed too.
    New,
    /// The hash is new, and the next turns are not hashed.
    Enough,
}

impl Glance {
    /// Starts hashing the next turns.
    pub fn begin(&mut self) {
        (self.hash, self.left) = (Some(FxHasher::default()), TURNS);
    }

    /// Adds a command of the current turn to the hash. Deletions are left out.
    #[inline]
    pub fn hear<O: Operation, H>(&mut self, command: &Command<O, H>) {
        let Some(hash) = &mut self.hash else { return };
        if matches!(command, Command::Del(_)) {
            return;
        }
        discriminant(command).hash(hash);
        for call in command.calls() {
            Expected::of(&call.op).hash(hash);
            call.inputs.len().hash(hash);
        }
    }

    /// Ends the current turn. Returns `None` if the turn was not hashed.
    pub fn turn_ends(&mut self) -> Option<Seen> {
        let hash = self.hash.take()?.finish();
        if self.past.contains(&hash) {
            return Some(Seen::Again);
        }
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back(hash);
        self.left -= 1;
        if self.left == 0 {
            return Some(Seen::Enough);
        }
        self.hash = Some(FxHasher::default());
        Some(Seen::New)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Apply, TensorId};
    use crate::host::HostTensor;
    use crate::ops::{Op, Unary};

    fn turn(glance: &mut Glance, ops: &[Unary], number: u64) -> Option<Seen> {
        let made = |at: usize| TensorId(100 * number + at as u64);
        for (at, &op) in ops.iter().enumerate() {
            let apply = Apply::new(Op::from(op), &[made(at)][..], Default::default(), made(at + 1));
            glance.hear::<Op, HostTensor>(&Command::Apply(apply));
            glance.hear::<Op, HostTensor>(&Command::Del(made(at)));
        }
        glance.hear::<Op, HostTensor>(&Command::Step);
        glance.turn_ends()
    }

    #[test]
    fn turns_come_again_whatever_their_tensors_are_called() {
        let mut glance = Glance::default();
        let long = [Unary::Relu; 9];
        assert_eq!(turn(&mut glance, &long, 0), None, "nobody looks");
        for (number, (length, seen)) in (1..).zip([
            (1, Seen::New),
            (2, Seen::Enough),
            (3, Seen::New),
            (4, Seen::Enough),
            (5, Seen::New),
            (3, Seen::Again),
        ]) {
            if glance.hash.is_none() {
                glance.begin();
            }
            assert_eq!(turn(&mut glance, &long[..length], number), Some(seen), "{length}");
        }
        glance.begin();
        assert_eq!(turn(&mut glance, &[Unary::Relu, Unary::Neg, Unary::Relu], 9), Some(Seen::New));
        // Enough newer hashes push out the hash of the first turn.
        for length in 6..10 {
            glance.begin();
            turn(&mut glance, &long[..length], 10);
        }
        glance.begin();
        assert_eq!(turn(&mut glance, &long[..1], 20), Some(Seen::New));
    }
}
