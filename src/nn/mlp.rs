use super::{Linear, Sequential};
use crate::error::Error;
use crate::runtime::Ops;

/// Fully connected layers of the given widths with relu between, for inputs of any shape `[n, ..]`.
///
/// # Errors
/// If a size is absurd.
pub fn mlp(
    ops: &dyn Ops,
    inputs: usize,
    hidden: &[usize],
    classes: usize,
) -> Result<Sequential, Error> {
    let mut net = Sequential::new().then_apply("flatten", |ops, x, _| {
        let rows = x.shape().first().copied().unwrap_or(1);
        ops.reshape(x, &[rows, x.layout().elements().checked_div(rows).unwrap_or(0)])
    });
    let mut width = inputs;
    for (i, &next) in hidden.iter().enumerate() {
        net = net
            .then(format!("fc{}", i + 1), Linear::new(ops, width, next)?)
            .then_apply(format!("relu{}", i + 1), |ops, x, _| ops.relu(x));
        width = next;
    }
    Ok(net.then("out", Linear::new(ops, width, classes)?))
}
