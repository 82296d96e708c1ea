//! Custom operations as an extension of Burn sends them: handlers, and whether outputs are evicted.

use burn::backend::Remote;
use burn::tensor::{Tensor, TensorData};
use burn_backend::ops::FloatTensorOps;
use burn_flex::Flex;
use burn_ir::{CustomOpIr, OperationIr, ScalarIr, TensorIr};
use burn_router::RouterClient;
use remat_burn::{Builder, Error, Guard};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sends a custom operation as an extension does for a remote device: `x` times `factor`, and `x`
/// plus `factor`.
fn send(id: &'static str, x: Tensor<1>, factor: f64, outputs: usize) -> Vec<Tensor<1>> {
    let (shape, dtype) = (x.shape(), x.dtype());
    let x = x.try_into_primitive::<Remote>().unwrap();
    let client = x.client.clone();
    let out = |_| TensorIr::uninit(client.create_empty_handle(), shape.clone(), dtype);
    let outputs: Vec<TensorIr> = (0..outputs).map(out).collect();
    let scalars = vec![ScalarIr::Float(factor)];
    let op = CustomOpIr::with_scalars(id, &[x.into_ir()], &outputs, scalars);
    let made = client.register(OperationIr::Custom(op));
    made.into_iter().map(Tensor::from_primitive::<Remote>).collect()
}

fn scale(x: Tensor<1>, factor: f64) -> Tensor<1> {
    send("scale", x, factor, 1).remove(0)
}

/// Number of runs of the handler.
type Runs = Arc<AtomicUsize>;

fn with_scale(budget: u64, pure: bool) -> (Guard, Runs) {
    let runs = Runs::default();
    let count = Arc::clone(&runs);
    let handler = move |handles: &mut burn_ir::HandleContainer<_>,
                        op: &CustomOpIr,
                        _: &burn_flex::FlexDevice| {
        count.fetch_add(1, Ordering::SeqCst);
        let x = handles.get_float_tensor::<Flex>(&op.inputs[0]);
        let scaled = Flex::float_mul_scalar(x.clone(), op.scalars[0].into());
        handles.register_float_tensor::<Flex>(&op.outputs[0].id, scaled);
        if let Some(out) = op.outputs.get(1) {
            let sum = Flex::float_add_scalar(x, op.scalars[0].into());
            handles.register_float_tensor::<Flex>(&out.id, sum);
        }
    };
    let builder = remat_burn::budget(budget);
    let builder = match pure {
        true => builder.pure_custom_op::<Flex>("scale", handler),
        false => builder.custom_op::<Flex>("scale", handler),
    };
    (builder.serve::<Flex>(Default::default()).unwrap(), runs)
}

fn values(x: Tensor<1>) -> Vec<f32> {
    x.into_data().try_to_vec().unwrap()
}

#[test]
fn a_custom_op_runs_on_the_backend() {
    let (device, runs) = with_scale(1 << 20, false);
    let x = Tensor::<1>::from_data([1.0, 2.0, 3.0], &device);
    // Apply the operation to a view, apply it twice, and make two outputs.
    let y = scale(scale(x.clone().flip([0]), 2.0), 0.5);
    assert_eq!(values(y), [3.0, 2.0, 1.0]);
    let two = send("scale", x.clone(), 10.0, 2);
    assert_eq!(two[0].to_data(), TensorData::from([10.0f32, 20.0, 30.0]));
    assert_eq!(two[1].to_data(), TensorData::from([11.0f32, 12.0, 13.0]));
    // The input is unchanged.
    assert_eq!(values(x), [1.0, 2.0, 3.0]);
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    drop(two);
    device.sync().unwrap();
    assert_eq!(device.stats().unwrap().used_bytes, 0);
}

/// Computes results, fills the memory with other values, and reads the results again.
fn squeeze(pure: bool) -> (Result<Vec<f32>, String>, usize, u64) {
    let (device, runs) = with_scale(8 << 10, pure);
    let made: Vec<_> = (0..4).map(|i| scale(Tensor::full([512], i, &device), 3.0)).collect();
    let last = Tensor::<1>::ones([512], &device) + 1.0;
    let last = last.clone() * last;
    let sum = made.into_iter().fold(last, |sum, one| sum + one);
    let read = sum.try_into_data().map_err(|error| error.to_string());
    let evictions = device.stats().unwrap().evictions;
    (read.map(|data| data.try_to_vec().unwrap()), runs.load(Ordering::SeqCst), evictions)
}

#[test]
fn outputs_of_a_pure_custom_op_are_evicted() {
    let (sum, runs, evictions) = squeeze(true);
    assert_eq!(sum.unwrap(), vec![22.0; 512]);
    assert!(runs > 4 && evictions > 0, "{runs} runs, {evictions} evictions");
}

#[test]
fn outputs_of_an_impure_custom_op_are_kept() {
    let (sum, runs, _) = squeeze(false);
    let error = sum.unwrap_err();
    assert!(error.contains("out of memory: ") && error.contains("leaves"), "{error}");
    assert!(runs <= 4, "it ran again");
}

#[test]
fn a_handler_that_fails_loses_only_what_it_was_to_make() {
    let larger =
        |handles: &mut burn_ir::HandleContainer<_>, op: &CustomOpIr, _: &burn_flex::FlexDevice| {
            let x = handles.get_float_tensor::<Flex>(&op.inputs[0]);
            let twice = Flex::float_cat(vec![x.clone(), x], 0);
            handles.register_float_tensor::<Flex>(&op.outputs[0].id, twice);
        };
    let device = remat_burn::budget("1MiB")
        .custom_op::<Flex>("none", |_, _, _| {})
        .custom_op::<Flex>("panics", |_, _, _| panic!("no such thing"))
        .custom_op::<Flex>("larger", larger)
        .serve::<Flex>(Default::default())
        .unwrap();
    let x = Tensor::<1>::from_data([1.0, 2.0], &device);
    for (id, words) in [
        ("none", "Should have handle"),
        ("panics", "panics failed on the device: no such thing"),
        ("larger", "the handler made"),
    ] {
        let lost = send(id, x.clone(), 1.0, 1).remove(0);
        let error = (lost + 1.0).try_into_data().unwrap_err().to_string();
        assert!(error.contains(words), "{id}: {error}");
    }
    assert_eq!(values(x), [1.0, 2.0]);
    device.sync().unwrap();
    assert_eq!(device.stats().unwrap().used_bytes, 0);
}

/// Burn's server ends the connection. The process, other devices and later devices are not
/// affected.
#[test]
fn an_unknown_custom_op_ends_the_device_and_no_other() {
    let other = remat_burn::budget("1MiB").serve::<Flex>(Default::default()).unwrap();
    let kept = Tensor::<1>::from_data([5.0], &other);
    for _ in 0..3 {
        let device = remat_burn::budget("1MiB").serve::<Flex>(Default::default()).unwrap();
        let x = Tensor::<1>::from_data([1.0, 2.0], &device);
        assert_eq!(values(x.clone() * 2.0), [2.0, 4.0]);
        let lost = send("unheard of", x.clone(), 1.0, 1).remove(0);
        assert!(lost.try_into_data().is_err());
        let error = device.step().unwrap_err();
        assert!(matches!(error, Error::Lost(_)), "{error}");
        assert!(error.to_string().contains("a custom operation without a handler"), "{error}");
        assert!(x.try_into_data().is_err());
    }
    assert_eq!(values(kept), [5.0]);
}

#[test]
fn a_custom_op_of_another_backend_is_refused() {
    let builder: Builder = remat_burn::budget("1MiB").custom_op::<Remote>("scale", |_, _, _| {});
    let error = builder.serve::<Flex>(Default::default()).unwrap_err().to_string();
    assert!(error.contains("custom operation `scale` runs on"), "{error}");
}
