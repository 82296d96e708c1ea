use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;

/// A chain of modules. Each module reads the output of the previous module.
///
/// ```
/// use remat::nn::{Linear, Sequential};
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut network = Sequential::new()
///     .then("first", Linear::new(&runtime, 4, 8)?)
///     .then_fn("relu", Tensor::relu)
///     .then("last", Linear::new(&runtime, 8, 2)?);
/// let x = runtime.normal(&[3, 4], 0.0, 1.0)?;
/// assert_eq!(network.forward(&x, Mode::Train)?.shape(), [3, 2]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Default)]
pub struct Sequential {
    modules: Vec<(String, Box<dyn Module>)>,
}

impl Sequential {
    /// An empty chain, which returns its input.
    ///
    /// ```
    /// use remat::nn::Sequential;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let x = runtime.ones(&[2])?;
    /// let y = Sequential::new().forward(&x, Mode::Infer)?;
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 1.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a module under a name.
    ///
    /// ```
    /// use remat::nn::{Linear, Sequential, parameters};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut network = Sequential::new().then("head", Linear::new(&runtime, 4, 2)?);
    /// let names: Vec<String> = parameters(&mut network).map(|(name, _)| name).collect();
    /// assert_eq!(names, ["head.weight", "head.bias"]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn then(mut self, name: impl Into<String>, module: impl Module + 'static) -> Self {
        self.modules.push((name.into(), Box::new(module)));
        self
    }

    /// Adds a function without state, such as [`Tensor::relu`].
    ///
    /// ```
    /// use remat::nn::Sequential;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let network = Sequential::new().then_fn("square", Tensor::square);
    /// let mut network = network.then_fn("half", |x| x * 0.5);
    /// let x = runtime.full(&[2], 4.0)?;
    /// assert_eq!(network.forward(&x, Mode::Infer)?.to_vec::<f32>()?, [8.0, 8.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn then_fn<F>(self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(&Tensor) -> Result<Tensor, Error> + Send + 'static,
    {
        self.then(name, Function(function))
    }
}

/// A module made from a function without state.
struct Function<F>(F);

impl<F: Fn(&Tensor) -> Result<Tensor, Error> + Send> Module for Function<F> {
    fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
        (self.0)(x)
    }

    fn state<'a>(&'a mut self, _prefix: &str, _found: &mut Vec<(String, State<'a>)>) {}
}

impl Module for Sequential {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        let mut y = x.clone();
        for (_, module) in &mut self.modules {
            y = module.forward(&y, mode)?;
        }
        Ok(y)
    }

    fn state<'a>(&'a mut self, prefix: &str, found: &mut Vec<(String, State<'a>)>) {
        for (name, module) in &mut self.modules {
            module.state(&join(prefix, name), found);
        }
    }
}

impl std::fmt::Debug for Sequential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.modules.iter().map(|(name, _)| name)).finish()
    }
}
