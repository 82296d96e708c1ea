//! Heap bytes of a loop that runs by plan, or that keeps the loss of each step.

use crate::{alone, counting};
use remat::prelude::*;
use remat::unstable::ops::Accumulate;
use remat::{Plan, PolicyKind};

const POLICIES: [&str; 4] = ["learned", "learned:portfolio", "dtr-eq", "lru"];

/// Runs a step of a small network. Returns the loss.
fn step(rt: &Runtime, weight: &mut Tensor) -> Tensor {
    let x = rt.full(&[4, 16], 0.5).unwrap();
    let tape = Tape::new(rt);
    tape.watch(weight);
    let hidden = x.matmul(weight).unwrap().tanh().unwrap();
    let loss = hidden.mean().unwrap();
    drop((x, hidden));
    let gradients = tape.backward(&loss).unwrap();
    let gradient = gradients.get(weight).unwrap().clone();
    drop(gradients);
    rt.update(Accumulate, &mut [weight], &[&gradient]).unwrap();
    drop(gradient);
    rt.step().unwrap();
    loss
}

#[test]
fn the_heap_grows_with_what_is_held_and_with_nothing_else() {
    alone("kept::the_heap_grows_with_what_is_held_and_with_nothing_else", || {
        for policy in POLICIES {
            for plan in [Plan::Auto, Plan::Off] {
                let name = format!("{policy}, {plan:?}");
                let policy: PolicyKind = policy.parse().unwrap();
                let builder = Runtime::builder().budget("64MiB").threads(1).policy(policy);
                let rt = builder.plan(plan).cpu().unwrap();
                let mut weight = rt.full(&[16, 16], 0.01).unwrap();
                let mut steps = |count: usize| {
                    let kept: Vec<Tensor> = (0..count).map(|_| step(&rt, &mut weight)).collect();
                    rt.sync().unwrap();
                    kept
                };
                // Regression: each step by plan left 8 bytes for each tensor it had made, some 200
                // KiB here.
                drop(steps(50));
                (0..3000).for_each(|_| drop(steps(1)));
                let before = counting::live();
                (0..3000).for_each(|_| drop(steps(1)));
                let grown = counting::live().saturating_sub(before);
                assert!(grown < 64 << 10, "{name}: {grown} bytes in 3000 steps");
                // Each kept loss takes equally many bytes, however many losses are kept.
                let few = steps(2000);
                let with_few = counting::live();
                let more = steps(4000);
                let each = counting::live().saturating_sub(with_few) / 4000;
                assert!(each < 2048, "{name}: {each} bytes for each loss");
                // Dropping the losses frees most of their memory, except slots that are kept for
                // reuse.
                drop((few, more));
                drop(steps(100));
                let left = counting::live().saturating_sub(before) / 6000;
                assert!(left < 1024, "{name}: {left} bytes left of each loss");
            }
        }
    });
}
