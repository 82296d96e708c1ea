//! The sizes of a convolution.

/// A convolution or one of its gradients, named by the result.
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
    /// Images in the batch.
    pub n: usize,
    /// Channels of the input.
    pub c_in: usize,
    /// Rows of the input.
    pub h: usize,
    /// Columns of the input.
    pub w: usize,
    /// Channels of the output.
    pub c_out: usize,
    /// Rows of the kernel, at least 1.
    pub kh: usize,
    /// Columns of the kernel, at least 1.
    pub kw: usize,
    /// Input rows and columns between two neighbouring outputs, at least 1.
    pub stride: [usize; 2],
    /// Zero rows above and below, zero columns left and right.
    pub padding: [usize; 2],
    /// Input rows and columns between two neighbouring elements of the kernel, at least 1.
    pub dilation: [usize; 2],
    /// Number of groups. An output channel reads the input channels of its own group only. At least
    /// 1; divides both channel counts.
    pub groups: usize,
}

impl ConvShape {
    /// Rows of the output; zero if the kernel is larger than the padded input.
    ///
    /// Input rows that remain after the last full step are not read by any output.
    #[must_use]
    pub fn h_out(&self) -> usize {
        out(self.h, span(self.kh, self.dilation[0]), self.stride[0], self.padding[0])
    }

    /// Columns of the output; zero if the kernel is larger than the padded input.
    #[must_use]
    pub fn w_out(&self) -> usize {
        out(self.w, span(self.kw, self.dilation[1]), self.stride[1], self.padding[1])
    }

    /// Whether the input, the weight or the output has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [self.input_len(), self.weight_len(), self.output_len()].contains(&0)
    }

    /// Elements of the input.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.n * self.c_in * self.h * self.w
    }

    /// Elements of the weight.
    #[must_use]
    pub fn weight_len(&self) -> usize {
        self.c_out * (self.c_in / self.groups) * self.kh * self.kw
    }

    /// Sizes of one group: channels divided by `groups`.
    #[must_use]
    pub fn one_group(&self) -> Self {
        let Self { c_in, c_out, groups, .. } = *self;
        Self { c_in: c_in / groups, c_out: c_out / groups, groups: 1, ..*self }
    }

    /// Elements of the output.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.n * self.c_out * self.h_out() * self.w_out()
    }
}

/// Rows or columns from the first element of a kernel to the last; 0 for an empty kernel.
/// Saturates.
#[must_use]
pub const fn span(kernel: usize, dilation: usize) -> usize {
    if kernel == 0 { 0 } else { (kernel - 1).saturating_mul(dilation).saturating_add(1) }
}

fn out(len: usize, kernel: usize, stride: usize, padding: usize) -> usize {
    (len + 2 * padding).checked_sub(kernel).map_or(0, |last| last / stride + 1)
}
