//! Division of an op into pieces.

use super::{Cut, How, Made, is_narrow, wide};
use crate::layout::Layout;
use crate::ops::definition::{Definition, Kernel};
use smallvec::SmallVec;
use std::ops::Range;

/// Alignment of the ranges of scratch in bytes, which is also the alignment of tensors.
const ALIGNMENT: u64 = 256;

/// Bytes of scratch that a piece may take even if the tensors are small. Smaller pieces would need
/// too many calls of the kernel.
const LEAST: u64 = 64 << 10;

/// Divisor of the operands' bytes. The quotient limits the bytes of scratch for the operands that
/// are cut.
const SHARE: u64 = 8;

/// Layouts of a piece's inputs or outputs.
pub(super) type Layouts = SmallVec<[Layout; 6]>;

/// Plan for an op with `bf16` operands. The plan depends only on the op and the layouts.
pub(in crate::ops) struct Pieces<'a> {
    pub(super) kernel: &'a dyn Kernel,
    pub(super) inputs: &'a [Layout],
    pub(super) outputs: &'a [Layout],
    /// How each input is prepared for the kernel.
    pub(super) taken: SmallVec<[Taken; 6]>,
    /// How each output is made from the kernel's results.
    pub(super) given: SmallVec<[Given; 3]>,
    /// Number of entries of the operands along the dimension that is cut.
    length: usize,
    /// Number of entries of a piece along the dimension that is cut.
    each: usize,
    /// Number of scratch bytes, not counting the workspace of the kernel itself.
    pub(super) scratch: u64,
}

/// How an input is prepared for the kernel.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    pub cut: Cut,
    /// Range of scratch for an f32 copy of the input. `None` if the kernel reads the input itself.
    pub copy: Option<Range<u64>>,
}

/// How an output is made from the kernel's results.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub made: Made,
    /// Range of scratch to which the kernel writes its piece. `None` if the kernel writes to the
    /// output itself.
    pub piece: Option<Range<u64>>,
    /// Range of scratch in which pieces are added up. `None` if the pieces are added up in the
    /// output, or are not added up.
    pub sum: Option<Range<u64>>,
}

impl<'a> Pieces<'a> {
    /// Plans how to run `op` with at most `most` bytes of scratch for cut operands. Returns `None`
    /// if no operand is `bf16`, or the op's own kernels accept `bf16`.
    #[inline] // Called for every op; most ops have no `bf16` operands.
    pub(in crate::ops) fn new(
        op: &'a dyn Definition,
        inputs: &'a [Layout],
        outputs: &'a [Layout],
        most: u64,
    ) -> Option<Self> {
        let is_narrow = [inputs, outputs].iter().any(|layouts| layouts.iter().any(is_narrow));
        if is_narrow { Self::of_narrow(op, inputs, outputs, most) } else { None }
    }

    /// Plans how to run `op`. At least one operand is `bf16`.
    #[inline(never)]
    fn of_narrow(
        op: &'a dyn Definition,
        inputs: &'a [Layout],
        outputs: &'a [Layout],
        most: u64,
    ) -> Option<Self> {
        // An input is copied if it must be widened, or if the kernel requires a contiguous input
        // and the piece is not contiguous. Old values of updated outputs are read from the outputs.
        let widened = [inputs, outputs].map(|all| all.iter().map(wide).collect::<Layouts>());
        let cuts = op.cuts(&widened[0], &widened[1])?;
        let kernel = op.kernel()?;
        let wanted = op.inputs();
        let is_copied = |(i, (x, &cut)): (usize, (&Layout, &Cut))| {
            let old_value = i < kernel.updates(inputs.len());
            let fits = !wanted.is_packed(i) || keeps_together(x, cut);
            (is_narrow(x) || !fits) && !old_value
        };
        let copied: SmallVec<[bool; 6]> =
            inputs.iter().zip(&cuts.inputs).enumerate().map(is_copied).collect();
        // An output's piece is written to scratch first if the piece must be rounded or added up,
        // or is not contiguous in the output.
        let is_apart = |(y, made): (&Layout, &Made)| match made.how {
            How::Part(cut) => is_narrow(y) || !keeps_together(y, cut),
            How::Sum => true,
        };
        let apart: SmallVec<[bool; 3]> = outputs.iter().zip(&cuts.outputs).map(is_apart).collect();

        // The number of entries in a piece follows from the bytes of scratch that each entry needs.
        let lengths = inputs.iter().zip(&cuts.inputs).filter_map(|(x, cut)| cut.length(x));
        let length = lengths.max().unwrap_or(1);
        let of_inputs = inputs.iter().zip(cuts.inputs.iter().copied()).zip(&copied);
        let of_outputs = outputs.iter().zip(cuts.outputs.iter().map(|made| made.cut())).zip(&apart);
        let grows = |((x, cut), copied): ((&Layout, Cut), &bool)| match cut {
            Cut::Along(_) if *copied => bytes(x),
            _ => 0,
        };
        let total = of_inputs.map(grows).chain(of_outputs.map(grows)).fold(0, u64::saturating_add);
        let an_entry = total.div_ceil(length.max(1) as u64).max(1);
        let allowed = (total / SHARE).max(LEAST).min(most);
        let each = ((allowed / an_entry) as usize).clamp(1, length.max(1));

        // Assign a range of scratch to each copy, piece and sum.
        let mut scratch = 0u64;
        let mut room = |layout: &Layout| {
            let start = scratch;
            let end = start.saturating_add(bytes(layout));
            scratch = end.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
            start..end
        };
        let first = 0..each.min(length);
        let taken = inputs.iter().zip(&cuts.inputs).zip(&copied).map(|((x, &cut), &copied)| {
            Taken { cut, copy: copied.then(|| room(&cut.of(x, &first))) }
        });
        let taken = taken.collect();
        let given = outputs.iter().zip(&cuts.outputs).zip(&apart).map(|((y, &made), &apart)| {
            // If the op runs as one piece, the sum over all pieces is the result of the piece.
            let made = if each >= length { made.alone() } else { made };
            let apart = apart && (made.how == How::Sum || is_narrow(y) || each < length);
            let is_rounded_sum = made.how == How::Sum && is_narrow(y);
            Given {
                made,
                piece: apart.then(|| room(&made.cut().of(y, &first))),
                sum: is_rounded_sum.then(|| room(y)),
            }
        });
        let given = given.collect();
        Some(Self { kernel, inputs, outputs, taken, given, length, each, scratch })
    }

    /// Ranges of entries of the pieces, and whether each piece is the last. Returns at least one
    /// range, which may be empty.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (Range<usize>, bool)> + use<> {
        let (length, each) = (self.length, self.each);
        (0..length.max(1)).step_by(each).map(move |from| {
            let to = from.saturating_add(each).min(length);
            (from..to, to == length)
        })
    }

    /// Layouts of the kernel's inputs and outputs for a piece.
    pub(super) fn layouts(&self, range: &Range<usize>) -> [Layouts; 2] {
        let packed = |part: Layout| Layout::contiguous(wide(&part).dtype(), *part.shape());
        let taken = self.inputs.iter().zip(&self.taken).map(|(x, taken)| {
            let part = taken.cut.of(x, range);
            if taken.copy.is_some() { packed(part) } else { wide(&part) }
        });
        let given = self.outputs.iter().zip(&self.given).map(|(y, given)| {
            let part = given.made.cut().of(y, range);
            if given.piece.is_some() { packed(part) } else { part }
        });
        [taken.collect(), given.collect()]
    }

    /// Bytes of workspace, including the workspace of the kernel itself. `own` returns the kernel's
    /// workspace for the layouts of one piece.
    pub(super) fn workspace(&self, own: impl Fn(&[Layout], &[Layout]) -> u64) -> u64 {
        let last = (self.length.max(1) - 1) / self.each * self.each;
        // The workspace depends only on the size of a piece, so compute it for a full piece and for
        // the last piece.
        let own = [0..self.each.min(self.length), 0..self.length - last].map(|range| {
            let [inputs, outputs] = self.layouts(&range);
            own(&inputs, &outputs)
        });
        self.scratch.saturating_add(own[0].max(own[1]))
    }
}

/// Size of the elements in bytes, with a word of 4 bytes for each element.
fn bytes(layout: &Layout) -> u64 {
    (layout.elements() as u64).saturating_mul(4)
}

/// Whether a piece of a contiguous tensor is contiguous. A piece is contiguous if the tensor is not
/// cut, or is cut along its first dimension whose size is not 1.
fn keeps_together(x: &Layout, cut: Cut) -> bool {
    match cut {
        Cut::Along(axis) => x.shape()[..axis].iter().all(|&size| size == 1),
        Cut::Whole => true,
    }
}

impl Cut {
    /// Number of entries of a cut operand; `None` if the operand is not cut.
    fn length(self, x: &Layout) -> Option<usize> {
        match self {
            Self::Along(axis) => Some(x.shape()[axis]),
            Self::Whole => None,
        }
    }

    /// Part of an operand that belongs to a piece.
    pub(super) fn of(self, x: &Layout, range: &Range<usize>) -> Layout {
        match self {
            Self::Along(axis) => {
                x.slice(axis, range.start, range.len()).expect("entries that are there")
            }
            Self::Whole => *x,
        }
    }
}

impl Made {
    /// Part of the output that a piece makes; the whole output if pieces are added up.
    pub(super) fn cut(self) -> Cut {
        match self.how {
            How::Part(cut) => cut,
            How::Sum => Cut::Whole,
        }
    }

    /// How the output is made if there is only one piece: a sum of one piece needs no addition.
    fn alone(self) -> Self {
        Self { how: How::Part(self.cut()), ..self }
    }

    /// Whether pieces are added up.
    pub(super) fn is_sum(self) -> bool {
        self.how == How::Sum
    }
}
