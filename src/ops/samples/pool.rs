use super::{Draw, Operand, Sample, Sampled, Values, floats, ints};
use crate::layout::{DType, Layout};
use crate::ops::pool::image;
use crate::ops::{
    AvgPool2d, AvgPool2dGrad, FLOAT, MaxPool2d, MaxPool2dGrad, MaxPool2dPick, Op, Pool2d,
};

impl Sampled for MaxPool2d {
    fn samples(&self) -> Vec<Sample> {
        Case::all().iter().map(|case| case.pooled(Self)).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        Case::draw(draw).drawn(draw, Self)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (pool, [x, _]) = absurd(draw);
        (Self(pool).into(), vec![x])
    }
}

impl Sampled for MaxPool2dGrad {
    fn samples(&self) -> Vec<Sample> {
        let of = |case: &Case| {
            Sample::new(
                Self { pool: case.pool, input: case.image() },
                [case.places(), floats(&case.y)],
            )
        };
        Case::all().iter().map(of).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let case = Case::draw_overlapping(draw);
        Sample::new(
            Self { pool: case.pool, input: case.image() },
            [case.places(), draw.packed(case.y)],
        )
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (pool, [x, y]) = absurd(draw);
        let argmax = Layout::contiguous(DType::I32, *y.shape());
        (Self { pool, input: image(&x) }.into(), vec![argmax, y])
    }
}

impl Sampled for MaxPool2dPick {
    fn samples(&self) -> Vec<Sample> {
        let of =
            |case: &Case| Sample::new(Self { pool: case.pool }, [case.places(), floats(&case.x)]);
        Case::all().iter().map(of).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let case = Case::draw_overlapping(draw);
        Sample::new(Self { pool: case.pool }, [case.places(), draw.packed(case.x)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (pool, [x, y]) = absurd(draw);
        let argmax = Layout::contiguous(DType::I32, *y.shape());
        (Self { pool }.into(), vec![argmax, x])
    }
}

impl Sampled for AvgPool2d {
    fn samples(&self) -> Vec<Sample> {
        Case::all().iter().map(|case| case.pooled(Self)).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        Case::draw(draw).drawn(draw, Self)
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (pool, [x, _]) = absurd(draw);
        (Self(pool).into(), vec![x])
    }
}

impl Sampled for AvgPool2dGrad {
    fn samples(&self) -> Vec<Sample> {
        let of = |case: &Case| {
            Sample::new(Self { pool: case.pool, input: case.image() }, [floats(&case.y)])
        };
        Case::all().iter().map(of).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let case = Case::draw(draw);
        Sample::new(Self { pool: case.pool, input: case.image() }, [draw.packed(case.y)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (pool, [x, y]) = absurd(draw);
        (Self { pool, input: image(&x) }.into(), vec![y])
    }
}

/// Shapes and windows of a pooling from images `x` to images `y`.
#[derive(Clone, Copy, Debug)]
struct Case {
    pool: Pool2d,
    x: [usize; 4],
    y: [usize; 4],
}

impl Case {
    fn new(x: [usize; 4], kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Self {
        let [n, c, h, w] = x;
        let [rows, columns] =
            [(h, 0), (w, 1)].map(|(n, i)| (n + 2 * padding[i] - kernel[i]) / stride[i] + 1);
        Self { pool: Pool2d { kernel, stride, padding }, x, y: [n, c, rows, columns] }
    }

    /// Height and width of `x`.
    const fn image(&self) -> [usize; 2] {
        [self.x[2], self.x[3]]
    }

    /// Cases of the fixed samples.
    fn all() -> [Self; 11] {
        [
            Self::new([1, 1, 1, 1], [1, 1], [1, 1], [0, 0]),
            Self::new([10, 9, 33, 31], [3, 3], [2, 2], [1, 1]),
            Self::new([8, 16, 64, 65], [3, 3], [2, 2], [1, 1]),
            Self::new([8, 16, 64, 65], [2, 5], [3, 1], [0, 2]),
            Self::new([2, 3, 257, 255], [257, 255], [1, 1], [0, 0]),
            Self::new([1, 2, 3, 6001], [2, 5001], [1, 7], [1, 2500]),
            Self::new([1, 2, 6001, 3], [5001, 2], [7, 1], [2500, 1]),
            Self::new([30_001, 3, 2, 2], [2, 2], [2, 2], [1, 1]),
            // The windows are far larger than the image.
            Self::new([2, 3, 2, 1], [1 << 20, 1 << 20], [1, 1], [1 << 19, 1 << 19]),
            Self::new([0, 3, 8, 8], [2, 2], [2, 2], [0, 0]),
            Self::new([3, 0, 8, 8], [2, 2], [2, 2], [0, 0]),
        ]
    }

    /// Draws a case with windows that are not larger than the image.
    fn draw(draw: &mut Draw) -> Self {
        let ([n, c], [h, w]) = (draw.sizes(), [(); 2].map(|()| 1 + draw.below(4)));
        let kernel = [h, w].map(|n| 1 + draw.below(n));
        let padding = kernel.map(|k| draw.below(k / 2 + 1));
        let stride = [(); 2].map(|()| 1 + draw.below(3));
        Self::new([n, c, h, w], kernel, stride, padding)
    }

    /// Draws a case in which each window covers the whole image, so that the maximum may be at any
    /// pixel.
    fn draw_overlapping(draw: &mut Draw) -> Self {
        let ([n, c], [h, w]) = (draw.sizes(), [(); 2].map(|()| 1 + draw.below(4)));
        let padding = [h, w].map(|n| draw.below(n));
        let stride = [(); 2].map(|()| 1 + draw.below(3));
        Self::new([n, c, h, w], [h + padding[0], w + padding[1]], stride, padding)
    }

    /// A sample of the pooling, on contiguous images.
    fn pooled<O: Into<Op>>(&self, op: impl FnOnce(Pool2d) -> O) -> Sample {
        Sample::new(op(self.pool), [floats(&self.x)])
    }

    /// A sample of the pooling, on random images.
    fn drawn<O: Into<Op>>(&self, draw: &mut Draw, op: impl FnOnce(Pool2d) -> O) -> Sample {
        Sample::new(op(self.pool), [draw.packed(self.x)])
    }

    /// For each window, the position in the image of one element of the window.
    fn places(&self) -> Operand {
        let [_, _, h, w] = self.x;
        let holds_all = |i: usize| self.pool.kernel[i] >= [h, w][i] + self.pool.padding[i];
        let places = ints(&self.y, h * w);
        if holds_all(0) && holds_all(1) {
            return places;
        }
        Operand { values: Values::InWindows { pool: self.pool, image: [h, w] }, ..places }
    }
}

/// Position in the image of an element of window number `i`, where windows are counted over all
/// images. `random` selects the element.
pub(super) fn place(pool: Pool2d, image: [usize; 2], i: usize, random: usize) -> usize {
    let [rows, columns] = pool.windows(image).expect("images that hold a window");
    let side = |side: usize, window: usize, random: usize| {
        let from = (window * pool.stride[side]).saturating_sub(pool.padding[side]);
        let behind = window * pool.stride[side] + pool.kernel[side] - pool.padding[side];
        from + random % (behind.min(image[side]) - from)
    };
    let [row, column] = [side(0, i / columns % rows, random), side(1, i % columns, random / 8)];
    row * image[1] + column
}

/// Draws arbitrary windows, and layouts of `x` and `y`. If the windows are not valid, `y` has the
/// layout of `x`.
fn absurd(draw: &mut Draw) -> (Pool2d, [Layout; 2]) {
    let ([n, c], [h, w]) = (draw.absurd_pair(), draw.absurd_pair());
    let [kernel, stride, padding] = [(); 3].map(|()| draw.absurd_pair());
    let pool = Pool2d { kernel, stride, padding };
    let x = Layout::contiguous(FLOAT, [n, c, h, w]);
    let y = pool.windows([h, w]).ok().map(|[h, w]| Layout::contiguous(FLOAT, [n, c, h, w]));
    (pool, [x, y.unwrap_or(x)])
}
