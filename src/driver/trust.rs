//! Whether steps that are foreseen go better than steps that are guessed.
//!
//! Before a step is known it is guessed, so there is something to compare with: what turns of the same commands recomputed
//! then. Where foreseen turns recompute more, the next ones are guessed again, for twice as many turns each time. It counts
//! costs of the cost model, never time, so a run depends on nothing else.

use super::rest::Rest;
use crate::rng::mix;

/// Foreseen turns may recompute so much more than guessed ones, all together, in shares of the work of a turn.
const MOST_LOST: f64 = 0.1;
/// A turn that recomputes so much more is guessed from there.
const MOST_AT_ONCE: f64 = 0.5;
/// A turn that recomputes so many times its work is guessed once, if no such turn was.
const MOST_UNCOMPARED: f64 = 4.0;
/// Turns that are guessed after the first time that foreseeing was worse.
const REST: u32 = 8;
/// Turns that are guessed for something to compare with.
const TRIAL: u32 = 2;
/// Kinds of turns that are known.
const KINDS: usize = 16;
/// A turn of which so many in a hundred commands were foreseen is no guessed one.
const FEW: u64 = 10;

/// Costs of a run so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Costs {
    /// Cost of what ran for the first time.
    pub work: f64,
    /// Cost of what ran again.
    pub again: f64,
    /// Steps that ran by plan: nothing is heard of their commands.
    pub planned: u64,
    /// Bytes of the budget. In another one, turns recompute something else.
    pub budget: u64,
}

/// Turns of one kind.
#[derive(Clone, Copy, Debug)]
struct Compared {
    /// A hash of its commands, and how many there are.
    tokens: u64,
    commands: u64,
    /// Share of its work that the last guessed one recomputed.
    guessed: f64,
    /// Share of its work that the last foreseen one recomputed.
    foreseen: Option<f64>,
}

/// Whether what is foreseen is gone by.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// The latest last.
    kinds: Vec<Compared>,
    /// The turn at hand: where it began, its commands, and how many of them were foreseen. `None` before the first.
    began: Option<Costs>,
    tokens: u64,
    commands: u64,
    foreseen: u64,
    has_failed: bool,
    /// The last turn that was guessed did not fit in memory: none is guessed to recompute less.
    guess_fails: bool,
    /// Commands of that turn.
    too_many: u64,
    /// Whether the turn before was run otherwise: this one begins with what that one left.
    is_first: bool,
    /// Work of the turn before.
    work: f64,
    /// How much more foreseen turns have recomputed than guessed ones; see [`MOST_LOST`].
    lost: f64,
    /// Turns that are guessed, after foreseeing was worse.
    rest: Rest<REST, { 1 << 16 }>,
}

impl Trust {
    /// Whether what is foreseen is gone by.
    pub const fn is_given(&self) -> bool {
        self.rest.is_over()
    }

    /// A command came, and was foreseen or was not.
    pub fn hear(&mut self, token: u64, foreseen: bool) {
        self.tokens = mix(self.tokens, token);
        self.commands += 1;
        self.foreseen += u64::from(foreseen);
    }

    /// Whether the turn at hand has recomputed so much by now that it is better guessed.
    pub fn is_lost(&self, now: Costs) -> bool {
        let Some(began) = self.began else { return false };
        if !self.rest.is_over()
            || self.guess_fails
            || self.foreseen == 0
            || self.kinds.is_empty()
            || began.planned != now.planned
        {
            return false;
        }
        // An evaluation is no measure for a turn that trains.
        let may_be = |kind: &&Compared| kind.commands + kind.commands / 8 >= self.commands;
        let guessed = self.kinds.iter().filter(may_be).map(|kind| kind.guessed);
        let Some(most) = guessed.reduce(f64::max) else { return false };
        let work = self.work.max(now.work - began.work);
        now.again - began.again > (most + MOST_AT_ONCE) * work
    }

    /// A command failed for want of memory, or recomputed more than it may.
    pub fn failed(&mut self) {
        // What the turn recomputes says nothing any more, nor do failures that come of this one.
        self.began = None;
        if std::mem::replace(&mut self.has_failed, true) {
            return;
        }
        self.guess_fails = !self.rest.is_over() || self.is_guessed();
        if self.guess_fails {
            // It is no better then.
            self.rest.end_with_this_turn();
        } else {
            // How often turns were compared before is another matter.
            self.rest.forget();
            self.withdraw();
        }
    }

    /// Whether next to nothing of the turn at hand was foreseen so far.
    const fn is_guessed(&self) -> bool {
        100 * self.foreseen < FEW * self.commands
    }

    /// The turn at hand is over. One that is not `compared` was foreseen in another way than by what usually comes next:
    /// whether that is better is for others to say.
    pub fn turn_is_over(&mut self, now: Costs, compared: bool) {
        let tokens = std::mem::take(&mut self.tokens);
        let (commands, was_guessed) = (self.commands, self.is_guessed());
        let has_failed = std::mem::take(&mut self.has_failed);
        if has_failed && self.guess_fails {
            self.too_many = commands;
        }
        (self.commands, self.foreseen) = (0, 0);
        let began = self.began.replace(now);
        let is_first = std::mem::replace(&mut self.is_first, false);
        if began.is_some_and(|began| began.budget != now.budget) {
            // Nothing is known of this one.
            *self = Self { began: Some(now), ..Self::default() };
            return;
        }
        let began = began.filter(|began| began.planned == now.planned && now.work > began.work);
        if let Some(began) = began {
            self.work = now.work - began.work;
            let share = (now.again - began.again) / self.work;
            if was_guessed {
                self.guessed(tokens, commands, share, is_first);
            } else if self.rest.is_over() && compared {
                self.foreseen(tokens, commands, share, is_first);
            }
        }
        if !self.rest.is_over() {
            self.rest.pass();
            self.is_first |= self.rest.is_over();
        }
    }

    fn guessed(&mut self, tokens: u64, commands: u64, share: f64, is_first: bool) {
        self.guess_fails &= commands + commands / 8 < self.too_many;
        let known = self.kinds.iter().position(|kind| kind.tokens == tokens);
        let known = known.map(|known| self.kinds.remove(known));
        if self.kinds.len() == KINDS {
            self.kinds.remove(0);
        }
        let foreseen = known.and_then(|kind| kind.foreseen);
        let guessed = known.filter(|_| is_first).map_or(share, |kind| kind.guessed);
        self.kinds.push(Compared { tokens, commands, guessed, foreseen });
        if !is_first && foreseen.is_some_and(|foreseen| share > foreseen + MOST_LOST) {
            // It is no better.
            self.rest.end_with_this_turn();
        }
    }

    fn foreseen(&mut self, tokens: u64, commands: u64, share: f64, is_first: bool) {
        let is_near = |kind: &Compared| kind.commands.abs_diff(commands) <= commands / 8;
        let same = self.kinds.iter().position(|kind| kind.tokens == tokens);
        let known = same.or_else(|| self.kinds.iter().rposition(is_near));
        let Some(kind) = known.map(|known| &mut self.kinds[known]) else {
            if share > MOST_UNCOMPARED && !self.guess_fails {
                self.rest.pause(TRIAL + 1);
                self.is_first = true;
            }
            return;
        };
        kind.foreseen = Some(share);
        let more = share - kind.guessed;
        self.lost = (self.lost + if is_first { more / 2.0 } else { more }).max(0.0);
        if self.lost > MOST_LOST && !self.guess_fails {
            self.withdraw();
        }
    }

    /// Turns are guessed for a while from now on.
    pub fn withdraw(&mut self) {
        self.rest.begin_within_a_turn();
        (self.lost, self.is_first) = (0.0, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns one after the other, of which each recomputes so much if it is foreseen and if it is guessed: how many of
    /// the last ones were foreseen, and what was recomputed beside what is least.
    fn run(
        turns: usize,
        foreseen: impl Fn(usize) -> f64,
        guessed: impl Fn(usize) -> f64,
    ) -> (usize, f64) {
        let (mut trust, mut costs) = (Trust::default(), Costs::default());
        let (mut times, mut lost) = (0, 0.0);
        trust.turn_is_over(costs, true);
        for turn in 0..turns {
            // It is known from the third on.
            let goes_by = turn > 1 && trust.is_given();
            let again = if goes_by { foreseen(turn) } else { guessed(turn) };
            for command in 0..10 {
                trust.hear(command, goes_by);
            }
            costs.work += 1.0;
            costs.again += again;
            trust.turn_is_over(costs, true);
            times += usize::from(goes_by);
            lost += again - foreseen(turn).min(guessed(turn));
        }
        (times, lost)
    }

    #[test]
    fn what_recomputes_less_goes_on() {
        for (foreseen, guessed) in [(0.1, 0.2), (0.0, 0.0), (3.0, 3.0), (0.3, 0.3)] {
            assert_eq!(run(1000, |_| foreseen, |_| guessed).0, 998, "{foreseen} {guessed}");
        }
    }

    /// Over a long run it costs next to nothing, however much worse it is.
    #[test]
    fn what_recomputes_more_is_left_for_twice_as_long_each_time() {
        for more in [0.02, 0.1, 0.3, 1.0, 3.0] {
            let (times, lost) = run(2000, |_| 0.2 + more, |_| 0.2);
            assert!(lost <= 10.0 * (more + 2.0 * MOST_LOST), "{more}: {times} times, {lost}");
            assert!(lost > 0.0, "it was tried");
        }
    }

    #[test]
    fn a_turn_that_was_guessed_well_by_accident_is_no_measure_for_long() {
        let guessed = |turn| if turn < 2 { 0.0 } else { 0.5 };
        let (times, lost) = run(1000, |_| 0.2, guessed);
        assert!(times > 950, "{times}");
        assert!(lost < 8.0, "{lost}");
    }

    /// A guess that gets worse is noticed while turns are guessed.
    #[test]
    fn what_is_guessed_is_guessed_no_longer_than_it_is_better() {
        let guessed = |turn| if turn < 2 { 0.1 } else { 9.0 };
        let (times, lost) = run(12, |_| 4.0, guessed);
        assert_eq!((times, lost), (8, 10.0), "two turns, and no more");
    }

    #[test]
    fn a_turn_that_goes_wrong_is_guessed_at_once() {
        let mut trust = Trust::default();
        let costs = |work, again| Costs { work, again, ..Costs::default() };
        trust.turn_is_over(costs(0.0, 0.0), true);
        trust.hear(1, false);
        trust.turn_is_over(costs(1.0, 0.2), true);
        trust.hear(1, true);
        assert!(!trust.is_lost(costs(1.5, 0.8)), "it may vary");
        assert!(trust.is_lost(costs(1.5, 1.0)));
        trust.withdraw();
        assert!(!trust.is_given());
        assert!(!trust.is_lost(costs(1.5, 9.0)), "it is guessed now");
    }

    #[test]
    fn a_failure_ends_what_was_tried() {
        let mut trust = Trust::default();
        trust.failed();
        for _ in 0..=REST {
            assert!(!trust.is_given(), "foreseen, it failed");
            trust.turn_is_over(Costs::default(), true);
        }
        assert!(trust.is_given());
        trust.failed();
        trust.failed();
        for _ in 0..2 {
            trust.turn_is_over(Costs::default(), true);
            assert!(!trust.is_given(), "one failure leads to others");
        }
        trust.failed();
        trust.turn_is_over(Costs::default(), true);
        assert!(trust.is_given(), "guessed, it failed, too");
    }

    /// A step that had run for twenty turns ran out of memory in the next, as that was guessed to recompute less.
    #[test]
    fn what_does_not_fit_when_guessed_is_not_guessed_to_recompute_less() {
        for guess_fits in [true, false] {
            let (mut trust, mut costs) = (Trust::default(), Costs::default());
            let mut guessed = 0;
            trust.turn_is_over(costs, true);
            for turn in 0..50 {
                let goes_by = turn > 1 && trust.is_given();
                (0..10).for_each(|command| trust.hear(command, goes_by));
                if turn == 1 && !guess_fits {
                    trust.failed();
                }
                guessed += usize::from(turn > 1 && !goes_by);
                costs.work += 1.0;
                costs.again += if goes_by { 0.5 } else { 0.1 };
                trust.turn_is_over(costs, true);
            }
            assert_eq!(guessed > 0, guess_fits, "{guessed}");
        }
    }

    #[test]
    fn another_budget_is_another_matter() {
        let mut trust = Trust::default();
        trust.failed();
        for budget in [1, 1, 2] {
            assert!(!trust.is_given());
            trust.turn_is_over(Costs { budget, ..Costs::default() }, true);
        }
        assert!(trust.is_given());
    }
}
