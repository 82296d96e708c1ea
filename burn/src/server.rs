//! Local server for Burn's remote devices.
//!
//! The process has one server for each backend, device and set of custom operations. The server has
//! a slot for each budget in use.

use crate::error::Error;
use crate::router::{Budgeted, Channel, Client, Slot, SlotDevice, forward};
use crate::session::Session;
use burn::remote::RemoteHost;
use burn::tensor::Device;
use burn_backend::backend::DeviceId;
use burn_ir::BackendIr;
use burn_remote::server::{BackendServer, TokenAuthorizer, WebSocketTransport};
use burn_router::{RouterClientRegistration, register_scoped_client};
use burn_std::device::Device as _;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of budgets in use at once on a server.
const SLOTS: usize = 64;

/// Server that lives as long as the process.
///
/// Burn's client keeps a thread and a socket for each device of a server, and never releases them.
/// With a separate server for each budget, threads and sockets would leak.
pub(crate) struct Server<B: BackendIr> {
    address: SocketAddr,
    host: RemoteHost,
    slots: Vec<Arc<Slot<B>>>,
    /// Numbers of free slots; the last one is used next. The slot that was freed last is thus
    /// reused first, so that Burn's client keeps resources for as few slots as possible.
    free: Mutex<Vec<usize>>,
    _registered: Vec<RouterClientRegistration<Channel<B>>>,
    /// Runtime of the server's threads.
    _runtime: tokio::runtime::Runtime,
}

/// Servers by backend, device, and ids of custom operations. Burn's server must know these ids
/// before it starts.
type Servers = HashMap<(TypeId, DeviceId, Vec<String>), Arc<dyn Any + Send + Sync>>;

impl<B: BackendIr> Server<B> {
    /// Server for this device and these custom operations. Starts the server at the first call.
    pub fn of<'a>(
        device: &B::Device,
        custom_ops: impl Iterator<Item = &'a String>,
    ) -> Result<Arc<Self>, Error> {
        static SERVERS: Mutex<Option<Servers>> = Mutex::new(None);
        let mut servers = lock(&SERVERS);
        let servers = servers.get_or_insert_with(HashMap::new);
        let custom_ops: Vec<String> = custom_ops.cloned().collect();
        let key = (TypeId::of::<B>(), device.to_id(), custom_ops);
        if let Some(server) = servers.get(&key).and_then(|known| known.clone().downcast().ok()) {
            return Ok(server);
        }
        let server = Arc::new(Self::start(device, &key.2)?);
        servers.insert(key, Arc::clone(&server) as Arc<dyn Any + Send + Sync>);
        Ok(server)
    }

    fn start(device: &B::Device, custom_ops: &[String]) -> Result<Self, Error> {
        let io = |error: std::io::Error| Error::Server(error.to_string());
        let mut slots = Vec::new();
        let mut registered = Vec::new();
        for _ in 0..SLOTS {
            let device = SlotDevice::new(device.clone()).ok_or(Error::Full(slots.len()))?;
            let slot = Arc::new(Slot::new(device));
            registered.extend(register_scoped_client(slot.device(), Client(Arc::clone(&slot))));
            slots.push(slot);
        }
        // `WebSocketTransport::new` would listen on the whole network.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io)?;
        let address = listener.local_addr().map_err(io)?;
        // Other users of the machine can reach the port, so clients must send a secret token.
        let token = secret();
        let authorizer = TokenAuthorizer::new(token.clone())
            .map_err(|error| Error::Server(error.to_string()))?;
        let mut server =
            BackendServer::<Budgeted<B>>::new(slots.iter().map(|slot| slot.device().clone()))
                .with_authorizer(authorizer);
        for id in custom_ops {
            server = server.with_custom_op(id, forward::<B>);
        }
        let serving = server.serve_async(WebSocketTransport::from_listener(listener));
        // Two threads serve reads, so that a read that recomputes does not block all other reads.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("remat-burn")
            .enable_all()
            .build()
            .map_err(io)?;
        runtime.spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(target: "remat", %error, "the server on 127.0.0.1 ended");
            }
        });
        let host = RemoteHost::websocket(&format!("ws://{address}")).with_credential(token);
        let free = Mutex::new((0..SLOTS).rev().collect());
        Ok(Self { address, host, slots, free, _registered: registered, _runtime: runtime })
    }

    /// Opens a session in a free slot, and returns Burn's device for the slot.
    pub fn open(self: Arc<Self>, session: Session<B>) -> Result<(Device, Served<B>), Error> {
        loop {
            let index = lock(&self.free).pop().ok_or(Error::Full(SLOTS))?;
            let device = match Device::remote_options(&self.host).device_index(index).init() {
                Ok(device) => device,
                Err(error) => {
                    lock(&self.free).push(index);
                    return Err(error.into());
                }
            };
            // Burn's client never reconnects after the server has ended a connection. The slot of
            // an ended connection stays unused.
            if self.answers(index, &device) {
                self.slots[index].open(session);
                return Ok((device, Served { index, server: self }));
            }
        }
    }

    /// Whether the client's connection to a free slot still works.
    fn answers(&self, index: usize, device: &Device) -> bool {
        let _quiet = self.slots[index].quietly();
        device.sync().is_ok()
    }
}

/// Slot in use. Dropping it ends the session, and frees all memory of the session.
pub(crate) struct Served<B: BackendIr> {
    index: usize,
    server: Arc<Server<B>>,
}

impl<B: BackendIr> Served<B> {
    pub fn slot(&self) -> &Slot<B> {
        &self.server.slots[self.index]
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address
    }
}

impl<B: BackendIr> Drop for Served<B> {
    fn drop(&mut self) {
        self.slot().close();
        lock(&self.server.free).push(self.index);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Random 128 bits as text. The bits are hashes by the standard library's `RandomState`, whose keys
/// are random numbers of the system.
fn secret() -> String {
    let half = |word: u64| RandomState::new().hash_one(word);
    format!("{:016x}{:016x}", half(0), half(1))
}
