//! Custom operations: who runs them, and which of them may run again.

use burn_ir::{BackendIr, CustomOpIr, HandleContainer};
use burn_router::CustomOpRegistry;
use std::any::{Any, type_name};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Custom operations of the backend that a device is of.
pub(crate) struct CustomOps<B: BackendIr> {
    /// Who runs them.
    pub registry: CustomOpRegistry<B>,
    /// Of each, by its id, whether it gives the same bits each time it runs, and does nothing else.
    pub pure: Arc<BTreeMap<String, bool>>,
}

impl<B: BackendIr> Default for CustomOps<B> {
    fn default() -> Self {
        Self { registry: CustomOpRegistry::new(), pure: Arc::default() }
    }
}

/// A custom operation, before it is known what backend the device will be of.
#[derive(Debug)]
pub(crate) struct CustomOp {
    id: String,
    pure: bool,
    backend: &'static str,
    /// A `Register<B>`.
    register: Box<dyn Any + Send>,
}

type Register<B> = Box<dyn FnOnce(&mut CustomOpRegistry<B>) + Send>;

impl CustomOp {
    pub fn new<B: BackendIr>(
        id: &str,
        pure: bool,
        handler: impl Fn(&mut HandleContainer<B::Handle>, &CustomOpIr, &B::Device)
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let name = id.to_owned();
        let register: Register<B> = Box::new(move |registry| registry.register(&name, handler));
        Self { id: id.to_owned(), pure, backend: type_name::<B>(), register: Box::new(register) }
    }
}

impl<B: BackendIr> CustomOps<B> {
    /// Of this backend.
    ///
    /// # Errors
    /// If one is of another backend, in words.
    pub fn new(all: Vec<CustomOp>) -> Result<Self, String> {
        let mut registry = CustomOpRegistry::new();
        let mut pure = BTreeMap::new();
        for op in all {
            let register = op.register.downcast::<Register<B>>().map_err(|_| {
                let (id, of, backend) = (&op.id, op.backend, type_name::<B>());
                format!("custom operation `{id}` runs on {of}, and the device is of {backend}")
            })?;
            register(&mut registry);
            pure.insert(op.id, op.pure);
        }
        Ok(Self { registry, pure: Arc::new(pure) })
    }
}
