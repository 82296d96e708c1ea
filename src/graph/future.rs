//! Future edges: what commands that are admitted and have not run will read, make and let go; and beyond them, what a
//! step does that is known as a whole ([`StepFuture`]).
//!
//! They are apart from the edges of what ran. So what waits changes nothing of neighbourhoods, deletes, updates in
//! place and ends of steps, and costs nothing where nobody admits anything.

use super::{Foreseen, StorageKey};
use crate::step::StepFuture;
use slotmap::{SecondaryMap, SlotMap, new_key_type};
use std::collections::VecDeque;
use std::sync::Arc;

new_key_type! {
    /// A storage that a waiting command will make.
    pub(crate) struct UnmadeKey;
}

/// A storage, whether it is there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    Made(StorageKey),
    Unmade(UnmadeKey),
}

/// What waiting commands will do, storage by storage. Distances are in commands: 1 is the next after the one at hand.
#[derive(Debug, Default)]
pub struct Future {
    /// Number of the command at hand.
    now: u64,
    /// Number of the last one admitted.
    last: u64,
    /// Only those with anything in them.
    of_made: SecondaryMap<StorageKey, Plans>,
    unmade: SlotMap<UnmadeKey, Unmade>,
    /// The step that is running, if it is known.
    foreseen: Option<Foreseen>,
}

/// What waiting commands will do to one storage. Numbers of commands rise.
#[derive(Debug, Default)]
struct Plans {
    /// Those that read it.
    reads: VecDeque<u64>,
    /// Those that end a handle to it.
    ends: VecDeque<u64>,
    /// Handles to it that they will make.
    handles: usize,
}

#[derive(Debug, Default)]
struct Unmade {
    plans: Plans,
    /// Once it is made: where its plans went.
    made: Option<StorageKey>,
    /// Numbers of tensors that lead here, and have not been made.
    names: usize,
}

impl Future {
    /// How many waiting commands are known. Nothing is kept of what is past.
    #[must_use]
    pub const fn commands(&self) -> usize {
        (self.last - self.now) as usize
    }

    /// How far away the next command is that reads a storage; `None` if no waiting command is known to.
    #[must_use]
    pub fn next_read(&self, storage: StorageKey) -> Option<usize> {
        self.reads(storage).next()
    }

    /// How far away the commands are that read a storage, nearest first.
    pub fn reads(&self, storage: StorageKey) -> impl Iterator<Item = usize> {
        let reads = self.of_made.get(storage).into_iter().flat_map(|plans| &plans.reads);
        reads.filter(|read| **read > self.now).map(|read| (read - self.now) as usize)
    }

    /// How far away the command is with or after which the last of the `handles` of a storage ends, 0 for the one at
    /// hand; `None` if that is not known. What others are made from stays in the graph after that.
    #[must_use]
    pub fn last_handle(&self, storage: StorageKey, handles: u32) -> Option<usize> {
        let plans = self.of_made.get(storage)?;
        let last = *plans.ends.back()?;
        (handles as usize + plans.handles == plans.ends.len())
            .then(|| last.saturating_sub(self.now) as usize)
    }

    /// The step at hand as a whole, if it is known: what commands will do that nobody has sent yet. A forecast, where
    /// the other answers are certain.
    #[must_use]
    pub const fn foreseen(&self) -> Option<&Foreseen> {
        self.foreseen.as_ref()
    }

    /// How many commands have run, or are at hand, of those that were admitted.
    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    /// The step at hand is known, and its first command is the next; or it is not known.
    pub(crate) fn foresee(&mut self, step: Option<Arc<StepFuture>>) {
        match (step, &mut self.foreseen) {
            (Some(step), Some(foreseen)) => foreseen.begin(step),
            (step, foreseen) => *foreseen = step.map(Foreseen::new),
        }
    }

    /// The next command is the one at this position of the known step.
    pub(crate) fn seek(&mut self, position: u32) {
        if let Some(foreseen) = &mut self.foreseen {
            foreseen.seek(position);
        }
    }

    /// The next command of the known step is at hand.
    #[inline]
    pub(crate) fn advance_foreseen(&mut self) {
        if let Some(foreseen) = &mut self.foreseen {
            foreseen.advance();
        }
    }

    /// A storage holds a value of the known step.
    pub(crate) fn bind(&mut self, storage: StorageKey, ordinal: u32) {
        if let Some(foreseen) = &mut self.foreseen {
            foreseen.bind(storage, ordinal);
        }
    }

    /// The values of the known step that the tensors hold that the command at hand makes, in their order.
    pub(crate) fn foreseen_outputs(&self) -> &[u32] {
        self.foreseen.as_ref().map_or(&[], Foreseen::outputs)
    }

    /// One more command waits. Returns its number: that of the one before, if it does not count.
    pub(crate) const fn admit(&mut self, counts: bool) -> u64 {
        self.last += counts as u64;
        self.last
    }

    /// The next command is at hand.
    pub(crate) fn advance(&mut self) {
        self.now += 1;
        self.last = self.last.max(self.now);
    }

    /// A storage that a waiting command will make, for the first number that leads to it.
    pub(crate) fn add_unmade(&mut self) -> UnmadeKey {
        self.unmade.insert(Unmade::default())
    }

    /// Where a root leads now.
    pub(crate) fn resolve(&self, root: Root) -> Root {
        match root {
            Root::Unmade(key) => {
                let made = self.unmade.get(key).and_then(|unmade| unmade.made);
                made.map_or(root, Root::Made)
            }
            made => made,
        }
    }

    /// Command number `at` will read it.
    pub(crate) fn will_read(&mut self, root: Root, at: u64) {
        // Some read the same thing twice.
        if let Some(plans) = self.plans(root)
            && plans.reads.back() != Some(&at)
        {
            plans.reads.push_back(at);
        }
    }

    /// Command number `at` will end a handle to it.
    pub(crate) fn will_end(&mut self, root: Root, at: u64) {
        if let Some(plans) = self.plans(root) {
            plans.ends.push_back(at);
        }
    }

    /// A waiting command will make a handle to it.
    pub(crate) fn will_name(&mut self, root: Root) {
        if let Some(plans) = self.plans(root) {
            plans.handles += 1;
        }
        if let Root::Unmade(key) = root
            && let Some(unmade) = self.unmade.get_mut(key)
        {
            unmade.names += 1;
        }
    }

    /// The command at hand was to make a handle to `root`, and made one to `storage`; or it failed.
    pub(crate) fn did_name(&mut self, root: Root, storage: Option<StorageKey>) {
        if let Some(plans) = self.plans_if_any(self.resolve(root)) {
            plans.handles = plans.handles.saturating_sub(1);
        }
        if let Root::Unmade(key) = root
            && let Some(unmade) = self.unmade.get_mut(key)
        {
            unmade.names -= 1;
            let gone = unmade.names == 0;
            if let (None, Some(storage)) = (unmade.made, storage) {
                unmade.made = Some(storage);
                let plans = std::mem::take(&mut unmade.plans);
                if let Some(made) = self.plans(Root::Made(storage)) {
                    made.merge(plans);
                }
                self.tidy(storage);
            }
            if gone {
                self.unmade.remove(key);
            }
        } else if let Root::Made(storage) = root {
            self.tidy(storage);
        }
    }

    /// The command at hand ran: its read or end of `root` is past.
    pub(crate) fn settle(&mut self, root: Root) {
        let (now, root) = (self.now, self.resolve(root));
        let Some(plans) = self.plans_if_any(root) else { return };
        while plans.reads.pop_front_if(|read| *read <= now).is_some() {}
        while plans.ends.pop_front_if(|end| *end <= now).is_some() {}
        if let Root::Made(storage) = root {
            self.tidy(storage);
        }
    }

    fn tidy(&mut self, storage: StorageKey) {
        if self.of_made.get(storage).is_some_and(Plans::is_empty) {
            self.of_made.remove(storage);
        }
    }

    /// `None` for a storage that is gone: a waiting command was to name it, and a failure came in between. Then no plan
    /// is made, for whatever it will name instead shows when it runs.
    fn plans(&mut self, root: Root) -> Option<&mut Plans> {
        match self.resolve(root) {
            Root::Made(storage) => Some(self.of_made.entry(storage)?.or_default()),
            Root::Unmade(key) => self.unmade.get_mut(key).map(|unmade| &mut unmade.plans),
        }
    }

    fn plans_if_any(&mut self, root: Root) -> Option<&mut Plans> {
        match root {
            Root::Made(storage) => self.of_made.get_mut(storage),
            Root::Unmade(key) => self.unmade.get_mut(key).map(|unmade| &mut unmade.plans),
        }
    }
}

impl Plans {
    fn is_empty(&self) -> bool {
        self.reads.is_empty() && self.ends.is_empty() && self.handles == 0
    }

    /// Those of a value that took its storage over from another.
    fn merge(&mut self, other: Self) {
        let merge = |ours: &mut VecDeque<u64>, theirs: VecDeque<u64>| {
            ours.extend(theirs);
            ours.make_contiguous().sort_unstable();
        };
        merge(&mut self.reads, other.reads);
        merge(&mut self.ends, other.ends);
        self.handles += other.handles;
    }
}
