//! A replacement is reverted if another command fails in its step. The next read of the handle
//! reports the failure, once.

use remat::prelude::*;
use remat::unstable::ops::Accumulate;
use remat::{Error, Plan};

/// End of a step, after the mean was replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// No further op: the step works.
    Nothing,
    /// An op that takes more than the budget, and whose output is not used.
    Fails,
}

struct Program {
    runtime: Runtime,
    mean: Tensor,
    other: Tensor,
}

impl Program {
    fn new(plan: Plan) -> Result<Self, Error> {
        let runtime = Runtime::builder().budget("64KiB").threads(1).plan(plan).cpu()?;
        let (mean, other) = (runtime.zeros(&[16])?, runtime.full(&[4], 7.0)?);
        runtime.commit(&mean)?;
        runtime.commit(&other)?;
        Ok(Self { runtime, mean, other })
    }

    fn step(&mut self, number: usize, then: Then) -> Result<(), Error> {
        let x = self.runtime.full(&[16, 16], number as f32)?;
        let new = x.mean_along(&[0], false)?;
        self.mean.replace(&new)?;
        drop(new);
        if then == Then::Fails {
            drop(x.reshape(&[256, 1])?.broadcast(&[256, 1 << 12])?.contiguous()?);
        }
        drop(x);
        self.runtime.step()
    }

    fn read(&self) -> Result<f32, Error> {
        Ok(self.mean.to_vec::<f32>()?[0])
    }
}

fn is_told(read: Result<f32, Error>) -> bool {
    matches!(read, Err(Error::OutOfMemory(_)))
}

/// Checks programs with several numbers of successful steps, followed by several numbers of failing
/// steps, with plans and without.
fn each(mut check: impl FnMut(Program, f32, usize)) {
    for plan in [Plan::Off, Plan::Auto] {
        for worked in [0, 1, 2, 12] {
            for failed in [1, 2, 3, 70] {
                let mut program = Program::new(plan).unwrap();
                for number in 1..=worked {
                    program.step(number, Then::Nothing).unwrap();
                }
                for number in worked + 1..=worked + failed {
                    program.step(number, Then::Fails).unwrap();
                }
                check(program, worked as f32, worked + failed);
            }
        }
    }
}

#[test]
fn the_next_read_of_what_was_taken_back_says_why_once() {
    each(|program, before, _| {
        assert_eq!(program.other.to_vec::<f32>().unwrap(), [7.0; 4], "another value is as it was");
        assert!(is_told(program.read()), "{before}");
        assert_eq!(program.read().unwrap(), before);
        assert_eq!(program.read().unwrap(), before);
    });
}

#[test]
fn a_replacement_or_an_update_that_works_clears_it() {
    each(|mut program, _, steps| {
        program.step(steps + 1, Then::Nothing).unwrap();
        assert_eq!(program.read().unwrap(), (steps + 1) as f32);
    });
    each(|mut program, before, _| {
        let one = program.runtime.ones(&[16]).unwrap();
        program.runtime.update(Accumulate, &mut [&mut program.mean], &[&one]).unwrap();
        assert_eq!(program.read().unwrap(), before + 1.0);
    });
}

#[test]
fn who_was_told_otherwise_is_not_told_again() {
    each(|program, before, _| {
        while program.runtime.sync().is_err() {}
        assert_eq!(program.read().unwrap(), before);
    });
}

#[test]
fn ops_on_a_reverted_value_are_lost_until_its_failure_was_read() {
    each(|program, before, _| {
        let doubled = program.mean.add(&program.mean).unwrap();
        let row = program.mean.reshape(&[1, 16]).unwrap();
        let copy = program.mean.clone();
        assert!(is_told(doubled.to_vec::<f32>().map(|x| x[0])));
        assert!(is_told(doubled.to_vec::<f32>().map(|x| x[0])), "lost values say why each time");
        for same in [&row, &copy] {
            assert_eq!(same.to_vec::<f32>().unwrap()[0], before, "it was told");
        }
        let again = program.mean.add(&program.mean).unwrap();
        assert_eq!(again.to_vec::<f32>().unwrap()[0], 2.0 * before);
    });
}
