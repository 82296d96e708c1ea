use crate::ops::Tensor;
use std::fmt;

/// Predicate on name and tensor: whether a parameter belongs to a group.
type Has = dyn Fn(&str, &Tensor) -> bool + Send + Sync;

/// Group of parameters with their own settings.
///
/// ```
/// use remat::optim::{Group, Optimizer};
///
/// let sgd = Optimizer::sgd(0.1, 0.9, 5e-4)
///     // The usual: norms and biases do not decay.
///     .group(Group::vectors().weight_decay(0.0))
///     .group(Group::named("layer1.*").lr_scale(0.1));
/// ```
pub struct Group {
    has: Box<Has>,
    lr_scale: f32,
    weight_decay: Option<f32>,
}

impl Group {
    /// Group of the parameters for which `has` returns true.
    ///
    /// ```
    /// use remat::optim::{Group, Optimizer};
    ///
    /// let large = Group::of(|_, parameter| parameter.layout().elements() > 1_000_000);
    /// let adamw = Optimizer::adamw(1e-3, 0.01).group(large.lr_scale(0.5));
    /// ```
    #[must_use]
    pub fn of(has: impl Fn(&str, &Tensor) -> bool + Send + Sync + 'static) -> Self {
        Self { has: Box::new(has), lr_scale: 1.0, weight_decay: None }
    }

    /// Group of the parameters whose names match a pattern, in which `*` stands for any number of
    /// characters.
    ///
    /// ```
    /// use remat::optim::{Group, Optimizer};
    ///
    /// let adamw = Optimizer::adamw(1e-3, 0.01).group(Group::named("*.bias").weight_decay(0.0));
    /// ```
    #[must_use]
    pub fn named(pattern: &str) -> Self {
        let pattern = pattern.to_owned();
        Self::of(move |name, _| matches(&pattern, name))
    }

    /// Group of the parameters of at most one dimension: scales, shifts and biases.
    ///
    /// ```
    /// use remat::nn::Linear;
    /// use remat::optim::{Group, Optimizer};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut layer = Linear::new(&runtime, 2, 1)?;
    /// let mut sgd = Optimizer::sgd(0.5, 0.0, 0.0).group(Group::vectors().lr_scale(0.0));
    /// # let bias = |layer: &mut Linear| -> Result<Vec<f32>, Error> {
    /// #     remat::nn::parameters(layer).last().unwrap().1.to_vec()
    /// # };
    /// let before = bias(&mut layer)?;
    /// # let tape = Tape::new(&runtime);
    /// # tape.watch(&mut layer);
    /// # let loss = layer.forward(&runtime.ones(&[1, 2])?, Mode::Train)?.sum()?;
    /// sgd.minimize(tape, &loss, &mut layer)?;
    /// assert_eq!(bias(&mut layer)?, before);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn vectors() -> Self {
        Self::of(|_, parameter| parameter.rank() <= 1)
    }

    /// Sets the learning rate of the group, as a multiple of the optimizer's learning rate.
    ///
    /// ```
    /// use remat::nn::Embedding;
    /// use remat::optim::{Group, Optimizer};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut table = Embedding::of(runtime.ones(&[2, 1])?);
    /// let mut sgd = Optimizer::sgd(0.5, 0.0, 0.0).group(Group::named("weight").lr_scale(0.5));
    /// # let tape = Tape::new(&runtime);
    /// # tape.watch(&mut table);
    /// # let row = runtime.tensor(&[1], vec![1])?;
    /// # let loss = table.forward(&row, Mode::Train)?.sum()?;
    /// sgd.minimize(tape, &loss, &mut table)?;
    /// assert_eq!(table.weight().to_vec::<f32>()?, [1.0, 0.75]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn lr_scale(mut self, scale: f32) -> Self {
        self.lr_scale = scale;
        self
    }

    /// Sets the weight decay of the group.
    ///
    /// ```
    /// use remat::nn::Embedding;
    /// use remat::optim::{Group, Optimizer};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut table = Embedding::of(runtime.ones(&[2, 1])?);
    /// let mut sgd = Optimizer::sgd(0.5, 0.0, 0.0).group(Group::named("weight").weight_decay(0.5));
    /// # let tape = Tape::new(&runtime);
    /// # tape.watch(&mut table);
    /// # let row = runtime.tensor(&[1], vec![1])?;
    /// # let loss = table.forward(&row, Mode::Train)?.sum()?;
    /// sgd.minimize(tape, &loss, &mut table)?;
    /// assert_eq!(table.weight().to_vec::<f32>()?, [0.75, 0.25]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn weight_decay(mut self, weight_decay: f32) -> Self {
        self.weight_decay = Some(weight_decay);
        self
    }

    /// Learning rate and weight decay of a parameter: the given values, as modified by the first
    /// group that contains the parameter.
    pub(super) fn settings(
        groups: &[Self],
        name: &str,
        parameter: &Tensor,
        [lr, weight_decay]: [f32; 2],
    ) -> [f32; 2] {
        match groups.iter().find(|group| (group.has)(name, parameter)) {
            Some(group) => [lr * group.lr_scale, group.weight_decay.unwrap_or(weight_decay)],
            None => [lr, weight_decay],
        }
    }
}

/// Whether a name matches a pattern with `*` in it.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((front, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(name) = name.strip_prefix(front) else { return false };
    let ends = name.char_indices().map(|(i, _)| i).chain([name.len()]);
    ends.into_iter().any(|i| matches(rest, &name[i..]))
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("lr_scale", &self.lr_scale)
            .field("weight_decay", &self.weight_decay)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_is_any_part_of_a_name() {
        for (pattern, name) in [
            ("fc.weight", "fc.weight"),
            ("*", ""),
            ("*", "fc.weight"),
            ("*.bias", "layer1.0.bias"),
            ("layer1.*.weight", "layer1.0.conv1.weight"),
            ("*1*", "layer1.0"),
            ("a*a", "aa"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("", "a"), ("fc", "fc.weight"), ("*.bias", "bias"), ("a*a", "a"), ("*1", "1.0")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
