//! An out-of-memory error names a budget that suffices for the program so far.
//!
//! A loop that starts again with the named budget completes its first step, and mostly the second.
//! After at most one more out-of-memory error, it completes all steps.

use remat::data::Dataset;
use remat::error::PassingBudget;
use remat::evict::Learn;
use remat::nn::{ResNet, mlp, resnet};
use remat::optim::Optimizer;
use remat::prelude::*;
use remat::{Builder, OutOfMemory, PolicyKind, Stats};

/// Training loop, and the call that reports failures to it.
#[derive(Clone, Copy, Debug)]
struct Loop {
    is_deep: bool,
    batch: usize,
    adam: bool,
    /// Whether the loss is read before the step is marked. Otherwise nothing is read, and the loop
    /// waits after the mark.
    reads_loss: bool,
}

impl Loop {
    /// Runs up to `steps` steps. Returns the number of steps done, and the first failure or the
    /// counters.
    fn run(self, runtime: &Runtime, steps: usize) -> (usize, Result<Stats, Error>) {
        let mut done = 0;
        let ran = self.try_run(runtime, steps, &mut done);
        (done, ran.and_then(|()| runtime.stats()))
    }

    fn try_run(self, runtime: &Runtime, steps: usize, done: &mut usize) -> Result<(), Error> {
        let mut network: Box<dyn Module> = match self.is_deep {
            true => Box::new(resnet(runtime, ResNet::Cifar { n: 1 }, 1, [8, 8], 10)?),
            false => Box::new(mlp(runtime, 64, &[96, 96, 96], 10)?),
        };
        let mut optimizer = match self.adam {
            true => Optimizer::adamw(1e-3, 0.01),
            false => Optimizer::sgd(0.1, 0.9, 5e-4),
        };
        let digits = Dataset::digits().train;
        let batch: Vec<usize> = (0..self.batch).map(|i| i % digits.len()).collect();
        while *done < steps {
            let (images, labels) = digits.batch(&batch);
            let (images, labels) = (runtime.put(images)?, runtime.put(labels)?);
            let tape = Tape::new(runtime);
            tape.watch(&mut *network);
            let logits = network.forward(&images, Mode::Train)?;
            let loss = logits.cross_entropy(&labels)?;
            drop((images, labels, logits));
            optimizer.minimize(tape, &loss, &mut *network)?;
            if self.reads_loss {
                loss.item()?;
            }
            drop(loss);
            runtime.step()?;
            runtime.sync()?;
            *done += 1;
        }
        Ok(())
    }
}

fn builder(policy: PolicyKind, budget: u64) -> Builder {
    Runtime::builder().policy(policy).budget(budget)
}

fn out_of_memory(error: Error) -> OutOfMemory {
    match error {
        Error::OutOfMemory(error) => OutOfMemory::clone(&error),
        error => panic!("{error}"),
    }
}

#[test]
fn whoever_takes_the_budget_that_is_named_is_past_the_failure() {
    let learned = PolicyKind::Learned(Learn::Ahead);
    let (mut named, mut raised) = (0, Vec::new());
    for policy in [learned, PolicyKind::Dtr, PolicyKind::None] {
        for (is_deep, batch) in [(true, 4), (true, 32), (false, 16), (false, 512)] {
            for (adam, reads_loss) in [(false, true), (true, false), (true, true)] {
                let of = Loop { is_deep, batch, adam, reads_loss };
                let (_, most) = of.run(&builder(PolicyKind::None, 1 << 40).sim().unwrap(), 3);
                let most = most.unwrap().peak_bytes;
                for percent in [12, 35, 60] {
                    let mut budget = most * percent / 100;
                    let mut raises = 0;
                    loop {
                        let (done, ran) = of.run(&builder(policy, budget).sim().unwrap(), 4);
                        let Err(error) = ran else { break };
                        let report = out_of_memory(error);
                        let what = format!("{of:?} by {policy} in {percent} %, {budget}: {report}");
                        let Some(PassingBudget { bytes, ops }) = report.passing else {
                            // The driver has kept no op yet, so the error names no budget.
                            assert!(done == 0 && report.used < budget / 2, "{what}");
                            budget = budget.max(report.op_needed()) + most / 20;
                            continue;
                        };
                        named += 1;
                        assert!(bytes > budget && ops > 10, "{what}");
                        assert!(bytes <= most + most / 4, "{what}");
                        // With each named budget, the loop completes at least one more step, or the
                        // rest of the first step.
                        raises += 1;
                        assert!(raises <= 2, "{raises} times: {what}");
                        budget = bytes;
                    }
                    raised.push(raises);
                }
            }
        }
    }
    assert!(named > 90, "{named}");
    let once = raised.iter().filter(|raises| **raises == 1).count();
    let twice = raised.iter().filter(|raises| **raises == 2).count();
    assert!(once > 2 * twice, "{once} once, {twice} twice");
}

/// If a loop goes on with a smaller batch after each out-of-memory error, each of these errors
/// names a budget.
#[test]
fn a_loop_that_halves_its_batch_hears_of_budgets_that_fall() {
    let runtime = Runtime::builder().budget("1MiB").sim().unwrap();
    let mut named = Vec::new();
    let mut batch = 4096;
    let passed = loop {
        let of = Loop { is_deep: true, batch, adam: false, reads_loss: true };
        match of.run(&runtime, 1).1 {
            Ok(_) => break batch,
            Err(error) => named.extend(out_of_memory(error).passing.map(|passing| passing.bytes)),
        }
        batch /= 2;
    };
    assert!((1..1024).contains(&passed), "{passed}");
    assert!(named.len() > 2 && named.is_sorted_by(|a, b| a > b), "{named:?}");
}

#[test]
fn a_failure_names_one_budget_however_often_it_is_told() {
    let runtime = Runtime::builder().budget("40KiB").cpu().unwrap();
    let x = runtime.ones(&[1024]).unwrap();
    let all: Vec<_> = (0..12).map(|_| x.sin().unwrap()).collect();
    let refs: Vec<&Tensor> = all.iter().collect();
    let sum = Tensor::concat(&refs, 0).unwrap();
    let lost = sum.exp().unwrap();
    let told = [&sum, &lost, &sum].map(|tensor| out_of_memory(tensor.to_vec::<f32>().unwrap_err()));
    let passing = told[0].passing.expect("a budget is named");
    assert!(told.iter().all(|report| report.passing == Some(passing)));
    let text = told[0].to_string();
    let size = remat::ByteSize(passing.bytes);
    assert!(text.contains(&format!("ops so far pass with {size}")), "{text}");
    assert_eq!(size.to_string().parse(), Ok(size));
}

/// A custom policy cannot be rehearsed.
#[test]
fn without_a_policy_of_the_crate_the_op_alone_is_told_of() {
    #[derive(Debug)]
    struct First;
    impl remat::evict::Policy for First {
        fn score(
            &mut self,
            _: remat::unstable::graph::StorageKey,
            _: remat::evict::View<'_>,
        ) -> f64 {
            0.0
        }
    }
    let of = Loop { is_deep: true, batch: 64, adam: false, reads_loss: true };
    let runtime = Runtime::builder().policy(First).budget("600KiB").sim().unwrap();
    let report = out_of_memory(of.run(&runtime, 2).1.unwrap_err());
    assert_eq!(report.passing, None);
    assert!(report.to_string().ends_with("later ops may need more"), "{report}");
}
