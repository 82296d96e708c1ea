//! Work of operations, as a number of floating-point operations.

use burn_ir::{
    FloatOperationIr as Float, IntOperationIr as Int, ModuleOperationIr as Module, OperationIr,
    TensorIr,
};

/// Floating-point operations of one run. For matrix products and convolutions, each multiplication
/// and each addition counts. Reductions count one operation for each element read, and all other
/// ops one for each element made.
pub(crate) fn flops(ir: &OperationIr) -> f64 {
    let made: f64 = ir.outputs().map(elements).sum();
    // Number of multiplications for each output element: the number of elements of a filter.
    let filter = |weight: &TensorIr| elements(weight) / first(weight).max(1.0);
    match ir {
        OperationIr::Float(_, Float::Matmul(op)) | OperationIr::Int(Int::Matmul(op)) => {
            2.0 * made * last(&op.lhs)
        }
        OperationIr::NumericFloat(..) | OperationIr::NumericInt(..) => {
            made.max(ir.inputs().map(elements).fold(0.0, f64::max))
        }
        OperationIr::Module(op) => match op {
            Module::Linear(op) => 2.0 * made * first(&op.weight),
            Module::LinearXBackward(op) => 2.0 * made * last(&op.weight),
            Module::LinearWeightBackward(op) => 2.0 * elements(&op.x) * last(&op.out),
            Module::Conv1d(op) => 2.0 * made * filter(&op.weight),
            Module::Conv1dXBackward(op) => 2.0 * elements(&op.output_grad) * filter(&op.weight),
            Module::Conv1dWeightBackward(op) => {
                2.0 * elements(&op.output_grad) * filter(&op.weight)
            }
            Module::Conv2d(op) => 2.0 * made * filter(&op.weight),
            Module::Conv2dXBackward(op) => 2.0 * elements(&op.output_grad) * filter(&op.weight),
            Module::Conv2dWeightBackward(op) => {
                2.0 * elements(&op.output_grad) * filter(&op.weight)
            }
            Module::Conv3d(op) => 2.0 * made * filter(&op.weight),
            Module::Conv3dXBackward(op) => 2.0 * elements(&op.output_grad) * filter(&op.weight),
            Module::Conv3dWeightBackward(op) => {
                2.0 * elements(&op.output_grad) * filter(&op.weight)
            }
            Module::DeformableConv2d(op) => 2.0 * made * filter(&op.weight),
            Module::DeformableConv2dBackward(op) => {
                6.0 * elements(&op.out_grad) * filter(&op.weight)
            }
            Module::ConvTranspose1d(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose2d(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose3d(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose1dWeightBackward(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose2dWeightBackward(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            Module::ConvTranspose3dWeightBackward(op) => 2.0 * elements(&op.x) * filter(&op.weight),
            // Two matrix products: queries with keys, and the result with values.
            Module::Attention(op) => {
                let rows = |tensor: &TensorIr| elements(tensor) / last(tensor).max(1.0);
                let keys = from_end(&op.key, 2);
                2.0 * rows(&op.query) * keys * (last(&op.query) + last(&op.value))
            }
            Module::AvgPool1d(op) => made * op.kernel_size as f64,
            Module::MaxPool1d(op) => made * op.kernel_size as f64,
            Module::MaxPool1dWithIndices(op) => elements(&op.out) * op.kernel_size as f64,
            Module::AvgPool2d(op) => made * area(op.kernel_size),
            Module::MaxPool2d(op) => made * area(op.kernel_size),
            Module::MaxPool2dWithIndices(op) => elements(&op.out) * area(op.kernel_size),
            _ => made,
        },
        _ => made,
    }
}

fn elements(tensor: &TensorIr) -> f64 {
    tensor.shape.iter().map(|&size| size as f64).product()
}

fn first(tensor: &TensorIr) -> f64 {
    tensor.shape.first().map_or(1.0, |&size| size as f64)
}

fn last(tensor: &TensorIr) -> f64 {
    from_end(tensor, 1)
}

/// Size of a dimension. `place` counts from the end: the last dimension is 1.
fn from_end(tensor: &TensorIr, place: usize) -> f64 {
    tensor.shape.iter().rev().nth(place - 1).map_or(1.0, |&size| size as f64)
}

fn area(kernel: [usize; 2]) -> f64 {
    kernel[0] as f64 * kernel[1] as f64
}
