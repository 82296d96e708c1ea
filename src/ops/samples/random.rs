use super::{Draw, SHAPES, Sample, Sampled};
use crate::layout::{Dims, Layout};
use crate::ops::{Distribution, Op, Random};

impl Sampled for Random {
    fn samples(&self) -> Vec<Sample> {
        let of = |shape: &[usize]| Sample::new(Self { shape: Dims::new(shape), ..*self }, []);
        let mut all: Vec<Sample> = SHAPES.into_iter().map(of).collect();
        let distribution = match self.distribution {
            Distribution::Uniform { .. } => Distribution::Uniform { low: -1.0, high: 2.0 },
            other @ (Distribution::Normal { .. } | Distribution::Bernoulli { .. }) => other,
        };
        let shape = Dims::new(&[100_001]);
        all.push(Sample::new(Self { distribution, shape, key: 3, counter: 4 }, []));
        all
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        let [a, b] = [(); 2].map(|()| draw.float().abs() / 2.0);
        let [key, counter] = [(); 2].map(|()| draw.below(usize::MAX) as u64);
        let distribution = with(self.distribution, a, a + b);
        Sample::new(Self { distribution, shape, key, counter }, [])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let shape = draw.absurd_dims();
        let [a, b] = [(); 2].map(|()| draw.absurd_number());
        let distribution = with(self.distribution, a, b);
        (Self { distribution, shape, key: u64::MAX, counter: u64::MAX }.into(), Vec::new())
    }
}

/// A distribution of the kind of `kind`, with the parameters `a` and `b`.
const fn with(kind: Distribution, a: f32, b: f32) -> Distribution {
    match kind {
        Distribution::Uniform { .. } => Distribution::Uniform { low: a, high: b },
        Distribution::Normal { .. } => Distribution::Normal { mean: a, std: b },
        Distribution::Bernoulli { .. } => Distribution::Bernoulli { p: a },
    }
}
