//! Bytes in use while the ops of a step run one after the other.

use super::Capture;

/// Memory of a running step. A buffer is in use as long as a later op uses the buffer, or if the
/// buffer stays after the step.
#[derive(Clone, Debug)]
pub(crate) struct Usage<'a> {
    capture: &'a Capture,
    /// Buffer -> number of later uses.
    left: Vec<usize>,
    alive: u64,
    /// Bytes of idle buffers, which exist before the step, are used by no op, and do not stay after
    /// the step. Idle buffers are freed once the first op has run.
    idle: u64,
    peak: u64,
}

impl<'a> Usage<'a> {
    /// Usage before the first op.
    pub fn new(capture: &'a Capture) -> Self {
        let left: Vec<usize> = capture.users.iter().map(Vec::len).collect();
        let mut usage = Self { capture, left, alive: 0, idle: 0, peak: 0 };
        for (number, buffer) in capture.buffers.iter().enumerate() {
            if buffer.before {
                usage.alive += buffer.bytes;
                usage.idle += if usage.goes(number, 0) { buffer.bytes } else { 0 };
            }
        }
        usage.peak = usage.alive;
        usage
    }

    /// Whether exactly `left` uses of a buffer remain and the buffer does not stay after the step.
    /// The answer `true` means for `left` 0 that the buffer is no longer needed, and for `left` 1 that
    /// its next use is its last.
    fn goes(&self, buffer: usize, left: usize) -> bool {
        !self.capture.buffers[buffer].after && self.left[buffer] == left
    }

    /// Peak of the bytes in use so far.
    pub const fn peak(&self) -> u64 {
        self.peak
    }

    /// Bytes in use after the last op that ran.
    pub const fn alive(&self) -> u64 {
        self.alive
    }

    /// Bytes that would be in use while `op` runs next.
    pub fn during(&self, op: usize) -> u64 {
        let op = &self.capture.ops[op];
        let makes: u64 = op.makes.iter().map(|&made| self.capture.buffers[made].bytes).sum();
        self.alive + makes + op.workspace
    }

    /// Bytes that would be in use after `op` runs next.
    pub fn after(&self, op: usize) -> u64 {
        let ran = &self.capture.ops[op];
        let used = ran.uses().filter(|&buffer| self.goes(buffer, 1));
        let unused = ran.makes.iter().copied().filter(|&buffer| self.goes(buffer, 0));
        let freed: u64 = used.chain(unused).map(|gone| self.capture.buffers[gone].bytes).sum();
        self.during(op) - ran.workspace - freed - self.idle
    }

    /// Runs an op. The caller must have run all predecessors of the op.
    pub fn run(&mut self, op: usize) {
        self.peak = self.peak.max(self.during(op));
        self.alive = self.after(op);
        self.idle = 0;
        for buffer in self.capture.ops[op].uses() {
            self.left[buffer] -= 1;
        }
    }
}
