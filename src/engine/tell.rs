//! Where every event is told, and who hears it: statistics, `tracing`, the evictor, listeners.

use super::{Engine, Error};
use crate::device::Device;
use crate::error::RegenerationError;
use crate::event::{Cause, Event, Hears};
use crate::evict::{Evictor, View};
use crate::graph::{Storage, StorageKey};
use crate::guard::caught;
use std::fmt;

/// Who panicked.
pub(super) const EVICTOR: fn() -> String = || "the policy".to_owned();

/// Hears every event of an engine, on the thread that drives it. Of a step that runs by plan there is one,
/// [`Event::DidReplay`], with all that was done. A listener that panics is an error of the command at hand; see
/// [`Engine::take_failure`].
///
/// ```
/// use remat::event::Event;
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
    /// Something happened, and `view` is how things are now.
    fn on(&mut self, event: &Event, view: View<'_>);
}

/// What an evictor is told of.
pub(super) fn heard_by(evictor: &dyn Evictor) -> Hears {
    if evictor.evicts() { evictor.hears() } else { Hears::NOTHING }
}

impl<D: Device> Engine<D> {
    /// Lets somebody hear every event from now on.
    pub fn listen(&mut self, listener: Box<dyn Listener>) {
        self.listeners.push(listener);
    }

    /// Tells everybody.
    #[inline(always)] // Where the event is known, little of it is left.
    pub(super) fn tell(&mut self, event: Event) {
        self.stats.on(&event);
        // Copies: what others look at may be anything afterwards, for all the compiler knows.
        if self.hears.has(event.kind()) {
            self.tell_evictor(event);
        }
        self.narrate(&event);
        if !self.listeners.is_empty() {
            self.tell_listeners(event);
        }
    }

    /// A run that reads these comes up. Told for each, if somebody wants to hear it: there is nothing more frequent.
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

    /// Asks the evictor something, or tells it. `None` if it panicked: then nothing works any more.
    pub(super) fn ask_evictor<T>(
        &mut self,
        ask: impl FnOnce(&mut dyn Evictor, View<'_>) -> T,
    ) -> Option<T> {
        let (evictor, view) = (&mut *self.evictor, self.store.view());
        match caught(EVICTOR, || ask(evictor, view)) {
            Ok(answer) => Some(answer),
            Err(error) => {
                // What it knows does not agree with what is any more.
                self.broken.get_or_insert(error);
                None
            }
        }
    }

    /// Tells an evictor that is to decide from now on what went before. Returns what it hears.
    ///
    /// # Errors
    /// If it panics.
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

    /// Tells it as `tracing` events, of target `remat`. A storage goes by its label, or else by its number.
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
                )
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
                tracing::debug!(target: "remat", runs, paths, "regenerates by a schedule");
            }
            Event::DidMove { moves, bytes, wanted } => {
                tracing::debug!(target: "remat", wanted, moves, moved = bytes, "did compact");
            }
            Event::DidSetBudget { bytes } => {
                tracing::debug!(target: "remat", bytes, "did set budget")
            }
            Event::DidStep { step, used } => tracing::debug!(target: "remat", step, used, "step"),
            Event::DidKeepLeaf { storage, bytes } => tracing::warn!(
                target: "remat", tensor = %store.name_of(storage), bytes,
                "not evicted: it is a leaf, which nothing could bring back"
            ),
            Event::Thrash { step, path, times, raise } => tracing::warn!(
                target: "remat", op = store.op_of_path(path), times, step,
                "thrash: a step recomputes several times its own work; raise the {raise}"
            ),
            Event::AboveThreshold { threshold, kept } => tracing::warn!(
                target: "remat", threshold, kept,
                "the eviction threshold cannot be met: what cannot be evicted is above it; raise it"
            ),
            Event::KeepsHistory { storage } => tracing::warn!(
                target: "remat", op = op(storage), tensor = %tensor(storage),
                "keeps its history across a step"
            ),
            Event::HistoryGrows { storages, tensors } => tracing::warn!(
                target: "remat", storages, tensors,
                "history grows: most values are kept only because others are made from them, and no end of a \
                 step was ever marked; call step() at the end of each turn of the training loop"
            ),
            Event::DidFail { failure } => match self.failures.find(failure) {
                // As it was asked to.
                Some(Error::Regeneration(e)) if **e == RegenerationError::Cancelled => {
                    tracing::debug!(target: "remat", error = %**e, "op failed");
                }
                Some(error) => tracing::error!(target: "remat", %error, "op failed"),
                None => {}
            },
            // What never was there did not go.
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
