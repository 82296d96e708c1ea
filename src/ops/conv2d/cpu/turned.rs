//! Phases of the gradient of the input, in one dimension. In this file, an *input* is a coordinate
//! of the forward pass's input, and an *output* is a coordinate of the forward pass's output.

/// A phase: the coordinates `origin + q * step` in one dimension. All results at the coordinates of
/// a phase depend on the same kernel elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub origin: usize,
    /// Number of kernel elements of the phase, at least 1.
    pub taps: usize,
    /// Index of the kernel element of tap 0, and the distance from the kernel element of each tap
    /// to that of the next tap.
    pub kernel: (usize, isize),
    /// Source coordinate that tap 0 reads for the coordinate `origin`. Each next tap reads a
    /// coordinate that is larger by `distance`.
    pub first: isize,
    pub distance: usize,
}

impl Phase {
    pub fn kernel_elements(&self) -> impl Iterator<Item = usize> {
        let (first, distance) = self.kernel;
        (0..self.taps).map(move |tap| first.strict_add_signed(tap as isize * distance))
    }
}

/// Phases of the gradient in one dimension. Input `i` *meets* kernel element `k`, through output
/// `o`, if `i + padding = o * stride + k * dilation`. The gradient of input `i` then depends on the
/// gradient of output `o`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turned {
    /// Size of the input.
    len: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    /// Distance between neighbouring kernel elements that one input meets.
    cycle: usize,
    /// Distance between the two outputs through which an input meets two kernel elements that are
    /// `cycle` apart.
    distance: usize,
}

impl Turned {
    pub const fn new(
        len: usize,
        kernel: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
    ) -> Self {
        let common = common_divisor(stride, dilation);
        let (cycle, distance) = (stride / common, dilation / common);
        Self { len, kernel, stride, padding, dilation, cycle, distance }
    }

    /// First input that meets kernel element `k`, if there are at least `stride` inputs.
    fn origin(&self, k: usize) -> usize {
        (k * self.dilation % self.stride + self.stride - self.padding % self.stride) % self.stride
    }

    /// All phases, in the order of the smallest kernel element that a phase meets.
    pub fn each(self) -> impl Iterator<Item = Phase> + Clone {
        let Self { len, kernel, stride, padding, dilation, cycle, distance } = self;
        (0..cycle.min(kernel)).filter_map(move |smallest| {
            let origin = Some(self.origin(smallest)).filter(|&origin| origin < len)?;
            let taps = (kernel - smallest).div_ceil(cycle);
            let nearest = ((origin + padding) as isize - (smallest * dilation) as isize)
                .div_euclid(stride as isize);
            Some(Phase {
                origin,
                taps,
                kernel: (smallest + (taps - 1) * cycle, -(cycle as isize)),
                first: nearest - ((taps - 1) * distance) as isize,
                distance,
            })
        })
    }

    /// Distance between neighbouring outputs in the packed form. The distance divides all distances
    /// between outputs that the taps of a phase read.
    pub const fn apart(&self) -> usize {
        if self.cycle == 1 { self.distance } else { 1 }
    }

    /// Number of taps of all phases together, or an upper bound.
    pub fn taps(&self) -> usize {
        if self.dilation == 1 { self.met_within(self.kernel) } else { self.kernel }
    }

    /// Whether every input is known to belong to a phase. If the function returns false, some
    /// inputs may belong to no phase.
    pub fn covers_all(&self) -> bool {
        self.stride == 1 || self.dilation == 1 && self.count() == self.stride.min(self.len)
    }

    /// Number of phases, for a dilation of 1.
    fn count(&self) -> usize {
        self.met_within(self.kernel.min(self.stride))
    }

    /// Number of the first `elements` kernel elements that some input meets, for a dilation of 1.
    fn met_within(&self, elements: usize) -> usize {
        // Inputs that are a stride apart meet the same kernel elements. Among `n` consecutive
        // kernel elements, the first of which input 0 meets, `met` counts the elements that some
        // input meets.
        let met = |n: usize| {
            n / self.stride * self.len.min(self.stride) + (n % self.stride).min(self.len)
        };
        let skipped = self.origin(0);
        met(skipped + elements) - met(skipped)
    }

    /// First output that the inputs `0..stride` depend on. Also returns the number of outputs from
    /// the first to the last output that the inputs `0..stride` depend on, in steps of
    /// [`apart`](Self::apart). The number is at least 1, even if the inputs depend on no output.
    pub fn met(&self) -> (isize, usize) {
        let Self { len, kernel, stride, padding, dilation, cycle, .. } = *self;
        if cycle == 1 {
            return self.each().next().map_or((0, 1), |only| (only.first, only.taps));
        }
        if dilation == 1 && self.count() == 0 {
            return (0, 1);
        }
        let first = ((kernel - 1) * dilation) as isize - padding as isize;
        let first = -first.div_euclid(stride as isize);
        let last = ((stride.min(len) - 1 + padding) / stride) as isize;
        // With a dilation, `last` may be less than `first`, because the inputs may depend on no
        // output.
        (first, (last - first + 1).max(1) as usize)
    }
}

const fn common_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the phases with all triples of input, output and kernel element that meet.
    #[test]
    fn phases_meet_what_inputs_depend_on() {
        for case in 0..6 * 5 * 6 * 6 * 5 {
            let mut left = case;
            let mut take = |below: usize| {
                let taken = left % below;
                left /= below;
                taken
            };
            let [len, kernel, stride] = [1 + take(6), 1 + take(5), 1 + take(6)];
            let [padding, dilation] = [take(6), 1 + take(5)];
            let turned = Turned::new(len, kernel, stride, padding, dilation);
            let mut expected = Vec::new();
            for i in 0..len {
                for k in 0..kernel {
                    let at = (i + padding) as isize - (k * dilation) as isize;
                    if at % stride as isize == 0 {
                        expected.push((i, at / stride as isize, k));
                    }
                }
            }
            let mut found = Vec::new();
            let (first, count) = turned.met();
            for phase in turned.each() {
                for (q, i) in (phase.origin..len).step_by(stride).enumerate() {
                    for (tap, k) in phase.kernel_elements().enumerate() {
                        let from = phase.first + (tap * phase.distance) as isize;
                        found.push((i, from + q as isize, k));
                        let packed = from - first;
                        assert!(packed >= 0 && packed % turned.apart() as isize == 0, "{turned:?}");
                        assert!(packed as usize / turned.apart() < count, "{turned:?}");
                    }
                }
            }
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{turned:?}");
            let taps = turned.each().map(|phase| phase.taps).sum::<usize>();
            assert!(taps <= turned.taps() && (dilation > 1 || taps == turned.taps()), "{turned:?}");
            let all = (0..len).all(|i| turned.each().any(|phase| i % stride == phase.origin));
            assert!(all || !turned.covers_all(), "{turned:?}");
        }
    }
}
