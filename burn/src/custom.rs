//! Custom operations: their handlers, and whether each operation is pure.

use burn_ir::{BackendIr, CustomOpIr, HandleContainer};
use burn_router::CustomOpRegistry;
use std::any::{Any, type_name};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Custom operations for the backend of a device.
pub(crate) struct CustomOps<B: BackendIr> {
    /// Handlers of the operations.
    pub registry: CustomOpRegistry<B>,
    /// Whether each operation is pure, by the operation's id. A pure operation gives the same bits
    /// in each run and has no side effects.
    pub pure: Arc<BTreeMap<String, bool>>,
}

impl<B: BackendIr> Default for CustomOps<B> {
    fn default() -> Self {
        Self { registry: CustomOpRegistry::new(), pure: Arc::default() }
    }
}

/// Custom operation, as given to the builder, which does not know the backend of the device yet.
#[derive(Debug)]
pub(crate) struct CustomOp {
    id: String,
    pure: bool,
    backend: &'static str,
    /// Handler, as a `Register<B>`.
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
    /// Collects the custom operations for this backend.
    ///
    /// # Errors
    /// A message, if an operation is of another backend.
    pub fn new(all: Vec<CustomOp>) -> Result<Self, String> {
        let mut registry = CustomOpRegistry::new();
        let mut pure = BTreeMap::new();
        for op in all {
            let register = op.register.downcast::<Register<B>>().map_err(|_| {
                let (id, of, backend) = (&op.id, op.backend, type_name::<B>());
                format!("custom operation `{id}` runs on {of}, but the device is of {backend}")
            })?;
            register(&mut registry);
            pure.insert(op.id, op.pure);
        }
        Ok(Self { registry, pure: Arc::new(pure) })
    }
}
