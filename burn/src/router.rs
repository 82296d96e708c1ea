//! Router: the backend that Burn's server runs. The router forwards each operation to the session
//! of a slot.

use crate::error::Error;
use crate::runner::words;
use crate::session::{Session, numbers};
use burn_backend::backend::{DeviceId, DeviceOps, ExecutionError};
use burn_backend::{DType, DTypeUsageSet, DeviceSettings, Shape, TensorData};
use burn_ir::{
    BackendIr, CustomOpIr, GraphBindings, GraphId, HandleContainer, OperationIr, TensorId, TensorIr,
};
use burn_router::{
    BackendRouter, MultiBackendBridge, RouterChannel, RouterClient, RouterTensor, get_client,
};
use burn_std::future::DynFut;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Backend of Burn's server, which puts the operations of `B` under budgets.
pub(crate) type Budgeted<B> = BackendRouter<Channel<B>>;

/// Slot for one session at a time. Each slot is a device of the server. A slot lives as long as the
/// server, while sessions in the slot are opened and closed.
pub(crate) struct Slot<B: BackendIr> {
    device: SlotDevice<B::Device>,
    state: Mutex<State<B>>,
    /// Number of [`Quiet`] guards alive. While any guard is alive, [`Slot::sync`] reports no
    /// failure.
    quiet: AtomicUsize,
}

enum State<B: BackendIr> {
    /// No session. All calls return the error.
    Empty(Error),
    Open(Box<Session<B>>),
}

impl<B: BackendIr> Slot<B> {
    pub fn new(device: SlotDevice<B::Device>) -> Self {
        let state = Mutex::new(State::Empty(Error::Dropped));
        Self { device, state, quiet: AtomicUsize::new(0) }
    }

    pub const fn device(&self) -> &SlotDevice<B::Device> {
        &self.device
    }

    fn state(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a session.
    pub fn open(&self, mut session: Session<B>) {
        let mut state = self.state();
        session.opened();
        *state = State::Open(Box::new(session));
    }

    /// Closes the session. On return, all memory of the session is free.
    pub fn close(&self) {
        let ended = std::mem::replace(&mut *self.state(), State::Empty(Error::Dropped));
        // A backend may panic when its memory is freed.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
    }

    /// Calls `with` on the session.
    ///
    /// A panic of `with` closes the session and becomes an error. After an uncaught panic on a
    /// thread of the server, the client would wait forever.
    ///
    /// # Errors
    /// The reason why the slot has no session, or [`Error::Panicked`].
    pub fn with<T>(&self, with: impl FnOnce(&mut Session<B>) -> T) -> Result<T, Error> {
        let mut state = self.state();
        match &mut *state {
            State::Empty(why) => Err(why.clone()),
            State::Open(session) => {
                catch_unwind(AssertUnwindSafe(|| with(session))).map_err(|panic| {
                    let error = Error::Panicked(words(&*panic));
                    let ended = std::mem::replace(&mut *state, State::Empty(error.clone()));
                    let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
                    error
                })
            }
        }
    }

    /// Suppresses failures of [`Slot::sync`] until the returned guard is dropped.
    pub fn quietly(&self) -> Quiet<'_> {
        self.quiet.fetch_add(1, Ordering::SeqCst);
        Quiet(&self.quiet)
    }

    fn sync(&self) -> Result<(), Error> {
        if self.quiet.load(Ordering::SeqCst) > 0 {
            return Ok(());
        }
        self.with(Session::sync)?
    }
}

/// Guard that [`Slot::quietly`] returns.
pub(crate) struct Quiet<'a>(&'a AtomicUsize);

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Device of the server: the backend's device, and the number of the slot.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SlotDevice<D> {
    pub inner: D,
    pub slot: u16,
}

/// Ids of the backends' devices, for the slots of all backends, by the slot's number.
static SLOTS: Mutex<Vec<DeviceId>> = Mutex::new(Vec::new());

impl<D: DeviceOps> SlotDevice<D> {
    /// Makes the device of a new slot; `None` if the process has had 65,536 slots.
    pub fn new(inner: D) -> Option<Self> {
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = u16::try_from(slots.len()).ok()?;
        slots.push(inner.to_id());
        Some(Self { inner, slot })
    }
}

impl<D: DeviceOps> burn_std::device::Device for SlotDevice<D> {
    fn from_id(id: DeviceId) -> Self {
        let slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        let inner =
            slots.get(usize::from(id.index_id)).map_or_else(D::default, |id| D::from_id(*id));
        Self { inner, slot: id.index_id }
    }

    fn to_id(&self) -> DeviceId {
        DeviceId::new(self.inner.to_id().type_id, self.slot)
    }
}

impl<D: DeviceOps> DeviceOps for SlotDevice<D> {
    fn defaults(&self) -> DeviceSettings {
        self.inner.defaults()
    }
}

/// Channel from Burn's router to slots of `B`.
pub(crate) struct Channel<B>(PhantomData<fn() -> B>);

impl<B> Clone for Channel<B> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

/// Client of a slot. Each tensor of the router holds the client of its slot.
pub(crate) struct Client<B: BackendIr>(pub Arc<Slot<B>>);

impl<B: BackendIr> Clone for Client<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: BackendIr> fmt::Debug for Client<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Client").field(&self.0.device).finish()
    }
}

impl<B: BackendIr> Client<B> {
    fn read(&self, tensor: &TensorIr) -> Result<TensorData, Error> {
        self.0.with(|session| session.read(tensor))?
    }

    /// Makes a tensor on this slot: calls `make` with the number of the tensor.
    fn tensor(
        &self,
        shape: Shape,
        dtype: DType,
        make: impl FnOnce(&mut Session<B>, remat::unstable::program::TensorId),
    ) -> RouterTensor<Self> {
        let number = numbers(1);
        // If the slot has no session, the tensor has no value, and the next read of the tensor
        // reports an error.
        let _ = self.0.with(|session| make(session, number));
        RouterTensor::new(TensorId::new(number.0), shape, dtype, self.clone())
    }
}

/// Forwards a custom operation of the server to the session of the slot.
pub(crate) fn forward<B: BackendIr>(
    handles: &mut HandleContainer<RouterTensor<Client<B>>>,
    op: &CustomOpIr,
    device: &SlotDevice<B::Device>,
) {
    let client = get_client::<Channel<B>>(device);
    let inputs = op.inputs.iter();
    let inputs = inputs.map(|input| handles.get_handle(&input.id, &input.status).into_ir());
    let inputs: Vec<TensorIr> = inputs.collect();
    let row = numbers(op.outputs.len());
    let outputs = op.outputs.iter().zip(row.and_next(op.outputs.len()));
    let outputs = outputs.map(|(out, number)| {
        TensorIr::uninit(TensorId::new(number.0), out.shape.clone(), out.dtype)
    });
    let inner = CustomOpIr { inputs, outputs: outputs.collect(), ..op.clone() };
    let made = client.register(OperationIr::Custom(inner));
    for (out, tensor) in op.outputs.iter().zip(made) {
        handles.register_handle(out.id, tensor);
    }
}

fn execution(error: &Error) -> ExecutionError {
    ExecutionError::with_context(error.to_string())
}

impl<B: BackendIr> RouterClient for Client<B> {
    type Device = SlotDevice<B::Device>;

    fn register_op(&self, op: OperationIr) {
        // If the slot has no session, the outputs have no value, and the next read of one reports
        // an error.
        let _ = self.0.with(|session| session.run(op));
    }

    fn read_tensor_async(&self, tensor: TensorIr) -> DynFut<Result<TensorData, ExecutionError>> {
        let data = self.read(&tensor).map_err(|error| execution(&error));
        Box::pin(async move { data })
    }

    fn sync(&self) -> Result<(), ExecutionError> {
        self.0.sync().map_err(|error| execution(&error))
    }

    fn flush(&self) {}

    fn create_empty_handle(&self) -> TensorId {
        TensorId::new(numbers(1).0)
    }

    fn register_tensor_data(&self, data: TensorData) -> RouterTensor<Self> {
        let (shape, dtype) = (data.shape().clone(), data.dtype());
        self.tensor(shape, dtype, |session, number| session.put(number, data))
    }

    fn device(&self) -> Self::Device {
        self.0.device.clone()
    }

    fn seed(&self, seed: u64) {
        let _ = self.0.with(|session| session.seed(seed));
    }

    fn dtype_usage(&self, dtype: DType) -> DTypeUsageSet {
        B::dtype_usage(&self.0.device.inner, dtype)
    }

    // The following methods are for Burn's fusion on top of a router. The server of `remat-burn`
    // has no fusion: it splits the graphs of its clients into operations before it calls the
    // router.

    fn register_and_execute_graph(&self, _: GraphId, _: Vec<OperationIr>, _: GraphBindings) {
        debug_assert!(false, "there is no fusion between the server and its backend");
    }

    fn execute_graph(&self, _: GraphId, _: GraphBindings) {
        debug_assert!(false, "there is no fusion between the server and its backend");
    }

    fn register_alias(&self, _: TensorId, _: TensorId) {
        debug_assert!(false, "there is no fusion between the server and its backend");
    }
}

/// Bridge between slots through the host's memory. [`Channel::change_client_backend`] moves the
/// tensors.
pub(crate) struct ByHost<B>(PhantomData<fn() -> B>);

impl<B: BackendIr> MultiBackendBridge for ByHost<B> {
    type TensorHandle = TensorData;
    type Device = SlotDevice<B::Device>;

    fn change_backend_float(data: TensorData, _: Shape, _: &Self::Device) -> TensorData {
        data
    }

    fn change_backend_int(data: TensorData, _: Shape, _: &Self::Device) -> TensorData {
        data
    }

    fn change_backend_bool(data: TensorData, _: Shape, _: &Self::Device) -> TensorData {
        data
    }
}

impl<B: BackendIr> RouterChannel for Channel<B> {
    type Device = SlotDevice<B::Device>;
    type Bridge = ByHost<B>;
    type Client = Client<B>;

    fn name(device: &Self::Device) -> String {
        format!("remat<{}>", B::name(&device.inner))
    }

    /// Makes a client with an empty slot, for a device that
    /// [`Builder::serve`](crate::Builder::serve) did not make. For the devices that `serve` makes,
    /// `serve` registers clients itself.
    fn init_client(device: &Self::Device) -> Self::Client {
        Client(Arc::new(Slot::new(device.clone())))
    }

    fn get_tensor_handle(tensor: &TensorIr, client: &Self::Client) -> TensorData {
        client.read(tensor).unwrap_or_else(|_| TensorData::new(Vec::<f32>::new(), [0]))
    }

    fn register_tensor(
        client: &Self::Client,
        data: TensorData,
        _: Shape,
        _: DType,
    ) -> RouterTensor<Self::Client> {
        client.register_tensor_data(data)
    }

    /// Moves a tensor through the host's memory. The router's own method does not support unsigned
    /// types, and cannot report a failure.
    fn change_client_backend(
        tensor: RouterTensor<Self::Client>,
        device: &Self::Device,
    ) -> RouterTensor<Self::Client> {
        let (source, target) = (tensor.client.clone(), get_client::<Self>(device));
        let ir = tensor.into_ir();
        match source.read(&ir) {
            Ok(data) => target.register_tensor_data(data),
            Err(error) => {
                let why = Error::Moved(error.to_string());
                target.tensor(ir.shape, ir.dtype, |session, number| session.lose(number, why))
            }
        }
    }
}
