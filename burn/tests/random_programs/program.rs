//! A program as a list of words, each of which is a step: what it does depends on what is there when it runs. Any part of a
//! program is one, so that a failing one is made shorter by leaving steps out.

use super::rng::SplitMix64;

/// Numbers that look random, from a word.
#[derive(Clone, Debug)]
pub struct Draw(SplitMix64);

impl Draw {
    pub fn new(word: u64) -> Self {
        Self(SplitMix64::new(word))
    }

    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// From 0 up. Not as `SplitMix64::below` has it, so that a seed stays the program that it was.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// From `first` to `last`.
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

/// What a program is made of.
#[derive(Clone, Debug)]
pub struct Program {
    /// Whether floats are tracked, and steps go backward.
    pub autodiff: bool,
    /// Whether numbers are drawn by the device. Such a program reads others on plain Flex.
    pub random: bool,
    /// Whether steps are marked.
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

    /// Without steps that it fails without, too.
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
