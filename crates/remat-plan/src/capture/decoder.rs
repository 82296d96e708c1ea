//! Generated network with a bad order of ops, as a compiler pass may produce it.

use super::{Capture, CaptureError, CapturedBuffer, CapturedOp};

/// The forward pass of a decoder in half precision, over parameters kept in single precision. The
/// casts of all parameters come first, as if a compiler pass had inserted the casts. Because all
/// casts come first, all parameters are in memory in both precisions before the first layer runs.
///
/// A layer is attention (`4 * width^2` parameters) and a feed-forward network (`8 * width^2`), with
/// residual connections. Norms and embeddings are left out, because they have few bytes. CANN's
/// article on orders measures such a network with the sizes of Baichuan-13B and LLaMA-13B. For a
/// `Decoder`, the caller chooses the sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoder {
    /// Number of layers.
    pub layers: usize,
    /// Number of elements in the activation of a token.
    pub width: u64,
    /// Number of tokens in a batch, over all its sequences.
    pub tokens: u64,
}

const SINGLE: u64 = 4;
const HALF: u64 = 2;

impl Decoder {
    /// Makes the forward pass as a step. The cost of an op is its number of multiplications. The
    /// cost of a cast is its number of parameters.
    ///
    /// # Errors
    ///
    /// [`CaptureError::TooLarge`] if `width^2` or `tokens * width` is above 2^50, or if all buffers
    /// together have 2^64 bytes or more.
    pub fn capture(self) -> Result<Capture, CaptureError> {
        let mut step = Step::default();
        let too_large = CaptureError::TooLarge;
        let square = self.width.checked_mul(self.width).ok_or(too_large.clone())?;
        let row = self.tokens.checked_mul(self.width).ok_or(too_large.clone())?;
        // All sizes are small multiples of `square` and `row`, and must not overflow.
        // [`Capture::new`] checks the sum of all sizes.
        if square.max(row) > 1 << 50 {
            return Err(too_large);
        }
        let mut weights = Vec::with_capacity(4 * self.layers);
        for _ in 0..self.layers {
            // Parameters of each part of a layer, divided by `width^2`: query, key and value;
            // projection; up; down.
            for times in [3, 1, 4, 4] {
                let master = step.buffer(CapturedBuffer::kept(times * square * SINGLE));
                weights.push((
                    times,
                    step.op("cast", &[master], times * square, (times * square) as f64),
                ));
            }
        }
        let mut x = step.buffer(CapturedBuffer::input(row * HALF));
        for layer in weights.chunks_exact(4) {
            let product = row as f64 * self.width as f64;
            let matmul = |step: &mut Step, input: usize, weight: usize, times: u64| {
                let (over, weight) = layer[weight];
                step.op("matmul", &[input, weight], times * row, over as f64 * product)
            };
            let qkv = matmul(&mut step, x, 0, 3);
            let attended = step.op("attention", &[qkv], row, 2.0 * row as f64 * self.tokens as f64);
            let projected = matmul(&mut step, attended, 1, 1);
            let middle = step.op("add", &[x, projected], row, row as f64);
            let up = matmul(&mut step, middle, 2, 4);
            let activated = step.op("gelu", &[up], 4 * row, 4.0 * row as f64);
            let down = matmul(&mut step, activated, 3, 1);
            x = step.op("add", &[middle, down], row, row as f64);
        }
        step.ops.push(CapturedOp { waits: true, ..CapturedOp::new("get").reads([x]) });
        Capture::new(step.buffers, step.ops)
    }
}

#[derive(Default)]
struct Step {
    buffers: Vec<CapturedBuffer>,
    ops: Vec<CapturedOp>,
}

impl Step {
    fn buffer(&mut self, buffer: CapturedBuffer) -> usize {
        self.buffers.push(buffer);
        self.buffers.len() - 1
    }

    /// Adds an op that makes `elements` elements in half precision. Returns the number of the
    /// buffer.
    fn op(&mut self, name: &str, reads: &[usize], elements: u64, cost: f64) -> usize {
        let made = self.buffer(CapturedBuffer::transient(elements * HALF));
        self.ops.push(CapturedOp::new(name).reads(reads).makes([made]).costs(cost));
        made
    }
}
