//! Comparison of turns with predictions for the evictor and turns without.
//!
//! A turn is *foreseen* if the evictor got predictions of its commands, and *guessed* if it got
//! predictions of few commands or none. The first turns of each kind run without predictions, for
//! the comparison. If turns with predictions then recompute more than turns without, a rest begins:
//! a number of turns without predictions. Each further rest takes twice as many turns.
//!
//! A program's first turns often recompute several times as much as its later ones. If recomputation
//! still changed from turn to turn before the first predictions, turns without predictions are tried
//! once more.
//!
//! A turn that recomputes much more than turns of the other sort changes sorts at once, and not only
//! at its end.
//!
//! All costs are in units of the cost model, not in measured time, so that runs are reproducible.

use super::rest::Rest;
use remat_rng::mix;

/// Limit on [`Trust::lost`]: how much more turns with predictions recomputed than turns without, as
/// a multiple of the work of a turn.
const MOST_LOST: f64 = 0.1;
/// Limit on how much more a single turn recomputes than turns of the other sort, as a share of the
/// turn's work. Beyond the limit, a turn with predictions gets no more, and a turn without
/// predictions gets them.
const MOST_AT_ONCE: f64 = 0.5;
/// Recomputation of a turn, in multiples of its work, that starts a trial of turns without
/// predictions, if none is known for comparison.
const MOST_UNCOMPARED: f64 = 4.0;
/// Number of turns in the first rest, which run without predictions after turns with predictions
/// recomputed more.
const REST: u32 = 8;
/// Number of turns of a trial, which run without predictions.
const TRIAL: u32 = 2;
/// Limit on remembered kinds of turns.
const KINDS: usize = 16;
/// Percentage of predicted commands below which a turn counts as a turn without predictions.
const FEW: u64 = 10;

/// Totals of a run so far, in units of the cost model.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Costs {
    /// Cost of first runs.
    pub work: f64,
    /// Cost of reruns.
    pub again: f64,
    /// Number of steps that ran by plan. The recognizer does not receive the commands of steps by
    /// plan.
    pub planned: u64,
    /// Budget in bytes. Recomputation in different budgets is not comparable.
    pub budget: u64,
}

/// Recomputation of turns of one kind, with and without predictions.
#[derive(Clone, Copy, Debug)]
struct Compared {
    /// Hash of the turn's commands, and the number of commands.
    tokens: u64,
    commands: u64,
    /// Recomputation of the last turn without predictions, as a share of the turn's work.
    guessed: f64,
    /// Whether two turns without predictions in a row recomputed about as much, or were tried once
    /// more.
    is_settled: bool,
    /// Recomputation of the last turn with predictions, as a share of the turn's work.
    foreseen: Option<f64>,
}

/// Decides whether the evictor gets predictions.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// Kinds of turns, the latest last.
    kinds: Vec<Compared>,
    /// Totals at the start of the current turn; `None` before the first turn. The next fields have
    /// the hash of the turn's commands, their number, and the number of predicted commands.
    began: Option<Costs>,
    tokens: u64,
    commands: u64,
    foreseen: u64,
    has_failed: bool,
    /// Recomputation of the current turn, as a share of the turn's work, until the turn got
    /// predictions because it recomputed too much without; `None` if this did not happen.
    given_up: Option<f64>,
    /// Whether the last turn without predictions ran out of memory. If true, further turns without
    /// predictions are expected to fail too.
    guess_fails: bool,
    /// Number of commands of the turn without predictions that ran out of memory.
    too_many: u64,
    /// Whether the current turn is the first after the evictor started or stopped getting
    /// predictions. Such a turn counts less, because it begins with storages that the previous turn
    /// left resident.
    is_first: bool,
    /// Work of the previous turn.
    work: f64,
    /// How much more turns with predictions recomputed than turns without, added up, at least 0;
    /// see [`MOST_LOST`].
    lost: f64,
    /// Rest after turns with predictions recomputed more: a number of turns without predictions.
    rest: Rest<REST, { 1 << 16 }>,
}

impl Trust {
    /// Whether the evictor gets predictions.
    pub const fn is_given(&self) -> bool {
        self.rest.is_over()
    }

    /// Notes a command, and whether it was predicted.
    pub fn hear(&mut self, token: u64, foreseen: bool) {
        self.tokens = mix(self.tokens, token);
        self.commands += 1;
        self.foreseen += u64::from(foreseen);
    }

    /// Whether the current turn has recomputed so much that the evictor should get no more
    /// predictions in the turn.
    pub fn is_lost(&self, now: Costs) -> bool {
        self.rest.is_over()
            && self.foreseen > 0
            && !self.guess_fails
            && self.share_far_above(now, |kind| Some(kind.guessed)).is_some()
    }

    /// Ends the rest if the current turn has recomputed far more than turns with predictions.
    /// Returns whether the rest was ended, so that the evictor gets predictions again.
    pub fn gives_up_guessing(&mut self, now: Costs) -> bool {
        if self.rest.is_over() {
            return false;
        }
        self.given_up = self.share_far_above(now, |kind| kind.foreseen);
        if self.given_up.is_some() {
            self.rest.end();
        }
        self.given_up.is_some()
    }

    /// Recomputation of the current turn until now, as a share of the turn's work. `None` if the
    /// share is at most [`MOST_AT_ONCE`] above `earlier`, the share of earlier turns of a kind.
    fn share_far_above(
        &self,
        now: Costs,
        earlier: impl Fn(&Compared) -> Option<f64>,
    ) -> Option<f64> {
        let began = self.began.filter(|began| began.planned == now.planned)?;
        // Leave out kinds with far fewer commands: an evaluation, for example, cannot be compared
        // with a training step.
        let may_be = |kind: &&Compared| kind.commands + kind.commands / 8 >= self.commands;
        let most = self.kinds.iter().filter(may_be).filter_map(earlier).reduce(f64::max)?;
        let work = self.work.max(now.work - began.work);
        let share = (now.again - began.again) / work;
        (share > most + MOST_AT_ONCE).then_some(share)
    }

    /// Notes that a command failed for lack of memory, or exceeded a recompute limit.
    pub fn failed(&mut self) {
        // The totals of the turn can no longer be compared. Only the first failure in a turn
        // counts, because later failures are its consequences.
        self.began = None;
        if std::mem::replace(&mut self.has_failed, true) {
            return;
        }
        self.guess_fails = !self.rest.is_over() || self.is_guessed();
        if self.guess_fails {
            // Turns without predictions fail for lack of memory too, so a rest would not help.
            self.rest.end_with_this_turn();
        } else {
            // The rest after a failure is `REST` turns long, even if earlier rests were longer.
            self.rest.forget();
            self.withdraw();
        }
    }

    /// Whether fewer than `FEW` percent of the current turn's commands were predicted.
    const fn is_guessed(&self) -> bool {
        100 * self.foreseen < FEW * self.commands
    }

    /// Ends the current turn. `compared` is false for a turn that ran by a forecast, because
    /// `Drift` compares turns by forecast.
    pub fn turn_is_over(&mut self, now: Costs, compared: bool) {
        let tokens = std::mem::take(&mut self.tokens);
        let (commands, was_guessed) = (self.commands, self.is_guessed());
        let has_failed = std::mem::take(&mut self.has_failed);
        let given_up = self.given_up.take();
        if has_failed && self.guess_fails {
            self.too_many = commands;
        }
        (self.commands, self.foreseen) = (0, 0);
        let began = self.began.replace(now);
        let is_first = std::mem::replace(&mut self.is_first, false);
        if began.is_some_and(|began| began.budget != now.budget) {
            // The budget has changed. Forget all kinds, because turns in the new budget were not
            // measured yet.
            *self = Self { began: Some(now), ..Self::default() };
            return;
        }
        let began = began.filter(|began| began.planned == now.planned && now.work > began.work);
        if let Some(began) = began {
            self.work = now.work - began.work;
            let share = (now.again - began.again) / self.work;
            if let Some(share) = given_up {
                self.guessed(tokens, commands, share, false);
            } else if was_guessed {
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
        let last = known.map(|kind| kind.guessed);
        let guessed = last.filter(|_| is_first).unwrap_or(share);
        let is_settled = known.is_some_and(|kind| kind.is_settled)
            || !is_first && last.is_some_and(|last| (share - last).abs() <= MOST_LOST);
        self.kinds.push(Compared { tokens, commands, guessed, is_settled, foreseen });
        if !is_first && foreseen.is_some_and(|foreseen| share > foreseen + MOST_LOST) {
            // Turns without predictions do not recompute less than turns with predictions, so end
            // the rest.
            self.rest.end_with_this_turn();
        }
    }

    fn foreseen(&mut self, tokens: u64, commands: u64, share: f64, is_first: bool) {
        let is_near = |kind: &Compared| kind.commands.abs_diff(commands) <= commands / 8;
        let same = self.kinds.iter().position(|kind| kind.tokens == tokens);
        let known = same.or_else(|| self.kinds.iter().rposition(is_near));
        let Some(kind) = known.map(|known| &mut self.kinds[known]) else {
            if share > MOST_UNCOMPARED && !self.guess_fails {
                self.begin_trial();
            }
            return;
        };
        kind.foreseen = Some(share);
        let more = share - kind.guessed;
        self.lost = (self.lost + if is_first { more / 2.0 } else { more }).max(0.0);
        if self.guess_fails {
            return;
        }
        if self.lost > MOST_LOST {
            self.withdraw();
        } else if !is_first && !kind.is_settled && share > MOST_LOST {
            kind.is_settled = true;
            self.begin_trial();
        }
    }

    /// Begins a trial of turns without predictions.
    const fn begin_trial(&mut self) {
        // The turn that ends now counts as the first.
        self.rest.pause(TRIAL + 1);
        self.is_first = true;
    }

    /// Begins a rest, in which the evictor gets no predictions.
    pub fn withdraw(&mut self) {
        self.rest.begin_within_a_turn();
        (self.lost, self.is_first) = (0.0, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates turns whose recomputation with and without predictions is given. Returns how many
    /// turns had predictions, and how much more was recomputed than with the better choice in each
    /// turn.
    fn run(
        turns: usize,
        foreseen: impl Fn(usize) -> f64,
        guessed: impl Fn(usize) -> f64,
    ) -> (usize, f64) {
        let (mut trust, mut costs) = (Trust::default(), Costs::default());
        let (mut times, mut lost) = (0, 0.0);
        trust.turn_is_over(costs, true);
        for turn in 0..turns {
            // Predictions are possible only from the third turn on, when the kind of turn is known.
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
    fn foresight_that_recomputes_no_more_than_guessing_is_kept() {
        for (foreseen, guessed) in [(0.1, 0.2), (0.0, 0.0), (3.0, 3.0), (0.3, 0.3)] {
            assert_eq!(run(1000, |_| foreseen, |_| guessed).0, 998, "{foreseen} {guessed}");
        }
    }

    /// Over a long run, comparing turns with and without predictions costs little, even if turns
    /// with predictions recompute much more.
    #[test]
    fn foresight_that_recomputes_more_rests_twice_as_long_each_time() {
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

    /// Turns without predictions are measured again, if the first of them recomputed much more.
    #[test]
    fn a_first_turn_that_recomputes_much_is_no_measure() {
        let guessed = |turn| if turn < 2 { [4.0, 0.7][turn] } else { 0.37 };
        let (times, lost) = run(1000, |_| 0.4, guessed);
        assert!(times < 30, "{times}");
        assert!(lost < 5.0, "{lost}");
        // If predictions are better, the second comparison is the last one.
        assert_eq!(run(1000, |_| 0.3, guessed).0, 998 - TRIAL as usize);
    }

    /// A rest without predictions ends once turns without predictions recompute more.
    #[test]
    fn guessing_ends_once_it_is_no_longer_better() {
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

    #[test]
    fn a_trial_that_goes_wrong_ends_at_once() {
        let costs = |work, again| Costs { work, again, ..Costs::default() };
        let mut trust = Trust::default();
        trust.turn_is_over(costs(0.0, 0.0), true);
        for (end, foreseen) in [(costs(1.0, 3.0), false), (costs(2.0, 3.2), true)] {
            trust.hear(1, foreseen);
            trust.turn_is_over(end, true);
        }
        assert!(!trust.is_given(), "the guess was measured once, so it is tried again");
        trust.hear(1, false);
        assert!(!trust.gives_up_guessing(costs(2.5, 3.8)), "it may vary");
        assert!(trust.gives_up_guessing(costs(2.5, 4.0)));
        assert!(trust.is_given());
        trust.turn_is_over(costs(3.0, 4.1), true);
        for turn in 3..20 {
            assert!(trust.is_given(), "no second trial: {turn}");
            trust.hear(1, true);
            trust.turn_is_over(costs(f64::from(turn) + 1.0, 4.1 + 0.2 * f64::from(turn)), true);
        }
    }

    /// Regression test: a step ran for twenty turns and then ran out of memory, because turns
    /// without predictions were expected to recompute less.
    #[test]
    fn guessing_that_failed_is_not_expected_to_recompute_less() {
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
