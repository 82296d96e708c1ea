//! Listener that keeps the events that it receives.

use remat::Listener;
use remat::device::Device;
use remat::evict::View;
use remat::unstable::engine::Engine;
use remat::unstable::event::Event;
use remat::unstable::graph::{StorageKey, TensorKey};
use std::sync::{Arc, Mutex};

/// Events heard so far. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<Mutex<Vec<Event>>>);

impl Heard {
    /// Listens to `engine` from now on.
    pub fn of<D: Device>(engine: &mut Engine<D>) -> Self {
        let heard = Self::default();
        engine.listen(Box::new(heard.clone()));
        heard
    }

    /// Takes the events since the last call.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Takes the events since the last call, except runs and uses: only evictions, regenerations,
    /// moves, failures and warnings.
    pub fn take_story(&self) -> Vec<Event> {
        let is_run = |event: &Event| matches!(event, Event::DidRun { .. } | Event::DidUse { .. });
        self.take().into_iter().filter(|event| !is_run(event)).collect()
    }
}

impl Listener for Heard {
    fn on(&mut self, event: &Event, _: View<'_>) {
        self.0.lock().unwrap().push(*event);
    }
}

/// Storage that a tensor views.
pub fn storage<D: Device>(engine: &Engine<D>, key: TensorKey) -> StorageKey {
    engine.graph().tensor(key).expect("it is not deleted").storage
}
