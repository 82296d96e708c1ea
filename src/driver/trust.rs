//! Comparison of turns in which the evictor gets predictions with turns in which it does not.
//!
//! A turn is *foreseen* if the evictor got predictions of its commands, and *guessed* if the
//! evictor got predictions of none or few commands. The first turns of each kind are guessed, and
//! later foreseen turns are compared with the guessed turns. If foreseen turns recompute more than
//! guessed turns, a rest begins: a number of turns is guessed. Each further rest takes twice as
//! many turns.
//!
//! All costs are in units of the cost model, not in measured time, so that runs are reproducible.

use super::rest::Rest;
use remat_rng::mix;

/// Limit on [`Trust::lost`], the recomputation that foreseen turns have in excess of guessed turns,
/// as a multiple of the work of a turn.
const MOST_LOST: f64 = 0.1;
/// Limit on the recomputation that a single turn has in excess of guessed turns, as a share of its
/// work. Beyond the limit, the evictor gets no more predictions in the turn.
const MOST_AT_ONCE: f64 = 0.5;
/// Recomputation of a turn, in multiples of its work, that starts a trial of guessed turns if no
/// guessed turn is known.
const MOST_UNCOMPARED: f64 = 4.0;
/// Number of turns that are guessed after foreseen turns were worse for the first time.
const REST: u32 = 8;
/// Number of turns that are guessed in a trial.
const TRIAL: u32 = 2;
/// Limit on remembered kinds of turns.
const KINDS: usize = 16;
/// A turn counts as guessed if less than this percentage of its commands was foreseen.
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

/// Recomputation of guessed and foreseen turns of one kind.
#[derive(Clone, Copy, Debug)]
struct Compared {
    /// Hash of the turn's commands, and the number of commands.
    tokens: u64,
    commands: u64,
    /// Recomputation of the last guessed turn, as a share of its work.
    guessed: f64,
    /// Recomputation of the last foreseen turn, as a share of its work.
    foreseen: Option<f64>,
}

/// Decides whether the evictor gets predictions.
#[derive(Debug, Default)]
pub(super) struct Trust {
    /// Kinds of turns, the latest last.
    kinds: Vec<Compared>,
    /// The current turn: totals at its start, hash and number of its commands, and the number of
    /// foreseen commands. `began` is `None` before the first turn.
    began: Option<Costs>,
    tokens: u64,
    commands: u64,
    foreseen: u64,
    has_failed: bool,
    /// Whether the last guessed turn ran out of memory. If true, further turns without predictions
    /// are expected to fail too.
    guess_fails: bool,
    /// Number of commands of the guessed turn that ran out of memory.
    too_many: u64,
    /// Whether the current turn is guessed and the previous turn foreseen, or the reverse. The
    /// first turn after the evictor starts or stops getting predictions counts less, because it
    /// begins with storages that the previous turn left resident.
    is_first: bool,
    /// Work of the previous turn.
    work: f64,
    /// Accumulated excess recomputation of foreseen turns over guessed turns, at least 0; see
    /// [`MOST_LOST`].
    lost: f64,
    /// Number of turns still to be guessed after foreseen turns recomputed more.
    rest: Rest<REST, { 1 << 16 }>,
}

impl Trust {
    /// Whether the evictor gets predictions.
    pub const fn is_given(&self) -> bool {
        self.rest.is_over()
    }

    /// Notes a command, and whether it was foreseen.
    pub fn hear(&mut self, token: u64, foreseen: bool) {
        self.tokens = mix(self.tokens, token);
        self.commands += 1;
        self.foreseen += u64::from(foreseen);
    }

    /// Whether the current turn has recomputed so much that the evictor should get no more
    /// predictions in the turn.
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
        // Leave out kinds with far fewer commands: an evaluation, for example, says nothing about a
        // turn of training.
        let may_be = |kind: &&Compared| kind.commands + kind.commands / 8 >= self.commands;
        let guessed = self.kinds.iter().filter(may_be).map(|kind| kind.guessed);
        let Some(most) = guessed.reduce(f64::max) else { return false };
        let work = self.work.max(now.work - began.work);
        now.again - began.again > (most + MOST_AT_ONCE) * work
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
            // Guessed turns fail for lack of memory too, so a rest would not help.
            self.rest.end_with_this_turn();
        } else {
            // The rest after a failure is `REST` turns long, even if foreseen turns were worse
            // several times before.
            self.rest.forget();
            self.withdraw();
        }
    }

    /// Whether fewer than `FEW` percent of the current turn's commands were foreseen.
    const fn is_guessed(&self) -> bool {
        100 * self.foreseen < FEW * self.commands
    }

    /// Ends the current turn. `compared` is false for a turn that ran by a forecast, because
    /// `Drift` compares turns by forecast.
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
            // The budget has changed. Forget all kinds, because turns in the new budget were not
            // measured yet.
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
            // Guessed turns do not recompute less than foreseen turns, so end the rest.
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

    /// Begins a rest, in which the evictor gets no predictions.
    pub fn withdraw(&mut self) {
        self.rest.begin_within_a_turn();
        (self.lost, self.is_first) = (0.0, true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns with given recomputation, foreseen or guessed. Returns how many turns were
    /// foreseen, and the recomputation in excess of the better choice.
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

    /// Over a long run, comparing foreseen with guessed turns costs little, even if foreseen turns
    /// recompute much more.
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

    /// A rest, in which turns are guessed, ends once guessed turns recompute more.
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

    /// Regression test: a step ran for twenty turns and then ran out of memory, because guessed
    /// turns were expected to recompute less.
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
