//! Program: a list of random integers, one for each step. The effect of a step depends on the
//! values that exist when the step runs. A program without some of its steps is also a program, so
//! a failing program can be shortened by removing steps.

use remat_rng::SplitMix64;

/// Pseudo-random numbers from an integer.
#[derive(Clone, Debug)]
pub struct Draw(SplitMix64);

impl Draw {
    pub fn new(word: u64) -> Self {
        Self(SplitMix64::new(word))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Number below `end`. Differs from `SplitMix64::below`, so that each seed still gives the same
    /// program as before.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// Number from `first` to `last`, both included.
    pub fn from(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// Random program and its settings.
#[derive(Clone, Debug)]
pub struct Program {
    /// Whether floats are tracked, and some steps compute gradients.
    pub autodiff: bool,
    /// Whether the device draws random numbers. Plain Flex draws other numbers.
    pub random: bool,
    /// Whether ends of steps are marked.
    pub marks: bool,
    pub steps: Vec<u64>,
    /// Whether each step is printed.
    pub told: bool,
}

impl Program {
    pub fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed);
        let (autodiff, random) = (draw.percent(30), draw.percent(15));
        let marks = draw.percent(60);
        let length = draw.from(16, 64);
        let steps = (0..length).map(|_| draw.next()).collect();
        Self { autodiff, random, marks, steps, told: false }
    }

    /// Removes steps without which the program still fails.
    pub fn shrunk(mut self, fails: impl Fn(&Self) -> bool) -> Self {
        let mut length = self.steps.len() / 2;
        while length > 0 {
            let mut at = 0;
            while at < self.steps.len() {
                let mut less = self.clone();
                less.steps.drain(at..(at + length).min(self.steps.len()));
                if fails(&less) {
                    self = less;
                } else {
                    at += length;
                }
            }
            length /= 2;
        }
        self
    }
}
