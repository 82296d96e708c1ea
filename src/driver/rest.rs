//! Back-off, used by all stages: after a failure, an action is not tried for a number of turns,
//! which doubles with each failure.

/// Number of turns in which an action is not tried: `FIRST` turns after the first failure, twice as
/// many after each further failure, and at most `MOST`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rest<const FIRST: u32, const MOST: u32> {
    /// Number of turns left in the current rest.
    left: u32,
    /// Length of the next rest in turns. If the value is less than `FIRST`, the next rest has
    /// `FIRST` turns.
    next: u32,
}

impl<const FIRST: u32, const MOST: u32> Rest<FIRST, MOST> {
    /// Number of turns left in the current rest.
    pub const fn left(&self) -> u32 {
        self.left
    }

    /// Whether the action may be tried.
    pub const fn is_over(&self) -> bool {
        self.left == 0
    }

    /// Begins a rest after a failed try, twice as long as the last one.
    pub fn begin(&mut self) {
        self.left = self.next.max(FIRST);
        self.next = self.left.saturating_mul(2).min(MOST);
    }

    /// Calls [`begin`](Self::begin) in the middle of a turn. The remainder of that turn is added to
    /// the rest.
    pub fn begin_within_a_turn(&mut self) {
        self.begin();
        self.left += 1;
    }

    /// Rests for `turns` turns. The length of the next rest is unchanged.
    pub const fn pause(&mut self, turns: u32) {
        self.left = turns;
    }

    /// Counts one turn of the rest as passed.
    pub const fn pass(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Ends the rest at once.
    pub const fn end(&mut self) {
        self.left = 0;
    }

    /// Makes the current turn the last of the rest, if there is a rest.
    pub fn end_with_this_turn(&mut self) {
        self.left = self.left.min(1);
    }

    /// Resets the length of the next rest to `FIRST`, after a success.
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
