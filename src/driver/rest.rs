//! The one back-off: what came to nothing is not tried for a number of turns, twice as many each time.

/// Turns in which something is not tried: `FIRST` the first time, `MOST` at most.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest<const FIRST: u32, const MOST: u32> {
    /// Turns to come.
    left: u32,
    /// Turns of the next rest, if that is more than `FIRST`.
    next: u32,
}

impl<const FIRST: u32, const MOST: u32> Rest<FIRST, MOST> {
    /// Turns to come.
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Whether it is tried.
    pub const fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Begins a rest, twice as long as the last one: what was tried came to nothing.
    pub fn begin(&mut self) {
        self.left = self.next.max(FIRST);
        self.next = self.left.saturating_mul(2).min(MOST);
    }

    /// [`begin`](Self::begin) in the middle of a turn, which counts as one more.
    pub fn begin_within_a_turn(&mut self) {
        self.begin();
        self.left += 1;
    }

    /// Rests for so many turns. The next rest is as long as it would have been.
    pub const fn pause(&mut self, turns: u32) {
        self.left = turns;
    }

    /// A turn is over.
    pub const fn pass(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// The turn at hand is the last of this rest, if there is one.
    pub fn end_with_this_turn(&mut self) {
        self.left = self.left.min(1);
    }

    /// Makes the next rest as long as the first: what was tried worked.
    pub const fn forget(&mut self) {
        self.next = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rest_is_twice_as_long_as_the_one_before_until_something_works() {
        let mut rest = Rest::<3, 20>::default();
        let mut turns = |forgets: bool| {
            if forgets {
                rest.forget();
            }
            rest.begin();
            let mut turns = 0;
            while !rest.is_over() {
                rest.pass();
                turns += 1;
            }
            turns
        };
        assert_eq!([(); 5].map(|()| turns(false)), [3, 6, 12, 20, 20]);
        assert_eq!([true, false].map(turns), [3, 6]);
        rest.begin_within_a_turn();
        assert_eq!(rest.left(), 13);
        rest.end_with_this_turn();
        assert_eq!(rest.left(), 1);
        rest.pause(5);
        assert_eq!(rest.left(), 5);
        rest.begin();
        assert_eq!(rest.left(), 20);
    }
}
