//! Library that makes ops from their names and attributes, to execute recordings.

#[cfg(test)]
mod tests;

use super::attributes::parse;
use super::check::Fault;
use super::definition::Registered;
use super::{CustomOp, Op};
use crate::op::Operation as _;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

/// Function that makes an op from the op's attributes. The name of the op is fixed.
pub(super) type Load = Arc<dyn Fn(Option<&str>) -> Result<Op, Fault> + Send + Sync>;

/// Library that makes ops from the names and attributes in a recording. A library contains the
/// crate's ops, and your own ops once they are [registered](Self::register).
///
/// ```
/// use remat::op::Operation;
/// use remat::ops::{Library, Op};
/// use remat::unstable::ops::Slice;
///
/// let part = Op::from(Slice { axis: 1, start: 2, len: 3 });
/// let attributes = part.attributes().expect("an op of the crate has attributes");
/// assert_eq!(attributes, r#"{"axis":1,"start":2,"len":3}"#);
///
/// let library = Library::default();
/// assert_eq!(library.op("slice", Some(&attributes))?, part);
/// # Ok::<(), remat::ops::LoadOpError>(())
/// ```
#[derive(Clone)]
pub struct Library {
    loads: BTreeMap<String, Load>,
}

/// A library of the crate's ops.
impl Default for Library {
    fn default() -> Self {
        Self { loads: Op::loaders().into_iter().collect() }
    }
}

/// Prints the names of the ops.
impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.loads.keys()).finish()
    }
}

impl Library {
    /// Adds your own ops under the name `name`. `load` makes an op from its
    /// [attributes](CustomOp::attributes), or from `None` if the recording has no attributes for
    /// the op.
    ///
    /// ```
    /// use remat::ops::Library;
    /// # use remat::{Layout, device::{DeviceError, cpu}, ops::CustomOp};
    /// #[derive(Debug)]
    /// struct Swish {
    ///     beta: f32,
    /// }
    ///
    /// impl CustomOp for Swish {
    ///     fn name(&self) -> &str {
    ///         "swish"
    ///     }
    ///
    ///     fn attributes(&self) -> Option<String> {
    ///         Some(self.beta.to_string())
    ///     }
    ///     // ..
    /// #   fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> { Ok(inputs.to_vec()) }
    /// #   fn cpu(&self, _operands: cpu::Operands<'_>) -> Result<(), DeviceError> { Ok(()) }
    /// }
    ///
    /// let mut library = Library::default();
    /// library.register("swish", |attributes| {
    ///     let beta = attributes.ok_or("no beta")?.parse().map_err(|e| format!("beta: {e}"))?;
    ///     Ok(Swish { beta })
    /// })?;
    /// assert_eq!(library.op("swish", Some("1.5"))?, Swish { beta: 1.5 }.into());
    ///
    /// let error = library.op("swish", Some("much")).unwrap_err();
    /// assert_eq!(error.to_string(), "swish: beta: invalid float literal");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NameTakenError`] if the library already has ops with the name `name`, such as ops of the
    /// crate.
    pub fn register<C: CustomOp>(
        &mut self,
        name: impl Into<String>,
        load: impl Fn(Option<&str>) -> Result<C, String> + Send + Sync + 'static,
    ) -> Result<(), NameTakenError> {
        match self.loads.entry(name.into()) {
            Entry::Vacant(free) => {
                free.insert(Arc::new(move |attributes| load(attributes).map(Op::from)));
                Ok(())
            }
            Entry::Occupied(taken) => Err(NameTakenError { name: taken.key().clone() }),
        }
    }

    /// Makes the op that has the name `name` and the given
    /// [attributes](crate::op::Operation::attributes).
    ///
    /// ```
    /// use remat::ops::Library;
    /// use remat::unstable::ops::Flip;
    ///
    /// let library = Library::default();
    /// assert_eq!(library.op("flip", Some(r#"{"axis":1}"#))?, Flip { axis: 1 }.into());
    /// assert!(library.op("flap", None).is_err());
    /// # Ok::<(), remat::ops::LoadOpError>(())
    /// ```
    ///
    /// # Errors
    /// If no op in the library has the name `name`, or the attributes are not valid for the op.
    pub fn op(&self, name: &str, attributes: Option<&str>) -> Result<Op, LoadOpError> {
        let Some(load) = self.loads.get(name) else {
            return Err(LoadOpError::Unknown { name: name.to_owned() });
        };
        let unfit = |message| LoadOpError::Attributes { name: name.to_owned(), message };
        let op = load(attributes).map_err(unfit)?;
        if op.name() == name {
            Ok(op)
        } else {
            Err(unfit(format!("the op registered by this name has the name `{}`", op.name())))
        }
    }
}

/// Name of the op `like`, and a function that makes ops of this name from their attributes.
pub(super) fn loader<O>(like: O) -> (String, Load)
where
    O: Registered + Clone + Serialize + DeserializeOwned + Into<Op> + Send + Sync + 'static,
{
    let name = like.name().to_owned();
    let load = move |attributes: Option<&str>| {
        match attributes {
        Some(attributes) => match parse(&like, attributes) {
            Ok(op) => Ok(op.into()),
            Err(fault) => Err(format!("the attributes are invalid: {fault}")),
        },
        None => {
            Err("the op was recorded without attributes, probably by a build without the feature `serde`"
                .to_owned())
        }
    }
    };
    (name, Arc::new(load))
}

/// Reason why an op cannot be made from its name and attributes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadOpError {
    /// No op with this name is in the library.
    #[error("no op is called `{name}`: register it with Library::register before loading")]
    Unknown {
        /// Name that the library does not have.
        name: String,
    },
    /// The attributes are not valid for the op, or are missing.
    #[error("{name}: {message}")]
    Attributes {
        /// Name of the op.
        name: String,
        /// Message that says what is wrong.
        message: String,
    },
}

/// Error of registering a name that the library already has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another op is called `{name}`: choose another name")]
pub struct NameTakenError {
    /// Name that the library already has.
    pub name: String,
}
