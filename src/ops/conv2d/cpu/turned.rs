//! The phases of the gradient of the input, in one dimension.

/// In one dimension, the outputs `origin + q * step`, which depend on the same kernel elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub origin: usize,
    /// Number of these kernel elements, at least 1.
    pub taps: usize,
    /// Kernel element of tap 0, and the distance to that of the next tap.
    pub kernel: (usize, isize),
    /// Source coordinate that output 0 reads at tap 0, and the distance to that at the next tap.
    pub first: isize,
    pub distance: usize,
}

impl Phase {
    pub fn kernel_elements(&self) -> impl Iterator<Item = usize> {
        let (first, distance) = self.kernel;
        (0..self.taps).map(move |tap| first.strict_add_signed(tap as isize * distance))
    }
}

/// The phases of a gradient. Input `i` depends on output `o` through kernel element `k`, or *meets* `k`, iff
/// `i + padding = o * stride + k * dilation`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turned {
    /// Size of the input.
    len: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    /// Kernel elements so far apart are met by the same inputs, ...
    cycle: usize,
    /// ... which reach them from outputs so far apart.
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

    /// The first input that meets kernel element `k`, if there were at least as many inputs as the stride.
    fn origin(&self, k: usize) -> usize {
        (k * self.dilation % self.stride + self.stride - self.padding % self.stride) % self.stride
    }

    /// In the order of the smallest kernel element that a phase meets.
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

    /// A distance of outputs that divides all that are between taps of any phases.
    pub const fn apart(&self) -> usize {
        if self.cycle == 1 { self.distance } else { 1 }
    }

    /// At least as many as there are taps in all phases.
    pub fn taps(&self) -> usize {
        if self.dilation == 1 { self.met_within(self.kernel) } else { self.kernel }
    }

    /// Whether each input belongs to a phase, as far as that is plain.
    pub fn covers_all(&self) -> bool {
        self.stride == 1 || self.dilation == 1 && self.count() == self.stride.min(self.len)
    }

    /// Number of phases, without dilation.
    fn count(&self) -> usize {
        self.met_within(self.kernel.min(self.stride))
    }

    /// How many of the first `elements` kernel elements any input meets, without dilation.
    fn met_within(&self, elements: usize) -> usize {
        // Inputs a stride apart meet the same elements. `met` counts those among `n` elements that start with one that
        // input 0 meets.
        let met = |n: usize| {
            n / self.stride * self.len.min(self.stride) + (n % self.stride).min(self.len)
        };
        let skipped = self.origin(0);
        met(skipped + elements) - met(skipped)
    }

    /// The first output that the inputs of the first stride depend on, and the number of outputs [`apart`](Self::apart)
    /// from each other up to the last. At least one, even if they depend on none.
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
        // With a dilation, they may depend on none of these.
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

    /// Against the definition.
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
