//! An update that fails is skipped. The next read reports the failure, with plans and without, and
//! no later call reports it again. No read returns a wrong value.

use crate::common::{kind, say_nothing_of_what_is_on_purpose};
use remat::device::{DeviceError, cpu};
use remat::nn::{Linear, Sequential};
use remat::ops::{CustomOp, Gradient, Recorded};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::unstable::ops::Accumulate;
use remat::{Layout, Plan};

const STEPS: usize = 80;

/// Fault in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Fails,
    Panics,
    DoesNotFit,
}

const FAULTS: [Fault; 3] = [Fault::Fails, Fault::Panics, Fault::DoesNotFit];

/// How often the loop reads a value or calls `sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Reads,
    Syncs,
    /// Reads in every seventh step.
    Rarely,
}

/// Custom op that passes its input on, and its gradient, unless it has a fault.
#[derive(Debug)]
struct Flaky {
    fault: Option<Fault>,
    in_gradient: bool,
}

impl CustomOp for Flaky {
    fn name(&self) -> &str {
        "flaky"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(vec![Layout::contiguous(DType::F32, *inputs[0].shape())])
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        match self.fault.filter(|_| !self.in_gradient) {
            Some(Fault::Panics) => panic!("on purpose"),
            Some(_) => return Err(DeviceError::new("on purpose")),
            None => {}
        }
        let x: &[f32] = operands.read(0);
        operands.write::<f32>(0).copy_from_slice(x);
        Ok(())
    }

    fn cpu_workspace(&self, _: &[Layout], _: &[Layout]) -> u64 {
        let too_large = !self.in_gradient && self.fault == Some(Fault::DoesNotFit);
        if too_large { 1 << 40 } else { 0 }
    }

    fn gradient(&self, _: &Recorded<'_>) -> Gradient {
        let fault = self.fault.filter(|_| self.in_gradient);
        Gradient::of_one(move |dy| pass(dy, fault, false))
    }
}

/// Applies [`Flaky`], which returns `x` unless the op or its gradient has a fault.
fn pass(x: &Tensor, fault: Option<Fault>, in_gradient: bool) -> Result<Tensor, Error> {
    Ok(Tensor::apply(Flaky { fault, in_gradient }, &[x])?.swap_remove(0))
}

/// Reported failures and values read, each with its step, and the failure that was reported at the
/// end.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    told: Vec<(usize, String)>,
    read: Vec<(usize, u32)>,
    end: Option<String>,
}

impl Heard {
    fn hear(&mut self, step: usize, value: Result<f32, Error>) {
        match value {
            Ok(value) => self.read.push((step, value.to_bits())),
            Err(error) => self.told.push((step, kind(&error))),
        }
    }

    /// Reads or syncs as often as `asks` says.
    fn ask(&mut self, asks: Asks, step: usize, runtime: &Runtime, x: &Tensor) {
        match asks {
            Asks::Reads => self.hear(step, x.item()),
            Asks::Syncs => self.hear(step, runtime.sync().map(|()| 0.0)),
            Asks::Rarely if step % 7 == 6 => self.hear(step, x.item()),
            Asks::Rarely => {}
        }
    }
}

/// Loop that adds a value to a weight in each step. In one step, the value may fail.
fn adds(plan: Plan, fault: Option<(usize, Fault)>, asks: Asks) -> Result<(Heard, u64), Error> {
    let runtime = Runtime::builder().budget("1MiB").threads(1).plan(plan).cpu()?;
    let mut weight = runtime.zeros(&[64])?;
    runtime.commit(&weight)?;
    let one = runtime.ones(&[64])?;
    runtime.commit(&one)?;
    let mut heard = Heard::default();
    for step in 0..STEPS {
        let mean = weight.mean()?;
        heard.ask(asks, step, &runtime, &mean);
        drop(mean);
        let fault = fault.filter(|(at, _)| *at == step).map(|(_, fault)| fault);
        let gradient = match fault {
            // This op fails only because its output is larger than the budget.
            Some(Fault::DoesNotFit) => {
                let huge = runtime.ones(&[1 << 20])?.sin()?;
                huge.slice(0, 0..64)?.contiguous()?
            }
            _ => pass(&one, fault, false)?,
        };
        runtime.update(Accumulate, &mut [&mut weight], &[&gradient])?;
        drop(gradient);
        runtime.step()?;
    }
    heard.end = runtime.sync().err().map(|error| kind(&error));
    Ok((heard, runtime.stats()?.planned_steps))
}

/// The loop of the guide (train/program.md), in which a gradient may fail.
fn trains(plan: Plan, fault: Option<(usize, Fault)>, asks: Asks) -> Result<(Heard, u64), Error> {
    let runtime = Runtime::builder().budget("256KiB").threads(1).plan(plan).cpu()?;
    let mut net = Sequential::new()
        .then("hidden", Linear::new(&runtime, 8, 64)?)
        .then_fn("relu", Tensor::relu)
        .then("out", Linear::new(&runtime, 64, 1)?);
    let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
    let x = runtime.normal(&[128, 8], 0.0, 1.0)?;
    let target = x.mean_along(&[1], true)?;
    runtime.commit(&x)?;
    runtime.commit(&target)?;
    let mut heard = Heard::default();
    for step in 0..STEPS {
        let tape = Tape::new(&runtime);
        tape.watch(&mut net);
        let fault = fault.filter(|(at, _)| *at == step).map(|(_, fault)| fault);
        let y = pass(&net.forward(&x, Mode::Train)?, fault, true)?;
        let loss = y.sub(&target)?.square()?.mean()?;
        heard.ask(asks, step, &runtime, &loss);
        sgd.minimize(tape, &loss, &mut net)?;
        drop(loss);
        runtime.step()?;
    }
    heard.end = runtime.sync().err().map(|error| kind(&error));
    Ok((heard, runtime.stats()?.planned_steps))
}

type Run = fn(Plan, Option<(usize, Fault)>, Asks) -> Result<(Heard, u64), Error>;

#[test]
fn a_skipped_update_is_told_by_the_next_question_with_plans_as_without() {
    say_nothing_of_what_is_on_purpose();
    for run in [adds as Run, trains] {
        for asks in [Asks::Reads, Asks::Syncs, Asks::Rarely] {
            let (sound, planned) = run(Plan::Auto, None, asks).unwrap();
            assert!(sound.told.is_empty() && sound.end.is_none(), "{sound:?}");
            assert!(planned > STEPS as u64 / 2, "{planned}");
            for fault in FAULTS {
                for at in [0, 2, 5, 20, 21, STEPS - 2] {
                    let [off, auto] = [Plan::Off, Plan::Auto]
                        .map(|plan| run(plan, Some((at, fault)), asks).unwrap());
                    let what = format!("{asks:?}, {fault:?} in step {at}");
                    assert_eq!(off.0, auto.0, "{what}");
                    assert!(auto.1 > 0, "{what}: nothing ran by plan");
                    let Heard { told, end, .. } = off.0;
                    // Each failure is reported once.
                    assert_eq!(
                        told.len() + usize::from(end.is_some()),
                        1,
                        "{what}: {told:?} {end:?}"
                    );
                    let is_due = |&(step, _): &(usize, String)| match asks {
                        Asks::Reads | Asks::Syncs => step == at + 1,
                        Asks::Rarely => step > at && step <= at + 7,
                    };
                    assert!(told.iter().all(is_due), "{what}: {told:?}");
                }
            }
        }
    }
}
