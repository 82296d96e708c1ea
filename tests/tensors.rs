//! Tensors in user code: methods, operators, values, and handles that outlive their runtime.

use crate::common::toy;
use remat::ops::BatchNormParameters;
use remat::prelude::*;
use remat::unstable::ops::MatMul;

fn runtime() -> Runtime {
    Runtime::builder().budget("1MiB").threads(1).cpu().unwrap()
}

#[test]
fn operators_are_methods_and_take_numbers_and_results() {
    let runtime = runtime();
    let a = runtime.tensor(&[2], vec![1.0, 2.0]).unwrap();
    let b = runtime.tensor(&[2], vec![4.0, 8.0]).unwrap();
    let read = |x: Result<Tensor, Error>| x.unwrap().to_vec::<f32>().unwrap();
    assert_eq!(read(&a + &b), [5.0, 10.0]);
    assert_eq!(read(a.clone() - &b), [-3.0, -6.0]);
    assert_eq!(read(&a * b.clone()), [4.0, 16.0]);
    assert_eq!(read(b.clone() / a.clone()), [4.0, 4.0]);
    assert_eq!(read(-&a), [-1.0, -2.0]);
    assert_eq!(read(&a + 1.0), [2.0, 3.0]);
    assert_eq!(read(1.0 - &a), [0.0, -1.0]);
    assert_eq!(read(&b * 0.5), [2.0, 4.0]);
    assert_eq!(read(&b / 2.0), [2.0, 4.0]);
    assert_eq!(read(8.0 / &b), [2.0, 1.0]);
    // The right operand may be a `Result`.
    assert_eq!(read(&a + b.square()), [17.0, 66.0]);
    let wrong = runtime.zeros(&[3]).unwrap();
    let error = (&a + &wrong).unwrap_err().to_string();
    assert!(error.contains("[2]") && error.contains("[3]"), "{error}");
}

#[test]
fn values_are_read_as_what_they_are() {
    let runtime = runtime();
    let x = runtime.tensor(&[2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(x.t().unwrap().to_vec::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
    assert_eq!(x.sum().unwrap().item().unwrap(), 10.0);
    let labels = runtime.tensor(&[3], vec![1, 2, 3]).unwrap();
    assert_eq!(labels.to_vec::<i32>().unwrap(), [1, 2, 3]);
    let error = labels.to_vec::<f32>().unwrap_err().to_string();
    assert!(error.contains("i32[3]") && error.contains("f32"), "{error}");
    let error = x.item().unwrap_err().to_string();
    assert!(error.contains("4 elements"), "{error}");
    assert!(runtime.tensor(&[2], vec![1.0]).is_err());
    assert!(runtime.tensor(&[1; 256], vec![1.0]).is_err(), "more dimensions than there are");
}

#[test]
fn a_handle_does_not_keep_its_runtime_alive() {
    let runtime = runtime();
    let mut x = runtime.ones(&[2]).unwrap();
    let y = x.clone();
    let tape = Tape::new(&runtime);
    tape.watch(&mut x);
    let kept = x.relu().unwrap();
    drop(tape);
    drop(runtime);
    for gone in
        [x.relu().map(drop), (&x + &y).map(drop), x.to_vec::<f32>().map(drop), x.replace(&y)]
    {
        let error = gone.unwrap_err();
        assert!(matches!(error, Error::Runtime(_)), "{error:?}");
        assert!(error.to_string().contains("dropped"), "{error}");
    }
    assert_eq!(kept.shape(), [2]);
}

#[test]
fn tensors_of_two_runtimes_do_not_mix() {
    let (one, other) = (runtime(), runtime());
    let (x, y) = (one.ones(&[2]).unwrap(), other.ones(&[2]).unwrap());
    let error = (&x + &y).unwrap_err();
    assert!(matches!(error, Error::Handle(_)), "{error:?}");
}

#[test]
fn detached_tensors_and_earlier_clones_are_not_watched() {
    let runtime = runtime();
    let mut x = runtime.tensor(&[], vec![3.0]).unwrap();
    let before = x.clone();
    let tape = Tape::new(&runtime);
    tape.watch(&mut x);
    let beside = (&x.detach() * 5.0).unwrap() + (&before * 7.0);
    let loss = (x.square().unwrap() + beside).unwrap();
    let gradients = tape.backward(&loss).unwrap();
    assert_eq!(gradients.get(&x).unwrap().item().unwrap(), 6.0);
    // After its backward pass, a tape watches no tensor any more.
    let tape = Tape::new(&runtime);
    let error = tape.backward(&x.square().unwrap()).unwrap_err().to_string();
    assert!(error.contains("no tensor is watched"), "{error}");
}

#[test]
fn two_tapes_do_not_mix() {
    let runtime = runtime();
    let mut x = runtime.ones(&[2]).unwrap();
    let mut y = runtime.ones(&[2]).unwrap();
    let (one, other) = (Tape::new(&runtime), Tape::new(&runtime));
    one.watch(&mut x);
    other.watch(&mut y);
    let error = (&x * &y).unwrap_err().to_string();
    assert!(error.contains("different tapes") && error.contains("detach"), "{error}");
    let loss = (&x * &y.detach()).unwrap().sum().unwrap();
    assert!(one.backward(&loss).unwrap().get(&x).is_some());
}

/// Methods of `Tensor` pack operands if the op needs contiguous operands. `Runtime::apply` refuses
/// operands that are not contiguous.
#[test]
fn methods_pack_what_must_be_contiguous() {
    let runtime = runtime();
    let turned = runtime.normal(&[3, 2], 0.0, 1.0).unwrap().t().unwrap();
    let packed = turned.contiguous().unwrap();
    let read = |x: Result<Tensor, Error>| x.unwrap().to_vec::<f32>().unwrap();
    assert_eq!(read(turned.softmax()), read(packed.softmax()));
    assert_eq!(read(turned.reshape(&[6])), read(packed.reshape(&[6])));
    let c = runtime.ones(&[3]).unwrap();
    let with = BatchNormParameters { gamma: &c, beta: &c, running_mean: &c, running_var: &c };
    let normal = |x: &Tensor| x.batch_norm(&with, 0.1, 1e-5).map(|new| new.y);
    assert_eq!(read(normal(&turned)), read(normal(&packed)));
    let error = runtime.apply(remat::unstable::ops::Softmax, &[&turned]).unwrap_err().to_string();
    assert!(error.contains("expected contiguous"), "{error}");
    assert!(runtime.apply(MatMul, &[&turned, &turned.t().unwrap()]).is_ok());
}

/// On a runtime with ops of another type, the methods of a tensor return an error that says so.
#[test]
fn a_runtime_with_ops_of_its_own_says_that_its_tensors_have_no_methods() {
    let runtime = toy::runtime(1 << 20, &std::sync::Arc::default());
    let x = runtime.put(toy::Bytes(vec![1; 8])).unwrap();
    let error = x.relu().unwrap_err().to_string();
    assert!(
        error.contains("does not use the ops of remat") && error.contains("Runtime::apply"),
        "{error}"
    );
}
