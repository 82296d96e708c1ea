//! Sizes of a convolution, from the layouts of its operands.

use super::Conv2d;
use crate::device::conv_shape::ConvShape;
use crate::layout::Layout;

impl Conv2d {
    /// Sizes of the convolution of `x`.
    pub(super) fn shape(&self, x: &Layout, weight: &Layout) -> ConvShape {
        let [n, c_in, h, w] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
        let [c_out, kh, kw] = [0, 2, 3].map(|axis| weight.shape()[axis]);
        let Self { stride, padding, groups, .. } = *self;
        // A stride that is longer than the padded image gives one window, like a stride as long as
        // the padded image. Limit the stride, so that arithmetic does not overflow.
        let [down, across] = [(stride[0], h, padding[0]), (stride[1], w, padding[1])]
            .map(|(stride, size, padding)| stride.min(size + 2 * padding));
        // A kernel of one element gives the same result for any dilation, so use 1.
        let apart = |i: usize, taps: usize| if taps > 1 { self.dilation[i] } else { 1 };
        let dilation = [apart(0, kh), apart(1, kw)];
        let stride = [down, across];
        ConvShape { n, c_in, h, w, c_out, kh, kw, stride, padding, dilation, groups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::DType;

    fn shape(conv: Conv2d, shapes: [[usize; 4]; 2]) -> ConvShape {
        let [x, weight] = shapes.map(|shape| Layout::contiguous(DType::F32, shape));
        conv.shape(&x, &weight)
    }

    #[test]
    fn a_convolution_has_the_sizes_of_its_operands() {
        let conv = Conv2d { dilation: [2, 3], groups: 1, ..Conv2d::new([2, 1], [1, 0]) };
        let (n, c_in, h, w, c_out, kh, kw) = (5, 3, 8, 9, 4, 3, 2);
        let Conv2d { stride, padding, dilation, groups } = conv;
        let expected =
            ConvShape { n, c_in, h, w, c_out, kh, kw, stride, padding, dilation, groups };
        assert_eq!(shape(conv, [[5, 3, 8, 9], [4, 3, 3, 2]]), expected);
        assert_eq!([expected.h_out(), expected.w_out()], [3, 6]);
        // Along a dimension of one kernel element, the dilation becomes 1.
        assert_eq!(shape(conv, [[5, 3, 8, 9], [4, 3, 1, 2]]).dilation, [1, 3]);
        // A stride that is longer than the image leaves one window.
        let far = Conv2d { stride: [usize::MAX, 11], ..conv };
        assert_eq!(shape(far, [[5, 3, 8, 9], [4, 3, 3, 2]]).stride, [10, 9]);
    }

    #[test]
    fn a_group_has_its_share_of_the_channels() {
        let conv = Conv2d { groups: 3, ..Conv2d::default() };
        let all = shape(conv, [[5, 6, 8, 9], [12, 2, 3, 2]]);
        assert_eq!([all.c_in, all.c_out, all.weight_len()], [6, 12, 12 * 2 * 3 * 2]);
        let one = all.one_group();
        assert_eq!([one.c_in, one.c_out, one.groups], [2, 4, 1]);
        assert_eq!(3 * one.weight_len(), all.weight_len());
    }

    #[test]
    fn a_convolution_without_an_operand_is_empty() {
        let conv = Conv2d::default();
        let empty = |x, weight| shape(conv, [x, weight]).is_empty();
        assert!(!empty([1, 1, 3, 3], [1, 1, 3, 3]));
        assert!(empty([0, 1, 3, 3], [1, 1, 3, 3]));
        assert!(empty([1, 0, 3, 3], [1, 0, 3, 3]));
        assert!(empty([1, 1, 3, 3], [0, 1, 3, 3]));
        assert!(empty([1, 1, 2, 3], [1, 1, 3, 3]));
    }
}
