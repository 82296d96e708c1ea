//! Comparison of the convolution and its two gradients with plain loops in `f64`, for every
//! instruction set that this processor supports.

use proptest::prelude::*;

use super::simd::Level;
use super::*;
use crate::sync::ThreadPoolBuilder;
use remat_rng::SplitMix64;

const ALL: [Kind; 3] = [Kind::Forward, Kind::GradWeight, Kind::GradInput];

/// Input, weight and output of a convolution. The convolution and its two gradients each compute
/// one of the three tensors from the other two.
#[derive(Clone, Debug)]
struct Operands {
    x: Vec<f32>,
    weight: Vec<f32>,
    y: Vec<f32>,
}

impl Operands {
    /// The two operands that a function reads.
    fn of(&self, kind: Kind) -> [&[f32]; 2] {
        match kind {
            Kind::Forward => [&self.x, &self.weight],
            Kind::GradInput => [&self.y, &self.weight],
            Kind::GradWeight => [&self.x, &self.y],
        }
    }
}

/// Number of elements of the result.
fn len(kind: Kind, shape: &ConvShape) -> usize {
    match kind {
        Kind::Forward => shape.output_len(),
        Kind::GradInput => shape.input_len(),
        Kind::GradWeight => shape.weight_len(),
    }
}

/// Runs a convolution or a gradient, with outputs and workspace that are full of NaN at the start.
/// The workspace has exactly the length that [`workspace_len`] returns.
fn result(kind: Kind, level: Option<Level>, shape: &ConvShape, o: &Operands) -> Vec<f32> {
    let mut out = vec![f32::NAN; len(kind, shape)];
    let mut workspace = vec![f32::NAN; workspace_len(kind, shape)];
    // Empty shapes do not reach the inner loops.
    match level.filter(|_| !shape.is_empty()) {
        None => run(kind, shape, o.of(kind), &mut out, &mut workspace),
        Some(level) => run_at(level, kind, shape, o.of(kind), &mut out, &mut workspace),
    }
    out
}

/// For each element of the result, the exact sum, and the sum of the absolute values of its terms.
fn naive(kind: Kind, s: &ConvShape, o: &Operands) -> Vec<[f64; 2]> {
    let mut sums = vec![[0.0; 2]; len(kind, s)];
    let (h_out, w_out) = (s.h_out(), s.w_out());
    let (c_in_group, c_out_group) = (s.c_in / s.groups, s.c_out / s.groups);
    for_each(&[s.n, s.c_out, h_out, w_out, c_in_group, s.kh, s.kw], |at| {
        let [n, c_out, oh, ow, c_in, kh, kw] = *at else { unreachable!() };
        let Some(ih) = (oh * s.stride[0] + kh * s.dilation[0])
            .checked_sub(s.padding[0])
            .filter(|&ih| ih < s.h)
        else {
            return;
        };
        let Some(iw) = (ow * s.stride[1] + kw * s.dilation[1])
            .checked_sub(s.padding[1])
            .filter(|&iw| iw < s.w)
        else {
            return;
        };
        let channel = c_out / c_out_group * c_in_group + c_in;
        let x = ((n * s.c_in + channel) * s.h + ih) * s.w + iw;
        let weight = ((c_out * c_in_group + c_in) * s.kh + kh) * s.kw + kw;
        let y = ((n * s.c_out + c_out) * h_out + oh) * w_out + ow;
        let (to, a, b) = match kind {
            Kind::Forward => (y, o.x[x], o.weight[weight]),
            Kind::GradInput => (x, o.y[y], o.weight[weight]),
            Kind::GradWeight => (weight, o.x[x], o.y[y]),
        };
        let product = f64::from(a) * f64::from(b);
        sums[to][0] += product;
        sums[to][1] += product.abs();
    });
    sums
}

fn for_each(sizes: &[usize], mut f: impl FnMut(&[usize])) {
    let mut at = vec![0; sizes.len()];
    for _ in 0..sizes.iter().product() {
        f(&at);
        for (at, &size) in at.iter_mut().zip(sizes).rev() {
            *at += 1;
            if *at < size {
                break;
            }
            *at = 0;
        }
    }
}

/// Operands with values between -1 and 1, from a fixed sequence.
fn operands(shape: &ConvShape) -> Operands {
    let mut numbers = SplitMix64::new(1);
    let mut values = |len| (0..len).map(|_| (numbers.unit() * 2.0 - 1.0) as f32).collect();
    Operands {
        x: values(shape.input_len()),
        weight: values(shape.weight_len()),
        y: values(shape.output_len()),
    }
}

fn check(shape: &ConvShape) {
    let o = operands(shape);
    for function in ALL {
        let expected = naive(function, shape, &o);
        for level in Level::available() {
            let got = result(function, Some(level), shape, &o);
            for (i, (got, [sum, magnitude])) in got.iter().zip(&expected).enumerate() {
                let error = (f64::from(*got) - sum).abs();
                // The comparison is false for NaN, so a NaN fails the test.
                assert!(
                    error <= 1e-5 * magnitude,
                    "{function:?} {level:?} {shape:?}: [{i}] is {got}, not {sum}"
                );
            }
        }
    }
}

fn shape(
    n: usize,
    c: [usize; 2],
    hw: [usize; 2],
    k: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
) -> ConvShape {
    ConvShape {
        n,
        c_in: c[0],
        h: hw[0],
        w: hw[1],
        c_out: c[1],
        kh: k[0],
        kw: k[1],
        stride,
        padding,
        dilation: [1, 1],
        groups: 1,
    }
}

/// Compares kernels, strides and paddings that networks use. Some sizes are multiples of the tile
/// size, and some are not.
#[test]
fn common_shapes() {
    for (k, s, p) in
        [(3, 1, 1), (3, 2, 1), (1, 1, 0), (1, 2, 0), (5, 1, 2), (7, 2, 3), (3, 1, 0), (2, 2, 0)]
    {
        for (n, c, hw) in [(2, [3, 16], 32), (3, [16, 20], 16), (9, [9, 3], 8), (1, [33, 17], 7)] {
            check(&shape(n, c, [hw; 2], [k; 2], [s; 2], [p; 2]));
        }
    }
}

/// Compares depthwise convolutions, and convolutions with groups of several channels.
#[test]
fn groups() {
    for (n, groups, c, hw, k, s) in [
        (2, 16, [1, 1], 32, 3, 1),
        (9, 12, [1, 2], 9, 3, 2),
        (1, 32, [2, 3], 14, 1, 1),
        (3, 2, [5, 9], 13, 5, 1),
        (1, 3, [20, 24], 40, 3, 1),
        (40, 5, [3, 1], 8, 3, 1),
    ] {
        let all = shape(n, c.map(|c| c * groups), [hw, hw + 1], [k; 2], [s; 2], [k / 2; 2]);
        check(&ConvShape { groups, ..all });
    }
}

#[test]
fn dilations() {
    for (k, s, p, d) in [(3, 1, 2, 2), (3, 1, 6, 6), (3, 2, 2, 2), (3, 2, 3, 3), (5, 3, 4, 2)] {
        for (n, c, hw) in [(2, [3, 16], 24), (9, [9, 3], 15), (1, [8, 17], 40)] {
            let plain = shape(n, c, [hw, hw - 1], [k; 2], [s; 2], [p; 2]);
            check(&ConvShape { dilation: [d, d], ..plain });
            check(&ConvShape { dilation: [1, d], ..plain });
        }
    }
}

/// Compares shapes with enough rows, channels and images for several strips, groups, blocks and
/// chunks.
#[test]
fn shapes_cut_into_pieces() {
    check(&shape(1, [24, 10], [120, 112], [3, 3], [1, 1], [1, 1]));
    check(&shape(2, [5, 12], [115, 113], [7, 7], [2, 2], [3, 3]));
    check(&shape(70, [40, 9], [8, 8], [3, 3], [1, 1], [1, 1]));
    check(&shape(33, [130, 5], [4, 4], [1, 1], [1, 1], [0, 0]));
}

/// Compares small images with many weights, for which `unfolded.rs` computes several images
/// together.
#[test]
fn small_images() {
    for (n, c, hw, k, s, p, d) in [
        (4, [48, 40], [2, 2], 3, 1, 1, 1),
        (4, [32, 33], [4, 4], 3, 1, 1, 1),
        (33, [64, 32], [2, 3], 3, 1, 1, 1),
        (5, [112, 36], [4, 4], 1, 1, 0, 1),
        (70, [32, 32], [1, 1], 1, 1, 0, 1),
        (3, [36, 50], [8, 6], 2, 2, 0, 1),
        (9, [48, 32], [7, 5], 3, 2, 1, 1),
        (6, [32, 32], [4, 3], 3, 1, 2, 2),
        (2, [96, 32], [4, 4], 5, 1, 2, 1),
        (17, [160, 72], [3, 3], 3, 1, 1, 1),
    ] {
        let shape = ConvShape { dilation: [d; 2], ..shape(n, c, hw, [k; 2], [s; 2], [p; 2]) };
        assert!(Unfolded::of(&shape).is_some(), "{shape:?}");
        check(&shape);
    }
}

#[test]
fn empty_and_tiny_shapes() {
    check(&shape(0, [3, 4], [8, 8], [3, 3], [1, 1], [1, 1]));
    check(&shape(2, [0, 4], [8, 8], [3, 3], [1, 1], [1, 1]));
    check(&shape(2, [3, 0], [8, 8], [3, 3], [1, 1], [1, 1]));
    // The kernel is larger than the padded input: no outputs.
    check(&shape(2, [3, 4], [2, 8], [5, 3], [1, 1], [1, 1]));
    // The input has no rows, but the padding is large enough for outputs.
    check(&shape(2, [3, 4], [0, 5], [3, 3], [1, 1], [2, 2]));
    // Some rows and columns lie outside all windows, and some phases have no kernel elements.
    check(&shape(2, [3, 4], [10, 11], [2, 1], [4, 5], [0, 0]));
    // The padding is larger than the kernel, so some windows contain only padding.
    check(&shape(2, [3, 4], [3, 4], [2, 3], [1, 2], [5, 4]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_shape(
        n in 0..4_usize,
        c in prop::array::uniform2(1..20_usize),
        hw in prop::array::uniform2(0..20_usize),
        k in prop::array::uniform2(1..8_usize),
        stride in prop::array::uniform2(1..4_usize),
        padding in prop::array::uniform2(0..5_usize),
        dilation in prop::array::uniform2(prop_oneof![2 => Just(1), 1 => 2..5_usize]),
        groups in prop_oneof![2 => Just(1), 1 => 2..4_usize],
    ) {
        let c = if groups > 1 { c.map(|c| groups * c.div_ceil(groups)) } else { c };
        check(&ConvShape { dilation, groups, ..shape(n, c, hw, k, stride, padding) });
    }
}

/// Checks that results have the same bits for any number of threads and in every run.
#[test]
fn bits_do_not_depend_on_threads() {
    for s in [
        shape(13, [16, 16], [32, 32], [3, 3], [1, 1], [1, 1]),
        shape(20, [32, 24], [8, 8], [3, 3], [1, 1], [1, 1]),
        shape(5, [16, 32], [32, 32], [3, 3], [2, 2], [1, 1]),
        shape(1, [64, 40], [14, 14], [1, 1], [1, 1], [0, 0]),
        shape(21, [64, 40], [4, 4], [3, 3], [1, 1], [1, 1]),
        ConvShape { groups: 30, ..shape(5, [30, 30], [14, 14], [3, 3], [1, 1], [1, 1]) },
        ConvShape {
            groups: 2,
            dilation: [2, 3],
            ..shape(9, [32, 10], [20, 20], [3, 3], [2, 1], [2, 3])
        },
    ] {
        let o = operands(&s);
        for function in ALL {
            let runs = [1, 2, 3, 2].map(|threads| {
                let pool =
                    ThreadPoolBuilder::new().num_threads(threads).build().expect("a thread pool");
                let out = pool.install(|| result(function, None, &s, &o));
                out.into_iter().map(f32::to_bits).collect::<Vec<_>>()
            });
            assert!(runs.iter().all(|run| *run == runs[0]), "{function:?} {s:?}");
        }
    }
}

/// Checks that an infinity in an image affects exactly the results that depend on it, and that
/// unused vector lanes affect no result.
#[test]
fn infinities_stay_local() {
    let s = shape(2, [3, 5], [7, 7], [3, 3], [1, 1], [1, 1]);
    let mut o = operands(&s);
    o.x[5] = f32::INFINITY;
    for function in ALL {
        if function == Kind::GradInput {
            o.y[20] = f32::INFINITY;
        }
        let expected = naive(function, &s, &o);
        for level in Level::available() {
            let got = result(function, Some(level), &s, &o);
            for (got, [_, magnitude]) in got.iter().zip(&expected) {
                assert_eq!(got.is_finite(), magnitude.is_finite(), "{function:?} {level:?}");
            }
        }
    }
}

/// Checks that the workspace is much smaller than all windows of a batch, and does not grow with
/// the batch.
#[test]
fn workspace_is_modest() {
    let s = |n| shape(n, [16, 16], [32, 32], [3, 3], [1, 1], [1, 1]);
    for function in ALL {
        let share = |n| workspace_len(function, &s(n)) as f64 / s(n).input_len() as f64;
        assert!((16..256).all(|n| share(n) < 0.6), "never near the size of what is read");
        assert_eq!(workspace_len(function, &s(256)), workspace_len(function, &s(1024)));
    }
}

#[test]
#[should_panic(expected = "are needed")]
fn short_workspace_panics() {
    let s = shape(1, [1, 1], [4, 4], [3, 3], [1, 1], [1, 1]);
    let o = operands(&s);
    run(Kind::Forward, &s, [&o.x, &o.weight], &mut vec![0.0; s.output_len()], &mut []);
}
