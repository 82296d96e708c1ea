//! A driver that recognizes steps: what came before will come again, and the evictor is told.

use super::Driver;
use super::learning::Going;
use super::trust::{Costs, Trust};
use crate::command::{Command, TensorId};
use crate::device::Device;
use crate::error::{Error, RegenerationError};
use crate::evict::Foresight;
use crate::graph::StorageKey;
use crate::layout::Layout;
use crate::op::Operation as _;
use crate::step::recognize::{Heard, Known, KnownSteps, MARK, Makes, NodeId, Role, Steps};
use rustc_hash::FxHasher;
use slotmap::SecondaryMap;
use smallvec::SmallVec;
use std::hash::{Hash as _, Hasher as _};
use std::mem::discriminant;
use std::sync::Arc;

/// What a driver knows of the steps of its program.
#[derive(Debug, Default)]
pub(super) struct Recognizer {
    steps: Steps,
    /// What each storage is in a step.
    roles: SecondaryMap<StorageKey, Role>,
    /// Of each role, the storage that was made last: of several, that is what will be read.
    players: Vec<Option<StorageKey>>,
    /// What is expected, as the evictor was told.
    pub known: Option<Known>,
    /// How that is run, and in which budget; `None` if it has yet to be made.
    pub foresight: Option<(u64, Arc<Foresight>)>,
    /// Where in it the command at hand is.
    at: usize,
    /// The turn that is going on; `None` before one has begun as it was expected to, and where it is guessed.
    pub going: Option<Going>,
    /// Whether the evictor is told what is expected.
    pub trust: Trust,
    /// Whether it is to be told with the next command.
    tells: bool,
}

/// A command that is running, and where it is among those that have come before.
#[derive(Debug)]
pub(super) struct Recognized {
    node: NodeId,
    /// What it makes, but for views.
    makes: SmallVec<[(TensorId, Role); 2]>,
}

impl Recognizer {
    /// A storage was made in this role. Returns the one that it played before.
    fn cast(&mut self, storage: StorageKey, role: Role) -> Option<Role> {
        let index = role.index();
        if self.players.len() <= index {
            self.players.resize(index + 1, None);
        }
        if let Some(last) = self.players[index].replace(storage)
            && last != storage
            && self.roles.get(last) == Some(&role)
        {
            self.roles.remove(last);
        }
        self.roles.insert(storage, role).filter(|before| *before != role)
    }

    /// What plays some roles has others from now on, or none: all at once.
    fn recast(&mut self, roles: Vec<(Role, Option<Role>)>) {
        let player = |(before, now): (Role, Option<Role>)| {
            let storage = (*self.players.get(before.index())?)?;
            (self.roles.get(storage) == Some(&before)).then_some((storage, now))
        };
        let recast: SmallVec<[_; 16]> = roles.into_iter().filter_map(player).collect();
        recast.iter().for_each(|(storage, _)| _ = self.roles.remove(*storage));
        for (storage, role) in recast {
            role.map(|role| self.cast(storage, role));
        }
    }

    /// The value of the known step that a storage holds when the command at `position` is next; `None` if it is none of
    /// the step's.
    pub fn value_of(&self, storage: StorageKey, position: usize) -> Option<u32> {
        let role = *self.roles.get(storage)?;
        Some(self.known.as_ref()?.value(role, position))
    }

    /// The storages that play roles, with those.
    fn playing(&self) -> impl Iterator<Item = (StorageKey, Role)> {
        let players = self.players.iter().flatten();
        players.filter_map(|&storage| Some((storage, *self.roles.get(storage)?)))
    }

    /// The turn that ended with the last command; empty if turns are not compared.
    pub fn last_turn(&self) -> &[NodeId] {
        self.steps.last_turn()
    }

    /// Turns came again by plan, whose commands were not heard. The evictor is told anew with the next command.
    pub fn hear_again<'a>(&mut self, turns: impl Iterator<Item = &'a [NodeId]>) {
        turns.for_each(|turn| self.steps.came_again(turn));
        let renamed = self.steps.take_renamed();
        self.recast(renamed);
        self.at = self.steps.on_course().unwrap_or(0);
        self.tells = self.known.is_some();
        self.going = None;
    }

    /// Bytes of host memory.
    pub fn bytes(&self) -> u64 {
        self.steps.bytes()
    }
}

impl<D: Device> Driver<D> {
    /// From now on steps are recognized, be they marked or not: when commands come as they came before, the evictor is
    /// told what follows ([`Driver::foresee`]), until they do not. It costs a little at each command.
    ///
    /// A driver of a program that is known from elsewhere is told by [`Driver::foresee`] instead.
    #[inline(never)]
    pub fn recognize_steps(&mut self) {
        self.recognize_known_steps(KnownSteps::default());
    }

    /// The same, knowing what an earlier run of the program knew of them. For a driver that has executed nothing yet.
    pub fn recognize_known_steps(&mut self, known: KnownSteps) {
        let steps = Steps::of_another_run(known);
        self.recognizer = Some(Box::new(Recognizer { steps, ..Recognizer::default() }));
    }

    /// What is known of the steps by now; `None` if they are not recognized yet.
    #[must_use]
    pub fn known_steps(&self) -> Option<KnownSteps> {
        Some(self.recognizer.as_ref()?.steps.keep())
    }

    /// The same from the first eviction on, if the evictor goes by it; otherwise no more. So it costs nothing while memory is
    /// plentiful.
    pub fn recognize_steps_once_short(&mut self) {
        let told = self.foresee(None);
        self.report(told);
        self.recognizer = None;
        self.recognizes_once_short = self.engine.foresees();
    }

    /// Whether a tensor that can be evicted is, if its last handle goes with the next command. Where steps are recognized, what is
    /// known of them may keep it, and may come to be known with that very command. For devices whose ops write over inputs that
    /// are not needed any more.
    #[must_use]
    pub fn evicts_unheld(&self) -> bool {
        self.recognizer.is_none() && !self.engine.keeps_unheld()
    }

    /// Whether the bytes of a tensor would go at once if its last handle went now. Not for what is wanted to bring others back, if the
    /// evictor knows that. For devices whose ops write over inputs that are not needed any more.
    #[must_use]
    pub fn would_go(&mut self, tensor: TensorId) -> bool {
        self.key(tensor).is_ok_and(|key| self.engine.would_go(key))
    }

    /// Whether steps are recognized, from now on perhaps.
    #[inline(always)]
    fn recognizes(&mut self) -> bool {
        if self.recognizer.is_none() && self.recognizes_once_short && self.engine.has_evicted() {
            self.recognize_steps();
        }
        self.recognizer.is_some()
    }

    /// This command is next.
    #[inline(always)]
    pub(super) fn recognize(&mut self, command: &Command<D::Op, D::Host>) -> Option<Recognized> {
        if self.recognizes() { self.recognize_next(command) } else { None }
    }

    #[inline(never)]
    fn recognize_next(&mut self, command: &Command<D::Op, D::Host>) -> Option<Recognized> {
        if !command.is_position() {
            return None;
        }
        let mut recognizer = self.recognizer.take()?;
        self.last_cost = 0.0;
        let recognized = self.recognize_with(&mut recognizer, command);
        self.recognizer = Some(recognizer);
        Some(recognized)
    }

    fn recognize_with(
        &mut self,
        recognizer: &mut Recognizer,
        command: &Command<D::Op, D::Host>,
    ) -> Recognized {
        if recognizer.steps.is_full() {
            let trust = std::mem::take(&mut recognizer.trust);
            *recognizer = Recognizer { trust, ..Recognizer::default() };
            self.foresee_nothing();
        }
        let heard = self.hear(&recognizer.roles, command);
        let token = heard.token;
        let node = recognizer.steps.hear(heard);
        let renamed = recognizer.steps.take_renamed();
        recognizer.recast(renamed);
        match (recognizer.steps.on_course(), &recognizer.known) {
            (Some(at), Some(_)) => {
                let goes_on = at == recognizer.at + 1 && !recognizer.steps.enters_loop();
                recognizer.at = if goes_on { at } else { self.turn_around(recognizer, at) };
                if recognizer.tells {
                    let at = recognizer.at;
                    self.foresee_from(recognizer, at);
                }
            }
            _ => {
                (self.writing, recognizer.going) = (None, None);
                recognizer.known = recognizer.steps.look_ahead();
                recognizer.foresight = None;
                recognizer.at = recognizer.steps.on_course().unwrap_or(0);
                if recognizer.known.is_some() {
                    let at = recognizer.at;
                    self.foresee_from(recognizer, at);
                } else {
                    self.foresee_nothing();
                }
            }
        }
        recognizer.trust.hear(token, self.is_foreseen());
        if recognizer.trust.is_lost(self.costs()) && !self.has_forecast(recognizer) {
            recognizer.trust.withdraw();
            (self.writing, recognizer.going) = (None, None);
            self.foresee_nothing();
        }
        let mut makes = SmallVec::new();
        let mut roles = recognizer.steps.made_by(node);
        command.makes(|tensor| {
            makes.extend(roles.next().flatten().map(|role| (tensor, role)));
        });
        drop(roles);
        Recognized { node, makes }
    }

    /// The command ran.
    #[inline(always)]
    pub(super) fn recognized(&mut self, recognized: Option<Recognized>) {
        if let Some(recognized) = recognized {
            self.did_recognize(recognized);
        }
    }

    #[inline(never)]
    fn did_recognize(&mut self, Recognized { node, makes }: Recognized) {
        let Some(mut recognizer) = self.recognizer.take() else { return };
        recognizer.steps.ran(node, self.last_cost);
        for (tensor, role) in makes {
            // What could not be made has no storage.
            if let Some(storage) = self.storage_of(tensor)
                && let Some(before) = recognizer.cast(storage, role)
            {
                recognizer.steps.gone(before);
            }
        }
        let heirs = recognizer.steps.heirs(node).iter();
        let heirs: Vec<_> = heirs.map(|heir| (heir.plays, Some(heir.inherits))).collect();
        recognizer.recast(heirs);
        if recognizer.steps.is_mark(node) {
            self.compare_turn(&mut recognizer);
        }
        self.recognizer = Some(recognizer);
    }

    /// A turn is over: the next is foreseen or guessed, whichever recomputes less.
    fn compare_turn(&mut self, recognizer: &mut Recognizer) {
        let was_told = self.is_told(recognizer);
        let compared = !self.has_forecast(recognizer);
        recognizer.trust.turn_is_over(self.costs(), compared);
        let is_told = self.is_told(recognizer);
        recognizer.tells = !was_told && is_told && recognizer.known.is_some();
        if !is_told {
            self.foresee_nothing();
        }
    }

    /// A command failed. If that may be because of what was foreseen, what comes next is guessed.
    pub(super) fn guess_after(&mut self, error: &Error) {
        let is_memory = match error {
            Error::OutOfMemory(_) => true,
            Error::Regeneration(error) => **error != RegenerationError::Cancelled,
            _ => false,
        };
        if !is_memory {
            return;
        }
        let Some(mut recognizer) = self.recognizer.take() else { return };
        match &recognizer.known {
            Some(known) if self.has_forecast(&recognizer) => {
                self.learning.drop_forecast((known.key, self.engine.budget()));
                recognizer.foresight = None;
            }
            _ => recognizer.trust.failed(),
        }
        recognizer.going = None;
        if !self.is_told(&recognizer) {
            self.foresee_nothing();
        }
        self.recognizer = Some(recognizer);
    }

    /// Whether the evictor is told what is expected of the turn at hand.
    pub(super) fn is_told(&self, recognizer: &Recognizer) -> bool {
        recognizer.trust.is_given() || self.has_forecast(recognizer)
    }

    /// Whether the turn at hand has a forecast: then [`Drift`](super::drift::Drift) says what is tried.
    fn has_forecast(&self, recognizer: &Recognizer) -> bool {
        let known = recognizer.known.as_ref();
        known.is_some_and(|known| self.learning.has_forecast((known.key, self.engine.budget())))
    }

    fn is_foreseen(&self) -> bool {
        self.engine.graph().future().foreseen().is_some()
    }

    fn foresee_nothing(&mut self) {
        if self.is_foreseen() {
            let told = self.foresee(None);
            self.report(told);
        }
    }

    fn costs(&self) -> Costs {
        let (work, again, planned) = self.engine.costs();
        Costs { work, again, planned, budget: self.engine.budget() }
    }

    /// A tensor goes. Called before it does.
    #[inline(always)]
    pub(super) fn recognize_end(&mut self, tensor: TensorId) {
        if self.recognizer.is_some() {
            self.recognize_end_of(tensor);
        }
    }

    #[inline(never)]
    fn recognize_end_of(&mut self, tensor: TensorId) {
        if let Some(storage) = self.storage_of(tensor)
            && self.engine.graph().storage(storage).handles == 1
            && let Some(recognizer) = &mut self.recognizer
            && let Some(&role) = recognizer.roles.get(storage)
        {
            recognizer.steps.gone(role);
        }
    }

    /// From the end of what is known, or from before a loop, to where the loop begins, the command at hand: what was made is
    /// now what was there before. Returns where that is.
    fn turn_around(&mut self, recognizer: &mut Recognizer, at: usize) -> usize {
        let at = match recognizer.steps.is_loop() {
            true => at,
            // What came before the loop will not come again, or its next turn is another.
            false => {
                recognizer.known = recognizer.steps.look_along();
                recognizer.foresight = None;
                recognizer.steps.on_course().unwrap_or(0)
            }
        };
        match at {
            0 => {
                // Where steps are marked, turns are what is between marks.
                if !recognizer.steps.is_marked() {
                    self.compare_turn(recognizer);
                }
                self.turn_begins(recognizer);
            }
            // What is written down is no turn of it.
            _ => (self.writing, recognizer.going) = (None, None),
        }
        self.foresee_from(recognizer, at);
        at
    }

    /// Tells the evictor what is expected, and that the command at hand is number `at` of that.
    fn foresee_from(&mut self, recognizer: &mut Recognizer, at: usize) {
        recognizer.tells = false;
        if !self.is_told(recognizer) {
            return self.foresee_nothing();
        }
        let budget = self.engine.budget();
        let made = recognizer.foresight.take().filter(|(made_for, _)| *made_for == budget);
        let made = made.or_else(|| Some((budget, self.foresight_of(recognizer)?)));
        let Some((_, foresight)) = &made else { return };
        let told = self.foresee(Some(Arc::clone(foresight)));
        recognizer.foresight = made;
        self.report(told);
        // By their roles, of which there are no more than the program has: tables of storages are as long as there ever
        // were storages.
        for (storage, _) in recognizer.playing() {
            if self.engine.graph().contains(storage)
                && let Some(value) = recognizer.value_of(storage, at)
            {
                self.engine.future_mut().bind(storage, value);
            }
        }
        self.seek(at as u32);
    }

    /// A command, as far as it is the same in each step.
    fn hear(
        &self,
        roles: &SecondaryMap<StorageKey, Role>,
        command: &Command<D::Op, D::Host>,
    ) -> Heard {
        let mut heard = Heard { reads: true, ..Heard::default() };
        let mut hash = FxHasher::default();
        discriminant(command).hash(&mut hash);
        let role = |tensor| self.storage_of(tensor).and_then(|key| roles.get(key)).copied();
        match command {
            Command::Put { host, .. } => {
                heard.makes.push(Makes::Value(D::layout_of(host).bytes()));
            }
            Command::Replace { target, value, .. } => {
                heard.inputs.extend([role(*value), role(*target)]);
                heard.makes.push(match heard.inputs[1] {
                    Some(_) => Makes::Replace { by: 0, target: 1 },
                    None => Makes::Look(0),
                });
            }
            Command::Get(tensor) | Command::Commit(tensor) => heard.inputs.push(role(*tensor)),
            Command::Drop(tensor) | Command::Label { tensor, .. } => {
                heard.inputs.push(role(*tensor));
                heard.reads = false;
            }
            _ => {}
        }
        for call in command.calls() {
            call.op.name().hash(&mut hash);
            let before = heard.inputs.len() as u32;
            heard.inputs.extend(call.inputs.iter().map(|&input| role(input)));
            let looks = call.outputs.views();
            heard.makes.extend(looks.iter().map(|look| Makes::Look(before + look.input as u32)));
            heard.reads &= looks.is_empty();
            for target in 0..call.outputs.targets().min(call.inputs.len()) {
                let input = before + target as u32;
                heard.makes.push(match heard.inputs[input as usize] {
                    Some(_) => Makes::Update(input),
                    None => Makes::Value(self.bytes_of(call.inputs[target])),
                });
            }
            if let Some((_, fresh)) = call.outputs.written() {
                heard.makes.extend(fresh.iter().map(|layout| Makes::Value(layout.bytes())));
            }
        }
        for call in command.calls() {
            let looks = call.outputs.views().iter().map(|look| look.layout);
            let inputs = call.inputs.iter().filter_map(|&input| self.layout_of(input));
            // A few numbers tell layouts apart well enough.
            for layout in inputs.chain(looks) {
                (layout.offset(), layout.elements()).hash(&mut hash);
            }
        }
        heard.token = match command {
            Command::Step => MARK,
            _ => hash.finish(),
        };
        heard
    }

    pub(super) fn storage_of(&self, tensor: TensorId) -> Option<StorageKey> {
        let key = self.tensors.get(tensor)?;
        Some(self.engine.graph().tensor(key)?.storage)
    }

    fn layout_of(&self, tensor: TensorId) -> Option<Layout> {
        Some(self.engine.graph().tensor(self.tensors.get(tensor)?)?.layout)
    }

    fn bytes_of(&self, tensor: TensorId) -> u64 {
        let storage = self.storage_of(tensor);
        storage.map_or(0, |storage| self.engine.graph().storage(storage).bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Apply, Consumed};
    use crate::cost::CostModelKind;
    use crate::device::sim::Sim;
    use crate::engine::{Engine, Settings};
    use crate::evict::{Learn, PolicyKind};
    use crate::host::HostTensor;
    use crate::layout::{DType, Layout};
    use crate::op::Outputs;
    use crate::ops::{Accumulate, Binary, MatMul, Op, Unary};
    use crate::step::NEVER;
    use std::collections::BTreeMap;

    const DEPTH: usize = 4;

    /// A network of equal layers, trained on a batch for each step: what is sent, in order.
    #[derive(Default)]
    struct Program {
        commands: Vec<Command<Op, HostTensor>>,
        tensors: u64,
    }

    impl Program {
        fn put(&mut self) -> TensorId {
            let tensor = TensorId(self.tensors);
            self.tensors += 1;
            let host = Arc::new(HostTensor::zeros(DType::F32, [4, 4]).unwrap());
            self.commands.push(Command::Put { tensor, host, leaf: false });
            tensor
        }

        fn call(&mut self, op: impl Into<Op>, inputs: &[TensorId], updates: bool) -> TensorId {
            let made = TensorId(self.tensors);
            self.tensors += 1;
            let outputs = match updates {
                true => Outputs::updates(1),
                false => Outputs::fresh([Layout::contiguous(DType::F32, [4, 4])]),
            };
            let mut call = Apply::new(op.into(), inputs, outputs, made);
            call.consumed = [0].into_iter().filter(|_| updates).collect::<Consumed>();
            self.commands.push(Command::Apply(call));
            made
        }

        fn delete(&mut self, tensors: impl IntoIterator<Item = TensorId>) {
            self.commands.extend(tensors.into_iter().map(Command::Del));
        }

        /// Weights are updated in place, or new ones are made.
        fn step(&mut self, weights: &mut [TensorId], marked: bool, in_place: bool) {
            let mut passed = vec![self.put()];
            for &weight in &*weights {
                let product = self.call(MatMul, &[passed[passed.len() - 1], weight], false);
                passed.push(self.call(Unary::Relu, &[product], false));
                self.delete([product]);
            }
            let mut gradient = self.call(Unary::Neg, &[passed[DEPTH]], false);
            for layer in (0..DEPTH).rev() {
                let of_weight = self.call(MatMul, &[passed[layer], gradient], false);
                let next = self.call(MatMul, &[gradient, weights[layer]], false);
                let old = weights[layer];
                weights[layer] = match in_place {
                    true => self.call(Accumulate, &[old, of_weight], true),
                    false => self.call(Binary::Add, &[old, of_weight], false),
                };
                self.delete([gradient, of_weight]);
                self.delete([old].into_iter().filter(|_| !in_place));
                gradient = next;
            }
            self.delete(passed);
            self.commands.push(Command::Get(gradient));
            self.delete([gradient]);
            if marked {
                self.commands.push(Command::Step);
            }
        }
    }

    /// What is expected of each tensor, once two steps between marks have come: what happens.
    #[test]
    fn what_comes_before_comes_again() {
        for (marked, in_place) in [(false, true), (true, true), (true, false)] {
            let mut program = Program::default();
            let mut weights: Vec<_> = (0..DEPTH).map(|_| program.put()).collect();
            let mut begins = Vec::new();
            for _ in 0..6 {
                begins.push(program.commands.len());
                program.step(&mut weights, marked, in_place);
            }
            let known_from = begins[if in_place { 2 } else { 3 }];
            let Program { commands, .. } = program;
            let costs = CostModelKind::Flops.build();
            let (device, evictor) =
                (Sim::<Op, HostTensor>::cpu(1 << 20), PolicyKind::Learned(Learn::Ahead).build(0));
            let engine = Engine::new(device, Settings::default(), evictor, costs).unwrap();
            let mut driver = Driver::new(engine);
            driver.recognize_steps();
            let mut live: BTreeMap<TensorId, ()> = BTreeMap::new();
            let mut compared = 0;
            for (at, command) in commands.iter().enumerate().take(begins[5]) {
                driver.execute(command.clone());
                assert!(driver.engine.take_failure().is_none());
                command.makes(|tensor| _ = live.insert(tensor, ()));
                command.ends(|tensor| _ = live.remove(&tensor));
                if at < known_from || !command.is_position() {
                    continue;
                }
                let foreseen = driver.engine().graph().future().foreseen();
                let foreseen = foreseen.expect("steps have come");
                for &tensor in live.keys() {
                    // What reads it or looks at it under the name that it has now.
                    let counted = commands[at + 1..].iter().filter(|command| command.is_position());
                    let next = counted.take(foreseen.step().len()).position(|command| {
                        let mut reads = false;
                        command.reads(|read| reads |= read == tensor);
                        reads
                    });
                    let storage = driver.storage_of(tensor).unwrap();
                    let value = foreseen.ordinal(storage).expect("it has a role");
                    let known = foreseen.step().next_use(value, foreseen.at() + 1);
                    let known = (known != NEVER).then(|| (known - foreseen.at()) as usize - 1);
                    let end = foreseen.step().len() - foreseen.at() as usize - 2;
                    match next {
                        // Beyond the end of the step, the end is what is known: at the mark, what was made anew is used.
                        Some(next) if next >= end => {
                            let known = known.expect("it is used");
                            assert!(known == end || !in_place && known + 1 == end);
                        }
                        next => assert_eq!(known, next, "{tensor} after {at}: {command:?}"),
                    }
                    compared += 1;
                }
            }
            assert!(compared > 100, "{compared}");
        }
    }
}
