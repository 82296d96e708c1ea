//! Sending of events to statistics, `tracing`, the evictor and listeners.

use super::{Engine, Error};
use crate::device::Device;
use crate::error::RegenerationError;
use crate::event::{Cause, Event, Hears};
use crate::evict::{Evictor, View};
use crate::graph::{Storage, StorageKey};
use crate::guard::caught;
use std::fmt;

/// Name of the evictor in errors about a panic.
pub(super) const EVICTOR: fn() -> String = || "the policy".to_owned();

/// Listener of all events of an engine. The listener is called on the thread that drives the
/// engine. A step that runs by plan is reported as one event, [`Event::DidReplay`], with all its
/// work. A panic of a listener is an error of the current command; see [`Engine::take_failure`].
///
/// ```
/// use remat::unstable::event::Event;
/// use remat::evict::View;
/// use remat::{Listener, Runtime};
///
/// /// Prints what is evicted.
/// #[derive(Debug)]
/// struct Tell;
///
/// impl Listener for Tell {
///     fn on(&mut self, event: &Event, view: View<'_>) {
///         if let Event::DidEvict { bytes, cause, .. } = event {
///             println!("{bytes} bytes went ({cause:?}), {} are left", view.used_bytes());
///         }
///     }
/// }
///
/// let runtime = Runtime::builder().budget("1MiB").listen(Tell).cpu()?;
/// # Ok::<(), remat::Error>(())
/// ```
pub trait Listener: fmt::Debug + Send {
    /// Receives an event. `view` shows the engine after the event.
    fn on(&mut self, event: &Event, view: View<'_>);
}

/// Kinds of events that an evictor receives: none if the evictor never evicts.
pub(super) fn heard_by(evictor: &dyn Evictor) -> Hears {
    if evictor.evicts() { evictor.hears() } else { Hears::NOTHING }
}

impl<D: Device> Engine<D> {
    /// Adds a listener that receives all events from now on.
    pub fn listen(&mut self, listener: Box<dyn Listener>) {
        self.listeners.push(listener);
    }

    /// Sends an event to all receivers.
    #[inline(always)] // For a known event, the compiler drops most of the function.
    pub(super) fn tell(&mut self, event: Event) {
        self.stats.on(&event);
        // Pass copies: if a reference were passed, the compiler could no longer assume which event
        // it is.
        if self.hears.has(event.kind()) {
            self.tell_evictor(event);
        }
        self.narrate(&event);
        if !self.listeners.is_empty() {
            self.tell_listeners(event);
        }
    }

    /// Sends the event that the next run uses the storages `storages`. The event is the most
    /// frequent of all, so it is sent only if it has a receiver.
    #[inline]
    pub(super) fn tell_use(&mut self, storages: &[StorageKey]) {
        if self.hears.has(Hears::USES) || !self.listeners.is_empty() {
            for &storage in storages {
                self.tell(Event::DidUse { storage });
            }
        }
    }

    fn tell_evictor(&mut self, event: Event) {
        self.ask_evictor(|evictor, view| evictor.on(&event, view));
    }

    /// Calls the evictor. Returns `None` if the evictor panicked, which breaks the engine.
    pub(super) fn ask_evictor<T>(
        &mut self,
        ask: impl FnOnce(&mut dyn Evictor, View<'_>) -> T,
    ) -> Option<T> {
        let (evictor, view) = (&mut *self.evictor, self.store.view());
        match caught(EVICTOR, || ask(evictor, view)) {
            Ok(answer) => Some(answer),
            Err(error) => {
                // The evictor's state no longer agrees with the engine.
                self.broken.get_or_insert(error);
                None
            }
        }
    }

    /// Sends a new evictor an event for each evicted storage. Returns the kinds of events that the
    /// evictor receives.
    ///
    /// # Errors
    /// If the evictor panics.
    pub(super) fn tell_new_evictor(&self, evictor: &mut dyn Evictor) -> Result<Hears, Error> {
        let hears = heard_by(evictor);
        if hears.has(Hears::EVICTIONS) {
            let view = self.store.view();
            let evicted = view.graph.storages().filter(|(key, _)| view.graph.is_evicted(*key));
            for (storage, &Storage { bytes, .. }) in evicted {
                let event = Event::DidEvict { storage, bytes, cause: Cause::Before };
                caught(EVICTOR, || evictor.on(&event, view))?;
            }
        }
        Ok(hears)
    }

    #[cold]
    fn tell_listeners(&mut self, event: Event) {
        for listener in &mut self.listeners {
            let view = self.store.view();
            if let Err(error) = caught(|| "a listener".to_owned(), || listener.on(&event, view)) {
                self.failures.keep(error);
            }
        }
    }

    /// Emits an event as a `tracing` event of target `remat`. Storages are named by label, or by
    /// number if they have no label.
    #[inline(always)]
    fn narrate(&self, event: &Event) {
        let store = &self.store;
        let (op, bytes) = (|key| store.op_of(key), |key| store.graph.storage(key).bytes);
        let tensor = |key| store.tensor_name(key);
        match *event {
            Event::WillEvict { storage, score } => tracing::debug!(
                target: "remat", op = op(storage), tensor = %tensor(storage),
                bytes = bytes(storage), score, "will evict"
            ),
            Event::DidEvict { storage, bytes, cause } if cause != Cause::Postponed => {
                tracing::trace!(
                    target: "remat", op = op(storage), tensor = %tensor(storage), bytes, "did evict"
                );
            }
            Event::WillRegenerate { storage, depth } => tracing::trace!(
                target: "remat", op = op(storage), tensor = %tensor(storage),
                bytes = bytes(storage), depth, "will regenerate"
            ),
            Event::DidRegenerate { storage, bytes, cost } => tracing::debug!(
                target: "remat", op = op(storage), tensor = %tensor(storage), bytes, cost,
                "did regenerate"
            ),
            Event::DidSchedule { runs, paths } => {
                tracing::debug!(target: "remat", runs, paths, "will regenerate by a schedule");
            }
            Event::DidMove { moves, bytes, wanted } => {
                tracing::debug!(target: "remat", wanted, moves, moved = bytes, "did compact");
            }
            Event::DidSetBudget { bytes } => {
                tracing::debug!(target: "remat", bytes, "did set budget");
            }
            Event::DidStep { step, used } => tracing::debug!(target: "remat", step, used, "step"),
            Event::DidKeepLeaf { storage, bytes } => tracing::warn!(
                target: "remat", tensor = %store.name_of(storage), bytes,
                "drop_now() did not evict this tensor: a leaf cannot be recomputed"
            ),
            Event::Thrash { step, path, times, raise } => tracing::warn!(
                target: "remat", op = store.op_of_path(path), times, step,
                "thrash: a step recomputes several times its own work; raise the {raise}"
            ),
            Event::AboveThreshold { threshold, kept } => tracing::warn!(
                target: "remat", threshold, kept,
                "the eviction threshold cannot be met: the bytes that cannot be evicted are more than the threshold; \
                 raise the threshold"
            ),
            Event::KeepsHistory { storage } => tracing::warn!(
                target: "remat", op = op(storage), tensor = %tensor(storage),
                "history is kept across the end of a step, because the budget cannot hold this tensor as a leaf; raise \
                 the budget"
            ),
            Event::HistoryGrows { storages, tensors } => tracing::warn!(
                target: "remat", storages, tensors,
                "history grows: most values are kept only to recompute others, and no end of a step was ever marked; \
                 call step() at the end of each pass of the training loop"
            ),
            Event::DidFail { failure } => match self.failures.find(failure) {
                // A command that the user cancelled is not logged as an error.
                Some(Error::Regeneration(e)) if **e == RegenerationError::Cancelled => {
                    tracing::debug!(target: "remat", error = %**e, "op failed");
                }
                Some(error) => tracing::error!(target: "remat", %error, "op failed"),
                None => {}
            },
            // A postponed output was never made, so its eviction is not an event for the user.
            Event::DidEvict { .. }
            | Event::DidRun { .. }
            | Event::DidReplay { .. }
            | Event::DidChangeCost { .. }
            | Event::DidUse { .. }
            | Event::DidCommit { .. }
            | Event::WillForget { .. }
            | Event::DidDelete { .. } => {}
        }
    }
}
