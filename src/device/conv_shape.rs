//! The sizes of a convolution.

/// A convolution or one of its two gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Computes `y` from `x` and `weight`.
    Forward,
    /// Computes `dx` from `dy` and `weight`.
    GradInput,
    /// Computes `dweight` from `x` and `dy`.
    GradWeight,
}

/// Sizes of a 2-D convolution: images are `[n, c, h, w]`, weights `[c_out, c_in / groups, kh, kw]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvShape {
    /// Number of images in the batch.
    pub n: usize,
    /// Number of channels of the input.
    pub c_in: usize,
    /// Number of rows of the input.
    pub h: usize,
    /// Number of columns of the input.
    pub w: usize,
    /// Number of channels of the output.
    pub c_out: usize,
    /// Number of rows of the kernel, at least 1.
    pub kh: usize,
    /// Number of columns of the kernel, at least 1.
    pub kw: usize,
    /// Distance between the windows of two neighbouring outputs, in input rows and columns; at
    /// least 1.
    pub stride: [usize; 2],
    /// Number of zero rows above and below the input, and number of zero columns on the left and on
    /// the right.
    pub padding: [usize; 2],
    /// Distance between two neighbouring kernel elements, in input rows and columns; at least 1.
    pub dilation: [usize; 2],
    /// Number of groups. An output channel reads only the input channels of its own group. The
    /// number is at least 1, and divides both channel counts.
    pub groups: usize,
}

impl ConvShape {
    /// Number of rows of the output; zero if the kernel is larger than the padded input.
    ///
    /// Rows of the padded input that remain after the last window are read by no output.
    #[must_use]
    pub fn h_out(&self) -> usize {
        out(self.h, span(self.kh, self.dilation[0]), self.stride[0], self.padding[0])
    }

    /// Number of columns of the output; zero if the kernel is larger than the padded input.
    #[must_use]
    pub fn w_out(&self) -> usize {
        out(self.w, span(self.kw, self.dilation[1]), self.stride[1], self.padding[1])
    }

    /// Whether the input, the weight or the output has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [self.input_len(), self.weight_len(), self.output_len()].contains(&0)
    }

    /// Number of elements of the input.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.n * self.c_in * self.h * self.w
    }

    /// Number of elements of the weight.
    #[must_use]
    pub fn weight_len(&self) -> usize {
        self.c_out * (self.c_in / self.groups) * self.kh * self.kw
    }

    /// Sizes of the convolution of one group: both channel counts are divided by `groups`.
    #[must_use]
    pub fn one_group(&self) -> Self {
        let Self { c_in, c_out, groups, .. } = *self;
        Self { c_in: c_in / groups, c_out: c_out / groups, groups: 1, ..*self }
    }

    /// Number of elements of the output.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.n * self.c_out * self.h_out() * self.w_out()
    }
}

/// Number of rows or columns from the first to the last element of a kernel; 0 for an empty kernel.
/// The number saturates.
#[must_use]
pub const fn span(kernel: usize, dilation: usize) -> usize {
    if kernel == 0 { 0 } else { (kernel - 1).saturating_mul(dilation).saturating_add(1) }
}

fn out(len: usize, kernel: usize, stride: usize, padding: usize) -> usize {
    (len + 2 * padding).checked_sub(kernel).map_or(0, |last| last / stride + 1)
}
