use super::{Linear, Mode, Module, State, join};
use crate::autograd::Tape;
use crate::error::Error;
use crate::op::OpError;
use crate::ops::Tensor;
use crate::runtime::Runtime;

/// Sizes of an [`UnrolledGan`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnrolledGanSize {
    /// Number of random numbers from which the generator makes an example: 256 in the paper.
    pub latent: usize,
    /// Number of units of each of the two hidden layers of both networks: 128 in the paper.
    pub hidden: usize,
    /// Count of numbers in an example: 2 for points in a plane.
    pub outputs: usize,
    /// Number of unrolled steps of the discriminator: 0 to 10 in the paper. With 0, the network is
    /// a plain GAN.
    pub unroll: usize,
    /// Learning rate of the discriminator's unrolled steps.
    pub rate: f32,
}

impl Default for UnrolledGanSize {
    /// Sizes of the paper's experiment with points in a plane, with 5 unrolled steps.
    fn default() -> Self {
        Self { latent: 256, hidden: 128, outputs: 2, unroll: 5, rate: 0.1 }
    }
}

/// A generative adversarial network whose generator learns through `unroll` steps of the
/// discriminator (Metz et al., ICLR 2017). The generator's loss is computed by the discriminator
/// after `unroll` steps of gradient descent. The gradient is backpropagated through the unrolled
/// steps, so gradients of gradients are computed.
///
/// As a [`Module`], the network is the generator, which maps `z [n, latent]` to `[n, outputs]`.
///
/// ```
/// use remat::nn::{UnrolledGan, UnrolledGanSize};
/// use remat::optim::Optimizer;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").seed(1).cpu()?;
/// let size = UnrolledGanSize { latent: 8, hidden: 16, unroll: 3, ..UnrolledGanSize::default() };
/// let mut gan = UnrolledGan::new(&runtime, size)?;
/// let mut sgd = Optimizer::sgd(0.05, 0.0, 0.0);
/// let (real, z) = (runtime.normal(&[32, 2], 0.0, 1.0)?, runtime.normal(&[32, 8], 0.0, 1.0)?);
/// let tape = Tape::new(&runtime);
/// tape.watch(&mut gan);
/// let loss = gan.loss(&tape, &real, &z)?;
/// sgd.minimize(tape, &loss.total, &mut gan)?;
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct UnrolledGan {
    generator: [Linear; 3],
    discriminator: [Linear; 3],
    unroll: usize,
    rate: f32,
}

/// Losses of one training step of an [`UnrolledGan`].
#[derive(Clone, Debug)]
pub struct GanLoss {
    /// Sum of the two losses, to be minimized. The gradient of the sum with respect to the
    /// discriminator's parameters is the gradient of the discriminator's loss. The gradient with
    /// respect to the generator's parameters is the gradient of the generator's loss.
    pub total: Tensor,
    /// Loss of the discriminator before the unrolled steps. The loss is `2 ln 2` if the
    /// discriminator cannot distinguish real from generated examples.
    pub discriminator: Tensor,
    /// Loss of the generator: the negated loss of the discriminator after the unrolled steps.
    pub generator: Tensor,
}

impl UnrolledGan {
    /// Makes the generator and the discriminator with new weights.
    ///
    /// ```
    /// use remat::nn::{UnrolledGan, UnrolledGanSize};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let size = UnrolledGanSize { latent: 8, hidden: 16, ..UnrolledGanSize::default() };
    /// let mut gan = UnrolledGan::new(&runtime, size)?;
    /// let points = gan.forward(&runtime.normal(&[32, 8], 0.0, 1.0)?, Mode::Infer)?;
    /// assert_eq!(points.shape(), [32, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Op`] if a tensor would have more than `isize::MAX` bytes.
    pub fn new(runtime: &Runtime, size: UnrolledGanSize) -> Result<Self, Error> {
        let UnrolledGanSize { latent, hidden, outputs, unroll, rate } = size;
        let net = |sizes: [usize; 4]| -> Result<[Linear; 3], Error> {
            let layer = |i| Linear::new(runtime, sizes[i], sizes[i + 1]);
            Ok([layer(0)?, layer(1)?, layer(2)?])
        };
        Ok(Self {
            generator: net([latent, hidden, hidden, outputs])?,
            discriminator: net([outputs, hidden, hidden, 1])?,
            unroll,
            rate,
        })
    }

    /// Computes the losses of a training step, for real examples `[n, outputs]` and random numbers
    /// `z [n, latent]`. The tape must watch this network.
    ///
    /// ```
    /// use remat::nn::{UnrolledGan, UnrolledGanSize};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let size = UnrolledGanSize { latent: 8, hidden: 16, ..UnrolledGanSize::default() };
    /// let mut gan = UnrolledGan::new(&runtime, size)?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut gan);
    /// let (real, z) = (runtime.ones(&[4, 2])?, runtime.normal(&[4, 8], 0.0, 1.0)?);
    /// let loss = gan.loss(&tape, &real, &z)?;
    /// assert!(loss.discriminator.item()? > 0.0 && loss.generator.item()? < 0.0);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `real` is not `[n, outputs]`, `z` is not `[n, latent]`, or the tape does not watch
    /// this network.
    pub fn loss(&mut self, tape: &Tape, real: &Tensor, z: &Tensor) -> Result<GanLoss, Error> {
        let made = self.forward(z, Mode::Train)?;
        let now: Vec<Tensor> = self.of_discriminator().map(|tensor| tensor.clone()).collect();
        if !now.iter().all(|tensor| tape.watches(tensor)) {
            let message = "the discriminator is not watched; watch() the network before the loss";
            return Err(OpError::new("unrolled_gan", message).into());
        }
        let discriminator = mistakes(&now, real, &made.detach())?;
        // The unrolled steps start from copies of the weights, so that the generator's loss gives
        // the discriminator no gradient.
        let mut ahead = now
            .iter()
            .map(|tensor| tensor.detach().affine(1.0, 0.0))
            .collect::<Result<Vec<Tensor>, Error>>()?;
        if self.unroll > 0 {
            ahead.iter_mut().for_each(|tensor| tape.watch(tensor));
        }
        for _ in 0..self.unroll {
            let loss = mistakes(&ahead, real, &made)?;
            let gradients = tape.gradients_of(&loss, &ahead.iter().collect::<Vec<_>>())?;
            for tensor in &mut ahead {
                if let Some(gradient) = gradients.get(tensor) {
                    *tensor = tensor.add(&gradient.affine(-self.rate, 0.0)?)?;
                }
            }
        }
        let generator = mistakes(&ahead, real, &made)?.neg()?;
        Ok(GanLoss { total: discriminator.add(&generator)?, discriminator, generator })
    }

    /// Weight and bias of each layer of the discriminator.
    fn of_discriminator(&mut self) -> impl Iterator<Item = &mut Tensor> {
        let mut found = Vec::new();
        self.discriminator.iter_mut().for_each(|layer| layer.state("", &mut found));
        found.into_iter().map(|(_, state)| match state {
            State::Parameter(tensor) | State::Buffer(tensor) => tensor,
        })
    }
}

/// Loss of a discriminator with given weights and biases: the sum of the binary cross-entropies of
/// real and of generated examples.
fn mistakes(weights: &[Tensor], real: &Tensor, made: &Tensor) -> Result<Tensor, Error> {
    let logits = |x: &Tensor| -> Result<Tensor, Error> {
        let mut y = x.clone();
        for (i, layer) in weights.chunks_exact(2).enumerate() {
            let x = if i == 0 { y } else { y.tanh()? };
            y = x.matmul(&layer[0].t()?)?.add(&layer[1])?;
        }
        Ok(y)
    };
    // -ln sigmoid(x) = softplus(-x), and -ln(1 - sigmoid(x)) = softplus(x).
    let of_real = logits(real)?.neg()?.softplus()?.mean()?;
    of_real.add(&logits(made)?.softplus()?.mean()?)
}

impl Module for UnrolledGan {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let [first, second, last] = &mut self.generator;
        let y = first.forward(x, mode)?.tanh()?;
        let y = second.forward(&y, mode)?.tanh()?;
        last.forward(&y, mode)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        let nets = [("generator", &mut self.generator), ("discriminator", &mut self.discriminator)];
        for (name, layers) in nets {
            for (i, layer) in layers.iter_mut().enumerate() {
                layer.state(&join(prefix, format_args!("{name}.{i}")), found);
            }
        }
    }
}
