//! What a byte of memory is worth at each instant.

/// Dual prices: what one more byte at an instant would save of recomputing, in units of cost. 0 where memory is not
/// short.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices(Vec<(u32, f64)>);

impl Prices {
    pub(super) fn new(points: impl Iterator<Item = (u32, f64)>) -> Self {
        Self(points.filter(|(_, price)| *price > 0.0).collect())
    }

    /// The positions of commands whose instants have a price, rising, and their prices: cost per byte.
    pub fn points(&self) -> impl ExactSizeIterator<Item = (usize, f64)> + '_ {
        self.0.iter().map(|&(at, price)| (at as usize, price))
    }

    /// Whether memory is worth something anywhere.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The running sum before each of so many commands, and after the last: what it costs to hold a byte from the start
    /// up to there. A clock that runs fast where memory is scarce.
    #[must_use]
    pub fn clock(&self, commands: usize) -> Vec<f64> {
        let mut clock = Vec::with_capacity(commands + 1);
        let mut points = self.0.iter().peekable();
        let mut sum = 0.0;
        for at in 0..=commands {
            clock.push(sum);
            while let Some((_, price)) = points.next_if(|(point, _)| *point as usize <= at) {
                sum += price;
            }
        }
        clock
    }
}
