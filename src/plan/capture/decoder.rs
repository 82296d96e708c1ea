//! A made-up network whose order nobody chose by hand.

use super::{Capture, CaptureError, CapturedBuffer, CapturedOp};

/// The forward pass of a decoder in half precision, over parameters kept in single precision: the casts of all parameters
/// come first, as a compiler's pass puts them. Ordered like this, the whole network is there twice before the first
/// layer runs.
///
/// A layer is attention (`4 * width^2` parameters) and a feed-forward network (`8 * width^2`), with residual
/// connections; norms and embeddings are left out, for they weigh little. It is the case of CANN's article on orders, whose
/// figures are of Baichuan-13B and LLaMA-13B; here the sizes are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoder {
    /// Number of layers.
    pub layers: usize,
    /// Elements of a token's activation.
    pub width: u64,
    /// Tokens at once, of all sequences together.
    pub tokens: u64,
}

const SINGLE: u64 = 4;
const HALF: u64 = 2;

impl Decoder {
    /// The pass as a step. Costs are multiplications; a cast costs one for each parameter.
    ///
    /// # Errors
    ///
    /// More bytes than 2^64.
    pub fn capture(self) -> Result<Capture, CaptureError> {
        let mut step = Step::default();
        let too_large = CaptureError::TooLarge;
        let square = self.width.checked_mul(self.width).ok_or(too_large.clone())?;
        let row = self.tokens.checked_mul(self.width).ok_or(too_large.clone())?;
        // So that no sum of a few overflows; the sum of all is checked where the capture is made.
        if square.max(row) > 1 << 50 {
            return Err(too_large);
        }
        let mut weights = Vec::with_capacity(4 * self.layers);
        for _ in 0..self.layers {
            // Query, key and value; projection; up; down.
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

    /// An op that makes so many elements in half precision. Returns their buffer.
    fn op(&mut self, name: &str, reads: &[usize], elements: u64, cost: f64) -> usize {
        let made = self.buffer(CapturedBuffer::transient(elements * HALF));
        self.ops.push(CapturedOp::new(name).reads(reads).makes([made]).costs(cost));
        made
    }
}
