//! A loop that keeps the loss of each step, for a plot or for the end of the epoch.

use remat::prelude::*;
use remat::unstable::ops::Accumulate;
use remat::{Plan, PolicyKind};

struct Loop {
    rt: Runtime,
    weight: Tensor,
}

impl Loop {
    fn new(policy: &str, plan: Plan) -> Self {
        let policy: PolicyKind = policy.parse().unwrap();
        let builder = Runtime::builder().budget("64MiB").threads(1).policy(policy).plan(plan);
        let rt = builder.cpu().unwrap();
        let weight = rt.full(&[16, 16], 0.01).unwrap();
        Self { rt, weight }
    }

    fn step(&mut self, number: usize) -> Tensor {
        let x = self.rt.full(&[4, 16], 0.5 + number as f32 / 1024.0).unwrap();
        let tape = Tape::new(&self.rt);
        tape.watch(&mut self.weight);
        let hidden = x.matmul(&self.weight).unwrap().tanh().unwrap();
        let loss = hidden.mean().unwrap();
        drop((x, hidden));
        let gradients = tape.backward(&loss).unwrap();
        let gradient = gradients.get(&self.weight).unwrap().clone();
        drop(gradients);
        self.rt.update(Accumulate, &mut [&mut self.weight], &[&gradient]).unwrap();
        drop(gradient);
        self.rt.step().unwrap();
        loss
    }
}

/// Regression: steps took longer with each kept loss. No step ran by plan, even after the loop
/// stopped keeping losses.
#[test]
fn losses_may_be_kept_and_steps_run_by_plan_beside_them() {
    for policy in ["learned", "learned:portfolio", "dtr-eq", "lru"] {
        for held in [0, 300, 3000] {
            let run = |plan| {
                let mut of = Loop::new(policy, plan);
                let kept: Vec<Tensor> = (0..held).map(|number| of.step(number)).collect();
                // From here on, losses are only logged.
                for number in held..held + 600 {
                    drop(of.step(number));
                }
                let stats = of.rt.stats().unwrap();
                let mut all: Vec<u32> =
                    kept.iter().map(|loss| loss.item().unwrap().to_bits()).collect();
                all.extend(of.weight.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits));
                (all, stats)
            };
            let ((with, planned), (without, plain)) = (run(Plan::Auto), run(Plan::Off));
            assert_eq!(with, without, "{policy}, {held} held");
            assert_eq!((planned.tensors, planned.storages), (plain.tensors, plain.storages));
            let steps = planned.planned_steps;
            assert!(steps > 100 && plain.planned_steps == 0, "{policy}, {held} held: {steps}");
        }
    }
}
