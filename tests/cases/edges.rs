//! Derivatives at the edges of domains, batches of no example and of one example, and beginners'
//! uses of a tape.

use remat::autograd::Tape;
use remat::nn::{
    BatchNorm2d, Conv2d, Gru, LayerNorm, Linear, Lstm, MultiheadAttention, Sequential, State, join,
    parameters,
};
use remat::optim::Optimizer;
use remat::prelude::*;

fn runtime() -> Runtime {
    Runtime::builder().budget("16MiB").threads(1).seed(1).cpu().unwrap()
}

fn gradient(x: &[f32], function: fn(&Tensor) -> Result<Tensor, Error>) -> Result<Vec<f32>, Error> {
    let runtime = runtime();
    let mut x = runtime.tensor(&[x.len()], x.to_vec())?;
    let tape = Tape::new(&runtime);
    tape.watch(&mut x);
    let y = function(&x)?.sum()?;
    tape.backward(&y)?.get(&x).expect("it is watched").to_vec()
}

#[test]
fn functions_are_as_steep_at_their_edges_as_in_pytorch() -> Result<(), Error> {
    let inf = f32::INFINITY;
    assert_eq!(gradient(&[0.0; 3], Tensor::norm)?, [0.0; 3]);
    assert_eq!(gradient(&[2.0; 3], |x| x.std_along(&[0], 1, false))?, [0.0; 3]);
    assert_eq!(gradient(&[2.0; 3], |x| x.var_along(&[0], 1, false))?, [0.0; 3]);
    assert_eq!(gradient(&[0.0, 1.0, 2.0, 2.0], Tensor::max)?, [0.0, 0.0, 0.5, 0.5]);
    assert_eq!(gradient(&[0.0; 4], Tensor::min)?, [0.25; 4]);
    assert_eq!(gradient(&[0.0, 4.0], Tensor::sqrt)?, [inf, 0.25]);
    assert_eq!(gradient(&[0.0, 4.0], Tensor::log)?, [inf, 0.25]);
    assert_eq!(gradient(&[0.0, -2.0], Tensor::recip)?, [-inf, -0.25]);
    assert_eq!(gradient(&[0.0, -4.0], Tensor::abs)?, [0.0, -1.0]);
    assert_eq!(gradient(&[0.0, -4.0, 1.0], Tensor::relu)?, [0.0, 0.0, 1.0]);
    assert_eq!(gradient(&[0.0, 1.0, 2.0], |x| x.clamp(0.0, 1.0))?, [1.0, 1.0, 0.0]);
    assert_eq!(gradient(&[0.0, 3.0], |x| x.powf(2.0))?, [0.0, 6.0]);
    // One element has no standard deviation of a sample.
    assert!(gradient(&[1.0], |x| x.std_along(&[0], 1, false))?[0].is_nan());
    assert_eq!(gradient(&[1.0], |x| x.std_along(&[0], 0, false))?, [0.0]);
    Ok(())
}

type Make = fn(&Runtime) -> Result<Box<dyn Module>, Error>;

/// Name, maker, and input shapes of a layer, each with its output shape.
type Layer = (&'static str, Make, Vec<[Vec<usize>; 2]>);

fn layers() -> Vec<Layer> {
    let shapes =
        |all: &[[&[usize]; 2]]| all.iter().map(|pair| pair.map(<[usize]>::to_vec)).collect();
    vec![
        (
            "linear",
            |rt| Ok(Box::new(Linear::new(rt, 4, 3)?)),
            shapes(&[[&[0, 4], &[0, 3]], [&[1, 4], &[1, 3]]]),
        ),
        (
            "conv2d",
            |rt| Ok(Box::new(Conv2d::new(rt, 2, 3, 3, 1)?)),
            shapes(&[[&[0, 2, 5, 5], &[0, 3, 5, 5]], [&[1, 2, 1, 1], &[1, 3, 1, 1]]]),
        ),
        (
            "layer_norm",
            |rt| Ok(Box::new(LayerNorm::new(rt, 4)?)),
            shapes(&[[&[0, 4], &[0, 4]], [&[1, 4], &[1, 4]]]),
        ),
        (
            "attention",
            |rt| Ok(Box::new(MultiheadAttention::new(rt, 4, 2)?)),
            shapes(&[[&[0, 3, 4], &[0, 3, 4]], [&[2, 0, 4], &[2, 0, 4]], [&[1, 1, 4], &[1, 1, 4]]]),
        ),
        (
            "pool",
            |rt| {
                let conv = Conv2d::new(rt, 2, 3, 3, 1)?;
                let pool = |x: &Tensor| x.global_avg_pool();
                Ok(Box::new(Sequential::new().then("conv", conv).then_fn("pool", pool)))
            },
            shapes(&[[&[0, 2, 5, 5], &[0, 3]], [&[1, 2, 1, 1], &[1, 3]]]),
        ),
        (
            "gru",
            |rt| Ok(Box::new(Gru::new(rt, 3, 4, 1)?)),
            shapes(&[[&[0, 5, 3], &[0, 5, 4]], [&[1, 1, 3], &[1, 1, 4]]]),
        ),
        (
            "lstm",
            |rt| Ok(Box::new(Lstm::new(rt, 3, 4, 1)?)),
            shapes(&[[&[0, 5, 3], &[0, 5, 4]], [&[1, 1, 3], &[1, 1, 4]]]),
        ),
    ]
}

/// Shape of the output, in a step of training.
fn step(
    runtime: &Runtime,
    layer: &mut dyn Module,
    x: &[usize],
    mode: Mode,
) -> Result<Vec<usize>, Error> {
    let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
    let mut x = runtime.zeros(x)?;
    let tape = Tape::new(runtime);
    tape.watch(&mut *layer);
    tape.watch(&mut x);
    let y = layer.forward(&x, mode)?;
    let loss = y.square()?.sum()?;
    sgd.minimize(tape, &loss, layer)?;
    assert!(loss.item()?.is_finite());
    Ok(y.shape().to_vec())
}

#[test]
fn batches_of_none_and_of_one_go_through_each_layer() -> Result<(), Error> {
    let runtime = runtime();
    for (name, make, shapes) in layers() {
        for [x, y] in shapes {
            for mode in [Mode::Train, Mode::Infer] {
                let mut layer = make(&runtime)?;
                let found = step(&runtime, &mut *layer, &x, mode);
                assert_eq!(
                    found.unwrap_or_else(|e| panic!("{name} {x:?}: {e}")),
                    y,
                    "{name} {x:?}"
                );
                for (of, parameter) in parameters(&mut *layer) {
                    let finite = parameter.to_vec::<f32>()?.iter().all(|x| x.is_finite());
                    assert!(finite, "{name} {x:?} {mode:?}: {of}");
                }
            }
        }
    }
    Ok(())
}

/// The variance of a single value is 0, so the output would not depend on the input.
#[test]
fn batch_norm_wants_two_values_of_each_channel() -> Result<(), Error> {
    let runtime = runtime();
    for (shape, works) in [
        (&[1, 2, 1, 1][..], false),
        (&[1, 2], false),
        (&[1, 2, 1], false),
        (&[0, 2, 5, 5], false),
        (&[3, 2, 0, 5], false),
        (&[2, 2, 1, 1], true),
        (&[1, 2, 1, 2], true),
        (&[2, 2], true),
    ] {
        let mut norm = BatchNorm2d::new(&runtime, 2)?;
        assert_eq!(step(&runtime, &mut norm, shape, Mode::Infer)?, shape);
        let before =
            parameters(&mut norm).map(|(_, p)| p.to_vec::<f32>()).collect::<Result<Vec<_>, _>>()?;
        let found = step(&runtime, &mut norm, shape, Mode::Train);
        if works {
            assert_eq!(found?, shape);
            continue;
        }
        let error = found.expect_err("a value of each channel, or none").to_string();
        let told = format!("{shape:?}");
        assert!(
            error.contains(&told) && error.contains("2 values") && error.contains("Infer"),
            "{error}"
        );
        // The refused batch changed no value, and the next batch succeeds.
        let after =
            parameters(&mut norm).map(|(_, p)| p.to_vec::<f32>()).collect::<Result<Vec<_>, _>>()?;
        assert_eq!(before, after);
        assert_eq!(step(&runtime, &mut norm, &[4, 2, 3, 3], Mode::Train)?, [4, 2, 3, 3]);
    }
    Ok(())
}

#[test]
fn nothing_at_all_has_a_sum_but_no_mean() -> Result<(), Error> {
    let runtime = runtime();
    let none = runtime.zeros(&[0])?;
    assert_eq!(none.sum()?.item()?, 0.0);
    assert_eq!(none.norm()?.item()?, 0.0);
    assert!(none.mean()?.item()?.is_nan());
    let labels = runtime.tensor(&[0], Vec::<i32>::new())?;
    assert!(runtime.zeros(&[0, 3])?.cross_entropy(&labels)?.item()?.is_nan());
    assert!(none.max().unwrap_err().to_string().contains("no elements"));
    let both = Tensor::concat(&[&runtime.zeros(&[0, 2])?, &runtime.ones(&[3, 2])?], 0)?;
    assert_eq!(both.shape(), [3, 2]);
    Ok(())
}

#[test]
fn a_tape_says_what_it_was_not_told() -> Result<(), Error> {
    let runtime = runtime();
    let mut w = runtime.ones(&[2, 2])?;
    let error = |result: Result<_, Error>| result.map(drop).unwrap_err().to_string();

    let tape = Tape::new(&runtime);
    let unwatched = error(tape.backward(&w.matmul(&w)?.sum()?));
    let tape = Tape::new(&runtime);
    tape.watch(&mut w);
    let matrix = error(tape.backward(&w.matmul(&w)?));
    let tape = Tape::new(&runtime);
    tape.watch(&mut w);
    let detached = error(tape.backward(&w.detach().sum()?));
    let tape = Tape::new(&runtime);
    tape.watch(&mut w);
    let y = w.sum()?;
    tape.backward(&y)?;
    let again = error(Tape::new(&runtime).backward(&y));
    for (found, words) in [
        (&unwatched, "watch"),
        (&matrix, "[2, 2]"),
        (&detached, "depends on none"),
        (&again, "watch"),
    ] {
        assert!(found.contains(words), "{found}");
    }
    Ok(())
}

struct Two {
    used: Linear,
    unused: Linear,
}

impl Module for Two {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        self.used.forward(x, mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        self.used.state(&join(prefix, "used"), found);
        self.unused.state(&join(prefix, "unused"), found);
    }
}

#[test]
fn parameters_the_loss_does_not_depend_on_keep_their_values() -> Result<(), Error> {
    let runtime = runtime();
    let mut two = Two { used: Linear::new(&runtime, 2, 2)?, unused: Linear::new(&runtime, 2, 2)? };
    let values = |module: &mut dyn Module| -> Result<Vec<Vec<f32>>, Error> {
        parameters(module).map(|(_, p)| p.to_vec()).collect()
    };
    let before = [values(&mut two.used)?, values(&mut two.unused)?];
    for mut optimizer in
        [Optimizer::sgd(0.1, 0.9, 0.1), Optimizer::adamw(0.1, 0.1), Optimizer::lion(0.1, 0.1)]
    {
        let tape = Tape::new(&runtime);
        tape.watch(&mut two);
        let loss = two.forward(&runtime.ones(&[3, 2])?, Mode::Train)?.square()?.sum()?;
        optimizer.minimize(tape, &loss, &mut two)?;
    }
    assert_ne!(values(&mut two.used)?, before[0]);
    assert_eq!(values(&mut two.unused)?, before[1]);
    Ok(())
}
