use super::{Conv2d, Conv2dGradWeight, expect_windows, flops, sides};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made};
use crate::ops::check::{Fault, fresh, rank};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded};
use crate::ops::{FLOAT, Tensor};
use smallvec::smallvec;

/// `(dy [n, o, h', w'], weight [o, c / groups, kh, kw]) -> (dx [n, c, h, w])`, the gradient of `x`
/// in [`Conv2d`]: `dx[n][c][p] = sum of dy[n][o][q] * weight[o][c][k]`. The sum is over `o`, and
/// over all windows `q` and kernel elements `k` with `p + padding = q * stride + k * dilation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Conv2dGradInput {
    /// Convolution whose gradient the op computes.
    pub conv: Conv2d,
    /// Height and width of `x`.
    pub input: [usize; 2],
}

impl Definition for Conv2dGradInput {
    fn name(&self) -> &str {
        "conv2d_grad_input"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("dy"), Input::packed("weight")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [dy, weight] = [&inputs[0], &inputs[1]];
        let [n, o, _, _] = rank(dy, "dy")?;
        let [o_weight, c, kh, kw] = rank(weight, "weight")?;
        if o != o_weight {
            return Err(format!("dy {dy} has {o} channels but weight {weight} gives {o_weight}"));
        }
        let c = self.conv.channels(weight, c, o)?;
        expect_windows(dy, self.input, [kh, kw], self.conv)?;
        Ok(Outputs::fresh([fresh(FLOAT, [n, c, self.input[0], self.input[1]])?]))
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let images = Cut::Along(0);
        Some(Cuts::new([images, Cut::Whole], [Made::activations(images)]))
    }

    fn flops(&self, inputs: &[Layout], _outputs: &[Layout]) -> f64 {
        flops(inputs[0].elements(), &inputs[1])
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let conv = self.conv;
        let to_weight = Conv2dGradWeight { conv, kernel: sides(of.shape(1)) };
        let weight = of.wanted(0).then(|| of.input(1));
        let dy = of.wanted(1).then(|| of.input(0));
        Gradient::of_first(move |ddx| {
            let ddx = &ddx.contiguous()?;
            let mut gradients: InputGradients = smallvec![None, None];
            if let Some(weight) = &weight {
                gradients[0] = Some(ddx.conv2d(weight, conv)?);
            }
            if let Some(dy) = &dy {
                gradients[1] = Some(Tensor::call1(to_weight, &[ddx, dy])?);
            }
            Ok(gradients)
        })
    }
}

impl Registered for Conv2dGradInput {
    fn each() -> Vec<Self> {
        let conv = Conv2d::default();
        vec![Self { conv, input: [0, 0] }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
