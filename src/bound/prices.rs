//! Prices of a byte of memory at each instant.

/// Prices of memory: the recomputation that one more byte at an instant would save, in units of
/// cost. The price is 0 at an instant at which memory is not short.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prices(Vec<(u32, f64)>);

impl Prices {
    pub(super) fn new(points: impl Iterator<Item = (u32, f64)>) -> Self {
        Self(points.filter(|(_, price)| *price > 0.0).collect())
    }

    /// Positions of the commands with a price, in rising order, and their prices in cost per byte.
    pub fn points(&self) -> impl ExactSizeIterator<Item = (usize, f64)> + '_ {
        self.0.iter().map(|&(at, price)| (at as usize, price))
    }

    /// Whether no instant has a price, because memory is never short.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Running sums of the prices. Element `i` is the cost of holding a byte from the start up to
    /// command `i`; the result has `commands + 1` elements. The sums grow fast where memory is
    /// short.
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
