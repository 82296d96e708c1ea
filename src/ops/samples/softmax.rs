use super::{Draw, Sample, Sampled, floats};
use crate::layout::Layout;
use crate::ops::{FLOAT, LogSoftmax, LogSoftmaxGrad, Op, Softmax, SoftmaxGrad};

/// Samples of ops over rows. A row of the table has the op, and the number of its operands. The
/// operands of a sample have equal shapes.
macro_rules! of_rows {
    ($($Op:ident $operands:literal;)*) => {$(
        impl Sampled for $Op {
            fn samples(&self) -> Vec<Sample> {
                ROWS.iter().map(|shape| Sample::new(*self, vec![floats(shape); $operands])).collect()
            }

            fn draw(&self, draw: &mut Draw) -> Sample {
                let shape = draw.shape(1, 4);
                Sample::new(*self, [(); $operands].map(|()| draw.packed(shape)))
            }

            fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
                ((*self).into(), vec![Layout::contiguous(FLOAT, draw.absurd_dims()); $operands])
            }
        }
    )*};
}

of_rows! {
    Softmax 1;
    SoftmaxGrad 2;
    LogSoftmax 1;
    LogSoftmaxGrad 2;
}

/// Number of rows, and number of elements of a row: few and many rows, short and long rows.
pub(super) const ROWS: [[usize; 2]; 10] = [
    [1, 1],
    [1000, 1001],
    [3, 300_001],
    [300_001, 3],
    [1, 1 << 20],
    [1 << 19, 1],
    [0, 5],
    [5, 0],
    [9000, 10],
    [90, 1000],
];
