use super::{Conv2d, Conv2dGradInput, expect_windows, flops, sides};
use crate::layout::Layout;
use crate::op::Outputs;
use crate::ops::bf16::{Cut, Cuts, Made};
use crate::ops::check::{Fault, fresh, rank};
use crate::ops::definition::{Definition, Input, Inputs, Kernel, Registered};
use crate::ops::gradient::{Gradient, InputGradients, Recorded};
use crate::ops::{FLOAT, Tensor};
use smallvec::smallvec;

/// `(x [n, c, h, w], dy [n, o, h', w']) -> (dweight [o, c / groups, kh, kw])`, the gradient of
/// `weight` in [`Conv2d`]: `dweight[o][c][k] = sum of dy[n][o][q] * x[n][c][q * stride - padding +
/// k * dilation]` over images `n` and windows `q`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Conv2dGradWeight {
    /// Convolution whose gradient the op computes.
    pub conv: Conv2d,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
}

impl Definition for Conv2dGradWeight {
    fn name(&self) -> &str {
        "conv2d_grad_weight"
    }

    fn inputs(&self) -> Inputs {
        Inputs::Each(const { &[Input::packed("x"), Input::packed("dy")] })
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, Fault> {
        let [x, dy] = [&inputs[0], &inputs[1]];
        let [n, c, h, w] = rank(x, "x")?;
        let [n_dy, o, _, _] = rank(dy, "dy")?;
        if n != n_dy {
            return Err(format!("x {x} is a batch of {n} but dy {dy} one of {n_dy}"));
        }
        let groups = self.conv.groups;
        if groups == 0 || !c.is_multiple_of(groups) || !o.is_multiple_of(groups) {
            return Err(format!(
                "x {x} has {c} channels and dy {dy} has {o}, expected multiples of {groups} groups"
            ));
        }
        expect_windows(dy, [h, w], self.kernel, self.conv)?;
        Ok(Outputs::fresh([fresh(FLOAT, [o, c / groups, self.kernel[0], self.kernel[1]])?]))
    }

    fn cuts(&self, _inputs: &[Layout], _outputs: &[Layout]) -> Option<Cuts> {
        let images = Cut::Along(0);
        Some(Cuts::new([images, images], [Made::sum()]))
    }

    fn flops(&self, inputs: &[Layout], outputs: &[Layout]) -> f64 {
        flops(inputs[1].elements(), &outputs[0])
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }

    fn gradient(&self, of: &Recorded<'_>) -> Gradient {
        let conv = self.conv;
        let to_x = Conv2dGradInput { conv, input: sides(of.shape(0)) };
        let dy = of.wanted(0).then(|| of.input(1));
        let x = of.wanted(1).then(|| of.input(0));
        Gradient::of_first(move |ddweight| {
            let ddweight = &ddweight.contiguous()?;
            let mut gradients: InputGradients = smallvec![None, None];
            if let Some(dy) = &dy {
                gradients[0] = Some(Tensor::call1(to_x, &[dy, ddweight])?);
            }
            if let Some(x) = &x {
                gradients[1] = Some(x.conv2d(ddweight, conv)?);
            }
            Ok(gradients)
        })
    }
}

impl Registered for Conv2dGradWeight {
    fn each() -> Vec<Self> {
        let conv = Conv2d::default();
        vec![Self { conv, kernel: [0, 0] }]
    }

    #[cfg(all(test, feature = "cuda"))]
    fn families() -> Vec<&'static crate::device::cuda::Family> {
        vec![&super::cuda::FAMILY]
    }
}
