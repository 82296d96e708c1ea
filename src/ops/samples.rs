//! Samples of every op, for tests of devices. A sample has an op, and for each operand the layout
//! and the range of the values. A sample contains no data.
//!
//! Each op defines fixed samples and a function that draws random samples. A test over [`samples`],
//! or over random samples of [`each`] op, therefore covers every op.

mod attention;
mod batch_norm;
mod bf16;
mod conv2d;
mod copy;
mod cross_entropy;
mod cumsum;
mod elementwise;
mod group_norm;
mod index;
mod lstm;
mod matmul;
mod norm;
mod pool;
mod random;
mod reduce;
mod resize;
mod softmax;
mod update;
mod views;

use super::{Custom, Op, Pool2d};
use crate::layout::{DType, Dims, Layout, MAX_RANK};
use remat_rng::SplitMix64;

/// Samples of an op. Every op implements this trait.
pub(super) trait Sampled {
    /// Returns the op itself, or the op inside the box if the op is boxed.
    fn sampled(&self) -> &dyn Sampled
    where
        Self: Sized,
    {
        self
    }

    /// Fixed samples: large and odd shapes, and shapes without elements.
    fn samples(&self) -> Vec<Sample>;

    /// Draws random attributes for the op, and operands that the op accepts, with sizes from
    /// `draw`.
    fn draw(&self, draw: &mut Draw) -> Sample;

    /// Draws arbitrary attributes for the op, which may be so large that a size overflows. Also
    /// draws inputs that the op would accept if it did not check sizes.
    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>);
}

/// A sample: an op, and operands that the op accepts.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The op.
    pub op: Op,
    /// Operands of the op.
    pub operands: Vec<Operand>,
}

impl Sample {
    /// Makes a sample of an op on operands.
    pub(super) fn new(op: impl Into<Op>, operands: impl Into<Vec<Operand>>) -> Self {
        Self { op: op.into(), operands: operands.into() }
    }

    /// Layouts of the operands, as the op sees them.
    #[must_use]
    pub fn layouts(&self) -> Vec<Layout> {
        self.operands.iter().map(|operand| operand.seen).collect()
    }
}

/// A stored tensor, and the view of this tensor that the op sees.
#[derive(Clone, Debug)]
pub struct Operand {
    /// Contiguous layout of the stored tensor.
    pub stored: Layout,
    /// Layout that the op sees: the layout of the stored tensor, or of a view.
    pub seen: Layout,
    /// Range of the elements.
    pub values: Values,
}

/// Values that the elements of an operand may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Values {
    /// Floats of either sign, for example from -2 to 2.
    Real,
    /// Positive floats, for example from 0.25 to 4.25.
    Positive,
    /// Floats between 0 and 1, for example from 0.05 to 0.95.
    Share,
    /// Integers from 0 to below this number. If the number is 0, the operand has no elements.
    Below(usize),
    /// Pixel index `h * width + w` of an element in the window, for each window over images.
    InWindows {
        /// Windows over the images.
        pool: Pool2d,
        /// Height and width of the images.
        image: [usize; 2],
    },
}

impl Values {
    /// Value of element number `i`, chosen by a random number. `None` for floats.
    #[must_use]
    pub fn integer(self, i: usize, random: usize) -> Option<i32> {
        match self {
            Self::Real | Self::Positive | Self::Share => None,
            Self::Below(below) => Some((random % below) as i32),
            Self::InWindows { pool, image } => Some(pool::place(pool, image, i, random) as i32),
        }
    }
}

/// An operand of contiguous floats.
pub(super) fn floats(shape: &[usize]) -> Operand {
    let stored = Layout::contiguous(DType::F32, Dims::new(shape));
    Operand { stored, seen: stored, values: Values::Real }
}

/// An operand of contiguous integers below `below`.
pub(super) fn ints(shape: &[usize], below: usize) -> Operand {
    let stored = Layout::contiguous(DType::I32, Dims::new(shape));
    Operand { stored, seen: stored, values: Values::Below(below) }
}

/// An operand of floats whose last two dimensions are stored transposed.
pub(super) fn turned(shape: &[usize]) -> Operand {
    let mut axes: Vec<usize> = (0..shape.len()).collect();
    axes.swap(shape.len() - 2, shape.len() - 1);
    let swapped: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
    floats(&swapped).view(|x| x.permute(&axes))
}

/// An operand of floats of shape `from`, broadcast to `to`.
pub(super) fn repeated(from: &[usize], to: &[usize]) -> Operand {
    floats(from).view(|x| x.broadcast_to(&Dims::new(to)))
}

/// An operand of floats that is a slice of a larger tensor. Each row of the larger tensor has one
/// more element at both ends.
pub(super) fn inside(shape: &[usize]) -> Operand {
    let (last, mut more) = (shape.len() - 1, shape.to_vec());
    more[last] += 2;
    floats(&more).view(|x| x.slice(last, 1, shape[last]))
}

/// Operands of floats of one shape: packed, transposed, sliced from a larger tensor, and broadcast.
pub(super) fn arranged(shape: &[usize]) -> Vec<Operand> {
    let mut all = vec![floats(shape)];
    if let Some(last) = shape.len().checked_sub(1) {
        let mut one = shape.to_vec();
        one[last] = 1;
        all.extend([inside(shape), repeated(&one, shape), repeated(&shape[last..], shape)]);
    }
    if shape.len() > 1 {
        all.push(turned(shape));
    }
    all
}

/// Shapes for ops that accept any shape: few and many rows, short and long rows, odd sizes, no
/// elements.
pub(super) const SHAPES: [&[usize]; 12] = [
    &[],
    &[1],
    &[0],
    &[3, 0, 2],
    &[7],
    &[400_003],
    &[2, 200_001],
    &[200_001, 2],
    &[1023, 512],
    &[31, 33, 513],
    &[5001, 1, 16, 7],
    &[3, 1, 2, 5, 1, 20_000],
];

impl Operand {
    /// Restricts the elements to positive floats.
    pub(super) fn positive(mut self) -> Self {
        self.values = Values::Positive;
        self
    }

    /// Restricts the elements to floats between 0 and 1.
    pub(super) fn shares(mut self) -> Self {
        self.values = Values::Share;
        self
    }

    /// Replaces the layout that the op sees by the view that `look` returns.
    ///
    /// # Panics
    /// If `look` returns `None`.
    #[must_use]
    pub fn view(mut self, look: impl FnOnce(&Layout) -> Option<Layout>) -> Self {
        self.seen = look(&self.seen).expect("a view");
        self
    }
}

/// One op for each name that an op can have.
///
/// ```
/// use remat::op::Operation;
/// use remat::unstable::ops::samples;
///
/// assert!(samples::each().iter().any(|op| op.name() == "matmul"));
/// ```
#[must_use]
pub fn each() -> Vec<Op> {
    Op::each()
}

/// Samples of every op. Some samples have a size of a few MiB.
///
/// ```
/// use remat::op::Operation;
/// use remat::unstable::ops::samples;
///
/// for sample in samples::samples() {
///     assert!(sample.op.infer(&sample.layouts()).is_ok());
/// }
/// ```
#[must_use]
pub fn samples() -> Vec<Sample> {
    each().iter().flat_map(|op| op.sampled().samples()).collect()
}

/// Layouts of the outputs.
#[cfg(test)]
pub(crate) fn layouts(inputs: &[Layout], outputs: &crate::op::Outputs) -> Vec<Layout> {
    (0..outputs.len()).map(|i| outputs.layout(i, |input| inputs[input])).collect()
}

/// Range from which the sizes of dimensions are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// 0, 0, 0, 1, 2 or 5: often no elements.
    Few,
    /// 1 to 4.
    Small,
}

/// Source of random attributes and operands. Equal seeds give equal samples (SplitMix64).
#[derive(Clone, Debug)]
pub struct Draw {
    numbers: SplitMix64,
    sizes: Sizes,
}

/// Small sizes, and sizes near overflow.
const ABSURD: [usize; 12] = [0, 1, 1, 2, 2, 3, 4, 8, 1 << 31, 1 << 62, usize::MAX - 1, usize::MAX];

impl Draw {
    /// Makes a source of random samples with sizes from the range `sizes`.
    #[must_use]
    pub const fn new(seed: u64, sizes: Sizes) -> Self {
        Self { numbers: SplitMix64::new(seed), sizes }
    }

    /// Draws an op that has the name of `op`, with random attributes, and operands that the op
    /// accepts.
    ///
    /// ```
    /// use remat::unstable::ops::samples::{Draw, Sizes, each};
    ///
    /// let ops = each();
    /// let [mut one, mut other] = [Draw::new(7, Sizes::Small), Draw::new(7, Sizes::Small)];
    /// assert_eq!(one.sample(&ops[0]).layouts(), other.sample(&ops[0]).layouts());
    /// ```
    pub fn sample(&mut self, op: &Op) -> Sample {
        op.sampled().draw(self)
    }

    /// Draws an op that has the name of `op`, with arbitrary attributes and inputs. The op may
    /// reject the attributes or the sizes of the inputs.
    pub fn absurd(&mut self, op: &Op) -> (Op, Vec<Layout>) {
        let (op, fitting) = op.sampled().absurd(self);
        let any = self.absurd_layout();
        let inputs = match self.below(4) {
            0 => (0..self.below(6)).map(|_| self.absurd_layout()).collect(),
            1 => vec![any; self.below(6)],
            _ => fitting,
        };
        (op, inputs)
    }

    fn next(&mut self) -> u64 {
        self.numbers.next()
    }

    /// Draws a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Draws true or false with equal probability.
    pub fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    /// A float between -2 and 2.
    pub fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 22) as f32 - 2.0
    }

    /// A random size from the range of this source.
    pub(super) fn size(&mut self) -> usize {
        match self.sizes {
            Sizes::Few => [0, 0, 0, 1, 2, 5][self.below(6)],
            Sizes::Small => 1 + self.below(4),
        }
    }

    /// `N` sizes.
    pub(super) fn sizes<const N: usize>(&mut self) -> [usize; N] {
        std::array::from_fn(|_| self.size())
    }

    /// A shape with `least` to `most` dimensions.
    pub(super) fn shape(&mut self, least: usize, most: usize) -> Dims {
        let rank = least + self.below(most + 1 - least);
        Dims::new(&(0..rank).map(|_| self.size()).collect::<Vec<_>>())
    }

    /// Draws the axes `0..rank` in a random order.
    pub(super) fn axes(&mut self, rank: usize) -> Vec<usize> {
        let mut axes: Vec<usize> = (0..rank).collect();
        for i in (1..rank).rev() {
            axes.swap(i, self.below(i + 1));
        }
        axes
    }

    /// An operand of contiguous floats, at the start of their storage or at an offset.
    pub(super) fn packed(&mut self, shape: impl Into<Dims>) -> Operand {
        let shape = shape.into();
        if self.flip() {
            return floats(&shape);
        }
        let elements = shape.elements();
        floats(&[elements + 1]).view(|l| l.slice(0, 1, elements)?.reshape(&shape))
    }

    /// An operand of floats of shape `shape`: packed, permuted, sliced from a larger tensor, or
    /// broadcast.
    pub(super) fn arranged(&mut self, shape: &Dims) -> Operand {
        let axes = self.axes(shape.len());
        let stored = Dims::from_fn(shape.len(), |i| shape[axes[i]]);
        let mut back = axes.clone();
        axes.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
        match self.below(4) {
            0 => floats(shape),
            1 => floats(&stored).view(|l| l.permute(&back)),
            2 if !shape.is_empty() => {
                let (axis, before, after) = (self.below(shape.len()), self.below(3), self.below(3));
                let size = stored[axis];
                let more = stored.with(axis, before + size + after);
                floats(&more).view(|l| l.slice(axis, before, size)?.permute(&back))
            }
            _ => {
                let fewer =
                    Dims::from_fn(shape.len(), |axis| if self.flip() { 1 } else { shape[axis] });
                floats(&fewer).view(|l| l.broadcast_to(shape))
            }
        }
    }

    /// An operand of floats with any strides, which broadcasts to `shape`.
    pub(super) fn part(&mut self, shape: &[usize]) -> Operand {
        let part = &shape[self.below(shape.len() + 1)..];
        let part =
            Dims::from_fn(part.len(), |axis| if self.below(3) == 0 { 1 } else { part[axis] });
        self.arranged(&part)
    }

    /// A size that is small or near overflow.
    pub(super) fn absurd_size(&mut self) -> usize {
        let top = [6, 8, ABSURD.len()][self.below(3)];
        ABSURD[self.below(top)]
    }

    /// A number, sometimes infinite or NaN.
    pub(super) fn absurd_number(&mut self) -> f32 {
        [0.0, 0.5, 0.5, 1.0, -1.0, 1e30, f32::NAN, f32::INFINITY][self.below(8)]
    }

    /// Two sizes that are small or near overflow.
    pub(super) fn absurd_pair(&mut self) -> [usize; 2] {
        [self.absurd_size(), self.absurd_size()]
    }

    /// A shape whose sizes are small or near overflow.
    pub(super) fn absurd_dims(&mut self) -> Dims {
        let rank = [1, 2, 4, 4, 4, MAX_RANK, self.below(MAX_RANK + 4)][self.below(7)];
        Dims::new(&(0..rank).map(|_| self.absurd_size()).collect::<Vec<_>>())
    }

    /// A random layout of a shape whose sizes are small or near overflow.
    pub(super) fn absurd_layout(&mut self) -> Layout {
        let others = DType::ALL.len();
        let dtype = *DType::ALL.get(self.below(2 * others)).unwrap_or(&DType::F32);
        let layout = Layout::contiguous(dtype, self.absurd_dims());
        match (self.below(4), layout.rank()) {
            (0, rank @ 1..) => {
                let mut axes: Vec<usize> = (0..rank).collect();
                axes.rotate_left(self.below(rank));
                layout.permute(&axes).expect("some order of its axes")
            }
            (1, rank @ 1..) => layout.slice(self.below(rank), 0, 1).unwrap_or(layout),
            (2, _) => layout.broadcast_to(&self.absurd_dims()).unwrap_or(layout),
            _ => layout,
        }
    }
}

impl Sampled for Custom {
    fn samples(&self) -> Vec<Sample> {
        Vec::new()
    }

    fn draw(&self, _draw: &mut Draw) -> Sample {
        Sample { op: Op::Custom(self.clone()), operands: Vec::new() }
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        (Op::Custom(self.clone()), vec![draw.absurd_layout()])
    }
}
