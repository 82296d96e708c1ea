use super::{Mode, Module, State, join};
use crate::error::Error;
use crate::ops::Tensor;

/// A chain of modules, each of which reads the output of the previous one.
#[derive(Default)]
pub struct Sequential {
    modules: Vec<(String, Box<dyn Module>)>,
}

impl Sequential {
    /// An empty chain, which is the identity.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a module under a name.
    #[must_use]
    pub fn then(mut self, name: impl Into<String>, module: impl Module + 'static) -> Self {
        self.modules.push((name.into(), Box::new(module)));
        self
    }

    /// Adds a function without state, such as [`Tensor::relu`].
    #[must_use]
    pub fn then_fn<F>(self, name: impl Into<String>, function: F) -> Self
    where
        F: Fn(&Tensor) -> Result<Tensor, Error> + Send + 'static,
    {
        self.then(name, Function(function))
    }
}

/// A function without state, as a module.
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
