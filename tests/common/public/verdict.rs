//! Checks whether a program read the right values, and whether every failure was reported once.

use super::journal::{Entry, Fate, Journal, Request, fates, lost};
use super::play::{Failure, Heard, Moment, Observed, Part, Played, Value, play};
use super::program::Program;
use super::setup::Setup;
use remat::error::RegenerationError;
use remat::unstable::program::TensorId;
use remat::{Builder, Error, HostTensor, Runtime};
use std::collections::{BTreeMap, HashSet};

/// Program with the values it reads if nothing is evicted and nothing fails.
pub struct Case<'a> {
    program: &'a Program,
    seed: u64,
    plain: Played,
}

/// Failures that may occur in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct May {
    /// Memory may run out.
    pub run_out: bool,
    /// The device may fail on purpose.
    pub break_down: bool,
}

/// Figures of a run, or sums over runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    pub evictions: u64,
    pub recomputed: u64,
    pub compactions: u64,
    /// Regenerations that followed a schedule.
    pub schedules: usize,
    /// Number of updates made in the storage itself, and of updates skipped.
    pub updated: usize,
    pub skipped: usize,
    /// Reported failures, repetitions included.
    pub failures: usize,
    /// Number of values read, of those with several right values, and of reads that failed.
    pub read: usize,
    pub unknown: usize,
    pub unread: usize,
    /// Number of floats read, and of the finite ones among them.
    pub elements: usize,
    pub finite: usize,
    pub refused: usize,
    /// Name of an op -> number of times the program ran it.
    pub ops: BTreeMap<String, u64>,
}

impl Run {
    pub fn add(&mut self, run: &Self) {
        self.evictions += run.evictions;
        self.recomputed += run.recomputed;
        self.compactions += run.compactions;
        self.schedules += run.schedules;
        self.updated += run.updated;
        self.skipped += run.skipped;
        self.failures += run.failures;
        self.read += run.read;
        self.unknown += run.unknown;
        self.unread += run.unread;
        self.elements += run.elements;
        self.finite += run.finite;
        self.refused += run.refused;
        for (op, times) in &run.ops {
            *self.ops.entry(op.clone()).or_default() += times;
        }
    }
}

impl<'a> Case<'a> {
    pub fn new(program: &'a Program, seed: u64) -> Self {
        let runtime = Setup::plenty(seed, 1).builder().cpu().unwrap();
        let plain = play(&runtime, program, Part::Oracle(None), || {});
        Self { program, seed, plain }
    }

    /// Peak bytes of a run without evictions.
    pub fn peak(&self) -> u64 {
        self.plain.stats.peak_bytes
    }

    /// Fails unless a run with another number of threads reads the same values.
    pub fn is_the_same_again(&self, threads: usize) {
        let runtime = Setup::plenty(self.seed, threads).builder().cpu().unwrap();
        let played = play(&runtime, self.program, Part::Oracle(None), || {});
        for (again, plain) in played.observed.iter().zip(&self.plain.observed) {
            agree(again, plain);
        }
    }

    /// Runs the program under `setup`, on the device that `start` opens.
    ///
    /// Fails if a value is wrong, or if a failure is reported never or twice. `calm` is called
    /// before tensors that could not be read are read again.
    pub fn holds(
        &self,
        setup: &Setup,
        may: May,
        start: impl FnOnce(Builder) -> Result<Runtime, Error>,
        calm: impl FnOnce(),
    ) -> (Run, Played) {
        let journal = Journal::new();
        let runtime =
            start(setup.builder().record(journal.clone()).listen(journal.clone())).unwrap();
        let played = play(&runtime, self.program, Part::Subject, calm);
        drop(runtime);
        let entries = journal.take();
        let failures = || played.observed.iter().flat_map(|observed| &observed.failures);
        failures().for_each(|failure| self.excuse(&failure.error, setup, may));
        let failed = entries.iter().any(|entry| matches!(entry, Entry::Failed));
        let missed = failed && failures().next().is_none();
        let forgot = played.observed.iter().any(|observed| observed.forgotten > 0);
        assert!(!missed || forgot, "a failure that nobody heard of");
        let fates: Vec<Vec<Fate>> =
            played.observed.iter().map(|observed| fates(&entries, &observed.requests)).collect();
        let is_plain = |fate: &Fate| matches!(fate, Fate::Made | Fate::Refused);
        let replayed = (!fates.iter().flatten().all(is_plain)).then(|| {
            assert!(failed, "skipped without a reason");
            let runtime = Setup::plenty(self.seed, 1).builder().cpu().unwrap();
            play(&runtime, self.program, Part::Oracle(Some(&fates)), || {})
        });
        let mut run = figures(&played, &entries, &fates);
        for (i, observed) in played.observed.iter().enumerate() {
            let expected = &replayed.as_ref().unwrap_or(&self.plain).observed[i];
            agree(observed, expected);
            run.unknown += unknown(observed, expected);
            all_or_none(&observed.requests, &fates[i], may);
        }
        // With two threads, these checks are omitted, because it would be laborious to find out
        // which thread lost a tensor.
        if let [observed] = &played.observed[..] {
            let lost = lost(&entries);
            nothing_else_is_lost(observed, &lost, may);
            heard_once(&observed.failures, &lost);
        }
        (run, played)
    }

    /// Fails unless an error is allowed in this run and its figures are right.
    fn excuse(&self, error: &Error, setup: &Setup, may: May) {
        let text = error.to_string();
        match error {
            Error::OutOfMemory(e) => {
                assert!(may.run_out || may.break_down, "{text}");
                assert_eq!(e.budget, setup.budget);
                assert_eq!(e.used, e.pinned + e.leaves + e.evictable, "{text}");
                let never = setup.policy == remat::PolicyKind::None;
                assert!(never || e.free + e.evictable < e.wanted, "it could have evicted: {text}");
            }
            Error::Regeneration(e) => match **e {
                RegenerationError::RegenerationLimit { runs, paths, limit } if may.run_out => {
                    assert!(runs > 1 && paths > 0, "{text}");
                    assert!(setup.regeneration_limit.is_none_or(|set| set == limit), "{text}");
                }
                RegenerationError::RecomputeLimit { ratio, limit } if may.run_out => {
                    assert!(setup.recompute_limit == Some(limit) && ratio > limit, "{text}");
                }
                RegenerationError::StepLimit { runs, ops, limit } if may.run_out => {
                    assert!(runs > limit * ops, "{text}");
                }
                RegenerationError::Cancelled if self.program.cancels => {}
                _ => panic!("no reason for this: {text}"),
            },
            Error::Device(_) | Error::Callback(_) if may.break_down => {
                assert!(text.contains("on purpose"), "{text}");
            }
            _ => panic!("no reason for this: {text}"),
        }
    }
}

/// Fails if a value that was read differs from the expected value.
fn agree(observed: &Observed, expected: &Observed) {
    for (moment, value) in &observed.read {
        let Ok(Value::Is(value)) = value else { continue };
        let is = |other: &HostTensor| {
            (value.shape(), value.dtype()) == (other.shape(), other.dtype())
                && value.as_bytes() == other.as_bytes()
        };
        match expected.read[moment].as_ref().expect("the oracle reads everything") {
            Value::Is(expected) => {
                assert!(is(expected), "{moment:?}: {}", difference(value, expected));
            }
            Value::OneOf(all) => {
                assert!(all.iter().any(is), "{moment:?}: {value:?} is none of {all:?}");
            }
            Value::Unknown => {}
        }
    }
}

/// Text about the elements in which two values differ.
fn difference(found: &HostTensor, expected: &HostTensor) -> String {
    let words = |value: &HostTensor| -> Vec<[u8; 4]> {
        value.as_bytes().chunks(4).map(|word| word.try_into().unwrap()).collect()
    };
    let (a, b) = (words(found), words(expected));
    let differ: Vec<usize> = (0..a.len().min(b.len())).filter(|&i| a[i] != b[i]).collect();
    format!(
        "{found:?} where {expected:?} was expected; {} elements differ: {:?}",
        differ.len(),
        &differ[..differ.len().min(10)]
    )
}

fn unknown(observed: &Observed, expected: &Observed) -> usize {
    let is_read = |moment: &&Moment| observed.read[moment].is_ok();
    let is_unknown = |moment: &&Moment| matches!(expected.read[*moment], Ok(Value::Unknown));
    observed.read.keys().filter(is_read).filter(is_unknown).count()
}

/// Fails unless the updates of each group were all made, or none was. A device that failed in the
/// middle is excused.
fn all_or_none(requests: &[Request], fates: &[Fate], may: May) {
    let mut made = BTreeMap::<usize, HashSet<bool>>::new();
    for (request, fate) in requests.iter().zip(fates) {
        if let Request::Update { group, .. } = request {
            made.entry(*group).or_default().insert(*fate == Fate::Made);
        }
    }
    assert!(may.break_down || made.values().all(|fates| fates.len() == 1), "parted: {made:?}");
}

/// Fails if a tensor that cannot be read at the end is neither in `lost` nor excused by a lack of
/// memory.
fn nothing_else_is_lost(observed: &Observed, lost: &HashSet<TensorId>, may: May) {
    for (i, id) in observed.held.iter().enumerate() {
        if let Err(error) = &observed.read[&Moment::AtLast(i)] {
            let for_room = !matches!(error, Error::Device(_) | Error::Callback(_));
            assert!(
                lost.contains(id) || (for_room && may.run_out),
                "number {i} of those held was lost for no reason: {error}"
            );
        }
    }
}

/// Fails if a failure is reported twice. Reads of a tensor that was lost to a failure are excepted,
/// because each of them reports the failure.
fn heard_once(failures: &[Failure], lost: &HashSet<TensorId>) {
    let is_news = |failure: &Failure| match failure.heard {
        Heard::Sync => true,
        Heard::Get(tensor) | Heard::GetLater(tensor) => !lost.contains(&tensor),
    };
    for (i, failure) in failures.iter().enumerate().filter(|(_, failure)| is_news(failure)) {
        let is_late = matches!(failure.heard, Heard::GetLater(_));
        let before = |earlier: &Failure| {
            earlier.error.key() == failure.error.key() && (is_news(earlier) || !is_late)
        };
        assert!(!failures[..i].iter().any(before), "heard of again: {failure:?}");
    }
}

fn figures(played: &Played, entries: &[Entry], fates: &[Vec<Fate>]) -> Run {
    let mut run = Run {
        evictions: played.stats.evictions,
        recomputed: played.stats.recomputed_ops,
        compactions: played.stats.compactions,
        skipped: fates.iter().flatten().filter(|fate| **fate == Fate::Skipped).count(),
        ..Run::default()
    };
    for observed in &played.observed {
        run.failures += observed.failures.len();
        run.refused += observed.refused;
        for value in observed.read.values() {
            let Ok(Value::Is(value)) = value else {
                run.unread += 1;
                continue;
            };
            run.read += 1;
            let numbers = value.as_f32().unwrap_or_default();
            run.elements += numbers.len();
            run.finite += numbers.iter().filter(|x| x.is_finite()).count();
        }
    }
    for entry in entries {
        match entry {
            Entry::Did(command) => {
                for call in command.calls() {
                    *run.ops.entry(call.op.name.to_string()).or_default() += 1;
                    run.updated += usize::from(call.outputs.targets() > 0);
                }
            }
            Entry::Scheduled => run.schedules += 1,
            Entry::Failed => {}
        }
    }
    run
}
