//! Gradients at ties: maxima and minima of equal elements, norms of zeros, and functions that
//! ignore some elements. A small step along a gradient changes the value by at most the change that
//! the gradient predicts.
//!
//! The inputs and methods differ from those of `tests/fixtures`.

use remat::autograd::Tape;
use remat::prelude::*;

type Function = fn(&Tensor) -> Result<Tensor, Error>;
type OfTwo = fn(&Tensor, &Tensor) -> Result<Tensor, Error>;

fn runtime() -> Runtime {
    Runtime::builder().budget("1MiB").threads(1).cpu().unwrap()
}

/// Gradient of the sum of a function's outputs, and the second gradient.
fn gradients(x: &[f32], function: Function) -> Result<[Vec<f32>; 2], Error> {
    let runtime = runtime();
    let mut x = runtime.tensor(&[x.len()], x.to_vec())?;
    let tape = Tape::new(&runtime);
    tape.watch(&mut x);
    let first = tape.backward_with_graph(&function(&x)?.sum()?)?.take(&x).expect("it is watched");
    // Squares are added, so that every function has a second gradient.
    let second = tape.backward(&first.square()?.sum()?.add(&x.square()?.sum()?)?)?;
    Ok([first.to_vec()?, second.get(&x).expect("it is watched").to_vec()?])
}

#[test]
fn equal_extremes_share_the_gradient() -> Result<(), Error> {
    let extremes: [(&str, Function, bool); 6] = [
        ("max", Tensor::max, true),
        ("max_along", |x| x.max_along(&[0], false), true),
        ("max_along, kept", |x| x.max_along(&[0], true), true),
        ("min", Tensor::min, false),
        ("min_along", |x| x.min_along(&[0], false), false),
        (
            "min_along, in a matrix",
            |x| x.reshape(&[1, x.shape()[0]])?.min_along(&[0, 1], true),
            false,
        ),
    ];
    for ties in 1..=5 {
        for others in 0..3 {
            for (name, function, is_max) in extremes {
                let other = if is_max { 1.0 } else { 3.0 };
                let x: Vec<f32> = (0..ties + others)
                    .map(|i| if i % 2 == 0 && i / 2 < ties { 2.0 } else { other })
                    .collect();
                let equal = x.iter().filter(|x| **x == 2.0).count() as f32;
                let [found, _] = gradients(&x, function)?;
                let expected: Vec<f32> =
                    x.iter().map(|&x| if x == 2.0 { 1.0 / equal } else { 0.0 }).collect();
                assert_eq!(found, expected, "{name} of {x:?}");
            }
        }
    }
    Ok(())
}

/// After a relu, all inactive units are 0, so many elements are equal. Adding a number to a whole
/// row adds this number to its maximum.
#[test]
fn a_shift_of_all_elements_shifts_their_maximum_once() -> Result<(), Error> {
    let runtime = runtime();
    for (rows, columns) in [(4, 6), (1, 1), (3, 300), (7, 2)] {
        let mut bias = runtime.zeros(&[1])?;
        let x = runtime.tensor(&[rows, columns], vec![-1.0; rows * columns])?;
        let tape = Tape::new(&runtime);
        tape.watch(&mut bias);
        let y = (x.relu()? + &bias)?.max_along(&[1], false)?.sum()?;
        let found = tape.backward(&y)?.get(&bias).unwrap().to_vec::<f32>()?[0];
        let error = (found - rows as f32).abs();
        assert!(error < 1e-5 * rows as f32, "{rows} rows of {columns}: {found}");
    }
    Ok(())
}

#[test]
fn a_larger_of_two_equals_is_half_of_either() -> Result<(), Error> {
    let runtime = runtime();
    let functions: [OfTwo; 2] = [Tensor::maximum, Tensor::minimum];
    for (i, function) in functions.into_iter().enumerate() {
        let mut a = runtime.tensor(&[4], vec![1.0, 2.0, 4.0, 0.0])?;
        let mut b = runtime.tensor(&[4], vec![1.0, 3.0, 3.0, -0.0])?;
        let tape = Tape::new(&runtime);
        tape.watch(&mut a);
        tape.watch(&mut b);
        let found = tape.backward(&function(&a, &b)?.sum()?)?;
        let [of_a, of_b] = [&a, &b].map(|x| found.get(x).unwrap().to_vec::<f32>());
        let larger = [vec![0.5, 0.0, 1.0, 0.5], vec![0.5, 1.0, 0.0, 0.5]];
        let expected =
            if i == 0 { larger } else { [vec![0.5, 1.0, 0.0, 0.5], vec![0.5, 0.0, 1.0, 0.5]] };
        assert_eq!([of_a?, of_b?], expected);
    }
    Ok(())
}

#[test]
fn norms_and_deviations_are_flat_where_they_are_0() -> Result<(), Error> {
    let functions: [(&str, Function); 6] = [
        ("norm", Tensor::norm),
        ("norm_of", |x| Tensor::norm_of(&[x, &x.affine(3.0, 0.0)?])),
        ("std", |x| x.std_along(&[0], 0, false)),
        ("std of a sample", |x| x.std_along(&[0], 1, true)),
        ("norm of what is 0 anyway", |x| x.sub(x)?.norm()),
        ("clipped", |x| Ok(Tensor::clip_by_norm(&[x], 1.0)?.1)),
    ];
    for n in [2, 3, 70] {
        for (name, function) in functions {
            let [first, second] = gradients(&vec![0.0; n], function)?;
            assert_eq!((first, second), (vec![0.0; n], vec![0.0; n]), "{name} of {n} zeros");
        }
        let [first, second] = gradients(&vec![2.5; n], |x| x.std_along(&[0], 1, false))?;
        assert_eq!((first, second), (vec![0.0; n], vec![5.0; n]), "{n} equals");
    }
    // The norms of zeros add nothing to the gradient of another function.
    let [first, _] = gradients(&[0.0; 3], |x| x.norm()? + x.sum()?)?;
    assert_eq!(first, [1.0; 3]);
    let [first, _] = gradients(&[3.0, 4.0], Tensor::norm)?;
    assert_eq!(first, [0.6, 0.8]);
    Ok(())
}

/// Regression: a norm as a regularizer turned weights that begin at 0 into NaN.
#[test]
fn weights_at_zero_learn_under_a_norm() -> Result<(), Error> {
    let runtime = runtime();
    let mut w = runtime.zeros(&[3])?;
    let target = runtime.tensor(&[3], vec![1.0, -2.0, 0.5])?;
    for _ in 0..60 {
        let tape = Tape::new(&runtime);
        tape.watch(&mut w);
        let loss = (w.mse_loss(&target)? + w.norm()?.affine(0.01, 0.0)?)?;
        let slope = tape.backward(&loss)?.take(&w).expect("it is watched");
        w = (w.detach() - slope.affine(0.1, 0.0)?)?;
    }
    let off = w
        .to_vec::<f32>()?
        .into_iter()
        .zip([1.0, -2.0, 0.5])
        .map(|(w, t): (f32, f32)| (w - t).abs());
    assert!(off.fold(0.0, f32::max) < 0.1, "{:?}", w.to_vec::<f32>()?);
    Ok(())
}

/// Elements that a function ignores get no gradient, even if the gradient of the function's output
/// is infinite.
#[test]
fn an_infinite_gradient_stops_where_an_element_is_left_out() -> Result<(), Error> {
    let functions: [(&str, Function); 5] = [
        ("clamp", |x| x.clamp(0.0, f32::INFINITY)?.sqrt()),
        ("relu", |x| x.relu()?.sqrt()),
        ("maximum", |x| x.maximum(&x.affine(0.0, 0.0)?.detach())?.sqrt()),
        ("minimum", |x| x.neg()?.minimum(&x.affine(0.0, 0.0)?.detach())?.neg()?.sqrt()),
        ("powf", |x| x.clamp(0.0, 9.0)?.powf(0.5)),
    ];
    for (name, function) in functions {
        let [found, _] = gradients(&[-1.0, 4.0, -0.5], function)?;
        assert_eq!(found, [0.0, 0.25, 0.0], "{name}");
    }
    Ok(())
}

/// A sigmoid gives probabilities of exactly 0 and 1 far from 0. Right predictions get no gradient,
/// and wrong predictions get a large one.
#[test]
fn a_saturated_sigmoid_goes_on_learning() -> Result<(), Error> {
    let runtime = runtime();
    let mut p = runtime.tensor(&[4], vec![0.0, 1.0, 0.0, 1.0])?;
    let target = runtime.tensor(&[4], vec![0.0, 1.0, 1.0, 0.0])?;
    let tape = Tape::new(&runtime);
    tape.watch(&mut p);
    let loss = p.binary_cross_entropy(&target)?;
    assert_eq!(loss.item()?, 50.0);
    let found = tape.backward(&loss)?.get(&p).unwrap().to_vec::<f32>()?;
    assert_eq!(found, [0.0, 0.0, -2.5e11, 2.5e11]);

    let mut x = runtime.tensor(&[3], vec![200.0, -200.0, 1.0])?;
    let target = runtime.tensor(&[3], vec![1.0, 0.0, 0.0])?;
    let tape = Tape::new(&runtime);
    tape.watch(&mut x);
    let loss = x.sigmoid()?.binary_cross_entropy(&target)?;
    let found = tape.backward(&loss)?.get(&x).unwrap().to_vec::<f32>()?;
    assert_eq!(found[..2], [0.0, 0.0]);
    assert!((found[2] - 0.731_058_6 / 3.0).abs() < 1e-6, "{found:?}");
    Ok(())
}
