//! Comparison of steps.

use super::{Capture, CapturedOp};
use std::fmt;
use std::sync::Arc;

/// First difference between two steps.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The ops at a position differ in a property other than their costs, or one of the steps is
    /// shorter.
    Op {
        /// Position of the op.
        at: usize,
        /// Name of the op in the first step; `None` if the step has no op at this position.
        first: Option<Arc<str>>,
        /// Name of the op in the second step; `None` if the step has no op at this position.
        second: Option<Arc<str>>,
    },
    /// The buffers with this number differ in size, alignment, or existence before or after the
    /// step, or one step has no buffer with this number.
    Buffer(usize),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = |name: &Option<Arc<str>>| match name {
            Some(name) => format!("`{name}`"),
            None => "the end".to_owned(),
        };
        match self {
            Self::Op { at, first, second } => {
                write!(f, "op {at} differs: {} and {}", end(first), end(second))
            }
            Self::Buffer(number) => write!(f, "buffer {number} differs"),
        }
    }
}

/// Whether two ops are equal. Costs are not compared, because costs are measured and vary.
fn is_same(a: &CapturedOp, b: &CapturedOp) -> bool {
    a.name == b.name
        && a.attributes == b.attributes
        && (&a.reads, &a.makes, &a.updates) == (&b.reads, &b.makes, &b.updates)
        && (a.workspace, a.rematerializable, a.waits) == (b.workspace, b.rematerializable, b.waits)
}

impl Capture {
    /// First difference from another step; `None` if the steps are equal. Costs are not compared.
    ///
    /// Steps are compared op by op and buffer by buffer, so the buffers of both steps must be
    /// numbered by the same rule. Time: O(operands).
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        let ops = self.ops.len().max(other.ops.len());
        let differs = |at: &usize| match (self.ops.get(*at), other.ops.get(*at)) {
            (Some(a), Some(b)) => !is_same(a, b),
            _ => true,
        };
        if let Some(at) = (0..ops).find(differs) {
            let name = |step: &Self| step.ops.get(at).map(|op| Arc::clone(&op.name));
            return Some(Difference::Op { at, first: name(self), second: name(other) });
        }
        let buffers = self.buffers.len().max(other.buffers.len());
        let differs = |number: &usize| self.buffers.get(*number) != other.buffers.get(*number);
        (0..buffers).find(differs).map(Difference::Buffer)
    }

    /// FNV-1a hash of everything that [`Capture::difference`] compares. Equal steps have equal
    /// signatures on every machine. Two different steps almost never have equal signatures.
    #[must_use]
    pub fn signature(&self) -> u64 {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        hash.number(self.ops.len() as u64);
        for op in &self.ops {
            hash.text(&op.name);
            hash.text(&op.attributes);
            for list in [&op.reads, &op.makes, &op.updates] {
                hash.number(list.len() as u64);
                list.iter().for_each(|&buffer| hash.number(buffer as u64));
            }
            hash.number(op.workspace);
            hash.number(u64::from(op.rematerializable) | u64::from(op.waits) << 1);
        }
        for buffer in &self.buffers {
            hash.number(buffer.bytes);
            hash.number(buffer.align);
            hash.number(u64::from(buffer.before) | u64::from(buffer.after) << 1);
        }
        hash.0
    }
}

struct Fnv(u64);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes(text.as_bytes());
    }
}
