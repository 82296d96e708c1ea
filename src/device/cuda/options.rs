//! Options of a CUDA device.

/// Options that select a GPU, and the precision and the library with which it computes.
///
/// ```
/// use remat::device::cuda::Options;
///
/// let second_gpu = Options::default().ordinal(1).tf32(true);
/// assert!(second_gpu.cudnn);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Number of the device; 0 is the first device. The default is 0.
    pub ordinal: usize,
    /// Whether matrix products and convolutions may round their inputs to TF32 (10 bits of
    /// mantissa). From compute capability 8.0 on, TF32 makes products several times faster; on
    /// older GPUs, it has no effect. With or without TF32, a repeated run gives the same bits. TF32
    /// is off by default.
    pub tf32: bool,
    /// Whether cuDNN computes convolutions, if cuDNN is installed. The default is on.
    pub cudnn: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { ordinal: 0, tf32: false, cudnn: true }
    }
}

impl Options {
    /// Sets [`Options::ordinal`](Self#structfield.ordinal).
    #[must_use]
    pub const fn ordinal(mut self, ordinal: usize) -> Self {
        self.ordinal = ordinal;
        self
    }

    /// Sets [`Options::tf32`](Self#structfield.tf32).
    #[must_use]
    pub const fn tf32(mut self, on: bool) -> Self {
        self.tf32 = on;
        self
    }

    /// Sets [`Options::cudnn`](Self#structfield.cudnn).
    #[must_use]
    pub const fn cudnn(mut self, on: bool) -> Self {
        self.cudnn = on;
        self
    }
}
